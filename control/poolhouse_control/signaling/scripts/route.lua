-- Say where an id is, or let a message wait for it: nothing comes between "absent" and "it waits".
--
-- KEYS  owner record, queue, facts of the queue
-- ARGV  1 replica that cannot be reached ('' none), 2 '1' if the message may wait,
--       3 '1' if it waits even for an owner that is there, 4 entry, 5 its size in bytes,
--       6 and 7 bounds of the queue in messages and bytes, 8 life of the queue in ms
-- Gives {'owner', replica} or {'gone'} or {'full'} or {'queued', number of the queue, age in ms}

local replica = redis.call('HGET', KEYS[1], 'r')
if replica and replica ~= '' and replica ~= ARGV[1] and ARGV[3] ~= '1' then
  return {'owner', replica}
end
if ARGV[2] ~= '1' then
  return {'gone'}
end

local facts = redis.call('HMGET', KEYS[3], 'number', 'bytes')
local bytes = tonumber(facts[2] or 0) + ARGV[5]
if redis.call('LLEN', KEYS[2]) >= tonumber(ARGV[6]) or bytes > tonumber(ARGV[7]) then
  return {'full'}
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local number = facts[1] or string.format('%.0f', now)
redis.call('RPUSH', KEYS[2], ARGV[4])
redis.call('HSET', KEYS[3], 'number', number, 'bytes', bytes)
if not facts[1] then
  -- A safety net only: the sender's replica takes messages back in time. Without it a crashed
  -- one would leave them for ever. The clock starts with the first message (signaling, 4.3).
  redis.call('PEXPIRE', KEYS[2], ARGV[8])
  redis.call('PEXPIRE', KEYS[3], ARGV[8])
end
local age = math.max(0, math.floor((now - tonumber(number)) / 1000))
return {'queued', number, age}
