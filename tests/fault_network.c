/* SPDX-License-Identifier: MIT
 * Network faults for a client (N5 to N16 of the fault list), caused by the proxy of the tests:
 * links cut, stalled, late, flapping, overtaken, silent, and logins refused. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct test_server server;
static struct proxy proxy;
static struct redis *redis;

static const struct proxy_fault stalled = {.stall = true};

static void set_up(void)
{
	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
}

/* A client behind the proxy. */
static lk_client *far_client(int64_t command_timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = command_timeout_ms};

	return client_with(proxy.url, &options);
}

static bool queue_is(long long len)
{
	return redis_int(redis, "ZCARD lk:{a}:q") == len;
}

/* No hold and no waiter is left. */
static void expect_no_keys(int64_t within_ms)
{
	ck_assert(WITHIN(within_ms, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0));
}

/* ---- The message link --------------------------------------------------------------------- */

TEST(n5_message_link_cut_wakes_waiters)
{
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held;
	int64_t start_ms;

	set_up();
	near = client_at(server.url);
	far = far_client(0);
	for (int gently = 0; gently < 2; gently++) {
		held = lock_named(near, "a");
		OK(lk_lock_acquire(held, 1000, NULL));
		waiter_start(&waiter, lock_of_handle(far, "a", 0), LK_FOREVER, false);
		ck_assert(WITHIN(2000, queue_is(1)));
		proxy_cut(&proxy, PROXY_MESSAGES, gently);
		start_ms = now_ms();
		OK(lk_lock_release(held)); /* its message has no subscriber, or a stale one */
		OK(waiter_join(&waiter));
		ck_assert_int_le(now_ms() - start_ms, 2000);
		ck_assert_int_eq(proxy_count(&proxy).cuts, gently + 1);
		expect_no_keys(0);
	}
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n5_message_link_killed_by_the_server_wakes_waiters)
{
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held;
	int64_t start_ms;

	set_up();
	near = client_at(server.url);
	far = far_client(0);
	held = hold_watched(near, "a", 5000);
	waiter_start(&waiter, lock_of_handle(far, "a", 0), LK_FOREVER, false);
	ck_assert(WITHIN(2000, queue_is(1)));
	ck_assert_int_eq(redis_int(redis, "CLIENT KILL TYPE pubsub"), 2);
	stays_held(held, 300); /* the holder lost its message link, too */
	start_ms = now_ms();
	OK(lk_lock_release(held));
	OK(waiter_join(&waiter));
	ck_assert_int_le(now_ms() - start_ms, 2000);
	expect_no_keys(0);
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n6_stalled_message_link_is_noticed)
{
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held;
	int64_t start_ms;

	set_up();
	near = client_at(server.url);
	far = far_client(500);
	held = hold_watched(near, "a", 900);
	waiter_start(&waiter, lock_of_handle(far, "a", 900), LK_FOREVER, false);
	ck_assert(WITHIN(2000, queue_is(1)));
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &stalled);
	OK(lk_lock_release(held)); /* the proxy keeps the grant back */
	start_ms = now_ms();
	ck_assert(WITHIN(2000, proxy_count(&proxy).held[PROXY_MESSAGES][PROXY_TO_CLIENT] > 0));
	/* The client notices the silence, and opens new links, which work. */
	ck_assert(WITHIN(2000, proxy_count(&proxy).connections > 2));
	proxy_heal(&proxy);
	OK(waiter_join(&waiter));
	ck_assert_int_le(now_ms() - start_ms, 3000);
	expect_no_keys(0);
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

/* ---- The command link --------------------------------------------------------------------- */

TEST(n7_full_grant_by_message_is_a_hold_without_commands)
{
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held, *lock;
	int64_t until_ms;

	set_up();
	near = client_at(server.url);
	far = far_client(5000);
	held = hold_watched(near, "a", 5000);
	lock = lock_of_handle(far, "a", 2000);
	waiter_start(&waiter, lock, LK_FOREVER, true);
	ck_assert(WITHIN(2000, queue_is(1)));
	nap_ms(50); /* the answer to the ask arrives */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &stalled);
	OK(lk_lock_release(held));
	OK(waiter_join(&waiter));
	ck_assert_int_le(waiter.took_ms, 500);
	ck_assert(lk_lock_is_mine(lock));
	until_ms = now_ms() + hold_of(lock).remaining_ms;
	ck_assert_int_gt(hold_of(lock).remaining_ms, 1000);
	ck_assert_int_le(hold_of(lock).remaining_ms, 2000);
	/* Its renewals get no answer: the hold ends at its deadline, not before. */
	ck_assert(WITHIN(3000, !lk_lock_is_mine(lock)));
	ck_assert_int_ge(now_ms(), until_ms - 10);
	ck_assert_int_le(now_ms(), until_ms + 50);
	ck_assert_int_gt(proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	proxy_heal(&proxy);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	expect_no_keys(3000);
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n7_short_grant_is_no_hold_until_claimed)
{
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held;

	set_up();
	near = client_at(server.url);
	far = far_client(5000);
	held = hold_watched(near, "a", 5000);
	waiter_start(&waiter, lock_of_handle(far, "a", 1600), LK_FOREVER, true);
	ck_assert(WITHIN(2000, queue_is(1)));
	nap_ms(1000); /* longer than its claim window of 800 ms */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_SERVER, &stalled);
	OK(lk_lock_release(held));
	ck_assert(WITHIN(2000, proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_SERVER] > 0));
	nap_ms(200);
	ck_assert(!waiter.ended);
	ck_assert_int_le(redis_int(redis, "PTTL lk:{a}"), 800);
	proxy_heal(&proxy);
	OK(waiter_join(&waiter));
	ck_assert(lk_lock_is_mine(waiter.lock));
	ck_assert_int_gt(redis_int(redis, "PTTL lk:{a}"), 800);
	OK(lk_lock_release(waiter.lock));
	expect_no_keys(0);
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n8_jitter_and_single_bytes_change_nothing)
{
	const struct proxy_fault rough = {.jitter_ms = 60, .slice = true};
	struct proxy_count count;
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held, *lock;
	lk_lock_status status;
	int64_t start_ms;

	set_up();
	near = client_at(server.url);
	proxy_set_all(&proxy, &rough);
	far = far_client(0);
	lock = lock_of_handle(far, "a", 0);
	held = lock_named(near, "a");
	for (int i = 0; i < 6; i++) {
		OK(lk_lock_acquire(lock, 1000, NULL));
		OK(lk_lock_query(lock, &status));
		ck_assert(status.held);
		ck_assert_uint_eq(status.fence, hold_of(lock).fence);
		OK(lk_lock_release(lock));
		OK(lk_lock_acquire(held, 1000, NULL));
		waiter_start(&waiter, lock, 5000, false);
		ck_assert(WITHIN(2000, queue_is(1)));
		OK(lk_lock_release(held));
		OK(waiter_join(&waiter));
	}
	OK(lk_lock_acquire(held, 1000, NULL));
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(lock, 300, NULL), LK_ETIMEDOUT);
	ck_assert_int_ge(now_ms() - start_ms, 299);
	ck_assert_int_le(now_ms() - start_ms, 300 + 2000);
	OK(lk_lock_release(held));
	expect_no_keys(0);
	count = proxy_count(&proxy);
	for (int link = 0; link < PROXY_LINKS; link++) {
		ck_assert_int_gt(count.late[link][PROXY_TO_CLIENT], 0);
		ck_assert_int_gt(count.sliced[link][PROXY_TO_CLIENT], 100);
	}
	ck_assert_int_eq(count.connections, 2); /* no link was given up */
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

/* ---- Order between the two links ---------------------------------------------------------- */

TEST(n9_grant_that_overtakes_the_answer_is_kept)
{
	const struct proxy_fault late = {.delay_ms = 500};
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held, *lock;

	set_up();
	near = client_at(server.url);
	far = far_client(0);
	held = hold_watched(near, "a", 0);
	lock = lock_of_handle(far, "a", 0);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	waiter_start(&waiter, lock, 5000, true);
	ck_assert(WITHIN(2000, queue_is(1)));
	OK(lk_lock_release(held));
	OK(waiter_join(&waiter));
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	ck_assert(lk_lock_is_mine(lock));
	nap_ms(700); /* "queued" arrives at last, and changes nothing */
	ck_assert(lk_lock_is_mine(lock));
	ck_assert_uint_eq(hold_of(lock).fence, waiter.fence);
	ck_assert(queue_is(0));
	OK(lk_lock_release(lock));
	expect_no_keys(0);
	nap_ms(200);
	expect_no_keys(0);
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n9_grant_message_after_the_release_revives_nothing)
{
	const struct proxy_fault late = {.delay_ms = 1200};
	struct waiter waiter;
	lk_client *near, *far;
	lk_lock *held, *lock;

	set_up();
	near = client_at(server.url);
	far = far_client(0);
	held = hold_watched(near, "a", 600);
	lock = lock_of_handle(far, "a", 3000);
	waiter_start(&waiter, lock, 5000, true);
	ck_assert(WITHIN(2000, queue_is(1)));
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &late);
	OK(lk_lock_release(held));
	OK(waiter_join(&waiter)); /* by a repeated ask at the latest */
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_MESSAGES][PROXY_TO_CLIENT], 0);
	OK(lk_lock_release(lock));
	expect_no_keys(0);
	nap_ms(1300); /* all late bytes have arrived */
	expect_no_keys(0);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	OK(lk_lock_acquire(held, 0, NULL));
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

/* ---- A subscriber that does not read ------------------------------------------------------ */

/* A worker that waits for the lock, and prints its client's id and the result. */
static int wait_and_tell(void *arg, int in, int out)
{
	lk_client *client;
	lk_lock *lock;

	(void)arg;
	if (!line_read(in, 10000))
		return 2;
	client = client_at(server.url);
	lock = lock_leased(client, "a", 900);
	line_write(out, "%s", lk_client_id(client));
	line_write(out, "%s", lk_err_name(lk_lock_acquire(lock, 15000, NULL)));
	OK(lk_lock_release(lock));
	return lk_client_close(client) != LK_OK;
}

static bool is_subscribed(const char *id)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB lk:c:0:%s", id);

	return atoi(text + strcspn(text, "\n")) == 1;
}

TEST(n13_subscriber_past_its_output_limit_is_served_on_a_new_link)
{
	static char bulk[100 * 1000];
	struct process worker;
	lk_client *near;
	lk_lock *held;
	const char *line;
	char id[40];

	server_start(&server, NULL);
	process_start(&worker, wait_and_tell, NULL);
	redis = redis_open(&server);
	near = client_at(server.url);
	held = hold_watched(near, "a", 0);
	line_write(worker.in, "go");
	line = line_read(worker.out, 5000);
	ck_assert_ptr_nonnull(line);
	snprintf(id, sizeof(id), "%s", line);
	ck_assert(WITHIN(2000, queue_is(1)));
	process_pause(&worker);
	redis_do(redis, "CONFIG SET client-output-buffer-limit %s", "pubsub 8mb 0 0");
	memset(bulk, 'x', sizeof(bulk));
	for (int i = 0; i < 400; i++) /* 40 MB */
		redis_do(redis, "PUBLISH lk:c:0:%s %b", id, bulk, sizeof(bulk));
	ck_assert(WITHIN(2000, !is_subscribed(id))); /* the server has closed it */
	process_continue(&worker);
	ck_assert(WITHIN(3000, is_subscribed(id)));
	ck_assert(WITHIN(2000, queue_is(1)));
	OK(lk_lock_release(held));
	line = line_read(worker.out, 2000);
	ck_assert_msg(line && !strcmp(line, "LK_OK"), "%s", line ? line : "no wake-up");
	ck_assert(process_succeeded(&worker, 5000));
	expect_no_keys(0);
	OK(lk_client_close(near));
}

/* ---- Flapping and silence ----------------------------------------------------------------- */

/* LK_LONG=1: for a minute. */
TEST_LIMIT(n10_flapping_links_leak_nothing_and_progress_resumes, 120)
{
	struct waiter waiters[2];
	lk_client *clients[2];
	int fds, threads, flaps = getenv("LK_LONG") ? 300 : 12;

	set_up();
	for (int i = 0; i < 2; i++) {
		clients[i] = far_client(500);
		OK(lk_lock_acquire(lock_named(clients[i], "warm"), 1000, NULL));
		OK(lk_lock_release(lock_named(clients[i], "warm")));
	}
	fds = proc_fd_count(0);
	threads = proc_thread_count(0);
	for (int flap = 0; flap < flaps; flap++) {
		for (int i = 0; i < 2; i++)
			waiter_start(&waiters[i], lock_of_handle(clients[i], "a", 1000), 150,
			             false);
		nap_ms(200);
		proxy_cut(&proxy, PROXY_COMMANDS, flap % 2);
		proxy_cut(&proxy, PROXY_MESSAGES, flap % 2);
		for (int i = 0; i < 2; i++)
			waiter_join(&waiters[i]); /* any result, as long as the wait ends */
	}
	ck_assert_int_ge(proxy_count(&proxy).cuts, flaps / 2);
	for (int i = 0; i < 2; i++) {
		lk_lock *lock = lock_of_handle(clients[i], "after", 1000);
		int64_t start_ms = now_ms();
		ck_assert(WITHIN(1000, lk_lock_acquire(lock, 1000, NULL) == LK_OK));
		ck_assert_int_le(now_ms() - start_ms, 1000);
		OK(lk_lock_release(lock));
	}
	ck_assert(WITHIN(2000, proc_thread_count(0) == threads));
	ck_assert(WITHIN(2000, proc_fd_count(0) == fds));
	ck_assert(WITHIN(2000, proxy_count(&proxy).open == 4));
	expect_no_keys(2000);
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
}

TEST(n14_black_hole_ends_with_the_connect_timeout)
{
	const lk_client_options options = {.connect_timeout_ms = 400, .password = "secret"};
	lk_client *client = NULL;
	int64_t start_ms;

	set_up();
	proxy_black_hole(&proxy, true);
	start_ms = now_ms();
	EXPECT(lk_client_open(proxy.url, &options, &client), LK_ECONN);
	ck_assert_int_ge(now_ms() - start_ms, 390);
	ck_assert_int_le(now_ms() - start_ms, 700);
	ck_assert_ptr_null(client);
	ck_assert_int_ge(proxy_count(&proxy).silent, 1);
	ck_assert(WITHIN(1000, proxy_count(&proxy).open == 0));
}

TEST(n14_reconnect_into_a_black_hole_keeps_deadlines)
{
	const lk_client_options options = {.connect_timeout_ms = 700, .command_timeout_ms = 400};
	lk_client *client;
	lk_lock *held, *lock;
	int64_t start_ms;

	set_up();
	client = client_with(proxy.url, &options);
	lock = lock_named(client, "b");
	held = hold_watched(client, "a", 1000);
	proxy_black_hole(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert(WITHIN(2000, lk_lock_state(held) == LK_STATE_UNSURE)); /* noticed by now */
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(lock, 300, NULL), LK_ECONN);
	ck_assert_int_le(now_ms() - start_ms, 300 + 400 + 100);
	ck_assert(WITHIN(2000, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	ck_assert_int_gt(proxy_count(&proxy).silent, 0);
	EXPECT(lk_lock_release(held), LK_ELOST);
	proxy_heal(&proxy);
	ck_assert(WITHIN(8000, lk_lock_acquire(lock, 500, NULL) == LK_OK));
	OK(lk_client_close(client));
}

/* ---- Logins ------------------------------------------------------------------------------- */

TEST(n16_wrong_login_is_refused_once)
{
	const lk_client_options wrong[] = {{.user = "app", .password = "wrong"},
	                                   {.user = "nobody", .password = "right"},
	                                   {.password = "right"}};
	const lk_client_options right = {.user = "app", .password = "right"};
	lk_client *client = NULL;

	set_up();
	redis_do(redis, "ACL SETUSER app on >right ~* &* +@all");
	redis_do(redis, "ACL SETUSER default >secret");
	for (int i = 0; i < 3; i++) {
		int64_t before = proxy_count(&proxy).connections;
		EXPECT(lk_client_open(proxy.url, &wrong[i], &client), LK_EAUTH);
		ck_assert_ptr_null(client);
		ck_assert_ptr_null(strstr(lk_errmsg(), "right"));
		ck_assert_int_le(proxy_count(&proxy).connections - before, 2);
	}
	OK(lk_client_open(proxy.url, &right, &client));
	OK(lk_client_close(client));
}

TEST(n16_rotated_password_makes_no_retry_storm)
{
	const lk_client_options app = {.user = "app", .password = "old", .command_timeout_ms = 500};
	lk_client *client;
	lk_lock *held;
	int64_t before, start_ms;

	set_up();
	redis_do(redis, "ACL SETUSER app on >old ~* &* +@all");
	client = client_with(proxy.url, &app);
	held = hold_watched(client, "a", 1000);
	before = proxy_count(&proxy).connections;
	/* The user is deleted, and with it its connections; then it exists again, with another
	 * password. */
	redis_do(redis, "ACL DELUSER app");
	redis_do(redis, "ACL SETUSER app on >new ~* &* +@all");
	/* Before the client notices, a request could be in flight, with an unknown result. */
	ck_assert(WITHIN(1000, lk_lock_state(held) == LK_STATE_UNSURE));
	start_ms = now_ms();
	EXPECT(lk_lock_acquire(lock_named(client, "b"), 300, NULL), LK_EAUTH);
	ck_assert_int_le(now_ms() - start_ms, 300 + 500);
	ck_assert(WITHIN(2000, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_EXPIRED);
	nap_ms(1000);
	ck_assert_int_ge(proxy_count(&proxy).connections - before, 1);
	ck_assert_int_le(proxy_count(&proxy).connections - before, 30);
	EXPECT(lk_lock_release(held), LK_ELOST);
	redis_do(redis, "ACL SETUSER app >old"); /* rotated back: it recovers by itself */
	ck_assert(WITHIN(8000, lk_lock_acquire(lock_named(client, "b"), 500, NULL) == LK_OK));
	OK(lk_client_close(client));
}
