/* SPDX-License-Identifier: MIT
 * One name, one kind, on any store: a call for another kind is refused, names the kind that the
 * name has, and changes nothing. */
#ifndef STORES_KIND_H
#define STORES_KIND_H

#include "stores/set_up.h"
#include "harness/latch_watch.h"

#include <stdio.h>

/* Handles on "a" of each kind, from the time before it had one. */
static lk_lock *kind_lock;
static lk_semaphore *kind_semaphore;
static lk_latch *kind_latch;

/* All keys of "a", as text. */
static const char *keys_of_a(void)
{
	static char text[2000];
	static const char *const reads[] = {
		"GET lk:{a}",           "HGETALL lk:{a}",   "ZRANGE lk:{a}:q 0 -1 WITHSCORES",
		"ZRANGE lk:{a}:h 0 -1", "HGETALL lk:{a}:s", "GET lk:fence"};
	size_t len = 0;

	for (size_t i = 0; i < sizeof(reads) / sizeof(reads[0]); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s\n",
		                        redis_text(redis, reads[i]));
	return text;
}

/* The call is refused and changes nothing; its error names the key and has the text. */
#define LEFT_ALONE(call, has)                                                                      \
	do {                                                                                       \
		char foreign_before_[2000];                                                        \
		snprintf(foreign_before_, sizeof(foreign_before_), "%s", keys_of_a());             \
		EXPECT(call, LK_EFOREIGN);                                                         \
		ck_assert_msg(strstr(lk_errmsg(), "lk:{a}") && strstr(lk_errmsg(), has), "%s: %s", \
		              #call, lk_errmsg());                                                 \
		ck_assert_str_eq(keys_of_a(), foreign_before_);                                    \
	} while (0)

/* The same; the error names what the key is and is not. */
#define FOREIGN(call, is, is_not)                                                                  \
	do {                                                                                       \
		char foreign_text_[64];                                                            \
		snprintf(foreign_text_, sizeof(foreign_text_), "%s, not a %s", is, is_not);        \
		LEFT_ALONE(call, foreign_text_);                                                   \
	} while (0)

static void make_lock(void)
{
	OK(lk_lock_acquire(kind_lock, 0, NULL));
}

static void refuse_lock(lk_client *client, const char *is)
{
	lk_lock_status status;
	lk_party party;
	size_t count;

	(void)client;
	FOREIGN(lk_lock_acquire(kind_lock, 0, NULL), is, "lock");
	FOREIGN(lk_lock_acquire(kind_lock, LK_FOREVER, NULL), is, "lock");
	FOREIGN(lk_lock_query(kind_lock, &status), is, "lock");
	FOREIGN(lk_lock_waiters(kind_lock, 1, &party, &count), is, "lock");
	FOREIGN(lk_lock_break(kind_lock, NULL), is, "lock");
	ck_assert_int_eq(lk_lock_state(kind_lock), LK_STATE_NONE);
}

static void make_semaphore(void)
{
	permits_of(kind_semaphore, 1, 0);
}

static void refuse_semaphore(lk_client *client, const char *is)
{
	const lk_semaphore_options options = {.capacity = 3};
	lk_semaphore *none = NULL;
	lk_semaphore_status status;
	lk_ticket tickets[2];
	uint64_t hold = 77;
	size_t count;

	FOREIGN(lk_semaphore_open(client, "a", 0, &options, &none), is, "semaphore");
	FOREIGN(lk_semaphore_open(client, "a", 0, NULL, &none), is, "semaphore");
	ck_assert_ptr_null(none);
	FOREIGN(lk_semaphore_acquire(kind_semaphore, 1, 0, &hold), is, "semaphore");
	FOREIGN(lk_semaphore_acquire(kind_semaphore, 1, LK_FOREVER, &hold), is, "semaphore");
	ck_assert_uint_eq(hold, 77);
	FOREIGN(lk_semaphore_query(kind_semaphore, &status), is, "semaphore");
	FOREIGN(lk_semaphore_holders(kind_semaphore, 2, tickets, &count), is, "semaphore");
	FOREIGN(lk_semaphore_waiters(kind_semaphore, 2, tickets, &count), is, "semaphore");
	FOREIGN(lk_semaphore_resize(kind_semaphore, 5), is, "semaphore");
	FOREIGN(lk_semaphore_break(kind_semaphore, NULL), is, "semaphore");
	FOREIGN(lk_semaphore_break(kind_semaphore, "x:y"), is, "semaphore");
}

static void make_latch(void)
{
	OK(lk_latch_set(kind_latch, 2, NULL));
}

static void refuse_latch(lk_client *client, const char *is)
{
	lk_latch_status status;

	(void)client;
	FOREIGN(lk_latch_set(kind_latch, 1, NULL), is, "latch");
	FOREIGN(lk_latch_reset(kind_latch, 1, NULL), is, "latch");
	FOREIGN(lk_latch_down(kind_latch, 1, NULL, 0, NULL), is, "latch");
	FOREIGN(lk_latch_await(kind_latch, 5000), is, "latch");
	FOREIGN(lk_latch_query(kind_latch, &status), is, "latch");
	FOREIGN(lk_latch_remove(kind_latch), is, "latch");
}

static const struct {
	lk_kind kind;
	const char *is;
	void (*make)(void);
	void (*refuse)(lk_client *client, const char *is);
} kinds[] = {
	{LK_KIND_LOCK, "a lock", make_lock, refuse_lock},
	{LK_KIND_SEMAPHORE, "a semaphore", make_semaphore, refuse_semaphore},
	{LK_KIND_LATCH, "a latch", make_latch, refuse_latch},
};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static lk_kind kind_of(lk_client *client, const char *name)
{
	lk_kind kind = LK_KIND_NONE;

	OK(lk_client_name_kind(client, name, 0, &kind));
	return kind;
}

TEST_STORE(name_of_one_kind_is_no_other, 20,
           STORE_LOCKS | STORE_SEMAPHORES | STORE_LATCHES | STORE_KEYS)
{
	lk_client *client = set_up(), *other = client_at(url);

	/* The descriptions of the clients are sent with their first requests. */
	OK(lk_lock_acquire(lock_named(client, "first"), 0, NULL));
	OK(lk_lock_acquire(lock_named(other, "second"), 0, NULL));
	nap_ms(50);
	for (int i = 0; i < KINDS; i++) {
		kind_lock = lock_named(client, "a");
		kind_semaphore = semaphore_of(client, "a", 3, 0);
		kind_latch = latch_named(client, "a");
		redis_do(redis, "DEL lk:{a}");
		ck_assert_int_eq(kind_of(other, "a"), LK_KIND_NONE);
		kinds[i].make();
		ck_assert_int_eq(kind_of(other, "a"), kinds[i].kind);
		for (int j = 0; j < KINDS; j++)
			if (j != i)
				kinds[j].refuse(client, kinds[i].is);
		ck_assert_int_eq(kind_of(client, "a"), kinds[i].kind);
		redis_do(redis, "DEL lk:{a} lk:{a}:q lk:{a}:h lk:{a}:s");
		OK(lk_lock_close(kind_lock));
		OK(lk_semaphore_close(kind_semaphore));
		OK(lk_latch_close(kind_latch));
	}
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_STORE(kinds_have_names_and_wrong_names_no_kind, 20, 0)
{
	lk_client *client = set_up();
	lk_kind kind = LK_KIND_LATCH;
	char name[LK_NAME_MAX + 1] = "";

	EXPECT(lk_client_name_kind(client, "", 0, &kind), LK_EINVALID);
	EXPECT(lk_client_name_kind(client, name, sizeof(name), &kind), LK_EINVALID);
	ck_assert_int_eq(kind, LK_KIND_LATCH); /* written on success only */
	ck_assert_str_eq(lk_kind_name(LK_KIND_NONE), "nothing");
	ck_assert_str_eq(lk_kind_name(LK_KIND_LOCK), "lock");
	ck_assert_str_eq(lk_kind_name(LK_KIND_SEMAPHORE), "semaphore");
	ck_assert_str_eq(lk_kind_name(LK_KIND_LATCH), "latch");
	ck_assert_ptr_nonnull(lk_kind_name((lk_kind)99));
	OK(lk_client_close(client));
}

/* What each call reports about a key that is no lock, semaphore or latch of this version; NULL: it
 * does not look at that key. */
static const struct {
	const char *write, *lock, *semaphore, *latch, *name;
} foreign[] = {
	{"HSET lk:{a} kind 2:latch count 2", "a latch", "protocol version 2", "protocol version 2",
         "protocol version 2"},
	{"HSET lk:{a} kind 1:semaphore capacity 3", "a semaphore", "protocol version 1",
         "a semaphore", "protocol version 1"},
	{"SET lk:{a} 1:client:nonce:1000:r", "protocol version 1", "a lock", "a lock",
         "protocol version 1"},
	{"HSET lk:{a} field value", "lk:{a}", "lk:{a}", "lk:{a}", "lk:{a}"},
	{"SET lk:{a} x", "lk:{a}", "lk:{a}", "lk:{a}", "lk:{a}"},
	{"ZADD lk:{a}:q 1 stranger", "lk:{a}:q", "lk:{a}:q", NULL, NULL},
	{"ZADD lk:{a}:q 1 1:client:nonce:1000:r:2", "protocol version 1", "protocol version 1",
         NULL, NULL},
};

/* What is no kind of this version is left alone, whatever call comes. */
TEST_STORE(name_of_another_program_is_no_kind, 20,
           STORE_LOCKS | STORE_SEMAPHORES | STORE_LATCHES | STORE_KEYS)
{
	const lk_semaphore_options three = {.capacity = 3};
	lk_client *client = set_up();
	lk_semaphore *none = NULL;
	lk_kind kind = LK_KIND_LATCH;

	for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		redis_do(redis, "FLUSHALL");
		redis_do(redis, foreign[i].write);
		LEFT_ALONE(lk_lock_acquire(lock_named(client, "a"), 0, NULL), foreign[i].lock);
		LEFT_ALONE(lk_semaphore_open(client, "a", 0, &three, &none), foreign[i].semaphore);
		if (foreign[i].latch)
			LEFT_ALONE(lk_latch_set(latch_named(client, "a"), 1, NULL),
			           foreign[i].latch);
		if (foreign[i].name)
			LEFT_ALONE(lk_client_name_kind(client, "a", 0, &kind), foreign[i].name);
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}:h lk:{a}:s"), 0);
	}
	ck_assert_ptr_null(none);
	OK(lk_client_close(client));
}

#endif
