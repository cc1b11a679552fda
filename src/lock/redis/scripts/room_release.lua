-- KEYS: the room's three. ARGV: token, attempt (empty: any), channel.
-- Says: 1 released, 0 expired, -1 held by another.
local own = member(ARGV[1])
if not own then
    local any = redis.call('ZRANGE', members, 0, 0)
    if any[1] and member(any[1]).mode == 'w' then
        return -1
    end
    return 0
end
if ARGV[2] ~= '' and own.attempt ~= ARGV[2] then
    return -1
end
remove(ARGV[1])
settle()
tell(ARGV[3])
return 1
