#!/bin/sh
# SPDX-License-Identifier: MIT
# Missing packages: `make` prints their names and the command that installs them, and installs
# nothing; demo, test and deps* print names and sizes and install them, or print the command if they
# may not.  The package manager is simulated.
set -eu
cd "$(dirname "$0")/.."
. tests/harness/shell.sh
chmod 755 "$work"
mkdir "$work/bin"
# A machine with few programs, in particular without sudo and without a server.
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
# No goal here reaches its first compilation.
cp -r Makefile tools include src examples tests "$work/"
mkdir -m 777 "$work/build"
chmod -R a+rX "$work"
unset MAKEFLAGS MFLAGS MAKELEVEL

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

# All names are printed at once, and nothing is installed.
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
# The demo on etcd needs no server of Redis.
ends_2 tools/deps --check demo-etcd
says 'missing: gcc .* nghttp2 etcd$'
says 'libnghttp2-dev etcd), run: make deps-demo-etcd$'
silent_about 'server'
ends_2 make -j4 lint sim
says 'clang-tidy.*, run: make deps-ci deps-test$'
[ "$(grep -c 'missing:' "$work/output")" = 1 ] || fail "prints the names more than once"

# Without root and sudo, the command is printed.
for goal in deps demo deps-test test; do
	ends_2 make $goal
	says 'neither root nor sudo'
	says 'apt-get .*update && .*apt-get .*install -y --no-install-recommends .*gcc.* redis-tools'
done

# With sudo they print names and sizes, then install.  The simulated manager installs nothing.
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
chmod 755 "$work/bin/sudo"
for goal in deps demo deps-test test; do
	ends_2 make $goal
	says 'installing 61 packages (gcc .* redis-tools.*): 45.6 MB to download, 78.9 MB on disk$'
	says '^apt-get .*install .* redis-tools'
	says 'installed, yet still missing: gcc'
	[ "$(grep -n '45.6 MB' "$work/output" | sed 's/:.*//')" -lt \
		"$(grep -n '^apt-get .*install' "$work/output" | sed 's/:.*//; 1q')" ] || fail "prints the sizes too late"
done
ends_2 make lib
silent_about 'apt-get'

# If nothing is missing, nothing is printed; with HIREDIS the packaged hiredis is not needed.
[ -z "$(tools/deps build examples test 2>&1)" ]
[ -z "$(tools/deps --check test 2>&1)" ]
ends_2 make HIREDIS=/elsewhere
says 'missing: gcc libc pkg-config$'

# Without the libraries of one example make builds the others, and prints which one it skips and how
# to install its libraries.  -n: make runs pkg-config all the same, and the tree does not change.
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
	fail "does not print the skipped example"
silent_about 'rate_limit/main\.c'
says 'examples/worker_pool\.c'
make --no-print-directory -n -B DEPS= examples >"$work/output"
silent_about SKIP
says 'rate_limit/main\.c'
