#!/bin/sh
# SPDX-License-Identifier: MIT
# The works "failover", "cluster" and "quorum" of make bench-peers: real failovers under Latchkey, a
# lock on 3 and on 5 servers, and what is said of a contestant that fails.  Other libraries would be
# downloaded: they are left out.
set -eu
cd "$(dirname "$0")/.."
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh

# contestant FOLDER <SCRIPT: a contestant whose `peer run` is that script.
contestant() {
	mkdir -p "$work/peers/$1"
	{
		cat <<-END
			#!/bin/sh
			[ "\$1" != list ] || printf '$1\tfailover\ta broken program\n'
			[ "\$1" = run ] || exit 0
		END
		cat
	} >"$work/peers/$1/peer"
	chmod +x "$work/peers/$1/peer"
}

mkdir -p "$work/peers/latchkey"
printf '#!/bin/sh\nexec "%s/bench/peers/latchkey/peer" "$@"\n' "$PWD" >"$work/peers/latchkey/peer"
chmod +x "$work/peers/latchkey/peer"
contestant ends <<-'END'
	echo ready
	read -r _
END
contestant babbles <<-'END'
	echo ready
	read -r _
	echo 0 granted soon
	read -r _
	read -r _
END
contestant silent <<-'END'
	exit 1
END

# Both mostly wait: at once.
mkdir "$work/of-cluster"
LK_BUILD=$build LK_COMMIT=test TMPDIR=$work/of-cluster nice timeout 300 "$build/bench-peers" "$work/peers" \
	T=cluster ROUNDS=1 SECONDS=8 JSON="$work/cluster.json" >"$work/cluster" 2>&1 &
cluster=$!
LK_BUILD=$build LK_COMMIT=test TMPDIR=$work nice timeout 300 "$build/bench-peers" "$work/peers" \
	T=failover ROUNDS=1 SECONDS=6 JSON="$work/run.json" >"$printed" 2>&1 || fail "the run failed"
cat "$printed"
says '^ends, failover: ended before its time: no figure$'
says '^babbles, failover: its lines are malformed$'
says '^silent, failover: is not ready$'

# ask COLUMN WHERE: query the rows of $json with sqlite3.
json=$work/run.json
ask() {
	sqlite3 :memory: "WITH run(j) AS (SELECT readfile('$json'))
		SELECT $1 FROM run, json_each(j, '\$.rows') AS r WHERE $2;"
}
of() {
	echo "json_extract(r.value, '\$.$1')"
}
for blow in kill lag planned; do
	for name in latchkey latchkey-no-grace; do
		[ "$(ask 'count(*)' "$(of blow) = '$blow' AND $(of contestant) = '$name' AND
			$(of rounds) = 1 AND $(of no_grant_s.median) > 0")" = 1 ] || fail "$blow: no figure of $name"
	done
done
[ "$(ask 'count(*)' true)" = 6 ] || fail "rows of contestants without figures"
# What the README promises of a failover, with the grace.
[ "$(ask 'count(*)' "$(of contestant) = 'latchkey' AND ($(of overlaps) > 0 OR $(of long_holds.kept) <> 1)")" = 0 ] ||
	fail "two holders, or a lost hold"
# The grace is longer than this run: only without it are there grants after a kill, other than one that
# the master has just made.
[ "$(ask "$(of turns.most)" "$(of blow) = 'kill' AND $(of contestant) = 'latchkey'")" -le 1 ] ||
	fail "granted during the grace"
[ "$(ask "$(of turns.most)" "$(of blow) = 'kill' AND $(of contestant) = 'latchkey-no-grace'")" -ge 2 ] ||
	fail "nothing is granted after a failover"

wait "$cluster" || {
	cat "$work/cluster"
	fail "the run in a Cluster failed"
}
cat "$work/cluster"
json=$work/cluster.json
for blow in calm kill planned; do
	for name in latchkey latchkey-no-grace; do
		[ "$(ask 'count(*)' "$(of work) = 'cluster' AND $(of blow) = '$blow' AND
			$(of contestant) = '$name' AND $(of rounds) = 1")" = 1 ] || fail "$blow: no figure of $name"
	done
done
[ "$(ask 'count(*)' true)" = 6 ] || fail "other rows of a Cluster"
[ "$(ask 'count(*)' "$(of contestant) = 'latchkey' AND ($(of overlaps) > 0 OR $(of long_holds.kept) <> 1)")" = 0 ] ||
	fail "two holders in a Cluster, or a lost hold"
[ "$(ask 'count(*)' "$(of blow) = 'calm' AND $(of requests) >= 2")" = 2 ] || fail "requests are not counted"
[ "$(ask "$(of turns.most)" "$(of blow) = 'planned' AND $(of contestant) = 'latchkey-no-grace'")" -ge 2 ] ||
	fail "nothing is granted after a planned failover"

mkdir "$work/of-quorum"
LK_BUILD=$build LK_COMMIT=test TMPDIR=$work/of-quorum nice timeout 300 "$build/bench-peers" "$work/peers" \
	T=quorum ROUNDS=1 SECONDS=1 WORKERS=8 JSON="$work/quorum.json" >"$printed" 2>&1 ||
	fail "the run on a quorum failed"
cat "$printed"
json=$work/quorum.json
for servers in 3 5; do
	[ "$(ask 'count(*)' "$(of work) = 'quorum' AND $(of servers) = $servers AND
		$(of contestant) = 'latchkey' AND $(of rate.median) > 0 AND $(of overlaps) = 0 AND
		$(of requests) >= 2 * $servers - 1")" = 1 ] || fail "no figure of $servers servers"
done
[ "$(ask 'count(*)' true)" = 2 ] || fail "other rows of a quorum"

# They are no part of a run that does not name them, and have numbers of workers of their own.
for words in "T=failover WORKERS=2" "T=cluster WORKERS=2" "T=quorum WORKERS=2" "T=falover"; do
	status=0
	# shellcheck disable=SC2086
	LK_BUILD=$build "$build/bench-peers" "$work/peers" $words >"$printed" 2>&1 || status=$?
	[ $status = 2 ] || fail "$words: exit status $status"
	says '\(failover 8\|cluster 8\|quorum 1 8 32\)$'
done
if ls -d "$work"/latchkey-test-* 2>/dev/null; then
	fail "left a folder"
fi
