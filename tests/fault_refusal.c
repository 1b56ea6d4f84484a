/* SPDX-License-Identifier: MIT
 * A server that refuses requests for a while (S22, S23 of the fault list): it has too few replicas,
 * or an operator withdraws rights and grants them again.  Tickets left in its queues meanwhile must
 * not block other clients afterwards. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <stdio.h>
#include <string.h>

#define TIMEOUT_MS 400
#define LEASE_MS 60000 /* long enough that no lease ends in a test */
#define QUICK_MS 1200  /* less than a claim window, 3 s, on a heavily loaded machine */

static struct test_server server;
static struct redis *redis;
static lk_client *holder, *client, *next; /* the user of client may lose its rights */

static void set_up(void)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};
	char url[120];

	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, "ACL SETUSER b on >x ~* &* +@all");
	snprintf(url, sizeof(url), "redis://b:x@127.0.0.1:%d", server.port);
	holder = client_at(server.url);
	client = client_with(url, &options);
	next = client_at(server.url);
}

static void tear_down(void)
{
	OK(lk_client_close(client));
	OK(lk_client_close(holder));
	OK(lk_client_close(next));
}

static void take_rights(void)
{
	redis_do(redis, "ACL SETUSER b -evalsha -eval");
}

static void give_rights(void)
{
	redis_do(redis, "ACL SETUSER b +@all");
}

static void want_replicas(int count)
{
	redis_do(redis, "CONFIG SET min-replicas-to-write %d", count);
}

static bool queue_is(const char *name, int count)
{
	return redis_int(redis, "ZCARD lk:{%s}:q", name) == count;
}

/* No request of it reaches the server in the next second and a half. */
static bool is_seldom_refused(void)
{
	const char *at = strstr(redis_text(redis, "ACL LOG 1"), "count\n");
	long before = at ? strtol(at + 6, NULL, 10) : 0;

	nap_ms(1500);
	at = strstr(redis_text(redis, "ACL LOG 1"), "count\n");
	return at && strtol(at + 6, NULL, 10) == before;
}

/* ---- S22: too few replicas ---------------------------------------------------------------- */

TEST(s22_too_few_replicas_are_waited_out)
{
	struct waiter waiter;
	lk_lock *lock;

	set_up();
	want_replicas(1);
	ck_assert(!strncmp(redis_text(redis, "SET x 1"), "-NOREPLICAS", 11));
	lock = lock_of_handle(client, "a", LEASE_MS);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EAGAIN);
	ck_assert_msg(strstr(lk_errmsg(), "NOREPLICAS") != NULL, "%s", lk_errmsg());
	EXPECT(lk_lock_acquire(lock, 300, NULL), LK_ETIMEDOUT);
	waiter_start(&waiter, lock, 20000, true);
	nap_ms(500);
	ck_assert(!waiter.ended);
	want_replicas(0);
	OK(waiter_join(&waiter));
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	tear_down();
}

TEST(s22_ticket_of_a_wait_that_ended_meanwhile_blocks_nobody)
{
	struct waiter ended, waiter;
	lk_lock *lock;

	set_up();
	lock = lock_of_handle(holder, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, 0, NULL));
	waiter_start(&ended, lock_of_handle(client, "a", LEASE_MS), 700, false);
	ck_assert(WITHIN(5000, queue_is("a", 1)));
	want_replicas(1);
	EXPECT(waiter_join(&ended), LK_EUNKNOWN);
	ck_assert(queue_is("a", 1));
	nap_ms(3200); /* it is old, and its leave is now repeated every 3 s at most */
	want_replicas(0);
	OK(lk_lock_release(lock));
	waiter_start(&waiter, lock_of_handle(next, "a", LEASE_MS), 20000, false);
	OK(waiter_join(&waiter));
	ck_assert_int_le(waiter.took_ms, QUICK_MS);
	ck_assert(WITHIN(QUICK_MS, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0));
	tear_down();
}

/* ---- S23: rights that are withdrawn and granted again --------------------------------------- */

TEST_LIMIT(s23_ticket_of_who_had_no_rights_for_a_while_blocks_nobody, 40)
{
	struct waiter ended, waiter;
	lk_lock *lock;

	set_up();
	lock = lock_of_handle(holder, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, 0, NULL));
	waiter_start(&ended, lock_of_handle(client, "a", LEASE_MS), 700, false);
	ck_assert(WITHIN(5000, queue_is("a", 1)));
	take_rights();
	EXPECT(waiter_join(&ended), LK_EUNKNOWN);
	ck_assert(queue_is("a", 1));
	/* It is not forgotten, and does not fill the server's log. */
	ck_assert(WITHIN(15000, is_seldom_refused()));
	give_rights();
	waiter_start(&waiter, lock_of_handle(next, "a", LEASE_MS), 20000, false);
	ck_assert(WITHIN(5000, redis_int(redis, "ZCARD lk:{a}:q") >= 1));
	OK(lk_lock_release(lock));
	OK(waiter_join(&waiter));
	ck_assert(WITHIN(QUICK_MS, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0));
	ck_assert_int_le(waiter.took_ms, QUICK_MS);
	tear_down();
}

TEST(s23_release_without_rights_is_repeated_before_the_next_turn_of_its_own)
{
	lk_lock *lock;
	int64_t start_ms;

	set_up();
	lock = lock_of_handle(client, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, 0, NULL));
	take_rights();
	EXPECT(lk_lock_release(lock), LK_EUNKNOWN);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
	EXPECT(lk_lock_acquire(lock, 1000, NULL), LK_EAUTH);
	nap_ms(3200);
	give_rights();
	start_ms = now_ms();
	OK(lk_lock_acquire(lock, 10000, NULL));
	ck_assert_int_le(now_ms() - start_ms, QUICK_MS);
	OK(lk_lock_release(lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	tear_down();
}

/* As soon as a wait for "r" is queued. */
static void *take_rights_from_waiter(void *arg)
{
	redis = redis_open(&server);
	ck_assert(WITHIN(5000, permits_queue(redis, "r") == 1));
	take_rights();
	return arg;
}

/* Its permit is not used up, and its ticket blocks no other. */
TEST_LIMIT(s23_turn_of_a_rate_that_ended_without_rights_is_nobodys, 40)
{
	const lk_semaphore_options options = {.capacity = 1, .lease_ms = 6000, .fixed = true};
	lk_semaphore *mine, *others;
	pthread_t operator;
	int64_t start_ms;

	set_up();
	others = semaphore_with(next, "r", &options);
	mine = semaphore_with(client, "r", &options);
	OK(lk_semaphore_acquire(others, 1, 0, NULL));
	start_ms = now_ms();
	pthread_create(&operator, NULL, take_rights_from_waiter, NULL);
	EXPECT(lk_semaphore_acquire(mine, 1, 700, NULL), LK_EUNKNOWN);
	pthread_join(operator, NULL);
	ck_assert_int_eq(permits_queue(redis, "r"), 1);
	nap_ms(3200);
	give_rights();
	OK(lk_semaphore_acquire(others, 1, 20000, NULL));
	ck_assert_int_le(now_ms() - start_ms, 6000 + QUICK_MS);
	ck_assert_int_eq(permits_queue(redis, "r"), 0);
	tear_down();
}

TEST(s23_close_waits_for_no_rights)
{
	struct waiter ended;
	int64_t start_ms;
	lk_lock *lock;

	set_up();
	lock = lock_of_handle(holder, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, 0, NULL));
	waiter_start(&ended, lock_of_handle(client, "a", LEASE_MS), 500, false);
	ck_assert(WITHIN(5000, queue_is("a", 1)));
	take_rights();
	EXPECT(waiter_join(&ended), LK_EUNKNOWN);
	start_ms = now_ms();
	EXPECT(lk_client_close(client), LK_EUNKNOWN);
	ck_assert_int_lt(now_ms() - start_ms, TIMEOUT_MS);
	OK(lk_lock_release(lock));
	OK(lk_client_close(holder));
	OK(lk_client_close(next));
}
