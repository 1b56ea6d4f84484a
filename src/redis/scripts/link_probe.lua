-- Publish to the client's own channel when connecting.  A missing right shows now and not during a
-- hand-off, and 0 means that the subscription is on another server.
--
-- KEYS[1]  the client's hash
-- ARGV[1]  the client's channel
--
-- Returns  receivers
-- include shared/publish.lua
redis.call('DEL', KEYS[1])
return publish(ARGV[1], 'probe')
