-- Give an id up, if the claim is still the one that holds it: the late close of a socket must not
-- remove its successor.
--
-- KEYS  owner record
-- ARGV  1 epoch, 2 ms to keep the id for its token, 0 for not at all
-- Gives 1 if it was given up

if redis.call('HGET', KEYS[1], 'e') ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  -- Handed over: nobody's, so that messages wait, but others are still told that it is taken.
  redis.call('HSET', KEYS[1], 'r', '')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 1
