-- KEYS: the room's three. Says: for each member its token, its mode, attempt and metadata, and its remaining
-- time.
local found = {}
local all = redis.call('ZRANGE', members, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
    found[#found + 1] = all[i]
    found[#found + 1] = member(all[i]).note
    found[#found + 1] = remaining(all[i + 1])
end
return found
