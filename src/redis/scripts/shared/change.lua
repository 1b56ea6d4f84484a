-- Included first by the scripts that change keys: they do it with change(), and run as a whole().
local begun = false -- a change was made

local function change(...)
	local reply = redis.call(...)
	begun = true
	return reply
end

-- Run the body of a script.  An error after its first change (the client lacks the right to one of the
-- commands) must not look like a request that was refused: then the reply is the error TORN.
local function whole(body)
	local ok, reply = pcall(body)
	local failed = not ok and reply
	if type(reply) == 'table' then failed = reply.err end
	if not failed then return reply end
	return {err = begun and 'TORN ' .. failed or failed}
end
