-- Count a latch down.  A step counts once, however often it is sent.
--
-- KEYS[1]  the latch
-- KEYS[2]  its memory
-- ARGV[1]  the generation that the step is for
-- ARGV[2]  the client
-- ARGV[3]  the step's number, increasing within a client
-- ARGV[4]  the decrement
-- ARGV[5]  the step's name, "" = none
-- ARGV[6]  the latch's channel
--
-- Returns  stepped, remaining count, 1 = this step counted, now or when it was sent before
--          other, the current generation, 0 = none: not counted now
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
-- include shared/latch.lua
-- include shared/publish.lua
local wrong = read()
if wrong then return wrong end
if gen ~= ARGV[1] then return {'other', gen or '0'} end
if count > 0 and steps_of ~= gen then
	return {'foreign', LATCH, 'a latch whose steps were lost: reset it'}
end
local client, name = 'c:' .. ARGV[2], 'n:' .. ARGV[5]
local known = redis.call('HMGET', MEMORY, client, name)
if known[1] and not number(known[1]) then return {'foreign', MEMORY, 'not the steps of a latch'} end
-- The same step was sent again because its response was lost.
if known[1] and tonumber(known[1]) >= tonumber(ARGV[3]) then return {'stepped', count, 1} end
if count == 0 or (ARGV[5] ~= '' and known[2]) then return {'stepped', count, 0} end

count = math.max(count - tonumber(ARGV[4]), 0)
-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
redis.call('HDEL', LATCH, '')
change('HSET', LATCH, 'count', string.format('%.0f', count))
change('HSET', MEMORY, client, ARGV[3])
if ARGV[5] ~= '' then change('HSET', MEMORY, name, '1') end
if count > 0 then
	if left >= 0 then change('PEXPIRE', MEMORY, left + MEMORY_MS) end
	return {'stepped', count, 1}
end
change('HSET', MEMORY, 'opened', gen)
change('PEXPIRE', LATCH, open_ttl)
change('PEXPIRE', MEMORY, tonumber(open_ttl) + MEMORY_MS)
-- Without the right to publish, the latch still opens; waiters ask a little later.
publish(ARGV[6], 'open ' .. gen)
return {'stepped', 0, 1}
end)
