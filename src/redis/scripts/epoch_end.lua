-- End the grace of the server's memory now.  Holds that their clients have not taken back are lost.
-- Other clients find another marker than they know, and read it.
--
-- KEYS[1]  the marker of the server's memory
-- ARGV[1]  the marker as the client knows it
--
-- Returns  epoch, the new marker, 0, server time us, 0
--          epoch: the marker is another one, nothing was done
local time = redis.call('TIME')
local now = time[1] .. string.sub('00000', #time[2]) .. time[2]
-- include shared/epoch.lua
if not is_known(KEYS[1], ARGV[1]) then return {'epoch'} end
local id, more = string.match(ARGV[1], '^1 (%S+) %d+(.*)$')
if not id then return {'epoch'} end
local marker = '1 ' .. id .. ' 0' .. more
redis.call('SET', KEYS[1], marker)
return {'epoch', marker, '0', now, 0}
