/* SPDX-License-Identifier: MIT
 * The contract of a semaphore's scripts with operators, and their behaviour in a store that is
 * damaged or full, or whose keys are foreign. */
#include "contract_semaphore.h"

#include <stdio.h>

TEST(capacity_is_set_and_changed)
{
	contract_start();
	SAYS("absent", OPEN("0"));
	SAYS("absent", RESIZE("3"));
	SAYS("set 3 0", OPEN("3"));
	SAYS("kind 2:semaphore capacity 3 used 0 ttl 60000", "HGETALL", STATE);
	SAYS("60000", "PTTL", STATE);
	SAYS("", "GET", "lk:fence");
	SAYS("set 3 0", OPEN("0"));
	SAYS("mismatch 3", OPEN("4"));
	SAYS("set 3 0", "semaphore_set", "open", "3", "70000", "lk:c:0:", "21000");
	SAYS("70000", "PTTL", STATE);
	SAYS("set 3 0", "semaphore_set", "open", "0", "80000", "lk:c:0:", "21000");
	SAYS("70000", "PTTL", STATE);
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(BIG));
	SAYS("queued 1700000000000000 0 2000 0", ASK(B));
	SAYS("queued 1700000000000001 1 2000 0", ASK(A));
	SAYS("set 5 0 | b grant 2:b:n1:2000:r:2 1700000000000001 2000 0 1 1700000000000000",
	     RESIZE("5"));
	SAYS("kind 2:semaphore capacity 5 used 5 ttl 70000 2:b:n2:2000:r:3 3 1700000000000000 2000 "
	     "head 2:b:n1:2000:r:2 head_us 1700000000000000 told_us 1700000000000000 "
	     "2:b:n1:2000:r:2 2 1700000000000001 2000",
	     "HGETALL", STATE);
	SAYS("queued 1700000000000002 1 2000 0", ASK("2:c:n5:2000:r:4"));
	SAYS("set 1 0", RESIZE("1"));
	SAYS("2:a:n1:1000:r:1 1700000000000001 2:c:n5:2000:r:4 1700000000000002", ALL_QUEUE);
	SAYS("1", "HGET", STATE, "capacity");
	contract_at(3000);
	SAYS("set 2 0 | a grant 2:a:n1:1000:r:1 1700000003000000 500 1 1 1700000003000000 | c "
	     "again 2:c:n5:2000:r:4 0",
	     RESIZE("2"));
	contract_stop();
}

TEST(many_leases_that_are_over_take_more_runs)
{
	char ticket[40];

	contract_start();
	SAYS("set 90 0", OPEN("90"));
	for (int i = 0; i < 70; i++) {
		char fence[24], answer[80];
		snprintf(fence, sizeof(fence), "%lld", 1700000000000000LL + i);
		snprintf(answer, sizeof(answer), "granted %s 1700000000000000 0 0", fence);
		snprintf(ticket, sizeof(ticket), "2:a:n%d:1000:r:1", i);
		SAYS(answer, ASK(ticket));
	}
	contract_at(2000);
	SAYS("90 0 0 0 -1 58000 1700000002000000 0", "semaphore_show", "", "2", "0");
	SAYS("left 0 1 1", LEAVE(""));
	SAYS("granted 1700000002000000 1700000002000000 0 1", TRY(A));
	SAYS("left 0 0 1", LEAVE(""));
	SAYS("left 0 0 1", LEAVE(""));
	SAYS("1", "HGET", STATE, "used");
	contract_stop();
}

TEST(look_tells_holds_and_queue)
{
	contract_start();
	SAYS("absent", SHOW);
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	contract_at(5);
	SAYS("2 2 2 1 -1 59995 1700000000005000 2 2:a:n1:1000:r:1 1 1700000000000000 995 "
	     "2:c:n1:8000:f:1 1 1700000000000001 7995 2:e:n1:2000:r:1",
	     SHOW);
	SAYS("2 2 2 1 0 59995 1700000000005000 1 2:a:n1:1000:r:1 1 1700000000000000 995",
	     "semaphore_show", E, "1", "0");
	SAYS("2 2 2 1 -1 59995 1700000000005000 0 2:e:n1:2000:r:1", "semaphore_show", A, "0", "1");
	SAYS("2 2 2 1 -1 59995 1700000000005000 1 2:c:n1:8000:f:1 1 1700000000000001 7995",
	     "semaphore_show", "", "9", "0", "c");
	SAYS("2 2 2 1 -1 59995 1700000000005000 0", "semaphore_show", "", "9", "0", "x");
	SAYS("1", "DEL", ENDS);
	SAYS("2 0 0 1 -1 59995 1700000000005000 0 2:e:n1:2000:r:1", SHOW);
	contract_stop();
}

TEST(half_of_it_lost_counts_as_nothing_held)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("1", "DEL", ENDS);
	SAYS("gone", RENEW(B, "2000"));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("2:c:n1:8000:f:1 1 1700000000000001 8000 kind 2:semaphore capacity 2 used 1 ttl 60000",
	     "HGETALL", STATE);
	SAYS("1", "DEL", ENDS);
	SAYS("set 2 0", OPEN("2"));
	SAYS("kind 2:semaphore capacity 2 used 0 ttl 60000", "HGETALL", STATE);
	SAYS("granted 1700000000000002 1700000000000000 0 0", ASK(B));
	SAYS("1", "DEL", ENDS);
	SAYS("left 0 0 1", LEAVE(""));
	SAYS("kind 2:semaphore capacity 2 used 0 ttl 60000", "HGETALL", STATE);
	/* The other half: only its end is left. */
	SAYS("granted 1700000000000003 1700000000000000 0 0", ASK(B));
	SAYS("1", "DEL", STATE);
	SAYS("gone", RENEW(B, "2000"));
	SAYS("granted 1700000000000004 1700000000000000 0 0", ASK(C));
	SAYS("left 0 0 1", LEAVE(B));
	SAYS("2:c:n1:8000:f:1 1700000008000000", ALL_ENDS);
	contract_stop();
}

TEST(damaged_counter_is_told)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	SAYS("OK", "SET", "lk:fence", "x");
	SAYS("fence not a number", ASK(E));
	SAYS("fence not a number", OPEN("2"));
	SAYS("held 1700000000000000 1700000000000000 1", RENEW(A, "5000"));
	SAYS("2 2 2 1 -1 60000 1700000000000000 2 2:a:n1:1000:r:1 1 1700000000000000 5000 "
	     "2:c:n1:8000:f:1 1 1700000000000001 8000 2:e:n1:2000:r:1",
	     SHOW);
	SAYS("left 1 0 0", LEAVE(C));
	SAYS("1", "HGET", STATE, "used");
	SAYS("OK", "SET", "lk:fence", "12345678901234567");
	SAYS("fence not a number", ASK(E));
	SAYS("OK", "SET", "lk:fence", "9007199254740990");
	SAYS("fence used up", ASK(E));
	SAYS("1", "DEL", "lk:fence");
	SAYS("1", "HSET", "lk:fence", "f", "v");
	SAYS("foreign lk:fence not a string", ASK(E));
	SAYS("1", "DEL", "lk:fence");
	SAYS("OK", "SET", "lk:fence", "1700000009000000");
	SAYS("granted 1700000009000001 1700000000000000 0 0", ASK(E));
	SAYS("1700000009000001", "GET", "lk:fence");
	contract_stop();
}

TEST(what_is_not_a_semaphore_is_left_alone)
{
	contract_start();
	SAYS("OK", "SET", STATE, "x");
	SAYS("foreign lk:{n} not a semaphore", ASK(A));
	SAYS("foreign lk:{n} not a semaphore", LEAVE(A));
	SAYS("foreign lk:{n} not a semaphore", RENEW(A, "5"));
	SAYS("foreign lk:{n} not a semaphore", OPEN("2"));
	SAYS("foreign lk:{n} not a semaphore", SHOW);
	SAYS("OK", "SET", STATE, "2:a:n1:1000:r 5 5 -");
	SAYS("foreign lk:{n} a lock, not a semaphore", ASK(A));
	SAYS("1", "DEL", STATE);
	SAYS("1", "HSET", STATE, "kind", "1:latch");
	SAYS("foreign lk:{n} a latch, not a semaphore", ASK(A));
	SAYS("0", "HSET", STATE, "kind", "3:semaphore");
	SAYS("foreign lk:{n} protocol version 3", ASK(A));
	SAYS("0", "HSET", STATE, "kind", "x");
	SAYS("foreign lk:{n} not a semaphore", ASK(A));
	SAYS("1", "HDEL", STATE, "kind");
	SAYS("1", "HSET", STATE, "f", "v");
	SAYS("foreign lk:{n} not a semaphore", ASK(A));
	SAYS("4", "HSET", STATE, "kind", "2:semaphore", "capacity", "x", "used", "0", "ttl", "5");
	SAYS("foreign lk:{n} a damaged semaphore", ASK(A));
	SAYS("1", "DEL", STATE);
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("foreign lk:{n}:q not a sorted set", ASK(A));
	SAYS("1", "DEL", QUEUE);
	SAYS("1", "ZADD", QUEUE, "1", "x");
	SAYS("foreign lk:{n}:q not a semaphore's queue", ASK(A));
	SAYS("1", "DEL", QUEUE);
	SAYS("1", "ZADD", QUEUE, "1", "3:later");
	SAYS("foreign lk:{n}:q protocol version 3", ASK(A));
	SAYS("1", "DEL", QUEUE);
	SAYS("1", "ZADD", QUEUE, "1", "2:a:n1:1000:r");
	SAYS("foreign lk:{n}:q not a semaphore's queue", OPEN("2"));
	SAYS("1", "DEL", QUEUE);
	SAYS("OK", "SET", ENDS, "x");
	SAYS("foreign lk:{n}:h not a sorted set", ASK(A));
	SAYS("1", "DEL", ENDS);
	SAYS("1", "ZADD", ENDS, "1", "x");
	SAYS("foreign lk:{n}:h not a semaphore's ends", ASK(A));
	contract_stop();
}

TEST(stranger_in_the_queue_is_not_served)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	SAYS("1", "ZADD", QUEUE, "1700000000000001", "x");
	SAYS("left 1 0 0 | a grant 2:a:n1:1000:r:1 1700000000000001 1000 0 1 1700000000000000",
	     LEAVE(B));
	SAYS("x 1700000000000001", ALL_QUEUE);
	contract_stop();
}

TEST(full_server_takes_no_new_hold_and_lets_go)
{
	contract_start();
	contract_full(true);
	SAYS(FULL, ASK(A));
	SAYS(FULL, OPEN("2"));
	contract_full(false);
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	contract_full(true);
	SAYS(FULL, ASK(B));
	SAYS("queued 1700000000000000 0 1000 0", ASK(E));
	SAYS("held 1700000000000000 1700000000000000 1", RENEW(A, "5000"));
	SAYS("2:a:n1:1000:r:1 1700000005000000 2:c:n1:8000:f:1 1700000008000000", ALL_ENDS);
	SAYS("left 1 0 0", KEEP(C, "1"));
	SAYS("left 1 0 0 | e grant 2:e:n1:2000:r:1 1700000000000002 2000 0 0 1700000000000000",
	     LEAVE(A));
	SAYS("2:e:n1:2000:r:1 1700000002000000 2:c:n1:8000:f:1 1700000008000000", ALL_ENDS);
	SAYS(FULL, RESIZE("3"));
	SAYS("2", "HGET", STATE, "capacity");
	contract_stop();
}

TEST(command_without_a_right_is_told)
{
	contract_start();
	contract_refuse("HMGET", NULL);
	SAYS(NO_RIGHT, ASK(A));
	contract_refuse("ZRANGE", NULL);
	SAYS(NO_RIGHT, ASK(A));
	SAYS("0", "EXISTS", STATE);
	contract_refuse("ZCARD", QUEUE);
	SAYS(NO_RIGHT, RENEW(A, "5"));
	SAYS(NO_RIGHT, OPEN("2"));
	SAYS("0", "EXISTS", STATE);
	contract_refuse("ZRANGE", ENDS);
	SAYS(NO_RIGHT, OPEN("2"));
	SAYS("0", "EXISTS", STATE);
	contract_refuse("GET", NULL);
	SAYS(NO_RIGHT, ASK(A));
	contract_refuse(NULL, NULL);
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	contract_refuse("GET", "lk:fence");
	SAYS(NO_RIGHT, LEAVE(B));
	SAYS("held 1700000000000000 1700000000000000 1", RENEW(B, "5"));
	contract_refuse("PUBLISH", NULL);
	SAYS("left 1 0 0", LEAVE(B));
	SAYS("2:a:n1:1000:r:1 1700000000000000", ALL_QUEUE);
	contract_stop();
}

TEST(own_lease_that_is_over_is_not_counted_twice)
{
	char ticket[40];

	contract_start();
	SAYS("set 90 0", OPEN("90"));
	for (int i = 0; i < 40; i++) {
		snprintf(ticket, sizeof(ticket), "2:a:n%d:1000:r:1", i);
		SAYS("1", "HSET", STATE, ticket, "1 5 1000");
		SAYS("1", "ZADD", ENDS, "1700000001000000", ticket);
	}
	SAYS("0", "HSET", STATE, "used", "40");
	contract_at(2000);
	/* By its bytes, not among the first 32. */
	SAYS("granted 1700000002000000 1700000002000000 0 1", ASK("2:a:n9:1000:r:1"));
	SAYS("8", "HGET", STATE, "used");
	contract_stop();
}

TEST(who_asks_when_leases_are_over_is_not_alone)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	SAYS("queued 1700000000000001 1 2000 0", ASK(E));
	contract_at(2000);
	SAYS("granted 1700000002000000 1700000002000000 0 0 | e grant 2:e:n1:2000:r:1 "
	     "1700000002000001 1000 1 0 1700000002000000",
	     ASK(A));
	SAYS("2", "HGET", STATE, "used");
	contract_stop();
}

TEST(whatever_the_answer_what_came_back_is_written)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	contract_at(1000);
	SAYS("busy 0", TRY(B));
	SAYS("1", "HGET", STATE, "used");
	SAYS("60000", "PTTL", STATE);
	SAYS("granted 1700000001000000 1700000001000000 0 0", ASK(A));
	contract_at(2000);
	SAYS("queued 1700000002000000 0 6000 0", ASK(B));
	SAYS("1", "HGET", STATE, "used");
	SAYS("60000", "PTTL", STATE);
	contract_stop();
}

TEST(full_server_takes_a_part_back)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	contract_full(true);
	SAYS("left 1 0 1", KEEP(B, "1"));
	SAYS("1 1700000000000000 2000", "HGET", STATE, B);
	SAYS("1", "HGET", STATE, "used");
	contract_stop();
}

TEST(full_server_answers_who_only_tries)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	contract_full(true);
	SAYS("busy 0", TRY(E));
	contract_stop();
}

/* The message is sent once no error can undo the grant. */
TEST(full_server_serves_after_a_resize)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(E));
	contract_full(true);
	SAYS("set 3 0 | e grant 2:e:n1:2000:r:1 1700000000000001 2000 0 0 1700000000000000",
	     RESIZE("3"));
	SAYS("", ALL_QUEUE);
	SAYS("held 1700000000000001 1700000000000000 0", RENEW(E, "5"));
	contract_full(false);
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	contract_refuse("HDEL", NULL);
	SAYS(NO_RIGHT, RESIZE("4"));
	SAYS("2:a:n1:1000:r:1 1700000000000000", ALL_QUEUE);
	contract_stop();
}

TEST(wait_is_told_by_the_lease_that_gives_enough)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK("2:a:n1:2000:f:1"));
	SAYS("granted 1700000000000001 1700000000000000 0 0", ASK(C));
	SAYS("queued 1700000000000000 0 2000 0", ASK(E));
	contract_stop();
}

TEST(head_behind_short_grants_is_told_when_to_ask)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("queued 1700000000000000 0 2000 0", ASK(A));
	SAYS("queued 1700000000000001 1 2000 0", ASK(E));
	SAYS("queued 1700000000000002 2 2000 0", ASK("2:c:n7:2000:r:2"));
	contract_at(1500);
	SAYS("left 1 0 0 | a grant 2:a:n1:1000:r:1 1700000001500000 500 1 2 1700000001500000 | e "
	     "grant 2:e:n1:2000:r:1 1700000001500001 1000 1 1 1700000001500000 | c again "
	     "2:c:n7:2000:r:2 1000",
	     LEAVE(B));
	contract_stop();
}

/* After manual changes: an answer all the same, with numbers that a client can read. */
TEST(places_and_ends_beyond_all_numbers)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("1", "ZADD", QUEUE, "-5", A);
	SAYS("queued 1 0 2000 0", ASK(A));
	SAYS("0", "ZADD", QUEUE, "inf", A);
	SAYS("queued 9007199254740991 0 2000 0", ASK(A));
	SAYS("1", "ZADD", ENDS, "1e300", "2:a:n9:1000:r:1");
	SAYS("held 1700000000000000 1700000000000000 1", RENEW(B, "3000"));
	SAYS("9007199254740991", "PTTL", STATE);
	contract_stop();
}

TEST(hold_of_damaged_numbers_is_none)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("0", "HSET", STATE, B, "2 1700000000000000 20000000000000000000");
	SAYS("gone", RENEW(B, "3000"));
	SAYS("left 0 0 0", LEAVE(B));
	contract_stop();
}

TEST(resize_of_half_a_memory_counts_nothing_as_held)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(B));
	SAYS("1", "DEL", ENDS);
	SAYS("mismatch 2", OPEN("7"));
	SAYS("2", "HGET", STATE, "used");
	SAYS("set 5 0", RESIZE("5"));
	SAYS("kind 2:semaphore capacity 5 used 0 ttl 60000", "HGETALL", STATE);
	contract_stop();
}

/* A right is missing for a while: the leave that stopped in the middle is completed by the next. */
TEST(torn_leave_is_completed_when_it_is_repeated)
{
	static const char *const commands[] = {"ZREM", "HDEL"};

	for (int i = 0; i < 2; i++) {
		contract_start();
		SAYS("granted 1700000000000000 1700000000000000 0 0", ASK(A));
		contract_refuse(commands[i], NULL);
		SAYS(i ? TORN_BY_RIGHT : NO_RIGHT, LEAVE(A));
		contract_refuse(NULL, NULL);
		SAYS(i ? "left 0 0 1" : "left 1 0 1", LEAVE(A));
		SAYS("0", "HGET", STATE, "used");
		SAYS("0", "EXISTS", ENDS);
		contract_stop();
	}
}
