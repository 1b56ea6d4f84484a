# SPDX-License-Identifier: MIT
# Sourced after shell.sh by the tests of the demo with servers of its own: how each such demo may end.
# $store is its name; $servers has the names of its servers, in the order of their starts; $program
# is what they run.
# shellcheck shell=sh
build=${LK_BUILD:-$PWD/build}
program=${program-redis-server}
TMPDIR=$work
export TMPDIR

# is_running PID: a zombie without a parent that reaps it has ended.
is_running() {
	case $(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null | cut -c 1) in
	'' | Z | X) return 1 ;;
	esac
}
# server_pids: of all servers that the demo started.
server_pids() {
	sed -n 's/^[a-z]*-*[0-9]*: 127\.0\.0\.1:[0-9]*, pid \([0-9]*\)$/\1/p' "$printed"
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
has_no_folder() {
	! ls -d "$work"/latchkey-demo-* 2>/dev/null || fail "its folder is still there"
}
left_nothing() {
	for server in $servers; do
		says "^$server: 127.0.0.1:[0-9]*, pid [0-9]*$"
	done
	# shellcheck disable=SC2046
	ended $(server_pids)
	has_no_folder
}
# start_in_background COMMAND...: its pid is $demo.  The last run's output must be gone at once, not
# when the new process opens the file.
start_in_background() {
	: >"$printed"
	"$@" >"$printed" 2>&1 &
	demo=$!
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

# shows_identical: run it to its end.
shows_identical() {
	"$build/demo" "STORE=$store" >"$printed" 2>&1 || fail "the demo failed"
	[ "$(tail -n 1 "$printed")" = identical ] || fail "the last line is not: identical"
	says 'is killed (SIGKILL), fence'
	says 'its update is refused'
	left_nothing
}

# ends_early: ^C, SIGKILL, and no server to run.
ends_early() {
	# ^C reaches the whole process group.
	start_in_background setsid env --default-signal=INT "$build/demo" "STORE=$store"
	await_line '^8 workers'
	sleep 1
	kill -s INT -- "-$demo"
	status=0
	wait "$demo" || status=$?
	[ $status = 1 ] || fail "after SIGINT its status is $status"
	says '^demo: interrupted'
	left_nothing

	# Its servers and workers do not outlive it; only its folder stays.
	start_in_background "$build/demo" "STORE=$store"
	await_line '^8 workers'
	sleep 1
	# The servers come first, then the checker, which ends by itself, then the workers, of which one
	# may be dead by now.
	first=$(($(echo "$servers" | wc -w) + 2))
	tries=0
	until
		children=$(cat "/proc/$demo/task/$demo/children")
		[ "$(echo "$children" | wc -w)" -ge $((first + 6)) ]
	do
		tries=$((tries + 1))
		[ $tries -lt 200 ] || fail "its children: $children"
		sleep 0.05
	done
	kill -s KILL "$demo"
	wait "$demo" || :
	# shellcheck disable=SC2046,SC2086
	ended $(server_pids) $(echo $children | cut -d ' ' -f "$first-")
	# The checker may still write there.
	tries=0
	until rm -rf "$work"/latchkey-demo-* 2>/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 1200 ] || fail "its folder cannot be removed"
		sleep 0.05
	done

	! PATH=/none LATCHKEY_ETCD=/none "$build/demo" "STORE=$store" >"$printed" 2>&1 ||
		fail "it runs without a server"
	says "^demo: ${servers%% *}: does not start (is $program installed?)$"
	has_no_folder
}

# needs_lock: without the lock it would have nothing to show.
needs_lock() {
	status=0
	"$build/demo" "STORE=$store" LOCK=off >"$printed" 2>&1 || status=$?
	[ $status = 64 ] || fail "with LOCK=off its status is $status"
}
