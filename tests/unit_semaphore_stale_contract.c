/* SPDX-License-Identifier: MIT
 * The contract of a semaphore's scripts after a loss of the server's memory: holds that only an
 * older copy has make room for those that their clients take back. */
#include "contract_semaphore.h"

#include <stdio.h>

#define COUNTER "lk:fence"
#define MARKER "1 a+b 1700000000000000"
#define OTHER "1 c 1700000000000000"
#define GRACE_END "1700000010000000"
#define MARK " a+b 1700000000000000"
#define LAST "2:z:l1:60000:f:1" /* ends after all others */
#define RECLAIM(ticket, fence, permits)                                                            \
	"semaphore_reclaim", ticket, fence, "700", permits, "2", "60000"

/* The server's memory began now. */
static void start(void)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", MARKER);
	contract_epoch(MARKER, GRACE_END);
}

/* Both permits are in use in the copy; both holds have ended since. */
static void full_copy(void)
{
	start();
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(E));
	contract_epoch(MARKER, GRACE_END);
}

TEST(stale_hold_gives_way_to_one_that_is_taken_back)
{
	full_copy();
	contract_at(100);
	SAYS("held 7 1700000000100000 0", RECLAIM(C, "7", "1"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("1 7 700" MARK, "HGET", STATE, C);
	/* The one whose lease would have ended first. */
	SAYS("", "HGET", STATE, A);
	SAYS("1 1700000000000001 2000", "HGET", STATE, E);
	SAYS(C " 1700000000800000 " E " 1700000002000000", ALL_ENDS);
	SAYS("1700000000000001", "GET", COUNTER);
	contract_stop();
}

TEST(only_as_many_stale_holds_give_way_as_have_to)
{
	start();
	SAYS("set 3 0", OPEN("3"));
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	contract_epoch(MARKER, GRACE_END);
	SAYS("held 7 1700000000000000 0", RECLAIM(B, "7", "2"));
	SAYS("3", "HGET", STATE, "used");
	SAYS("1 1700000000000000 1000", "HGET", STATE, A);
	SAYS("held 8 1700000000000000 0", RECLAIM(C, "8", "1"));
	SAYS("", "HGET", STATE, A);
	SAYS("3", "HGET", STATE, "used");
	contract_stop();
}

TEST(several_stale_holds_give_way_to_one_with_many_permits)
{
	full_copy();
	SAYS("held 7 1700000000000000 0", RECLAIM(B, "7", "2"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, A);
	SAYS("", "HGET", STATE, E);
	SAYS(B " 1700000000700000", ALL_ENDS);
	contract_stop();
}

/* Its owner comes later: it was no stale one. */
TEST(hold_that_gave_way_is_taken_back_by_its_owner)
{
	full_copy();
	SAYS("held 7 1700000000000000 0", RECLAIM(C, "7", "1"));
	SAYS("", "HGET", STATE, A);
	KEEPS("gone", "semaphore_renew", A, "1700000000000000", "3000");
	SAYS("held 1700000000000000 1700000000000000 0", RECLAIM(A, "1700000000000000", "1"));
	SAYS("", "HGET", STATE, E);
	SAYS("2", "HGET", STATE, "used");
	/* Now all permits are those of holds that were taken back. */
	SAYS("gone", RECLAIM(E, "1700000000000001", "1"));
	SAYS("1 7 700" MARK, "HGET", STATE, C);
	SAYS("1 1700000000000000 700" MARK, "HGET", STATE, A);
	SAYS("left 0 0 0", LEAVE(E));
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}

TEST(hold_that_the_copy_has_is_marked_when_it_is_taken_back)
{
	full_copy();
	SAYS("held 1700000000000000 1700000000000000 0", RECLAIM(A, "1700000000000000", "1"));
	SAYS("1 1700000000000000 1000" MARK, "HGET", STATE, A);
	SAYS("held 7 1700000000000000 0", RECLAIM(C, "7", "1"));
	SAYS("", "HGET", STATE, E);
	SAYS("held 1700000000000000 1700000000000000 0", RECLAIM(A, "1700000000000000", "1"));
	SAYS("gone", RECLAIM(E, "1700000000000001", "1"));
	contract_stop();
}

/* Nothing gives way in vain. */
TEST(stale_holds_stay_if_too_few_permits_are_theirs)
{
	full_copy();
	SAYS("held 7 1700000000000000 0", RECLAIM(C, "7", "1"));
	SAYS("gone", RECLAIM(B, "8", "2"));
	SAYS("1 1700000000000001 2000", "HGET", STATE, E);
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}

TEST(partial_release_and_extension_keep_the_mark)
{
	full_copy();
	SAYS("held 7 1700000000000000 0", RECLAIM(B, "7", "2"));
	SAYS("left 1 0 1", KEEP(B, "1"));
	SAYS("1 7 700" MARK, "HGET", STATE, B);
	SAYS("held 7 1700000000000000 0", "semaphore_renew", B, "7", "3000");
	SAYS("1 7 3000" MARK, "HGET", STATE, B);
	SAYS("gone", RECLAIM(BIG, "8", "2"));
	SAYS("1 7 3000" MARK, "HGET", STATE, B);
	contract_stop();
}

/* A copy brings the mark along. */
TEST(mark_of_an_earlier_memory_protects_nothing)
{
	start();
	SAYS("held 7 1700000000000000 0", RECLAIM(B, "7", "2"));
	SAYS("OK", "SET", "lk:epoch", OTHER);
	contract_epoch(OTHER, GRACE_END);
	SAYS("held 8 1700000000000000 0", RECLAIM(A, "8", "1"));
	SAYS("", "HGET", STATE, B);
	SAYS("1 8 700 c 1700000000000000", "HGET", STATE, A);
	SAYS("1", "HGET", STATE, "used");
	contract_stop();
}

/* Nobody takes such permits back, so they count until their leases end. */
TEST(permits_that_are_never_released_do_not_give_way)
{
	start();
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(N));
	contract_epoch(MARKER, GRACE_END);
	SAYS("gone", RECLAIM(B, "7", "2"));
	SAYS("1", "HGET", STATE, "used");
	SAYS("held 8 1700000000000000 0", RECLAIM(A, "8", "1"));
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}

/* The clock was set back into the grace: what was granted after it is valid. */
TEST(grant_after_the_grace_does_not_give_way)
{
	start();
	contract_at(10000);
	SAYS("granted 1700000010000000 1700000010000000 0 0", ASK(B));
	contract_at(9999);
	SAYS("gone", RECLAIM(A, "8", "1"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("2 1700000010000000 2000", "HGET", STATE, B);
	contract_stop();
}

/* Behind many holds that do not give way. */
TEST(stale_hold_is_found_among_many)
{
	char ticket[40];

	start();
	SAYS("set 151 0", OPEN("151"));
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(LAST));
	contract_epoch(MARKER, GRACE_END);
	for (int i = 0; i < 150; i++) {
		snprintf(ticket, sizeof(ticket), "2:z:n%d:700:r:1", i);
		SAYS("held 5 1700000000000000 0", "semaphore_reclaim", ticket, "5", "700", "1",
		     "151", "60000");
	}
	SAYS("151", "HGET", STATE, "used");
	SAYS("held 6 1700000000000000 0", RECLAIM(A, "6", "1"));
	SAYS("", "HGET", STATE, LAST);
	SAYS("151", "HGET", STATE, "used");
	SAYS("gone", RECLAIM(B, "6", "2"));
	contract_stop();
}

/* At the source of a slot that is being moved, a key that a script has deleted is no longer there
 * for it: the ends, with their last member. */
TEST(key_that_the_run_deletes_is_not_used_again)
{
	full_copy();
	contract_refuse("ZREM", ENDS);
	SAYS(TORN_BY_RIGHT, RECLAIM(B, "7", "2"));
	SAYS("1700000000700000", "ZSCORE", ENDS, B);
	contract_refuse(NULL, NULL);
	SAYS("held 7 1700000000000000 0", RECLAIM(B, "7", "2"));
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
	full_copy();
	SAYS("set 1 0", RESIZE("1"));
	contract_at(2000);
	contract_refuse("PEXPIRE", ENDS);
	SAYS("gone", RECLAIM(B, "7", "2"));
	SAYS("0", "EXISTS", ENDS);
	contract_stop();
}

TEST(full_server_confirms_a_hold_and_lets_another_give_way)
{
	full_copy();
	contract_full(true);
	SAYS("held 1700000000000000 1700000000000000 0", RECLAIM(A, "1700000000000000", "1"));
	SAYS("held 7 1700000000000000 0", RECLAIM(C, "7", "1"));
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}
