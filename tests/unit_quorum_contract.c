/* SPDX-License-Identifier: MIT
 * The contract of the scripts of a quorum's lock, of which each server has a leg, with their
 * callers. */
#include "contract_quorum.h"

#include <stdio.h>
#include <string.h>

/* ---- Ask ---------------------------------------------------------------------------------- */

TEST(free_lock_is_granted)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS(A(0) " " LEAST " 1000 -", "GET", LOCK);
	SAYS("1000", "PTTL", LOCK);
	SAYS(CLASS " " LEAST, "HGETALL", "lk:fences");
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(repeated_ask_is_the_same_grant_and_never_shorter)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	contract_at(400);
	SAYS("granted " LEAST " 1700000000400000 0 " LEAST " 0", ASK(A(0)));
	SAYS("1000", "PTTL", LOCK);
	SAYS("held " LEAST " 1700000000400000 0 1699999999999999 0",
	     RENEW(A(0), LEAST, "5000", "1699999999999999"));
	SAYS("granted " LEAST " 1700000000400000 0 1699999999999999 0", ASK(A(0)));
	SAYS("5000", "PTTL", LOCK);
	/* A copy of it in the queue goes. */
	SAYS("1", "ZADD", QUEUE, A_AT, A(0));
	SAYS("granted " LEAST " 1700000000400000 0 1699999999999999 0", ASK(A(0)));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(fence_is_the_proposed_one_within_limits_of_the_clock)
{
	static const char *const cases[][2] = {
		{"1700000000000007", "1700000000000007"}, {"1699999995000000", LEAST},
		{"1699999994999999", LEAST},              {"1700000005000000", "1700000005000000"},
		{"1700000005000001", "1700000005000000"}, {"9007199254740991", "1700000005000000"},
	};
	char reply[100];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		start();
		snprintf(reply, sizeof(reply), "granted %s " NOW " 0 %s 0", cases[i][1],
		         cases[i][1]);
		SAYS(reply, ASK_WITH(A(0), cases[i][0]));
		SAYS(cases[i][1], COUNTER);
		contract_stop();
	}
}

TEST(limits_are_a_quarter_of_a_short_longest_lease)
{
	contract_start();
	SAYS("OK", "SET", "lk:epoch", "1 a 1 [set 1/3 4000]");
	contract_epoch("1 a 1 [set 1/3 4000]", "0");
	SAYS("granted 1699999999000000 " NOW " 0 1699999999000000 0", ASK(A(0)));
	SAYS("left 1 0 1", LEAVE(A(0)));
	SAYS("granted 1700000001000000 " NOW " 0 1700000001000000 0",
	     ASK_WITH(B(0), "1700000009000000"));
	contract_stop();
}

TEST(fence_is_greater_than_the_counter)
{
	start();
	SAYS("2", "HSET", "lk:fences", CLASS, "1700000009000000", "18", "5");
	SAYS("granted 1700000009000001 " NOW " 0 1700000009000001 0", ASK_WITH(A(0), NOW));
	SAYS(CLASS " 1700000009000001 18 5", "HGETALL", "lk:fences");
	SAYS("left 1 0 1", LEAVE(A(0)));
	SAYS("granted 1700000009000002 " NOW " 0 1700000009000002 0", ASK_WITH(A(0), NOW));
	contract_stop();
}

TEST(damaged_counter_is_reported)
{
	start();
	SAYS("1", "HSET", "lk:fences", CLASS, "x");
	KEEPS("fence not a number", ASK(A(0)));
	SAYS("0", "HSET", "lk:fences", CLASS, "12345678901234567");
	KEEPS("fence not a number", ASK(A(0)));
	SAYS("0", "HSET", "lk:fences", CLASS, "9007199254740991");
	KEEPS("fence used up", ASK(A(0)));
	SAYS("0", "HSET", "lk:fences", CLASS, "9007199254740990");
	SAYS("granted 9007199254740991 " NOW " 0 9007199254740991 0", ASK(A(0)));
	SAYS("OK", "SET", "lk:fences", "1");
	KEEPS("foreign lk:fences not a hash", ASK(A(0)));
	contract_stop();
}

TEST(queue_is_in_order_of_priority)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " C_AT " 0 1000 0", ASK(D(0)));
	SAYS("30000", "PTTL", QUEUE);
	/* Of the same priority: by the client. */
	SAYS("queued " C_AT " 0 1000 0", ASK(C(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS(B(0) " " B_AT " " C(0) " " C_AT " " D(0) " " C_AT, TICKETS, "WITHSCORES");
	contract_at(100);
	SAYS("queued " C_AT " 2 900 0", "quorum_ask", D(0), "1", "0", CLASS, CHANNELS, "7000");
	SAYS("7000", "PTTL", QUEUE);
	contract_stop();
}

TEST(try_is_never_enqueued)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(B(0)));
	KEEPS("busy 0", TRY(A(0)));
	SAYS("queued " C_AT " 0 2000 0", ASK(C(0)));
	SAYS("1", "DEL", LOCK);
	KEEPS("busy 1", TRY(D(0)));
	SAYS("granted 1699999995000001 " NOW " 1 1699999995000001 0", TRY(A(0)));
	contract_stop();
}

TEST(free_lock_is_granted_to_the_first_by_priority)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " C_AT " 0 1000 0", ASK(C(0)));
	SAYS("1", "DEL", LOCK);
	SAYS("queued " C_AT " 1 0 1", ASK(D(0)));
	/* It was not in the queue, and is older than all that are. */
	SAYS("granted 1699999995000001 " NOW " 2 1699999995000001 0", ASK(B(0)));
	SAYS(C(0) " " D(0), TICKETS);
	SAYS("1", "DEL", LOCK);
	SAYS("queued " C_AT " 1 0 1", ASK(D(0)));
	SAYS("granted 1699999995000002 " NOW " 1 1699999995000002 0", ASK(C(0)));
	SAYS(D(0), TICKETS);
	contract_stop();
}

/* Bytes, and not letters of a language: there "_" may be before "-". */
TEST(ties_of_priority_fall_by_bytes)
{
	static const char *const ticket[] = {
		"q1:-:n1:1000:r:" A_AT ":0", "q1:A:n1:1000:r:" A_AT ":0",
		"q1:_:n1:1000:r:" A_AT ":0", "q1:a:n1:1000:r:" A_AT ":0",
		"q1:a:n2:1000:r:" A_AT ":0",
	};

	for (size_t i = 0; i + 1 < sizeof(ticket) / sizeof(*ticket); i++) {
		start();
		SAYS("1", "ZADD", QUEUE, A_AT, ticket[i]);
		SAYS("queued " A_AT " 1 0 1", ASK(ticket[i + 1]));
		SAYS("1", "DEL", QUEUE);
		SAYS("1", "ZADD", QUEUE, A_AT, ticket[i + 1]);
		SAYS("granted " LEAST " " NOW " 1 " LEAST " 0", ASK(ticket[i]));
		SAYS(ticket[i + 1], TICKETS);
		contract_stop();
	}
}

TEST(each_ask_of_an_older_head_reports_it_to_the_holder)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(B(3)));
	SAYS("queued " A_AT " 0 2000 0 | b wanted " B(3) " " A_AT, ASK(A(0)));
	SAYS("queued " A_AT " 0 2000 0 | b wanted " B(3) " " A_AT, ASK(A(0)));
	/* Not the head, or younger than the holder. */
	SAYS("queued " C_AT " 1 2000 0", ASK(C(0)));
	SAYS("1", "ZREM", QUEUE, A(0));
	SAYS("queued " C_AT " 0 2000 0", ASK(C(0)));
	contract_stop();
}

TEST(ask_of_another_than_the_head_reports_nothing)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(C(0)));
	SAYS("queued " A_AT " 0 8000 0 | c wanted " C(0) " " A_AT, ASK(A(0)));
	SAYS("queued " B_AT " 1 8000 0", ASK(B(0)));
	contract_stop();
}

TEST(lease_never_ends_later_than_its_length_from_now)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	contract_at(-5000);
	SAYS("busy 0", TRY(B(0)));
	SAYS("1000", "PTTL", LOCK);
	SAYS("1", "PERSIST", LOCK);
	SAYS("busy 0", TRY(B(0)));
	SAYS("1000", "PTTL", LOCK);
	contract_stop();
}

TEST(ask_ends_earlier_epochs_of_its_ticket)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("granted 1699999995000001 " NOW " 0 1699999995000001 0", ASK(A(2)));
	SAYS(A(2) " 1699999995000001 1000 -", "GET", LOCK);
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS("queued " C_AT " 1 1000 0", ASK(C(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(10)));
	SAYS(B(10) " " C(0), TICKETS);
	/* The lock is free, but not for it. */
	SAYS("1", "ZADD", QUEUE, "5", "q1:e:n1:1000:r:5:0");
	SAYS("queued " A_AT " 1 0 1", ASK(A(3)));
	SAYS("0", "EXISTS", LOCK);
	contract_stop();
}

TEST(late_ask_of_an_epoch_that_is_over_does_nothing)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(2)));
	KEEPS("queued " A_AT " 0 1000 0", ASK(A(1)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(10)));
	KEEPS("queued " B_AT " 0 2000 0", ASK(B(9)));
	SAYS("1", "DEL", LOCK);
	KEEPS("queued " B_AT " 0 2000 0", ASK(B(9)));
	contract_stop();
}

TEST(young_server_grants_and_enqueues_nothing)
{
	start();
	contract_epoch(MARKER, "1700000000001001");
	KEEPS("young 2", ASK(A(0)));
	contract_epoch(MARKER, "1700000000000001");
	KEEPS("young 1", TRY(A(0)));
	contract_epoch(MARKER, NOW);
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	/* Its own grant may be of an earlier memory. */
	contract_epoch(MARKER, "1700000000001000");
	KEEPS("young 1", ASK(A(0)));
	contract_stop();
}

TEST(another_memory_grants_and_enqueues_nothing)
{
	start();
	contract_epoch("1 b 1 [set 1/3 60000]", "0");
	KEEPS("epoch", ASK(A(0)));
	contract_epoch("", "0");
	KEEPS("epoch", ASK(A(0)));
	contract_stop();
}

TEST(server_without_a_set_grants_and_enqueues_nothing)
{
	static const char *const markers[] = {"1 a 1", "1 a 1 [set 60000]", "1 a 1 [set 1/3 x]"};

	for (size_t i = 0; i < sizeof(markers) / sizeof(*markers); i++) {
		start();
		SAYS("OK", "SET", "lk:epoch", markers[i]);
		contract_epoch(markers[i], "0");
		KEEPS("foreign lk:epoch not a member of a quorum: use redis://", ASK(A(0)));
		contract_stop();
	}
}

/* ---- Renewal ------------------------------------------------------------------------------ */

TEST(renewal_moves_the_end_on_and_never_back)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("held " LEAST " " NOW " 0 " LEAST " 0", RENEW(A(0), LEAST, "500", "0"));
	SAYS("1000", "PTTL", LOCK);
	SAYS(A(0) " " LEAST " 1000 -", "GET", LOCK);
	SAYS("held " LEAST " " NOW " 0 " LEAST " 0", RENEW(A(0), LEAST, "3000", "0"));
	SAYS("3000", "PTTL", LOCK);
	SAYS(A(0) " " LEAST " 3000 -", "GET", LOCK);
	/* The clock was set back: the lease in force is the longer one all the same. */
	contract_at(-9000);
	SAYS("held " LEAST " 1699999991000000 0 " LEAST " 0", RENEW(A(0), LEAST, "4000", "0"));
	SAYS("12000", "PTTL", LOCK);
	SAYS(A(0) " " LEAST " 4000 -", "GET", LOCK);
	contract_stop();
}

TEST(renewal_of_another_grant_finds_nothing)
{
	start();
	KEEPS("gone", RENEW(A(0), LEAST, "1000", "1700000000000001"));
	KEEPS("gone", CLAIM(A(0)));
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(1)));
	KEEPS("gone", RENEW(A(0), LEAST, "9000", "1700000000000001"));
	KEEPS("gone", RENEW(A(1), "1699999995000001", "9000", "1700000000000001"));
	KEEPS("gone", RENEW(B(0), LEAST, "9000", "1700000000000001"));
	KEEPS("gone", CLAIM(A(0)));
	contract_stop();
}

TEST(commit_raises_the_counter_and_never_lowers_it)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("held " LEAST " " NOW " 0 1699999995000007 0",
	     RENEW(A(0), LEAST, "1000", "1699999995000007"));
	SAYS("1699999995000007", COUNTER);
	KEEPS("held " LEAST " " NOW " 0 1699999995000007 0",
	      RENEW(A(0), LEAST, "1000", "1699999995000006"));
	KEEPS("held " LEAST " " NOW " 0 1699999995000007 0", RENEW(A(0), LEAST, "1000", "0"));
	/* A claim may commit as well. */
	SAYS("held " LEAST " " NOW " 0 1699999995000008 0",
	     RENEW(A(0), "0", "1000", "1699999995000008"));
	SAYS(CLASS " 1699999995000008", "HGETALL", "lk:fences");
	contract_stop();
}

TEST(commit_without_a_lease_moves_nothing)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(C(0)));
	contract_at(1000);
	SAYS("held " LEAST " 1700000001000000 0 1699999995000007 0",
	     RENEW(C(0), LEAST, "0", "1699999995000007"));
	SAYS("7000", "PTTL", LOCK);
	SAYS(C(0) " " LEAST " 8000 -", "GET", LOCK);
	SAYS("1", "PERSIST", LOCK);
	SAYS("held " LEAST " 1700000001000000 0 1699999995000007 0", RENEW(C(0), LEAST, "0", "0"));
	SAYS("8000", "PTTL", LOCK);
	contract_stop();
}

TEST(holder_learns_of_an_older_head)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(B(0)));
	SAYS("queued " C_AT " 0 2000 0", ASK(C(0)));
	SAYS("held " LEAST " " NOW " 1 " LEAST " 0", RENEW(B(0), LEAST, "2000", "0"));
	SAYS("granted " LEAST " " NOW " 1 " LEAST " 0", ASK(B(0)));
	SAYS("queued " A_AT " 0 2000 0 | b wanted " B(0) " " A_AT, ASK(A(0)));
	SAYS("held " LEAST " " NOW " 2 " LEAST " 1", RENEW(B(0), LEAST, "2000", "0"));
	SAYS("held " LEAST " " NOW " 2 " LEAST " 1", CLAIM(B(0)));
	SAYS("granted " LEAST " " NOW " 2 " LEAST " 1", ASK(B(0)));
	/* Its own earlier epoch is no other ticket. */
	SAYS("1", "DEL", QUEUE);
	SAYS("1", "ZADD", QUEUE, "1", "q1:b:n1:2000:r:1:0");
	SAYS("held " LEAST " " NOW " 1 " LEAST " 0", RENEW(B(0), LEAST, "2000", "0"));
	contract_stop();
}

TEST(claim_is_for_one_memory)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	contract_epoch(MARKER, "1700000000001000");
	KEEPS("young 1", CLAIM(A(0)));
	SAYS("held " LEAST " " NOW " 0 " LEAST " 0", RENEW(A(0), LEAST, "1000", "0"));
	contract_epoch("1 b 1 [set 1/3 60000]", "0");
	KEEPS("epoch", CLAIM(A(0)));
	SAYS("held " LEAST " " NOW " 0 " LEAST " 0", RENEW(A(0), LEAST, "1000", "0"));
	contract_stop();
}

/* ---- Leave -------------------------------------------------------------------------------- */

TEST(leave_serves_the_head)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " C_AT " 0 1000 0", ASK(C(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS("left 1 0 0 | b grant " B(0) " 1700000000000003 2000 0 1 " NOW,
	     LEAVE_WITH(A(0), "1700000000000003"));
	SAYS(B(0) " 1700000000000003 2000 -", "GET", LOCK);
	SAYS("2000", "PTTL", LOCK);
	SAYS("1700000000000003", COUNTER);
	SAYS(C(0), TICKETS);
	/* Again, late: nothing happens. */
	KEEPS("left 0 0 0", LEAVE(A(0)));
	SAYS("left 1 0 0 | c grant " C(0) " 1700000000000004 8000 0 0 " NOW, LEAVE(B(0)));
	SAYS("0", "EXISTS", QUEUE);
	SAYS("left 1 0 1", LEAVE(C(0)));
	SAYS("0", "EXISTS", LOCK);
	KEEPS("left 0 0 1", LEAVE(C(0)));
	contract_stop();
}

TEST(grant_to_a_ticket_that_may_be_dead_must_be_claimed)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	SAYS("queued " C_AT " 1 1000 0", ASK(C(0)));
	/* 1 s, half of its lease, after its priority, and a microsecond. */
	contract_at(500);
	SAYS("left 1 0 0 | b grant " B(0) " 1699999995500000 2000 0 1 1700000000500000",
	     LEAVE(A(0)));
	SAYS("1", "DEL", LOCK);
	SAYS("1", "ZADD", QUEUE, "5", "q1:b:n1:2000:r:1699999999499999:0");
	SAYS("left 0 0 0 | b grant q1:b:n1:2000:r:1699999999499999:0 1699999995500001 1000 1 1 "
	     "1700000000500000 | c again " C(0) " 1000",
	     HAND);
	SAYS("1000", "PTTL", LOCK);
	SAYS("q1:b:n1:2000:r:1699999999499999:0 1699999995500001 2000 -", "GET", LOCK);
	/* A clock behind its priority shows no age. */
	SAYS("1", "DEL", LOCK);
	SAYS("1", "ZADD", QUEUE, "5", "q1:b:n1:2000:r:1700000001500001:0");
	SAYS("left 0 0 0 | b grant q1:b:n1:2000:r:1700000001500001:0 1699999995500002 1000 1 1 "
	     "1700000000500000 | c again " C(0) " 1000",
	     HAND);
	/* The window is 3 s at most. */
	contract_at(2701);
	SAYS("left 0 0 0 | c grant " C(0) " 1699999997701000 3000 1 0 1700000002701000", HAND);
	contract_stop();
}

TEST(dead_waiters_are_skipped)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " C_AT " 0 1000 0", ASK(D(0)));
	SAYS("left 1 0 1 | d 1", LEAVE(A(0)));
	SAYS("0", "EXISTS", QUEUE);
	SAYS("0", "EXISTS", LOCK);
	SAYS(LEAST, COUNTER);
	SAYS("granted 1699999995000001 " NOW " 0 1699999995000001 0", ASK(A(0)));
	SAYS("queued " C_AT " 0 1000 0", ASK(D(0)));
	SAYS("1", "ZADD", QUEUE, "1800000000000000", "q1:b:n2:2000:r:1800000000000000:0");
	SAYS("left 1 0 0 | b grant q1:b:n2:2000:r:1800000000000000:0 1699999995000002 1000 1 0 "
	     NOW " | d 1",
	     LEAVE(A(0)));
	contract_stop();
}

TEST(run_skips_thirty_two_dead_waiters_at_most)
{
	char ticket[60], score[20];

	start();
	for (int i = 0; i < 33; i++) {
		snprintf(score, sizeof(score), "%d", 10 + i);
		snprintf(ticket, sizeof(ticket), "q1:d:n1:2000:r:%s:0", score);
		SAYS("1", "ZADD", QUEUE, score, ticket);
	}
	SAYS("left 0 1 0 | d 32", HAND);
	SAYS("left 0 0 1 | d 1", HAND);
	contract_stop();
}

TEST(leave_ends_any_epoch_of_its_ticket)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(2)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(10)));
	SAYS("left 0 0 0", LEAVE(B(9)));
	SAYS("0", "EXISTS", QUEUE);
	SAYS("queued " B_AT " 0 1000 0", ASK(B(10)));
	SAYS("1", "ZADD", QUEUE, A_AT, A(1));
	SAYS("left 1 0 0 | b grant " B(10) " 1699999995000001 2000 0 0 " NOW, LEAVE(A(3)));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(leave_ends_no_other_ticket)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	KEEPS("left 0 0 0", LEAVE("q1:a:n2:1000:r:" A_AT ":0"));
	KEEPS("left 0 0 0", LEAVE("q1:b:n2:2000:r:" B_AT ":0"));
	KEEPS("left 0 0 0", LEAVE("q1:b:n:2000:r:" B_AT ":0"));
	/* Another program has moved it in the queue. */
	SAYS("0", "ZADD", QUEUE, "5", B(0));
	SAYS("left 0 0 0", LEAVE(B(0)));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(break_is_reported_to_the_holder)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(2)));
	SAYS("left 1 0 1 | a broken " A(2), BREAK(A(0)));
	SAYS("0", "EXISTS", LOCK);
	KEEPS("left 0 0 1", BREAK(A(0)));
	SAYS("granted 1699999995000001 " NOW " 0 1699999995000001 0", ASK(B(0)));
	SAYS("queued " A_AT " 0 2000 0 | b wanted " B(0) " " A_AT, ASK(A(0)));
	SAYS("left 0 0 0", BREAK(A(0)));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(hand_serves_the_head_of_a_free_lock_only)
{
	start();
	KEEPS("left 0 0 1", HAND);
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("queued " B_AT " 0 1000 0", ASK(B(0)));
	KEEPS("left 0 0 0", HAND);
	SAYS("1", "DEL", LOCK);
	SAYS("left 0 0 0 | b grant " B(0) " 1699999995000001 2000 0 0 " NOW, HAND);
	contract_stop();
}

/* ---- Yield -------------------------------------------------------------------------------- */

TEST(yield_serves_the_older_ticket_and_waits_behind_it)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(B(0)));
	SAYS("queued " A_AT " 0 2000 0 | b wanted " B(0) " " A_AT, ASK(A(0)));
	SAYS("left 1 0 0 | a grant " A(0) " 1699999995000001 500 1 1 " NOW " | b again " B(1)
	     " 500",
	     YIELD(B(0), B(1)));
	SAYS(B(1) " " B_AT, TICKETS, "WITHSCORES");
	SAYS("30000", "PTTL", QUEUE);
	/* Again, late. */
	KEEPS("left 0 0 0", YIELD(B(0), B(1)));
	contract_stop();
}

TEST(yield_without_an_older_ticket_is_served_itself)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(B(0)));
	SAYS("left 1 0 0 | b grant " B(1) " 1699999995000001 2000 0 0 " NOW, YIELD(B(0), B(1)));
	SAYS(B(1) " 1699999995000001 2000 -", "GET", LOCK);
	/* Again, late: the epoch that it began stays. */
	KEEPS("left 0 0 0", YIELD(B(0), B(1)));
	SAYS("left 1 0 0 | b grant " B(2) " 1699999995000002 2000 0 0 " NOW, YIELD(B(1), B(2)));
	KEEPS("left 0 0 0", YIELD(B(0), B(1)));
	contract_stop();
}

TEST(yield_of_a_leg_that_has_lost_its_server_waits)
{
	start();
	SAYS("granted " LEAST " " NOW " 0 " LEAST " 0", ASK(A(0)));
	SAYS("left 0 0 0", YIELD(B(10), B(11)));
	SAYS(B(11), TICKETS);
	SAYS("30000", "PTTL", QUEUE);
	/* Late, while a later one waits. */
	KEEPS("left 0 0 0", YIELD(B(9), B(10)));
	SAYS("1", "ZADD", QUEUE, B_AT, B(9));
	SAYS("left 0 0 0", YIELD(B(11), B(12)));
	SAYS(B(12), TICKETS);
	contract_stop();
}
