-- Keep a hold: renewal, extension, and the claim of a grant that came by message.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- ARGV[1]  ticket
-- ARGV[2]  fence of its grant, 0 = whichever it has (a claim)
-- ARGV[3]  lease from now, ms; it moves the end on, never back
--
-- Returns  held, fence, server time us, tickets in the queue
--          gone
--          foreign, key, what it is
local ticket = ARGV[1]
-- include shared/semaphore.lua
if not fields[5] then return {'gone'} end
local held, fence, lease, ends_us = hold_of(ticket, fields[5])
if not held or ends_us <= now or (ARGV[2] ~= '0' and ARGV[2] ~= fence) then return {'gone'} end
-- The first write is one that a full server does not refuse; then the others pass, too.
redis.call('HDEL', STATE, '')
-- A lease is never shortened (a request that comes late may be older than an extension), but that of
-- a clock that stepped back is.
local wanted = tonumber(ARGV[3])
ends_us = math.min(ends_us, now + lease * 1000)
if ends_us < now + wanted * 1000 then
	ends_us = now + wanted * 1000
	if lease ~= wanted then
		redis.call('HSET', STATE, ticket, text(held) .. ' ' .. fence .. ' ' .. text(wanted))
	end
end
latest_us = alone and ends_us
redis.call('ZADD', ENDS, ends_us, ticket)
write()
return {'held', fence, now_text, waiting}
