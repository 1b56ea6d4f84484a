/* SPDX-License-Identifier: MIT
 * The contract of a lock's scripts after a loss of the server's memory: the grace, taking back what
 * is valid, and requests that are for another memory. */
#include "contract.h"

#define A "2:a:n1:1000:r"
#define B "2:b:n1:2000:r"
#define C "2:c:n1:8000:f"
#define LOCK "lk:{n}"
#define QUEUE "lk:{n}:q"
#define COUNTER "lk:fence"
#define MARKER "1 a+b 1700000000000000"
#define MARK " a+b 1700000000000000"
#define OTHER "1 c 1700000000000000"
#define ENDS "1700000010000000" /* of the grace */
#define ASK(ticket) "lock_ask", ticket, "1", "0", "lk:c:0:", "-", "30000"
#define TRY(ticket) "lock_ask", ticket, "0", "0", "lk:c:0:", "-", "30000"
#define LEAVE(ticket) "lock_leave", ticket, "0", "lk:c:0:", "0"
#define CLAIM(ticket) "lock_renew", ticket, "0", "3000", "0", "-"
#define RENEW(ticket, fence) "lock_renew", ticket, fence, "3000", "0", "-"
#define RECLAIM(ticket, fence) "lock_reclaim", ticket, fence, "700", fence, "-"
#define ALL_QUEUE "ZRANGE", QUEUE, "0", "-1"

/* The server's memory began now. */
static void start(void)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", MARKER);
	contract_epoch(MARKER, ENDS);
}

/* What an older memory granted, as a copy has it. */
static void copy(const char *value)
{
	SAYS("OK", "SET", LOCK, value, "PX", "5000");
}

/* ---- Nothing new is granted --------------------------------------------------------------------
 */

TEST(free_lock_is_not_granted_in_the_grace)
{
	start();
	KEEPS("busy 0 10000", TRY(A));
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("0", "EXISTS", LOCK);
	SAYS("0", "EXISTS", COUNTER);
	contract_at(9999);
	SAYS("queued 1700000000000000 0 1 0 1", ASK(A));
	KEEPS("busy 0 1", TRY(B));
	contract_at(10000);
	KEEPS("busy 1", TRY(B));
	SAYS("granted 1700000010000000 1700000010000000 0", ASK(A));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(waiter_hears_of_the_lease_if_it_ends_after_the_grace)
{
	start();
	copy(C " 5 8000 -");
	SAYS("1", "PEXPIRE", LOCK, "8000");
	contract_at(4000);
	SAYS("queued 1700000004000000 0 6000 0 6000", ASK(A));
	contract_epoch(MARKER, "1700000006500000");
	SAYS("queued 1700000004000000 0 4000 0 2500", ASK(A));
	KEEPS("busy 0 2500", TRY(B));
	contract_stop();
}

/* The old master may have given the lock to another since. */
TEST(own_ask_finds_no_grant_of_an_older_memory_in_the_grace)
{
	start();
	copy(A " 5 1000 -");
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS(A " 5 1000 -", "GET", LOCK);
	SAYS("1000", "PTTL", LOCK);
	copy(A " 5 1000 - c 1700000000000000"); /* reclaimed in another memory */
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	contract_at(10000);
	copy(A " 5 1000 -");
	SAYS("granted 5 1700000010000000 0", ASK(A));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(own_ask_finds_a_grant_of_this_memory_in_the_grace)
{
	start();
	copy(A " 5 1000 -" MARK);
	SAYS("1", "PEXPIRE", LOCK, "10");
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
	SAYS("granted 5 1700000000000000 1", ASK(A));
	SAYS("1000", "PTTL", LOCK);
	contract_stop();
}

/* ---- A claim -----------------------------------------------------------------------------------
 */

TEST(claim_in_the_grace_finds_no_grant_of_an_older_memory)
{
	start();
	copy(A " 5 1000 -");
	KEEPS("gone", CLAIM(A));
	copy(A " 5 1000 - a+b 1699999999999999");
	KEEPS("gone", CLAIM(A));
	contract_at(10000);
	copy(A " 5 1000 -");
	SAYS("held 5 1700000010000000 0", CLAIM(A));
	contract_stop();
}

TEST(claim_in_the_grace_finds_a_grant_of_this_memory)
{
	start();
	copy(A " 5 1000 -" MARK);
	SAYS("held 5 1700000000000000 0", CLAIM(A));
	SAYS(A " 5 3000 -" MARK, "GET", LOCK);
	SAYS("5000", "PTTL", LOCK);
	contract_stop();
}

/* Whoever renews holds by its own clock. */
TEST(renewal_does_not_look_at_the_memory)
{
	start();
	copy(A " 5 1000 -");
	SAYS("held 5 1700000000000000 0", RENEW(A, "5"));
	contract_epoch(OTHER, ENDS);
	SAYS("held 5 1700000000000000 0", "lock_renew", A, "5", "6000", "0", "s");
	SAYS(A " 5 6000 s", "GET", LOCK);
	KEEPS("gone", RENEW(A, "6"));
	contract_stop();
}

TEST(renewal_keeps_the_mark)
{
	start();
	copy(A " 5 1000 -" MARK);
	SAYS("held 5 1700000000000000 0", "lock_renew", A, "5", "6000", "0", "s");
	SAYS(A " 5 6000 s" MARK, "GET", LOCK);
	contract_stop();
}

/* ---- A leave -----------------------------------------------------------------------------------
 */

TEST(leave_of_a_reclaimed_hold_serves_in_the_grace)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
	SAYS("queued 1700000000000001 1 10000 0 10000", ASK(C));
	SAYS("left 1 0 0 | b grant 2:b:n1:2000:r 1700000000000000 2000 0 1 1700000000000000",
	     LEAVE(A));
	/* It is a grant of this memory: its leave serves, too. */
	SAYS(B " 1700000000000000 2000 -" MARK, "GET", LOCK);
	SAYS("held 1700000000000000 1700000000000000 1", CLAIM(B));
	contract_at(1);
	SAYS("left 1 0 0 | c grant 2:c:n1:8000:f 1700000000001000 8000 0 0 1700000000001000",
	     LEAVE(B));
	SAYS(C " 1700000000001000 8000 -" MARK, "GET", LOCK);
	contract_stop();
}

TEST(leave_of_an_older_hold_serves_nobody_in_the_grace)
{
	start();
	copy(A " 5 1000 -");
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
	SAYS("left 1 0 0", LEAVE(A));
	SAYS("0", "EXISTS", LOCK);
	SAYS(B, ALL_QUEUE);
	copy(A " 5 1000 - c 1700000000000000");
	SAYS("left 1 0 0", LEAVE(A));
	KEEPS("left 0 0 0", LEAVE(A));
	KEEPS("left 0 0 0", LEAVE(""));
	contract_at(10000);
	SAYS("left 0 0 0 | b grant 2:b:n1:2000:r 1700000010000000 1000 1 0 1700000010000000",
	     LEAVE(""));
	SAYS(B " 1700000010000000 2000 -", "GET", LOCK);
	contract_stop();
}

TEST(cancel_in_the_grace_leaves_the_queue)
{
	start();
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
	SAYS("left 0 0 1", LEAVE(B));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

/* A ticket always leaves; others are served by the next leave, which knows the memory. */
TEST(leave_for_another_memory_serves_nobody)
{
	start();
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	contract_epoch(OTHER, "0");
	SAYS("left 1 1 0", LEAVE(A));
	SAYS("0", "EXISTS", LOCK);
	SAYS(B, ALL_QUEUE);
	KEEPS("epoch", LEAVE(""));
	KEEPS("left 0 1 0", LEAVE(A));
	SAYS("1", "DEL", "lk:epoch");
	KEEPS("epoch", LEAVE(""));
	SAYS("left 0 0 1", LEAVE(B)); /* it serves nobody, and does not read the marker */
	contract_stop();
}

TEST(leave_for_another_memory_reports_its_fences)
{
	start();
	contract_epoch(MARKER, "0");
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	contract_epoch(OTHER, "0");
	SAYS("left 1 1 0", "lock_leave", A, "1700000000000077", "lk:c:0:", "0");
	SAYS("1700000000000077", "GET", COUNTER);
	contract_stop();
}

/* ---- Another memory ----------------------------------------------------------------------------
 */

TEST(request_for_another_memory_changes_nothing)
{
	start();
	copy(A " 5 1000 -" MARK);
	contract_epoch(OTHER, "0");
	for (int i = 0; i < 2; i++) {
		KEEPS("epoch", ASK(A));
		KEEPS("epoch", ASK(B));
		KEEPS("epoch", TRY(B));
		KEEPS("epoch", CLAIM(A));
		KEEPS("epoch", RECLAIM(A, "5"));
		SAYS(i ? "0" : "1", "DEL", "lk:epoch");
	}
	contract_stop();
}

/* ---- Taking a hold back ------------------------------------------------------------------------
 */

TEST(forgotten_hold_is_taken_back)
{
	start();
	SAYS("held 5 1700000000000000 0", "lock_reclaim", A, "5", "700", "9", "s");
	SAYS(A " 5 700 s" MARK, "GET", LOCK);
	SAYS("700", "PTTL", LOCK);
	SAYS("9", "GET", COUNTER);
	contract_at(300);
	SAYS("held 5 1700000000300000 0", "lock_reclaim", A, "5", "700", "9", "s");
	SAYS("700", "PTTL", LOCK);
	contract_at(9999);
	SAYS("0", "EXISTS", LOCK);
	SAYS("held 5 1700000009999000 0", RECLAIM(A, "5"));
	contract_stop();
}

/* A repeated call may come after an extension. */
TEST(hold_that_is_taken_back_is_never_shorter)
{
	start();
	copy(A " 5 5000 -");
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS("5000", "PTTL", LOCK);
	SAYS("held 5 1700000000000000 0", "lock_reclaim", A, "5", "5001", "5", "-");
	SAYS("5001", "PTTL", LOCK);
	contract_stop();
}

/* Others may hold it since: their fences are greater. */
TEST(nothing_is_taken_back_after_the_grace)
{
	start();
	contract_at(10000);
	KEEPS("gone", RECLAIM(A, "5"));
	copy(B " 4 2000 -");
	KEEPS("gone", RECLAIM(A, "5"));
	copy(A " 5 1000 -"); /* but it is held, all the time */
	SAYS("held 5 1700000010000000 0", RECLAIM(A, "5"));
	SAYS(A " 5 1000 -" MARK, "GET", LOCK); /* the lease in force stays */
	contract_stop();
}

TEST(greater_fence_wins)
{
	start();
	copy(B " 4 2000 -" MARK);
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS(A " 5 700 -" MARK, "GET", LOCK);
	SAYS("700", "PTTL", LOCK);
	KEEPS("gone", RECLAIM(B, "4"));
	KEEPS("gone", RECLAIM(B, "5"));
	copy(C " 1700000000000000 8000 -");
	KEEPS("gone", RECLAIM(A, "1699999999999999"));
	KEEPS("gone", RECLAIM(A, "99999"));
	contract_stop();
}

/* The copy has a grant to the ticket that had expired before its later one. */
TEST(earlier_grant_to_the_same_ticket_is_taken)
{
	start();
	copy(A " 4 1000 -");
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS(A " 5 700 -" MARK, "GET", LOCK);
	contract_stop();
}

/* The ticket was granted again in this memory, by an ask that came late. */
TEST(later_grant_to_the_same_ticket_is_not_taken)
{
	start();
	copy(A " 6 1000 -");
	KEEPS("gone", RECLAIM(A, "5"));
	contract_stop();
}

TEST(counter_never_goes_back_and_is_left_alone_when_damaged)
{
	static const char *const values[] = {"10", "1700000000000000", "x", "12345678901234567",
	                                     "-5"};

	start();
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		SAYS("OK", "SET", COUNTER, values[i]);
		SAYS("held 5 1700000000000000 0", "lock_reclaim", A, "5", "700", "9", "-");
		SAYS(values[i], "GET", COUNTER);
	}
	SAYS("OK", "SET", COUNTER, "8");
	SAYS("held 5 1700000000000000 0", "lock_reclaim", A, "5", "700", "9", "-");
	SAYS("9", "GET", COUNTER);
	SAYS("1", "DEL", COUNTER);
	SAYS("1", "HSET", COUNTER, "f", "v");
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	contract_stop();
}

/* Its last ask came late, into the new memory. */
TEST(ticket_that_is_taken_back_leaves_the_queue)
{
	start();
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(A));
	SAYS("queued 1700000000000001 1 10000 0 10000", ASK(B));
	SAYS("held 5 1700000000000000 1", RECLAIM(A, "5"));
	SAYS(B, ALL_QUEUE);
	SAYS("held 5 1700000000000000 1", RECLAIM(A, "5"));
	SAYS("1", "DEL", QUEUE);
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	contract_stop();
}

TEST(holder_that_is_back_hears_of_the_first_waiter)
{
	start();
	SAYS("held 5 1700000000000000 0", "lock_reclaim", A, "5", "700", "5", "s");
	SAYS("queued 1700000000000000 0 10000 0 10000 | a wanted " A, ASK(B));
	contract_stop();
}

TEST(what_is_not_a_lock_is_not_taken)
{
	start();
	copy("x");
	KEEPS("foreign lk:{n} not a lock", RECLAIM(A, "5"));
	copy("1:a:n1:1000:r 4 1000 -");
	KEEPS("foreign lk:{n} not a lock", RECLAIM(A, "5"));
	copy(B " 4 2000 - a b c");
	KEEPS("foreign lk:{n} not a lock", RECLAIM(A, "5"));
	SAYS("1", "DEL", LOCK);
	SAYS("1", "HSET", LOCK, "kind", "1:latch");
	KEEPS("foreign lk:{n} a latch, not a lock", RECLAIM(A, "5"));
	contract_stop();
}

/* Without INFO the id is "-"; a quorum's marker has a part in brackets, which the mark has not. */
TEST(mark_is_the_memorys_id_and_begin)
{
	static const struct {
		const char *marker, *value;
	} rows[] = {
		{"1 - 1700000000000000", A " 5 700 - - 1700000000000000"},
		{"1 a 7", A " 5 700 - a 7"},
		{"1 a+b 1700000000000000 [s 1/3 9]", A " 5 700 -" MARK},
	};

	start();
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		SAYS("OK", "SET", "lk:epoch", rows[i].marker);
		contract_epoch(rows[i].marker, ENDS);
		SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
		SAYS(rows[i].value, "GET", LOCK);
		SAYS("granted 5 1700000000000000 0", ASK(A));
		SAYS("held 5 1700000000000000 0", CLAIM(A));
		SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
		SAYS("left 1 0 0 | b grant 2:b:n1:2000:r 1700000000000000 2000 0 0 "
		     "1700000000000000",
		     LEAVE(A));
		SAYS("left 1 0 1", LEAVE(B));
		SAYS("1", "DEL", COUNTER);
	}
	contract_stop();
}

/* ---- Errors ------------------------------------------------------------------------------------
 */

TEST(full_server_takes_a_hold_back)
{
	start();
	contract_full(true);
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	contract_stop();
}

TEST(command_without_a_right_takes_nothing_back)
{
	start();
	contract_refuse("GET", NULL);
	KEEPS(NO_RIGHT, RECLAIM(A, "5"));
	contract_refuse("GET", LOCK);
	KEEPS(NO_RIGHT, RECLAIM(A, "5"));
	KEEPS(NO_RIGHT, ASK(A));
	KEEPS(NO_RIGHT, LEAVE(A));
	KEEPS(NO_RIGHT, RENEW(A, "5"));
	contract_refuse("GET", "lk:epoch");
	KEEPS(NO_RIGHT, RECLAIM(A, "5"));
	KEEPS(NO_RIGHT, ASK(A));
	KEEPS(NO_RIGHT, CLAIM(A));
	contract_refuse("SET", NULL);
	KEEPS(TORN_BY_RIGHT, RECLAIM(A, "5"));
	contract_refuse("SET", COUNTER);
	SAYS(TORN_BY_RIGHT, RECLAIM(A, "5"));
	contract_stop();
}

/* The ticket is out by then. */
TEST(leave_without_the_right_to_the_marker_is_torn)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS("queued 1700000000000000 0 10000 0 10000", ASK(B));
	contract_refuse("GET", "lk:epoch");
	SAYS(TORN_BY_RIGHT, LEAVE(A));
	SAYS("0", "EXISTS", LOCK);
	contract_stop();
}

/* The reclaim arrives twice, the second time behind an extension. */
TEST(late_repetition_does_not_undo_an_extension)
{
	start();
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS("held 5 1700000000000000 0", "lock_renew", A, "5", "60000", "0", "-");
	SAYS("60000", "PTTL", LOCK);
	SAYS("held 5 1700000000000000 0", RECLAIM(A, "5"));
	SAYS("60000", "PTTL", LOCK);
	SAYS("queued 1700000000000000 0 60000 0 10000", ASK(B));
	SAYS("60000", "PTTL", LOCK);
	contract_stop();
}
