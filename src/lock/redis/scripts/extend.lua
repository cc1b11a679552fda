-- Changes the time to live of all locks, if all of them hold what is expected.
-- KEYS: the locks; for an addition also its name, so that it happens once.
-- ARGV: how many locks, value, delimited token (empty: only the value counts), what to do ('replace',
--       'add' or 'tell'), milliseconds (0: persistent), milliseconds an addition is remembered, then one
--       channel for each lock.
-- Says: the least remaining time, -1 if all are persistent, or -2 if they are not held.
local locks = tonumber(ARGV[1])
local value, prefix, change, millis = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

for i = 1, locks do
    local held = redis.call('GET', KEYS[i])
    if not held then
        return -2
    end
    if held ~= value and (prefix == '' or string.sub(held, 1, #prefix) ~= prefix) then
        return -2
    end
end
if change == 'add' and not redis.call('SET', KEYS[locks + 1], '', 'NX', 'PX', ARGV[6]) then
    change = 'tell'
end

local least = -1
for i = 1, locks do
    local before = redis.call('PTTL', KEYS[i])
    local after = before
    if change == 'replace' and millis == 0 then
        redis.call('PERSIST', KEYS[i])
        after = -1
    elseif change == 'replace' then
        redis.call('PEXPIRE', KEYS[i], ARGV[5])
        after = millis
    elseif change == 'add' and before >= 0 then
        after = before + millis
        redis.call('PEXPIRE', KEYS[i], string.format('%.0f', after))
    end
    if after >= 0 and (before == -1 or after < before) then
        redis.pcall('PUBLISH', ARGV[6 + i], '')
    end
    if after >= 0 and (least == -1 or after < least) then
        least = after
    end
end
return least
