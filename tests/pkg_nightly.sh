#!/bin/sh
# SPDX-License-Identifier: MIT
# examples/nightly.c: a run that holds the lock writes one line with its fence, and a run that finds
# the lock held fails without one.
set -eu
cd "$(dirname "$0")/.."
. tests/install.sh
install_latchkey
journal=$work/journal

"$build/examples/nightly" "$journal"
[ "$(grep -cE '^[0-9]+: [0-9]+ MB free$' "$journal")" = 1 ] || fail "no line in the journal"
status=0
latchkey lock nightly -- "$build/examples/nightly" "$journal" 2>"$work/error" || status=$?
cat "$work/error"
[ $status = 1 ] || fail "exit status $status although another held the lock"
grep -q '^nightly: ' "$work/error" || fail "no error text"
[ "$(wc -l <"$journal")" = 1 ] || fail "wrote although another held the lock"
"$build/examples/nightly" "$journal"
sort -n -c "$journal" || fail "fences do not grow"
[ "$(wc -l <"$journal")" = 2 ] || fail "did not write after the release"
