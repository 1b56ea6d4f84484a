-- Acquire a leg of a quorum's lock, or wait for it in its queue.  Idempotent for one epoch of a ticket.
--
-- KEYS[1]  the lock     see shared/quorum.lua
-- KEYS[2]  its queue    sorted set of tickets by priority
-- KEYS[3]  the counters of fences
-- KEYS[4]  the marker of the server's memory
-- ARGV[1]  ticket
-- ARGV[2]  1 = enqueue if it is not free, 0 = only try
-- ARGV[3]  the fence that the client proposes
-- ARGV[4]  class of the name
-- ARGV[5]  prefix of client channels
-- ARGV[6]  life of the queue, ms
-- ARGV[7]  the marker as the client knows it
-- ARGV[8]  until when the server is young, server time us: before it nothing is granted or enqueued
--
-- Returns  granted, fence, server time us, tickets in the queue, the counter, 1 = an older ticket is the
--                  head of the queue
--          queued, priority, rank, ms until the holder's lease ends, 1 = the lock is free: serve the head
--          busy, 1 = the lock is free: serve the head
--          young, ms
--          epoch: the marker is another one
--          foreign, key, its actual type
--          fence, defect of the counter
-- include shared/change.lua
return whole(function()
local class = ARGV[4]
-- include shared/lock_key.lua
-- include shared/quorum.lua
-- include shared/epoch.lua
-- include shared/publish.lua
local ticket = ARGV[1]
local name, _, my_lease, priority, epoch = string.match(ticket, TICKET)

-- Read and validate everything before the first write.
if not is_known(KEYS[4], ARGV[7]) then return {'epoch'} end
local longest_ms = longest_of(ARGV[7])
if not longest_ms then return {'foreign', KEYS[4], NO_MEMBER} end
local value = redis.pcall('GET', KEYS[1])
local owner, fence, lease
if value then
	if type(value) == 'table' then
		if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
		return value
	end
	owner, fence, lease = string.match(value, VALUE)
	if not owner or tonumber(fence) > EXACT_MAX or #lease > 11 then
		return {'foreign', KEYS[1], of_another(value, 'not a lock')}
	end
end
local waiting = redis.pcall('ZCARD', KEYS[2])
if type(waiting) == 'table' then
	if string.sub(waiting.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
	return waiting
end
local head = waiting > 0 and redis.call('ZRANGE', KEYS[2], '0', '0')[1]
if head and not string.match(head, TICKET) then return {'foreign', KEYS[2], of_another(head, 'not a queue')} end
local now = clock()
local young = grace(now, ARGV[8])
if young > 0 then return {'young', young} end
local last, why = counter()
if not last then return why end
local fresh = next_fence(last, ARGV[3], now, longest_ms)
if fresh - EXACT_MAX > 0 then return {'fence', 'used up'} end

-- Epochs of this ticket before this one are over.  If there is a later one, this request is late.
local present = waiting > 0 and queued(name, priority) or {}
if owner and epoch_of(name, owner) then present[#present + 1] = owner end
for _, other in ipairs(present) do
	if epoch_of(name, other) > tonumber(epoch) then return {'queued', priority, 0, my_lease, '0'} end
end
for _, other in ipairs(present) do
	if other == owner and other ~= ticket then
		change('DEL', KEYS[1])
		owner = nil
	elseif other ~= ticket then
		waiting = waiting - change('ZREM', KEYS[2], other)
	end
end

if owner == ticket then
	-- An earlier response was lost.  Never shorten a lease: it may have been extended since.
	change('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(my_lease)))
	waiting = waiting - change('ZREM', KEYS[2], ticket)
	return {'granted', fence, now, waiting, last, has_older_head(ticket) and 1 or 0}
end
if not owner and not (waiting > 0 and has_older_head(ticket)) then
	change('SET', KEYS[1], ticket .. ' ' .. fresh .. ' ' .. my_lease .. ' -', 'PX', my_lease)
	change('HSET', KEYS[3], class, fresh)
	if waiting > 0 then waiting = waiting - change('ZREM', KEYS[2], ticket) end
	return {'granted', fresh, now, waiting, fresh, 0}
end

local left = 0
if owner then
	left = redis.call('PTTL', KEYS[1])
	if left < 0 or left > tonumber(lease) then
		-- No lease may end later than its length from now: the clock was set back, or another program
		-- wrote the key.
		left = tonumber(lease)
		change('PEXPIRE', KEYS[1], left)
	end
end
local free = owner and '0' or '1'
if ARGV[2] ~= '1' then return {'busy', free} end
waiting = waiting + change('ZADD', KEYS[2], priority, ticket)
change('PEXPIRE', KEYS[2], ARGV[6])
-- The last one of the queue, as most are, needs no search through it.
local is_last = redis.call('ZRANGE', KEYS[2], '-1', '-1')[1] == ticket
local rank = is_last and waiting - 1 or redis.call('ZRANK', KEYS[2], ticket)
if owner and rank == 0 and is_older(ticket, owner) then
	-- The holder gives way unless it has a majority.  Any one of these messages may be lost.
	local receivers = publish(ARGV[5] .. string.match(owner, '^q1:([%w_%-]+):'), 'wanted ' .. owner .. ' ' .. priority)
	if type(receivers) == 'table' then return receivers end
end
return {'queued', priority, rank, left, free}
end)
