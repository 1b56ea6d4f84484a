-- Take a hold back that is valid by its client's clock, after the server has lost its memory: in the
-- grace no other ticket is granted the lock.  Idempotent.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket
-- ARGV[2]  fence of its grant
-- ARGV[3]  lease from now, ms
-- ARGV[4]  last fence that the holder issued itself
-- ARGV[5]  s = notify this holder of the first waiter, - = do not
-- ARGV[6]  the marker as the client knows it
-- ARGV[7]  end of the grace, server time us
--
-- Returns  held, fence, server time us, tickets in the queue
--          gone: another holds it, or the grace is over
--          epoch: the marker is another one
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
-- include shared/lock_key.lua
-- include shared/lock.lua
-- include shared/epoch.lua
local ticket, fence, lease = ARGV[1], ARGV[2], ARGV[3]
if not is_known(KEYS[4], ARGV[6]) then return {'epoch'} end
local value = redis.pcall('GET', KEYS[1])
local last = redis.pcall('GET', KEYS[3]) or '0'
if type(value) == 'table' then
	if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
	return value
end
local now = clock()
local life = lease
local held, in_force
if value then held, in_force = held_by(ticket, value) end
if held == fence then
	lease = string.format('%.0f', math.max(tonumber(in_force), tonumber(lease)))
	-- Never shorten a lease: an earlier response may have been lost.
	life = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3]))
else
	if grace(now, ARGV[7]) == 0 then return {'gone'} end
	if value then
		local owner, other = string.match(value, VALUE)
		if not owner then return {'foreign', KEYS[1], 'not a lock'} end
		-- A copy of an older memory may have an earlier holder, or an earlier grant of this ticket.
		if other - fence >= 0 then return {'gone'} end
	end
end
change('PEXPIRE', KEYS[1], life)
change('SET', KEYS[1], ticket .. ' ' .. fence .. ' ' .. lease .. ' ' .. ARGV[5] .. mark_of(ARGV[6]), 'PX', life)
if type(last) == 'string' and string.match(last, '^%d+$') and #last <= 16 and ARGV[4] - last > 0 then
	change('SET', KEYS[3], ARGV[4])
end
local waiting = redis.pcall('ZCARD', KEYS[2])
if type(waiting) ~= 'number' then waiting = 0 end
if waiting > 0 then waiting = waiting - change('ZREM', KEYS[2], ticket) end
return {'held', fence, now, waiting}
end)
