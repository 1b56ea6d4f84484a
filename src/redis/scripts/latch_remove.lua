-- Remove a latch.
--
-- KEYS[1]  the latch
-- KEYS[2]  its memory
-- KEYS[3]  the queue of a lock or a semaphore of that name
-- ARGV[1]  its channel
--
-- Returns  removed
--          absent: nothing was changed
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
-- include shared/latch.lua
-- include shared/publish.lua
local wrong = read()
if wrong then return wrong end
wrong = of_another(KEYS[3], is_sharded(ARGV[1]))
if wrong then return wrong end
if not gen then return {'absent'} end
-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
change('DEL', LATCH, MEMORY)
-- For waiters that missed the message.
change('HSET', MEMORY, 'opened', opened, 'removed', gen)
change('PEXPIRE', MEMORY, MEMORY_MS)
publish(ARGV[1], 'gone ' .. gen)
return {'removed'}
end)
