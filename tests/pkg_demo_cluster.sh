#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo with a Cluster: the results are identical although the lock's slot moves, and then its
# master is killed; the hold of that moment is taken back.  However it ends, by itself, by ^C, by
# SIGKILL, or without a server to run, it leaves no process.
set -eu
cd "$(dirname "$0")/.."
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh
TMPDIR=$work
export TMPDIR

# is_running PID: a zombie without a parent that reaps it has ended.
is_running() {
	case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null | cut -c 1) in
	'' | Z | X) return 1 ;;
	esac
}
servers() {
	sed -n 's/^\(master-[123]\|replica-[123]\): 127.0.0.1:[0-9]*, pid \([0-9]*\)$/\2/p' \
		"$printed"
}
# ended PID...: the kernel ends them with their parent, so they may need a moment.
ended() {
	for pid in "$@"; do
		tries=0
		while is_running "$pid"; do
			tries=$((tries + 1))
			[ $tries -lt 100 ] || fail "process $pid still runs"
			sleep 0.05
		done
	done
}
left_nothing() {
	[ "$(servers | wc -l)" = 6 ] || fail "$(servers | wc -l) servers, not 6"
	# shellcheck disable=SC2046
	ended $(servers)
	! ls -d "$work"/latchkey-demo-* 2>/dev/null || fail "its folder is still there"
}
# await_line PATTERN
await_line() {
	tries=0
	until grep -q "$1" "$printed"; do
		tries=$((tries + 1))
		[ $tries -lt 1200 ] || fail "does not print: $1"
		sleep 0.05
	done
}

"$build/demo" STORE=cluster >"$printed" 2>&1 || fail "the demo failed"
[ "$(tail -n 1 "$printed")" = identical ] || fail "the last line is not: identical"
says 'is killed (SIGKILL), fence'
says 'its update is refused'
says 'holds the lock, whose slot is moved to another master, fence'
says 'holds the lock, and the master is killed (SIGKILL)'
says 'a replica is the new master, 127.0.0.1:[0-9]*; its grace is 10 s$'
says 'has taken its hold back from the new master'
says '^holds taken back from the new master: [1-9]'
says '^the lock was not granted for [0-9.]* s: the failover and a grace of 10 s at most$'
says '^workers that read at once: [1-3] at most, 3 allowed$'
left_nothing

# ^C reaches the whole process group.
setsid env --default-signal=INT "$build/demo" STORE=cluster >"$printed" 2>&1 &
demo=$!
await_line '^8 workers'
sleep 1
kill -s INT -- "-$demo"
status=0
wait "$demo" || status=$?
[ $status = 1 ] || fail "after SIGINT its status is $status"
says '^demo: interrupted'
left_nothing

# Its servers and workers do not outlive it; only its folder stays.
"$build/demo" STORE=cluster >"$printed" 2>&1 &
demo=$!
await_line '^8 workers'
sleep 1
children=$(cat "/proc/$demo/task/$demo/children")
[ "$(echo "$children" | wc -w)" -ge 14 ] || fail "its children: $children"
kill -s KILL "$demo"
wait "$demo" || :
# The checker ends by itself.
# shellcheck disable=SC2046,SC2086
ended $(servers) $(echo $children | cut -d ' ' -f 8-)
rm -rf "$work"/latchkey-demo-*

! PATH=/none "$build/demo" STORE=cluster >"$printed" 2>&1 || fail "it runs without a server"
says '^demo: master-1: does not start (is redis-server installed?)$'
! ls -d "$work"/latchkey-demo-* 2>/dev/null || fail "its folder is still there"

status=0
"$build/demo" STORE=cluster LOCK=off >"$printed" 2>&1 || status=$?
[ $status = 64 ] || fail "with LOCK=off its status is $status"
