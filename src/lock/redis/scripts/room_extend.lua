-- KEYS: the room's three; for an addition also its name, so that it happens once.
-- ARGV: token, attempt (empty: any), what to do ('replace', 'add' or 'tell'), milliseconds (0: persistent),
--       milliseconds an addition is remembered, channel.
-- Says: the remaining time, -1 if persistent, or -2 if it is not held.
local token, change = ARGV[1], ARGV[3]
local own = member(token)
if not own or (ARGV[2] ~= '' and own.attempt ~= ARGV[2]) then
    return -2
end
if change == 'add' and not redis.call('SET', KEYS[4], '', 'NX', 'PX', ARGV[5]) then
    change = 'tell'
end
local before = redis.call('ZSCORE', members, token)
local after = before
if change == 'replace' then
    after = ending(ARGV[4])
elseif change == 'add' and before ~= 'inf' then
    after = text(tonumber(before) + ARGV[4])
end
if after ~= before then
    redis.call('ZADD', members, after, token)
    settle()
    if after ~= 'inf' and (before == 'inf' or tonumber(after) < tonumber(before)) then
        tell(ARGV[6])
    end
end
return remaining(after)
