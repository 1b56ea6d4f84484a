/* SPDX-License-Identifier: MIT
 * Operations on a semaphore from outside a hold: queries, resize, break. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct test_server server;
static struct redis *redis;

static lk_client *set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_at(server.url);
}

static lk_semaphore_status status_of(lk_semaphore *semaphore)
{
	lk_semaphore_status status;

	OK(lk_semaphore_query(semaphore, &status));
	return status;
}

/* ---- Queries ------------------------------------------------------------------------------- */

TEST(query_holders_and_waiters_tell_what_the_store_knows)
{
	const lk_client_options labelled = {.label = "the other"};
	lk_client *client = set_up(), *other = client_with(server.url, &labelled);
	lk_semaphore *held = semaphore_of(client, "a", 6, 0);
	lk_semaphore *fixed = semaphore_with(
		other, "a",
		&(lk_semaphore_options){.capacity = 6, .lease_ms = 5000, .fixed = true});
	struct permit_wait waits[3];
	lk_ticket list[8];
	lk_semaphore_status status;
	char id[LK_HOLDER_ID_SIZE];
	uint64_t holds[3];
	size_t count = 99;

	OK(lk_semaphore_holders(held, 8, list, &count));
	ck_assert_uint_eq(count, 0);
	holds[0] = permits_of(held, 1, 0);
	holds[1] = permits_of(held, 2, 0);
	holds[2] = permits_of(fixed, 3, 0);
	for (int i = 0; i < 3; i++)
		permit_wait_queue(&waits[i], redis, "a", i == 1 ? held : fixed, 4 - i, true);
	nap_ms(60);
	status = status_of(held);
	ck_assert_int_eq(status.capacity, 6);
	ck_assert_int_eq(status.available, 0);
	ck_assert_int_eq(status.holders, 3);
	ck_assert_int_eq(status.queue_len, 3);
	ck_assert_int_eq(status.my_rank, 1);
	ck_assert_int_eq(status_of(fixed).my_rank, 0);
	ck_assert_int_eq(status_of(semaphore_of(client_at(server.url), "a", 0, 0)).my_rank, -1);
	ck_assert(status.ttl_ms > LK_TTL_DEFAULT_MS - 5000 && status.ttl_ms <= LK_TTL_DEFAULT_MS);
	/* Sorted by the ends of their leases. */
	OK(lk_semaphore_holders(held, 8, list, &count));
	ck_assert_uint_eq(count, 3);
	for (int i = 0; i < 3; i++) {
		int whose = (i + 2) % 3; /* the one with 5 s first, then in order of their grants */
		memcpy(id, hold_in(whose == 2 ? fixed : held, holds[whose]).holder_id,
		       LK_HOLDER_ID_SIZE);
		ck_assert_str_eq(list[i].party.id, id);
		ck_assert_uint_eq(list[i].fence, holds[whose]);
		ck_assert_int_eq(list[i].permits, whose + 1);
		ck_assert(list[i].held_ms >= 50 && list[i].held_ms < 5000);
		ck_assert_int_gt(list[i].lease_left_ms, 3000);
		ck_assert_int_eq(list[i].party.pid, getpid());
		ck_assert_str_eq(list[i].party.label, whose == 2 ? "the other" : "");
	}
	OK(lk_semaphore_holders(held, 2, list, &count));
	ck_assert_uint_eq(count, 2);
	OK(lk_semaphore_holders(held, 0, list, &count));
	ck_assert_uint_eq(count, 0);
	/* In the order of the queue. */
	OK(lk_semaphore_waiters(held, SIZE_MAX, list, &count));
	ck_assert_uint_eq(count, 3);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(list[i].permits, 4 - i);
		ck_assert_uint_eq(list[i].fence, 0);
		ck_assert_int_eq(list[i].held_ms + list[i].lease_left_ms, 0);
		ck_assert(!strncmp(list[i].party.id, lk_client_id(i == 1 ? client : other), 22));
	}
	OK(lk_semaphore_waiters(held, 1, list, &count));
	ck_assert_uint_eq(count, 1);
	for (int i = 0; i < 3; i++)
		OK(lk_semaphore_cancel(waits[i].semaphore));
	for (int i = 0; i < 3; i++)
		EXPECT(permit_wait_join(&waits[i]), LK_ECANCELED);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(looking_at_what_does_not_exist_is_absent_and_makes_nothing)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 6, 0);
	lk_semaphore_status status = {.capacity = 77};
	lk_ticket list[2];
	size_t count = 99;

	redis_do(redis, "FLUSHALL");
	EXPECT(lk_semaphore_query(semaphore, &status), LK_EABSENT);
	EXPECT(lk_semaphore_holders(semaphore, 2, list, &count), LK_EABSENT);
	EXPECT(lk_semaphore_waiters(semaphore, 2, list, &count), LK_EABSENT);
	EXPECT(lk_semaphore_resize(semaphore, 3), LK_EABSENT);
	EXPECT(lk_semaphore_break(semaphore, NULL), LK_EABSENT);
	ck_assert_int_eq(status.capacity, 77);
	ck_assert_uint_eq(count, 99);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q lk:{a}:h"), 0);
	OK(lk_client_close(client));
}

/* ---- Resize ------------------------------------------------------------------------------- */

TEST(resize_refuses_what_is_out_of_range)
{
	static const int64_t wrong[] = {
		0, -1, INT64_MIN, INT64_C(1) + LK_PERMITS_MAX, (INT64_C(1) << 32) + 3, INT64_MAX};
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 6, 0);

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		EXPECT(lk_semaphore_resize(semaphore, wrong[i]), LK_EINVALID);
	ck_assert(permits_at_rest(redis, "a", 6));
	OK(lk_semaphore_resize(semaphore, LK_PERMITS_MAX));
	permits_of(semaphore, LK_PERMITS_MAX, 0);
	OK(lk_semaphore_resize(semaphore, 1));
	ck_assert_int_eq(status_of(semaphore).available, 1 - (int64_t)LK_PERMITS_MAX);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 1));
}

TEST(resize_up_grants_at_once_to_all_who_fit)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 2, 0);
	lk_semaphore *waits = semaphore_of(other, "a", 2, 0);
	struct permit_wait twos[3];
	int64_t start_ms;

	permits_of(semaphore, 2, 0);
	for (int i = 0; i < 3; i++)
		permit_wait_queue(&twos[i], redis, "a", waits, 2, true);
	start_ms = now_ms();
	OK(lk_semaphore_resize(semaphore, 7));
	OK(permit_wait_join(&twos[0]));
	OK(permit_wait_join(&twos[1]));
	ck_assert_int_le(now_ms() - start_ms, 500);
	nap_ms(50);
	ck_assert(!twos[2].ended);
	ck_assert_int_eq(permits_used(redis, "a"), 6);
	OK(lk_semaphore_resize(semaphore, 8));
	OK(permit_wait_join(&twos[2]));
	permits_add_up(redis, "a");
	/* The other handle continues with the store's capacity; an open with another one is
	 * refused. */
	EXPECT(lk_semaphore_acquire(waits, 9, 0, &(uint64_t){0}), LK_ELIMIT);
	EXPECT(lk_semaphore_acquire(waits, 8, 0, &(uint64_t){0}), LK_EBUSY);
	EXPECT(lk_semaphore_open(client, "a", 0, &(lk_semaphore_options){.capacity = 2},
	                         &(lk_semaphore *){NULL}),
	       LK_EMISMATCH);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 8));
}

TEST(resize_down_takes_nothing_from_holders_and_grants_nothing_until_it_fits)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 5, 3000);
	lk_semaphore *waits = semaphore_of(other, "a", 5, 0);
	struct permit_wait one, four;
	uint64_t holds[5];
	int64_t start_ms;

	for (int i = 0; i < 5; i++)
		holds[i] = permits_of(semaphore, 1, 0);
	permit_wait_queue(&four, redis, "a", waits, 4, true);
	permit_wait_queue(&one, redis, "a", waits, 1, true);
	start_ms = now_ms();
	OK(lk_semaphore_resize(semaphore, 3));
	/* A wait that became impossible ends at once. */
	EXPECT(permit_wait_join(&four), LK_ELIMIT);
	ck_assert_int_le(now_ms() - start_ms, 500);
	ck_assert_int_eq(status_of(semaphore).available, -2);
	for (int i = 0; i < 2; i++) {
		OK(lk_semaphore_release(semaphore, holds[i]));
		nap_ms(200);
		ck_assert(!one.ended);
		ck_assert_int_eq(status_of(semaphore).available, -1 + i);
	}
	for (int i = 2; i < 5; i++)
		ck_assert_int_eq(lk_semaphore_state(semaphore, holds[i]), LK_STATE_HELD);
	start_ms = now_ms();
	OK(lk_semaphore_release(semaphore, holds[2]));
	OK(permit_wait_join(&one));
	ck_assert_int_le(now_ms() - start_ms, 300);
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	permits_add_up(redis, "a");
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 3));
}

TEST(resize_stays_with_its_handle_when_the_memory_ends)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 5, 0);

	OK(lk_semaphore_resize(semaphore, 3));
	redis_do(redis, "FLUSHALL");
	permits_of(semaphore, 1, 0);
	ck_assert_int_eq(status_of(semaphore).capacity, 3);
	OK(lk_client_close(client));
}

/* A grant that was published but not written would lead to a second holder. */
TEST(resize_on_a_server_that_refuses_writes_publishes_no_grant)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *semaphore = semaphore_of(client, "a", 1, 0);
	struct permit_wait wait;
	long long published;

	permits_of(semaphore, 1, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(other, "a", 1, 0), 1, true);
	published = redis_calls(redis, "publish");
	redis_do(redis, "CONFIG SET min-replicas-to-write 1");
	ck_assert(!strncmp(redis_text(redis,
	                              "EVAL %s 5 lk:{a} lk:{a}:q lk:fence lk:{a}:h lk:epoch "
	                              "resize 2 60000 lk:c:0: 21000 %s 0",
	                              lk__script_semaphore_set.text, redis_marker(redis)),
	                   "-NOREPLICAS", 11));
	ck_assert_int_eq(redis_calls(redis, "publish"), published);
	ck_assert_int_eq(permits_used(redis, "a"), 1);
	redis_do(redis, "CONFIG SET min-replicas-to-write 0");
	OK(lk_semaphore_resize(semaphore, 2));
	OK(permit_wait_join(&wait));
	ck_assert_int_eq(redis_calls(redis, "publish"), published + 1);
	permits_add_up(redis, "a");
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 2));
}

/* ---- Break -------------------------------------------------------------------------------- */

TEST(break_takes_one_hold_and_gives_its_permits_on)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_semaphore *watched =
		semaphore_watched(client, "a", (lk_semaphore_options){.capacity = 4});
	lk_semaphore *tool = semaphore_of(other, "a", 4, 0);
	struct permit_wait wait;
	char id[LK_HOLDER_ID_SIZE];
	uint64_t broken, kept;
	int64_t start_ms;

	EXPECT(lk_semaphore_break(tool, NULL), LK_EABSENT);
	broken = permits_of(watched, 3, 0);
	EXPECT(lk_semaphore_break(tool, "nobody"), LK_EMISMATCH);
	kept = permits_of(watched, 1, 0);
	EXPECT(lk_semaphore_break(tool, NULL), LK_EMISMATCH); /* ambiguous without an id */
	ck_assert_int_eq(permits_used(redis, "a"), 4);
	permit_wait_queue(&wait, redis, "a", tool, 3, true);
	memcpy(id, hold_in(watched, broken).holder_id, LK_HOLDER_ID_SIZE);
	start_ms = now_ms();
	OK(lk_semaphore_break(tool, id));
	OK(permit_wait_join(&wait));
	ck_assert_uint_gt(wait.hold, kept);
	ck_assert(WITHIN(500, permit_losses.count == 1));
	ck_assert_int_le(now_ms() - start_ms, 500);
	ck_assert_int_eq(permit_losses.reason, LK_LOST_BROKEN);
	ck_assert_uint_eq(permit_losses.hold, broken);
	ck_assert_int_eq(lk_semaphore_state(watched, broken), LK_STATE_LOST);
	ck_assert_int_eq(hold_in(watched, broken).count, 3); /* until acknowledged */
	ck_assert_int_eq(lk_semaphore_state(watched, kept), LK_STATE_HELD);
	EXPECT(lk_semaphore_break(tool, id), LK_EMISMATCH); /* it has ended already */
	EXPECT(lk_semaphore_release(watched, broken), LK_ELOST);
	EXPECT(lk_semaphore_release(watched, broken), LK_ENOTOWNER);
	ck_assert_int_eq(permits_used(redis, "a"), 4);
	permits_add_up(redis, "a");
	/* A single hold needs no id. */
	OK(lk_semaphore_release(watched, kept));
	OK(lk_semaphore_break(tool, NULL));
	ck_assert(WITHIN(500, permits_used(redis, "a") == 0));
	ck_assert_int_eq(permit_losses.count, 1);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert(permits_at_rest(redis, "a", 4));
}

TEST(break_of_a_dead_holder_gives_its_permits_back_at_once)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 4, 0);
	static const char ticket[] = "2:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:60000:r:4";
	lk_ticket list[2];
	size_t count;

	redis_do(redis, "EVAL %s 1 lk:{a} %s",
	         "local t = redis.call('TIME') redis.call('ZADD', 'lk:{a}:h', "
	         "string.format('%.0f', t[1] * 1000000 + 60000000), ARGV[1]) "
	         "redis.call('HSET', KEYS[1], ARGV[1], '4 5 60000', 'used', 4)",
	         ticket);
	permits_add_up(redis, "a");
	OK(lk_semaphore_holders(semaphore, 2, list, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(list[0].permits, 4);
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &(uint64_t){0}), LK_EBUSY);
	OK(lk_semaphore_break(semaphore, list[0].party.id));
	permits_of(semaphore, 4, 0);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", 4));
}

TEST_LIMIT(break_finds_one_among_many, 60)
{
	enum { MANY = 1200 }; /* more than one list holds */
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", MANY, 60000);
	static lk_ticket list[1500];
	char id[LK_HOLDER_ID_SIZE];
	uint64_t last = 0;
	size_t count;

	for (int i = 0; i < MANY; i++)
		last = permits_of(semaphore, 1, 0);
	OK(lk_semaphore_holders(semaphore, 1500, list, &count));
	ck_assert_uint_eq(count, 1000);
	ck_assert_int_eq(status_of(semaphore).holders, MANY);
	memcpy(id, hold_in(semaphore, last).holder_id, LK_HOLDER_ID_SIZE);
	OK(lk_semaphore_break(semaphore, id));
	ck_assert_int_eq(permits_used(redis, "a"), MANY - 1);
	OK(lk_client_close(client));
	ck_assert(permits_at_rest(redis, "a", MANY));
}
