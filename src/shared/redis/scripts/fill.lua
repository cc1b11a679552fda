-- Stores what the lease's holder has built, gives the lease back and tells everybody.
-- KEYS: entry, lease, tags, the resource's own entry, markers ...
-- ARGV: token, when the build began (us), value, its life (ms), what the resource varies by or '',
--       channel, message, the shard's own channel or '', tags ...
-- Reply: stored, fenced, or refused (there was no room)
local began = tonumber(ARGV[2])
local head = redis.pcall('GETRANGE', KEYS[1], 0, 52)
local newer = false
if type(head) == 'string' and head:sub(1, 4) == 'TSE1' then
  if head:sub(6, 37) == ARGV[1] then
    return 'stored'
  end
  -- What claims to come from the future is garbage.
  local stored = number(head:sub(38, 53))
  newer = stored > began and stored <= clock(KEYS[3])
end
if holder(KEYS[2]) ~= ARGV[1] then
  return 'fenced'
end

local hard, soft = purged(KEYS[3], { unpack(ARGV, 9) })
local fenced = newer or not hard or math.max(hard, soft) >= began

local stored = false
if not fenced then
  stored = not redis.pcall('SET', KEYS[1], ARGV[3], 'PX', ARGV[4]).err
  if stored then
    for at = 5, #KEYS do
      redis.call('DEL', KEYS[at])
    end
    if ARGV[5] ~= '' then
      local life = math.max(redis.call('PTTL', KEYS[4]), tonumber(ARGV[4]))
      redis.pcall('SET', KEYS[4], ARGV[5], 'PX', life)
    end
  end
end
redis.call('DEL', KEYS[2])
tell(ARGV[6], ARGV[7], ARGV[8])
return fenced and 'fenced' or stored and 'stored' or 'refused'
