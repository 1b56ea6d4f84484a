#!/bin/sh
# SPDX-License-Identifier: MIT
# The bench works: each case runs, and the JSON has the machine, rows with requests and a value for
# each figure.  The test does not check the goals, which depend on the machine.
set -eu
cd "$(dirname "$0")/.."
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh

bench() {
	LK_BUILD=$build LK_COMMIT=test LK_EVIDENCE=$work/figures TMPDIR=$work nice timeout 120 "$build/bench/run" "$@"
}

# ask COLUMN [FROM]: query the JSON with sqlite3.
ask() {
	sqlite3 :memory: "WITH run(j) AS (SELECT readfile('$work/run.json')) SELECT $1 FROM run${2-};"
}
figures=", json_each(j, '\$.figures')"
notes=", json_each(j, '\$.notes')"
contests=", json_each(j, '\$.contests') AS c"
rows="$contests, json_each(c.value, '\$.contestants') AS r"
id="json_extract(value, '\$.id')"

bench ROUNDS=1 TURN=20 JSON="$work/run.json" >"$work/output" 2>&1 || {
	cat "$work/output"
	fail "the bench failed"
}
cat "$work/output"

for key in cpu kernel server hiredis commit date; do
	[ -n "$(ask "json_extract(j, '\$.machine.$key')")" ] || fail "the machine has no $key"
done
[ "$(ask "json_extract(j, '\$.machine.commit')")" = test ] || fail "the commit is wrong"
[ "$(ask "json_extract(j, '\$.machine.cores')")" -ge 1 ] || fail "no cores"

# Every case of the tree has figures, or a note with the reason, and every figure has a value.
for file in bench/case_*.c; do
	name=${file#bench/case_}
	name=${name%.c}
	[ "$(ask 'count(*)' "$figures WHERE $id LIKE '$name.%'")" -ge 1 ] ||
		[ "$(ask 'count(*)' "$notes WHERE value LIKE '$name: skipped: %'")" = 1 ] ||
		fail "no figure of the case $name"
done
[ "$(ask 'count(*)' "$figures WHERE json_extract(value, '\$.value') IS NULL")" = 0 ] ||
	fail "a figure has no value"
[ "$(ask 'count(*)' "$rows")" -ge 12 ] || fail "too few contestants"
[ "$(ask 'count(*)' "$rows WHERE ifnull(json_extract(r.value, '\$.rate.median'), 0) <= 0")" = 0 ] ||
	fail "a contestant without a rate"
[ "$(ask 'count(*)' "$rows WHERE json_array_length(r.value, '\$.rate_by_round') <>
	json_extract(c.value, '\$.rounds')")" = 0 ] || fail "a contestant without its rounds"

# Counts do not depend on the machine: acquire and release are two requests, re-entering is none.
for name in pair.tcp.requests pair.unix.requests; do
	[ "$(ask "json_extract(value, '\$.value') BETWEEN 2 AND 2.5" "$figures WHERE $id = '$name'")" = 1 ] ||
		fail "$name is not 2"
done
[ "$(ask "json_extract(value, '\$.met')" "$figures WHERE $id = 'pair.reentry.requests'")" = 1 ] ||
	fail "re-entry sends requests"

# Each point of this run is in both panels of its picture, beside one mark of each of the five series
# in the legend; the picture in docs is drawn from the figures in docs.
bench/picture "$work/figures" /dev/null >"$work/run.svg" || fail "no picture"
[ "$(grep -c '<circle\|h11v11' "$work/run.svg")" = "$(ask "2 * json_array_length(j, '\$.points') + 5")" ] ||
	fail "a picture without the points of this run"
bench/picture docs/figures/bench.txt docs/figures/peers.txt | cmp - docs/performance.svg ||
	fail "docs/performance.svg shows other figures: make bench-picture"

# Unknown arguments are refused; no folder is left.
for word in T=nothing ROUNDS=0 ROUNDS=x TURN=-5 FASTER=1 --json; do
	status=0
	bench "$word" >"$work/output" 2>&1 || status=$?
	[ $status = 2 ] || fail "$word: exit status $status"
	grep -q 'cases: pair ' "$work/output" || fail "$word: does not list the cases"
done
if ls -d "$work"/latchkey-test-* 2>/dev/null; then
	fail "left a folder"
fi
