/* SPDX-License-Identifier: MIT
 * The contract of a semaphore's scripts with clients that acquire, renew, release and wait. */
#include "contract_semaphore.h"

#include <stdio.h>

TEST(free_permits_are_granted)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("kind 2:semaphore capacity 2 used 1 ttl 60000 2:a:n1:1000:r:1 1 1700000000000000 1000",
	     "HGETALL", STATE);
	SAYS("2:a:n1:1000:r:1 1700000001000000", ALL_ENDS);
	SAYS("60000", "PTTL", STATE);
	SAYS("60000", "PTTL", ENDS);
	SAYS("1700000000000000", "GET", "lk:fence");
	SAYS("0", "EXISTS", QUEUE);
	SAYS("granted 1700000000000001 1700000000000000 0 0", TRY(C));
	SAYS("busy 0", TRY(E));
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(repeated_ask_is_the_same_grant_and_never_shorter)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	contract_at(400);
	SAYS("granted 1700000000000000 1700000000400000 0 0", ASK(A));
	SAYS("2:a:n1:1000:r:1 1700000001400000", ALL_ENDS);
	SAYS("held 1700000000000000 1700000000400000 0", RENEW(A, "5000"));
	SAYS("granted 1700000000000000 1700000000400000 0 0", ASK(A));
	SAYS("2:a:n1:1000:r:1 1700000005400000", ALL_ENDS);
	SAYS("2 1 1 0 -1 60000 1700000000400000 1 2:a:n1:1000:r:1 1 1700000000000000 5000", SHOW);
	contract_stop();
}

TEST(hold_that_is_over_is_a_new_one)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	contract_at(1000);
	SAYS("gone", RENEW(A, "1000"));
	SAYS("granted 1700000001000000 1700000001000000 0 0", ASK(A));
	SAYS("2 1 1 0 -1 60000 1700000001000000 1 2:a:n1:1000:r:1 1 1700000001000000 1000", SHOW);
	contract_at(2000);
	SAYS("left 0 0 1", LEAVE(A));
	contract_at(3000);
	SAYS("granted 1700000003000000 1700000003000000 0 0", ASK(C));
	SAYS("left 0 0 1", LEAVE(A));
	contract_stop();
}

TEST(more_than_the_capacity_is_told)
{
	contract_start();
	SAYS("limit 2", ASK(BIG));
	SAYS("1", "ZADD", QUEUE, "5", BIG);
	SAYS("1", "ZADD", QUEUE, "6", E);
	SAYS("limit 2 | e grant 2:e:n1:2000:r:1 1700000000000000 1000 1 0 1700000000000000",
	     ASK(BIG));
	SAYS("", ALL_QUEUE);
	SAYS("2 1 1 0 -1 60000 1700000000000000 1 2:e:n1:2000:r:1 1 1700000000000000 1000", SHOW);
	contract_stop();
}

TEST(queue_is_in_order_of_arrival)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	SAYS("30000", "PTTL", QUEUE);
	SAYS("queued 1700000000000001 1 2000 0", ASK(E));
	contract_at(100);
	SAYS("queued 1700000000000000 0 1900 0", ASK(A));
	SAYS("2:a:n1:1000:r:1 1700000000000000 2:e:n1:2000:r:1 1700000000000001", ALL_QUEUE);
	SAYS("kind 2:semaphore capacity 2 used 2 ttl 60000 2:b:n1:2000:r:2 2 1700000000000000 2000 "
	     "head 2:a:n1:1000:r:1 head_us 1700000000100000 told_us 1700000000100000",
	     "HGETALL", STATE);
	/* An old arrival is kept, or restored. */
	SAYS("queued 1600000000000000 0 1900 0", "semaphore_ask", E, "1", "1600000000000000",
	     "lk:c:0:", "2", "60000", "7000", "21000");
	SAYS("2:e:n1:2000:r:1 1600000000000000 2:a:n1:1000:r:1 1700000000000000", ALL_QUEUE);
	SAYS("7000", "PTTL", QUEUE);
	SAYS("queued 1600000000000000 0 1900 0", "semaphore_ask", E, "1", "1600000000000009",
	     "lk:c:0:", "2", "60000", "7000", "21000");
	SAYS("2:e:n1:2000:r:1 1600000000000000 2:a:n1:1000:r:1 1700000000000000", ALL_QUEUE);
	SAYS("1", "ZREM", QUEUE, E);
	SAYS("queued 1600000000000003 0 1900 0", "semaphore_ask", E, "1", "1600000000000003", REST);
	SAYS("2:e:n1:2000:r:1 1600000000000003 2:a:n1:1000:r:1 1700000000000000", ALL_QUEUE);
	contract_stop();
}

TEST(release_serves_all_that_fit)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	SAYS("queued 1700000000000001 1 2000 0", ASK(E));
	SAYS("queued 1700000000000002 2 2000 0", ASK(C));
	contract_at(10);
	SAYS("left 1 0 0 | a grant 2:a:n1:1000:r:1 1700000000010000 1000 0 2 1700000000010000 | e "
	     "grant 2:e:n1:2000:r:1 1700000000010001 2000 0 1 1700000000010000",
	     LEAVE(B));
	SAYS("kind 2:semaphore capacity 2 used 2 ttl 60000 head 2:a:n1:1000:r:1 head_us "
	     "1700000000000000 told_us 1700000000000000 2:a:n1:1000:r:1 1 1700000000010000 1000 "
	     "2:e:n1:2000:r:1 1 1700000000010001 2000",
	     "HGETALL", STATE);
	SAYS("2:a:n1:1000:r:1 1700000001010000 2:e:n1:2000:r:1 1700000002010000", ALL_ENDS);
	SAYS("2:c:n1:8000:f:1 1700000000000002", ALL_QUEUE);
	SAYS("1700000000010001", "GET", "lk:fence");
	SAYS("left 0 0 0", LEAVE(B));
	SAYS("left 0 0 0", LEAVE(C));
	SAYS("left 1 0 1", LEAVE(A));
	SAYS("left 1 0 1", LEAVE(E));
	SAYS("kind 2:semaphore capacity 2 used 0 ttl 60000 head 2:a:n1:1000:r:1 head_us "
	     "1700000000000000 told_us 1700000000000000",
	     "HGETALL", STATE);
	contract_stop();
}

TEST(part_of_a_hold_is_given_back)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	SAYS("left 1 0 0", KEEP(B, "2"));
	SAYS("left 1 0 0 | a grant 2:a:n1:1000:r:1 1700000000000001 1000 0 0 1700000000000000",
	     KEEP(B, "1"));
	SAYS("left 1 0 0", KEEP(B, "1"));
	SAYS("left 1 0 0", KEEP(B, "2")); /* sent earlier, arrives later */
	SAYS("kind 2:semaphore capacity 2 used 2 ttl 60000 2:b:n1:2000:r:2 1 1700000000000000 2000 "
	     "head 2:a:n1:1000:r:1 head_us 1700000000000000 told_us 1700000000000000 "
	     "2:a:n1:1000:r:1 1 1700000000000001 1000",
	     "HGETALL", STATE);
	SAYS("left 0 0 0", KEEP(E, "1"));
	SAYS("queued 1700000000000000 0 1000 0", ASK(C));
	SAYS("left 0 0 0", KEEP(C, "1"));
	SAYS("2:c:n1:8000:f:1 1700000000000000", ALL_QUEUE);
	SAYS("left 0 0 0", LEAVE(""));
	contract_stop();
}

TEST(holder_whose_hold_others_end_is_told)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("left 1 0 1 | a broken 2:a:n1:1000:r:1", "semaphore_leave", A, "0", "lk:c:0:", "1",
	     "21000");
	SAYS("left 0 0 1", "semaphore_leave", A, "0", "lk:c:0:", "1", "21000");
	SAYS("left 0 0 1", LEAVE(""));
	SAYS("1", "DEL", STATE);
	SAYS("1", "ZADD", QUEUE, "5", A);
	SAYS("left 0 0 1", LEAVE(A));
	SAYS("", ALL_QUEUE);
	contract_stop();
}

TEST(renewal_moves_the_end_on_and_never_back)
{
	contract_start();
	SAYS("gone", RENEW(A, "1000"));
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("held 1700000000000000 1700000000000000 0", RENEW(A, "500"));
	SAYS("2:a:n1:1000:r:1 1700000001000000", ALL_ENDS);
	SAYS("1 1700000000000000 1000", "HGET", STATE, A);
	SAYS("held 1700000000000000 1700000000000000 0", "semaphore_renew", A, "1700000000000000",
	     "70000");
	SAYS("2:a:n1:1000:r:1 1700000070000000", ALL_ENDS);
	SAYS("1 1700000000000000 70000", "HGET", STATE, A);
	SAYS("71000", "PTTL", STATE);
	SAYS("71000", "PTTL", ENDS);
	SAYS("gone", "semaphore_renew", A, "1700000000000001", "1000");
	SAYS("gone", RENEW(C, "1000"));
	/* A clock that stepped back shortens it. */
	contract_at(-5000);
	SAYS("held 1700000000000000 1699999995000000 0", RENEW(A, "1000"));
	SAYS("2:a:n1:1000:r:1 1700000065000000", ALL_ENDS);
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(clock_that_stepped_back_cuts_leases_at_an_ask)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(C));
	SAYS("held 1700000000000000 1700000000000000 0", RENEW(C, "9000"));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(A));
	contract_at(-60000);
	SAYS("queued 1699999940000000 0 1000 0", ASK(E));
	SAYS("2:a:n1:1000:r:1 1699999941000000 2:c:n1:8000:f:1 1699999949000000", ALL_ENDS);
	contract_stop();
}

TEST(leases_that_are_over_come_back)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	contract_at(1000);
	SAYS("2 1 1 1 -1 59000 1700000001000000 1 2:c:n1:8000:f:1 1 1700000000000001 7000 "
	     "2:e:n1:2000:r:1",
	     SHOW);
	SAYS("left 0 0 0 | e grant 2:e:n1:2000:r:1 1700000001000000 2000 0 0 1700000001000000",
	     LEAVE(""));
	SAYS("2 2 2 0 -1 60000 1700000001000000 2 2:e:n1:2000:r:1 1 1700000001000000 2000 "
	     "2:c:n1:8000:f:1 1 1700000000000001 7000",
	     SHOW);
	contract_at(9000);
	SAYS("set 2 0", OPEN("0"));
	SAYS("kind 2:semaphore capacity 2 used 0 ttl 60000 head 2:e:n1:2000:r:1 head_us "
	     "1700000000000000 told_us 1700000000000000",
	     "HGETALL", STATE);
	contract_stop();
}

TEST(old_waiter_is_granted_a_short_lease)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(C));
	SAYS("queued 1700000000000001 1 2000 0", ASK(A));
	contract_at(1500);
	SAYS("left 1 0 0 | c grant 2:c:n1:8000:f:1 1700000001500000 8000 0 1 1700000001500000 | a "
	     "grant 2:a:n1:1000:r:1 1700000001500001 500 1 0 1700000001500000",
	     LEAVE(B));
	SAYS("2:a:n1:1000:r:1 1700000002000000 2:c:n1:8000:f:1 1700000009500000", ALL_ENDS);
	SAYS("1 1700000001500001 1000", "HGET", STATE, A);
	contract_at(-1000);
	SAYS("queued 1699999999000000 0 1000 0", ASK(E));
	SAYS("queued 1699999999000001 1 1000 0", ASK(D));
	SAYS("left 1 0 0 | e grant 2:e:n1:2000:r:1 1700000001500002 2000 0 1 1699999999000000",
	     LEAVE(C));
	contract_stop();
}

TEST(dead_waiters_are_passed_over)
{
	char ticket[40];

	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(D));
	SAYS("queued 1700000000000001 1 2000 0", ASK(A));
	SAYS("left 1 0 1 | a grant 2:a:n1:1000:r:1 1700000000000001 500 1 0 1700000000000000 | d 1",
	     LEAVE(B));
	SAYS("OK", "FLUSHALL");
	SAYS("OK", "SET", "lk:epoch", "1 a 1");
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	for (int i = 0; i < 33; i++) {
		snprintf(ticket, sizeof(ticket), "2:d:n%d:2000:r:1", i);
		SAYS("1", "ZADD", QUEUE, "1700000000000000", ticket);
	}
	SAYS("left 1 1 0 | d 32", LEAVE(B));
	SAYS("1", "ZCARD", QUEUE);
	SAYS("left 0 0 1 | d 1", LEAVE(""));
	contract_stop();
}

/* One of two permits is free, and the head needs both. */
static void start_with_a_big_head(const char *holder)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(holder));
}

TEST(head_that_does_not_fit_is_told_when_to_ask)
{
	start_with_a_big_head(A);
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("queued 1700000000000001 1 1000 0", ASK(E));
	SAYS("kind 2:semaphore capacity 2 used 1 ttl 60000 2:a:n1:1000:r:1 1 1700000000000000 1000 "
	     "head 2:b:n1:2000:r:2 head_us 1700000000000000 told_us 1700000000000000",
	     "HGETALL", STATE);
	contract_at(900);
	SAYS("held 1700000000000000 1700000000900000 2", RENEW(A, "60000"));
	contract_at(3100);
	SAYS("busy 0 | b again 2:b:n1:2000:r:2 57800", TRY(C));
	SAYS("2:b:n1:2000:r:2 1700000000000000 1700000003100000", "HMGET", STATE, "head", "head_us",
	     "told_us");
	SAYS("busy 0", TRY(C));
	contract_at(6000);
	SAYS("queued 1700000000000000 0 54900 0", ASK(B));
	SAYS("2:b:n1:2000:r:2 1700000006000000 1700000006000000", "HMGET", STATE, "head", "head_us",
	     "told_us");
	contract_at(27001);
	SAYS("left 0 0 0 | b again 2:b:n1:2000:r:2 0 | e grant 2:e:n1:2000:r:1 1700000027001000 "
	     "1000 1 0 1700000027001000",
	     LEAVE(""));
	SAYS("", ALL_QUEUE);
	contract_stop();
}

TEST(silent_client_is_passed_over_with_all_its_tickets)
{
	start_with_a_big_head(A);
	SAYS("held 1700000000000000 1700000000000000 0", RENEW(A, "90000"));
	SAYS("queued 1700000000000000 0 90000 0", ASK(B));
	SAYS("queued 1700000000000001 1 90000 0", ASK("2:b:n7:2000:r:2"));
	SAYS("queued 1700000000000002 2 90000 0", ASK("2:c:n7:2000:r:2"));
	SAYS("queued 1700000000000003 3 90000 0", ASK(E));
	contract_at(21001);
	SAYS("left 0 0 0 | b again 2:b:n1:2000:r:2 0 | b again 2:b:n7:2000:r:2 0 | c again "
	     "2:c:n7:2000:r:2 68999",
	     LEAVE(""));
	SAYS("2:c:n7:2000:r:2 1700000000000002 2:e:n1:2000:r:1 1700000000000003", ALL_QUEUE);
	SAYS("2:c:n7:2000:r:2 1700000021001000 1700000021001000", "HMGET", STATE, "head", "head_us",
	     "told_us");
	contract_stop();
}

TEST(dead_head_that_does_not_fit_is_passed_over)
{
	start_with_a_big_head(A);
	SAYS("1", "ZADD", QUEUE, "1700000000000000", "2:d:n1:2000:r:2");
	SAYS("granted 1700000000000001 1700000000000000 0 0 | d 1", ASK(E));
	SAYS("", ALL_QUEUE);
	contract_stop();
}

TEST(head_is_told_of_permits_that_run_out)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK("2:a:n1:4000:f:1"));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("queued 1700000000000000 0 8000 0", ASK(B));
	SAYS("queued 1700000000000001 1 10000 0", ASK(E));
	SAYS("queued 1700000000000002 2 9000 0", ASK(A));
	contract_at(100);
	SAYS("queued 1700000000000000 0 7900 0", ASK(B));
	contract_at(3200);
	SAYS("left 0 0 0 | b again 2:b:n1:2000:r:2 4800", LEAVE(""));
	SAYS("2:b:n1:2000:r:2 1700000000100000 1700000003200000", "HMGET", STATE, "head", "head_us",
	     "told_us");
	/* The clock stepped back: as if it had arrived now. */
	contract_at(-50000);
	SAYS("left 0 0 0 | b again 2:b:n1:2000:r:2 58000", LEAVE(""));
	SAYS("2:b:n1:2000:r:2 1699999950000000 1699999950000000", "HMGET", STATE, "head", "head_us",
	     "told_us");
	contract_stop();
}

TEST(wait_is_told_beyond_all_leases)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK("2:a:n1:4000:f:2"));
	SAYS("queued 1700000000000000 0 4000 0", ASK("2:b:n1:2000:f:2"));
	SAYS("queued 1700000000000001 1 6000 0", ASK("2:c:n1:2000:f:2"));
	SAYS("queued 1700000000000002 2 8000 0", ASK("2:e:n1:2000:f:1"));
	contract_stop();
}

TEST(keys_live_as_long_as_the_longest_lease)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK("2:z:n1:90000:r:1"));
	SAYS("91000", "PTTL", STATE);
	SAYS("91000", "PTTL", ENDS);
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(A));
	SAYS("91000", "PTTL", STATE);
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	SAYS("left 1 0 0 | e grant 2:e:n1:2000:r:1 1700000000000002 2000 0 0 1700000000000000",
	     LEAVE(A));
	SAYS("91000", "PTTL", ENDS);
	SAYS("left 1 0 1", LEAVE(E));
	SAYS("91000", "PTTL", ENDS);
	/* A clock that stepped back brings them nearer. */
	contract_at(-20000);
	SAYS("granted 1700000000000003 1699999980000000 0 0", ASK(A));
	SAYS("91000", "PTTL", STATE);
	SAYS("left 1 0 1", LEAVE(A));
	SAYS("left 1 0 1", LEAVE("2:z:n1:90000:r:1"));
	SAYS("60000", "PTTL", STATE);
	/* Ends without a hold do not count. */
	SAYS("granted 1700000000000004 1699999980000000 0 0", ASK("2:z:n1:90000:r:1"));
	SAYS("1", "DEL", STATE);
	SAYS("granted 1700000000000005 1699999980000000 0 0", ASK(A));
	SAYS("60000", "PTTL", STATE);
	contract_stop();
}

TEST(leases_that_are_over_are_not_waited_for)
{
	contract_start();
	SAYS("set 3 0", OPEN("3"));
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(D));
	SAYS("granted 1700000000000002 1700000000000000 0 0", ASK("2:c:n1:8000:r:1"));
	contract_at(3000);
	SAYS("queued 1700000003000000 0 5000 0", ASK("2:b:n1:2000:r:3"));
	contract_stop();
}

/* ---- Permits that are never released -------------------------------------------------------- */

#define USED_LEAVE(ticket, fence) LEAVE(ticket), fence

TEST(grant_that_is_never_released_is_whole_however_old_its_ticket)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("held 1700000000000000 1700000000000000 0", RENEW(B, "60000"));
	SAYS("queued 1700000000000000 0 60000 0", ASK(C));
	SAYS("queued 1700000000000001 1 60000 0", ASK(N));
	contract_at(5000);
	SAYS("left 1 0 0 | c grant 2:c:n1:8000:f:1 1700000005000000 3000 1 1 1700000005000000 | n "
	     "grant 2:n:n1:8000:n:1 1700000005000001 8000 0 0 1700000005000000",
	     LEAVE(B));
	SAYS("2:c:n1:8000:f:1 1700000008000000 2:n:n1:8000:n:1 1700000013000000", ALL_ENDS);
	SAYS("2 2 2 0 -1 60000 1700000005000000 2 2:c:n1:8000:f:1 1 1700000005000000 3000 "
	     "2:n:n1:8000:n:1 1 1700000005000001 8000",
	     SHOW);
	contract_stop();
}

TEST(grant_that_is_never_released_counts_from_its_time_on)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(N));
	contract_at(400);
	SAYS("granted 1700000000000000 1700000000400000 0 0", ASK(N));
	SAYS("2:n:n1:8000:n:1 1700000008000000", ALL_ENDS);
	/* The next waiter learns when the lease ends. */
	SAYS("queued 1700000000400000 0 7600 0", ASK(B));
	contract_at(8000);
	SAYS("granted 1700000008000000 1700000008000000 0 0", ASK(B));
	contract_stop();
}

TEST(grant_that_was_used_stays_and_its_ticket_leaves)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(N));
	SAYS("left 1 0 1", USED_LEAVE(N, "1700000000000000"));
	SAYS("2:n:n1:8000:n:1 1700000008000000", ALL_ENDS);
	SAYS("1", "HGET", STATE, "used");
	/* A hold that was granted after it was not used. */
	SAYS("left 1 0 1", USED_LEAVE(N, "1699999999000000"));
	SAYS("0", "HGET", STATE, "used");
	SAYS("", ALL_ENDS);
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(N));
	SAYS("left 0 0 0", USED_LEAVE(N, "1700000000000000"));
	SAYS("", ALL_QUEUE);
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}

TEST(operator_breaks_a_grant_that_is_never_released)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(N));
	SAYS("2 1 1 0 -1 60000 1700000000000000 1 2:n:n1:8000:n:1 1 1700000000000000 8000",
	     "semaphore_show", "", "1", "0", "n:n1");
	SAYS("left 1 0 1 | n broken 2:n:n1:8000:n:1", "semaphore_leave", N, "0", "lk:c:0:", "1",
	     "21000");
	SAYS("0", "HGET", STATE, "used");
	contract_stop();
}

TEST(clock_that_stepped_back_shortens_what_is_never_released)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(N));
	contract_at(-60000);
	SAYS("granted 1700000000000001 1699999940000000 0 0", TRY(A));
	SAYS("2:a:n1:1000:r:1 1699999941000000 2:n:n1:8000:n:1 1699999948000000", ALL_ENDS);
	contract_stop();
}

/* A queue of such tickets makes the name a semaphore, also without any other key. */
TEST(tickets_that_are_never_released_are_a_semaphores)
{
	contract_start();
	SAYS("1", "ZADD", QUEUE, "1", N);
	SAYS("semaphore", "name_kind");
	SAYS("foreign lk:{n}:q a semaphore, not a latch", "latch_set", "1", "1", "60000", "0",
	     "lk:l:0:{n}");
	contract_stop();
}
