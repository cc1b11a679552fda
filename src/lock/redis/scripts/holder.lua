-- KEYS: the lock. Says: its value and its remaining time, or nothing.
local held = redis.call('GET', KEYS[1])
if not held then
    return {}
end
return {held, redis.call('PTTL', KEYS[1])}
