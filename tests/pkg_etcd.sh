#!/bin/sh
# SPDX-License-Identifier: MIT
# The store in etcd as installed: the library and the command do not need nghttp2, the plug-in is
# loaded from beside the library only, also if both were moved, and the archive needs no plug-in.
# What make says of ETCD=.
set -eu
cd "$(dirname "$0")/.."
. tests/install.sh
unset MAKEFLAGS MFLAGS MAKELEVEL LD_LIBRARY_PATH

# ---- make ----------------------------------------------------------------------------------------

# On a machine without nghttp2: pkg-config finds no package at all.
config="make --no-print-directory -s DEPS= BUILD=$work/build PKG_CONFIG_LIBDIR=$work/none"
built_with=$work/build/gen/built_with.h
! PKG_CONFIG_LIBDIR=$work/none $config ETCD=yes "$built_with" >"$printed" 2>&1 || fail "ETCD=yes: no error"
says 'ETCD=yes: nghttp2 1\.52 or later is missing (libnghttp2-dev)'
[ ! -e "$built_with" ] || fail "ETCD=yes goes on"
PKG_CONFIG_LIBDIR=$work/none $config ETCD=auto "$built_with" >"$printed" 2>&1 || fail "ETCD=auto: an error"
says 'ETCD  *none: etcd: needs nghttp2'
grep -q 'LK__ETCD 0' "$built_with" || fail "ETCD=auto: not without etcd"
! $config ETCD=maybe "$built_with" >"$printed" 2>&1 || fail "ETCD=maybe: no error"
says 'ETCD=maybe: must be auto, yes or no'
config="make --no-print-directory -s DEPS= BUILD=$work/build"
for etcd in yes auto; do
	rm "$built_with"
	$config ETCD=$etcd "$built_with" >"$printed" 2>&1 || fail "ETCD=$etcd: an error"
	says 'ETCD  *nghttp2 [1-9]'
	grep -q 'LK__ETCD 1' "$built_with" || fail "ETCD=$etcd: without etcd"
done

# ---- what is installed ---------------------------------------------------------------------------

# Its PREFIX is moved afterwards.
make --no-print-directory -s DEPS= install DESTDIR="$work/dest" PREFIX=/opt/latchkey >"$printed" 2>&1 ||
	fail "make install failed"
prefix=$work/moved
mv "$work/dest/opt/latchkey" "$prefix"
series=$(sed -n 's/^#define LK_VERSION "\([0-9]*\.[0-9]*\)\..*/\1/p' include/latchkey.h)
plugin=$prefix/lib/latchkey/$series/etcd.so
[ -x "$plugin" ] || fail "the plug-in is not installed"

needed() {
	readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}
allowed='libhiredis|libssl|libcrypto|libpthread|libdl|libc|libc\.musl-[a-z0-9_]*|ld-linux[-a-z0-9_]*|liblatchkey'
for file in lib/liblatchkey.so bin/latchkey; do
	needed "$prefix/$file" >"$printed"
	[ -s "$printed" ] || fail "$file needs nothing: invalid test case"
	! grep -Evx "($allowed)\.so[.0-9]*" "$printed" >"$work/more" || fail "$file needs $(cat "$work/more")"
done
needed "$plugin" >"$printed"
says '^libnghttp2\.so'
silent_about 'liblatchkey\|libssl\|libhiredis'
nm -D --defined-only "$prefix/lib/liblatchkey.so" >"$printed"
says ' lk_lock_acquire@'
silent_about ' lk__'

# ---- what it does --------------------------------------------------------------------------------

etcd=${LATCHKEY_ETCD:+$LATCHKEY_ETCD/etcd}
[ "$etcd" ] || etcd=build/deps/etcd/etcd
[ -x "$etcd" ] || etcd=$(command -v etcd || echo)
LATCHKEY_URL=etcd://127.0.0.1:1
if [ "$etcd" ]; then
	# Another program may have the port: it is below those of outgoing connections.
	for try in 1 2 3; do
		port=$((20000 + ($$ * 3 + try) * 2 % 10000))
		LATCHKEY_URL=etcd://127.0.0.1:$port
		client=http://127.0.0.1:$port peer=http://127.0.0.1:$((port + 1))
		setpriv --pdeathsig KILL "$etcd" --name a --data-dir "$work/etcd$try" --unsafe-no-fsync \
			--listen-client-urls $client --advertise-client-urls $client \
			--listen-peer-urls $peer --initial-advertise-peer-urls $peer \
			--initial-cluster a=$peer >"$work/etcd.log" 2>&1 &
		server=$!
		trap 'kill -9 $server 2>/dev/null; wait $server 2>/dev/null || :; end' EXIT
		tries=0
		until grep -q 'ready to serve client' "$work/etcd.log"; do
			! grep -q 'address already in use' "$work/etcd.log" || continue 2
			tries=$((tries + 1))
			[ $tries -lt 600 ] || fail "etcd does not start: $(tail -n 3 "$work/etcd.log")"
			sleep 0.1
		done
		break
	done
fi
export LATCHKEY_URL

# lock PREFIX: acquire by the command of that prefix; what it prints.
lock() {
	if [ "$etcd" ]; then
		"$1/bin/latchkey" lock -w 60 a sh -c 'echo "held: $LATCHKEY_FENCE"' >"$printed" 2>&1 || fail "no lock"
		says '^held: [1-9]'
	else
		! "$1/bin/latchkey" lock a true >"$printed" 2>&1 || fail "there is no server"
		says '127.0.0.1:1: connection refused'
	fi
}
lock "$prefix"
[ ! "$etcd" ] || "$prefix/bin/latchkey" doctor >"$printed" 2>&1 || :
[ ! "$etcd" ] || says 'members  *1: '

# A program with the archive, which needs no plug-in.
cat >"$work/program.c" <<'END'
#include <latchkey.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	lk_client *client;
	lk_err err = lk_client_open(getenv("LATCHKEY_URL"), NULL, &client);

	if (err)
		fprintf(stderr, "%s\n", lk_errmsg());
	return err == LK_OK ? (int)lk_client_close(client) : err == LK_ECONN ? 0 : 1;
}
END
PKG_CONFIG_PATH=$prefix/lib/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046
gcc -Iinclude -o "$work/static" "$work/program.c" "$prefix/lib/liblatchkey.a" \
	$(pkg-config --define-variable=prefix="$prefix" --static --libs latchkey | sed 's/-llatchkey//')
mv "$plugin" "$work/etcd.so"
"$work/static" >"$printed" 2>&1 || fail "the static program fails"

# Without the plug-in: nothing else is loaded, wherever it is.
other=$work/other
mkdir -p "$other/latchkey/$series" "$other/lib/latchkey/$series"
printf '%s\n' '#include <unistd.h>' '__attribute__((constructor)) static void load(void) { _exit(99); }' \
	>"$work/other.c"
gcc -shared -fPIC -o "$other/etcd.so" "$work/other.c"
cp "$other/etcd.so" "$other/latchkey/$series/"
cp "$other/etcd.so" "$other/lib/latchkey/$series/"
status=0
(cd "$other" && LD_LIBRARY_PATH=$other:$other/latchkey/$series \
	"$prefix/bin/latchkey" lock a true) >"$printed" 2>&1 || status=$?
[ $status = 64 ] || fail "without the plug-in: exit status $status"
says "etcd: install the package liblatchkey$series-etcd (no file $plugin)\$"
! "$prefix/bin/latchkey" doctor >"$printed" 2>&1 || fail "doctor without the plug-in"
says "install the package liblatchkey$series-etcd"
cp "$other/etcd.so" "$plugin"
status=0
"$prefix/bin/latchkey" lock a true >"$printed" 2>&1 || status=$?
[ $status = 99 ] || fail "another file in its place is not loaded: invalid test case"
mv "$work/etcd.so" "$plugin"
lock "$prefix"

# ---- uninstall -----------------------------------------------------------------------------------

mv "$prefix" "$work/dest/opt/latchkey"
make --no-print-directory -s uninstall DESTDIR="$work/dest" PREFIX=/opt/latchkey
[ -z "$(find "$work/dest" ! -type d)" ] || fail "uninstall leaves $(find "$work/dest" ! -type d)"
[ ! -e "$work/dest/opt/latchkey/lib/latchkey" ] || fail "uninstall leaves the plug-in's folder"
