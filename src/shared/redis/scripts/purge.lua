-- Purges what carries a tag, in constant time: whatever began before now is not valid any more, or
-- stale from now on.
-- KEYS: tags. ARGV: tag or `!` for everything, with `~` before it if softly; how many tags to remember,
--       channel or '' to tell nobody, message
-- Reply: how many processes have been told, on this server; -1 if none could be
local micros = clock(KEYS[1])
local now = string.format('%.0f', micros)
if not purged(KEYS[1], {}) then
  redis.call('DEL', KEYS[1])
  redis.call('ZADD', KEYS[1], now, '!')
end
redis.call('ZADD', KEYS[1], 'GT', now, ARGV[1])
note_time(KEYS[1], micros)

-- Forgetting a purge raises the floor over it, so that nothing comes back.
local limit = tonumber(ARGV[2])
if redis.call('ZCARD', KEYS[1]) > limit then
  local last = math.floor(limit / 10)
  local oldest = redis.call('ZRANGE', KEYS[1], last, last, 'WITHSCORES')
  redis.call('ZREMRANGEBYRANK', KEYS[1], 0, last)
  redis.call('ZADD', KEYS[1], 'GT', oldest[2], '!')
end
if ARGV[3] == '' then
  return 0
end
local told = redis.pcall('PUBLISH', ARGV[3], ARGV[4])
return type(told) == 'number' and told or -1
