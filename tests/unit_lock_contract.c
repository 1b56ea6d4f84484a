/* SPDX-License-Identifier: MIT
 * The contract of a lock's scripts with their callers. */
#include "contract.h"
#include "core/core.h"
#include "redis/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A "2:a:n1:1000:r"
#define B "2:b:n1:2000:r"
#define C "2:c:n1:8000:f"
#define D "2:d:n1:2000:r"
#define LOCK "lk:{n}"
#define QUEUE "lk:{n}:q"
#define ASK(ticket) "lock_ask", ticket, "1", "0", "lk:c:0:", "-", "30000"
#define TRY(ticket) "lock_ask", ticket, "0", "0", "lk:c:0:", "-", "30000"
#define LEAVE(ticket) "lock_leave", ticket, "0", "lk:c:0:", "0"

TEST(free_lock_is_granted)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("2:a:n1:1000:r 1700000000000000 1000 -", "GET", LOCK);
	SAYS("1000", "PTTL", LOCK);
	SAYS("1700000000000000", "GET", "lk:fence");
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(repeated_ask_is_the_same_grant_and_never_shorter)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	contract_at(400);
	SAYS("granted 1700000000000000 1700000000400000 0", ASK(A));
	SAYS("1000", "PTTL", LOCK);
	SAYS("held 1700000000000000 1700000000400000 0", "lock_renew", A, "0", "5000", "0", "-");
	SAYS("granted 1700000000000000 1700000000400000 0", ASK(A));
	SAYS("5000", "PTTL", LOCK);
	SAYS("1700000000000000", "GET", "lk:fence");
	contract_stop();
}

TEST(fence_follows_the_clock_and_the_counter)
{
	contract_start();
	SAYS("OK", "SET", "lk:fence", "1700000005000000");
	SAYS("granted 1700000005000001 1700000000000000 0", ASK(A));
	SAYS("1700000005000001", "GET", "lk:fence");
	SAYS("left 1 0 1", LEAVE(A));
	contract_at(9000);
	SAYS("granted 1700000009000000 1700000009000000 0", ASK(A));
	contract_stop();
}

TEST(damaged_counter_is_told)
{
	contract_start();
	SAYS("OK", "SET", "lk:fence", "x");
	SAYS("fence not a number", ASK(A));
	SAYS("0", "EXISTS", LOCK);
	SAYS("OK", "SET", "lk:fence", "12345678901234567");
	SAYS("fence not a number", ASK(A));
	SAYS("OK", "SET", "lk:fence", "9007199254740991");
	SAYS("fence used up", ASK(A));
	SAYS("left 0 0 1", LEAVE(A));
	SAYS("OK", "SET", "lk:fence", "9007199254740990");
	SAYS("fence used up", ASK(A));
	SAYS("1", "DEL", "lk:fence");
	SAYS("1", "HSET", "lk:fence", "f", "v");
	SAYS("foreign lk:fence not a string", ASK(A));
	SAYS("0", "EXISTS", LOCK);
	contract_stop();
}

TEST(queue_is_in_order_of_arrival)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("busy 0", TRY(B));
	SAYS("0", "EXISTS", QUEUE);
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("30000", "PTTL", QUEUE);
	SAYS("queued 1700000000000001 1 1000 0", ASK(C));
	contract_at(100);
	SAYS("queued 1700000000000000 0 900 0", ASK(B));
	SAYS("2:b:n1:2000:r 1700000000000000 2:c:n1:8000:f 1700000000000001", "ZRANGE", QUEUE, "0",
	     "-1", "WITHSCORES");
	/* An old arrival is kept, or restored. */
	SAYS("1", "ZREM", QUEUE, B);
	SAYS("queued 1699999999000000 0 900 0", "lock_ask", B, "1", "1699999999000000",
	     "lk:c:0:", "-", "7000");
	SAYS("2:b:n1:2000:r 1699999999000000 2:c:n1:8000:f 1700000000000001", "ZRANGE", QUEUE, "0",
	     "-1", "WITHSCORES");
	SAYS("7000", "PTTL", QUEUE);
	/* A free lock is granted to the head of the queue only. */
	SAYS("1", "DEL", LOCK);
	SAYS("busy 1", TRY(A));
	SAYS("queued 1700000000000001 1 0 1", ASK(C));
	SAYS("granted 1700000000100000 1700000000100000 1", ASK(B));
	SAYS("2:c:n1:8000:f", "ZRANGE", QUEUE, "0", "-1");
	contract_stop();
}

TEST(holder_that_shares_hears_of_the_first_waiter)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", "lock_ask", A, "1", "0", "lk:c:0:", "s",
	     "30000");
	SAYS("2:a:n1:1000:r 1700000000000000 1000 s", "GET", LOCK);
	SAYS("queued 1700000000000000 0 1000 0 | a wanted 2:a:n1:1000:r", ASK(B));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("queued 1700000000000001 1 1000 0", ASK(C));
	SAYS("held 1700000000000000 1700000000000000 2", "lock_renew", A, "0", "1000", "0", "-");
	SAYS("2:a:n1:1000:r 1700000000000000 1000 -", "GET", LOCK);
	SAYS("1", "DEL", QUEUE);
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("held 1700000000000000 1700000000000000 1", "lock_renew", A, "0", "1000", "0", "s");
	SAYS("2:a:n1:1000:r 1700000000000000 1000 s", "GET", LOCK);
	contract_stop();
}

TEST(lease_never_ends_later_than_its_length_from_now)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	contract_at(-5000);
	SAYS("busy 0", TRY(B));
	SAYS("1000", "PTTL", LOCK);
	SAYS("1", "PERSIST", LOCK);
	SAYS("busy 0", TRY(B));
	SAYS("1000", "PTTL", LOCK);
	contract_stop();
}

TEST(renewal_moves_the_end_on_and_never_back)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "500", "0", "-");
	SAYS("1000", "PTTL", LOCK);
	SAYS("2:a:n1:1000:r 1700000000000000 1000 -", "GET", LOCK);
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "1700000000000000",
	     "3000", "0", "-");
	SAYS("3000", "PTTL", LOCK);
	SAYS("2:a:n1:1000:r 1700000000000000 3000 -", "GET", LOCK);
	SAYS("queued 1700000000000000 0 3000 0", ASK(B));
	contract_at(1000);
	SAYS("held 1700000000000000 1700000001000000 1", "lock_renew", A, "0", "3000", "0", "-");
	SAYS("3000", "PTTL", LOCK);
	SAYS("gone", "lock_renew", A, "1700000000000001", "3000", "0", "-");
	SAYS("gone", "lock_renew", B, "0", "3000", "0", "-");
	SAYS("1", "DEL", LOCK);
	SAYS("gone", "lock_renew", A, "0", "3000", "0", "-");
	SAYS("0", "EXISTS", LOCK);
	contract_stop();
}

/* The next ask cuts the end to the length in force, which must be the extension's. */
TEST(extension_counts_though_the_clock_stepped_back)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	contract_at(-5000);
	SAYS("held 1700000000000000 1699999995000000 0", "lock_renew", A, "0", "3000", "0", "-");
	SAYS("6000", "PTTL", LOCK);
	SAYS("2:a:n1:1000:r 1700000000000000 3000 -", "GET", LOCK);
	SAYS("busy 0", TRY(B));
	SAYS("3000", "PTTL", LOCK);
	contract_stop();
}

TEST(renewal_tells_the_fences_that_the_holder_gave_out)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "1000",
	     "1700000000000009", "-");
	SAYS("1700000000000009", "GET", "lk:fence");
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "1000",
	     "1700000000000004", "-");
	SAYS("1700000000000009", "GET", "lk:fence");
	SAYS("OK", "SET", "lk:fence", "x");
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "1000",
	     "1700000000000004", "-");
	SAYS("x", "GET", "lk:fence");
	SAYS("1", "DEL", "lk:fence");
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "1000",
	     "1700000000000004", "-");
	SAYS("1700000000000004", "GET", "lk:fence");
	SAYS("1", "DEL", "lk:fence");
	SAYS("1", "HSET", "lk:fence", "f", "v");
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "1000",
	     "1700000000000004", "-");
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("held 1700000000000000 1700000000000000 0", "lock_renew", A, "0", "1000", "0", "-");
	contract_stop();
}

TEST(release_serves_the_head)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("queued 1700000000000001 1 1000 0", ASK(C));
	contract_at(10);
	SAYS("left 1 0 0 | b grant 2:b:n1:2000:r 1700000000010000 2000 0 1 1700000000010000",
	     "lock_leave", A, "1700000000000500", "lk:c:0:", "0");
	SAYS("2:b:n1:2000:r 1700000000010000 2000 -", "GET", LOCK);
	SAYS("2000", "PTTL", LOCK);
	SAYS("1700000000010000", "GET", "lk:fence");
	SAYS("2:c:n1:8000:f", "ZRANGE", QUEUE, "0", "-1");
	SAYS("left 0 0 0", LEAVE(A));
	SAYS("left 0 0 0", LEAVE(C));
	SAYS("0", "EXISTS", QUEUE);
	SAYS("left 1 0 1", LEAVE(B));
	SAYS("0", "EXISTS", LOCK);
	SAYS("left 0 0 1", LEAVE(B));
	contract_stop();
}

/* Its own repeated ask came late, after the hold was over and another had begun. */
TEST(release_removes_its_own_ticket_from_the_queue)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	contract_at(1001);
	SAYS("granted 1700000001001000 1700000001001000 0", ASK(B));
	SAYS("queued 1700000001001000 0 2000 0", ASK(A));
	SAYS("left 0 0 0", "lock_leave", A, "1700000000000000", "lk:c:0:", "0");
	SAYS("0", "EXISTS", QUEUE);
	SAYS("left 1 0 1", LEAVE(B));
	contract_stop();
}

TEST(last_fence_of_the_holder_counts_at_release)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("left 1 0 1", "lock_leave", A, "1700000000900000", "lk:c:0:", "0");
	SAYS("1700000000900000", "GET", "lk:fence");
	/* Not from a client that does not hold it. */
	SAYS("left 0 0 1", "lock_leave", A, "1700000000950000", "lk:c:0:", "0");
	SAYS("1700000000900000", "GET", "lk:fence");
	SAYS("granted 1700000000900001 1700000000000000 0", ASK(A));
	SAYS("left 1 0 1", "lock_leave", A, "5", "lk:c:0:", "0");
	SAYS("1700000000900001", "GET", "lk:fence");
	contract_stop();
}

TEST(old_waiter_is_granted_a_short_lease_and_the_next_is_told_when)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(C));
	SAYS("queued 1700000000000000 0 8000 0", ASK(A));
	SAYS("queued 1700000000000001 1 8000 0", ASK(B));
	contract_at(501);
	SAYS("left 1 0 0 | a grant 2:a:n1:1000:r 1700000000501000 500 1 1 1700000000501000 | b "
	     "again 2:b:n1:2000:r 500",
	     LEAVE(C));
	SAYS("500", "PTTL", LOCK);
	SAYS("2:a:n1:1000:r 1700000000501000 1000 -", "GET", LOCK);
	SAYS("left 1 0 0 | b grant 2:b:n1:2000:r 1700000000501001 2000 0 0 1700000000501000",
	     LEAVE(A));
	SAYS("2000", "PTTL", LOCK);
	/* A claim of at most three seconds; a clock that stepped back also makes it old. */
	SAYS("queued 1700000000501000 0 2000 0", ASK(C));
	contract_at(-10);
	SAYS("left 1 0 0 | c grant 2:c:n1:8000:f 1700000000501002 3000 1 0 1699999999990000",
	     LEAVE(B));
	SAYS("3000", "PTTL", LOCK);
	contract_stop();
}

TEST(dead_waiters_are_passed_over)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(D));
	SAYS("queued 1700000000000001 1 1000 0", ASK(B));
	SAYS("left 1 0 0 | b grant 2:b:n1:2000:r 1700000000000001 1000 1 0 1700000000000000 | d 1",
	     LEAVE(A));
	SAYS("2:b:n1:2000:r 1700000000000001 2000 -", "GET", LOCK);
	SAYS("0", "EXISTS", QUEUE);
	contract_stop();
}

TEST(one_run_looks_at_so_many_dead_waiters)
{
	char ticket[40];

	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	for (int i = 0; i < 33; i++) {
		snprintf(ticket, sizeof(ticket), "2:d:n%d:2000:r", i);
		SAYS("1", "ZADD", QUEUE, "1700000000000000", ticket);
	}
	SAYS("left 1 1 0 | d 32", LEAVE(A));
	SAYS("1", "ZCARD", QUEUE);
	SAYS("left 0 0 1 | d 1", LEAVE(""));
	contract_stop();
}

TEST(holder_whose_hold_others_end_is_told)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("left 1 0 1 | a broken 2:a:n1:1000:r", "lock_leave", A, "0", "lk:c:0:", "1");
	SAYS("left 0 0 1", "lock_leave", A, "0", "lk:c:0:", "1");
	contract_stop();
}

TEST(no_head_is_served_without_a_fence)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("OK", "SET", "lk:fence", "x");
	SAYS("left 1 0 0", LEAVE(A));
	SAYS("OK", "SET", "lk:fence", "9007199254740990");
	SAYS("left 0 0 0", LEAVE(""));
	SAYS("1", "DEL", "lk:fence");
	SAYS("1", "HSET", "lk:fence", "f", "v");
	SAYS("left 0 0 0", LEAVE(""));
	SAYS("1", "DEL", "lk:fence");
	SAYS("1", "ZADD", QUEUE, "1", "stranger");
	SAYS("left 0 0 0", LEAVE(""));
	SAYS("stranger 2:b:n1:2000:r", "ZRANGE", QUEUE, "0", "-1");
	SAYS("0", "EXISTS", LOCK);
	SAYS("1", "ZREM", QUEUE, "stranger");
	SAYS("left 0 0 0 | b grant 2:b:n1:2000:r 1700000000000000 2000 0 0 1700000000000000",
	     LEAVE(""));
	contract_stop();
}

TEST(look_tells_holder_and_queue)
{
	contract_start();
	SAYS(" 0 -2 1700000000000000 0 -1", "lock_show", "", "0");
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	SAYS("queued 1700000000000001 1 1000 0", ASK(C));
	contract_at(5);
	SAYS("2:a:n1:1000:r 1700000000000000 995 1700000000005000 2 -1", "lock_show", "", "0");
	SAYS("2:a:n1:1000:r 1700000000000000 995 1700000000005000 2 1 2:b:n1:2000:r", "lock_show",
	     C, "1");
	SAYS("2:a:n1:1000:r 1700000000000000 995 1700000000005000 2 -1 2:b:n1:2000:r 2:c:n1:8000:f",
	     "lock_show", A, "9");
	contract_stop();
}

TEST(what_is_not_a_lock_is_left_alone)
{
	static const char *const values[][2] = {{"x", "not a lock"},
	                                        {"3:later", "protocol version 3"},
	                                        {"2:a:n1:1000:r 1 2 x", "not a lock"},
	                                        {"2:a", "not a lock"}};
	char foreign[80];

	contract_start();
	for (int i = 0; i < 4; i++) {
		snprintf(foreign, sizeof(foreign), "foreign lk:{n} %s", values[i][1]);
		SAYS("OK", "SET", LOCK, values[i][0]);
		SAYS(foreign, ASK(A));
		SAYS(foreign, LEAVE(A));
		SAYS(foreign, "lock_show", "", "0");
		SAYS("gone", "lock_renew", A, "0", "1000", "0", "-");
		SAYS(values[i][0], "GET", LOCK);
	}
	SAYS("1", "DEL", LOCK);
	SAYS("1", "HSET", LOCK, "kind", "1:latch");
	SAYS("foreign lk:{n} a latch, not a lock", ASK(A));
	SAYS("foreign lk:{n} a latch, not a lock", LEAVE(A));
	SAYS("foreign lk:{n} a latch, not a lock", "lock_show", "", "0");
	SAYS("foreign lk:{n} a latch, not a lock", "lock_renew", A, "0", "1000", "0", "-");
	SAYS("0", "HSET", LOCK, "kind", "x");
	SAYS("foreign lk:{n} not a lock", ASK(A));
	SAYS("1", "DEL", LOCK);
	SAYS("1", "ZADD", LOCK, "1", "x");
	SAYS("foreign lk:{n} not a lock", ASK(A));
	SAYS("1", "DEL", LOCK);
	SAYS("1", "ZADD", QUEUE, "1", "x");
	SAYS("foreign lk:{n}:q not a queue", ASK(A));
	SAYS("foreign lk:{n}:q not a queue", "lock_show", "", "0");
	SAYS("1", "DEL", QUEUE);
	SAYS("1", "ZADD", QUEUE, "1", "3:later");
	SAYS("foreign lk:{n}:q protocol version 3", ASK(A));
	SAYS("foreign lk:{n}:q protocol version 3", "lock_show", "", "0");
	SAYS("1", "DEL", QUEUE);
	SAYS("OK", "SET", QUEUE, "x");
	SAYS("foreign lk:{n}:q not a sorted set", ASK(A));
	SAYS("foreign lk:{n}:q not a sorted set", LEAVE(A));
	SAYS("foreign lk:{n}:q not a sorted set", "lock_show", "", "0");
	SAYS("0", "EXISTS", LOCK);
	contract_stop();
}

TEST(full_server_takes_no_new_hold_and_lets_go)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	contract_full(true);
	SAYS(FULL, ASK(C));
	SAYS("held 1700000000000000 1700000000000000 1", "lock_renew", A, "0", "5000",
	     "1700000000000009", "s");
	SAYS("2:a:n1:1000:r 1700000000000000 5000 s", "GET", LOCK);
	SAYS("left 1 0 0 | b grant 2:b:n1:2000:r 1700000000000020 2000 0 0 1700000000000000",
	     "lock_leave", A, "1700000000000019", "lk:c:0:", "0");
	SAYS("2:b:n1:2000:r 1700000000000020 2000 -", "GET", LOCK);
	SAYS("left 1 0 1", LEAVE(B));
	SAYS(FULL, ASK(A));
	SAYS("0", "EXISTS", LOCK);
	contract_stop();
}

TEST(command_without_a_right_is_told)
{
	contract_start();
	contract_refuse("GET", NULL);
	SAYS(NO_RIGHT, ASK(A));
	SAYS(NO_RIGHT, LEAVE(A));
	SAYS(NO_RIGHT, "lock_renew", A, "0", "1000", "0", "-");
	SAYS(NO_RIGHT, "lock_show", "", "0");
	contract_refuse("ZCARD", NULL);
	SAYS(NO_RIGHT, ASK(A));
	SAYS(NO_RIGHT, LEAVE(A));
	contract_refuse("ZRANGE", NULL);
	SAYS(NO_RIGHT, "lock_show", "", "0");
	contract_refuse("GET", "lk:fence");
	SAYS(NO_RIGHT, ASK(A));
	SAYS("0", "EXISTS", LOCK);
	contract_refuse(NULL, NULL);
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	contract_refuse("ZREM", NULL);
	SAYS(NO_RIGHT, LEAVE(A));
	contract_refuse("PUBLISH", NULL);
	SAYS(TORN_BY_RIGHT, LEAVE(A));
	SAYS("2:b:n1:2000:r", "ZRANGE", QUEUE, "0", "-1");
	contract_stop();
}

/* The answer to an error behind the first write must not look like a refusal. */
TEST(script_that_ends_in_the_middle_is_torn)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("queued 1700000000000000 0 1000 0", ASK(B));
	contract_refuse("SET", LOCK);
	SAYS(TORN_BY_RIGHT " | b grant " B " 1700000000000001 2000 0 0 1700000000000000", LEAVE(A));
	SAYS("0", "EXISTS", LOCK);
	contract_refuse("SET", NULL);
	SAYS(NO_RIGHT, ASK(A));
	contract_stop();
}

TEST(place_of_a_meddling_hand_is_told_as_a_number)
{
	contract_start();
	SAYS("granted 1700000000000000 1700000000000000 0", ASK(A));
	SAYS("1", "ZADD", QUEUE, "1e300", B);
	SAYS("queued 9007199254740991 0 1000 0", ASK(B));
	SAYS("queued 9007199254740991 0 1000 0", ASK(C));
	SAYS("0", "ZADD", QUEUE, "-5", B);
	SAYS("queued 1 0 1000 0", ASK(B));
	contract_stop();
}

/* Every 10 s, with 2 % jitter, later ranks up to a second later: docs/redis.md. */
TEST(queue_outlives_the_longest_time_between_two_asks)
{
	static const struct lk__epoch epoch = {.len = 5, .text = "1 a 1"};
	const struct lk__request ask = {.kind = LK__ASK,
	                                .noun = LK_KIND_LOCK,
	                                .name = "n",
	                                .name_len = 1,
	                                .ticket = {.nonce = "nonce-nonc0", .lease_ms = 10000},
	                                .epoch = &epoch};
	struct lk__space space;
	struct lk__buf bytes = {0};
	const char *at;

	lk__space_init(&space, "lk", 0, "aaaaaaaaaaaaaaaaaaaaaa");
	ck_assert(lk__codec_request(&bytes, &space, &ask));
	/* The argument before the marker: "30000" in ASK(). */
	at = strstr(bytes.data, "\r\n$5\r\n1 a 1");
	ck_assert_ptr_nonnull(at);
	while (at[-1] != '\n')
		at--;
	ck_assert_int_gt(strtoll(at, NULL, 10), 2 * 11200);
	lk__buf_fini(&bytes);
}
