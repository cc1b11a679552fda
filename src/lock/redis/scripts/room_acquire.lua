-- KEYS: the room's three; the attempt's tombstone; if numbered, the counter.
-- ARGV: mode (r or w), token, attempt, milliseconds to live (0: persistent), metadata, milliseconds to hold
--       back readers while waiting (0: not), milliseconds a counter outlives its lock.
-- Says: {'granted', number}, {'held', remaining}, {'busy', what, remaining} or {'withdrawn'}, where what is
-- 'holder', 'readers' (beside the token's own read) or 'writer' (one that waits).
local mode, token, attempt, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function number()
    if not KEYS[5] then
        return ''
    end
    local next = math.max(
        time[1] * 1000000 + time[2],
        (tonumber(redis.call('GET', KEYS[5])) or 0) + 1)
    next = text(next)
    if ttl == '0' then
        redis.call('SET', KEYS[5], next)
    else
        redis.call('SET', KEYS[5], next, 'PX', text(ttl + ARGV[7]))
    end
    return next
end

local function busy(what, score)
    if mode == 'w' and ARGV[6] ~= '0' then
        redis.call('ZADD', waiting, text(now + ARGV[6]), attempt)
        settle()
    end
    return {'busy', what, remaining(score)}
end

if redis.call('EXISTS', KEYS[4]) == 1 then
    return {'withdrawn'}
end

local own = member(token)
if own and own.attempt == attempt then
    return {'granted', number()}
end
if own and own.mode == 'r' and mode == 'r' then
    return {'held', remaining(redis.call('ZSCORE', members, token))}
end

-- A writer is always the only member.
local last = redis.call('ZRANGE', members, -2, -1, 'WITHSCORES')
local alone = #last == 2
if alone and member(last[1]).mode == 'w' then
    return busy('holder', last[2])
end
if mode == 'r' and redis.call('ZCARD', waiting) > 0 then
    return busy('writer', nil)
end
if mode == 'w' and #last > 0 and not (own and alone) then
    local longest = last[4] or last[2]
    if last[3] == token then
        longest = last[2]
    end
    return busy(own and 'readers' or 'holder', longest)
end

local given = number()
redis.call('ZREM', waiting, attempt)
if own then
    redis.call('HSET', notes, 'p' .. token, redis.call('ZSCORE', members, token) .. ':' .. own.note)
end
redis.call('HSET', notes, 'm' .. token, mode .. attempt .. ARGV[5])
redis.call('ZADD', members, ending(ttl), token)
settle()
return {'granted', given}
