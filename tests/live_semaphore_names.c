/* SPDX-License-Identifier: MIT
 * Which names a semaphore may have, and the kind of a name: one at a time.  A call for another kind
 * is refused and changes nothing. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
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

/* ---- Names -------------------------------------------------------------------------------- */

struct text {
	const char *bytes;
	size_t len;
};
#define TEXT(literal)                                                                              \
	{                                                                                          \
		literal, sizeof(literal) - 1                                                       \
	}

static char long_name[LK_NAME_MAX + 1];
static const struct text names[] = {
	TEXT("x"),         TEXT("\0"),
	TEXT("a\0b"),      TEXT("a\0c"),
	TEXT("\r\n"),      TEXT("\xff\xfe"),
	TEXT(" "),         TEXT("*"),
	TEXT("'; return"), TEXT("{"),
	TEXT("}"),         TEXT("{}"),
	TEXT("a}"),        TEXT("a}b{c}"),
	TEXT("{a}:q"),     TEXT("{a}:h"),
	TEXT("a:h"),       TEXT("a:q"),
	TEXT("a}:h"),      TEXT("%"),
	TEXT("%7B"),       TEXT("%7b"),
	TEXT("%s%n"),      TEXT("fence"),
	TEXT("a"),         {long_name, LK_NAME_MAX},
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static int hits[NAMES], strangers;

static bool tick_off(void *arg, const char *name, size_t len)
{
	(void)arg;
	for (size_t i = 0; i < NAMES; i++) {
		if (names[i].len == len && !memcmp(names[i].bytes, name, len)) {
			hits[i]++;
			return true;
		}
	}
	strangers++;
	return true;
}

/* Each key has one opening and one closing brace: all keys of a name are in one slot of a
 * cluster. */
static void check_keys(void)
{
	const char *key = redis_text(redis, "KEYS lk:{*"), *end;

	for (; key; key = *end ? end + 1 : NULL) {
		size_t len;
		end = strchrnul(key, '\n');
		len = (size_t)(end - key);
		ck_assert(len > 5 && !memcmp(key, "lk:{", 4));
		ck_assert(end[-1] == '}' || !memcmp(end - 3, "}:h", 3));
		ck_assert_ptr_null(memchr(key + 4, '{', len - 4));
		ck_assert_ptr_eq(memchr(key + 4, '}', len - 4), memrchr(key, '}', len));
	}
}

TEST(v1_v2_any_bytes_are_a_name_and_no_two_collide)
{
	lk_client *client = set_up();
	lk_semaphore *semaphores[NAMES], *none = NULL;
	lk_semaphore_options options = {.capacity = 1};
	uint64_t holds[NAMES];
	lk_kind kind;

	memset(long_name, '\xfd', LK_NAME_MAX + 1);
	EXPECT(lk_semaphore_open(client, "", 0, &options, &none), LK_EINVALID);
	EXPECT(lk_semaphore_open(client, NULL, 0, &options, &none), LK_EINVALID);
	EXPECT(lk_semaphore_open(client, long_name, LK_NAME_MAX + 1, &options, &none), LK_EINVALID);
	EXPECT(lk_semaphore_open(client, long_name, SIZE_MAX, &options, &none), LK_EINVALID);
	ck_assert_ptr_null(none);
	ck_assert_int_eq(redis_int(redis, "DBSIZE"), 0);
	for (size_t i = 0; i < NAMES; i++) {
		options.capacity = (int64_t)i + 1;
		OK(lk_semaphore_open(client, names[i].bytes, names[i].len, &options,
		                     &semaphores[i]));
		holds[i] = permits_of(semaphores[i], (int64_t)i + 1, 0); /* its whole capacity */
		OK(lk_client_name_kind(client, names[i].bytes, names[i].len, &kind));
		ck_assert_int_eq(kind, LK_KIND_SEMAPHORE);
	}
	check_keys();
	OK(lk_client_names(client, tick_off, NULL));
	ck_assert_int_eq(strangers, 0);
	for (size_t i = 0; i < NAMES; i++) {
		lk_semaphore_status status;
		ck_assert_msg(hits[i] == 1, "name %zu is listed %d times", i, hits[i]);
		OK(lk_semaphore_query(semaphores[i], &status));
		ck_assert_int_eq(status.capacity, (int64_t)i + 1);
		ck_assert_int_eq(status.available, 0);
		OK(lk_semaphore_release(semaphores[i], holds[i]));
	}
	OK(lk_client_names(client, tick_off, NULL)); /* they are listed without any holder, too */
	for (size_t i = 0; i < NAMES; i++)
		ck_assert_int_eq(hits[i], 2);
	OK(lk_client_close(client));
}

/* ---- One name, one kind -------------------------------------------------------------------- */

static lk_kind kind_of(lk_client *client, const char *name)
{
	lk_kind kind = LK_KIND_NONE;

	OK(lk_client_name_kind(client, name, 0, &kind));
	return kind;
}

TEST(kind_of_a_name_is_what_it_is_used_for)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_named(client, "a");
	lk_semaphore *semaphore;
	struct permit_wait wait;
	lk_kind kind = LK_KIND_LATCH;
	uint64_t hold;

	ck_assert_int_eq(kind_of(client, "a"), LK_KIND_NONE);
	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert_int_eq(kind_of(other, "a"), LK_KIND_LOCK);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(kind_of(client, "a"), LK_KIND_NONE);
	semaphore = semaphore_with(client, "a",
	                           &(lk_semaphore_options){.capacity = 3, .ttl_ms = LK_TTL_MIN_MS});
	ck_assert_int_eq(kind_of(other, "a"), LK_KIND_SEMAPHORE);
	/* A semaphore that lost its data leaves a queue, which shows the kind. */
	hold = permits_of(semaphore, 3, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(other, "a", 0, 0), 2, true);
	redis_do(redis, "DEL lk:{a}");
	ck_assert_int_eq(kind_of(client, "a"), LK_KIND_SEMAPHORE);
	lk_semaphore_release(semaphore, hold);
	OK(lk_semaphore_cancel(wait.semaphore));
	permit_wait_join(&wait); /* it may have been granted before */
	EXPECT(lk_client_name_kind(client, "", 0, &kind), LK_EINVALID);
	EXPECT(lk_client_name_kind(client, long_name, LK_NAME_MAX + 1, &kind), LK_EINVALID);
	redis_do(redis, "LPUSH lk:{list} x");
	EXPECT(lk_client_name_kind(client, "list", 0, &kind), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "lk:{list}"));
	redis_do(redis, "HSET lk:{hash} kind %s", "2:semaphore");
	EXPECT(lk_client_name_kind(client, "hash", 0, &kind), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "version 2"));
	redis_do(redis, "HSET lk:{gate} kind 1:latch count 2");
	ck_assert_int_eq(kind_of(client, "gate"), LK_KIND_LATCH);
	ck_assert_int_eq(kind, LK_KIND_LATCH); /* written on success only */
	ck_assert_str_eq(lk_kind_name(LK_KIND_NONE), "nothing");
	ck_assert_str_eq(lk_kind_name(LK_KIND_LOCK), "lock");
	ck_assert_str_eq(lk_kind_name(LK_KIND_SEMAPHORE), "semaphore");
	ck_assert_str_eq(lk_kind_name(LK_KIND_LATCH), "latch");
	ck_assert_ptr_nonnull(lk_kind_name((lk_kind)99));
	OK(lk_client_close(client));
}

/* call is LK_EFOREIGN, names the key, and changes nothing. */
#define FOREIGN(call, key)                                                                         \
	do {                                                                                       \
		char foreign_before_[64];                                                          \
		snprintf(foreign_before_, sizeof(foreign_before_), "%s",                           \
		         redis_text(redis, "DEBUG DIGEST"));                                       \
		EXPECT(call, LK_EFOREIGN);                                                         \
		ck_assert_msg(strstr(lk_errmsg(), key) != NULL, "%s does not name %s",             \
		              lk_errmsg(), key);                                                   \
		ck_assert_str_eq(redis_text(redis, "DEBUG DIGEST"), foreign_before_);              \
	} while (0)

TEST(name_of_a_lock_is_no_semaphore)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");
	lk_semaphore *semaphore, *none = NULL;
	const lk_semaphore_options options = {.capacity = 3};
	lk_semaphore_status status;
	lk_ticket parties[2];
	uint64_t hold = 77;
	size_t count;

	/* A handle from the time when the name was a semaphore's. */
	semaphore = semaphore_of(client, "a", 3, 0);
	hold = permits_of(semaphore, 1, 0);
	OK(lk_semaphore_release(semaphore, hold));
	redis_do(redis, "DEL lk:{a}");
	OK(lk_lock_acquire(lock, 0, NULL));
	nap_ms(50); /* the client's description is sent by now */
	FOREIGN(lk_semaphore_open(client, "a", 0, &options, &none), "lk:{a}");
	FOREIGN(lk_semaphore_open(client, "a", 0, NULL, &none), "lk:{a}");
	ck_assert_ptr_null(none);
	FOREIGN(lk_semaphore_acquire(semaphore, 1, 0, &hold), "lk:{a}");
	FOREIGN(lk_semaphore_acquire(semaphore, 1, LK_FOREVER, &hold), "lk:{a}");
	FOREIGN(lk_semaphore_query(semaphore, &status), "lk:{a}");
	FOREIGN(lk_semaphore_holders(semaphore, 2, parties, &count), "lk:{a}");
	FOREIGN(lk_semaphore_waiters(semaphore, 2, parties, &count), "lk:{a}");
	FOREIGN(lk_semaphore_resize(semaphore, 5), "lk:{a}");
	FOREIGN(lk_semaphore_break(semaphore, NULL), "lk:{a}");
	FOREIGN(lk_semaphore_break(semaphore, "x:y"), "lk:{a}");
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST(name_of_a_semaphore_is_no_lock)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", 3, 0);
	lk_lock *lock = lock_named(client, "a");
	lk_lock_status status;
	lk_party party;
	uint64_t hold = permits_of(semaphore, 1, 0);
	size_t count;

	nap_ms(50);
	FOREIGN(lk_lock_acquire(lock, 0, NULL), "lk:{a}");
	FOREIGN(lk_lock_acquire(lock, LK_FOREVER, NULL), "lk:{a}");
	FOREIGN(lk_lock_query(lock, &status), "lk:{a}");
	FOREIGN(lk_lock_waiters(lock, 1, &party, &count), "lk:{a}");
	FOREIGN(lk_lock_break(lock, NULL), "lk:{a}");
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	OK(lk_semaphore_release(semaphore, hold));
	OK(lk_client_close(client));
}

TEST(name_of_a_latch_or_of_nobody_is_no_semaphore)
{
	lk_client *client = set_up();
	lk_semaphore *none = NULL;
	const lk_semaphore_options options = {.capacity = 3};

	redis_do(redis, "HSET lk:{latch} kind 1:latch count 3");
	FOREIGN(lk_semaphore_open(client, "latch", 0, &options, &none), "lk:{latch}");
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a latch"));
	redis_do(redis, "HSET lk:{hash} field value");
	FOREIGN(lk_semaphore_open(client, "hash", 0, &options, &none), "lk:{hash}");
	redis_do(redis, "HSET lk:{new} kind 2:semaphore");
	FOREIGN(lk_semaphore_open(client, "new", 0, &options, &none), "lk:{new}");
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "version 2"));
	redis_do(redis, "ZADD lk:{queue}:q 1 stranger");
	FOREIGN(lk_semaphore_open(client, "queue", 0, &options, &none), "lk:{queue}:q");
	/* A client waits for a lock of this name, which has no holder at the moment. */
	redis_do(redis, "ZADD lk:{wait}:q 1 %s", "1:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:400:r");
	FOREIGN(lk_semaphore_open(client, "wait", 0, &options, &none), "lk:{wait}:q");
	ck_assert_ptr_null(none);
	OK(lk_client_close(client));
}

/* The error text names the kind that the name has. */
TEST(refused_kind_says_what_the_name_is)
{
	const lk_semaphore_options options = {.capacity = 2};
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "semaphore", 2, 0);
	lk_latch *latch;
	lk_lock *lock = lock_named(client, "lock");

	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_latch_open(client, "latch", 0, NULL, &latch));
	OK(lk_latch_set(latch, 1, NULL));
	EXPECT(lk_lock_acquire(lock_named(client, "latch"), 0, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a latch, not a lock"));
	EXPECT(lk_lock_acquire(lock_named(client, "semaphore"), 0, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a semaphore, not a lock"));
	EXPECT(lk_semaphore_open(client, "latch", 0, &options, &semaphore), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a latch, not a semaphore"));
	EXPECT(lk_semaphore_open(client, "lock", 0, &options, &semaphore), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a lock, not a semaphore"));
	OK(lk_latch_open(client, "lock", 0, NULL, &latch));
	EXPECT(lk_latch_set(latch, 1, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "a lock, not a latch"));
	OK(lk_client_close(client));
	redis_close(redis);
	server_stop(&server);
}
