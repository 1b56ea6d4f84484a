-- The one end of everything: release, cancel, loss, break, a grant nobody waits for.  Removes the
-- ticket wherever it stands and, if the lock is free then, serves the head of the queue.  Safe to
-- run any number of times.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- ARGV[1]  ticket, "" = none: only serve the head
-- ARGV[2]  last fence that the holder gave out, 0 = none
-- ARGV[3]  prefix of client channels
-- ARGV[4]  1 = somebody else ends this hold: tell its holder
--
-- Returns  left, 1 = the ticket was the holder's, 1 = there is more to do: run me again with "",
--                1 = the lock is free and nobody waits
--          foreign, key, what it is
-- include shared/lock.lua
local TICKET = '^1:([%w_%-]+):[%w_%-]+:(%d+):[rf]$'
local VALUE = '^(1:([%w_%-]+):[%w_%-]+:%d+:[rf]) %d+ %d+ [s%-]$'
local DEAD_MAX = 32
local CLAIM_MS = 3000
local ticket = ARGV[1]

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
	if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
	return value
end
local owner, client
if value then
	owner, client = string.match(value, VALUE)
	if not owner then
		local version = string.match(value, '^(%d+):')
		return {'foreign', KEYS[1], version and version ~= '1' and 'protocol version ' .. version or 'not a lock'}
	end
end
-- The first write is one that a full server does not refuse; then the others pass, too.
local gone = redis.pcall('ZREM', KEYS[2], ticket)
if type(gone) == 'table' then
	if string.sub(gone.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
	return gone
end
local mine = owner and owner == ticket
if owner and not mine then return {'left', 0, 0, 0} end
if mine then
	redis.call('DEL', KEYS[1])
	if ARGV[4] == '1' then redis.pcall('PUBLISH', ARGV[3] .. client, 'broken ' .. owner) end
end
mine = mine and 1 or 0

local last = redis.pcall('GET', KEYS[3])
if type(last) == 'table' or (last and (not string.match(last, '^%d+$') or #last > 16)) then
	-- No fence can be given: who asks next is told so.
	return {'left', mine, 0, 0}
end
last = tonumber(last or '0')
if mine == 1 and tonumber(ARGV[2]) > last then
	last = tonumber(ARGV[2])
	redis.call('SET', KEYS[3], string.format('%.0f', last))
end
local fence = math.max(last + 1, now)
if fence >= 9007199254740991 then return {'left', mine, 0, 0} end
fence = string.format('%.0f', fence)

for _ = 1, DEAD_MAX do
	local head = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
	if not head[1] then return {'left', mine, 0, 1} end
	local to, lease = string.match(head[1], TICKET)
	if not to or #lease > 11 or tonumber(lease) < 2 then return {'left', mine, 0, 0} end
	local waiting = redis.call('ZCARD', KEYS[2]) - 1
	-- A receiver count proves little about a ticket that is old: a stopped process and a half-open
	-- connection count, too.  Such a grant is short, to be claimed, and the next one looks after it.
	local claim_ms = math.min(CLAIM_MS, math.floor(tonumber(lease) / 2))
	local age = now - tonumber(head[2])
	local old = age < 0 or age > claim_ms * 1000
	local life = old and claim_ms or tonumber(lease)
	local told = redis.pcall('PUBLISH', ARGV[3] .. to, string.format('grant %s %s %.0f %d %d %.0f',
		head[1], fence, life, old and 1 or 0, waiting, now))
	if type(told) == 'table' then return told end
	redis.call('ZREM', KEYS[2], head[1])
	if told > 0 then
		redis.call('SET', KEYS[1], table.concat({head[1], fence, lease, '-'}, ' '), 'PX',
			string.format('%.0f', life))
		redis.call('SET', KEYS[3], fence)
		if old and waiting > 0 then
			local next = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
			to = string.match(next, TICKET)
			if to then redis.call('PUBLISH', ARGV[3] .. to, string.format('again %s %.0f', next, life)) end
		end
		return {'left', mine, 0, 0}
	end
end
return {'left', mine, 1, 0}
