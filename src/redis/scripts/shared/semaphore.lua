-- What the scripts of a semaphore share: reading it, reclaiming leases that are over, serving its
-- queue, writing it back.  Each of them has the same four keys.
--
-- the semaphore   a hash: kind "1:semaphore"; capacity; used, permits held; ttl, ms; a field for each
--                 hold, its ticket: "<permits> <fence> <lease in force, ms>"; and while the head of
--                 the queue does not fit: head, its ticket; head_us, when it became so or asked last;
--                 told_us, when it was told last
-- its queue       tickets by arrival, us
-- the fence counter
-- its ends        tickets of the holds by the end of their leases, us
--
-- A ticket is 1:<client>:<nonce>:<lease ms>:<r|f>:<permits>.
local STATE, QUEUE, FENCE, ENDS = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local TICKET = '^1:([%w_%-]+):[%w_%-]+:(%d+):([rf]):(%d+)$'
local HOLD = '^(%d+) (%d+) (%d+)$'
local RUN_MAX = 32 -- tickets served, and leases reclaimed, in one run
local LOOK_MAX = 64 -- tickets looked at to tell a waiter its time
local CLAMP_MAX = 8
local CLAIM_MS = 3000
local TELL_US = 3000000
local AGAIN_MAX_MS = 86400000

local time = redis.call('TIME')
local now_text = time[1] .. string.sub('00000', #time[2]) .. time[2]
local now = tonumber(now_text)
local capacity, used, ttl, last, head_known, head_us, told_us
local waiting -- tickets in the queue
local first_us -- the end of the lease that ends first, as it was read
local given -- the last fence that was given here, as text
local torn, stored, silent
local more, short = false, false

local function text(number)
	return string.format('%.0f', number)
end

-- A number as we write it, nil for what only looks like one to Lua: nan, inf, 0x10, 1e9.
local function whole(written)
	local number = written and #written <= 16 and string.match(written, '^%d+$') and tonumber(written)
	return number and number <= 9007199254740991 and number or nil
end

-- Reads everything and writes nothing; what is found wrong is the script's answer.
local function read()
	local fields = redis.pcall('HMGET', STATE, 'kind', 'capacity', 'used', 'ttl', 'head', 'head_us', 'told_us')
	if fields.err then
		if string.sub(fields.err, 1, 9) ~= 'WRONGTYPE' then return fields end
		local value = redis.pcall('GET', STATE)
		local is_lock = type(value) == 'string' and string.match(value, '^1:')
		return {'foreign', STATE, is_lock and 'a lock, not a semaphore' or 'not a semaphore'}
	end
	local kind = fields[1]
	if kind and kind ~= '1:semaphore' or not kind and redis.call('EXISTS', STATE) == 1 then
		local version, what = string.match(kind or '', '^(%d+):(%l+)$')
		if version == '1' then return {'foreign', STATE, 'a ' .. what .. ', not a semaphore'} end
		return {'foreign', STATE, version and 'protocol version ' .. version or 'not a semaphore'}
	end
	waiting = redis.pcall('ZCARD', QUEUE)
	if type(waiting) == 'table' then
		if string.sub(waiting.err, 1, 9) == 'WRONGTYPE' then return {'foreign', QUEUE, 'not a sorted set'} end
		return waiting
	end
	local first = waiting > 0 and redis.call('ZRANGE', QUEUE, '0', '0')[1]
	if first and not string.match(first, TICKET) then
		local version = string.match(first, '^(%d+):')
		return {'foreign', QUEUE, version and version ~= '1' and 'protocol version ' .. version or "not a semaphore's queue"}
	end
	local ends = redis.pcall('ZRANGE', ENDS, '0', '0', 'WITHSCORES')
	if ends.err then
		if string.sub(ends.err, 1, 9) == 'WRONGTYPE' then return {'foreign', ENDS, 'not a sorted set'} end
		return ends
	end
	if ends[1] and not string.match(ends[1], TICKET) then return {'foreign', ENDS, "not a semaphore's ends"} end
	if kind then
		capacity, used, ttl = whole(fields[2]), whole(fields[3]), whole(fields[4])
		head_known, head_us, told_us = fields[5], whole(fields[6]) or 0, whole(fields[7]) or 0
		if not (capacity and used and ttl) then return {'foreign', STATE, 'a damaged semaphore'} end
		stored = {capacity, used, ttl}
		torn = used > 0 and not ends[1]
	end
	first_us = tonumber(ends[2])
end

-- The fence counter, as read() does it, for who may grant.
local function count()
	local counter = redis.pcall('GET', FENCE) or '0'
	if type(counter) == 'table' then
		if string.sub(counter.err, 1, 9) == 'WRONGTYPE' then return {'foreign', FENCE, 'not a string'} end
		return counter
	end
	if not string.match(counter, '^%d+$') or #counter > 16 then return {'fence', 'not a number'} end
	last = tonumber(counter)
	if math.max(last + RUN_MAX + 1, now) >= 9007199254740991 then return {'fence', 'used up'} end
end

-- Half of it was lost, by eviction: what is left says nothing of who holds.
local function mend()
	if not torn then return end
	redis.call('DEL', STATE)
	used, stored = 0, nil
end

-- Its first write is one that a full server refuses: nothing new begins there.
local function make(new_capacity, new_ttl)
	capacity, used, ttl = tonumber(new_capacity), 0, tonumber(new_ttl)
	redis.call('HSET', STATE, 'kind', '1:semaphore', 'capacity', text(capacity), 'used', '0', 'ttl', text(ttl))
	stored = {capacity, used, ttl}
	redis.call('DEL', ENDS)
end

-- The permits, fence and lease of a hold, or nothing; with the end of its lease.
local function hold_of(ticket)
	local value = redis.call('HGET', STATE, ticket)
	if not value then return nil end
	local permits, fence, lease = string.match(value, HOLD)
	if not (whole(permits) and whole(fence) and whole(lease)) then return nil end
	return tonumber(permits), fence, tonumber(lease), tonumber(redis.call('ZSCORE', ENDS, ticket) or 0)
end

local function unqueue(ticket)
	if waiting > 0 then waiting = waiting - redis.call('ZREM', QUEUE, ticket) end
end

local function drop(ticket, permits)
	redis.call('HDEL', STATE, ticket)
	redis.call('ZREM', ENDS, ticket)
	used = math.max(used - (permits or 0), 0)
end

-- Leases that are over.
local function reclaim()
	if not first_us or first_us > now then return end
	local over = redis.call('ZRANGEBYSCORE', ENDS, '-inf', now_text, 'LIMIT', '0', RUN_MAX)
	for _, ticket in ipairs(over) do drop(ticket, hold_of(ticket)) end
	if #over == RUN_MAX then more = true end
end

-- No lease ends later than its length from now: the clock stepped back.  The latest ends are those
-- that nobody renews.
local function clamp()
	if not first_us then return end
	local ends = redis.call('ZREVRANGE', ENDS, '0', CLAMP_MAX - 1, 'WITHSCORES')
	for i = 1, #ends, 2 do
		local _, own = string.match(ends[i], TICKET)
		if own and tonumber(ends[i + 1]) > now + tonumber(own) * 1000 then
			local _, _, lease = hold_of(ends[i])
			if lease and tonumber(ends[i + 1]) > now + lease * 1000 then
				redis.call('ZADD', ENDS, text(now + lease * 1000), ends[i])
			end
		end
	end
end

-- Returns the fence.
local function grant(ticket, permits, lease, life)
	last = math.max(last + 1, now)
	given = text(last)
	redis.call('HSET', STATE, ticket, text(permits) .. ' ' .. given .. ' ' .. text(lease))
	redis.call('ZADD', ENDS, text(now + life * 1000), ticket)
	unqueue(ticket)
	used = used + permits
	return given
end

-- When the lease that ends first will end, us, and whether nobody renews it.
local function first_end()
	local first = redis.call('ZRANGE', ENDS, 0, 0, 'WITHSCORES')
	if not first[1] then return now, false end
	local _, _, mode = string.match(first[1], TICKET)
	return tonumber(first[2]), mode == 'f'
end

-- When so many permits will have come back, us, if no lease is renewed.
local function back_at(wanted, lease)
	local ends = redis.call('ZRANGE', ENDS, 0, LOOK_MAX - 1, 'WITHSCORES')
	local at = now
	for i = 1, #ends, 2 do
		local _, _, _, permits = string.match(ends[i], TICKET)
		at = tonumber(ends[i + 1])
		wanted = wanted - tonumber(permits or 0)
		if wanted <= 0 then return at end
	end
	-- They have to be given out and come back again first.
	return at + math.ceil(wanted / capacity) * lease * 1000
end

-- The head of the queue does not fit.  Permits that lie idle because of it should not wait for one
-- who is dead, and nobody releases permits that run out, or that were granted to one who may be
-- dead: then it is told when to ask.  False when it is to be passed over; then those of its client
-- that follow are, too: one silence is enough.
local function tell_head(ticket, client, permits, lease, channels, patience)
	local at, unrenewed = first_end()
	if used >= capacity and not unrenewed and not short then return true end
	local news = head_known ~= ticket
	if news or head_us > now then head_known, head_us, told_us = ticket, now, 0 end
	if client == silent or now - head_us > patience * 1000 then
		silent = client
		redis.pcall('PUBLISH', channels .. client, 'again ' .. ticket .. ' 0')
		return false
	end
	if told_us > now or now - told_us >= TELL_US then
		at = back_at(used + permits - capacity, lease)
		local told = redis.pcall('PUBLISH', channels .. client,
			'again ' .. ticket .. ' ' .. text(math.min(math.max(math.ceil((at - now) / 1000), 0), AGAIN_MAX_MS)))
		if told == 0 then return false end
		told_us = now
		news = true
	end
	if news then
		redis.call('HSET', STATE, 'head', ticket, 'head_us', text(head_us), 'told_us', text(told_us))
	end
	return true
end

-- Grant to the head of the queue while it fits.  Stops at the ticket "own": its turn has come, and it
-- is told by the answer.
local function serve(own, channels, patience)
	for _ = 1, RUN_MAX do
		if waiting == 0 then return end
		local head = redis.call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')
		if head[1] == own then return end
		local client, lease, _, permits = string.match(head[1], TICKET)
		if not client then return end
		lease, permits = tonumber(lease), tonumber(permits)
		if permits > capacity then
			-- It never fits, since a resize: it asks and is told so.
			redis.pcall('PUBLISH', channels .. client, 'again ' .. head[1] .. ' 0')
			unqueue(head[1])
		elseif used + permits > capacity then
			if tell_head(head[1], client, permits, lease, channels, patience) then return end
			unqueue(head[1])
		else
			-- A receiver count proves little about a ticket that is old: a stopped process and a
			-- half-open connection count, too.  Such a grant is short, to be claimed.
			local claim_ms = math.min(CLAIM_MS, math.floor(lease / 2))
			local age = now - tonumber(head[2])
			local old = age < 0 or age > claim_ms * 1000
			local life = old and claim_ms or lease
			-- A server that takes no writes says so here, and not when the grant has been told.
			redis.call('HDEL', STATE, '')
			local told = redis.pcall('PUBLISH', channels .. client, string.format('grant %s %.0f %.0f %d %d %.0f',
				head[1], math.max(last + 1, now), life, old and 1 or 0, waiting - 1, now))
			if type(told) == 'table' then return end
			if told > 0 then
				grant(head[1], permits, lease, life)
				short = short or old
			else
				unqueue(head[1])
			end
		end
	end
	more = true
end

-- Every key lives at least as long as the last lease.
local function write()
	local latest = redis.call('ZRANGE', ENDS, '-1', '-1', 'WITHSCORES')
	local life = math.max(ttl, math.ceil((tonumber(latest[2] or now) - now) / 1000) + 1000)
	life = text(math.min(life, 9007199254740991)) -- of an end that is none of ours
	if not stored or capacity ~= stored[1] or ttl ~= stored[3] then
		redis.call('HSET', STATE, 'kind', '1:semaphore', 'capacity', text(capacity), 'used', text(used),
			'ttl', text(ttl))
	elseif used ~= stored[2] then
		redis.call('HSET', STATE, 'used', text(used))
	end
	redis.call('PEXPIRE', STATE, life)
	redis.call('PEXPIRE', ENDS, life)
	if given then redis.call('SET', FENCE, given) end
end
