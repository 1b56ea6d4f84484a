/* SPDX-License-Identifier: MIT
 * Changes to the clock of a client's machine (C10, C11 of the fault list): its wall clock is set,
 * and the machine sleeps. */
#include "harness/primitive.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

TEST_OF(c10_wall_clock_that_is_set_changes_nothing, EVERY, 20)
{
	static const long long steps_s[] = {3600, -7200, 10LL * 365 * 86400};
	struct claims held, waits;
	lk_client *client, *other;
	lk_lock_status status;

	fault_set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	claims_hold(&held, set, client, 600);
	claims_open(&waits, set, other, 0);
	for (size_t i = 0; i < sizeof(steps_s) / sizeof(steps_s[0]); i++) {
		set_s += steps_s[i];
		/* A wait of 150 ms takes that long; now_ms() uses the boot time. */
		claims_start(&waits, 150, true);
		claims_join(&waits, LK_ETIMEDOUT);
		EACH (claim, &waits)
			ck_assert(claim->took_ms >= 149 && claim->took_ms <= 150 + 400);
		claims_stay_held(&held, 50);
		EACH (claim, &held)
			ck_assert(!claim->primitive->is_leased ||
			          claim->primitive->remaining_ms(claim) <= 600);
		OK(lk_lock_query(waits.of[0].lock, &status));
		ck_assert_int_lt(status.held_ms, 20000);
		ck_assert_int_le(status.lease_left_ms, 600);
	}
	ck_assert_int_ne(set_s, 0);
	claims_expect_held(&held);
	claims_release(&held);
	/* A new hold's fence comes from the server's clock. */
	claims_hold(&waits, set, other, 0);
	claims_expect_newer(&waits, &held);
	EACH (claim, &waits)
		ck_assert_uint_lt(claim->fence, held.of[claim - waits.of].fence + 60000000);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_OF(c11_machine_that_slept_past_a_lease_has_lost_its_holds, LEASED, 20)
{
	struct claims held;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, 900);
	claims_stay_held(&held, 1);
	slept_s += 3600;
	/* The first call afterwards detects it, though no thread of the library could run. */
	EACH (claim, &held) {
		ck_assert_int_eq(claim->primitive->state(claim), LK_STATE_LOST);
		ck_assert_int_eq(claim->primitive->remaining_ms(claim), 0);
	}
	/* A kernel timer would have expired at once; here it is the renewal's. */
	claims_expect_lost(&held, LK_LOST_EXPIRED, now_ms() + 700);
	claims_release_lost(&held);
	claims_hold_again(&held);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}
