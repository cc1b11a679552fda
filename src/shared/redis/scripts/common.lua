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

-- When a tag was purged (us), as far as that is known: `!` is the one of everything, and `~` stands
-- before those that were purged softly.
local function purged(tags, tag)
  local score = redis.pcall('ZSCORE', tags, tag)
  return type(score) == 'string' and tonumber(score) or 0
end

-- The latest purge of either kind of what carries a tag, or of everything.
local function overtaken(tags, tag)
  return math.max(purged(tags, tag), purged(tags, '~' .. tag))
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
  local hard, soft = purged(tags, '!'), purged(tags, '~!')
  if hard == 0 then
    return nil, 0, 0
  end
  for at = 1, #carried, 32 do
    local tag = carried:sub(at, at + 31)
    hard = math.max(hard, purged(tags, tag))
    soft = math.max(soft, purged(tags, '~' .. tag))
  end
  local cut = 0
  if soft >= began then
    cut = math.max(left - number(head:sub(67, 79)) + math.floor((micros - soft) / 1000), 0)
  end
  if hard >= began or left <= cut then
    return nil, 0, 0
  end
  return head, left - cut, cut
end

local function is_fresh(head, left)
  return head and left > number(head:sub(67, 79))
end

