#!/bin/sh
# SPDX-License-Identifier: MIT
# The demo: identical with the lock, whatever happens to two of its workers; counts lost without.
# The workers start together and at most three read at once, as it measured.
# It prints no progress into a file, and leaves no process and no folder.
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
pid=$(sed -n 's/^store: .*, pid \([0-9]*\), .*/\1/p' "$work/output")
# A zombie that nobody reaps is no process any more.
[ "$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null | cut -c 1)" != S ] ||
	fail "its store still runs"
! ls -d "$work"/latchkey-demo-* 2>/dev/null || fail "its folder is still there"

"$build/demo" LOCK=off >"$work/output" 2>&1 || fail "the demo without the lock failed"
[ "$(tail -n 1 "$work/output")" = DIFFERENT ] || fail "nothing was lost without the lock"
grep -q '^lost: [1-9]' "$work/output" || fail "it does not say how many"
grep -q '^workers that read at once: [1-8] at most$' "$work/output" || fail "readers were not counted"
