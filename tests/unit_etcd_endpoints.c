/* SPDX-License-Identifier: MIT
 * The order of etcd's members and the pauses between dials, in virtual time. */
#include "etcd/endpoints.h"

#include "test.h"

#include <string.h>

#define MS INT64_C(1000000)

static struct lk__endpoints endpoints;
static int64_t now_ns;

static void begin(unsigned count)
{
	now_ns = 1000 * MS;
	lk__endpoints_init(&endpoints, count, test_seed());
}

/* Let time pass until a dial is due; how long that took.  *member: whom it is to. */
static int64_t wait_for_dial(int *member)
{
	int64_t start_ns = now_ns;

	ck_assert(lk__endpoints_due_ns(&endpoints) != LK__ENDPOINTS_NEVER);
	if (lk__endpoints_due_ns(&endpoints) > now_ns) {
		now_ns = lk__endpoints_due_ns(&endpoints);
		ck_assert_int_eq(lk__endpoints_next(&endpoints, now_ns - 1), -1);
	}
	*member = lk__endpoints_next(&endpoints, now_ns);
	ck_assert_int_ge(*member, 0);
	ck_assert_int_eq(lk__endpoints_next(&endpoints, now_ns), -1);
	ck_assert(lk__endpoints_due_ns(&endpoints) == LK__ENDPOINTS_NEVER);
	return now_ns - start_ns;
}

TEST(each_round_tries_each_member_once)
{
	for (unsigned count = 1; count <= LK__ENDPOINTS_MAX; count++) {
		begin(count);
		for (int round = 0; round < 3; round++) {
			unsigned seen = 0;
			for (unsigned i = 0; i < count; i++) {
				int member;
				int64_t pause_ns = wait_for_dial(&member);
				ck_assert((i || !round) == !pause_ns);
				ck_assert_int_lt(member, (int)count);
				seen |= 1u << member;
				lk__endpoints_failed(&endpoints, now_ns);
			}
			ck_assert_uint_eq(seen, (1u << count) - 1);
		}
	}
}

TEST(clients_begin_at_different_members)
{
	unsigned first[3] = {0};

	for (uint64_t random = 0; random < 300; random++) {
		lk__endpoints_init(&endpoints, 3, test_seed() + random * 7919);
		first[lk__endpoints_next(&endpoints, 0)]++;
	}
	for (int i = 0; i < 3; i++)
		ck_assert_msg(first[i] > 40, "%u of 300 begin at %d", first[i], i);
}

TEST(pause_doubles_up_to_two_seconds_with_jitter)
{
	int64_t pause_ns, full_ns = 50 * MS, least_ns = INT64_MAX, most_ns = 0;
	int member;

	begin(1);
	ck_assert(wait_for_dial(&member) == 0);
	for (int i = 0; i < 200; i++) {
		lk__endpoints_failed(&endpoints, now_ns);
		pause_ns = wait_for_dial(&member);
		ck_assert(pause_ns >= full_ns / 2 && pause_ns <= full_ns);
		full_ns = full_ns * 2 < 2000 * MS ? full_ns * 2 : 2000 * MS;
		if (i < 10)
			continue;
		least_ns = pause_ns < least_ns ? pause_ns : least_ns;
		most_ns = pause_ns > most_ns ? pause_ns : most_ns;
	}
	ck_assert(least_ns < 1200 * MS && most_ns > 1800 * MS);
}

TEST(connection_that_lasted_is_dialled_again_at_once)
{
	int first, member;

	begin(3);
	wait_for_dial(&first);
	lk__endpoints_up(&endpoints, now_ns);
	now_ns += 1000 * MS;
	lk__endpoints_down(&endpoints, now_ns, false);
	ck_assert(wait_for_dial(&member) == 0);
	ck_assert_int_eq(member, first);
}

TEST(member_without_a_leader_is_left_for_the_others)
{
	int first, member;

	begin(3);
	wait_for_dial(&first);
	lk__endpoints_up(&endpoints, now_ns);
	now_ns += 5000 * MS;
	lk__endpoints_down(&endpoints, now_ns, true);
	ck_assert(wait_for_dial(&member) == 0);
	ck_assert_int_ne(member, first);
	/* It comes again when the others have been tried, but not at once. */
	lk__endpoints_failed(&endpoints, now_ns);
	ck_assert(wait_for_dial(&member) == 0);
	lk__endpoints_failed(&endpoints, now_ns);
	ck_assert(wait_for_dial(&member) > 0);
	ck_assert_int_eq(member, first);
}

TEST(members_that_accept_and_close_are_not_flooded)
{
	int64_t start_ns;
	int member;

	begin(3);
	start_ns = now_ns;
	for (int i = 0; i < 30; i++) {
		wait_for_dial(&member);
		lk__endpoints_up(&endpoints, now_ns);
		lk__endpoints_down(&endpoints, now_ns, i % 2);
	}
	/* Nine pauses between ten rounds: 50, 100, ... 2000 ms, at least half of each. */
	ck_assert(now_ns - start_ns >= 3500 * MS);
}
