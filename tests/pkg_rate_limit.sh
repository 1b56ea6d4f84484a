#!/bin/sh
# SPDX-License-Identifier: MIT
# A thousand calls from ten processes: the server counts them, and no window has more than the limit.
# Most of the limit is used.
set -eu
cd "$(dirname "$0")/.."
. tests/install.sh
install_latchkey

timeout 120 "$build/rate_limit" >"$work/output" 2>&1 || {
	cat "$work/output"
	fail "the example failed"
}
cat "$work/output"
grep -qE '^1000 calls from 10 processes in [0-9.]+ s$' "$work/output" || fail "not a thousand calls"
grep -qE '^so permits last up to [0-9.]+ ms longer than the window; ' "$work/output" ||
	fail "does not print its measurement"
most=$(sed -n 's/^the server saw at most \([0-9]*\) calls in any 2000 ms, 200 allowed$/\1/p' "$work/output")
[ "${most:-201}" -le 200 ] || fail "more than the limit"
[ "$most" -ge 150 ] || fail "far less than the limit"
