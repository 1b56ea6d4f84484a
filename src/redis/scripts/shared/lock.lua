-- Included by the scripts of a lock.
local LEG_VALUE = '^(q1:[%w_%-]+:[%w_%-]+:%d+:[rf]:%d+:%d+) (%d+) (%d+) %-$' -- of a quorum, see quorum.lua
local VALUE = '^(2:[%w_%-]+:[%w_%-]+:%d+:[rf]) (%d+) (%d+) ([s%-])( ?[%x+-]* ?%d*)$'

-- Describe a text that is no ticket of ours.
local function of_another(text, otherwise)
	if string.match(text, '^q%d+:') then return 'member of a quorum: use redis+quorum://' end
	local version = string.match(text, '^(%d+):')
	return version and version ~= '2' and 'protocol version ' .. version or otherwise
end

-- The fence, the lease in force, the share mark (s or -) and the mark of a reclaimed hold ("" = none)
-- of a value that belongs to the ticket.
local function held_by(ticket, value)
	if ticket == '' or string.sub(value, 1, #ticket) ~= ticket then return nil end
	return string.match(value, '^ (%d+) (%d+) ([s%-])( ?[%x+-]* ?%d*)$', #ticket + 1)
end
