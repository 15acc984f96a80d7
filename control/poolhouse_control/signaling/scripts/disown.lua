-- Undo a claim whose answer never came: nobody knows its epoch, and nobody will release it.
--
-- KEYS  owner record
-- ARGV  1 replica, 2 token digest of that claim
-- Gives 1 if there was such a record

local owner = redis.call('HMGET', KEYS[1], 'r', 't')
if owner[1] ~= ARGV[1] or owner[2] ~= ARGV[2] then
  return 0
end
return redis.call('DEL', KEYS[1])
