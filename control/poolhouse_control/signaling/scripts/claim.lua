-- Claim an id: one step from "whose is it" to "it is mine, and this had waited for me".
--
-- KEYS  owner record, queue, facts of the queue (one hash tag: one slot)
-- ARGV  1 replica, 2 token digest, 3 epoch that may be replaced whatever its token ('' none),
--       4 life of the record in ms
-- Gives {'taken', replica, epoch}
--    or {'mine', epoch, right, former replica, former epoch, waiting parcels}

local owner = redis.call('HMGET', KEYS[1], 'r', 't', 'e')
local replica, digest, epoch = owner[1], owner[2], owner[3]

local right = 'free'
if epoch then
  if digest == ARGV[2] then
    right = 'same_token'
  elseif epoch == ARGV[3] then
    -- The caller has seen that the lease of this very claim's replica ran out. Whoever claims
    -- first changes the epoch, so that of two callers one is refused.
    right = 'dead_owner'
  else
    return {'taken', replica, epoch}
  end
end

-- Epochs come from the server's clock, so that they grow over a release too; and where its clock
-- was set back, they grow by one as long as there is a record. A double holds them exactly.
local time = redis.call('TIME')
local fresh = time[1] * 1000000 + time[2]
if epoch then
  fresh = math.max(fresh, tonumber(epoch) + 1)
end
local mine = string.format('%.0f', fresh)

redis.call('HSET', KEYS[1], 'r', ARGV[1], 't', ARGV[2], 'e', mine)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
local waiting = redis.call('LRANGE', KEYS[2], 0, -1)
redis.call('DEL', KEYS[2], KEYS[3])
return {'mine', mine, right, replica or '', epoch or '', waiting}
