-- Gives a lease back without an entry.
-- KEYS: lease, marker, tombstone
-- ARGV: token, marker or '', its time (ms), the tombstone's time (ms) or 0, channel, message
-- Reply: 1 if the lease was the caller's
if tonumber(ARGV[4]) > 0 then
  redis.pcall('SET', KEYS[3], '1', 'PX', ARGV[4])
end
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  redis.pcall('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
redis.pcall('PUBLISH', ARGV[5], ARGV[6])
return 1
