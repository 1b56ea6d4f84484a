#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo: identical with the lock, whatever happens to two of its workers; counts lost without.
# The workers start together and at most three read at once, as it measured.
# It prints no progress into a file, and leaves no process and no folder; nor does one that ^C or ^\
# ends, which says that and nothing else.
set -eu
cd "$(dirname "$0")/.."
build=${LK_BUILD:-$PWD/build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TMPDIR=$work
export TMPDIR

fail() {
	cat "$work/output"
	echo "$*"
	exit 1
}

"$build/demo" >"$work/output" 2>&1 || fail "the demo failed"
[ "$(tail -n 1 "$work/output")" = identical ] || fail "the last line is no verdict"
grep -q 'is killed (SIGKILL)' "$work/output" || fail "nobody was killed"
grep -q 'its update is refused' "$work/output" || fail "no late update was refused"
grep -q '^start: none before all 8 were ready, then all within [0-9.]* ms$' "$work/output" ||
	fail "the workers did not start together"
grep -q '^workers that read at once: [1-3] at most, 3 allowed$' "$work/output" ||
	fail "more than three readers at once"
! grep -q "$(printf '\r')" "$work/output" || fail "progress in a file"
[ "$(sed -n 's/.* files in \([0-9]*\) batches.*/\1/p' "$work/output")" -ge 200 ] || fail "few batches"
# left_nothing: neither a store nor a folder.
left_nothing() {
	store=$(sed -n 's/^store: .*, pid \([0-9]*\), .*/\1/p' "$work/output")
	[ -n "$store" ] || fail "it named no store"
	# A zombie that nobody reaps is no process any more.
	case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$store/status" 2>/dev/null | cut -c 1) in
	'' | Z | X) ;;
	*) fail "its store still runs" ;;
	esac
	! ls -d "$work"/latchkey-demo-* 2>/dev/null || fail "its folder is still there"
}
left_nothing

# workers: the pids of the seven that live; the first child is the checker.  A list that is read
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

# As a terminal does it: the signal reaches the whole process group, in the middle of the work, and
# the workers may be the first to have it.  A shell without job control starts what runs in the
# background with both signals ignored.
for signal in INT QUIT; do
	setsid env --default-signal=INT,QUIT "$build/demo" >"$work/output" 2>&1 &
	demo=$!
	tries=0
	until grep -q 'is killed (SIGKILL)' "$work/output"; do
		tries=$((tries + 1))
		[ $tries -lt 1200 ] || fail "nobody was killed before SIG$signal"
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

# Whereas one whose worker was ended names the signal.
setsid env --default-signal=INT,QUIT "$build/demo" >"$work/output" 2>&1 &
demo=$!
tries=0
until grep -q 'is killed (SIGKILL)' "$work/output"; do
	tries=$((tries + 1))
	[ $tries -lt 1200 ] || fail "nobody was killed"
	sleep 0.05
done
# The last one: the first ones may be the dead worker, which its parent has not waited for yet.
kill -s TERM "$(workers | sed 's/.* //')"
wait "$demo" && fail "it did not fail when a worker was ended"
grep -q 'was ended by signal 15 (Terminated)' "$work/output" || fail "the signal is not named"
left_nothing

"$build/demo" LOCK=off >"$work/output" 2>&1 || fail "the demo without the lock failed"
[ "$(tail -n 1 "$work/output")" = DIFFERENT ] || fail "nothing was lost without the lock"
grep -q '^lost: [1-9]' "$work/output" || fail "it does not say how many"
grep -q '^workers that read at once: [1-8] at most$' "$work/output" || fail "readers were not counted"
