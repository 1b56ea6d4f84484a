#!/bin/sh
# SPDX-License-Identifier: MIT
# The library with and without OpenSSL and nghttp2: what make reports, what is linked, what
# latchkey.pc names, and that rediss: and etcd: are clear errors without them.
set -eu
cd "$(dirname "$0")/.."
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh
unset MAKEFLAGS MFLAGS MAKELEVEL

# make_it ARGUMENTS...: into a tree of its own, as quickly as it goes.
make_it() {
	make --no-print-directory -j2 DEPS= CC=gcc CFLAGS=-O0 WERROR= BUILD="$work/build" "$@" >"$work/output" 2>&1 ||
		fail "make $* failed"
}

LD_LIBRARY_PATH=$work/root/usr/lib
export LD_LIBRARY_PATH
plugin=$work/root/usr/lib/latchkey/0.2/etcd.so
make_it TLS=no ETCD=no lib command install DESTDIR="$work/root" PREFIX=/usr
cp "$work/output" "$work/output.first"
grep -q 'TLS  *none: rediss: needs OpenSSL' "$work/output" || fail "make does not report that TLS is missing"
! ldd "$work/root/usr/bin/latchkey" | grep -q libssl || fail "linked with OpenSSL"
! nm -D "$work/root/usr/lib/liblatchkey.so" | grep -q ' SSL_' || fail "needs OpenSSL"
! grep -q libssl "$work/root/usr/lib/pkgconfig/latchkey.pc" || fail "latchkey.pc names OpenSSL"
! LATCHKEY_URL=rediss://localhost "$work/root/usr/bin/latchkey" doctor >"$work/output" 2>&1 ||
	fail "rediss: is accepted"
grep -q 'scheme: rediss: this library was built without TLS' "$work/output" || fail "no reason"
grep -q 'ETCD  *none: etcd: needs nghttp2' "$work/output.first" ||
	fail "make does not report that nghttp2 is missing"
[ ! -e "$plugin" ] || fail "ETCD=no builds the plug-in"
! ldd "$work/root/usr/bin/latchkey" | grep -q nghttp2 || fail "linked with nghttp2"
! grep -q nghttp2 "$work/root/usr/lib/pkgconfig/latchkey.pc" || fail "latchkey.pc names nghttp2"
! LATCHKEY_URL=etcd://localhost "$work/root/usr/bin/latchkey" lock a true >"$work/output" 2>&1 ||
	fail "etcd: is accepted"
grep -q 'scheme: etcd: this library was built without it (nghttp2' "$work/output" || fail "no reason"

# OpenSSL and nghttp2 came: what depends on them is compiled again, and nothing else.
make_it lib install DESTDIR="$work/root" PREFIX=/usr
grep -q 'TLS  *OpenSSL [1-9]' "$work/output" || fail "make does not report OpenSSL"
grep -q 'ETCD  *nghttp2 [1-9]' "$work/output" || fail "make does not report nghttp2"
grep -q 'CC *src/net/tls.c' "$work/output" || fail "tls.c is not compiled again"
grep -q 'CC *src/etcd/h2.c' "$work/output" || fail "h2.c is not compiled again"
! grep -q 'CC *src/core/core.c' "$work/output" || fail "everything is compiled again"
nm -D "$work/root/usr/lib/liblatchkey.so" | grep -q ' U SSL_read' || fail "does not use OpenSSL"
grep -q '^Requires.private:.* libssl' "$work/root/usr/lib/pkgconfig/latchkey.pc" ||
	fail "latchkey.pc does not name OpenSSL"
nm -D "$plugin" | grep -q ' U nghttp2_' || fail "does not use nghttp2"
grep -q '^Requires.private:.* libnghttp2' "$work/root/usr/lib/pkgconfig/latchkey.pc" ||
	fail "latchkey.pc does not name nghttp2"
make_it lib
! grep -q TLS "$work/output" || fail "make reports what has not changed"
