#!/bin/sh
# SPDX-License-Identifier: MIT
# The loader finds the installed library: README's ten lines of C run after `make install`, without
# LD_LIBRARY_PATH.  The installation does not change the machine: /etc, /usr/local and the loader's
# own cache are overlays in a mount namespace.
set -eu
cd "$(dirname "$0")/.."
if [ "${1-}" != inside ]; then
	# Try the mounts below as root or in a user namespace.  If a container forbids both, the test is
	# skipped with the first error text.
	why=
	try='mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work &&
		mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc'
	for right in --propagation=private --map-root-user; do
		[ "$(id -u)" = 0 ] || [ $right != --propagation=private ] || continue
		said=$(unshare $right --mount sh -c "$try" 2>&1) && exec unshare $right --mount "$0" inside
		why=${why:-$said}
	done
	case $why in
	*"not found"*) echo "$why" && exit 1 ;;
	*unshare:* | *mount:*) echo "skipped: pkg_loader.sh: $(echo "$why" | sed 1q)" ;;
	*) echo "$why" && exit 1 ;;
	esac
	exit 0
fi
. tests/install.sh
unset LD_LIBRARY_PATH LD_RUN_PATH PKG_CONFIG_PATH MAKEFLAGS MFLAGS MAKELEVEL
PATH=$PATH:/usr/sbin:/sbin
LC_ALL=C
export PATH LC_ALL

# private DIR SUBDIR...: keep writes to these folders in memory.  The written subfolders are created
# in advance: if root is mapped from another user, the machine's own ones belong to another user.
mkdir "$work/memory"
mount -t tmpfs none "$work/memory"
trap '"$build/latchkey" local stop >/dev/null 2>&1; umount -l "$work/memory"; end' EXIT
private() {
	dir=$1
	shift
	upper=$work/memory/$(echo "$dir" | tr / _)
	mkdir "$upper" "$upper.work"
	for sub in "$@"; do mkdir -p "$upper/$sub"; done
	mount -t overlay overlay -o "lowerdir=$dir,upperdir=$upper,workdir=$upper.work" "$dir"
}
private /etc ld.so.conf.d
private /usr/local lib/pkgconfig include bin share/man/man1
mkdir -p /var/cache
private /var/cache ldconfig

# say_make GOAL ARG...: run make; its output without the progress lines is in $work/said.
say_make() {
	make --no-print-directory DEPS= "$@" >"$work/make.log" 2>&1 || {
		cat "$work/make.log"
		fail "make $* failed"
	}
	grep -v '^  [A-Z]' "$work/make.log" >"$work/said" || :
}

says_nothing() {
	[ ! -s "$work/said" ] || fail "$1: make prints: $(cat "$work/said")"
}

# Return the command that make prints; it prints nothing else.
printed_line() {
	[ "$(wc -l <"$work/said")" = 1 ] || fail "$1: make prints: $(cat "$work/said")"
	sed -n 's/^run: //p' "$work/said"
}

in_cache() {
	ldconfig -p | grep liblatchkey
}

awk '/^```c$/ { on = 1; next } /^```/ { if (on) exit } on' README.md >"$work/ten.c"
grep -q 'lk_lock_acquire' "$work/ten.c" || fail "README's ten lines are not its first block of C"

# build_ten PREFIX: build as in README.
build_ten() {
	rm -f "$work/ten"
	# shellcheck disable=SC2046
	PKG_CONFIG_PATH=$1/lib/pkgconfig cc -o "$work/ten" "$work/ten.c" \
		$(PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config --cflags --libs latchkey)
}

ten_lines_run() {
	output=$(timeout 60 "$work/ten" 2>&1) || return 1
	case $output in
	"held, with fence "*) ;;
	*) fail "README's ten lines print: $output" ;;
	esac
}

# As root, with the default PREFIX, the lines run at once, without another command.
say_make uninstall
! in_cache || fail "the loader's cache has a library that was removed"
say_make install
says_nothing "a plain install"
build_ten /usr/local
ten_lines_run || fail "README's ten lines do not run after make install"
say_make uninstall
says_nothing "uninstall"
! in_cache || fail "uninstall leaves the library in the loader's cache"

# An install with DESTDIR, for a package, does not change the loader's cache.
before=$(ls -i /etc/ld.so.cache)
say_make install DESTDIR="$work/package"
says_nothing "an install with DESTDIR"
[ "$(ls -i /etc/ld.so.cache)" = "$before" ] || fail "an install with DESTDIR changed the machine"

# If the user may not write the cache, make prints the command.
mount -o remount,ro /etc
say_make install
mount -o remount,rw /etc
build_ten /usr/local
! ten_lines_run || fail "the cache was written nevertheless: invalid test case"
[ "$(printed_line "an install that may not write /etc")" = ldconfig ] || fail "not the command: $(cat "$work/said")"
ldconfig
ten_lines_run || fail "the printed command does not help"
say_make uninstall

# For a folder that the loader does not search, the printed command adds it, once.
say_make install PREFIX="$work/opt"
line=$(printed_line "an install into another folder")
build_ten "$work/opt"
! ten_lines_run || fail "$work/opt/lib is searched: invalid test case"
sh -ec "$line" || fail "the printed command fails: $line"
ten_lines_run || fail "the printed command does not help: $line"
say_make install PREFIX="$work/opt"
says_nothing "an install into a folder that was added"
say_make uninstall PREFIX="$work/opt"
! in_cache || fail "uninstall leaves the library in the loader's cache"

# A system whose ldconfig has no cache (musl), or without ldconfig (macOS).
ldconfig=$(readlink -f "$(command -v ldconfig)")
for other in '#!/bin/sh' ''; do
	echo "$other" >"$work/ldconfig"
	[ -z "$other" ] || chmod 755 "$work/ldconfig"
	mount --bind "$work/ldconfig" "$ldconfig"
	say_make install PREFIX="$work/opt"
	says_nothing "an install without a cache of the loader"
	say_make uninstall PREFIX="$work/opt"
	says_nothing "an uninstall without a cache of the loader"
	umount "$ldconfig"
	rm "$work/ldconfig"
done
