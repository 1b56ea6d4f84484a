/* SPDX-License-Identifier: MIT
 * Lock queries from outside: holders, waiters, existing names; and breaking a lock. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
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

/* The description of a client arrives in the background. */
static bool described(lk_lock *lock, lk_lock_status *status)
{
	OK(lk_lock_query(lock, status));
	return status->holder.host[0] != 0;
}

TEST(query_of_a_free_lock_says_so)
{
	lk_client *client = set_up();
	lk_lock_status status = {.held = true};
	lk_party party;
	size_t count = 7;

	OK(lk_lock_query(lock_named(client, "a"), &status));
	ck_assert(!status.held);
	ck_assert_uint_eq(status.fence, 0);
	ck_assert_int_eq(status.queue_len, 0);
	ck_assert_int_eq(status.my_rank, -1);
	ck_assert_str_eq(status.holder.id, "");
	OK(lk_lock_waiters(lock_named(client, "a"), 1, &party, &count));
	ck_assert_uint_eq(count, 0);
	OK(lk_client_close(client));
	/* A query writes nothing. */
	ck_assert_int_eq(redis_int(redis, "DBSIZE"), 0);
}

TEST(query_tells_who_holds)
{
	const lk_client_options who = {.label = "nightly \x1b[31mreport\n"};
	lk_client *client, *other;
	lk_lock *lock, *seen;
	lk_lock_status status;
	char id[LK_HOLDER_ID_SIZE], host[128];

	other = set_up();
	client = client_with(server.url, &who);
	lock = lock_leased(client, "a", 5000);
	seen = lock_named(other, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	memcpy(id, hold_of(lock).holder_id, LK_HOLDER_ID_SIZE);
	ck_assert(WITHIN(2000, described(seen, &status)));
	ck_assert(status.held);
	ck_assert_str_eq(status.holder.id, id);
	ck_assert(!strncmp(id, lk_client_id(client), strlen(lk_client_id(client))));
	ck_assert_int_eq(status.holder.pid, getpid());
	gethostname(host, sizeof(host));
	ck_assert_str_eq(status.holder.host, host);
	/* Escaped: a label cannot send control sequences to a terminal. */
	ck_assert_ptr_nonnull(strstr(status.holder.label, "nightly \\x1b[31mreport\\x0a"));
	ck_assert_uint_eq(status.fence, hold_of(lock).fence);
	ck_assert_int_ge(status.held_ms, 0);
	ck_assert_int_le(status.held_ms, 2000);
	ck_assert_int_gt(status.lease_left_ms, 2000);
	ck_assert_int_le(status.lease_left_ms, 5000);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* The hold is listed whatever bytes the client's description contains. */
TEST(party_that_describes_itself_oddly_is_listed_all_the_same)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_named(client, "a"), *seen = lock_named(other, "a");
	lk_lock_status status;
	char id[LK_HOLDER_ID_SIZE];

	OK(lk_lock_acquire(lock, 0, NULL));
	memcpy(id, hold_of(lock).holder_id, LK_HOLDER_ID_SIZE);
	ck_assert(WITHIN(2000, described(seen, &status)));
	/* A word that scripts also return as a status. */
	redis_do(redis, "HSET lk:client:%s host fence user \"\"", lk_client_id(client));
	OK(lk_lock_query(seen, &status));
	ck_assert_str_eq(status.holder.host, "fence");
	ck_assert_str_eq(status.holder.id, id);
	redis_do(redis, "SET lk:client:%s what", lk_client_id(client));
	OK(lk_lock_query(seen, &status));
	ck_assert(status.held);
	ck_assert_str_eq(status.holder.host, "");
	ck_assert_str_eq(status.holder.id, id);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST(label_of_a_lock_wins_over_its_clients)
{
	const lk_client_options who = {.label = "of the client"};
	const lk_lock_options what = {.label = "of the lock"};
	lk_client *other = set_up(), *client = client_with(server.url, &who);
	lk_lock *lock = lock_with(client, "a", &what), *seen = lock_named(other, "a");
	lk_lock_status status;

	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert(WITHIN(2000, described(seen, &status)));
	ck_assert_str_eq(status.holder.label, "of the lock");
	OK(lk_lock_acquire(lock_named(client, "b"), 0, NULL));
	OK(lk_lock_query(lock_named(other, "b"), &status));
	ck_assert_str_eq(status.holder.label, "of the client");
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* Four clients that wait one after the other. */
#define QUEUE 4
static lk_client *clients[QUEUE];
static lk_lock *locks[QUEUE];
static pthread_t threads[QUEUE];
static lk_err ends[QUEUE];

static void *queue_thread(void *arg)
{
	int i = (int)(intptr_t)arg;

	ends[i] = lk_lock_acquire(locks[i], 20000, NULL);
	if (!ends[i])
		redis_do(redis, "SET got %lld",
		         (long long)i); /* one at a time: the query's own client */
	return NULL;
}

static void queue_up(void)
{
	for (int i = 0; i < QUEUE; i++) {
		const lk_lock_options options = {.owner = LK_OWNER_HANDLE};
		clients[i] = client_at(server.url);
		locks[i] = lock_with(clients[i], "a", &options);
		pthread_create(&threads[i], NULL, queue_thread, (void *)(intptr_t)i);
		ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == i + 1));
	}
}

static void queue_serve(int first)
{
	for (int i = first; i < QUEUE; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_int_eq(ends[i], LK_OK);
		OK(lk_lock_release(locks[i]));
	}
	for (int i = 0; i < QUEUE; i++)
		OK(lk_client_close(clients[i]));
}

TEST(waiters_are_listed_in_their_order_with_ranks)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");
	lk_lock_status status;
	lk_party parties[8];
	size_t count;

	OK(lk_lock_acquire(lock, 0, NULL));
	queue_up();
	OK(lk_lock_waiters(lock, 8, parties, &count));
	ck_assert_uint_eq(count, QUEUE);
	for (int i = 0; i < QUEUE; i++) {
		ck_assert(!strncmp(parties[i].id, lk_client_id(clients[i]), 22));
		OK(lk_lock_query(locks[i], &status));
		ck_assert_int_eq(status.my_rank, i);
		ck_assert_int_eq(status.queue_len, QUEUE);
	}
	OK(lk_lock_waiters(lock, 2, parties, &count));
	ck_assert_uint_eq(count, 2);
	OK(lk_lock_query(lock, &status));
	ck_assert_int_eq(status.my_rank, -1);
	OK(lk_lock_release(lock));
	queue_serve(0);
	OK(lk_client_close(client));
}

TEST(break_gives_the_lock_to_who_waits_first)
{
	lk_client *client = set_up(), *breaker = client_at(server.url);
	lk_lock *lock = lock_named(client, "a");
	lk_lock_status status;

	OK(lk_lock_acquire(lock, 0, NULL));
	queue_up();
	OK(lk_lock_break(lock_named(breaker, "a"), NULL));
	pthread_join(threads[0], NULL);
	OK(ends[0]);
	ck_assert_uint_gt(hold_of(locks[0]).fence, hold_of(lock).fence);
	OK(lk_lock_query(locks[0], &status));
	ck_assert(!strncmp(status.holder.id, lk_client_id(clients[0]), 22));
	ck_assert(WITHIN(1000, lk_lock_state(lock) == LK_STATE_LOST));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	ck_assert_int_eq(lk_lock_state(locks[0]),
	                 LK_STATE_HELD); /* unaffected by the late release */
	OK(lk_lock_release(locks[0]));
	queue_serve(1);
	OK(lk_client_close(client));
	OK(lk_client_close(breaker));
}

TEST(break_keeps_to_its_condition)
{
	lk_client *client = set_up(), *breaker = client_at(server.url);
	lk_lock *lock = lock_named(client, "a"), *tool = lock_named(breaker, "a");
	char id[LK_HOLDER_ID_SIZE], old[LK_HOLDER_ID_SIZE];

	EXPECT(lk_lock_break(tool, NULL), LK_EABSENT);
	OK(lk_lock_acquire(lock, 0, NULL));
	memcpy(old, hold_of(lock).holder_id, LK_HOLDER_ID_SIZE);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(lock, 0, NULL));
	memcpy(id, hold_of(lock).holder_id, LK_HOLDER_ID_SIZE);
	ck_assert_str_ne(id, old); /* an id belongs to one hold */
	EXPECT(lk_lock_break(tool, old), LK_EMISMATCH);
	EXPECT(lk_lock_break(tool, "nobody"), LK_EMISMATCH);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
	OK(lk_lock_break(tool, id));
	EXPECT(lk_lock_break(tool, id), LK_EABSENT);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 0);
	OK(lk_client_close(client));
	OK(lk_client_close(breaker));
}

/* The names found by a walk. */
struct walk {
	char names[64][32];
	size_t lens[64];
	int count, stop_at;
};

static bool walk_name(void *arg, const char *name, size_t len)
{
	struct walk *walk = arg;

	ck_assert_int_lt(walk->count, 64);
	ck_assert_uint_lt(len, sizeof(walk->names[0]));
	memcpy(walk->names[walk->count], name, len);
	walk->lens[walk->count++] = len;
	return walk->count != walk->stop_at;
}

static bool walk_has(const struct walk *walk, const char *name, size_t len)
{
	int found = 0;

	for (int i = 0; i < walk->count; i++)
		found += walk->lens[i] == len && !memcmp(walk->names[i], name, len);
	ck_assert_int_le(found, 1);
	return found == 1;
}

TEST(list_walks_each_name_once)
{
	lk_client *client = set_up();
	lk_lock *odd = NULL;
	struct walk walk = {0}, empty = {0}, stopped = {.stop_at = 5};

	OK(lk_client_names(client, walk_name, &empty));
	ck_assert_int_eq(empty.count, 0);
	redis_do(redis, "SET other:{thing} 1");
	redis_do(redis, "SET lk:thing 1");
	for (int i = 0; i < 40; i++) {
		char name[24];
		snprintf(name, sizeof(name), "name-%d", i);
		OK(lk_lock_acquire(lock_named(client, name), 0, NULL));
	}
	OK(lk_lock_open(client, "{\0} %a\xff", 7, NULL, &odd));
	OK(lk_lock_acquire(odd, 0, NULL));
	OK(lk_client_names(client, walk_name, &walk));
	ck_assert_int_eq(walk.count, 41);
	for (int i = 0; i < 40; i++) {
		char name[24];
		snprintf(name, sizeof(name), "name-%d", i);
		ck_assert(walk_has(&walk, name, strlen(name)));
	}
	ck_assert(walk_has(&walk, "{\0} %a\xff", 7));
	OK(lk_client_names(client, walk_name, &stopped));
	ck_assert_int_eq(stopped.count, 5);
	OK(lk_client_close(client));
}

TEST(list_shows_a_name_that_is_held_and_waited_for_once)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");
	struct walk walk = {0};

	OK(lk_lock_acquire(lock, 0, NULL));
	queue_up();
	OK(lk_client_names(client, walk_name, &walk));
	ck_assert_int_eq(walk.count, 1);
	OK(lk_lock_release(lock));
	queue_serve(0);
	OK(lk_client_close(client));
}

TEST(prefixes_and_databases_do_not_meet)
{
	lk_client *first = set_up();
	const lk_client_options other_prefix = {.prefix = "other"};
	lk_client *second = client_with(server.url, &other_prefix), *third;
	char url[100];

	snprintf(url, sizeof(url), "%s/1", server.url);
	third = client_at(url);
	OK(lk_lock_acquire(lock_named(first, "a"), 0, NULL));
	OK(lk_lock_acquire(lock_named(second, "a"), 0, NULL));
	OK(lk_lock_acquire(lock_named(third, "a"), 0, NULL));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} other:{a}"), 2);
	OK(lk_client_close(first));
	OK(lk_client_close(second));
	OK(lk_client_close(third));
}
