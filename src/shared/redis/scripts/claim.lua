-- What is there, and may the caller build it?
-- KEYS: entry, lease, marker, tags, tombstone
-- ARGV: token, lease time (ms), proof, token of the entry the caller has, token it rejects,
--       purpose (serve, waited, look), largest value to send whole
-- Reply: state (fresh, leased, busy, failed, absent, undone, unwritable), server time (us), entry's time left (ms), entry, lease's time left (ms), marker
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = string.format('%016.0f', micros)

-- All that began before the floor counts as purged. Without the set nothing is known of the past.
local floor = redis.pcall('ZSCORE', KEYS[4], '!')
if type(floor) ~= 'string' then
  if floor then
    redis.pcall('DEL', KEYS[4])
  end
  floor = string.format('%.0f', micros - 1)
  redis.pcall('ZADD', KEYS[4], floor, '!')
end

-- Garbage in a head is 0, and that is before the floor.
local function number(text)
  return text:match('^%d+$') and tonumber(text) or 0
end

local function purged(began, count)
  if began <= tonumber(floor) then
    return true
  end
  local tags = redis.call('GETRANGE', KEYS[1], 114, 113 + 32 * count)
  for at = 1, #tags, 32 do
    local score = redis.pcall('ZSCORE', KEYS[4], tags:sub(at, at + 31))
    if type(score) == 'string' and tonumber(score) >= began then
      return true
    end
  end
  return false
end

local head = redis.pcall('GETRANGE', KEYS[1], 0, 113)
local left = 0
local usable = false
if type(head) == 'string' and #head == 114 and head:sub(1, 4) == 'TSE1'
    and head:sub(80, 111) == ARGV[3] and head:sub(6, 37) ~= ARGV[5] then
  left = redis.call('PTTL', KEYS[1])
  usable = left > 0 and not purged(number(head:sub(38, 53)), number(head:sub(112, 114)))
end

local function value()
  if head:sub(6, 37) == ARGV[4] or redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[7]) then
    return head
  end
  return redis.call('GET', KEYS[1])
end

if usable and left > number(head:sub(67, 79)) then
  return { 'fresh', now, left, value(), 0, '' }
end

local marker = redis.pcall('GET', KEYS[3])
if type(marker) ~= 'string' then
  marker = ''
end
if ARGV[6] == 'waited' and marker:sub(1, 1) == 'f' then
  return { 'failed', now, 0, marker:sub(2), 0, '' }
end
if ARGV[6] == 'look' then
  return { 'absent', now, 0, '', 0, '' }
end

local stale = usable and value() or ''
local kind = marker:sub(1, 1)
if redis.call('EXISTS', KEYS[5]) == 1 then
  return { 'undone', now, 0, '', 0, kind }
end
local holder = redis.pcall('GET', KEYS[2])
if holder == ARGV[1] then
  return { 'leased', now, left, stale, 0, kind }
end
if type(holder) == 'string' then
  -- Every lease has a time to live; what has none is not one.
  local remains = redis.call('PTTL', KEYS[2])
  if remains >= 0 then
    return { 'busy', now, left, stale, remains, kind }
  end
end
local set = redis.pcall('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
if set.err and set.err:find('READONLY', 1, true) then
  return set
end
return { set.err and 'unwritable' or 'leased', now, left, stale, 0, kind }
