-- The one end of everything: release of all or some permits, cancel, loss, break, a grant nobody
-- waits for.  Removes the ticket wherever it stands, and serves the queue.  Safe to run any number
-- of times.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- ARGV[1]  ticket, "" = none: only serve the head
-- ARGV[2]  permits that the hold keeps, 0 = none: it ends.  It never has more than it had
-- ARGV[3]  prefix of client channels
-- ARGV[4]  1 = somebody else ends this hold: tell its holder
-- ARGV[5]  how long a head that does not ask is waited for, ms
-- ARGV[6]  the fence of a grant that was used and is never released: it stays; may be missing
--
-- Returns  left, 1 = the ticket was a holder's, 1 = there is more to do: run me again with "",
--                1 = permits are free and nobody waits
--          foreign, key, what it is
local ticket, keep = ARGV[1], tonumber(ARGV[2])
-- include shared/semaphore.lua
-- Counters that give no fence end no hold less: who asks next is told of them.
local unfenced = waiting > 0 and count()
if unfenced and unfenced.err then return unfenced end
local held, fence, lease, ends_us
if fields[5] and not torn then held, fence, lease, ends_us = hold_of(ticket, fields[5]) end
local mine = held and ends_us > now
if mine and fence == ARGV[6] then keep = held end

-- The first write is one that a full server does not refuse; then the others pass, too.
if keep > 0 and capacity then
	redis.call('HDEL', STATE, '')
elseif waiting > 0 and not mine then -- who holds does not wait
	waiting = waiting - redis.call('ZREM', QUEUE, ticket)
	if head[1] == ticket then head = nil end
end
if not capacity then return {'left', 0, 0, 1} end
if torn then mend() end
if mine and keep > 0 then
	if keep < held then
		redis.call('HSET', STATE, ticket, text(keep) .. ' ' .. fence .. ' ' .. text(lease))
		used = used - (held - keep)
	end
else
	if held then drop(ticket, held) end
	if mine and ARGV[4] == '1' then
		redis.pcall('PUBLISH', ARGV[3] .. string.match(ticket, TICKET), 'broken ' .. ticket)
	end
end
reclaim()
if waiting > 0 and not unfenced then
	wrote = true
-- include shared/semaphore_queue.lua
	serve('', ARGV[3], tonumber(ARGV[5]))
end
write()
return {'left', mine and 1 or 0, more and 1 or 0,
	used < capacity and waiting == 0 and 1 or 0}
