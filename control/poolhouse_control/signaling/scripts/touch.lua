-- Keep a claim alive, and write it again where the store has forgotten it.
--
-- KEYS  owner record, queue, facts of the queue
-- ARGV  1 replica, 2 token digest, 3 epoch, 4 life of the record in ms
-- Gives {0} if a newer claim stands, else {1, waiting parcels}

local epoch = redis.call('HGET', KEYS[1], 'e')
if epoch and tonumber(epoch) > tonumber(ARGV[3]) then
  return {0}
end
-- Absent, or older after a failover that lost the last writes: this claim is the newest.
redis.call('HSET', KEYS[1], 'r', ARGV[1], 't', ARGV[2], 'e', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
-- While this replica could not be reached, others let messages wait: it has come for them.
local waiting = redis.call('LRANGE', KEYS[2], 0, -1)
redis.call('DEL', KEYS[2], KEYS[3])
return {1, waiting}
