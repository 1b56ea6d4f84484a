-- Show a semaphore.  Writes nothing.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- ARGV[1]  a ticket whose rank is wanted, "" = none
-- ARGV[2]  how many holds to list
-- ARGV[3]  how many waiters to list
-- ARGV[4]  the id of the only hold to list; may be missing
--
-- Returns  capacity, permits held, holds, tickets in the queue, rank (-1 = not in the queue), ms
--          until it expires, server time us, number of holds below, then for each hold: ticket,
--          permits, fence, ms left of its lease; then the first tickets of the queue
--          absent
--          foreign, key, its actual type
local ticket = ARGV[1]
-- include shared/semaphore.lua
local PAGE = 1000
local PAGES_MAX = 100

local function only(id)
	for skip = 0, (PAGES_MAX - 1) * PAGE, PAGE do
		local page = redis.call('ZRANGEBYSCORE', ENDS, '(' .. text(now), '+inf', 'LIMIT', skip, PAGE)
		for _, ticket in ipairs(page) do
			if string.sub(ticket, 3, #id + 3) == id .. ':' then return {ticket} end
		end
		if #page < PAGE then break end
	end
	return {}
end

if not capacity then return {'absent'} end
if torn then used = 0 end
-- Expired leases do not count, whether or not a script has reclaimed them.
local over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', text(now), 'LIMIT', 0, 1000)
for _, ticket in ipairs(over) do used = used - (hold_of(ticket) or 0) end
local tickets = ARGV[4] and only(ARGV[4]) or
	redis.call('ZRANGEBYSCORE', ENDS, '(' .. text(now), '+inf', 'LIMIT', 0, ARGV[2])
local rank = ticket ~= '' and redis.call('ZRANK', QUEUE, ticket) or -1
local answer = {text(capacity), text(used), redis.call('ZCARD', ENDS) - #over, waiting,
	rank, redis.call('PTTL', STATE), now_text, 0}
for _, ticket in ipairs(tickets) do
	local permits, fence, _, ends_us = hold_of(ticket)
	if permits then
		answer[8] = answer[8] + 1
		answer[#answer + 1] = ticket
		answer[#answer + 1] = text(permits)
		answer[#answer + 1] = fence
		answer[#answer + 1] = math.ceil((ends_us - now) / 1000)
	end
end
if tonumber(ARGV[3]) > 0 then
	for _, ticket in ipairs(redis.call('ZRANGE', QUEUE, 0, tonumber(ARGV[3]) - 1)) do
		answer[#answer + 1] = ticket
	end
end
return answer
