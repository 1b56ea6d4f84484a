#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/run and .ci/run with a simulated suite: their counts, second runs, and the second runs and
# skips that fail.  Its programs are shell scripts, started by a simulated make.  Then a real test
# runs with a simulated unshare(1): a refusal skips it, a missing command fails it.
set -eu
cd "$(dirname "$0")/.."
source=$PWD
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh
unset MAKEFLAGS MFLAGS MAKELEVEL J V SANITIZE LK_BUILD

# The tree: .ci/run and tests/run unchanged, and stubs of the programs that they call.
mkdir -p "$work/bin" "$work/tree/tests" "$work/tree/tools" "$work/tree/.ci"
cd "$work/tree"
cp "$source/.ci/run" .ci/
cp "$source/tests/run" tests/
printf '#!/bin/sh\n' >tools/deps
# One variant of the suite for each kind of `make test`; every other goal does nothing.
cat >"$work/bin/make" <<'END'
#!/bin/sh
variant='' sanitize='' night=''
for word in "$@"; do
	case $word in
	NIGHTLY=*) night=${word#*=} ;;
	SANITIZE=*) sanitize=${word#*=} variant=/${word#*=} ;;
	test-hiredis12) variant=/hiredis ;;
	esac
done
case " $* " in
*" demo "*) echo identical ;;
*" test-etcd "*) [ ! "${GO_IS_OLD-}" ] || { echo 'not run: no Go 1.26 or later' && exit 2; } ;;
*" test "* | *" test-hiredis12 "*)
	LK_BUILD=$PWD/build$variant SANITIZE=$sanitize NIGHTLY=$night exec tests/run
	;;
esac
END
chmod 755 tools/deps "$work/bin/make"
PATH=$work/bin:$PATH

# suite: five programs of three checks each that pass, in all four variants.
suite() {
	rm -rf build tests/unit_*.c tests/pkg_*.sh tests/nightly
	printf '# PROGRAM  reason\n' >tests/retries
	for variant in '' /address,undefined /thread /hiredis; do
		mkdir -p "build$variant/tests"
		for name in unit_a unit_b unit_c unit_d unit_e; do
			: >tests/$name.c
			program "build$variant" $name 0 'echo "100%: Checks: 3, Failures: 0, Errors: 0"'
		done
	done
}

# program BUILD NAME FAILURES COMMAND: fails this often, then runs the command.
program() {
	cat >"$1/tests/$2" <<END
#!/bin/sh
echo >>"$work/tree/$1/runs.$2"
if [ \$(wc -l <"$work/tree/$1/runs.$2") -le $3 ]; then
	echo "66%: Checks: 3, Failures: 1, Errors: 0"
	exit 1
fi
$4
END
	chmod 755 "$1/tests/$2"
}
good='echo "100%: Checks: 3, Failures: 0, Errors: 0"'

# run_suite STATUS ARG..., run_ci STATUS ARG...
run_suite() {
	expected=$1
	shift
	status=0
	LK_BUILD=$PWD/build tests/run "$@" >"$work/output" 2>&1 || status=$?
	[ $status = "$expected" ] || fail "tests/run: exit status $status"
}
run_ci() {
	expected=$1
	shift
	status=0
	.ci/run "$@" >"$work/output" 2>&1 || status=$?
	[ $status = "$expected" ] || fail ".ci/run: exit status $status"
}
last_line() {
	[ "$(tail -n 1 "$work/output")" = "$1" ] || fail "the last line is not: $1"
}

# ---- tests/run -----------------------------------------------------------------------------------

suite
run_suite 0
last_line 'make test: 15 passed, 0 failed'
says '^make test: 5 programs, [0-9]* at once; about'
says '^make test: 5 programs in [0-9]* min [0-9]* s$'
for number in 1 2 3 4 5; do says "^  $number/5 "; done
silent_about 'again, alone'
run_suite 0 unit_a unit_b
last_line 'make test: 6 passed, 0 failed'
says '^make test: 2 programs, [0-9]* at once$'

# A skipped test does not count as passed, in C and in a script.
printf '#!/bin/sh\necho "skipped: pkg_x.sh: no right"\n' >tests/pkg_x.sh
chmod 755 tests/pkg_x.sh
program build unit_a 0 "echo 'skipped: one_of_three: no right to do it'; $good"
run_suite 0
last_line 'make test: 14 passed, 0 failed, 2 skipped'
says '^  skipped: unit_a: one_of_three: no right to do it$'
says '^  skipped: pkg_x.sh: pkg_x.sh: no right$'

# A program that fails or dies runs again, and its second result counts.
suite
program build unit_b 1 "$good"
run_suite 0
says '^  again, alone: unit_b '
last_line 'make test: 15 passed, 0 failed'
program build unit_c 9 "$good"
program build unit_d 0 'kill -9 $$'
run_suite 1
last_line 'make test: 11 passed, 2 failed'

# One whose run was killed before its verdict failed, too.
suite
program build unit_e 0 "[ \$(wc -l <'$work/tree/build/runs.unit_e') -gt 1 ] || {
	kill -9 \$PPID
	exit 1
}
$good"
run_suite 0
says '^  again, alone: unit_e '
last_line 'make test: 15 passed, 0 failed'

# ---- .ci/run -------------------------------------------------------------------------------------

# 4 variants of 15 checks, and 20 steps of .ci/run.
suite
run_ci 0
last_line '80 passed, 0 failed'
says '^ *[0-9]* s  ok      make test$'
says '^ *[0-9]* s  ok      demo without the lock$'
says '^ *[0-9]* s  in all$'
[ "$(grep -c '^ *[0-9]* s  ok ' "$work/output")" = 20 ] || fail "not every step is in the table"

# What tests/nightly lists runs without that sanitizer, and at night, which has twelve more steps.
suite
printf '# PROGRAM  VARIANT\nunit_a  both  why\nunit_b  thread  why\n' >tests/nightly
run_ci 0
last_line '71 passed, 0 failed'
says '^make test: 5 programs, '
says '^make test: 4 programs, '
says '^make test: 3 programs, '
says '^make test: 2 more programs with NIGHTLY=1: tests/nightly$'
suite
cp "$source/tests/nightly" tests/
run_ci 0 nightly
last_line '92 passed, 0 failed'
silent_about ' more programs with NIGHTLY=1'
run_ci 2 weekly
last_line '.ci/run: "weekly" is not "nightly"'

# Three programs of one variant may run again, and are listed; four may not.
suite
for name in unit_a unit_b unit_c; do program build $name 1 "$good"; done
run_ci 0
last_line '80 passed, 0 failed'
for name in unit_a unit_b unit_c; do says "^ran again: $name (make test)$"; done
suite
for name in unit_a unit_b unit_c unit_d; do program build $name 1 "$good"; done
run_ci 1
last_line '79 passed, 1 failed'
says '^make test: 4 programs ran again, 3 may$'
says '^failed: few second runs'
says '^ *[0-9]* s  FAILED  few second runs$'

# Four of different variants may; one program in two variants may not, unless tests/retries lists it.
suite
program build unit_a 1 "$good"
program build unit_b 1 "$good"
program build/thread unit_c 1 "$good"
program build/thread unit_d 1 "$good"
run_ci 0
suite
program build unit_a 1 "$good"
program build/thread unit_a 1 "$good"
run_ci 1
says '^unit_a: ran again in 2 variants$'
suite
program build unit_a 1 "$good"
program build/thread unit_a 1 "$good"
for name in unit_b unit_c unit_d; do program build $name 1 "$good"; done
echo 'unit_a  loses a race with the machine' >>tests/retries
run_ci 0
says '^ran again: unit_a (test with thread), as tests/retries expects$'

# Where Go cannot build newer etcds, their step does not count; another step has no such excuse.
suite
GO_IS_OLD=yes run_ci 0
last_line '79 passed, 0 failed'
says '^not run: no Go 1.26 or later$'
says '^ *[0-9]* s  not run test with newer etcds$'
suite
program build unit_e 9 'echo "not run: no Go"; exit 1'
run_ci 1
last_line '78 passed, 2 failed'

# A skip fails the run, although all checks pass; so does a failure.
suite
program build/thread unit_e 0 "echo 'skipped: one_of_three: no right'; $good"
run_ci 1
last_line '79 passed, 1 failed'
says '^failed: test with thread (1 skipped)$'
says '^ *[0-9]* s  FAILED  test with thread$'
suite
program build unit_e 9 "$good"
run_ci 1
last_line '78 passed, 2 failed'
says '^failed: make test (exit status 1)$'

# ---- reasons to skip a test ----------------------------------------------------------------------

printf '#!/bin/sh\necho "unshare: unshare failed: Operation not permitted"\nexit 1\n' >"$work/bin/unshare"
chmod 755 "$work/bin/unshare"
"$build/tests/fault_packets" >"$work/output" 2>&1 || fail "a refusal fails the test"
checks=$(sed -n 's/.*Checks: \([0-9]*\).*/\1/p' "$work/output")
[ "$(grep -c '^skipped: n[1-3]_[a-z0-9_]*[^_]: unshare: unshare failed: Operation not permitted$' "$work/output")" = "$checks" ] ||
	fail "a test is not skipped, or prints no reason"
grep -q '^skipped: n1_request_that_is_dropped_is_unknown_in_time: ' "$work/output" ||
	fail "the name of a skipped test is cut"
printf '#!/bin/sh\necho "unshare: failed to execute nft: No such file"\nexit 127\n' >"$work/bin/unshare"
! "$build/tests/fault_packets" >"$work/output" 2>&1 || fail "a missing command does not fail the test"
silent_about '^skipped: '
