#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo with a quorum: the results are identical although one of five servers is killed, and
# another one restarts empty; the hold of that moment outlasts its lease, and that server does not
# vote before the longest lease is over.  However it ends, by itself, by ^C, by SIGKILL, or without
# a server to run, it leaves no process.
set -eu
cd "$(dirname "$0")/.."
. tests/harness/shell.sh
store=quorum
servers='server-1 server-2 server-3 server-4 server-5'
. tests/harness/demo.sh

shows_identical
says 'holds the lock, and a server is killed (SIGKILL), fence'
says 'holds the lock, and another server has restarted empty, fence'
says 'is continued: the restarted server votes again$'
says '^start: none before all 8 were ready, then all within [0-9.]* ms$'
says '^workers that read at once: [1-8] at most$'
says '^server killed: the lock was granted again after [0-9]* ms$'
says '^server restarted empty: it voted again after [0-9.]* s; the longest lease is 4 s$'
says '^the hold of that time was renewed by the other 3 of 5 servers$'
[ "$(grep -c '^server-2: ' "$printed")" = 2 ] || fail "server-2 was not restarted"
ends_early

# Without the lock, no server runs.
"$build/demo" STORE=quorum LOCK=off >"$printed" 2>&1 || fail "the demo without the lock failed"
[ "$(tail -n 1 "$printed")" = DIFFERENT ] || fail "nothing was lost without the lock"
silent_about '^server'
