-- The single exit path of a ticket: release of all or some permits, cancel, loss, break, and a grant
-- without a waiter.  Removes the ticket from the holders and the queue, then serves the queue.
-- Idempotent.  Narrow, with KEYS[1] and KEYS[4] alone (then KEYS[2]): it ends or shrinks a hold, serves no
-- ticket, and must be followed by the whole leave.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- KEYS[5]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket, "" = none: only serve the queue
-- ARGV[2]  permits that the hold keeps, 0 = none: it ends.  Never more than it has now
-- ARGV[3]  prefix of client channels
-- ARGV[4]  1 = a break by another client: notify the holder
-- ARGV[5]  how long the head of the queue may be silent before it is skipped, ms
-- ARGV[6]  the marker as the client knows it
-- ARGV[7]  end of the grace, server time us: before it no ticket is served
-- ARGV[8]  the fence of a used grant that is never released: that hold stays; may be missing
--
-- Returns  left, 1 = the ticket was a holder's, 1 = the run had its limit: run again with "" (a
--                narrow one: with the ticket), 1 = permits are free and the queue is empty
--          epoch: the marker is another one, to a ticket "" only
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
local ticket, keep = ARGV[1], tonumber(ARGV[2])
-- include shared/publish.lua
-- include shared/semaphore.lua
-- A damaged fence counter does not prevent a release; the next ask reports it.
local unfenced = waiting > 0 and count()
if unfenced and unfenced.err then return unfenced end
local held, fence, lease, ends_us, mark
if fields[5] and not torn then held, fence, lease, ends_us, mark = hold_of(ticket, fields[5]) end
local mine = held and ends_us > now
if mine and fence == ARGV[8] then keep = held end

-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
if keep > 0 and capacity then
	redis.call('HDEL', STATE, '')
elseif waiting > 0 and not mine then -- a holder is not in the queue
	waiting = waiting - change('ZREM', QUEUE, ticket)
	if head[1] == ticket then head = nil end
end
if not capacity then return {'left', 0, narrow and 1 or 0, narrow and 0 or 1} end
final = waiting == 0 and not narrow
if torn then mend() end
if mine and keep > 0 then
	if keep < held then
		change('HSET', STATE, ticket, text(keep) .. ' ' .. fence .. ' ' .. text(lease) .. mark)
		used = used - (held - keep)
	end
else
	if held then drop(ticket, held) end
	if mine and ARGV[4] == '1' then
		publish(ARGV[3] .. string.match(ticket, TICKET), 'broken ' .. ticket)
	end
end
reclaim()
local known = true
if waiting > 0 and not unfenced then
-- include shared/semaphore_queue.lua
-- include shared/epoch.lua
	known = is_known(KEYS[5], ARGV[6])
	if known and grace(now, ARGV[7]) == 0 then serve('', ARGV[3], tonumber(ARGV[5])) end
end
write()
if narrow then return {'left', mine and 1 or 0, 1, 0} end
-- A ticket leaves whatever the memory is; others are served only in the memory that is known.
if not known and ticket == '' then return {'epoch'} end
return {'left', mine and 1 or 0, (more or not known) and 1 or 0,
	used < capacity and waiting == 0 and 1 or 0}
end)
