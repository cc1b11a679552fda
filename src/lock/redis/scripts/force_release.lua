-- Removes a lock, whoever holds it, and tells the waiters.
-- KEYS: the lock. ARGV: its channel. Says: how many were removed.
local removed = redis.call('DEL', KEYS[1])
if removed > 0 then
    redis.pcall('PUBLISH', ARGV[1], '')
end
return removed
