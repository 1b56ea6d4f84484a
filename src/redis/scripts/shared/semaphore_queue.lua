-- Creates a semaphore and serves its queue.  Included by the scripts of a semaphore that may find
-- it with a queue, or absent.
local LOOK_MAX = 64 -- tickets read to estimate a wait
local CLAIM_MS = 3000
local TELL_US = 3000000
local AGAIN_MAX_MS = 86400000
local head_known, head_us, told_us = fields[6], whole(fields[7]) or 0, whole(fields[8]) or 0
local silent
local short = false

-- Its first write is one that a full server (maxmemory) refuses: no new semaphore is made there.  (The
-- semaphore is missing: in a slot that moves, this does not run.)
local function make(new_capacity, new_ttl)
	capacity, used, stored, ttl = tonumber(new_capacity), 0, 0, tonumber(new_ttl)
	change('HSET', STATE, 'kind', '2:semaphore', 'capacity', capacity, 'used', '0', 'ttl', ttl)
	change('DEL', ENDS)
	first, latest_us, left, counted = nil, now, 0, true
end

local function unqueue(ticket)
	if waiting > 0 then waiting = waiting - change('ZREM', QUEUE, ticket) end
	if head and head[1] == ticket then head = nil end
end

-- When the first lease ends, us, and whether that lease is fixed.
local function first_end()
	if last_one then return now, false end
	if not first then
		local found = redis.call('ZRANGE', ENDS, '0', '0', 'WITHSCORES')
		if not found[1] then return now, false end
		first, first_us = found[1], tonumber(found[2])
	end
	local mode = string.match(first, ':([rfn]):%d+$', -14)
	return first_us, mode ~= 'r'
end

-- When so many permits will be free, us, if no lease is renewed.
local function back_at(wanted, lease)
	local ends = last_one and {} or redis.call('ZRANGE', ENDS, 0, LOOK_MAX - 1, 'WITHSCORES')
	local at = now
	for i = 1, #ends, 2 do
		local _, _, _, permits = string.match(ends[i], TICKET)
		at = tonumber(ends[i + 1])
		wanted = wanted - tonumber(permits or 0)
		if wanted <= 0 then return at end
	end
	-- The rest of the permits must be granted and released first.
	return at + math.ceil(wanted / capacity) * lease * 1000
end

-- The head of the queue does not fit.  Permits that it keeps idle must not wait for a dead client,
-- and no release will serve the queue if the held permits only expire, or if their holder may be
-- dead: send the head the time of its next ask.  Returns false if the head is to be skipped; later tickets
-- of the same client are then skipped, too, without waiting for each.
local function tell_head(ticket, client, permits, lease, channels, patience)
	local at, unrenewed = first_end()
	if used >= capacity and not unrenewed and not short then return true end
	local news = head_known ~= ticket
	if news or head_us > now then head_known, head_us, told_us = ticket, now, 0 end
	if client == silent or now - head_us > patience * 1000 then
		silent = client
		publish(channels .. client, 'again ' .. ticket .. ' 0')
		return false
	end
	if told_us > now or now - told_us >= TELL_US then
		at = back_at(used + permits - capacity, lease)
		local told = publish(channels .. client,
			'again ' .. ticket .. ' ' .. text(math.min(math.max(math.ceil((at - now) / 1000), 0), AGAIN_MAX_MS)))
		if told == 0 then return false end
		told_us = now
		news = true
	end
	if news then
		change('HSET', STATE, 'head', ticket, 'head_us', text(head_us), 'told_us', text(told_us))
	end
	return true
end

-- Grant to the head of the queue while it fits.  Stops at the ticket "own", which is at the head and
-- learns of its grant from the response.
local function serve(own, channels, patience)
	for _ = 1, RUN_MAX do
		if waiting == 0 then return end
		head = head or redis.call('ZRANGE', QUEUE, '0', '0', 'WITHSCORES')
		local ticket = head[1]
		if ticket == own then return end
		local client, lease, mode, permits = string.match(ticket, TICKET)
		if not client then return end
		local lease_ms, count = tonumber(lease), tonumber(permits)
		if count > capacity then
			-- It can never fit since a resize: its next ask returns "limit".
			publish(channels .. client, 'again ' .. ticket .. ' 0')
			unqueue(ticket)
		elseif used + count > capacity then
			if tell_head(ticket, client, count, lease_ms, channels, patience) then return end
			unqueue(ticket)
		else
			-- The receiver count is weak evidence for an old ticket: it includes stopped processes and half-open
			-- connections.  Such a grant is short until it is claimed.  Exception: a grant of permits that
			-- are never released is final.
			local claim_ms = math.min(CLAIM_MS, math.floor(lease_ms / 2))
			local age = now - head[2]
			local old = mode ~= 'n' and (age < 0 or age > claim_ms * 1000)
			local life = old and claim_ms or lease_ms
			local fence = next_fence()
			-- If the server takes no writes, fail here, before the grant is published.
			if not (wrote or begun) then redis.call('HDEL', STATE, '') end
			wrote = true
			local told = publish(channels .. client, 'grant ' .. ticket .. ' ' .. fence .. ' ' ..
				(old and text(life) .. ' 1 ' or lease .. ' 0 ') .. waiting - 1 .. ' ' .. now_text)
			if type(told) == 'table' then return end
			unqueue(ticket)
			if told > 0 then
				grant(ticket, permits, fence, lease, life)
				short = short or old
			end
		end
	end
	more = true
end

