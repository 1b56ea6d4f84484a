-- Included by the scripts that publish.  In a Cluster the channels of a name are sharded:
-- "<prefix>:c:{<name>}:<client>", "<prefix>:l:{<name>}".
local function is_sharded(channel)
	return string.match(channel, '^[^{]*:[cl]:{')
end

-- Publish a message; returns the number of receivers, or an error as redis.pcall() does.
local function publish(channel, text)
	return redis.pcall(is_sharded(channel) and 'SPUBLISH' or 'PUBLISH', channel, text)
end

