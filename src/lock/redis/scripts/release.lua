-- Compare and delete: removes all locks, if all of them hold what is expected, and tells the waiters.
-- KEYS: the locks. ARGV: value, delimited token (empty: only the value counts), then one channel for
-- each lock.
-- Says: 1 released, 0 expired, -1 held by another; 2 released, but telling the waiters was refused.
local value, prefix = ARGV[1], ARGV[2]

local function remove(i)
    redis.call('DEL', KEYS[i])
    local told = redis.pcall('PUBLISH', ARGV[2 + i], '')
    return type(told) == 'number'
end

-- What most releases are.
if #KEYS == 1 and redis.call('GET', KEYS[1]) == value then
    return remove(1) and 1 or 2
end

local missing, result = false, 1
for i = 1, #KEYS do
    local held = redis.call('GET', KEYS[i])
    if not held then
        missing = true
    elseif held ~= value and (prefix == '' or string.sub(held, 1, #prefix) ~= prefix) then
        return -1
    end
end
if missing then
    return 0
end
for i = 1, #KEYS do
    if not remove(i) then
        result = 2
    end
end
return result
