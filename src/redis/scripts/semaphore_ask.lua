-- Acquire permits, or wait for them in the queue.  Idempotent for one ticket.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- KEYS[5]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket
-- ARGV[2]  1 = enqueue if too few are free, 0 = only try
-- ARGV[3]  arrival from an earlier response, microseconds, 0 = none
-- ARGV[4]  prefix of client channels
-- ARGV[5]  capacity of a semaphore that has to be created
-- ARGV[6]  its ttl after the last use, ms
-- ARGV[7]  life of the queue, ms
-- ARGV[8]  how long the head of the queue may be silent before it is skipped, ms
-- ARGV[9]  the marker as the client knows it
-- ARGV[10] end of the grace, server time us: before it nothing new is granted
--
-- Returns  granted, fence, server time us, tickets in the queue, 1 = the run had its limit: serve
--                  the head
--          queued, arrival us, rank, ms until it may fit, 1 = serve the head, and in the grace
--                  how many ms of it are left
--          busy, 1 = serve the head, and in the grace
--                  how many ms of it are left
--          epoch: the marker is another one
--          limit, capacity
--          foreign, key, its actual type
--          fence, defect of the counter
-- include shared/change.lua
return whole(function()
local CLAMP_MAX = 8
local ticket = ARGV[1]
-- include shared/semaphore.lua
-- include shared/epoch.lua
if not is_known(KEYS[5], ARGV[9]) then return {'epoch'} end
local young = grace(now, ARGV[10])
local lease_text, mode, permits_text = string.match(ticket, ':(%d+):([rfn]):(%d+)$', -32)
local lease, permits = tonumber(lease_text), tonumber(permits_text)

local wrong = count()
if wrong then return wrong end

-- No lease may end later than its length from now: the clock was set back.  The latest ends are
-- those of leases that are not renewed.
local latest = alone and ends or redis.call('ZREVRANGE', ENDS, '0', CLAMP_MAX - 1, 'WITHSCORES')
latest_us = tonumber(latest[2] or now)
for i = 1, #latest, 2 do
	local own = string.match(latest[i], ':(%d+):[rfn]:%d+$', -32)
	if own and latest[i + 1] - now > own * 1000 then
		local _, _, in_force = hold_of(latest[i])
		if in_force and latest[i + 1] - now > in_force * 1000 then
			set_end(latest[i], now + in_force * 1000)
			latest_us = false
		end
	end
end

local function granted(fence)
	write()
	return {'granted', fence, now_text, waiting, more and 1 or 0}
end

local function take()
	local fence = next_fence()
	grant(ticket, permits_text, fence, lease_text, lease)
	return fence
end

-- The common case: it fits, the queue is empty, and no lease has expired.
if waiting == 0 and capacity and used + permits <= capacity and not fields[5] and not torn and
		(not first_us or first_us > now) and young == 0 then
	return granted(take())
end
-- include shared/publish.lua
-- include shared/semaphore_queue.lua
if torn then mend() end
if not capacity then make(ARGV[5], ARGV[6]) end

if fields[5] then
	local held, fence, _, ends_us = hold_of(ticket, fields[5])
	local valid = held and ends_us > now
	if valid and young > 0 then
		-- This may be a grant of an earlier memory, whose permits others have had since.  It is not
		-- enqueued beside its hold: the queue would grant it more permits.
		write()
		if ARGV[2] ~= '1' then return {'busy', 0, young} end
		return {'queued', ARGV[3] ~= '0' and ARGV[3] or now_text, waiting, young, 0, young}
	end
	if valid then
		-- An earlier response was lost.  Never shorten a lease: it may have been extended since.
		-- Permits that are never released count from their grant, not from the response.
		if mode ~= 'n' then set_end(ticket, math.max(ends_us, now + lease * 1000)) end
		return granted(fence)
	end
	if held then drop(ticket, held) end -- over, and perhaps not among those that reclaim() takes
end
reclaim()
if permits > capacity then
	unqueue(ticket)
	if young == 0 then serve('', ARGV[4], tonumber(ARGV[8])) end
	write()
	return {'limit', text(capacity)}
end

-- A returning waiter (its message had no receiver, or it did not claim in time) keeps its arrival.
-- (A full server refuses the write, and the waiter stays out.)
local arrival = waiting > 0 and redis.call('ZSCORE', QUEUE, ticket)
if ARGV[3] ~= '0' and (not arrival or arrival - ARGV[3] > 0) then
	waiting = waiting + change('ZADD', QUEUE, ARGV[3], ticket)
	arrival, head = ARGV[3], nil
end

-- serve() may empty the queue: a ticket that has to wait enters it before.
local is_last = false -- ZRANK would walk the whole queue
local function enqueue()
	local tail = waiting > 0 and redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
	arrival = now_text
	if tail and tail - now >= 0 then
		arrival = text(math.min(tail + 1, 9007199254740991))
	else
		is_last = true
	end
	waiting = waiting + change('ZADD', QUEUE, arrival, ticket)
end
if waiting > 0 and not arrival and ARGV[2] == '1' then enqueue() end
if young == 0 then serve(ticket, ARGV[4], tonumber(ARGV[8])) end
if waiting > 0 and not head then head = redis.call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES') end
if (waiting == 0 or head[1] == ticket) and used + permits <= capacity and young == 0 then
	local fence = take()
	unqueue(ticket)
	serve('', ARGV[4], tonumber(ARGV[8]))
	return granted(fence)
end
if ARGV[2] ~= '1' then
	write()
	return {'busy', more and 1 or 0, young > 0 and young or nil}
end

if not arrival then enqueue() end
change('PEXPIRE', QUEUE, ARGV[7])
local rank = is_last and waiting - 1 or redis.call('ZRANK', QUEUE, ticket)
if rank == 0 or head_known == ticket then
	change('HSET', STATE, 'head', ticket, 'head_us', now_text, 'told_us', now_text)
end

-- The expected wait: of this ticket if the permits expire by themselves, otherwise until the first
-- lease ends, which may not be renewed.
local at, unrenewed = first_end()
if unrenewed then
	local wanted = used + permits - capacity
	if rank > 0 then
		for _, other in ipairs(redis.call('ZRANGE', QUEUE, 0, math.min(rank, LOOK_MAX) - 1)) do
			local _, _, _, before = string.match(other, TICKET)
			wanted = wanted + tonumber(before or 0)
		end
	end
	at = back_at(wanted, lease)
end
write()
-- Clamp an arrival or an end that another program wrote to the range that clients accept.
arrival = math.min(math.max(tonumber(arrival), 1), 9007199254740991)
at = math.min(math.max(at - now, young * 1000), 9007199254740991)
return {'queued', text(arrival), rank, math.ceil(at / 1000), more and 1 or 0,
	young > 0 and young or nil}
end)
