-- Take waiting messages back. An entry begins with its name (16 bytes) and its size (4 bytes).
--
-- KEYS  queue, facts of the queue
-- ARGV  names
-- Gives the names of those that still waited

local wanted = {}
for _, name in ipairs(ARGV) do
  wanted[name] = true
end

local taken = {}
for _, entry in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do
  local name = string.sub(entry, 1, 16)
  if wanted[name] then
    redis.call('LREM', KEYS[1], 1, entry)
    redis.call('HINCRBY', KEYS[2], 'bytes', -struct.unpack('>I4', entry, 17))
    taken[#taken + 1] = name
  end
end
if redis.call('LLEN', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
end
return taken
