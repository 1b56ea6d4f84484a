-- Reads a semaphore, reclaims expired leases, writes it back.  Included by the scripts of a
-- semaphore, which have the same four keys and set "ticket" ("" = none) before the include.  A renewal
-- and a leave may be narrow, with two keys, because the slot moves and a key is elsewhere or missing:
-- the semaphore and its ends exist as long as it has a hold.
--
-- the semaphore   a hash: kind "2:semaphore"; capacity; used, permits held; ttl, ms; a field for each
--                 hold, its ticket: "<permits> <fence> <lease in force, ms>[ <mark>]", with the mark
--                 of the memory in which it was reclaimed; and while the head of the queue does not
--                 fit: head, its ticket; head_us, when it became head or last asked; told_us, when
--                 it was last notified
-- its queue       tickets by arrival, us
-- the fence counter
-- its ends        tickets of the holds by the end of their leases, us
--
-- A ticket is 2:<client>:<nonce>:<lease ms>:<mode>:<permits>; mode r = renewed lease, f = fixed,
-- n = fixed, and its permits are never released.
local STATE, QUEUE, FENCE, ENDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local narrow = not FENCE
if narrow then QUEUE, ENDS = nil, KEYS[2] end
local TICKET = '^2:([%w_%-]+):[%w_%-]+:(%d+):([rfn]):(%d+)$'
local RUN_MAX = 32 -- tickets served, and leases reclaimed, in one run

local time = redis.call('TIME')
local now_text = time[1] .. string.sub('00000', #time[2]) .. time[2]
local now = tonumber(now_text)
local last -- the last fence, once count() has read it
local given -- the last fence that this run granted, as text
local changed = false -- more than the permits held
local more, wrote = false, false

local function text(number)
	return string.format('%.0f', number)
end

-- Parse a number as we write it; nil for nan, inf, 0x10 and 1e9, which Lua accepts.
local function whole(written)
	if not written or #written > 16 or not string.match(written, '^%d+$') then return nil end
	local number = tonumber(written)
	return number <= 9007199254740991 and number or nil
end

-- Read and validate everything before the first write.
local fields = redis.pcall('HMGET', STATE, 'kind', 'capacity', 'used', 'ttl', ticket, 'head', 'head_us', 'told_us')
if fields.err then
	if string.sub(fields.err, 1, 9) ~= 'WRONGTYPE' then return fields end
	local value = redis.pcall('GET', STATE)
	local is_lock = type(value) == 'string' and string.match(value, '^[12]:')
	return {'foreign', STATE, is_lock and 'a lock, not a semaphore' or 'not a semaphore'}
end
local kind = fields[1]
if kind and kind ~= '2:semaphore' or not kind and redis.call('EXISTS', STATE) == 1 then
	local version, what = string.match(kind or '', '^(%d+):(%l+)$')
	if version == '1' and what ~= 'semaphore' then return {'foreign', STATE, 'a ' .. what .. ', not a semaphore'} end
	return {'foreign', STATE, version and 'protocol version ' .. version or 'not a semaphore'}
end
local waiting = narrow and 0 or redis.pcall('ZCARD', QUEUE) -- tickets in the queue
local head -- of the queue, with its arrival; nil = not read
if waiting ~= 0 then
	if type(waiting) == 'table' then
		if string.sub(waiting.err, 1, 9) == 'WRONGTYPE' then return {'foreign', QUEUE, 'not a sorted set'} end
		return waiting
	end
	head = redis.call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')
	if not string.match(head[1], TICKET) then
		local version = string.match(head[1], '^(%d+):')
		return {'foreign', QUEUE, version and version ~= '2' and 'protocol version ' .. version or "not a semaphore's queue"}
	end
end
local ends = redis.pcall('ZRANGE', ENDS, '0', '1', 'WITHSCORES')
if ends.err then
	if string.sub(ends.err, 1, 9) == 'WRONGTYPE' then return {'foreign', ENDS, 'not a sorted set'} end
	return ends
end
-- The two holds whose leases end first, if known.  latest_us: the latest end, false = unknown.
local first, first_us, after, after_us = ends[1], tonumber(ends[2]), ends[3], tonumber(ends[4])
if first and not string.match(first, '^2:[%w_%-]+:[%w_%-]+:%d+:[rfn]:%d+$') then
	return {'foreign', ENDS, "not a semaphore's ends"}
end
local alone = not after -- no other than the first is there
local latest_us = alone and (first_us or now)
-- The number of ends, at least; counted: exactly.
local left, counted = math.min(#ends / 2, 2), alone
local final = false -- this run grants nothing any more: the ends may vanish
local last_one -- a hold that was dropped, but still has its end: without it the key would vanish
local capacity, used, ttl -- capacity is nil when there is no semaphore
if kind then
	capacity, used, ttl = whole(fields[2]), whole(fields[3]), whole(fields[4])
	if not (capacity and used and ttl) then return {'foreign', STATE, 'a damaged semaphore'} end
end
local stored = used -- its value in the store
local torn = kind and used > 0 and not first

-- Read the fence counter.  Scripts that may grant call it before their first write.
local function count()
	local counter = redis.pcall('GET', FENCE) or '0'
	if type(counter) == 'table' then
		if string.sub(counter.err, 1, 9) == 'WRONGTYPE' then return {'foreign', FENCE, 'not a string'} end
		return counter
	end
	if not string.match(counter, '^%d+$') or #counter > 16 then return {'fence', 'not a number'} end
	last = tonumber(counter)
	if last + RUN_MAX + 1 >= 9007199254740991 or now >= 9007199254740991 then return {'fence', 'used up'} end
end

-- An eviction took one of the keys: the rest does not identify the holders.  (The ends are missing: in a
-- slot that moves, this does not run.)
local function mend()
	change('DEL', STATE)
	used, fields[5], changed = 0, false, true
end

-- The permits, fence, lease, lease end and mark ("" = none) of a hold, or nothing.
local function hold_of(ticket, value)
	value = value or redis.call('HGET', STATE, ticket) or ''
	local permits, fence, lease, mark = string.match(value, '^(%d+) (%d+) (%d+)( ?[%x+-]* ?%d*)$')
	permits, lease = whole(permits), whole(lease)
	if not (permits and lease and whole(fence)) then return nil end
	local ends_us = ticket == first and first_us or tonumber(redis.call('ZSCORE', ENDS, ticket) or 0)
	return permits, fence, lease, ends_us, mark
end

-- Remove the hold that drop() kept.  A narrow run keeps the last end, over now: then the keys of the
-- semaphore still exist for the next narrow run.
local function bury()
	if not last_one then return end
	if narrow and left < 2 then
		change('HDEL', STATE, last_one)
		change('ZADD', ENDS, now_text, last_one)
	else
		-- In this order a run that ends in between can be repeated: what has no end is dropped then.
		left = left - change('ZREM', ENDS, last_one)
		change('HDEL', STATE, last_one)
	end
	last_one = nil
end

local function drop(ticket, permits)
	if left < 2 and not counted then left, counted = redis.call('ZCARD', ENDS), true end
	bury()
	last_one = ticket
	if left > 1 or final then
		bury()
	elseif not begun then
		-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
		change('HDEL', STATE, '')
	end
	used = math.max(used - (permits or 0), 0)
	if ticket == first then
		first, first_us = after, after_us
		if alone then latest_us = now end
	end
	after = nil
end

-- Drop the holds whose leases have expired.
local function reclaim()
	if not first_us or first_us > now then return end
	local over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', now_text, 'LIMIT', '0', RUN_MAX)
	for _, ticket in ipairs(over) do drop(ticket, hold_of(ticket)) end
	if #over == RUN_MAX then more = true end
end

local function set_end(ticket, end_us)
	left = left + change('ZADD', ENDS, end_us, ticket)
	if last_one == ticket then last_one = nil end
	bury()
	alone, after = false, nil
	if not first or ticket == first or end_us <= first_us then first = nil end
	if latest_us and latest_us < end_us then latest_us = end_us end
end

local function next_fence()
	return last < now and now_text or text(last + 1)
end

-- Record a hold.  All arguments are text but its life, ms.
local function grant(ticket, permits, fence, lease, life)
	used = used + permits
	local value = permits .. ' ' .. fence .. ' ' .. lease
	if changed or used == stored then
		change('HSET', STATE, ticket, value)
	else
		change('HSET', STATE, ticket, value, 'used', used)
		stored = used
	end
	given, last = fence, last < now and now or last + 1
	set_end(ticket, now + life * 1000)
end

-- Write the changes back.  Every key lives at least as long as the last lease.
local function write()
	bury()
	local none = counted and left == 0
	local latest = latest_us or not none and redis.call('ZRANGE', ENDS, '-1', '-1', 'WITHSCORES')[2] or now
	local life = math.max(math.ceil((latest - now) / 1000), 0) + 1000
	if life < ttl then life = ttl end
	life = text(math.min(life, 9007199254740991)) -- another program may have written the end
	if changed then
		change('HSET', STATE, 'kind', '2:semaphore', 'capacity', capacity, 'used', used, 'ttl', ttl)
	elseif used ~= stored then
		change('HSET', STATE, 'used', used)
	end
	change('PEXPIRE', STATE, life)
	if not none then change('PEXPIRE', ENDS, life) end
	if given then change('SET', FENCE, given) end
end

