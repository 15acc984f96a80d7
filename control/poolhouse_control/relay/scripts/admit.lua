-- Count one request of a subject. One key, so that it runs on a cluster.
-- KEYS[1] the subject's counter; ARGV[1] rate, ARGV[2] window in ms.
-- Returns 0 when admitted, else the milliseconds until the window ends.
local count = redis.call('INCR', KEYS[1])
if count == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if count <= tonumber(ARGV[1]) then
  return 0
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then -- lost its end, e.g. to a restore: it must not count for ever
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return tonumber(ARGV[2])
end
return math.max(left, 1)
