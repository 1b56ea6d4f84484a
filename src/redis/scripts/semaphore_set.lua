-- Set the capacity of a semaphore, when it is opened or resized.
--
-- KEYS[1]  the semaphore
-- KEYS[2]  its queue
-- KEYS[3]  the fence counter
-- KEYS[4]  its ends
-- KEYS[5]  the marker of the server's memory; none in a Cluster
-- ARGV[1]  open = create if absent, and require this capacity (0 = any); resize = must exist
-- ARGV[2]  capacity
-- ARGV[3]  ttl after its last use, ms
-- ARGV[4]  prefix of client channels
-- ARGV[5]  how long the head of the queue may be silent before it is skipped, ms
-- ARGV[6]  the marker as the client knows it
-- ARGV[7]  end of the grace, server time us: before it no ticket is served
--
-- Returns  set, capacity, 1 = the run had its limit: run semaphore_leave with ""
--          mismatch, its actual capacity
--          absent
--          epoch: the marker is another one
--          foreign, key, its actual type
--          fence, defect of the counter
-- include shared/change.lua
return whole(function()
local ticket = ''
-- include shared/semaphore.lua
-- include shared/epoch.lua
local wanted = tonumber(ARGV[2])

if not is_known(KEYS[5], ARGV[6]) then return {'epoch'} end
local wrong = count()
if wrong then return wrong end
if not capacity and (ARGV[1] ~= 'open' or wanted == 0) then return {'absent'} end
if ARGV[1] == 'open' and capacity and wanted ~= 0 and wanted ~= capacity then
	return {'mismatch', text(capacity)}
end
if torn then mend() end
-- include shared/publish.lua
-- include shared/semaphore_queue.lua
if ARGV[1] == 'open' then
	if not capacity then make(ARGV[2], ARGV[3]) end
	if wanted ~= 0 and ttl ~= tonumber(ARGV[3]) then
		ttl, changed = tonumber(ARGV[3]), true
	end
	reclaim()
else
	if wanted ~= capacity then
		capacity, changed = wanted, true
	end
	reclaim()
	if grace(now, ARGV[7]) == 0 then serve('', ARGV[4], tonumber(ARGV[5])) end
end
write()
return {'set', text(capacity), more and 1 or 0}
end)
