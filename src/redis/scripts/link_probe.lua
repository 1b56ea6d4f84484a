-- Publish to the client's own channel, at connect: a right that is missing shows here and not in
-- the middle of a hand-off, and 0 says that the subscription stands on another server.
--
-- KEYS[1]  the client's hash
-- ARGV[1]  the client's channel
--
-- Returns  receivers
redis.call('DEL', KEYS[1])
return redis.call('PUBLISH', ARGV[1], 'probe')
