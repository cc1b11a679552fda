-- KEYS: the room's three. ARGV: channel. Says: how many were removed.
local removed = redis.call('ZCARD', members)
redis.call('DEL', members, notes)
if removed > 0 then
    tell(ARGV[1])
end
return removed
