/* SPDX-License-Identifier: MIT
 * The rounds of a lease of etcd: src/etcd/lease.h. */
#include "harness/test.h"
#include "etcd/lease.h"

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)
#define BEGIN (100 * SECOND)

static struct lk__lease lease;

static void granted(void)
{
	lk__lease_granted(&lease, BEGIN, 6, 7);
}

/* A keep-alive that is sent at that time and answered at once, then the read. */
static void round_at(int64_t now_ns, uint64_t term)
{
	ck_assert_int_eq(lk__lease_next(&lease, now_ns), LK__LEASE_KEEP_ALIVE);
	ck_assert(lk__lease_renewed(&lease, now_ns + 10 * MS, 6));
	ck_assert_int_eq(lk__lease_next(&lease, now_ns + 10 * MS), LK__LEASE_READ);
	lk__lease_confirmed(&lease, now_ns + 20 * MS, term);
}

TEST(granted_lease_is_valid_from_the_sending_on_less_one_percent)
{
	granted();
	ck_assert_int_eq(lk__lease_end_ns(&lease), BEGIN + 6 * SECOND - 60 * MS - 2 * MS);
	ck_assert(lk__lease_is_valid(&lease, lk__lease_end_ns(&lease) - 1));
	ck_assert(!lk__lease_is_valid(&lease, lk__lease_end_ns(&lease)));
}

TEST(lease_is_renewed_each_third_of_its_time)
{
	granted();
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 2 * SECOND - 1), LK__LEASE_REST);
	round_at(BEGIN + 2 * SECOND, 7);
	ck_assert_int_eq(lk__lease_end_ns(&lease), BEGIN + 8 * SECOND - 62 * MS);
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 4 * SECOND - 1), LK__LEASE_REST);
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 4 * SECOND), LK__LEASE_KEEP_ALIVE);
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 5 * SECOND),
	                 LK__LEASE_REST); /* no answer */
}

TEST(keep_alive_alone_makes_nothing_longer)
{
	int64_t valid_until;

	granted();
	valid_until = lk__lease_end_ns(&lease);
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 2 * SECOND), LK__LEASE_KEEP_ALIVE);
	ck_assert(lk__lease_renewed(&lease, BEGIN + 3 * SECOND, 6));
	ck_assert_int_eq(lk__lease_end_ns(&lease), valid_until);
}

TEST(another_term_needs_another_keep_alive)
{
	int64_t valid_until;

	granted();
	valid_until = lk__lease_end_ns(&lease);
	round_at(BEGIN + 2 * SECOND, 8);
	ck_assert_int_eq(lk__lease_end_ns(&lease), valid_until);
	round_at(BEGIN + 2 * SECOND + 20 * MS, 8); /* at once */
	ck_assert_int_eq(lk__lease_end_ns(&lease), BEGIN + 8 * SECOND + 20 * MS - 62 * MS);
}

TEST(other_member_is_read_first)
{
	int64_t now_ns = BEGIN + SECOND;

	granted();
	lk__lease_moved(&lease, now_ns);
	ck_assert_int_eq(lk__lease_next(&lease, now_ns), LK__LEASE_READ);
	lk__lease_confirmed(&lease, now_ns, 7);
	round_at(now_ns, 7);
	ck_assert_int_eq(lk__lease_end_ns(&lease), now_ns + 6 * SECOND - 62 * MS);
}

TEST(confirmation_of_another_connection_does_not_count)
{
	int64_t now_ns = BEGIN + 2 * SECOND, valid_until;

	granted();
	valid_until = lk__lease_end_ns(&lease);
	ck_assert_int_eq(lk__lease_next(&lease, now_ns), LK__LEASE_KEEP_ALIVE);
	ck_assert(lk__lease_renewed(&lease, now_ns, 6));
	lk__lease_moved(&lease, now_ns);
	ck_assert_int_eq(lk__lease_next(&lease, now_ns), LK__LEASE_READ);
	lk__lease_confirmed(&lease, now_ns, 7);
	ck_assert_int_eq(lk__lease_end_ns(&lease), valid_until);
}

TEST(refused_step_is_repeated_after_the_pause)
{
	int64_t now_ns = BEGIN + 2 * SECOND;

	granted();
	ck_assert_int_eq(lk__lease_next(&lease, now_ns), LK__LEASE_KEEP_ALIVE);
	lk__lease_failed(&lease, now_ns, 50 * MS);
	ck_assert_int_eq(lk__lease_next(&lease, now_ns + 50 * MS - 1), LK__LEASE_REST);
	round_at(now_ns + 50 * MS, 7);
	ck_assert_int_eq(lk__lease_end_ns(&lease), now_ns + 50 * MS + 6 * SECOND - 62 * MS);
}

TEST(unknown_lease_is_over)
{
	granted();
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 2 * SECOND), LK__LEASE_KEEP_ALIVE);
	ck_assert(!lk__lease_renewed(&lease, BEGIN + 2 * SECOND, 0));
	ck_assert(!lk__lease_is_valid(&lease, BEGIN + 2 * SECOND));
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 3 * SECOND), LK__LEASE_REST);
}

TEST(lease_that_has_ended_is_never_believed_again)
{
	granted();
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 2 * SECOND), LK__LEASE_KEEP_ALIVE);
	ck_assert(!lk__lease_renewed(&lease, BEGIN + 6 * SECOND, 6));
	granted();
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 6 * SECOND), LK__LEASE_REST);
	granted();
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 2 * SECOND), LK__LEASE_KEEP_ALIVE);
	ck_assert(lk__lease_renewed(&lease, BEGIN + 2 * SECOND, 6));
	ck_assert_int_eq(lk__lease_next(&lease, BEGIN + 2 * SECOND), LK__LEASE_READ);
	lk__lease_confirmed(&lease, BEGIN + 6 * SECOND, 7);
	ck_assert(!lk__lease_is_valid(&lease, BEGIN + 6 * SECOND));
}
