-- What the scripts of a lock share.

-- What stands where the lock should, which is no string.
local function instead()
	local kind = redis.pcall('HGET', KEYS[1], 'kind')
	local what = type(kind) == 'string' and string.match(kind, '^1:(%l+)$')
	return what and 'a ' .. what .. ', not a lock' or 'not a lock'
end

