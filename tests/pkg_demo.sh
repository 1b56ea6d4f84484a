#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo: the results are identical with the lock, although two workers fail; without the lock
# counts are lost.  By its own measurements the workers start together, and at most three read at
# once.  It prints no progress into a file, and leaves no process and no folder, not even after ^C or
# ^\, which it reports in one line.
set -eu
cd "$(dirname "$0")/.."
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh
TMPDIR=$work
export TMPDIR

"$build/demo" >"$work/output" 2>&1 || fail "the demo failed"
[ "$(tail -n 1 "$work/output")" = identical ] || fail "the last line is not: identical"
grep -q 'is killed (SIGKILL)' "$work/output" || fail "no worker was killed"
grep -q 'its update is refused' "$work/output" || fail "no late update was refused"
grep -q '^start: none before all 8 were ready, then all within [0-9.]* ms$' "$work/output" ||
	fail "the workers did not start together"
grep -q '^workers that read at once: [1-3] at most, 3 allowed$' "$work/output" ||
	fail "more than three readers at once"
! grep -q "$(printf '\r')" "$work/output" || fail "progress in a file"
[ "$(sed -n 's/.* files in \([0-9]*\) batches.*/\1/p' "$work/output")" -ge 200 ] || fail "few batches"
# left_nothing: no store and no folder is left.
left_nothing() {
	store=$(sed -n 's/^store: .*, pid \([0-9]*\), .*/\1/p' "$work/output")
	[ -n "$store" ] || fail "its output has no store"
	# A zombie without a parent that reaps it has ended.
	case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$store/status" 2>/dev/null | cut -c 1) in
	'' | Z | X) ;;
	*) fail "its store still runs" ;;
	esac
	! ls -d "$work"/latchkey-demo-* 2>/dev/null || fail "its folder is still there"
}
left_nothing

# workers: the pids of the seven live workers; the first child is the checker.  A list that is read
# while a child ends may be short.
workers() {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		# shellcheck disable=SC2046
		set -- $(cat "/proc/$demo/task/$demo/children")
		[ $# -lt 8 ] || break
		sleep 0.05
	done
	shift
	echo "$@"
}

# The output of the run before must be gone at once, not when the new process opens the file.
#
# As from a terminal: the signal reaches the whole process group during the work, and possibly the
# workers first.  A shell without job control starts background processes with both signals ignored.
for signal in INT QUIT; do
	: >"$work/output"
	setsid env --default-signal=INT,QUIT "$build/demo" >"$work/output" 2>&1 &
	demo=$!
	tries=0
	until grep -q 'is killed (SIGKILL)' "$work/output"; do
		tries=$((tries + 1))
		[ $tries -lt 1200 ] || fail "no worker was killed before SIG$signal"
		sleep 0.05
	done
	# shellcheck disable=SC2046
	kill -s "$signal" $(workers)
	sleep 0.2
	kill -s "$signal" -- "-$demo" || :
	status=0
	wait "$demo" || status=$?
	store=$(sed -n 's/^store: .*, pid \([0-9]*\), .*/\1/p' "$work/output")
	[ $status = 1 ] || {
		[ -z "$store" ] || kill "$store" || :
		fail "after SIG$signal its status is $status"
	}
	[ "$(grep -c '^demo: interrupted' "$work/output")" = 1 ] || fail "SIG$signal is not named"
	! grep -q 'ended by itself\|was ended by' "$work/output" || fail "workers are blamed for SIG$signal"
	left_nothing
done

# If one worker is ended by a signal, the demo reports the signal.
: >"$work/output"
setsid env --default-signal=INT,QUIT "$build/demo" >"$work/output" 2>&1 &
demo=$!
tries=0
until grep -q 'is killed (SIGKILL)' "$work/output"; do
	tries=$((tries + 1))
	[ $tries -lt 1200 ] || fail "no worker was killed"
	sleep 0.05
done
# Use the last pid: the first ones may be the dead worker, which its parent has not reaped yet.
kill -s TERM "$(workers | sed 's/.* //')"
wait "$demo" && fail "it did not fail when a worker was ended"
grep -q 'was ended by signal 15 (Terminated)' "$work/output" || fail "the signal is not named"
left_nothing

"$build/demo" LOCK=off >"$work/output" 2>&1 || fail "the demo without the lock failed"
[ "$(tail -n 1 "$work/output")" = DIFFERENT ] || fail "nothing was lost without the lock"
grep -q '^lost: [1-9]' "$work/output" || fail "the number of lost updates is missing"
grep -q '^workers that read at once: [1-8] at most$' "$work/output" || fail "readers were not counted"
