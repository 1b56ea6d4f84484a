-- Find the marker of the server's memory, or write it.  A memory that lost a part of what an earlier
-- one knew has another id, or no marker; it must be young for a grace from the loss on.
--
-- KEYS[1]  the marker   "1 <id> <since, us>": the memory of that id is whole since then; of a member of a
--          quorum " [<set id> <number>/<servers> <longest lease, ms>]" follows
-- ARGV[1]  the marker that the client found last under this URL, "" = none
-- ARGV[2]  id of a process that began when nothing was held, 0 = unknown: the client started it, or
--          another client on this machine
-- ARGV[3]  the number of the database
-- ARGV[4]  and all others, of a Cluster's node: markers that the client has just found in its other slots
-- ARGV[4]  of a quorum: what is in the brackets, to be written if there is none; "" = leave it as it is
-- ARGV[5]  of a quorum: 1 = the server is new in the set: it is not young if its database is empty
--
-- Returns  epoch, the marker, its since, server time us, 1 = INFO says nothing: only a missing marker
--                 shows a loss
--          foreign, key, what it is: a member of a quorum, and the client does not know that
--          cluster: this is a node of a Cluster, nothing was done
--          foreign, key, its actual type
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000', #time[2]) .. time[2]
local marker = redis.pcall('GET', KEYS[1])
if type(marker) == 'table' then
	if string.sub(marker.err, 1, 9) == 'WRONGTYPE' then return {'foreign', KEYS[1], 'not a string'} end
	return marker
end
local known = string.match(ARGV[1], '^1 (%S+)')
local old_id, since, more
if marker then
	old_id, since, more = string.match(marker, '^1 ([%x+-]+) (%d+)(.*)$')
	local is_ours = old_id and #marker <= 166 and #since <= 16 and
		(more == '' or string.match(more, '^ %[[^%]]*%]$'))
	if not is_ours then
		return {'foreign', KEYS[1], 'not a marker of this protocol'}
	end
end

local is_node = string.find(KEYS[1], '{', 1, true) -- of a Cluster
-- The part in brackets, and whether it is new.  The first client that writes it decides: two may make a
-- set at once.  The clients choose the place of the server in it, 0 = unknown.
local SET = '^[%w_%-]+ %d+/%d+ %d+$'
local member, has_joined = string.match(more or '', '^ %[(.*)%]$'), false
local set = not is_node and ARGV[4]
if not set then
	if member then return {'foreign', KEYS[1], 'member of a quorum: use redis+quorum://'} end
elseif string.match(set, SET) and not string.match(member or '', SET) then
	has_joined = true
	more = ' [' .. set .. ']'
end

local life = 2592000000 -- 30 days: of a marker whose node is gone, or whose slot
-- The marker stays as it is.  Without a right, or on a server that may not write now, it is read all the
-- same.
local function keep(flag)
	if is_node and redis.call('PTTL', KEYS[1]) < life - 86400000 then redis.pcall('PEXPIRE', KEYS[1], life) end
	return {'epoch', marker, since, now, flag}
end

-- The clock was set back since: the grace would last for so much longer.
local ahead = marker and since - now > 0

-- In the same step as the read of the marker: a FLUSHALL in between would go unseen.
local info = {}
local function calls(stat) return tonumber(string.match(stat or '', 'calls=(%d+)') or 0) end
for _, section in ipairs({'server', 'replication', 'stats', 'commandstats'}) do
	local text = redis.pcall('INFO', section)
	if type(text) == 'table' then
		info = {}
		break
	end
	for field, value in string.gmatch(text, '([%w_]+):([^\r\n]*)') do info[field] = value end
end
-- A node of a Cluster has a marker with a tag.  Write none, and let the client start again.
local mode = info.redis_mode or info.server_mode -- of Valkey
if mode == 'cluster' and not is_node then return {'cluster'} end
if not info.run_id then -- refused, or hidden by a proxy
	if marker and not ahead and not has_joined then return keep(1) end
	info = nil
end

-- Has the database no other key than the marker?
local function is_empty()
	local text = redis.call('INFO', 'keyspace')
	local keys = string.match(text, 'db' .. ARGV[3] .. ':keys=(%d+)') or '0'
	return keys == (marker and '1' or '0')
end

local id = old_id or '-'
if info then
	-- A replica that is promoted gets another master_replid, and keeps its run_id.  master_replid alone
	-- changes also without a loss, when the first replica attaches.
	local promoted = string.match(info.master_replid2 or '', '[1-9a-f]') or info.cmdstat_replicaof or
		info.cmdstat_slaveof
	id = info.run_id .. (promoted and '+' .. (info.master_replid or '') or '')
	-- Databases that were swapped have each other's markers.
	local swaps = string.match(info.cmdstat_swapdb or '', 'calls=(%d+)')
	if swaps or ARGV[3] ~= '0' then id = id .. '-' .. ARGV[3] .. (swaps and '-' .. swaps or '') end
	-- A marker leaves a Cluster's node with its slot, and may return after a flush that it has not seen.
	local flushes = is_node and calls(info.cmdstat_flushall) + calls(info.cmdstat_flushdb) or 0
	if flushes > 0 then id = id .. '-' .. flushes end
	if old_id == id and not ahead and not has_joined then return keep(0) end
	-- The memory is whole since the process began, if this process was never a replica, no command removed
	-- the marker, and this is the server that the client knows.
	local flushed = info.cmdstat_flushall or info.cmdstat_flushdb or info.cmdstat_swapdb or
		info.evicted_keys ~= '0'
	-- In a Cluster the key has a slot of the node, and is another one when that slot moves: then a client
	-- that knows this memory vouches for it, or a marker in another slot does.
	local vouched
	if is_node and info.evicted_keys == '0' then
		for i = #ARGV, 1, -1 do
			local its_id, its_since = string.match(ARGV[i], '^1 (%S+) (%d+)')
			if its_id == id then vouched = its_since end
		end
	end
	local removed = swaps or is_node and flushed or not marker and (flushed or known)
	local switched = marker and known and known ~= old_id
	local unheld = (info.process_id or '') == ARGV[2] and not marker and not flushed and known ~= id
	if member or has_joined then
		-- A quorum asks each of its servers to have forgotten nothing for its longest lease.
		since = has_joined and ARGV[5] == '1' and is_empty() and '0' or now
	elseif unheld and not promoted then
		since = '0'
	elseif vouched then
		since = vouched
	elseif not promoted and not removed and not switched and not ahead then
		-- The uptime is the difference of two clocks of whole seconds, and may be up to 1 s too long.  The
		-- process can have begun as late as at the end of the second in which it did.
		local uptime = tonumber(info.uptime_in_seconds) or 0
		since = string.format('%.0f', math.max(since or 0, math.min(now, (time[1] - uptime + 1) * 1000000)))
	else
		since = now
	end
else
	since = now
end
marker = '1 ' .. id .. ' ' .. since .. (more or '')
redis.call('PEXPIRE', KEYS[1], 1000) -- a full server accepts this, and then SET, which removes it
redis.call('SET', KEYS[1], marker)
if is_node then redis.call('PEXPIRE', KEYS[1], life) end
return {'epoch', marker, since, now, info and 0 or 1}
