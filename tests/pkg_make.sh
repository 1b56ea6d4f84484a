#!/bin/sh
# SPDX-License-Identifier: MIT
# The environment of a build: the usual variables reach it, all other names do not.
set -eu
cd "$(dirname "$0")/.."
. tests/harness/shell.sh
unset MAKEFLAGS MFLAGS MAKELEVEL
LK_COMMIT=test
export LK_COMMIT
usual="AR CC CFLAGS CPPFLAGS LDFLAGS PREFIX LIBDIR INCLUDEDIR BINDIR MANDIR DESTDIR"

# plan NAME=VALUE... make ARG...: print the commands that make would run.
plan() {
	env -i PATH="$PATH" LK_COMMIT=test "$@" 2>&1
}

# Every name in capitals in every makefile, with an unusual value.
grep -ohE '\b[A-Z][A-Z0-9_]*\b' Makefile */rules.mk */*/rules.mk | sort -u |
	grep -vxE "$(echo "$usual" | tr ' ' '|')|PATH|MAKE|MAKECMDGOALS|CURDIR|LK_[A-Z_]*" |
	sed 's/$/=odd/' >"$work/odd"
[ "$(wc -l <"$work/odd")" -ge 80 ] || fail "only $(wc -l <"$work/odd") names found"
for name in T F V J SEED DEPS LOCK STORE MUTANT SANITIZE HIREDIS TLS WERROR BUILD SECONDS PLAN SHARE; do
	grep -qx "$name=odd" "$work/odd" || fail "$name is not among them"
done
# Even with -n, make runs recipes that call make: mutants, statements, fuzz, bench, test-hiredis12 are left out.
goals="all tests test sim model chaos replay bench-program bench-peers demo install lint tidy"
# shellcheck disable=SC2046,SC2086
{
	plan make -n -B DEPS= $goals >"$work/plain"
	plan $(cat "$work/odd") make -n -B DEPS= $goals >"$work/with"
}
[ "$(wc -l <"$work/plain")" -ge 500 ] || fail "not a build: $(cat "$work/plain")"
diff "$work/plain" "$work/with" >"$work/diff" || fail "the environment changes the build: $(head -c 2000 "$work/diff")"

# No folder's rules may forget the default of another one's variable.
make -n DEPS= demo | grep -q 'demo LOCK=on STORE=local$' || fail "make demo: not the default store"

# Programs that make runs do not see such names either.
printf 'include Makefile\nshow:\n\t@env\n' >"$work/show.mk"
env -i PATH="$PATH" T=odd V=odd J=odd SEED=odd SECONDS=odd SHARE=odd PLAN=odd \
	make -f "$work/show.mk" show >"$work/seen"
! grep odd "$work/seen" || fail "recipes see variables of the environment"
# The command line sets such names.
make -n -B DEPS= test sim V=1 T=unit_text SEED=7 >"$work/plan"
grep -q 'V="1" .*tests/run unit_text$' "$work/plan" || fail "V=1 T=unit_text of the command line is lost"
grep -q 'SEED="7"' "$work/plan" || fail "SEED=7 of the command line is lost"

# The usual variables reach every compilation, every link, every archive and the installation.
plan CC=oddcc AR=oddar CPPFLAGS=-DODD CFLAGS=-Oodd LDFLAGS=-Lodd PREFIX=/odd LIBDIR=/odd/lib64 \
	BINDIR=/odd/programs DESTDIR=/root make -n -B DEPS= tests install >"$work/plan"
grep -q '^oddcc .* -c -o build/oddcc/' "$work/plan" || fail "CC is not from the environment"
grep '^oddcc ' "$work/plan" | grep -v -e '-DODD .*-Oodd' && fail "these lack CPPFLAGS and CFLAGS"
grep -e '^oddcc .* -o [^ ]*/liblatchkey\.so' -e '^oddcc .* -o [^ ]*/latchkey ' "$work/plan" |
	grep -v -e ' -Lodd ' && fail "these lack LDFLAGS"
grep -q 'oddar rcs' "$work/plan" || fail "AR is not from the environment"
for folder in /odd/lib64/pkgconfig /odd/programs /odd/include /odd/share/man; do
	grep -q "/root$folder" "$work/plan" || fail "nothing is installed in $folder"
done

# Without -n: a source that compiles only with CPPFLAGS.
mkdir "$work/tree"
cp -r Makefile tools include src "$work/tree/"
printf '#ifndef ODD\n#error CPPFLAGS did not arrive\n#endif\n' >>"$work/tree/src/base/text.c"
plan CPPFLAGS=-DODD make -C "$work/tree" DEPS= build/src/base/text.o >"$work/output" || fail "$(cat "$work/output")"
! plan make -C "$work/tree" DEPS= -B build/src/base/text.o >"$work/output" || fail "invalid test case"
