/* SPDX-License-Identifier: MIT
 * What the scripts of a semaphore write when they are run by hand: counts through expiry, partial
 * data, clocks. */
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "scripts.h"
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANNELS "lk:c:0:"

static struct test_server server;
static struct redis *redis;

static void begin(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
}

static void end(void)
{
	redis_close(redis);
	server_stop(&server);
}

/* Return a ticket with a client of its own. */
static const char *ticket(int number, int lease_ms, char mode, int permits)
{
	static char text[4][80];
	static unsigned next;
	char *out = text[next++ % 4];

	snprintf(out, sizeof(text[0]), "1:client----------------%02d:nonce----%02d:%d:%c:%d",
	         number, number, lease_ms, mode, permits);
	return out;
}

static const char *ask(const char *who, int capacity)
{
	return redis_text(
		redis, "EVAL %s 4 lk:{s} lk:{s}:q lk:fence lk:{s}:h %s 1 0 %s %d 60000 30000 21000",
		lk__script_semaphore_ask.text, who, CHANNELS, capacity);
}

static const char *leave(const char *who, int keep)
{
	return redis_text(redis, "EVAL %s 4 lk:{s} lk:{s}:q lk:fence lk:{s}:h %s %d %s 0 21000",
	                  lk__script_semaphore_leave.text, who, keep, CHANNELS);
}

static const char *renew(const char *who, int lease_ms)
{
	return redis_text(redis, "EVAL %s 4 lk:{s} lk:{s}:q lk:fence lk:{s}:h %s 0 %d",
	                  lk__script_semaphore_renew.text, who, lease_ms);
}

static const char *resize(int capacity)
{
	return redis_text(redis,
	                  "EVAL %s 4 lk:{s} lk:{s}:q lk:fence lk:{s}:h resize %d 60000 %s 21000",
	                  lk__script_semaphore_set.text, capacity, CHANNELS);
}

/* Subscribe to the messages for the clients of these tickets. */
static struct redis *listen(const char *first, const char *second)
{
	struct redis *ears = redis_open(&server);

	redis_do(ears, "SUBSCRIBE %s%b", CHANNELS, first + 2, strcspn(first + 2, ":"));
	redis_do(ears, "SUBSCRIBE %s%b", CHANNELS, second + 2, strcspn(second + 2, ":"));
	return ears;
}

static long long used(void)
{
	return redis_int(redis, "HGET lk:{s} used");
}

/* Return the sum of the permits in the fields of all holds. */
static long long held(void)
{
	char text[8192], *line, *save = NULL;
	long long sum = 0;
	bool is_hold = false;

	snprintf(text, sizeof(text), "%s", redis_text(redis, "HGETALL lk:{s}"));
	for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (is_hold)
			sum += strtoll(line, NULL, 10);
		is_hold = !is_hold && !strncmp(line, "1:client", 8);
	}
	return sum;
}

static void assert_begins(const char *text, const char *with)
{
	ck_assert_msg(!strncmp(text, with, strlen(with)), "\"%s\" does not begin with \"%s\"", text,
	              with);
}

/* More leases have expired than one run reclaims, and the holder that returns first is among the
 * remaining ones: its permits count once. */
TEST(expired_hold_that_asks_again_counts_once)
{
	begin();
	for (int i = 0; i < 40; i++)
		assert_begins(ask(ticket(i, 100, 'r', 1), 100), "granted");
	ck_assert_int_eq(used(), 40);
	nap_ms(130);
	assert_begins(ask(ticket(39, 100, 'r', 1), 100), "granted");
	ck_assert_int_eq(used(), held());
	leave("", 0);
	ck_assert_int_eq(used(), 1);
	ck_assert_int_eq(held(), 1);
	end();
}

TEST(half_a_memory_starts_anew)
{
	begin();
	assert_begins(ask(ticket(1, 60000, 'r', 2), 3), "granted");
	redis_do(redis, "DEL lk:{s}:h");
	assert_begins(renew(ticket(1, 60000, 'r', 2), 60000), "gone");
	assert_begins(ask(ticket(2, 60000, 'r', 3), 3), "granted");
	ck_assert_int_eq(used(), 3);
	ck_assert_int_eq(held(), 3);
	redis_do(redis, "DEL lk:{s}");
	assert_begins(renew(ticket(2, 60000, 'r', 3), 60000), "gone");
	assert_begins(ask(ticket(3, 60000, 'r', 3), 3), "granted");
	assert_begins(leave(ticket(2, 60000, 'r', 3), 0), "left\n0");
	ck_assert_int_eq(used(), 3);
	assert_begins(leave(ticket(3, 60000, 'r', 3), 0), "left\n1");
	ck_assert_int_eq(used(), 0);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{s}:h"), 0);
	end();
}

TEST(late_partial_release_gives_nothing_back)
{
	const char *who;

	begin();
	who = ticket(1, 60000, 'r', 5);
	assert_begins(ask(who, 5), "granted");
	assert_begins(leave(who, 2), "left\n1");
	ck_assert_int_eq(used(), 2);
	assert_begins(leave(who, 4), "left\n1"); /* sent earlier, arrives later */
	ck_assert_int_eq(used(), 2);
	assert_begins(leave(who, 0), "left\n1");
	assert_begins(leave(who, 2), "left\n0");
	ck_assert_int_eq(used(), 0);
	end();
}

TEST(end_beyond_its_length_is_cut_by_who_asks)
{
	begin();
	assert_begins(ask(ticket(1, 1000, 'r', 1), 1), "granted");
	/* As if the clock had been an hour ahead at that time. */
	redis_do(redis, "ZINCRBY lk:{s}:h 3600000000 %s", ticket(1, 1000, 'r', 1));
	assert_begins(ask(ticket(2, 1000, 'r', 1), 1), "queued");
	nap_ms(1010);
	assert_begins(ask(ticket(2, 1000, 'r', 1), 1), "granted");
	end();
}

TEST(renewal_cuts_an_end_beyond_its_length)
{
	double end_us, now_us;

	begin();
	assert_begins(ask(ticket(1, 1000, 'r', 1), 1), "granted");
	redis_do(redis, "ZINCRBY lk:{s}:h 3600000000 %s", ticket(1, 1000, 'r', 1));
	assert_begins(renew(ticket(1, 1000, 'r', 1), 1000), "held");
	end_us = strtod(redis_text(redis, "ZSCORE lk:{s}:h %s", ticket(1, 1000, 'r', 1)), NULL);
	now_us = strtod(redis_text(redis, "TIME"), NULL) * 1e6;
	ck_assert_double_lt(end_us, now_us + 3e6);
	end();
}

TEST(fence_counter_that_is_damaged_ends_no_hold_less)
{
	begin();
	assert_begins(ask(ticket(1, 60000, 'r', 1), 1), "granted");
	redis_do(redis, "SET lk:fence nonsense");
	assert_begins(ask(ticket(2, 60000, 'r', 1), 1), "fence");
	assert_begins(renew(ticket(1, 60000, 'r', 1), 60000), "held");
	assert_begins(leave(ticket(1, 60000, 'r', 1), 0), "left\n1");
	ck_assert_int_eq(used(), 0);
	end();
}

/* Ticket 1 holds all permits; ticket 2 waits and its client listens. */
static struct redis *one_holds_one_waits(void)
{
	struct redis *ears;

	begin();
	ears = listen(ticket(1, 60000, 'r', 1), ticket(2, 60000, 'r', 1));
	assert_begins(ask(ticket(1, 60000, 'r', 1), 1), "granted");
	assert_begins(ask(ticket(2, 60000, 'r', 1), 1), "queued");
	return ears;
}

/* A grant that was published but not written would lead to a second holder. */
TEST(server_that_takes_no_writes_tells_no_grant)
{
	struct redis *ears = one_holds_one_waits();
	long long published = redis_calls(redis, "publish");

	redis_do(redis, "CONFIG SET min-replicas-to-write 1");
	assert_begins(resize(2), "-NOREPLICAS");
	ck_assert_int_eq(redis_calls(redis, "publish"), published);
	ck_assert_int_eq(used(), 1);
	redis_do(redis, "CONFIG SET min-replicas-to-write 0");
	assert_begins(resize(2), "set\n2");
	ck_assert_int_eq(redis_calls(redis, "publish"), published + 1);
	ck_assert_int_eq(used(), 2);
	ck_assert_int_eq(held(), 2);
	redis_close(ears);
	end();
}

TEST(full_server_makes_the_grants_that_it_tells)
{
	struct redis *ears = one_holds_one_waits();

	redis_do(redis, "CONFIG SET maxmemory 1");
	assert_begins(resize(2), "set\n2");
	ck_assert_int_eq(used(), 2);
	ck_assert_int_eq(held(), 2);
	assert_begins(renew(ticket(2, 60000, 'r', 1), 60000), "held");
	redis_close(ears);
	end();
}

TEST(full_server_keeps_who_waits)
{
	struct redis *ears = one_holds_one_waits();
	char arrival[32];

	ck_assert_int_eq(sscanf(ask(ticket(2, 60000, 'r', 1), 1), "queued %31s", arrival), 1);
	redis_do(redis, "CONFIG SET maxmemory 1");
	assert_begins(redis_text(redis,
	                         "EVAL %s 4 lk:{s} lk:{s}:q lk:fence lk:{s}:h %s 1 %s %s 1 60000 "
	                         "30000 21000",
	                         lk__script_semaphore_ask.text, ticket(2, 60000, 'r', 1), arrival,
	                         CHANNELS),
	              "queued");
	assert_begins(ask(ticket(3, 60000, 'r', 1), 1), "-OOM");
	redis_close(ears);
	end();
}

/* Many tickets of one stopped process cost one claim window, not one each. */
TEST(silent_client_is_waited_for_once)
{
	const char *silent[2] = {"1:client----------------07:nonce-----1:60000:r:6",
	                         "1:client----------------07:nonce-----2:60000:r:6"};
	struct redis *ears;

	begin();
	ears = listen(silent[0], ticket(9, 60000, 'r', 1));
	assert_begins(ask(ticket(1, 60000, 'r', 5), 10), "granted");
	assert_begins(ask(silent[0], 10), "queued");
	assert_begins(ask(silent[1], 10), "queued");
	assert_begins(ask(ticket(9, 60000, 'r', 1), 10), "queued");
	nap_ms(20);
	ck_assert_int_eq(held(), 5);
	redis_text(redis, "EVAL %s 4 lk:{s} lk:{s}:q lk:fence lk:{s}:h %s 0 %s 0 10",
	           lk__script_semaphore_leave.text, "1:nobody", CHANNELS);
	ck_assert_int_eq(held(), 6);
	ck_assert_int_eq(redis_int(redis, "ZCARD lk:{s}:q"), 0);
	redis_close(ears);
	end();
}

TEST(a_foreign_fence_counter_ends_no_hold_less)
{
	begin();
	ck_assert_int_eq(strncmp(ask(ticket(1, 5000, 'r', 2), 3), "granted", 7), 0);
	redis_do(redis, "DEL lk:fence");
	redis_do(redis, "RPUSH lk:fence x");
	ck_assert_int_eq(strncmp(renew(ticket(1, 5000, 'r', 2), 9000), "held", 4), 0);
	ck_assert_int_eq(strncmp(ask(ticket(2, 5000, 'r', 1), 3), "foreign\nlk:fence", 16), 0);
	ck_assert_int_eq(strncmp(leave(ticket(1, 5000, 'r', 2), 1), "left\n1", 6), 0);
	ck_assert_int_eq(strncmp(leave(ticket(1, 5000, 'r', 2), 0), "left\n1", 6), 0);
	ck_assert_str_eq(redis_text(redis, "HGET lk:{s} used"), "0");
	ck_assert_str_eq(redis_text(redis, "TYPE lk:fence"), "list");
	end();
}
