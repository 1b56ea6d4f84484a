-- Make a latch: a new generation counts.
--
-- KEYS[1]  the latch
-- KEYS[2]  its memory
-- KEYS[3]  the fence counter
-- KEYS[4]  the queue of a lock or a semaphore of that name
-- ARGV[1]  count, 0 = it is open at once
-- ARGV[2]  1 = also while another generation counts, 0 = not then
-- ARGV[3]  how long it stays open, ms
-- ARGV[4]  how long it counts at most, ms, 0 = without end
-- ARGV[5]  its channel
--
-- Returns  set, what it was before: absent, counting or open
--          counting, count, initial count: nothing was changed
--          foreign, key, what it is
--          fence, what is wrong with the counter
-- include shared/latch.lua
local wrong = read()
if wrong then return wrong end
wrong = of_another(KEYS[4])
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

-- The first write is one that a full server refuses: then nothing is changed.
redis.call('SET', KEYS[3], gen)
redis.call('DEL', LATCH, MEMORY)
redis.call('HSET', LATCH, 'kind', '1:latch', 'gen', gen, 'count', ARGV[1], 'initial', ARGV[1], 'open_ttl', ARGV[3])
-- Steps are of one generation; what opened and what was removed before is not.
redis.call('HSET', MEMORY, 'opened', ARGV[1] == '0' and gen or opened, 'removed', removed, 'gen', gen)
if ARGV[1] == '0' then
	redis.call('PEXPIRE', LATCH, ARGV[3])
	redis.call('PEXPIRE', MEMORY, tonumber(ARGV[3]) + MEMORY_MS)
	-- Whoever may not publish has opened it all the same; those who wait ask, a little later.
	redis.pcall('PUBLISH', ARGV[5], 'open ' .. gen)
elseif ARGV[4] ~= '0' then
	redis.call('PEXPIRE', LATCH, ARGV[4])
	redis.call('PEXPIRE', MEMORY, tonumber(ARGV[4]) + MEMORY_MS)
end
return {'set', was}
