-- The server's memory: what it knows, without a gap, since a moment.  Included by the scripts that
-- grant.  The marker is "1 <id of the memory> <since, us>"; epoch_set.lua writes it.

-- Is this the memory that the request is for?  Without a key the client has compared the marker: in a
-- Cluster each node has one, in a slot of its own.
local function is_known(key, marker)
	return key == nil or redis.call('GET', key) == marker
end

-- The mark of a hold that was reclaimed in the memory of that marker.  It is nothing to a later one.
local function mark_of(marker)
	return string.match(marker, '^1( %S+ %d+)')
end

-- How many ms are left until every hold of an earlier memory has ended or was reclaimed.
local function grace(now, ends_us)
	return math.max(math.ceil((ends_us - now) / 1000), 0)
end
