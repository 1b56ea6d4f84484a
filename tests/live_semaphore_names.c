/* SPDX-License-Identifier: MIT
 * Which names a semaphore may have.  tests/stores/kind.h has the kinds of names. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <string.h>

static struct test_server server;
static struct redis *redis;

static lk_client *set_up(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
	return client_at(server.url);
}

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
	ck_assert_int_eq(redis_size(redis), 0);
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
