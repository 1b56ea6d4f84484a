#!/bin/sh
# SPDX-License-Identifier: MIT
# What tools/deps says when something is missing and it may not install it: the command to run, and
# exit status 2, also through make.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/bin"
# A machine with hardly anything on it, above all without sudo and a server.
for tool in sh sed tr id uname ls cat env make apt-get dnf apk; do
	! path=$(command -v $tool) || ln -s "$path" "$work/bin/$tool"
done
# make(1) changes nothing here: it ends before its first compilation.
cp -r Makefile tools include src "$work/"
chmod -R a+rX "$work"

# "! grep" would not end this script.
absent() {
	if grep "$1" "$work/output"; then
		exit 1
	fi
}

as_nobody() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		"$@"
	fi
}
status=0
as_nobody env -i PATH="$work/bin" LK_DEPS_PATH= tools/deps build >"$work/output" 2>&1 || status=$?
cat "$work/output"
[ $status = 2 ]
grep -q 'install' "$work/output"
grep -q 'neither root nor sudo' "$work/output"
if command -v apt-get >/dev/null; then
	grep -q 'apt-get .*install -y --no-install-recommends .*gcc.* redis-tools' "$work/output"
fi

status=0
mkdir -m 777 "$work/build"
(cd "$work" && as_nobody env -i PATH="$work/bin" LK_DEPS_PATH= make lib) >"$work/output" 2>&1 || status=$?
cat "$work/output"
[ $status = 2 ]
grep -q 'neither root nor sudo' "$work/output"
absent ' CC '

# Where nothing is missing it says nothing.
[ -z "$(tools/deps build examples test 2>&1)" ]

# Without the libraries of one example make builds all else, and says which it leaves out and how to
# have it.  -n: it asks pkg-config all the same, and nothing in the tree changes.
cat >"$work/bin/pkg-config" <<END
#!/bin/sh
case "\$*" in
*libmicrohttpd*) exit 1 ;;
esac
exec $(command -v pkg-config) "\$@"
END
chmod 755 "$work/bin/pkg-config"
PATH=$work/bin:$PATH make --no-print-directory -n -B DEPS= examples >"$work/output"
[ "$(grep -c 'SKIP.*rate_limit: needs libmicrohttpd and libcurl (make deps-examples)' "$work/output")" = 1 ]
absent 'rate_limit/main\.c'
grep -q 'examples/worker_pool\.c' "$work/output"
make --no-print-directory -n -B DEPS= examples >"$work/output"
absent SKIP
grep -q 'rate_limit/main\.c' "$work/output"
