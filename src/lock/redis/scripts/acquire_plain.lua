-- Takes one lock with a random token and nothing else, which is what most acquisitions are: as acquire.lua,
-- with less for the server to do.
-- KEYS: the lock; the attempt's tombstone. ARGV: token, milliseconds to live.
-- Says: the remaining time of another holder (-1: persistent), -3 granted, -4 withdrawn.
if redis.call('EXISTS', KEYS[2]) == 1 then
    return -4
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return -3
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
    return -3
end
return redis.call('PTTL', KEYS[1])
