-- Return the kind of a name.  Writes nothing.
--
-- KEYS[1]  the name's key
-- KEYS[2]  its queue
--
-- Returns  nothing, lock, semaphore or latch
--          foreign, key, its actual type
local function of_another(text)
	local version = string.match(text, '^(%d+):')
	return {'foreign', KEYS[1], version and 'protocol version ' .. version or 'none of ours'}
end

local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'string' then
	local value = redis.call('GET', KEYS[1])
	return (string.match(value, '^2:') or string.match(value, '^q1:')) and {'lock'} or of_another(value)
end
if kind == 'hash' then
	local fields = redis.call('HMGET', KEYS[1], 'kind', 'count')
	local what = string.match(fields[1] or '', '^1:(latch)$') or string.match(fields[1] or '', '^2:(semaphore)$')
	if what == 'latch' and not fields[2] then return {'nothing'} end -- removed
	return what and {what} or of_another(fields[1] or '')
end
if kind ~= 'none' then return of_another('') end
local head = redis.pcall('ZRANGE', KEYS[2], 0, 0)
if head.err then return {'foreign', KEYS[2], 'not a sorted set'} end
if not head[1] then return {'nothing'} end
return {string.match(head[1], ':[rfn]:%d+$') and 'semaphore' or 'lock'}
