-- Included first by the scripts that change keys: they do it with change(), and run as a whole().
--
-- While the slot of a name moves between nodes of a Cluster, a key that a script has removed counts as
-- moved, and any other command on it fails in the middle of the script.  So no script uses a key
-- again that it has deleted, or has emptied, unless a key that it declares is missing: there the
-- script does not run in a slot that moves.
local begun = false -- a change was made
local at_end -- a last change, which is made however the body ends; nil = none

local function change(...)
	local reply = redis.call(...)
	begun = true
	return reply
end

-- Run the body of a script.  An error after its first change (the client lacks the right to one of the
-- commands) must not look like a request that was refused: then the reply is the error TORN.
local function whole(body)
	local ok, reply = pcall(body)
	if at_end then
		local done, why = pcall(at_end)
		if ok and not done then ok, reply = false, why end
	end
	local failed = not ok and reply
	if type(reply) == 'table' then failed = reply.err end
	if not failed then return reply end
	return {err = begun and 'TORN ' .. failed or failed}
end
