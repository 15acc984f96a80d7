-- Renew the lease of a replica, and tell how long the store remembers without a gap.
--
-- KEYS  lease, replicas that have written their ids (scores: when their leases end), birth
-- ARGV  1 replica, 2 what the lease says, 3 its life in ms, 4 the server's run id ('' unknown),
--       5 '1' if all ids of the replica are in the store
-- Gives {1 if the lease had not run out, age of the store's memory in ms, such replicas}

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- A server that started, or another one after a failover, may have forgotten claims. Its memory
-- counts from now, and every replica must write its ids again.
local birth = redis.call('HMGET', KEYS[3], 'run', 'at')
local same = birth[1] and (ARGV[4] == '' or birth[1] == ARGV[4])
if not same or tonumber(birth[2]) > now then
  redis.call('HSET', KEYS[3], 'run', ARGV[4], 'at', string.format('%.0f', now))
  redis.call('DEL', KEYS[2])
  birth[2] = now
end

local lasted = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if ARGV[5] == '1' then
  redis.call('ZADD', KEYS[2], now + ARGV[3], ARGV[1])
else
  redis.call('ZREM', KEYS[2], ARGV[1])
end
return {lasted, now - tonumber(birth[2]), redis.call('ZRANGE', KEYS[2], 0, -1)}
