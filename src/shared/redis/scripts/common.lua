-- What the scripts have in common: how a lease and an entry's head read, and what has been purged.

-- Garbage is 0, and that is before everything.
local function number(text)
  return text:match('^%d+$') and tonumber(text) or 0
end

-- Who holds a lease, and since when (us). It reads `#32:<token>:<since>:`, as a lock's value does.
local function holder(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'string' then
    return '', 0
  end
  return value:sub(5, 36), number(value:sub(38, 53))
end

-- The time (us). It never goes back, though the server's clock may, after a fail-over say: `#` is the latest
-- that a lease or a purge was given, and whoever gives one notes it.
local function clock(tags)
  local time = redis.call('TIME')
  local latest = redis.pcall('ZSCORE', tags, '#')
  latest = type(latest) == 'string' and tonumber(latest) or 0
  return math.max(time[1] * 1000000 + time[2], latest + 1)
end

local function note_time(tags, micros)
  return redis.pcall('ZADD', tags, 'GT', string.format('%.0f', micros), '#')
end

-- When everything and these tags were last purged, hard and softly (us; `~` stands before the soft ones,
-- and `!` for everything). Without the set nothing is known of the past, and the first is nil.
local function purged(tags, names)
  local members = { '!', '~!' }
  for _, name in ipairs(names) do
    members[#members + 1] = name
    members[#members + 1] = '~' .. name
  end
  local scores = redis.pcall('ZMSCORE', tags, unpack(members))
  if scores.err or not scores[1] then
    return nil, 0
  end
  local latest = { 0, 0 }
  for at, score in ipairs(scores) do
    local kind = 2 - at % 2
    latest[kind] = math.max(latest[kind], score and tonumber(score) or 0)
  end
  return latest[1], latest[2]
end

-- An entry's head, and its time left (ms), if it is valid; without the set of tags nothing is. What was
-- purged softly has its stale window left, from then on: by how much (ms) that is less comes third.
local function head_of(entry, tags, micros)
  local head = redis.pcall('GETRANGE', entry, 0, 113)
  if type(head) ~= 'string' or #head ~= 114 or head:sub(1, 4) ~= 'TSE1' then
    return nil, 0, 0
  end
  local left = redis.call('PTTL', entry)
  local began = number(head:sub(38, 53))
  local carried = redis.call('GETRANGE', entry, 114, 113 + 32 * number(head:sub(112, 114)))
  local names = {}
  for name in carried:gmatch(('%w'):rep(32)) do
    names[#names + 1] = name
  end
  local hard, soft = purged(tags, names)
  local cut = 0
  if soft >= began then
    cut = math.max(left - number(head:sub(67, 79)) + math.floor((micros - soft) / 1000), 0)
  end
  -- What claims to come from the future is garbage.
  if not hard or hard >= began or began > micros or left <= cut then
    return nil, 0, 0
  end
  return head, left - cut, cut
end

local function is_fresh(head, left)
  return head and left > number(head:sub(67, 79))
end

-- Tells those who listen to the shard, on this node alone; if there are none (or the server knows no such
-- channels), those who listen to the namespace, on all nodes.
local function tell(channel, message, shard)
  local told = shard ~= '' and redis.pcall('SPUBLISH', shard, message)
  if type(told) ~= 'number' or told == 0 then
    redis.pcall('PUBLISH', channel, message)
  end
end

