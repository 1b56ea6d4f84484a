-- Included by the scripts of a lock.
local LEG_VALUE = '^(q1:[%w_%-]+:[%w_%-]+:%d+:[rf]:%d+:%d+) (%d+) (%d+) %-$' -- of a quorum, see quorum.lua
local VALUE = '^(2:[%w_%-]+:[%w_%-]+:%d+:[rf]) (%d+) (%d+) ([s%-])( ?[%x+-]* ?%d*)$'

-- Describe the value at the lock's key, which is not a string.
local function instead()
	local kind = redis.pcall('HGET', KEYS[1], 'kind')
	local what = type(kind) == 'string' and string.match(kind, '^[12]:(%l+)$')
	return what and 'a ' .. what .. ', not a lock' or 'not a lock'
end

-- Describe a text that is no ticket of ours.
local function of_another(text, otherwise)
	if string.match(text, '^q%d+:') then return 'member of a quorum: use redis+quorum://' end
	local version = string.match(text, '^(%d+):')
	return version and version ~= '2' and 'protocol version ' .. version or otherwise
end

-- The server's clock, us, as text: most fences and responses are this, and formatting costs more.
local function clock()
	local time = redis.call('TIME')
	return time[1] .. string.sub('00000', #time[2]) .. time[2]
end

-- The fence, the lease in force, the share mark (s or -) and the mark of a reclaimed hold ("" = none)
-- of a value that belongs to the ticket.
local function held_by(ticket, value)
	if ticket == '' or string.sub(value, 1, #ticket) ~= ticket then return nil end
	return string.match(value, '^ (%d+) (%d+) ([s%-])( ?[%x+-]* ?%d*)$', #ticket + 1)
end
