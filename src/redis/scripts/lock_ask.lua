-- Acquire a lock, or stand in its queue.  Safe to run any number of times for one ticket.
--
-- KEYS[1]  the lock     "<ticket> <fence> <lease in force, ms> <s|->", s: its holder wants to hear of
--          waiters
-- KEYS[2]  its queue    sorted set of tickets by arrival
-- KEYS[3]  the fence counter
-- ARGV[1]  ticket       1:<client>:<nonce>:<lease ms>:<r|f>
-- ARGV[2]  1 = stand in the queue if it is not free, 0 = only try
-- ARGV[3]  arrival of an earlier answer, microseconds, 0 = none
-- ARGV[4]  prefix of client channels
-- ARGV[5]  s = other threads wait behind this ticket, - = none
-- ARGV[6]  life of the queue, ms
--
-- Returns  granted, fence, server time us, tickets in the queue
--          queued, arrival us, rank, ms until the holder's lease ends, 1 = the lock is free:
--                  have the head served
--          busy, 1 = the lock is free: have the head served
--          foreign, key, what it is
--          fence, what is wrong with the counter
-- include shared/lock.lua
local VALUE = '^(1:[%w_%-]+:[%w_%-]+:%d+:[rf]) (%d+) (%d+) ([s%-])$'
local ticket = ARGV[1]

-- Read everything first: nothing is written before everything was found to be ours.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
	if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
	return value
end
local owner, fence, lease, share
if value then
	owner, fence, lease, share = string.match(value, VALUE)
	if not owner or tonumber(fence) > 9007199254740991 or #lease > 11 then
		local version = string.match(value, '^(%d+):')
		return {'foreign', KEYS[1], version and version ~= '1' and 'protocol version ' .. version or 'not a lock'}
	end
end
local head = redis.pcall('ZRANGE', KEYS[2], 0, 0)
if head.err then
	if string.sub(head.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
	return head
end
head = head[1]
if head and not string.match(head, '^1:') then
	local version = string.match(head, '^(%d+):')
	return {'foreign', KEYS[2], version and version ~= '1' and 'protocol version ' .. version or 'not a queue'}
end
local my_lease = string.match(ticket, ':(%d+):[rf]$')

if owner == ticket then
	-- An earlier answer was lost.  A lease is never shortened: it may have been extended since.
	redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(my_lease)))
	return {'granted', fence, string.format('%.0f', now), redis.call('ZCARD', KEYS[2])}
end

if not owner and (not head or head == ticket) then
	local last = redis.pcall('GET', KEYS[3])
	if type(last) == 'table' then
		if string.sub(last.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[3], 'not a string'} end
		return last
	end
	last = last or '0'
	if not string.match(last, '^%d+$') or #last > 16 then return {'fence', 'not a number'} end
	local next = math.max(tonumber(last) + 1, now)
	if next >= 9007199254740991 then return {'fence', 'used up'} end
	fence = string.format('%.0f', next)
	redis.call('SET', KEYS[1], table.concat({ticket, fence, my_lease, ARGV[5]}, ' '), 'PX', my_lease)
	redis.call('SET', KEYS[3], fence)
	redis.call('ZREM', KEYS[2], ticket)
	return {'granted', fence, string.format('%.0f', now), redis.call('ZCARD', KEYS[2])}
end

local left = 0
if owner then
	left = redis.call('PTTL', KEYS[1])
	if left < 0 or left > tonumber(lease) then
		-- No lease ends later than its length from now: the clock stepped back, or a hand meddled.
		-- (The length in force, not the ticket's own: it may have been extended.)
		left = tonumber(lease)
		redis.call('PEXPIRE', KEYS[1], left)
	end
end
local free = owner and '0' or '1'
if ARGV[2] ~= '1' then return {'busy', free} end

local arrival = redis.call('ZSCORE', KEYS[2], ticket)
local added = not arrival
if added then
	arrival = tonumber(ARGV[3])
	if arrival == 0 then
		local tail = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
		arrival = math.min(math.max(now, tonumber(tail[2] or '0') + 1), 9007199254740991)
	end
	redis.call('ZADD', KEYS[2], string.format('%.0f', arrival), ticket)
end
redis.call('PEXPIRE', KEYS[2], ARGV[6])
if added and owner and share == 's' and redis.call('ZCARD', KEYS[2]) == 1 then
	redis.call('PUBLISH', ARGV[4] .. string.match(owner, '^1:([%w_%-]+):'), 'wanted ' .. owner)
end
-- A place that is none of ours, by a hand that meddled, is told as the nearest that is.
arrival = math.min(math.max(tonumber(arrival), 1), 9007199254740991)
return {'queued', string.format('%.0f', arrival), redis.call('ZRANK', KEYS[2], ticket), left, free}
