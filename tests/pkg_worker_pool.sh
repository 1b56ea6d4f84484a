#!/bin/sh
# SPDX-License-Identifier: MIT
# The worker pool does each job once and keeps to its two permits, although two of its workers are
# killed; a second run works as well.
set -eu
cd "$(dirname "$0")/.."
. tests/install.sh
install_latchkey

for run in first second; do
	timeout 120 "$build/examples/worker_pool" >"$work/output" 2>&1 || {
		cat "$work/output"
		fail "the $run run failed"
	}
	cat "$work/output"
	for job in 5 11; do
		grep -q "^worker [0-5] was killed with job $job, which is put back\$" "$work/output" ||
			fail "no worker was killed with job $job"
	done
	grep -qx 'jobs done exactly once: 24 of 24, 2 of them by a second worker' "$work/output" ||
		fail "some job was not done exactly once"
	grep -qx 'workers in the database at once: 2, 2 allowed' "$work/output" ||
		fail "not two workers at once"
done

# Without a store the pool reports it and fails.
status=0
timeout 60 "$build/examples/worker_pool" "redis+unix://$work/nowhere" >"$work/output" 2>&1 || status=$?
[ $status = 1 ] || fail "exit status $status without a store"
grep -q '^worker_pool: no store: .*nowhere' "$work/output" || fail "does not print the store"
