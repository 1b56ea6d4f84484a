-- Renew or extend a lease, or claim a grant that arrived by message.  Narrow, with KEYS[1] and KEYS[4] alone
-- (then KEYS[2]): it does not read the queue.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- KEYS[5]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket
-- ARGV[2]  fence of its grant, 0 = any (a claim)
-- ARGV[3]  lease from now, ms; only lengthens the lease
-- ARGV[4]  of a claim: the marker as the client knows it
-- ARGV[5]  of a claim: end of the grace, server time us
--
-- Returns  held, fence, server time us, tickets in the queue (a narrow one: 1)
--          gone
--          epoch: the marker is another one, to a claim only
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
local ticket = ARGV[1]
-- include shared/semaphore.lua
-- include shared/epoch.lua
local is_claim = ARGV[2] == '0'
if is_claim and not is_known(KEYS[5], ARGV[4]) then return {'epoch'} end
if not fields[5] then return {'gone'} end
local held, fence, lease, ends_us, mark = hold_of(ticket, fields[5])
if not held or ends_us <= now or not (is_claim or ARGV[2] == fence) then return {'gone'} end
-- In the grace this may be a grant of an earlier memory, whose permits others have had since.
if is_claim and grace(now, ARGV[5]) > 0 then return {'gone'} end
-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
redis.call('HDEL', STATE, '')
-- Never shorten a lease (a delayed request may be older than an extension), unless the clock was set
-- back.
local wanted = tonumber(ARGV[3])
ends_us = math.min(ends_us, now + lease * 1000)
if ends_us < now + wanted * 1000 then
	ends_us = now + wanted * 1000
	if lease ~= wanted then
		change('HSET', STATE, ticket, text(held) .. ' ' .. fence .. ' ' .. text(wanted) .. mark)
	end
end
latest_us = alone and ends_us
change('ZADD', ENDS, ends_us, ticket)
write()
return {'held', fence, now_text, narrow and 1 or waiting}
end)
