/* SPDX-License-Identifier: MIT
 * Changes to the clock of a client's machine (C10, C11 of the fault list): its wall clock is set,
 * and the machine sleeps. */
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis;

static void set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
}

/* This program's clocks, which replace libc's. */
static atomic_llong set_s;   /* the sum of changes to the wall clock */
static atomic_llong slept_s; /* how long the machine was asleep */

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = (int)syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_REALTIME)
		now->tv_sec += set_s + slept_s;
	else if (clock == CLOCK_BOOTTIME)
		now->tv_sec += slept_s;
	return result;
}

/* A wait of 150 ms takes that long; now_ms() uses the boot time. */
#define WAITS_150_MS(call)                                                                         \
	do {                                                                                       \
		int64_t waits_start_ms_ = now_ms();                                                \
		EXPECT(call, LK_ETIMEDOUT);                                                        \
		ck_assert_int_ge(now_ms() - waits_start_ms_, 149);                                 \
		ck_assert_int_le(now_ms() - waits_start_ms_, 150 + 400);                           \
	} while (0)

TEST(c10_wall_clock_that_is_set_changes_nothing)
{
	static const long long steps_s[] = {3600, -7200, 10LL * 365 * 86400};
	lk_client *client, *other;
	lk_semaphore *semaphore;
	lk_lock *lock, *same;
	lk_lock_status status;
	lk_latch *latch;
	uint64_t hold, fence, none = 0;

	set_up();
	client = client_at(server.url);
	other = client_at(server.url);
	lock = hold_watched(client, "a", 600);
	fence = hold_of(lock).fence;
	same = lock_named(other, "a");
	semaphore = semaphore_watched(client, "s",
	                              (lk_semaphore_options){.capacity = 2, .lease_ms = 600});
	hold = permits_of(semaphore, 2, 0);
	latch = latch_named(other, "l");
	for (size_t i = 0; i < sizeof(steps_s) / sizeof(steps_s[0]); i++) {
		set_s += steps_s[i];
		WAITS_150_MS(lk_lock_acquire(same, 150, NULL));
		WAITS_150_MS(lk_semaphore_acquire(semaphore, 1, 150, &none));
		WAITS_150_MS(lk_latch_await(latch, 150));
		stays_held(lock, 50);
		permits_stay_held(semaphore, hold, 50);
		ck_assert_int_le(hold_of(lock).remaining_ms, 600);
		OK(lk_lock_query(same, &status));
		ck_assert_int_lt(status.held_ms, 20000);
		ck_assert_int_le(status.lease_left_ms, 600);
	}
	ck_assert_int_ne(set_s, 0);
	ck_assert_uint_eq(hold_of(lock).fence, fence);
	/* A new hold's fence comes from the server's clock. */
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(same, 1000, NULL));
	ck_assert_uint_gt(hold_of(same).fence, fence);
	ck_assert_uint_lt(hold_of(same).fence, fence + 60000000);
	OK(lk_lock_release(same));
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert_int_eq(losses.count + permit_losses.count, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(c11_machine_that_slept_past_a_lease_has_lost_its_holds)
{
	lk_semaphore *semaphore;
	lk_client *client;
	lk_lock *lock;
	uint64_t hold, fence;

	set_up();
	client = client_at(server.url);
	semaphore = semaphore_watched(client, "s",
	                              (lk_semaphore_options){.capacity = 2, .lease_ms = 900});
	lock = hold_watched(client, "a", 900);
	fence = hold_of(lock).fence;
	hold = permits_of(semaphore, 2, 0);
	ck_assert_int_gt(hold_of(lock).remaining_ms, 0);
	slept_s += 3600;
	/* The first call afterwards detects it, though no thread of the library could run. */
	ck_assert(!lk_lock_is_mine(lock));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_LOST);
	ck_assert_int_eq(hold_of(lock).remaining_ms, 0);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_LOST);
	ck_assert_int_eq(hold_in(semaphore, hold).remaining_ms, 0);
	/* A kernel timer would have expired at once; here it is the renewal's. */
	ck_assert(WITHIN(700, losses.count == 1 && permit_losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_eq(permit_losses.reason, LK_LOST_EXPIRED);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ELOST);
	OK(lk_lock_acquire(lock, 5000, NULL));
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	OK(lk_lock_release(lock));
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 2, 5000)));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}
