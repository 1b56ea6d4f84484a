-- Take permits back that are valid by their client's clock, after the server has lost its memory: in
-- the grace they are granted to no other ticket.  Idempotent.
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
local ticket = ARGV[1]
-- include shared/semaphore.lua
-- include shared/epoch.lua
if not is_known(KEYS[5], ARGV[7]) then return {'epoch'} end
local fence, lease, permits = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local wrong = count()
if wrong then return wrong end
local held, held_fence, in_force, ends_us
if fields[5] and not torn then held, held_fence, in_force, ends_us = hold_of(ticket, fields[5]) end
local mine = held and held_fence == fence and ends_us > now
if not mine and grace(now, ARGV[8]) == 0 then return {'gone'} end

-- include shared/publish.lua
-- include shared/semaphore_queue.lua
if torn then mend() end
if not capacity then make(ARGV[5], ARGV[6]) end
if held then drop(ticket, held) end
reclaim()
if not mine and used + permits > capacity then
	write()
	return {'gone'}
end
-- A late repetition never undoes a partial release.
if mine and held < permits then permits = held end
local life = mine and math.max(math.ceil((ends_us - now) / 1000), lease) or lease
if mine then lease = math.max(lease, in_force) end
local newest = last
grant(ticket, text(permits), fence, text(lease), life)
-- The counter never goes back.
given = text(math.max(newest, tonumber(fence)))
unqueue(ticket)
write()
return {'held', fence, now_text, waiting}
end)
