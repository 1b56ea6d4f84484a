-- Reads a latch; included by the scripts of a latch, whose first two keys are the same.
--
-- the latch   a hash: kind "1:latch"; gen, its generation; count, the remaining steps; initial;
--             open_ttl, ms until an open latch expires
-- its memory  a hash that outlives it by MEMORY_MS: opened and removed, the last generation that was
--             opened or removed; for the generation in field gen: c:<client>, the number of that
--             client's last counted step, and n:<name>, one field for each counted name.  A counting
--             latch without it has lost its steps to an eviction
local LATCH, MEMORY = KEYS[1], KEYS[2]
local MEMORY_MS = 60000
local gen, count, initial, open_ttl -- gen is nil when there is no latch
local opened, removed, left, steps_of

local function number(text)
	return string.match(text or '', '^%d+$') and #text <= 16 and tonumber(text) <= 9007199254740991
end

local function other_kind(kind)
	if string.match(kind, '^[12]:semaphore$') then return {'foreign', LATCH, 'a semaphore, not a latch'} end
	local version = string.match(kind, '^(%d+):')
	if version and version ~= '1' then return {'foreign', LATCH, 'protocol version ' .. version} end
	return {'foreign', LATCH, 'not a latch'}
end

-- Read everything and write nothing.  Returns the reply of the script if it has to end here.
local function read()
	local fields = redis.pcall('HMGET', LATCH, 'kind', 'gen', 'count', 'initial', 'open_ttl')
	if fields.err then
		if string.sub(fields.err, 1, 9) ~= 'WRONGTYPE' then return fields end
		local value = redis.pcall('GET', LATCH)
		local lock = type(value) == 'string' and string.match(value, '^[12]:')
		return {'foreign', LATCH, lock and 'a lock, not a latch' or 'not a latch'}
	end
	left = redis.call('PTTL', LATCH)
	if left ~= -2 then
		if fields[1] ~= '1:latch' then return other_kind(fields[1] or '') end
		for i = 2, 5 do
			if not number(fields[i]) then return {'foreign', LATCH, 'not a latch'} end
		end
		gen, count, initial, open_ttl = fields[2], tonumber(fields[3]), tonumber(fields[4]), fields[5]
	end
	local memory = redis.pcall('HMGET', MEMORY, 'opened', 'removed', 'gen')
	if memory.err then
		if string.sub(memory.err, 1, 9) == 'WRONGTYPE' then return {'foreign', MEMORY, 'not a hash'} end
		return memory
	end
	opened = number(memory[1]) and memory[1] or '0'
	removed = number(memory[2]) and memory[2] or '0'
	if gen and count == 0 then opened = gen end -- its memory may be lost
	steps_of = memory[3]
end

-- The greatest generation in its keys.  The next one must exceed it even if the fence counter was
-- lost and the clock is behind: an old opening would otherwise release waiters of the new latch.
local function known()
	return math.max(tonumber(gen or 0), tonumber(opened), tonumber(removed))
end

-- Reject a name whose queue has tickets of another kind: a lock may be free for a moment.  In a Cluster
-- also if there is a latch: then the scripts that delete its keys and write them again, and declare the
-- queue, run in no slot that moves.
local function of_another(queue, in_cluster)
	if gen and not in_cluster then return nil end
	local head = redis.pcall('ZRANGE', queue, 0, 0)
	if head.err then
		if string.sub(head.err, 1, 9) == 'WRONGTYPE' then return {'foreign', queue, 'not a sorted set'} end
		return head
	end
	if not head[1] then return nil end
	local permits = string.match(head[1], ':[rfn]:%d+$')
	return {'foreign', queue, permits and 'a semaphore, not a latch' or 'a lock, not a latch'}
end
