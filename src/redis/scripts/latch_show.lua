-- Show a latch.  Writes nothing.
--
-- KEYS[1]  the latch
-- KEYS[2]  its memory
-- KEYS[3]  the fence counter
--
-- Returns  absent | counting | open, its generation (0 = absent), count, initial count,
--          ms until it expires (-1 = never), the last generation that was opened, the last one
--          that was removed, the smallest one that could be made next
--          foreign, key, its actual type
-- include shared/latch.lua
local wrong = read()
if wrong then return wrong end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local last = redis.pcall('GET', KEYS[3])
if type(last) ~= 'string' or not number(last) then last = '0' end
-- A damaged counter makes a new latch impossible, but not a look at this one.
local next = string.format('%.0f', math.min(math.max(tonumber(last) + 1, now, known() + 1), 9007199254740991))
if not gen then return {'absent', '0', 0, 0, -1, opened, removed, next} end
return {count == 0 and 'open' or 'counting', gen, count, initial, left, opened, removed, next}
