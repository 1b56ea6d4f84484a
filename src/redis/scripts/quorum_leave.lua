-- The single exit path of a leg: release, cancel, loss, break, and a grant without a waiter.  Ends all
-- epochs of the ticket on this server and, if the lock is then free, serves the head of the queue.  With a
-- successor it is a yield: only the epochs before that one end, and it waits in their place.  Idempotent.
--
-- KEYS[1]  the lock     see shared/quorum.lua
-- KEYS[2]  its queue
-- KEYS[3]  the counters of fences
-- KEYS[4]  the marker of the server's memory
-- ARGV[1]  ticket, "" = none: only serve the head
-- ARGV[2]  the fence that the client proposes
-- ARGV[3]  class of the name
-- ARGV[4]  prefix of client channels
-- ARGV[5]  1 = a break by another client: notify the holder
-- ARGV[6]  the ticket's next epoch, "" = none
-- ARGV[7]  life of the queue, ms
-- ARGV[8]  the marker as the client knows it
-- ARGV[9]  until when the server is young, server time us: before it no ticket is served or enqueued
--
-- Returns  left, 1 = the ticket was the holder's, 1 = run again with "": the run had its limit, or did not
--                enqueue the next epoch, 1 = the lock is free and the queue is empty
--          young, ms, to a ticket "" only
--          epoch: the marker is another one, to a ticket "" only
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
local class = ARGV[3]
-- include shared/lock_key.lua
-- include shared/quorum.lua
-- include shared/epoch.lua
-- include shared/publish.lua
local DEAD_MAX = 32
local CLAIM_MS = 3000
local ticket, successor = ARGV[1], ARGV[6]

-- Read and validate everything before the first write.
local known, now = is_known(KEYS[4], ARGV[8]), clock()
local young, longest_ms = grace(now, ARGV[9]), longest_of(ARGV[8])
if ticket == '' then
	if not known then return {'epoch'} end
	if young > 0 then return {'young', young} end
end
local value = redis.pcall('GET', KEYS[1])
local owner
if value then
	if type(value) == 'table' then
		if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
		return value
	end
	owner = string.match(value, VALUE)
	if not owner then return {'foreign', KEYS[1], of_another(value, 'not a lock')} end
end
local waiting = redis.pcall('ZCARD', KEYS[2])
if type(waiting) == 'table' then
	if string.sub(waiting.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
	return waiting
end
local name, client, _, priority = string.match(ticket, TICKET)
local serves = known and young == 0 and longest_ms
local mine, is_late = 0, false

if name then
	-- A leave ends whatever epoch there is, since the ticket is over.  A yield that comes late must not end
	-- the epoch that it began, or a later one.
	local latest = successor == '' and math.huge or epoch_of(name, ticket)
	-- A full server (maxmemory) accepts a removal as the first command, and then the writes that follow it.
	-- A holder is not searched for in the queue.
	if owner ~= ticket then waiting = waiting - change('ZREM', KEYS[2], ticket) end
	for _, other in ipairs(waiting > 0 and queued(name, priority) or {}) do
		is_late = is_late or epoch_of(name, other) > latest
		if epoch_of(name, other) <= latest then waiting = waiting - change('ZREM', KEYS[2], other) end
	end
	local held = owner and epoch_of(name, owner)
	if held and held <= latest then
		mine = 1
		change('DEL', KEYS[1])
		if ARGV[5] == '1' then publish(ARGV[4] .. client, 'broken ' .. owner) end
		owner = nil
	end
	is_late = is_late or held and held > latest
	if successor ~= '' and serves and not is_late then
		waiting = waiting + change('ZADD', KEYS[2], priority, successor)
		change('PEXPIRE', KEYS[2], ARGV[7])
	end
end
local more = successor ~= '' and not serves and 1 or 0
if owner then return {'left', mine, more, 0} end
if waiting == 0 then return {'left', mine, more, 1} end
-- A ticket leaves whatever the memory is; another one is served only in the memory that is known.
if not serves then return {'left', mine, known and more or 1, 0} end
local last = counter()
if not last then return {'left', mine, 0, 0} end -- the next ask reports it
local fence = next_fence(last, ARGV[2], now, longest_ms)
if fence - EXACT_MAX > 0 then return {'left', mine, 0, 0} end

for _ = 1, DEAD_MAX do
	local head = redis.call('ZRANGE', KEYS[2], '0', '0')[1]
	local _, to, lease, since = string.match(head, TICKET)
	if not to or #lease > 11 or tonumber(lease) < 2 then return {'left', mine, 0, 0} end
	waiting = waiting - 1
	-- The receiver count is weak evidence for an old ticket: it includes stopped processes and half-open
	-- connections.  Such a grant is short until it is claimed, and the next waiter asks when it ends.
	local claim_ms = math.min(CLAIM_MS, math.floor(tonumber(lease) / 2))
	local is_old = math.abs(now - since) > claim_ms * 1000
	local life = is_old and string.format('%.0f', claim_ms) or lease
	local receivers = publish(ARGV[4] .. to, 'grant ' .. head .. ' ' .. fence .. ' ' .. life ..
		(is_old and ' 1 ' or ' 0 ') .. waiting .. ' ' .. now)
	if type(receivers) == 'table' then return receivers end
	change('ZREM', KEYS[2], head)
	if receivers > 0 then
		change('SET', KEYS[1], head .. ' ' .. fence .. ' ' .. lease .. ' -', 'PX', life)
		change('HSET', KEYS[3], class, fence)
		if is_old and waiting > 0 then
			local second = redis.call('ZRANGE', KEYS[2], '0', '0')[1]
			_, to = string.match(second, TICKET)
			receivers = to and publish(ARGV[4] .. to, 'again ' .. second .. ' ' .. life)
			if type(receivers) == 'table' then return receivers end
		end
		return {'left', mine, 0, 0}
	end
	if waiting == 0 then return {'left', mine, 0, 1} end
end
return {'left', mine, 1, 0}
end)
