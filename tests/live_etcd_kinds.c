/* SPDX-License-Identifier: MIT
 * One name, one kind, on a real etcd server: while a name has a kind, in whatever state, the calls
 * for each other kind are refused, and change no key.  tests/stores/kind.h has the same for Redis.
 */
#include "harness/etcd_server.h"
#include "harness/latch_watch.h"
#include "harness/noun.h"
#include "harness/process.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define LONG_MS 20000 /* for what comes at once on a machine that is not loaded */
#define LEASE_MS 60000

static struct etcd_servers shared;

static void start_shared(void)
{
	etcd_start(&shared, 1);
}

__attribute__((constructor)) static void prepare(void)
{
	test_before_all(start_shared);
}

/* Handles on "a" of each kind, from the time before it had one. */
static lk_lock *a_lock;
static lk_semaphore *a_semaphore;
static lk_latch *a_latch;
/* And those of another client, which give it the kind. */
static void *makers_lock, *makers_semaphore;
static lk_latch *makers_latch;
static uint64_t fence;
static struct noun_wait waiter;
static struct awaiter awaiter;
static lk_client *makers, *waiters;

static void *of_noun(const struct noun *noun, lk_client *client)
{
	return noun_open(noun, client, "a",
	                 (struct noun_options){.lease_ms = LEASE_MS, .any_thread = true});
}

/* ---- What gives the name a kind ---- */

static void hold_lock(void)
{
	fence = noun_hold(&noun_lock, makers_lock, LONG_MS);
}

static void release_lock(void)
{
	OK(noun_lock.release(makers_lock, fence));
}

static void wait_for_lock(void)
{
	hold_lock();
	noun_wait_queue(&waiter, &noun_lock, of_noun(&noun_lock, waiters), false);
}

static void end_wait_for_lock(void)
{
	release_lock();
	OK(noun_wait_join(&waiter));
}

static void open_semaphore(void)
{
	OK(noun_semaphore.close(makers_semaphore));
	makers_semaphore = of_noun(&noun_semaphore, makers);
}

static void forget_semaphore(void)
{
	etcd_ctl(&shared, "del lk/Sa");
}

static void hold_permits(void)
{
	fence = noun_hold(&noun_semaphore, makers_semaphore, LONG_MS);
}

static void release_permits(void)
{
	OK(noun_semaphore.release(makers_semaphore, fence));
	forget_semaphore();
}

static void wait_for_permits(void)
{
	hold_permits();
	noun_wait_queue(&waiter, &noun_semaphore, of_noun(&noun_semaphore, waiters), false);
}

static void end_wait_for_permits(void)
{
	OK(noun_semaphore.release(makers_semaphore, fence));
	OK(noun_wait_join(&waiter));
	forget_semaphore();
}

/* Its key ends before the hold does. */
static void hold_forgotten_permits(void)
{
	hold_permits();
	forget_semaphore();
}

static void set_latch(void)
{
	OK(lk_latch_set(makers_latch, 2, NULL));
}

static void remove_latch(void)
{
	OK(lk_latch_remove(makers_latch));
}

static void await_latch(void)
{
	set_latch();
	awaiter_start(&awaiter, latch_named(waiters, "a"), LONG_MS);
}

static void open_awaited_latch(void)
{
	ck_assert_int_eq(latch_down(makers_latch, 2, NULL), 0);
	OK(awaiter_join(&awaiter));
	remove_latch();
}

static void open_latch(void)
{
	OK(lk_latch_set(makers_latch, 0, NULL));
}

static const struct {
	const char *text;
	lk_kind kind;
	void (*make)(void), (*end)(void);
} states[] = {
	{"a lock, held", LK_KIND_LOCK, hold_lock, release_lock},
	{"a lock, waited for", LK_KIND_LOCK, wait_for_lock, end_wait_for_lock},
	{"a semaphore, opened", LK_KIND_SEMAPHORE, open_semaphore, forget_semaphore},
	{"a semaphore, held", LK_KIND_SEMAPHORE, hold_permits, release_permits},
	{"a semaphore, waited for", LK_KIND_SEMAPHORE, wait_for_permits, end_wait_for_permits},
	{"permits without their semaphore", LK_KIND_SEMAPHORE, hold_forgotten_permits,
         release_permits},
	{"a latch, set", LK_KIND_LATCH, set_latch, remove_latch},
	{"a latch, waited for", LK_KIND_LATCH, await_latch, open_awaited_latch},
	{"a latch, open", LK_KIND_LATCH, open_latch, remove_latch},
};
enum { STATES = sizeof(states) / sizeof(states[0]) };

/* ---- What is refused ---- */

static const char *state; /* for messages */

#define FOREIGN(call)                                                                              \
	do {                                                                                       \
		lk_err foreign_err_ = (call);                                                      \
		ck_assert_msg(foreign_err_ == LK_EFOREIGN, "%s: %s: %s (%s)", state, #call,        \
		              lk_err_name(foreign_err_), lk_errmsg());                             \
	} while (0)

static void refuse_lock(lk_client *client)
{
	lk_lock_status status;

	(void)client;
	FOREIGN(lk_lock_acquire(a_lock, 0, NULL));
	FOREIGN(lk_lock_acquire(a_lock, LK_FOREVER, NULL));
	FOREIGN(lk_lock_query(a_lock, &status));
	FOREIGN(lk_lock_break(a_lock, NULL));
	ck_assert_int_eq(lk_lock_state(a_lock), LK_STATE_NONE);
}

static void refuse_semaphore(lk_client *client)
{
	const lk_semaphore_options options = {.capacity = 3};
	lk_semaphore *none = NULL;
	lk_semaphore_status status;
	uint64_t hold = 77;

	FOREIGN(lk_semaphore_open(client, "a", 0, &options, &none));
	FOREIGN(lk_semaphore_open(client, "a", 0, NULL, &none));
	ck_assert_ptr_null(none);
	FOREIGN(lk_semaphore_acquire(a_semaphore, 1, 0, &hold));
	FOREIGN(lk_semaphore_acquire(a_semaphore, 1, LK_FOREVER, &hold));
	ck_assert_uint_eq(hold, 77);
	FOREIGN(lk_semaphore_query(a_semaphore, &status));
	FOREIGN(lk_semaphore_resize(a_semaphore, 5));
	FOREIGN(lk_semaphore_break(a_semaphore, NULL));
}

static void refuse_latch(lk_client *client)
{
	lk_latch_status status;

	(void)client;
	FOREIGN(lk_latch_set(a_latch, 1, NULL));
	FOREIGN(lk_latch_reset(a_latch, 1, NULL));
	FOREIGN(lk_latch_down(a_latch, 1, NULL, 0, NULL));
	FOREIGN(lk_latch_await(a_latch, LONG_MS));
	FOREIGN(lk_latch_query(a_latch, &status));
	FOREIGN(lk_latch_remove(a_latch));
}

static const struct {
	lk_kind kind;
	void (*refuse)(lk_client *client);
} kinds[] = {
	{LK_KIND_LOCK, refuse_lock},
	{LK_KIND_SEMAPHORE, refuse_semaphore},
	{LK_KIND_LATCH, refuse_latch},
};

static lk_kind kind_of(lk_client *client)
{
	lk_kind kind = LK_KIND_NONE;

	OK(lk_client_name_kind(client, "a", 0, &kind));
	return kind;
}

TEST_LIMIT(name_of_one_kind_is_no_other, 120)
{
	static char before[4000];
	lk_client *client = client_at(etcd_url(&shared, "", ""));

	makers = client_at(etcd_url(&shared, "", ""));
	waiters = client_at(etcd_url(&shared, "", ""));
	a_lock = lock_named(client, "a");
	a_latch = latch_named(client, "a");
	a_semaphore = semaphore_of(client, "a", NOUN_CAPACITY, 0);
	makers_lock = of_noun(&noun_lock, makers);
	makers_latch = latch_named(makers, "a");
	makers_semaphore = of_noun(&noun_semaphore, makers);
	forget_semaphore();
	for (int i = 0; i < STATES; i++) {
		state = states[i].text;
		ck_assert_msg(kind_of(client) == LK_KIND_NONE, "before %s", state);
		states[i].make();
		ck_assert_msg(kind_of(client) == states[i].kind, "%s", state);
		snprintf(before, sizeof(before), "%s", etcd_ctl(&shared, "get lk/A lk/["));
		for (size_t j = 0; j < sizeof(kinds) / sizeof(kinds[0]); j++)
			if (kinds[j].kind != states[i].kind)
				kinds[j].refuse(client);
		ck_assert_str_eq(etcd_ctl(&shared, "get lk/A lk/["), before);
		states[i].end();
	}
	OK(lk_client_close(client));
	OK(lk_client_close(makers));
	OK(lk_client_close(waiters));
}
