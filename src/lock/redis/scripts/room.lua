-- What all scripts for read/write locks begin with. KEYS[1] is a sorted set of tokens by the time at which
-- each ends (inf: never). KEYS[2] is a hash: 'm' .. token is the member's mode (r or w), attempt and
-- metadata; 'p' .. token is what a promoted reader was before. KEYS[3] is a sorted set of the attempts of
-- preferred writers by the time until which they hold back new readers.
local members, notes, waiting = KEYS[1], KEYS[2], KEYS[3]
local ATTEMPT = 16

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number)
    return string.format('%.0f', number)
end

local function ending(ttl)
    if ttl == '0' then
        return 'inf'
    end
    return text(now + ttl)
end

local function remaining(score)
    if not score then
        return -2
    end
    if score == 'inf' then
        return -1
    end
    return math.max(tonumber(score) - now, 0)
end

local function remove(token)
    redis.call('ZREM', members, token)
    redis.call('HDEL', notes, 'm' .. token, 'p' .. token)
end

local function expire()
    for _, token in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', text(now))) do
        remove(token)
    end
    redis.call('ZREMRANGEBYSCORE', waiting, '-inf', text(now))
end

-- The keys live as long as their longest member.
local function settle()
    local last = redis.call('ZRANGE', members, -1, -1, 'WITHSCORES')
    for _, key in ipairs({members, notes}) do
        if last[2] == 'inf' then
            redis.call('PERSIST', key)
        elseif last[2] then
            redis.call('PEXPIREAT', key, text(tonumber(last[2])))
        end
    end
    last = redis.call('ZRANGE', waiting, -1, -1, 'WITHSCORES')
    if last[2] then
        redis.call('PEXPIREAT', waiting, text(tonumber(last[2])))
    end
end

-- A member without a note (a server that ran out of memory may have dropped the notes alone) excludes
-- everyone, and has no attempt of its own.
local function member(token)
    local note = redis.call('HGET', notes, 'm' .. token)
    if not note and redis.call('ZSCORE', members, token) then
        note = 'w' .. string.rep('0', ATTEMPT)
    end
    if not note then
        return nil
    end
    return {mode = string.sub(note, 1, 1), attempt = string.sub(note, 2, 1 + ATTEMPT), note = note}
end

local function tell(channel)
    redis.pcall('PUBLISH', channel, '')
end

expire()
