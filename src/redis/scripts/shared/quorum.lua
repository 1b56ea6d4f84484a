-- Included by the scripts of a quorum's lock, a leg of which is on each of its N servers.  They have the
-- same four keys, and set "class" (of the name, which chooses a counter) before the include.
--
-- the lock       "<ticket> <fence> <lease in force, ms> -"
-- its queue      tickets by priority, of which ties fall by their bytes: alike on all servers
-- the counters   a hash: the last fence of each class of names
-- the marker     "1 <id> <since us> [<set id> <i>/<N> <W ms>]"; W, the longest lease
--
-- A ticket is q1:<client>:<nonce>:<lease ms>:<r|f>:<priority>:<epoch>.  The epoch counts the yields of the
-- leg; an earlier one of the same nonce is over.
local TICKET = '^(q1:([%w_%-]+):[%w_%-]+:)(%d+):[rf]:(%d+):(%d+)$'
local VALUE = '^(q1:[%w_%-]+:[%w_%-]+:%d+:[rf]:%d+:%d+) (%d+) (%d+) %-$'
local CLOCK_MAX_US = 5000000
local TIES_MAX = 100 -- tickets of one priority that are looked at
local EXACT_MAX = 9007199254740991
local NO_MEMBER = 'not a member of a quorum: use redis://'

-- Describe a text that is not a ticket of ours.
local function of_another(text, otherwise)
	if string.match(text, '^%d+:') then return "a single server's: use redis://" end
	local version = string.match(text, '^(q%d+):')
	return version and version ~= 'q1' and 'protocol version ' .. version or otherwise
end

-- Is the first name less, byte by byte?  (The order of "<" is that of the locale.)  They differ, and each
-- ends with a ':'.
local function is_less(one, other)
	for i = 1, #one do
		local a, b = string.byte(one, i), string.byte(other, i)
		if a ~= b then return a < b end
	end
end

-- Is the first ticket older: of a smaller priority, of which ties fall by client and nonce?
local function is_older(one, other)
	local one_name, _, _, one_priority = string.match(one, TICKET)
	local other_name, _, _, other_priority = string.match(other, TICKET)
	if not one_name or not other_name or one_name == other_name then return false end
	local difference = one_priority - other_priority
	return difference < 0 or difference == 0 and is_less(one_name, other_name)
end

-- The epoch of a text that is a ticket of that name (client and nonce), or nil.
local function epoch_of(name, ticket)
	return string.sub(ticket, 1, #name) == name and tonumber(string.match(ticket, ':(%d+)$'))
end

-- The tickets of that name in the queue.
local function queued(name, priority)
	local found = {}
	for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], priority, priority, 'LIMIT', '0', TIES_MAX)) do
		if epoch_of(name, ticket) then found[#found + 1] = ticket end
	end
	return found
end

-- Read the head of the queue; is it a ticket, and older than that one?
local function has_older_head(ticket)
	local head = redis.call('ZRANGE', KEYS[2], '0', '0')[1]
	return head and is_older(head, ticket)
end

-- The last fence of the name's class, or nil and the reply that says why there is none.
local function counter()
	local last = redis.pcall('HGET', KEYS[3], class) or '0'
	if type(last) == 'table' then
		return nil, string.sub(last.err, 1, 9) == 'WRONGTYPE' and {'foreign', KEYS[3], 'not a hash'} or last
	end
	if not string.match(last, '^%d+$') or #last > 16 then return nil, {'fence', 'not a number'} end
	return last
end

-- The longest lease of the quorum, ms, or nil if the marker has no set.
local function longest_of(marker)
	return string.match(marker, ' %[[%w_%-]+ %d+/%d+ (%d+)%]$')
end

-- The next fence, as text: the one that the client proposes, within D of the clock, or more if the counter
-- has reached it.  The upper limit keeps a wrong client from using the numbers up; the lower one lets a
-- server that has lost its counters outgrow them while it is young.
local function next_fence(last, proposal, now, longest_ms)
	local distance = math.min(CLOCK_MAX_US, longest_ms * 250) -- a quarter of the lease
	return string.format('%.0f', math.max(last + 1, math.min(math.max(proposal, now - distance), now + distance)))
end
