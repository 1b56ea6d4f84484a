#!/bin/sh
# SPDX-License-Identifier: MIT
# The batch job starts with all five results, although a loader crashed after its step and repeats
# it; no latch and no file is left.
set -eu
cd "$(dirname "$0")/.."
. tests/install.sh
install_latchkey
ls -d /tmp/latchkey-night-* >"$work/before" 2>/dev/null || true

timeout 120 "$build/examples/batch_gate" >"$work/output" 2>&1 || {
	cat "$work/output"
	fail "the example failed"
}
cat "$work/output"
grep -q '^loader 3: crashed, ' "$work/output" || fail "no loader crashed"
grep -qE '^loader 3: had counted before its crash, [0-4] to go$' "$work/output" ||
	fail "loader 3 did not repeat its step"
grep -qx 'batch: starts, and finds 5 of 5 results' "$work/output" || fail "not all results"
for loader in 1 2 4 5; do
	grep -q "^loader $loader: has finished, " "$work/output" || fail "no loader $loader"
done
tail -n 1 "$work/output" | grep -q 'crashed loader counted once' || fail "no verdict"
latchkey show >"$work/shown"
! grep latchkey-night "$work/shown" || fail "its latch is still there"
ls -d /tmp/latchkey-night-* >"$work/after" 2>/dev/null || true
cmp "$work/before" "$work/after" || fail "its folder is still there"
