-- Takes back an attempt, whether it was granted, is yet to come, or never will.
-- KEYS: the locks; the attempt's tombstone.
-- ARGV: value, milliseconds the tombstone stands, then one channel for each lock.
for i = 1, #KEYS - 1 do
    if redis.call('GET', KEYS[i]) == ARGV[1] then
        redis.call('DEL', KEYS[i])
        redis.pcall('PUBLISH', ARGV[2 + i], '')
    end
end
-- Where there is no memory for a tombstone, there is none for a late attempt either.
redis.pcall('SET', KEYS[#KEYS], '', 'PX', ARGV[2])
return 1
