-- Takes all locks or none.
-- KEYS: the locks; the attempt's tombstone; if numbered, one counter for each lock.
-- ARGV: how many locks, value, token, delimited token, milliseconds to live (0: persistent),
--       'replace' or 'report' if the token holds them all, milliseconds a counter outlives its lock.
-- Says: {'granted', number}, {'held', remaining}, {'busy', remaining} or {'withdrawn'}.
local locks = tonumber(ARGV[1])
local value, token, prefix, ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local numbered = #KEYS > locks + 1

local function remaining(key)
    return redis.call('PTTL', key)
end

local function later(one, other)
    if one == -1 or other == -1 then
        return -1
    end
    return math.max(one, other)
end

-- Time makes the next number greater even if the counter was lost with the server's memory.
local function number()
    local time = redis.call('TIME')
    local next = time[1] * 1000000 + time[2]
    for i = 1, locks do
        next = math.max(next, (tonumber(redis.call('GET', KEYS[locks + 1 + i])) or 0) + 1)
    end
    next = string.format('%.0f', next)
    for i = 1, locks do
        if ttl == '0' then
            redis.call('SET', KEYS[locks + 1 + i], next)
        else
            redis.call('SET', KEYS[locks + 1 + i], next, 'PX', string.format('%.0f', ttl + ARGV[7]))
        end
    end
    return next
end

if redis.call('EXISTS', KEYS[locks + 1]) == 1 then
    return {'withdrawn'}
end

local own, taken, wait = 0, 0, 0
for i = 1, locks do
    local held = redis.call('GET', KEYS[i])
    if held == value then
        local given = numbered and redis.call('GET', KEYS[locks + 1 + i])
        return {'granted', given or ''}
    end
    if held then
        taken = taken + 1
        wait = later(wait, remaining(KEYS[i]))
        if held == token or string.sub(held, 1, #prefix) == prefix then
            own = own + 1
        end
    end
end
if taken > 0 and own < locks then
    return {'busy', wait}
end
if taken > 0 and ARGV[6] == 'report' then
    return {'held', wait}
end

local given = numbered and number() or ''
for i = 1, locks do
    if ttl == '0' then
        redis.call('SET', KEYS[i], value)
    else
        redis.call('SET', KEYS[i], value, 'PX', ttl)
    end
end
return {'granted', given}
