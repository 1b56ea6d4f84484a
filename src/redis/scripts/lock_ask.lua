-- Acquire a lock, or wait for it in its queue.  Idempotent for one ticket.
--
-- KEYS[1]  the lock     "<ticket> <fence> <lease in force, ms> <s|->", s: notify its holder of the
--          first waiter; a reclaimed hold has " <id> <since>" of its memory's marker at the end
-- KEYS[2]  its queue    sorted set of tickets by arrival
-- KEYS[3]  the fence counter
-- KEYS[4]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket       2:<client>:<nonce>:<lease ms>:<r|f>
-- ARGV[2]  1 = enqueue if it is not free, 0 = only try
-- ARGV[3]  arrival from an earlier response, microseconds, 0 = none
-- ARGV[4]  prefix of client channels
-- ARGV[5]  s = other threads of the client wait behind this ticket, - = none
-- ARGV[6]  life of the queue, ms
-- ARGV[7]  the marker as the client knows it
-- ARGV[8]  end of the grace, server time us: before it nothing new is granted
--
-- Returns  granted, fence, server time us, tickets in the queue
--          queued, arrival us, rank, ms until the holder's lease or the grace ends, 1 = the lock is
--                  free: serve the head, and in the grace
--                  how many ms of it are left
--          busy, 1 = the lock is free: serve the head, and in the grace
--                  how many ms of it are left
--          epoch: the marker is another one
--          foreign, key, its actual type
--          fence, defect of the counter
-- include shared/change.lua
return whole(function()
-- include shared/lock_key.lua
-- include shared/lock.lua
-- include shared/epoch.lua
-- include shared/publish.lua
local ticket = ARGV[1]

-- Read and validate everything before the first write.
if not is_known(KEYS[4], ARGV[7]) then return {'epoch'} end
local value = redis.pcall('GET', KEYS[1])
local owner, fence, lease, share, mark
if value then
	if type(value) == 'table' then
		if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
		return value
	end
	owner, fence, lease, share, mark = string.match(value, VALUE)
	if not owner or tonumber(fence) > 9007199254740991 or #lease > 11 then
		return {'foreign', KEYS[1], of_another(value, 'not a lock')}
	end
end
local waiting = redis.pcall('ZCARD', KEYS[2])
local head
if waiting ~= 0 then
	if type(waiting) == 'table' then
		if string.sub(waiting.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
		return waiting
	end
	head = redis.call('ZRANGE', KEYS[2], '0', '0')[1]
	if not string.match(head, '^2:') then
		return {'foreign', KEYS[2], of_another(head, 'not a queue')}
	end
end
local my_lease = string.match(ticket, ':(%d+):[rf]$', -15)
local now = clock()
local young = grace(now, ARGV[8])

-- In the grace this may be a grant of an earlier memory, which has given the lock to another since.
if owner == ticket and (young == 0 or mark == mark_of(ARGV[7])) then
	-- An earlier response was lost.  Never shorten a lease: it may have been extended since.
	change('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(my_lease)))
	if head then waiting = waiting - change('ZREM', KEYS[2], ticket) end -- it may have asked in the grace
	return {'granted', fence, now, waiting}
end

if not owner and young == 0 and (not head or head == ticket) then
	fence = now
	local last = redis.pcall('GET', KEYS[3])
	if last then
		if type(last) == 'table' then
			if string.sub(last.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[3], 'not a string'} end
			return last
		end
		if not string.match(last, '^%d+$') or #last > 16 then return {'fence', 'not a number'} end
		if last - now >= 0 then fence = string.format('%.0f', last + 1) end
	end
	if fence - 9007199254740991 >= 0 then return {'fence', 'used up'} end
	change('SET', KEYS[1], ticket .. ' ' .. fence .. ' ' .. my_lease .. ' ' .. ARGV[5], 'PX', my_lease)
	change('SET', KEYS[3], fence)
	if head then waiting = waiting - change('ZREM', KEYS[2], ticket) end
	return {'granted', fence, now, waiting}
end

local left = 0
if owner then
	left = redis.call('PTTL', KEYS[1])
	if left < 0 or left > tonumber(lease) then
		-- No lease may end later than its length from now: the clock was set back, or another program
		-- wrote the key.  (The length in force, not the ticket's: it may have been extended.)
		left = tonumber(lease)
		change('PEXPIRE', KEYS[1], left)
	end
end
local free = (owner or young > 0) and '0' or '1'
if ARGV[2] ~= '1' then return {'busy', free, young > 0 and young or nil} end
if left < young then left = young end

local rank
local arrival = head and redis.call('ZSCORE', KEYS[2], ticket)
if not arrival then
	arrival = ARGV[3]
	if arrival == '0' then
		arrival = now
		local tail = head and redis.call('ZRANGE', KEYS[2], '-1', '-1', 'WITHSCORES')[2]
		if tail and tail - arrival >= 0 then
			arrival = string.format('%.0f', math.min(tail + 1, 9007199254740991))
		else
			rank = waiting -- the last; ZRANK would walk the whole queue
		end
	end
	change('ZADD', KEYS[2], arrival, ticket)
	if not head and share == 's' then
		local told = publish(ARGV[4] .. string.match(owner, '^2:([%w_%-]+):'), 'wanted ' .. owner)
		if type(told) == 'table' then return told end
	end
end
change('PEXPIRE', KEYS[2], ARGV[6])
-- Clamp an arrival that another program wrote to the range that clients accept.
arrival = math.min(math.max(tonumber(arrival), 1), 9007199254740991)
return {'queued', string.format('%.0f', arrival), rank or redis.call('ZRANK', KEYS[2], ticket), left, free,
	young > 0 and young or nil}
end)
