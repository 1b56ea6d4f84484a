-- Take permits back that are valid by their client's clock, after the server has lost its memory: in
-- the grace they are granted to no other ticket.  Holds that an older copy still has, and that no client
-- has taken back, make room.  Idempotent.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- KEYS[5]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket
-- ARGV[2]  fence of its grant
-- ARGV[3]  lease from now, ms
-- ARGV[4]  permits that the hold has
-- ARGV[5]  capacity of a semaphore that has to be created
-- ARGV[6]  its ttl after the last use, ms
-- ARGV[7]  the marker as the client knows it
-- ARGV[8]  end of the grace, server time us
--
-- Returns  held, fence, server time us, tickets in the queue
--          gone: too few permits are free, or the grace is over
--          epoch: the marker is another one
--          foreign, key, its actual type
--          fence, defect of the counter
-- include shared/change.lua
return whole(function()
local PAGE, PAGES_MAX = 100, 100 -- holds looked at
local ticket = ARGV[1]
-- include shared/semaphore.lua
-- include shared/epoch.lua
if not is_known(KEYS[5], ARGV[7]) then return {'epoch'} end
local fence, lease, permits = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local mark, grace_end = mark_of(ARGV[7]), tonumber(ARGV[8])
local wrong = count()
if wrong then return wrong end
local held, held_fence, in_force, ends_us
if fields[5] and not torn then held, held_fence, in_force, ends_us = hold_of(ticket, fields[5]) end
local mine = held and held_fence == fence and ends_us > now
if not mine and grace(now, grace_end) == 0 then return {'gone'} end

-- include shared/publish.lua
-- include shared/semaphore_queue.lua
if torn then mend() end
if not capacity then make(ARGV[5], ARGV[6]) end

-- May this hold of another ticket end, to make room?  Nothing new is granted in the grace, and what is
-- valid fits: so a hold that was not reclaimed in this memory is over, or its client will reclaim it.
-- Not permits that are never released, since no client reclaims them; and not a grant from after the
-- grace, if the clock was set back into it.
local function is_stale(other, its_fence, its_mark)
	return its_mark ~= mark and tonumber(its_fence) < grace_end and not string.match(other, ':n:%d+$')
end

-- Find other holds that end: those whose leases are over, and as many stale ones as there are permits
-- too few, in the order of their ends.
local over, ending = {}, {} -- over: without the stale ones
local free = capacity - used + (held or 0)
local function look(skip)
	local page = redis.call('ZRANGE', ENDS, skip, skip + PAGE - 1, 'WITHSCORES')
	for i = 1, #page, 2 do
		local other, is_over = page[i], tonumber(page[i + 1]) <= now
		if (mine or free >= permits) and not (is_over and #over < RUN_MAX) then return false end
		local its_permits, its_fence, _, _, its_mark = hold_of(other)
		if other ~= ticket and (is_over or its_permits and is_stale(other, its_fence, its_mark)) then
			ending[#ending + 1] = {other, its_permits}
			if is_over then over[#over + 1] = ending[#ending] end
			free = free + (its_permits or 0)
		end
	end
	return #page == 2 * PAGE
end
for skip = 0, (PAGES_MAX - 1) * PAGE, PAGE do
	if not look(skip) then break end
end

if not mine and free < permits then
	if held then drop(ticket, held) end
	for _, hold in ipairs(over) do drop(hold[1], hold[2]) end
	write()
	return {'gone'}
end
-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
if held then redis.call('HDEL', STATE, '') end
for _, hold in ipairs(ending) do
	change('HDEL', STATE, hold[1])
	used = math.max(used - (hold[2] or 0), 0)
end
-- A late repetition never undoes a partial release.
if mine and held < permits then permits = held end
local life = mine and math.max(math.ceil((ends_us - now) / 1000), lease) or lease
if mine then lease = math.max(lease, in_force) end
local newest = last
used = math.max(used - (held or 0), 0)
grant(ticket, text(permits), fence, text(lease) .. mark, life)
-- Now the ends cannot become empty: a key that this run has deleted would not be used again.
for _, hold in ipairs(ending) do change('ZREM', ENDS, hold[1]) end
-- The counter never goes back.
given = text(math.max(newest, tonumber(fence)))
unqueue(ticket)
write()
return {'held', fence, now_text, waiting}
end)
