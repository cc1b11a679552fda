-- Prolongs a lease. KEYS: lease. ARGV: token, time (ms). Reply: 1 if the lease was the caller's
if holder(KEYS[1]) ~= ARGV[1] then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
