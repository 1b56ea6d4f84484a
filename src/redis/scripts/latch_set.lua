-- Make a latch, or reset it to a new generation.
--
-- KEYS[1]  the latch
-- KEYS[2]  its memory
-- KEYS[3]  the fence counter
-- KEYS[4]  the queue of a lock or a semaphore of that name
-- ARGV[1]  count, 0 = open at once
-- ARGV[2]  1 = replace a counting generation, 0 = do not
-- ARGV[3]  ttl of the open latch, ms
-- ARGV[4]  ttl of the counting latch, ms, 0 = none
-- ARGV[5]  its channel
--
-- Returns  set, its state before: absent, counting or open
--          counting, count, initial count: nothing was changed
--          foreign, key, its actual type
--          fence, defect of the counter
-- include shared/change.lua
return whole(function()
-- include shared/latch.lua
-- include shared/publish.lua
local wrong = read()
if wrong then return wrong end
wrong = of_another(KEYS[4], is_sharded(ARGV[5]))
if wrong then return wrong end
local was = not gen and 'absent' or count == 0 and 'open' or 'counting'
if was == 'counting' and ARGV[2] ~= '1' then return {'counting', count, initial} end

local last = redis.pcall('GET', KEYS[3])
if type(last) == 'table' then
	if string.sub(last.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[3], 'not a string'} end
	return last
end
last = last or '0'
if not number(last) then return {'fence', 'not a number'} end
local time = redis.call('TIME')
local next = math.max(tonumber(last) + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]), known() + 1)
if next >= 9007199254740991 then return {'fence', 'used up'} end
gen = string.format('%.0f', next)

-- A full server (maxmemory) refuses this first write: then nothing is changed.
change('SET', KEYS[3], gen)
change('DEL', LATCH, MEMORY)
change('HSET', LATCH, 'kind', '1:latch', 'gen', gen, 'count', ARGV[1], 'initial', ARGV[1], 'open_ttl', ARGV[3])
-- Steps belong to one generation; the last opened and the last removed generation carry over.
change('HSET', MEMORY, 'opened', ARGV[1] == '0' and gen or opened, 'removed', removed, 'gen', gen)
if ARGV[1] == '0' then
	change('PEXPIRE', LATCH, ARGV[3])
	change('PEXPIRE', MEMORY, tonumber(ARGV[3]) + MEMORY_MS)
	-- Without the right to publish, the latch still opens; waiters ask a little later.
	publish(ARGV[5], 'open ' .. gen)
elseif ARGV[4] ~= '0' then
	change('PEXPIRE', LATCH, ARGV[4])
	change('PEXPIRE', MEMORY, tonumber(ARGV[4]) + MEMORY_MS)
end
return {'set', was}
end)
