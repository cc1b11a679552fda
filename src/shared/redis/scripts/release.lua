-- Gives a lease back without an entry. Nothing is marked beside the fresh entry of another build, which was
-- better; beside the one that was to be renewed, what has come of that is.
-- KEYS: lease, marker, tombstone, entry, tags
-- ARGV: token, marker or '', its time (ms), the tombstone's time (ms) or 0, channel, message,
--       the shard's own channel or '', token of the entry that was to be renewed or ''
-- Reply: 1 if the lease was the caller's, 2 if another build has left a fresh entry all the same, else 0
if tonumber(ARGV[4]) > 0 then
  redis.pcall('SET', KEYS[3], '1', 'PX', ARGV[4])
end
if holder(KEYS[1]) ~= ARGV[1] then
  return 0
end
local head, left = head_of(KEYS[4], KEYS[5], clock(KEYS[5]))
local outdone = is_fresh(head, left) and head:sub(6, 37) ~= ARGV[8]
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' and not outdone then
  redis.pcall('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
tell(ARGV[5], ARGV[6], ARGV[7])
return outdone and 2 or 1
