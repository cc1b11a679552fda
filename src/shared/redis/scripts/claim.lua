-- What is there, and may the caller build it?
-- KEYS: entry, lease, hit-for-miss marker, tags, tombstone, failure marker
-- ARGV: token, lease time (ms), proof, token of the entry the caller has, token it rejects,
--       purpose (serve, look, or refresh: lease though the entry is fresh that the
--       caller has), largest value to send whole, since when the lease that the caller
--       waited for was held (us) or 0, tags that an entry will have ...
-- Reply: state (fresh, leased, busy, failed, absent, undone, unwritable), since when the lease is
--        held (us), entry's time left (ms), entry, lease's time left (ms), hit-for-miss marker's
--        time left (ms), failure, by how much a soft purge has cut the entry's time (ms)
local micros = clock(KEYS[4])
local now = string.format('%016.0f', micros)

-- Where nothing is known of the past, all of it counts as purged.
local hard, soft = purged(KEYS[4], { unpack(ARGV, 9) })
if not hard then
  hard = micros - 1
  redis.pcall('DEL', KEYS[4])
  redis.pcall('ZADD', KEYS[4], string.format('%.0f', hard), '!')
end
local latest = math.max(hard, soft)

local head, left, cut = head_of(KEYS[1], KEYS[4], micros)
if head and (head:sub(80, 111) ~= ARGV[3] or head:sub(6, 37) == ARGV[5]) then
  head, left, cut = nil, 0, 0
end

local function value()
  if not head then
    return ''
  end
  if head:sub(6, 37) == ARGV[4] or redis.call('STRLEN', KEYS[1]) > tonumber(ARGV[7]) then
    return head
  end
  return redis.call('GET', KEYS[1])
end

local renews = head and ARGV[6] == 'refresh' and head:sub(6, 37) == ARGV[4]
if is_fresh(head, left) and not renews then
  return { 'fresh', now, left, value(), 0, 0, '', cut }
end

-- The failure of the build that was waited for, or of a later one; a purge forgets it.
local awaited = tonumber(ARGV[8])
if awaited > 0 then
  local failure = redis.pcall('GET', KEYS[6])
  if type(failure) == 'string' then
    local began = number(failure:sub(1, 16))
    if began >= awaited and began > latest then
      return { 'failed', now, left, value(), 0, 0, failure:sub(17), cut }
    end
  end
end
if ARGV[6] == 'look' then
  return { 'absent', now, left, value(), 0, 0, '', cut }
end

local marker = math.max(redis.call('PTTL', KEYS[3]), 0)
if redis.call('EXISTS', KEYS[5]) == 1 then
  return { 'undone', now, 0, '', 0, marker, '', cut }
end
local token, since = holder(KEYS[2])
if token == ARGV[1] then
  return { 'leased', string.format('%016.0f', since), left, value(), 0, marker, '', cut }
end
-- Nobody waits for what a purge has overtaken. Every lease has a time to live; what has none is not one.
if since > latest then
  local remains = redis.call('PTTL', KEYS[2])
  if remains >= 0 then
    return { 'busy', string.format('%016.0f', since), left, value(), remains, marker, '', cut }
  end
end
note_time(KEYS[4], micros)
local set = redis.pcall('SET', KEYS[2], '#32:' .. ARGV[1] .. ':' .. now .. ':', 'PX', ARGV[2])
if set.err and set.err:find('READONLY', 1, true) then
  return set
end
return { set.err and 'unwritable' or 'leased', now, left, value(), 0, marker, '', cut }
