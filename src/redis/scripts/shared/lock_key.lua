-- Included by the scripts of a lock, on one server and as a quorum's leg.

-- Describe the value at the lock's key, which is not a string.
local function instead()
	local kind = redis.pcall('HGET', KEYS[1], 'kind')
	local what = type(kind) == 'string' and string.match(kind, '^[12]:(%l+)$')
	return what and 'a ' .. what .. ', not a lock' or 'not a lock'
end

-- The server's clock, us, as text: most fences and responses are this, and formatting costs more.
local function clock()
	local time = redis.call('TIME')
	return time[1] .. string.sub('00000', #time[2]) .. time[2]
end
