# SPDX-License-Identifier: MIT
# Sourced by the tests that use an installed library, which pkg-config finds, with a private store of
# their own.  Defines $work, $root and install_latchkey.
# shellcheck shell=sh
build=${LK_BUILD:-$PWD/build}
. tests/harness/shell.sh
root=$work/root
LATCHKEY_LOCAL_DIR=$work/local
export LATCHKEY_LOCAL_DIR
mkdir -m 700 "$LATCHKEY_LOCAL_DIR"

end() {
	[ ! -x "$root/usr/bin/latchkey" ] || "$root/usr/bin/latchkey" local stop >/dev/null 2>&1
	rm -rf "$work"
}
trap end EXIT
trap 'exit 1' HUP INT TERM

# Install the build under $root, where pkg-config, the loader and the shell then find it.
install_latchkey() {
	make --no-print-directory -s DEPS= install DESTDIR="$root" PREFIX=/usr >"$work/install.log" 2>&1 || {
		cat "$work/install.log"
		fail "make install failed"
	}
	PKG_CONFIG_SYSROOT_DIR=$root
	PKG_CONFIG_PATH=$root/usr/lib/pkgconfig
	# Without these pkg-config drops -I/usr/include and -L/usr/lib before the root is put in front.
	PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
	PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
	LD_LIBRARY_PATH=$root/usr/lib
	PATH=$root/usr/bin:$PATH
	export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH PKG_CONFIG_ALLOW_SYSTEM_CFLAGS
	export PKG_CONFIG_ALLOW_SYSTEM_LIBS LD_LIBRARY_PATH PATH
}
