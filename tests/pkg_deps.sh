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
! grep -q ' CC ' "$work/output"

# Where nothing is missing it says nothing.
[ -z "$(tools/deps build test 2>&1)" ]
