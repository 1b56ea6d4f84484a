-- What the scripts of a lock share.

-- What stands where the lock should, which is no string.
local function instead()
	local kind = redis.pcall('HGET', KEYS[1], 'kind')
	local what = type(kind) == 'string' and string.match(kind, '^1:(%l+)$')
	return what and 'a ' .. what .. ', not a lock' or 'not a lock'
end

-- The server's clock, us, as text: most fences and answers are this, and printing a number costs more.
local function clock()
	local time = redis.call('TIME')
	return time[1] .. string.sub('00000', #time[2]) .. time[2]
end

-- Fence, lease in force and s or - of a value, if it is this ticket's.
local function held_by(ticket, value)
	if ticket == '' or string.sub(value, 1, #ticket) ~= ticket then return nil end
	return string.match(value, '^ (%d+) (%d+) ([s%-])$', #ticket + 1)
end

