-- Takes back an attempt; a promoted reader is a reader again.
-- KEYS: the room's three; the attempt's tombstone.
-- ARGV: token, attempt, milliseconds the tombstone stands, channel.
local token, attempt = ARGV[1], ARGV[2]
local changed = redis.call('ZREM', waiting, attempt) == 1
local own = member(token)
if own and own.attempt == attempt then
    local before = redis.call('HGET', notes, 'p' .. token)
    remove(token)
    local score, note = string.match(before or '', '^([^:]*):(.*)$')
    if score and remaining(score) ~= 0 then
        redis.call('HSET', notes, 'm' .. token, note)
        redis.call('ZADD', members, score, token)
    end
    settle()
    changed = true
end
-- Where there is no memory for a tombstone, there is none for a late attempt either.
redis.pcall('SET', KEYS[4], '', 'PX', ARGV[3])
if changed then
    tell(ARGV[4])
end
return 1
