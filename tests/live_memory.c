/* SPDX-License-Identifier: MIT
 * lk_client_memory(), lk_client_end_grace(), and the grace in queries. */
#include <latchkey.h>

#include "handles.h"
#include "process.h"
#include "redis.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static struct test_server server;
static struct redis *redis;

static void begin(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
}

static void finish(void)
{
	redis_close(redis);
	server_stop(&server);
}

static lk_client *client_of_grace(int64_t grace_ms)
{
	lk_client_options options = {.grace_ms = grace_ms};

	return client_with(server.url, &options);
}

static lk_memory memory_of(lk_client *client)
{
	lk_memory memory;

	memset(&memory, 0xff, sizeof(memory));
	OK(lk_client_memory(client, &memory));
	return memory;
}

TEST(memory_is_that_of_the_marker)
{
	lk_client *client, *without;
	lk_memory memory, same;
	char marker[120], text[120];

	begin();
	client = client_of_grace(60000);
	memory = memory_of(client);
	snprintf(marker, sizeof(marker), "%s", redis_marker(redis));
	snprintf(text, sizeof(text), "1 %s %lld", memory.id, (long long)memory.since_us);
	ck_assert_str_eq(text, marker);
	ck_assert_int_eq(memory.grace_ms + memory.age_ms, 60000);
	ck_assert(!memory.is_partial);
	for (size_t i = 0; i < sizeof(memory.reserved) / sizeof(memory.reserved[0]); i++)
		ck_assert_int_eq(memory.reserved[i], 0);
	nap_ms(20);
	same = memory_of(client);
	ck_assert_str_eq(same.id, memory.id);
	ck_assert_int_ge(same.age_ms, memory.age_ms + 20);
	without = client_of_grace(-1);
	ck_assert_int_eq(memory_of(without).grace_ms, 0);
	ck_assert_int_eq(memory_of(without).since_us, memory.since_us);
	OK(lk_client_close(without));
	OK(lk_client_close(client));
	finish();
}

TEST(queries_say_how_much_of_the_grace_is_left)
{
	lk_client *client;
	lk_lock_status status;
	lk_semaphore_status permits;
	lk_semaphore *semaphore;
	uint64_t fence;
	lk_lock *lock;

	begin();
	client = client_of_grace(60000);
	lock = lock_named(client, "a");
	semaphore = semaphore_of(client, "s", 2, 0);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "the server may have forgotten a holder: nothing "
	                                          "is granted for "));
	OK(lk_lock_query(lock, &status));
	ck_assert_int_gt(status.grace_ms, 50000);
	ck_assert_int_le(status.grace_ms, 60000);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &fence), LK_EBUSY);
	OK(lk_semaphore_query(semaphore, &permits));
	ck_assert_int_gt(permits.grace_ms, 50000);
	ck_assert_int_le(permits.grace_ms, status.grace_ms);
	OK(lk_client_end_grace(client, NULL));
	OK(lk_lock_acquire(lock, 5000, NULL));
	OK(lk_lock_query(lock, &status));
	ck_assert_int_eq(status.grace_ms, 0);
	OK(lk_semaphore_query(semaphore, &permits));
	ck_assert_int_eq(permits.grace_ms, 0);
	OK(lk_client_close(client));
	finish();
}

/* The holder renews rarely: it does not learn of the loss before the grace has been ended. */
TEST(end_of_a_grace_takes_what_was_not_taken_back)
{
	lk_client *holder, *other;
	lk_lock *held, *wanted;

	begin();
	holder = client_of_grace(60000);
	other = client_of_grace(60000);
	OK(lk_client_end_grace(holder, NULL));
	held = lock_leased(holder, "a", 30000);
	wanted = lock_leased(other, "a", 30000);
	OK(lk_lock_acquire(held, 0, NULL));
	redis_do(redis, "FLUSHALL");
	OK(lk_client_end_grace(other, NULL));
	OK(lk_lock_acquire(wanted, 5000, NULL));
	EXPECT(lk_lock_extend(held, 30000), LK_ELOST);
	ck_assert_int_eq(lk_lock_state(held), LK_STATE_LOST);
	ck_assert_int_eq(lk_lock_state(wanted), LK_STATE_HELD);
	OK(lk_client_close(holder));
	OK(lk_client_close(other));
	finish();
}

TEST(end_of_a_grace_keeps_what_the_server_has)
{
	lk_client *holder, *other;
	lk_lock *held, *wanted;

	begin();
	holder = client_of_grace(60000);
	other = client_of_grace(60000);
	OK(lk_client_end_grace(holder, NULL));
	held = lock_leased(holder, "a", 3000);
	wanted = lock_leased(other, "a", 3000);
	OK(lk_lock_acquire(held, 0, NULL));
	redis_do(redis, "FLUSHALL");
	ck_assert(WITHIN(3000, redis_int(redis, "EXISTS lk:{a}") == 1)); /* taken back */
	OK(lk_client_end_grace(other, NULL));
	EXPECT(lk_lock_acquire(wanted, 4000, NULL), LK_ETIMEDOUT);
	ck_assert_int_eq(lk_lock_state(held), LK_STATE_HELD);
	OK(lk_lock_release(held));
	OK(lk_lock_acquire(wanted, 5000, NULL));
	OK(lk_client_close(holder));
	OK(lk_client_close(other));
	finish();
}

TEST(end_of_a_grace_is_for_the_memory_that_was_seen)
{
	char marker[120];
	lk_client *client;
	lk_memory memory;

	begin();
	client = client_of_grace(60000);
	memory = memory_of(client);
	redis_do(redis, "FLUSHALL");
	EXPECT(lk_client_end_grace(client, &memory), LK_EMISMATCH);
	ck_assert_str_eq(lk_errmsg(), "the server has lost its memory again");
	memory = memory_of(client);
	snprintf(marker, sizeof(marker), "1 %s 0", memory.id);
	OK(lk_client_end_grace(client, &memory));
	ck_assert_str_eq(redis_marker(redis), marker);
	EXPECT(lk_client_end_grace(client, NULL), LK_EABSENT);
	memory = memory_of(client);
	ck_assert_int_eq(memory.since_us, 0);
	ck_assert_int_eq(memory.age_ms, 0);
	ck_assert_int_eq(memory.grace_ms, 0);
	OK(lk_client_close(client));
	finish();
}
