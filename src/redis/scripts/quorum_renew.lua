-- Renew or extend the lease of a leg, or claim a grant that arrived by message, and raise the counter of
-- fences while the leg is the holder's (commit).
--
-- KEYS[1]  the lock     see shared/quorum.lua
-- KEYS[2]  its queue
-- KEYS[3]  the counters of fences
-- KEYS[4]  the marker of the server's memory
-- ARGV[1]  ticket
-- ARGV[2]  fence of its grant, 0 = any (a claim)
-- ARGV[3]  lease from now, ms; only lengthens the lease, 0 = leave it as it is
-- ARGV[4]  the fence to commit, 0 = none
-- ARGV[5]  class of the name
-- ARGV[6]  of a claim: the marker as the client knows it
-- ARGV[7]  of a claim: until when the server is young, server time us
--
-- Returns  held, fence, server time us, tickets in the queue, the counter, 1 = an older ticket is the
--                  head of the queue
--          gone: nothing was raised
--          young, ms, to a claim only
--          epoch: the marker is another one, to a claim only
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
local class = ARGV[5]
-- include shared/lock_key.lua
-- include shared/quorum.lua
-- include shared/epoch.lua
local ticket = ARGV[1]
local is_claim = ARGV[2] == '0'
if is_claim and not is_known(KEYS[4], ARGV[6]) then return {'epoch'} end
local now = clock()
local young = is_claim and grace(now, ARGV[7]) or 0
if young > 0 then return {'young', young} end
local value = redis.pcall('GET', KEYS[1])
if not value then return {'gone'} end
if type(value) == 'table' then
	if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
	return value
end
local owner, fence, lease = string.match(value, VALUE)
if owner ~= ticket or tonumber(fence) > EXACT_MAX or not (is_claim or ARGV[2] == fence) then return {'gone'} end
-- Never shorten a lease: a delayed request may be older than an extension.
local left, force, wanted = redis.call('PTTL', KEYS[1]), lease, ARGV[3]
if wanted == '0' then
	if left < 0 then left = lease end -- another program removed its end
elseif left < tonumber(wanted) then
	left, force = wanted, wanted
elseif tonumber(lease) < tonumber(wanted) then
	-- The clock was set back: an ask would cut the lease to the length in force, now too short.
	force = wanted
end
-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
change('PEXPIRE', KEYS[1], left)
if force ~= lease then change('SET', KEYS[1], ticket .. ' ' .. fence .. ' ' .. force .. ' -', 'PX', left) end
local last = counter()
if last and ARGV[4] - last > 0 then
	last = ARGV[4]
	change('HSET', KEYS[3], class, last)
end
local waiting = redis.pcall('ZCARD', KEYS[2])
if type(waiting) ~= 'number' then waiting = 0 end
return {'held', fence, now, waiting, last or '0', waiting > 0 and has_older_head(ticket) and 1 or 0}
end)
