#!/bin/sh
# SPDX-License-Identifier: MIT
# Missing packages: `make` names them with the command that installs them and installs nothing; demo,
# test and deps* install them and say first what and how much; where they may not, they print the
# command.  The package manager is made up.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/bin"
# A machine with hardly anything on it, above all without sudo and a server.
for tool in sh sed tr id uname ls cat env make awk grep; do
	ln -s "$(command -v $tool)" "$work/bin/$tool"
done
cat >"$work/bin/apt-get" <<END
#!/bin/sh
case " \$* " in
*" --print-uris "*)
	echo "The following NEW packages will be installed:"
	echo "0 upgraded, 61 newly installed, 0 to remove and 3 not upgraded."
	echo "Need to get 12.3 MB/45.6 MB of archives."
	echo "After this operation, 78.9 MB of additional disk space will be used."
	;;
*) echo "apt-get \$*" ;;
esac
END
chmod 755 "$work/bin/apt-get"
# Nothing here gets as far as its first compilation.
cp -r Makefile tools include src examples tests "$work/"
mkdir -m 777 "$work/build"
chmod -R a+rX "$work"
unset MAKEFLAGS MFLAGS MAKELEVEL

fail() {
	cat "$work/output"
	echo "pkg_deps: $*"
	exit 1
}

# says PATTERN, silent_about PATTERN: what the last run printed.
says() {
	grep -q -e "$1" "$work/output" || fail "does not say: $1"
}
silent_about() {
	! grep -q -e "$1" "$work/output" || fail "says: $1"
}

# ends_2 COMMAND...: as a plain user of that machine.
as_nobody() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		"$@"
	fi
}
ends_2() {
	status=0
	(cd "$work" && as_nobody env -i PATH="$work/bin" LK_DEPS_ROOT="$work/machine" "$@") >"$work/output" 2>&1 || status=$?
	[ $status = 2 ] || fail "$*: exit status $status"
}

# Named, all at once, and not installed.
for goal in all lib command install; do
	ends_2 make $goal
	says 'missing: gcc libc pkg-config hiredis$'
	says 'to install them (gcc .*), run: make deps$'
	silent_about 'server'
	silent_about '^ *\(EMBED\|CC\) '
	silent_about 'apt-get'
done
ends_2 make tests
says 'missing: gcc .*server.*sqlite3'
says 'redis-tools.*sqlite3.*, run: make deps-test$'
silent_about 'apt-get'
ends_2 make -j4 lint sim
says 'clang-tidy.*, run: make deps-ci deps-test$'
[ "$(grep -c 'missing:' "$work/output")" = 1 ] || fail "names them more than once"

# Neither root nor sudo: the command.
for goal in deps demo deps-test test; do
	ends_2 make $goal
	says 'neither root nor sudo'
	says 'apt-get .*update && .*apt-get .*install -y --no-install-recommends .*gcc.* redis-tools'
done

# With sudo they install, and first say what and how much.  This package manager brings nothing.
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
chmod 755 "$work/bin/sudo"
for goal in deps demo deps-test test; do
	ends_2 make $goal
	says 'installing 61 packages (gcc .* redis-tools.*): 45.6 MB to download, 78.9 MB on disk$'
	says '^apt-get .*install .* redis-tools'
	says 'installed, yet still missing: gcc'
	[ "$(grep -n '45.6 MB' "$work/output" | sed 's/:.*//')" -lt \
		"$(grep -n '^apt-get .*install' "$work/output" | sed 's/:.*//; 1q')" ] || fail "says so too late"
done
ends_2 make lib
silent_about 'apt-get'

# Where nothing is missing it says nothing, and a hiredis of one's own needs no other.
[ -z "$(tools/deps build examples test 2>&1)" ]
[ -z "$(tools/deps --check test 2>&1)" ]
ends_2 make HIREDIS=/elsewhere
says 'missing: gcc libc pkg-config$'

# Without the libraries of one example make builds all else, and says which it leaves out and how to
# install them.  -n: it asks pkg-config all the same, and nothing in the tree changes.
cat >"$work/bin/pkg-config" <<END
#!/bin/sh
case "\$*" in
*libmicrohttpd*) exit 1 ;;
esac
exec $(command -v pkg-config) "\$@"
END
chmod 755 "$work/bin/pkg-config"
rm "$work/bin/sudo"
PATH=$work/bin:$PATH make --no-print-directory -n -B DEPS= examples >"$work/output"
[ "$(grep -c 'SKIP.*rate_limit: needs libmicrohttpd and libcurl (make deps-examples)' "$work/output")" = 1 ] ||
	fail "does not say what it leaves out"
silent_about 'rate_limit/main\.c'
says 'examples/worker_pool\.c'
make --no-print-directory -n -B DEPS= examples >"$work/output"
silent_about SKIP
says 'rate_limit/main\.c'
