/* SPDX-License-Identifier: MIT
 * The contract of a semaphore's scripts after a loss of the server's memory: the grace, taking back
 * what is valid, and requests that are for another memory. */
#include "contract_semaphore.h"

#define COUNTER "lk:fence"
#define MARKER "1 a+b 1700000000000000"
#define OTHER "1 c 1700000000000000"
#define GRACE_END "1700000010000000"
#define MARK " a+b 1700000000000000"
#define CLAIM(ticket) "semaphore_renew", ticket, "0", "3000"
#define RECLAIM(ticket, fence, permits)                                                            \
	"semaphore_reclaim", ticket, fence, "700", permits, "2", "60000"

/* The server's memory began now. */
static void start(void)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", MARKER);
	contract_epoch(MARKER, GRACE_END);
}

/* The grace is over; then it begins anew: what was granted is of an older memory. */
static void granted_before(const char *ticket)
{
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(ticket));
	contract_epoch(MARKER, GRACE_END);
}

/* ---- Nothing new is granted --------------------------------------------------------------------
 */

TEST(free_permits_are_not_granted_in_the_grace)
{
	start();
	SAYS("busy 0 10000", TRY(A));
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("queued 1700000000000001 1 10000 0 10000", ASK(B));
	SAYS("0", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, A);
	contract_at(9999);
	SAYS("queued 1700000000000000 0 1 0 1", ASK(A));
	SAYS("busy 0 1", TRY(E));
	contract_at(10000);
	SAYS("granted 1700000010000000 1700000010000000 1 0 | b again 2:b:n1:2000:r:2 1000",
	     ASK(A));
	contract_stop();
}

TEST(waiter_hears_of_the_lease_if_it_ends_after_the_grace)
{
	start();
	contract_epoch(MARKER, "1700000000500000");
	SAYS("held 5 1700000000000000 0", "semaphore_reclaim", C, "5", "8000", "2", "2", "60000");
	SAYS("queued 1700000000000000 0 8000 0 500", ASK(A));
	SAYS("busy 0 500", TRY(E));
	contract_stop();
}

TEST(own_ask_finds_no_grant_of_an_older_memory_in_the_grace)
{
	start();
	granted_before(A);
	KEEPS("busy 0 10000", TRY(A));
	KEEPS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	KEEPS("queued 1600000000000000 0 10000 0 10000", "semaphore_ask", A, "1",
	      "1600000000000000", REST);
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	contract_stop();
}

/* The end of a hold is no grant: the ticket waits like others. */
TEST(own_ask_after_the_end_of_its_hold_waits_in_the_grace)
{
	start();
	granted_before(A);
	contract_at(1000);
	SAYS("queued 1700000001000000 0 9000 0 9000", ASK(A));
	SAYS("0", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, A);
	contract_stop();
}

TEST(ask_for_too_many_serves_nobody_in_the_grace)
{
	start();
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("limit 2", ASK(BIG));
	SAYS(A " 1700000000000000", ALL_QUEUE);
	contract_epoch(MARKER, "0");
	SAYS("limit 2 | a grant 2:a:n1:1000:r:1 1700000000000000 1000 0 0 1700000000000000",
	     ASK(BIG));
	contract_stop();
}

TEST(ask_of_others_serves_nobody_in_the_grace)
{
	start();
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("queued 1700000000000001 1 10000 0 10000", ASK(B));
	SAYS("busy 0 10000", TRY(C));
	SAYS("0", "ZCARD", ENDS);
	contract_stop();
}

/* ---- A claim, a leave, a new capacity ----------------------------------------------------------
 */

TEST(claim_in_the_grace_finds_nothing)
{
	start();
	granted_before(A);
	KEEPS("gone", CLAIM(A));
	contract_epoch(MARKER, "0");
	SAYS("held 1700000000000000 1700000000000000 0", CLAIM(A));
	contract_stop();
}

TEST(renewal_does_not_look_at_the_memory)
{
	start();
	granted_before(A);
	contract_epoch(OTHER, GRACE_END);
	SAYS("held 1700000000000000 1700000000000000 0", "semaphore_renew", A, "1700000000000000",
	     "3000");
	KEEPS("gone", "semaphore_renew", A, "1700000000000001", "3000");
	contract_stop();
}

TEST(leave_serves_nobody_in_the_grace)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "2"));
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
	SAYS("left 1 0 0", KEEP(A, "1"));
	SAYS("1", "HGET", STATE, "used");
	SAYS("left 1 0 0", LEAVE(A));
	SAYS("left 0 0 0", LEAVE(""));
	SAYS(B " 1700000000000000", ALL_QUEUE);
	SAYS("0", "HGET", STATE, "used");
	contract_at(10000);
	SAYS("left 0 0 0 | b grant 2:b:n1:2000:r:2 1700000010000000 1000 1 0 1700000010000000",
	     LEAVE(""));
	contract_stop();
}

TEST(leave_for_another_memory_serves_nobody)
{
	start();
	granted_before(A);
	contract_epoch(MARKER, "0");
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	contract_epoch(OTHER, "0");
	SAYS("left 1 1 0", LEAVE(A));
	SAYS("0", "HGET", STATE, "used");
	SAYS("epoch", LEAVE(""));
	SAYS("left 0 1 0", LEAVE(A));
	SAYS(B " 1700000000000000", ALL_QUEUE);
	SAYS("left 0 0 1", LEAVE(B));
	SAYS("left 0 0 1", LEAVE("")); /* it serves nobody, and does not read the marker */
	contract_stop();
}

TEST(capacity_is_set_in_the_grace_but_serves_nobody)
{
	start();
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("set 5 0", RESIZE("5"));
	SAYS("set 5 0", OPEN("5"));
	SAYS("5", "HGET", STATE, "capacity");
	SAYS(A " 1700000000000000", ALL_QUEUE);
	contract_epoch(MARKER, "0");
	SAYS("set 6 0 | a grant 2:a:n1:1000:r:1 1700000000000000 1000 0 0 1700000000000000",
	     RESIZE("6"));
	contract_stop();
}

/* ---- Another memory ----------------------------------------------------------------------------
 */

TEST(request_for_another_memory_changes_nothing)
{
	start();
	granted_before(A);
	contract_epoch(OTHER, "0");
	for (int i = 0; i < 2; i++) {
		KEEPS("epoch", ASK(A));
		KEEPS("epoch", ASK(B));
		KEEPS("epoch", TRY(B));
		KEEPS("epoch", CLAIM(A));
		KEEPS("epoch", OPEN("2"));
		KEEPS("epoch", OPEN("9"));
		KEEPS("epoch", RESIZE("3"));
		KEEPS("epoch", RECLAIM(A, "1700000000000000", "1"));
		SAYS(i ? "0" : "1", "DEL", "lk:epoch");
	}
	contract_stop();
}

/* ---- Taking a hold back ------------------------------------------------------------------------
 */

TEST(forgotten_hold_is_taken_back_with_its_semaphore)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(B, "5", "1")); /* it has released one of two */
	SAYS("1 5 700" MARK, "HGET", STATE, B);
	SAYS("2:semaphore", "HGET", STATE, "kind");
	SAYS("2", "HGET", STATE, "capacity");
	SAYS("1", "HGET", STATE, "used");
	SAYS("60000", "HGET", STATE, "ttl");
	SAYS("60000", "PTTL", STATE);
	SAYS(B " 1700000000700000", ALL_ENDS);
	SAYS("60000", "PTTL", ENDS);
	SAYS("5", "GET", COUNTER);
	SAYS("held 6 1700000000000000 0", RECLAIM(A, "6", "1"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("6", "GET", COUNTER);
	contract_stop();
}

TEST(hold_that_is_taken_back_twice_counts_once)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(B, "5", "2"));
	contract_at(300);
	SAYS("held 5 1700000000300000 0", RECLAIM(B, "5", "2"));
	SAYS("2", "HGET", STATE, "used");
	SAYS(B " 1700000001000000", ALL_ENDS);
	SAYS("held 5 1700000000300000 0", "semaphore_reclaim", B, "5", "100", "2", "2", "60000");
	SAYS(B " 1700000001000000", ALL_ENDS);                   /* never shorter */
	SAYS("held 5 1700000000300000 0", RECLAIM(B, "5", "1")); /* the client's count is newer */
	SAYS("1", "HGET", STATE, "used");
	SAYS("1 5 700" MARK, "HGET", STATE, B);
	contract_stop();
}

/* The reclaim arrives twice, the second time behind a partial release. */
TEST(late_repetition_does_not_undo_a_partial_release)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(B, "5", "2"));
	SAYS("left 1 0 1", "semaphore_leave", B, "1", "lk:c:0:", "0", "21000");
	SAYS("held 5 1700000000000000 0", RECLAIM(B, "5", "2"));
	SAYS("1", "HGET", STATE, "used");
	contract_stop();
}

TEST(no_more_permits_are_taken_back_than_there_are)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("gone", RECLAIM(B, "6", "2"));
	SAYS("1", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, B);
	SAYS("5", "GET", COUNTER);
	/* The lease of the other one ends. */
	contract_at(700);
	SAYS("held 6 1700000000700000 0", RECLAIM(B, "6", "2"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, A);
	/* A copy has a smaller capacity. */
	SAYS("set 1 0", RESIZE("1"));
	SAYS("held 6 1700000000700000 0", RECLAIM(B, "6", "2")); /* it has them already */
	SAYS("gone", RECLAIM(A, "5", "1"));
	contract_stop();
}

TEST(reclaim_that_fails_drops_an_earlier_grant_to_its_ticket)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("held 6 1700000000000000 0", RECLAIM(B, "6", "1"));
	SAYS("gone", RECLAIM(B, "7", "2"));
	SAYS("", "HGET", STATE, B);
	SAYS("1", "HGET", STATE, "used");
	SAYS(A " 1700000000700000", ALL_ENDS);
	contract_stop();
}

TEST(reclaim_that_fails_still_drops_expired_holds)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("held 6 1700000000000000 0", "semaphore_reclaim", E, "6", "2000", "1", "2", "60000");
	contract_at(700);
	SAYS("gone", RECLAIM(B, "7", "2"));
	SAYS("1", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, A);
	SAYS(E " 1700000002000000", ALL_ENDS);
	SAYS("60000", "PTTL", STATE);
	contract_stop();
}

/* The ends vanish with it.  In a slot that moves, a key that the run has removed is not used. */
TEST(reclaim_that_fails_drops_the_last_hold_that_has_expired)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("1", "ZADD", QUEUE, "1700000000000000", E);
	contract_at(700);
	SAYS("gone", RECLAIM(B, "7", "3"));
	ck_assert(contract_moved());
	SAYS("0", "HGET", STATE, "used");
	SAYS("0", "EXISTS", ENDS);
	SAYS("60000", "PTTL", STATE);
	contract_stop();
}

TEST(nothing_is_taken_back_after_the_grace)
{
	start();
	contract_at(10000);
	KEEPS("gone", RECLAIM(A, "5", "1"));
	SAYS("set 2 0", OPEN("2"));
	KEEPS("gone", RECLAIM(A, "5", "1"));
	SAYS("granted 1700000010000000 1700000010000000 0 0", ASK(A));
	KEEPS("gone", RECLAIM(A, "5", "1"));
	SAYS("held 1700000010000000 1700000010000000 0", RECLAIM(A, "1700000010000000", "1"));
	contract_at(11000); /* its lease is over */
	KEEPS("gone", RECLAIM(A, "1700000010000000", "1"));
	contract_stop();
}

/* A copy has an earlier grant to the ticket, or one that is over. */
TEST(other_grant_to_the_same_ticket_is_replaced)
{
	start();
	granted_before(B);
	SAYS("held 1700000000000007 1700000000000000 0", RECLAIM(B, "1700000000000007", "1"));
	SAYS("1 1700000000000007 700" MARK, "HGET", STATE, B);
	SAYS("1", "HGET", STATE, "used");
	contract_at(700);
	SAYS("held 1700000000000007 1700000000700000 0", RECLAIM(B, "1700000000000007", "2"));
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}

TEST(counter_never_goes_back)
{
	start();
	SAYS("OK", "SET", COUNTER, "9");
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("9", "GET", COUNTER);
	SAYS("held 12 1700000000000000 0", RECLAIM(E, "12", "1"));
	SAYS("12", "GET", COUNTER);
	SAYS("left 1 0 1", LEAVE(A));
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(C));
	contract_stop();
}

TEST(ticket_that_is_taken_back_leaves_the_queue)
{
	start();
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("queued 1700000000000001 1 10000 0 10000", ASK(B));
	SAYS("held 5 1700000000000000 1", RECLAIM(A, "5", "1"));
	SAYS(B " 1700000000000001", ALL_QUEUE);
	contract_stop();
}

/* An eviction took one of the keys. */
TEST(torn_semaphore_is_mended_first)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "2"));
	SAYS("1", "DEL", ENDS);
	SAYS("held 6 1700000000000000 0", RECLAIM(B, "6", "2"));
	SAYS("", "HGET", STATE, A);
	SAYS("2", "HGET", STATE, "used");
	SAYS("1", "DEL", ENDS);
	SAYS("held 6 1700000000000000 0", RECLAIM(B, "6", "2"));
	SAYS("1", "DEL", STATE);
	SAYS("held 6 1700000000000000 0", RECLAIM(B, "6", "2"));
	SAYS("2", "HGET", STATE, "used");
	SAYS(B " 1700000000700000", ALL_ENDS);
	contract_stop();
}

TEST(expired_holds_of_a_copy_make_room)
{
	start();
	granted_before(A);
	contract_at(1000);
	SAYS("held 5 1700000001000000 0", RECLAIM(B, "5", "2"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("", "HGET", STATE, A);
	contract_stop();
}

/* ---- Errors ------------------------------------------------------------------------------------
 */

TEST(what_is_not_a_semaphore_is_not_taken)
{
	start();
	SAYS("OK", "SET", STATE, "x");
	KEEPS("foreign lk:{n} not a semaphore", RECLAIM(A, "5", "1"));
	SAYS("1", "DEL", STATE);
	SAYS("1", "HSET", STATE, "kind", "1:latch");
	KEEPS("foreign lk:{n} a latch, not a semaphore", RECLAIM(A, "5", "1"));
	SAYS("0", "HSET", STATE, "kind", "1:semaphore");
	KEEPS("foreign lk:{n} protocol version 1", RECLAIM(A, "5", "1"));
	SAYS("1", "DEL", STATE);
	SAYS("OK", "SET", COUNTER, "x");
	KEEPS("fence not a number", RECLAIM(A, "5", "1"));
	SAYS("OK", "SET", COUNTER, "9007199254740991");
	KEEPS("fence used up", RECLAIM(A, "5", "1"));
	SAYS("1", "DEL", COUNTER);
	SAYS("1", "HSET", COUNTER, "f", "v");
	KEEPS("foreign lk:fence not a string", RECLAIM(A, "5", "1"));
	contract_stop();
}

TEST(full_server_takes_no_new_semaphore_back)
{
	start();
	contract_full(true);
	KEEPS(FULL, RECLAIM(A, "5", "1"));
	contract_stop();
}

TEST(command_without_a_right_takes_nothing_back)
{
	start();
	contract_refuse("GET", NULL);
	KEEPS(NO_RIGHT, RECLAIM(A, "5", "1"));
	contract_refuse("GET", "lk:epoch");
	KEEPS(NO_RIGHT, RECLAIM(A, "5", "1"));
	KEEPS(NO_RIGHT, ASK(A));
	KEEPS(NO_RIGHT, CLAIM(A));
	KEEPS(NO_RIGHT, OPEN("2"));
	contract_refuse("HSET", NULL);
	KEEPS(NO_RIGHT, RECLAIM(A, "5", "1"));
	contract_refuse("ZADD", NULL);
	SAYS(TORN_BY_RIGHT, RECLAIM(A, "5", "1"));
	contract_refuse(NULL, NULL);
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("1", "HGET", STATE, "used");
	contract_stop();
}

/* The reclaim arrives twice, the second time behind an extension. */
TEST(late_repetition_does_not_undo_an_extension)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("held 5 1700000000000000 0", "semaphore_renew", A, "5", "60000");
	SAYS("1700000060000000", "ZSCORE", "lk:{n}:h", A);
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5", "1"));
	SAYS("1700000060000000", "ZSCORE", "lk:{n}:h", A);
	SAYS("busy 0 10000", TRY(B));
	SAYS("1700000060000000", "ZSCORE", "lk:{n}:h", A);
	contract_stop();
}
