-- Show a lock, also a quorum's on one of its servers.  Writes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its queue
-- ARGV[1]  a ticket whose rank is wanted, "" = none
-- ARGV[2]  how many waiters to list
--
-- Returns  holder's ticket ("" = free), fence, ms left of its lease, server time us,
--          tickets in the queue, rank (-1 = not in the queue), then the first tickets
--          foreign, key, its actual type
-- include shared/lock_key.lua
-- include shared/lock.lua
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
	if string.sub(value.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], instead()} end
	return value
end
local owner, fence = '', '0'
if value then
	owner, fence = string.match(value, VALUE)
	if not owner then owner, fence = string.match(value, LEG_VALUE) end
	if not owner then
		return {'foreign', KEYS[1], of_another(value, 'not a lock')}
	end
end
-- Read the first ticket even if none is wanted: it shows whether the queue is ours.
local count = tonumber(ARGV[2])
local tickets = redis.pcall('ZRANGE', KEYS[2], 0, math.max(count, 1) - 1)
if tickets.err then
	if string.sub(tickets.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[2], 'not a sorted set'} end
	return tickets
end
local head = tickets[1]
if head and not string.match(head, '^2:') and not string.match(head, '^q1:') then
	return {'foreign', KEYS[2], of_another(head, 'not a queue')}
end
local rank = ARGV[1] ~= '' and redis.call('ZRANK', KEYS[2], ARGV[1]) or -1
local answer = {owner, fence, redis.call('PTTL', KEYS[1]), clock(), redis.call('ZCARD', KEYS[2]), rank}
for i = 1, math.min(count, #tickets) do answer[6 + i] = tickets[i] end
return answer
