-- Renew or extend a lease, or claim a grant that arrived by message.  Narrow, with KEYS[1] alone, because
-- the slot moves and a key is elsewhere or missing: it neither reads the queue nor writes the counter.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket
-- ARGV[2]  fence of its grant, 0 = any (a claim)
-- ARGV[3]  lease from now, ms; only lengthens the lease
-- ARGV[4]  last fence that the holder issued itself, 0 = none
-- ARGV[5]  s = notify this holder of the first waiter, - = do not
-- ARGV[6]  of a claim: the marker as the client knows it
-- ARGV[7]  of a claim: end of the grace, server time us
--
-- Returns  held, fence, server time us, tickets in the queue (a narrow one: 1)
--          gone
--          epoch: the marker is another one, to a claim only
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
-- include shared/lock_key.lua
-- include shared/lock.lua
-- include shared/epoch.lua
local is_claim = ARGV[2] == '0'
if is_claim and not is_known(KEYS[4], ARGV[6]) then return {'epoch'} end
local value = redis.pcall('GET', KEYS[1])
if not value then return {'gone'} end
if type(value) == 'table' then
	if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
	return value
end
local fence, lease, share, mark = held_by(ARGV[1], value)
if not fence or tonumber(fence) > 9007199254740991 or not (is_claim or ARGV[2] == fence) then return {'gone'} end
-- In the grace this may be a grant of an earlier memory, which has given the lock to another since.
if is_claim and grace(clock(), ARGV[7]) > 0 and mark ~= mark_of(ARGV[6]) then return {'gone'} end
-- Never shorten a lease: a delayed request may be older than an extension.
local left = redis.call('PTTL', KEYS[1])
local force = lease
if left < tonumber(ARGV[3]) then
	left, force = ARGV[3], ARGV[3]
elseif tonumber(lease) < tonumber(ARGV[3]) then
	-- The clock was set back: an ask would cut the lease to the length in force, now too short.
	force = ARGV[3]
end
-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
change('PEXPIRE', KEYS[1], left)
if share ~= ARGV[5] or lease ~= force then
	change('SET', KEYS[1], ARGV[1] .. ' ' .. fence .. ' ' .. force .. ' ' .. ARGV[5] .. mark, 'PX', left)
end
-- The counter has the fence of the grant already, but may lack fences that the holder issued.
if KEYS[3] and ARGV[4] ~= fence and ARGV[4] ~= '0' then
	local last = redis.pcall('GET', KEYS[3]) or '0'
	if type(last) == 'string' and string.match(last, '^%d+$') and #last <= 16 and ARGV[4] - last > 0 then
		change('SET', KEYS[3], ARGV[4])
	end
end
local waiting = KEYS[2] and redis.pcall('ZCARD', KEYS[2]) or 1
return {'held', fence, clock(), type(waiting) == 'number' and waiting or 0}
end)
