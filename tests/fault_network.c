/* SPDX-License-Identifier: MIT
 * Network faults (N2, N5 to N16 of the fault list), caused by the proxy of the tests, for holders
 * and waiters of each primitive: answers lost, links cut, stalled, late, flapping, overtaken,
 * silent, and logins refused. */
#include "harness/primitive.h"
#include "harness/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct proxy_fault stalled = {.stall = true};
static const struct proxy_fault dropped = {.drop = true};

static bool is_held_up(enum proxy_link link, enum proxy_way way)
{
	return proxy_count(&proxy).held[link][way] > 0;
}

static void close_both(lk_client *near, lk_client *far)
{
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

/* ---- N2: answers that never arrive -------------------------------------------------------- */

/* Handles of a client behind the proxy that has introduced itself; from now on requests arrive and
 * answers do not. */
static lk_client *lose_answers(struct claims *claims, unsigned set)
{
	lk_client *far;

	fault_set_up_proxy();
	far = far_client(400);
	claims_hold(claims, set, far, 3000);
	claims_release(claims);
	claims_open(claims, set, far, 3000);
	nap_ms(50);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &dropped);
	return far;
}

static bool answers_are_lost(void)
{
	return proxy_count(&proxy).dropped[PROXY_COMMANDS][PROXY_TO_CLIENT] > 0;
}

/* Each alone, so that the waiting thread itself reads the link. */
TEST_EACH(n2_grant_without_an_answer_is_unknown_and_released, LEASED, 20)
{
	struct claims claims;
	lk_client *far = lose_answers(&claims, set);

	claims_start(&claims, 0, true);
	ck_assert(WITHIN(300, claims_in_use(set))); /* it takes effect */
	claims_join(&claims, LK_EUNKNOWN);
	EACH (claim, &claims) {
		ck_assert_int_le(claim->took_ms, 400 + 400);
		ck_assert_uint_eq(claim->fence, 0);
	}
	ck_assert(answers_are_lost());
	proxy_heal(&proxy);
	ck_assert(WITHIN(2000, claims_at_rest(set)));
	claims_hold_again(&claims);
	OK(lk_client_close(far));
}

TEST_OF(n2_grant_whose_answer_is_lost_becomes_one_hold, LEASED, 20)
{
	struct claims claims;
	lk_client *far = lose_answers(&claims, set);

	claims_start(&claims, 10000, true);
	ck_assert(WITHIN(1000, claims_in_use(set)));
	ck_assert(WITHIN(500, answers_are_lost()));
	nap_ms(100);
	ck_assert(!claims_any_ended(&claims));
	proxy_heal(&proxy);
	claims_join(&claims, LK_OK); /* the link is given up, and the ask repeated */
	EACH (claim, &claims)
		ck_assert_int_le(claim->took_ms, 2000);
	claims_expect_held(&claims);
	claims_release(&claims);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(far));
}

/* ---- The message link --------------------------------------------------------------------- */

TEST_OF(n5_message_link_cut_wakes_waiters, EVERY, 20)
{
	struct claims held, waits[3];
	lk_client *near, *far[3];
	int64_t start_ms;

	fault_set_up_proxy();
	near = client_at(server.url);
	for (int gently = 0; gently < 2; gently++) {
		claims_hold(&held, set, near, 0);
		for (int i = 0; i < 3; i++) {
			far[i] = far_client(0);
			claims_queue(&waits[i], set, far[i], 0, false);
		}
		proxy_cut(&proxy, PROXY_MESSAGES, gently);
		start_ms = now_ms();
		claims_release(&held); /* its message has no subscriber, or a stale one */
		for (int i = 0; i < 3; i++)
			claims_join(&waits[i], LK_OK);
		ck_assert_int_le(now_ms() - start_ms, 2000);
		ck_assert_int_eq(proxy_count(&proxy).cuts, 3 * (gently + 1));
		ck_assert(claims_at_rest(set));
		for (int i = 0; i < 3; i++)
			OK(lk_client_close(far[i]));
	}
	OK(lk_client_close(near));
}

TEST_OF(n5_message_link_killed_by_the_server_wakes_waiters, EVERY, 20)
{
	struct claims held, waits[3];
	lk_client *near;
	int64_t start_ms;

	fault_set_up_proxy();
	near = client_at(server.url);
	claims_hold(&held, set, near, 5000);
	for (int i = 0; i < 3; i++)
		claims_queue(&waits[i], set, far_client(0), 5000, false);
	ck_assert_int_eq(redis_int(redis, "CLIENT KILL TYPE pubsub"), 4);
	claims_stay_held(&held, 300); /* the holder lost its message link, too */
	start_ms = now_ms();
	claims_release(&held);
	for (int i = 0; i < 3; i++)
		claims_join(&waits[i], LK_OK);
	ck_assert_int_le(now_ms() - start_ms, 2000);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(near));
}

/* Each alone: its own lease says how soon the client looks. */
TEST_EACH(n6_stalled_message_link_is_noticed, EVERY, 20)
{
	struct claims held, waits;
	lk_client *near, *far;
	int64_t start_ms;

	fault_set_up_proxy();
	near = client_at(server.url);
	far = far_client(500);
	claims_hold(&held, set, near, 900);
	if (!(set & LEASED))
		lock_leased(far, "any", 900);
	claims_queue(&waits, set, far, 900, true);
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &stalled);
	claims_release(&held); /* the proxy keeps the grant back */
	start_ms = now_ms();
	ck_assert(WITHIN(2000, is_held_up(PROXY_MESSAGES, PROXY_TO_CLIENT)));
	/* The client notices the silence, and opens new links, which work. */
	ck_assert(WITHIN(2000, proxy_count(&proxy).connections > 2));
	ck_assert(!claims_any_ended(&waits));
	proxy_heal(&proxy);
	claims_join(&waits, LK_OK);
	ck_assert_int_le(now_ms() - start_ms, 3000);
	waits.set = set & LEASED;
	claims_expect_held(&waits);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	close_both(near, far);
}

TEST_OF(n6_wait_that_ends_while_the_message_link_stands_still_leaves_nothing, LEASED, 20)
{
	struct claims held, waits;
	lk_client *near, *far;

	fault_set_up_proxy();
	near = client_at(server.url);
	far = far_client(1500);
	claims_hold(&held, set, near, 10000);
	claims_open(&waits, set, far, 10000);
	claims_start(&waits, 600, true);
	ck_assert(WITHIN(500, claims_waiting(set, 1)));
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &stalled);
	claims_release(&held);
	/* Granted, but the message is stuck. */
	ck_assert(claims_waiting(set, 0) && claims_in_use(set));
	claims_join(&waits, LK_ETIMEDOUT);
	ck_assert(is_held_up(PROXY_MESSAGES, PROXY_TO_CLIENT));
	ck_assert(claims_at_rest(set)); /* long before the lease's end */
	proxy_heal(&proxy);
	nap_ms(100); /* the grant arrives, too late to matter */
	ck_assert(claims_at_rest(set));
	claims_hold(&held, set, near, 0);
	close_both(near, far);
}

/* ---- The command link --------------------------------------------------------------------- */

TEST_OF(n7_full_grant_by_message_is_a_hold_without_commands, LEASED, 20)
{
	struct claims held, waits;
	lk_client *near, *far;

	fault_set_up_proxy();
	near = client_at(server.url);
	far = far_client(5000);
	claims_hold(&held, set, near, 5000);
	claims_queue(&waits, set, far, 2000, true);
	nap_ms(50); /* the answer to the ask arrives */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &stalled);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	EACH (claim, &waits) {
		int64_t remaining_ms = claim->primitive->remaining_ms(claim);
		ck_assert_int_le(claim->took_ms, 500);
		ck_assert(remaining_ms > 1000 && remaining_ms <= 2000);
	}
	/* Its renewals get no answer: the hold ends at its deadline, not before. */
	claims_expect_expiry(&waits);
	ck_assert(is_held_up(PROXY_COMMANDS, PROXY_TO_CLIENT));
	proxy_heal(&proxy);
	claims_release_lost(&waits);
	ck_assert(WITHIN(3000, claims_at_rest(set)));
	close_both(near, far);
}

TEST_OF(n7_short_grant_is_no_hold_until_claimed, LEASED, 20)
{
	struct claims held, waits;
	lk_client *near, *far;

	fault_set_up_proxy();
	near = client_at(server.url);
	far = far_client(5000);
	claims_hold(&held, set, near, 5000);
	claims_queue(&waits, set, far, 1600, true);
	nap_ms(1000); /* longer than its claim window of 800 ms */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_SERVER, &stalled);
	claims_release(&held);
	ck_assert(WITHIN(2000, is_held_up(PROXY_COMMANDS, PROXY_TO_SERVER)));
	nap_ms(200);
	ck_assert(!claims_any_ended(&waits));
	ck_assert(claims_waiting(set, 0) && claims_in_use(set));
	ck_assert_int_le(redis_int(redis, "PTTL lk:{lock}"), 800);
	proxy_heal(&proxy);
	claims_join(&waits, LK_OK);
	ck_assert_int_gt(redis_int(redis, "PTTL lk:{lock}"), 800);
	claims_stay_held(&waits, 1200); /* longer than the grant's life */
	claims_expect_held(&waits);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	close_both(near, far);
}

TEST_OF(n8_jitter_and_single_bytes_change_nothing, EVERY, 30)
{
	const struct proxy_fault rough = {.jitter_ms = 60, .slice = true};
	struct claims held, mine, waits;
	struct proxy_count count;
	lk_client *near, *far;

	fault_set_up_proxy();
	near = client_at(server.url);
	proxy_set_all(&proxy, &rough);
	far = far_client(0);
	claims_hold(&mine, set, far, 0);
	claims_await_link(&mine);
	claims_expect_held(&mine);
	claims_release(&mine);
	claims_hold(&held, set, near, 0);
	claims_queue(&waits, set, far, 0, false);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	claims_hold(&held, set, near, 0);
	claims_start(&waits, 300, false);
	claims_join(&waits, LK_ETIMEDOUT);
	EACH (claim, &waits)
		ck_assert(claim->took_ms >= 299 && claim->took_ms <= 300 + 2000);
	claims_release(&held);
	ck_assert(claims_at_rest(set));
	count = proxy_count(&proxy);
	for (int link = 0; link < PROXY_LINKS; link++) {
		ck_assert_int_gt(count.late[link][PROXY_TO_CLIENT], 0);
		ck_assert_int_gt(count.sliced[link][PROXY_TO_CLIENT], 100);
	}
	ck_assert_int_eq(count.connections, 2); /* no link was given up */
	close_both(near, far);
}

/* ---- Order between the two links ---------------------------------------------------------- */

TEST_OF(n9_grant_that_overtakes_the_answer_is_kept, LEASED, 20)
{
	const struct proxy_fault late = {.delay_ms = 500};
	struct claims held, waits;
	lk_client *near, *far;

	fault_set_up_proxy();
	near = client_at(server.url);
	far = far_client(0);
	claims_hold(&held, set, near, 0);
	claims_open(&waits, set, far, 0);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	claims_start(&waits, 5000, true);
	ck_assert(WITHIN(2000, claims_waiting(set, 1)));
	claims_release(&held);
	claims_join(&waits, LK_OK);
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
	claims_expect_held(&waits);
	claims_stay_held(&waits, 700); /* "queued" arrives at last, and changes nothing */
	claims_expect_held(&waits);
	ck_assert(claims_waiting(set, 0));
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	nap_ms(200);
	ck_assert(claims_at_rest(set));
	close_both(near, far);
}

TEST_OF(n9_grant_message_after_the_release_revives_nothing, LEASED, 20)
{
	const struct proxy_fault late = {.delay_ms = 1200};
	struct claims held, waits;
	lk_client *near, *far;

	fault_set_up_proxy();
	near = client_at(server.url);
	far = far_client(0);
	claims_hold(&held, set, near, 600);
	claims_queue(&waits, set, far, 3000, true);
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &late);
	claims_release(&held);
	claims_join(&waits, LK_OK); /* by a repeated ask at the latest */
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_MESSAGES][PROXY_TO_CLIENT], 0);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	nap_ms(1300); /* all late bytes have arrived */
	ck_assert(claims_at_rest(set));
	EACH (claim, &waits)
		ck_assert_int_eq(claim->primitive->state(claim), LK_STATE_NONE);
	claims_hold(&held, set, near, 0);
	close_both(near, far);
}

/* ---- A subscriber that does not read ------------------------------------------------------ */

/* A worker that waits, and prints its client's id and the result. */
static int wait_and_tell(void *arg, int in, int out)
{
	struct claims waits;
	lk_client *client;

	if (!line_read(in, 10000))
		return 2;
	client = client_at(server.url);
	claims_open(&waits, *(unsigned *)arg, client, 900);
	line_write(out, "%s", lk_client_id(client));
	claims_start(&waits, 15000, true);
	claims_join(&waits, LK_OK);
	line_write(out, "held");
	claims_release(&waits);
	return lk_client_close(client) != LK_OK;
}

static bool is_subscribed(const char *id)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB lk:c:0:%s", id);

	return atoi(text + strcspn(text, "\n")) == 1;
}

TEST_OF(n13_subscriber_past_its_output_limit_is_served_on_a_new_link, LEASED, 20)
{
	static char bulk[100 * 1000];
	struct process worker;
	struct claims held;
	lk_client *near;
	const char *line;
	char id[40];

	server_start(&server, NULL);
	process_start(&worker, wait_and_tell, &set);
	redis = redis_open(&server);
	near = client_at(server.url);
	claims_hold(&held, set, near, 0);
	line_write(worker.in, "go");
	line = line_read(worker.out, 5000);
	ck_assert_ptr_nonnull(line);
	snprintf(id, sizeof(id), "%s", line);
	ck_assert(WITHIN(2000, claims_waiting(set, 1)));
	process_pause(&worker);
	redis_do(redis, "CONFIG SET client-output-buffer-limit %s", "pubsub 8mb 0 0");
	memset(bulk, 'x', sizeof(bulk));
	for (int i = 0; i < 400; i++) /* 40 MB */
		redis_do(redis, "PUBLISH lk:c:0:%s %b", id, bulk, sizeof(bulk));
	ck_assert(WITHIN(2000, !is_subscribed(id))); /* the server has closed it */
	process_continue(&worker);
	ck_assert(WITHIN(3000, is_subscribed(id)));
	ck_assert(WITHIN(2000, claims_waiting(set, 1)));
	claims_release(&held);
	line = line_read(worker.out, 2000);
	ck_assert_msg(line && !strcmp(line, "held"), "%s", line ? line : "no wake-up");
	ck_assert(process_succeeded(&worker, 5000));
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(near));
}

/* ---- Flapping and silence ----------------------------------------------------------------- */

/* LK_LONG=1: for a minute. */
TEST_OF(n10_flapping_links_leak_nothing_and_progress_resumes, EVERY, 120)
{
	struct claims claims[2], held;
	lk_client *clients[2];
	int fds, threads, flaps = getenv("LK_LONG") ? 300 : 12;

	fault_set_up_proxy();
	for (int i = 0; i < 2; i++) {
		clients[i] = far_client(500);
		claims_hold(&held, set, clients[i], 0);
		claims_release(&held);
		claims_open(&claims[i], set, clients[i], 1000);
	}
	fds = proc_fd_count(0);
	threads = proc_thread_count(0);
	for (int flap = 0; flap < flaps; flap++) {
		for (int i = 0; i < 2; i++)
			claims_start(&claims[i], 150, false);
		nap_ms(200);
		proxy_cut(&proxy, PROXY_COMMANDS, flap % 2);
		proxy_cut(&proxy, PROXY_MESSAGES, flap % 2);
		for (int i = 0; i < 2; i++)
			EACH (claim, &claims[i])
				claim_join(claim); /* any result, as long as the wait ends */
	}
	ck_assert_int_ge(proxy_count(&proxy).cuts, flaps / 2);
	for (int i = 0; i < 2; i++) {
		int64_t start_ms = now_ms();
		claims_hold_again(&claims[i]);
		ck_assert_int_le(now_ms() - start_ms, 1000);
	}
	ck_assert(WITHIN(2000, proc_thread_count(0) == threads));
	ck_assert(WITHIN(2000, proc_fd_count(0) == fds));
	ck_assert(WITHIN(2000, proxy_count(&proxy).open == 4));
	ck_assert(WITHIN(2000, claims_at_rest(set)));
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
}

TEST(n14_black_hole_ends_with_the_connect_timeout)
{
	const lk_client_options options = {.connect_timeout_ms = 400, .password = "secret"};
	lk_client *client = NULL;
	int64_t start_ms;

	fault_set_up_proxy();
	proxy_black_hole(&proxy, true);
	start_ms = now_ms();
	EXPECT(lk_client_open(proxy.url, &options, &client), LK_ECONN);
	ck_assert_int_ge(now_ms() - start_ms, 390);
	ck_assert_int_le(now_ms() - start_ms, 700);
	ck_assert_ptr_null(client);
	ck_assert_int_ge(proxy_count(&proxy).silent, 1);
	ck_assert(WITHIN(1000, proxy_count(&proxy).open == 0));
}

TEST_OF(n14_reconnect_into_a_black_hole_keeps_deadlines, EVERY, 20)
{
	const lk_client_options options = {.connect_timeout_ms = 700, .command_timeout_ms = 400};
	struct claims held, waits;
	lk_client *client;
	int64_t start_ms;

	fault_set_up_proxy();
	client = client_with(proxy.url, &options);
	claims_open(&waits, set, client, 0);
	claims_hold(&held, set, client, 1000);
	proxy_black_hole(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	claims_expect_unsure(&held); /* noticed by now */
	start_ms = now_ms();
	claims_start(&waits, 300, true);
	claims_join(&waits, LK_ECONN);
	ck_assert_int_le(now_ms() - start_ms, 300 + 400 + 100);
	claims_expect_lost(&held, LK_LOST_EXPIRED, start_ms + 2000);
	ck_assert_int_gt(proxy_count(&proxy).silent, 0);
	claims_release_lost(&held);
	proxy_heal(&proxy);
	held.set = set & LEASED;
	claims_hold_again(&held);
	held.set = set & ~LEASED;
	claims_await_link(&held);
	claims_expect_held(&held);
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

	fault_set_up_proxy();
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

	fault_set_up_proxy();
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
