#!/bin/sh
# SPDX-License-Identifier: MIT
# The installed library: a C and a C++ program find it by pkg-config, shared and static, and run;
# the manual and the command are installed; uninstall leaves no file.
set -eu
cd "$(dirname "$0")/.."
. tests/install.sh
install_latchkey
flags="-Wall -Wextra -pedantic -Werror"

cat >"$work/program.c" <<'END'
#include <latchkey.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	lk_client *client;
	lk_lock *lock;
	uint64_t fence = 0;

	if (lk_client_open("local:", NULL, &client) != LK_OK ||
	    lk_lock_open(client, "installed", 0, NULL, &lock) != LK_OK ||
	    lk_lock_acquire(lock, 5000, &fence) != LK_OK || fence == 0 ||
	    lk_lock_release(lock) != LK_OK || lk_client_close(client) != LK_OK) {
		fprintf(stderr, "%s\n", lk_errmsg());
		return 1;
	}
	return strcmp(lk_version(), LK_VERSION) != 0;
}
END
cat >"$work/program.cpp" <<'END'
#include <latchkey.hpp>

#include <iostream>
#include <mutex>
#include <thread>

static void check(bool holds, const char *what)
{
	if (!holds)
		throw std::logic_error(what);
}

static void guards(latchkey::client &client)
{
	latchkey::lock one(client, "one"), two(client, "two");
	bool other_got_it = true;

	{
		std::scoped_lock both(one, two);
		check(one.is_mine() && two.is_mine() && one.fence() > 0, "scoped_lock holds both");
		std::thread([&] { other_got_it = two.try_lock(); }).join();
		check(!other_got_it, "another thread is kept out");
		std::thread([&] {
			other_got_it = one.try_lock_for(std::chrono::microseconds(1500));
		}).join();
		check(!other_got_it, "another thread is kept out for a while");
		std::thread([&] {
			other_got_it = one.try_lock_until(std::chrono::system_clock::time_point::min() +
			                                  std::chrono::hours(1));
		}).join();
		check(!other_got_it, "a deadline of long ago is no wait");
	}
	check(!one.is_mine() && !two.is_mine(), "scoped_lock gave both back");
	{
		std::unique_lock<latchkey::lock> hold(one, std::chrono::seconds(5));
		check(hold.owns_lock() && one.state() == LK_STATE_HELD, "unique_lock holds");
		std::unique_lock<latchkey::lock> again(one, std::try_to_lock);
		check(again.owns_lock() && one.snapshot().count == 2, "re-entered");
		check(client.counters().reentered == 1, "and counted");
	}
	std::thread([&] {
		other_got_it = one.try_lock();
		one.release();
	}).join();
	check(other_got_it, "free again");
}

/* A guard around a hold that is lost ends without a word; release() speaks. */
static void loss(latchkey::client &client)
{
	latchkey::lock lost(client, "lost");
	lk_err told = LK_OK;

	{
		std::lock_guard<latchkey::lock> hold(lost);
		check(lk_lock_break(lost.native_handle(), nullptr) == LK_OK, "broken");
	}
	lost.lock();
	check(lk_lock_break(lost.native_handle(), nullptr) == LK_OK, "broken");
	while (lost.is_mine())
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	try {
		lost.release();
	} catch (const latchkey::error &error) {
		told = error.code();
	}
	check(told == LK_ELOST, "release tells of the loss");
}

/* A function runs under the lock; what it throws leaves after the release. */
static void runs(latchkey::client &client)
{
	latchkey::lock one(client, "run");
	latchkey::semaphore pool(client, "run pool", 2);
	latchkey::client others;
	latchkey::lock same(others, "run");
	const auto wait = std::chrono::milliseconds(50);
	uint64_t seen = 0;
	bool called = false;
	lk_err told = LK_OK;

	check(one.run([&](uint64_t fence) { return fence == one.fence() && fence; }), "the fence");
	one.run([&] { called = one.is_mine() && !same.try_lock(); });
	check(called && !one.is_mine(), "held while it runs");
	try {
		one.run([&] {
			one.unlock();
			one.lock();
		});
		check(false, "a second hold is none of the run");
	} catch (const latchkey::error &e) {
		check(e.code() == LK_ENOTOWNER && one.is_mine(), "which hold it was");
		one.unlock();
	}
	check(one.run_for(wait, [] { return std::string("text"); }).value() == "text", "a result");
	check(one.run_for(wait, [&](uint64_t fence) { seen = fence; }) && seen, "true: it ran");
	same.lock();
	check(!one.run_for(wait, [] {}) && !one.run_for(wait, [] { return 1; }), "not called");
	same.unlock();
	try {
		one.run([]() -> int { throw std::out_of_range("thrown"); });
		check(false, "thrown on");
	} catch (const std::out_of_range &error) {
		check(same.try_lock(), "released before the exception leaves");
		same.unlock();
	}
	try {
		one.run([&] {
			check(lk_lock_break(same.native_handle(), nullptr) == LK_OK, "broken");
		});
	} catch (const latchkey::error &error) {
		told = error.code();
	}
	check(told == LK_ELOST, "a loss is thrown");

	check(pool.run([&] { return !pool.try_acquire(1); }, 2), "two permits");
	check(pool.run_for(wait, [&](uint64_t fence) { return fence; }).value() > 0, "a fence");
	{
		latchkey::semaphore::permits all = pool.acquire(2);
		check(!pool.run_for(wait, [] {}), "no permits");
	}
	try {
		pool.run([] { throw 1; }, 2);
	} catch (int) {
		check(bool(pool.try_acquire(2)), "given back before the exception leaves");
	}
}

/* Permits go back with their owner, some of them before; a latch opens. */
static void counting(latchkey::client &client)
{
	latchkey::semaphore pool(client, "pool", 3);
	latchkey::latch gate(client, "gate");
	int64_t remaining = -1;
	bool opened = false;

	{
		latchkey::semaphore::permits two = pool.acquire(2);
		latchkey::semaphore::permits moved = std::move(two);
		check(moved && !two && moved.fence() && moved.state() == LK_STATE_HELD, "moved");
		check(moved.snapshot().count == 2 && two.snapshot().fence == 0, "snapshots");
		check(!pool.try_acquire(2), "one is free");
		moved.release(1);
		check(bool(pool.try_acquire_for(std::chrono::seconds(1), 2)), "two are free");
		moved.release(1);
		check(!moved, "empty");
		try {
			latchkey::semaphore::permits().release();
			check(false, "nothing to release");
		} catch (const latchkey::error &error) {
			check(error.code() == LK_ENOTOWNER, "LK_ENOTOWNER");
		}
	}
	check(bool(pool.try_acquire(3)), "all are back");
	try {
		pool.acquire(4);
	} catch (const latchkey::error &error) {
		check(error.code() == LK_ELIMIT, "LK_ELIMIT");
	}

	check(gate.set(2) && !gate.set(2), "set once");
	std::thread waiter([&] { opened = gate.try_wait_for(std::chrono::seconds(10)); });
	remaining = gate.count_down("a job");
	remaining = gate.count_down("a job");
	check(remaining == 1 && !gate.try_wait(), "a name counts once");
	check(gate.count_down(std::string("a job\0", 6)) == 0, "another name, and open");
	waiter.join();
	gate.wait();
	check(opened, "waited");
}

int main()
{
	try {
		latchkey::client client("local:");
		guards(client);
		loss(client);
		runs(client);
		counting(client);
		try {
			latchkey::client nowhere("redis+unix:///nowhere/at/all");
			check(false, "no client without a server");
		} catch (const latchkey::error &error) {
			check(error.code() == LK_ECONN, "LK_ECONN");
		}
	} catch (const std::exception &error) {
		std::cerr << error.what() << "\n";
		return 1;
	}
}
END

run() {
	echo "$*"
	"$@"
}
# shellcheck disable=SC2046
for link in shared static; do
	libs="$(pkg-config --libs latchkey)"
	if [ $link = static ]; then
		# Use the library's archive, and its dependencies as the system has them.
		libs="$(pkg-config --static --libs latchkey | sed "s|-llatchkey|$root/usr/lib/liblatchkey.a|")"
	fi
	run gcc -std=c11 $flags $(pkg-config --cflags latchkey) -o "$work/c-$link" "$work/program.c" $libs
	run g++ -std=c++17 -pthread $flags $(pkg-config --cflags latchkey) -o "$work/cpp-$link" \
		"$work/program.cpp" $libs
	timeout 60 "$work/c-$link" || fail "the $link C program failed"
	timeout 60 "$work/cpp-$link" || fail "the $link C++ program failed"
	ldd "$work/c-$link" >"$work/ldd"
	case $link in
	shared) grep -q 'liblatchkey\.so\.0\.2 => .*/root/usr/lib/' "$work/ldd" || fail "not the installed library" ;;
	static) ! grep -q liblatchkey "$work/ldd" || fail "the library is not static" ;;
	esac
done

[ "$(pkg-config --modversion latchkey)" = "$(sed -n 's/^#define LK_VERSION "\(.*\)"/\1/p' include/latchkey.h)" ] ||
	fail "pkg-config and the header differ on the version"
objdump -p "$root/usr/lib/liblatchkey.so" | grep -q 'SONAME *liblatchkey\.so\.0\.2$' || fail "wrong soname"
grep -q "$root" "$root/usr/lib/pkgconfig/latchkey.pc" && fail "DESTDIR is in latchkey.pc"
[ -s "$root/usr/share/man/man1/latchkey.1" ] || fail "no manual page"
latchkey local status >/dev/null || fail "the installed command does not run"
latchkey local stop >/dev/null

make --no-print-directory -s uninstall DESTDIR="$root" PREFIX=/usr
[ -z "$(find "$root" ! -type d)" ] || fail "uninstall leaves $(find "$root" ! -type d)"
