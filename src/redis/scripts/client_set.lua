-- Publish the details of a client (host, program, ...) for display.  They expire after the client.
--
-- KEYS[1]  the client's hash
-- ARGV[1]  its life, ms
-- ARGV[2]  field, then its value, and so on in pairs; the script adds since (seconds)
--
-- Returns  1
local pairs_of = {}
for i = 2, #ARGV do pairs_of[i - 1] = ARGV[i] end
-- Run the command first that a user may have no right to: otherwise the script would stop after it
-- has written a hash that never expires.
redis.call('HSETNX', KEYS[1], 'since', redis.call('TIME')[1])
redis.call('HSET', KEYS[1], unpack(pairs_of))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1
