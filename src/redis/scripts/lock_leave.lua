-- The single exit path of a ticket: release, cancel, loss, break, and a grant without a waiter.
-- Removes the ticket from the lock and the queue and, if the lock is then free, serves the head of
-- the queue.  Idempotent.  Narrow, with KEYS[1] alone, because the slot moves and a key is elsewhere or
-- missing: it ends a hold, serves no ticket, and must be followed by the whole leave.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  ticket, "" = none: only serve the head
-- ARGV[2]  last fence that the holder issued itself, 0 = none
-- ARGV[3]  prefix of client channels
-- ARGV[4]  1 = a break by another client: notify the holder
-- ARGV[5]  the marker as the client knows it
-- ARGV[6]  end of the grace, server time us: before it only the leave of a reclaimed hold serves
--
-- Returns  left, 1 = the ticket was the holder's, 1 = the run had its limit: run again with "" (a
--                narrow one: with the ticket), 1 = the lock is free and the queue is empty
--          epoch: the marker is another one, to a ticket "" only
--          foreign, key, its actual type
-- include shared/change.lua
return whole(function()
-- include shared/lock_key.lua
-- include shared/lock.lua
-- include shared/epoch.lua
-- include shared/publish.lua
local TICKET = '^2:([%w_%-]+):[%w_%-]+:(%d+):[rf]$'
local DEAD_MAX = 32
local CLAIM_MS = 3000
local ticket = ARGV[1]

-- Read and validate everything before the first write.
local value = redis.pcall('GET', KEYS[1])
local granted, mark, _ -- the fence and the mark of this ticket's grant, if it is the holder's
if value then
	if type(value) == 'table' then
		if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
		return value
	end
	granted, _, _, mark = held_by(ticket, value)
	if not granted and not string.match(value, VALUE) then
		return {'foreign', KEYS[1], of_another(value, 'not a lock')}
	end
end
local narrow = not KEYS[2]
local waiting = narrow and 0 or redis.pcall('ZCARD', KEYS[2])
if type(waiting) == 'table' then
	if string.sub(waiting.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
	return waiting
end
local now = waiting > 0 and clock()
local mine = granted and 1 or 0

-- A full server (maxmemory) accepts this first command, and then the writes that follow it.
if now then waiting = waiting - change('ZREM', KEYS[2], ticket) end
if value and not granted then return {'left', 0, narrow and 1 or 0, 0} end
if granted then
	if waiting == 0 then
		change('DEL', KEYS[1])
	else
		-- A grant writes the key again: it is deleted only if none does.
		at_end = function() change('DEL', KEYS[1]) end
	end
	if ARGV[4] == '1' then
		publish(ARGV[3] .. string.match(ticket, '^2:([%w_%-]+):'), 'broken ' .. ticket)
	end
end
if narrow then return {'left', mine, 1, 0} end
-- The counter has the fence of the grant already, but may lack fences that the holder issued.
local given = granted and ARGV[2] ~= granted and ARGV[2] ~= '0'
if waiting == 0 and not given then return {'left', mine, 0, 1} end

local last = redis.pcall('GET', KEYS[3]) or '0'
if type(last) == 'table' or not string.match(last, '^%d+$') or #last > 16 then
	-- No fence can be issued; the next ask reports it.
	return {'left', mine, 0, waiting == 0 and 1 or 0}
end
if granted and ARGV[2] - last > 0 then
	last = ARGV[2]
	change('SET', KEYS[3], last)
end
if waiting == 0 then return {'left', mine, 0, 1} end
-- A ticket leaves whatever the memory is; another one is served only in the memory that is known, and
-- in the grace only after a hold that this memory has confirmed.
if not is_known(KEYS[4], ARGV[5]) then return ticket == '' and {'epoch'} or {'left', mine, 1, 0} end
local young = grace(now, ARGV[6]) > 0
if young and mark ~= mark_of(ARGV[5]) then return {'left', mine, 0, 0} end
local fence = now
if last - now >= 0 then fence = string.format('%.0f', last + 1) end
if fence - 9007199254740991 >= 0 then return {'left', mine, 0, 0} end

for _ = 1, DEAD_MAX do
	local head = redis.call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES')
	local to, lease = string.match(head[1], TICKET)
	if not to or #lease > 11 or tonumber(lease) < 2 then return {'left', mine, 0, 0} end
	waiting = waiting - 1
	-- The receiver count is weak evidence for an old ticket: it includes stopped processes and half-open
	-- connections.  Such a grant is short until it is claimed, and the next waiter asks when it ends.
	local claim_ms = math.min(CLAIM_MS, math.floor(tonumber(lease) / 2))
	local age = now - head[2]
	local old = age < 0 or age > claim_ms * 1000
	local life = old and string.format('%.0f', claim_ms) or lease
	local told = publish(ARGV[3] .. to, 'grant ' .. head[1] .. ' ' .. fence .. ' ' .. life ..
		(old and ' 1 ' or ' 0 ') .. waiting .. ' ' .. now)
	if type(told) == 'table' then return told end
	change('ZREM', KEYS[2], head[1])
	if told > 0 then
		change('SET', KEYS[1], head[1] .. ' ' .. fence .. ' ' .. lease .. ' -' .. (young and mark or ''), 'PX', life)
		at_end = nil
		change('SET', KEYS[3], fence)
		if old and waiting > 0 then
			local next = redis.call('ZRANGE', KEYS[2], '0', '0')[1]
			to = string.match(next, TICKET)
			told = to and publish(ARGV[3] .. to, 'again ' .. next .. ' ' .. life)
			if type(told) == 'table' then return told end
		end
		return {'left', mine, 0, 0}
	end
	if waiting == 0 then return {'left', mine, 0, 1} end
end
return {'left', mine, 1, 0}
end)
