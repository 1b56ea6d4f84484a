/* SPDX-License-Identifier: MIT
 * Queries from outside: free locks, odd descriptions, existing names.  tests/stores/hold.h has what
 * semaphores promise, too. */
#include "harness/handles.h"
#include "harness/noun.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

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
	ck_assert_int_eq(redis_size(redis), 0);
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
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_named(client, "a");
	struct noun_wait wait;
	struct walk walk = {0};

	OK(lk_lock_acquire(lock, 0, NULL));
	noun_wait_queue(&wait, &noun_lock, lock_named(other, "a"), false);
	OK(lk_client_names(client, walk_name, &walk));
	ck_assert_int_eq(walk.count, 1);
	OK(lk_lock_release(lock));
	OK(noun_wait_join(&wait));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}
