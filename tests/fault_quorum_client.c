/* SPDX-License-Identifier: MIT
 * Clients of a quorum that fail, or do not reach its servers (Q10 to Q14 of the fault list). */
#include "harness/quorum_fault.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LEASE_MS 1500
#define LONGEST_MS 2000
#define UNSEEN_LEASE_MS 4000 /* does not end while a release waits */
#define CLAIM_MS 3000        /* a waiter that was granted and is dead blocks for so long */
#define WAIT_MS 15000
#define TIMEOUT_MS 500
#define LIST_SIZE 100

static lk_client *client, *other;
static lk_lock *lock, *wanted;

/* ---- Q10: a link of one server loses what is sent -------------------------------------------- */

static void lose(int member, enum proxy_way way)
{
	const struct proxy_fault drop = {.drop = true};

	proxy_set(&quorum_proxies[member], PROXY_COMMANDS, way, &drop);
	proxy_set(&quorum_proxies[member], PROXY_MESSAGES, way, &drop);
}

/* No network delivers bytes after it lost some. */
static void reconnect(int member)
{
	proxy_refuse(&quorum_proxies[member], true);
	proxy_cut(&quorum_proxies[member], PROXY_COMMANDS, false);
	proxy_cut(&quorum_proxies[member], PROXY_MESSAGES, false);
	proxy_heal(&quorum_proxies[member]);
}

static uint64_t hold_and_release(lk_lock *of)
{
	int64_t began_ms = now_ms();
	uint64_t fence;

	OK(lk_lock_acquire(of, WAIT_MS, &fence));
	OK(lk_lock_release(of));
	quorum_expect_soon(began_ms);
	return fence;
}

/* Let the next fences of all servers differ: a grant must be committed. */
static void part_counters(void)
{
	for (int i = 0; i < QUORUM_SERVERS; i++) {
		struct redis *own = redis_open(&quorum.servers[i]);
		char class[32];
		snprintf(class, sizeof(class), "%s", redis_text(own, "HKEYS lk:fences"));
		redis_do(own, "HINCRBY lk:fences %s %lld", class, 1000000LL * (i + 1));
		redis_close(own);
	}
}

static void begin_far(void)
{
	quorum_fault_set_up(LONGEST_MS);
	client = quorum_client(true, QUORUM_SLOW_MS);
	other = quorum_client(false, QUORUM_SLOW_MS);
	lock = lock_leased(client, "a", LEASE_MS);
	wanted = lock_leased(other, "a", LEASE_MS);
	hold_and_release(lock);
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
}

TEST_LIMIT(q10_lost_replies_of_a_server_delay_no_grant_no_commit_and_no_release, 30)
{
	uint64_t first, second, third;

	begin_far();
	lose(0, PROXY_TO_CLIENT);
	first = hold_and_release(lock);
	ck_assert(WITHIN(BACK_MS,
	                 proxy_count(&quorum_proxies[0]).dropped[PROXY_COMMANDS][PROXY_TO_CLIENT] >
	                         0));
	second = hold_and_release(wanted);
	ck_assert_uint_gt(second, first);
	part_counters();
	third = hold_and_release(lock);
	ck_assert_uint_gt(third, second);
	ck_assert_uint_gt(hold_and_release(wanted), third);
	reconnect(0);
	ck_assert(WITHIN(LEASE_MS + BACK_MS, quorum_is_clear()));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(q10_lost_requests_to_a_server_cost_no_hold_and_block_no_waiter, 30)
{
	int64_t began_ms;
	struct waiter waiter;

	begin_far();
	lock = hold_watched(client, "a", LEASE_MS);
	quorum_await_legs();
	waiter_start(&waiter, lock_of_handle(other, "a", LEASE_MS), WAIT_MS, true);
	quorum_await_queue(wanted, 1);
	lose(0, PROXY_TO_SERVER);
	began_ms = now_ms();
	OK(lk_lock_release(lock)); /* and server 0 does not know */
	quorum_expect_soon(began_ms);
	ck_assert_int_eq(waiter_join(&waiter), LK_OK);
	quorum_expect_soon(began_ms);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	OK(lk_lock_release(waiter.lock));
	OK(lk_lock_acquire(lock, WAIT_MS, NULL)); /* by the two others */
	stays_held(lock, LEASE_MS + LEASE_MS / 3);
	OK(lk_lock_release(lock));
	reconnect(0);
	ck_assert(WITHIN(LEASE_MS + BACK_MS, quorum_is_clear()));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Q11: a release that no majority confirms ------------------------------------------------ */

TEST_LIMIT(q11_release_that_no_majority_confirms_is_unknown_and_ends_with_the_lease, 30)
{
	const struct proxy_fault drop = {.drop = true};
	uint64_t before, after;
	int64_t began_ms;

	quorum_fault_set_up(UNSEEN_LEASE_MS);
	client = quorum_client(true, TIMEOUT_MS);
	other = quorum_client(false, TIMEOUT_MS);
	lock = lock_leased(client, "a", UNSEEN_LEASE_MS);
	wanted = lock_leased(other, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, WAIT_MS, &before));
	quorum_await_legs();
	for (int i = 0; i < 2; i++)
		proxy_set_all(&quorum_proxies[i], &drop);
	began_ms = now_ms();
	EXPECT(lk_lock_release(lock), LK_EUNKNOWN);
	ck_assert_int_le(now_ms() - began_ms, TIMEOUT_MS + QUORUM_SOON_MS);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert_int_le(now_ms() - began_ms, UNSEEN_LEASE_MS + 2 * QUORUM_SOON_MS);
	ck_assert_uint_gt(after, before);
	/* The late ends of the first hold change nothing. */
	for (int i = 0; i < 2; i++)
		reconnect(i);
	stays_held(wanted, LEASE_MS);
	OK(lk_lock_release(wanted));
	ck_assert(WITHIN(LEASE_MS + BACK_MS, quorum_is_clear()));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- Q12 to Q14: the process ----------------------------------------------------------------- */

/* Orders: hold, wait, state, release, quit; each has an answer of one line. */
static int obey(void *arg, int in, int out)
{
	const char *order;
	uint64_t fence = 0;
	lk_err err;

	(void)arg;
	client = quorum_client(false, 0);
	lock = lock_leased(client, "a", LEASE_MS);
	while ((order = line_read(in, 60000)) && *order != 'q') {
		if (*order == 'h' || *order == 'w') {
			err = lk_lock_acquire(lock, WAIT_MS, &fence);
			line_write(out, "%s %lld", lk_err_name(err), (long long)fence);
		} else if (*order == 's') {
			line_write(out, "%d", (int)lk_lock_state(lock));
		} else {
			line_write(out, "%s", lk_err_name(lk_lock_release(lock)));
		}
	}
	return order ? lk_client_close(client) != LK_OK : 3;
}

static struct process process;

static const char *ask_process(const char *order)
{
	const char *answer;

	ck_assert(line_write(process.in, "%s", order));
	answer = line_read(process.out, 20000);
	ck_assert_ptr_nonnull(answer);
	return answer;
}

static uint64_t hold_in_process(void)
{
	long long fence = 0;

	ck_assert_int_eq(sscanf(ask_process("hold"), "LK_OK %lld", &fence), 1);
	return (uint64_t)fence;
}

/* It starts before this process has threads. */
static void begin_with_process(void)
{
	quorum_setup_begin(&quorum, LONGEST_MS);
	process_start(&process, obey, NULL);
	other = quorum_client(false, 0);
	wanted = lock_leased(other, "a", LEASE_MS);
}

TEST_LIMIT(q12_lock_of_a_killed_holder_is_granted_after_its_lease, 30)
{
	uint64_t before, after;
	int64_t died_ms;

	begin_with_process();
	before = hold_in_process();
	EXPECT(lk_lock_acquire(wanted, 0, NULL), LK_EBUSY);
	process_kill(&process);
	died_ms = now_ms();
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert_int_le(now_ms() - died_ms, LEASE_MS + QUORUM_SOON_MS);
	ck_assert_uint_gt(after, before);
	OK(lk_lock_release(wanted));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	OK(lk_client_close(other));
}

/* The same while a server is down: nothing more is needed. */
TEST_LIMIT(q12_holder_and_a_server_are_killed_at_once, 30)
{
	uint64_t before, after;
	int64_t died_ms;

	begin_with_process();
	before = hold_in_process();
	process_kill(&process);
	server_kill(&quorum.servers[1]);
	died_ms = now_ms();
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert_int_le(now_ms() - died_ms, LEASE_MS + QUORUM_SOON_MS);
	ck_assert_uint_gt(after, before);
	OK(lk_lock_release(wanted));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	OK(lk_client_close(other));
}

TEST_LIMIT(q13_killed_waiter_is_skipped, 30)
{
	struct waiter waiter;
	int64_t began_ms;

	begin_with_process();
	OK(lk_lock_acquire(wanted, WAIT_MS, NULL));
	ck_assert(line_write(process.in, "wait"));
	quorum_await_queue(wanted, 1);
	client = quorum_client(false, 0);
	waiter_start(&waiter, lock_of_handle(client, "a", LEASE_MS), WAIT_MS, true);
	quorum_await_queue(wanted, 2);
	process_kill(&process);
	began_ms = now_ms();
	OK(lk_lock_release(wanted));
	ck_assert_int_eq(waiter_join(&waiter), LK_OK);
	ck_assert_int_le(now_ms() - began_ms, LEASE_MS + CLAIM_MS + QUORUM_SOON_MS);
	OK(lk_lock_release(waiter.lock));
	ck_assert(WITHIN(CLAIM_MS + BACK_MS, quorum_is_clear()));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(q14_client_stopped_over_its_lease_does_not_believe, 30)
{
	uint64_t before, after;
	char answer[40];

	begin_with_process();
	before = hold_in_process();
	process_pause(&process);
	OK(lk_lock_acquire(wanted, WAIT_MS, &after));
	ck_assert_uint_gt(after, before);
	process_continue(&process);
	snprintf(answer, sizeof(answer), "%s", ask_process("state"));
	ck_assert_int_eq(atoi(answer), LK_STATE_LOST);
	ck_assert_str_eq(ask_process("release"), lk_err_name(LK_ELOST));
	/* Its late requests have changed nothing. */
	stays_held(wanted, LEASE_MS);
	OK(lk_lock_release(wanted));
	ck_assert_uint_gt(hold_in_process(), after);
	ck_assert_str_eq(ask_process("release"), lk_err_name(LK_OK));
	ck_assert(line_write(process.in, "quit"));
	ck_assert(process_succeeded(&process, 10000));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	OK(lk_client_close(other));
}

/* ---- Queries --------------------------------------------------------------------------------- */

/* The first two servers that are connected differ: the third one decides. */
TEST_LIMIT(holder_at_two_servers_is_shown_whichever_connect_first, 30)
{
	const struct proxy_fault slow = {.delay_ms = 150};
	lk_lock_status status;

	quorum_fault_set_up(20000);
	client = quorum_client(false, 2000);
	lock = lock_leased(client, "a", 15000);
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	quorum_await_legs();
	ck_assert_int_eq(quorum_ask_server(2, "DEL lk:{a}"), 1);
	proxy_set_all(&quorum_proxies[0], &slow);
	for (int i = 0; i < 3; i++) {
		other = quorum_client(true, 4000);
		OK(lk_lock_query(lock_leased(other, "a", 15000), &status));
		ck_assert(status.held);
		OK(lk_client_close(other));
	}
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

/* A key of another program on one server: the two others decide. */
TEST_LIMIT(foreign_key_on_one_server_hides_no_holder, 30)
{
	const struct proxy_fault slow = {.delay_ms = 150};
	lk_lock_status status;
	struct redis *own;
	lk_lock *seen;

	quorum_fault_set_up(20000);
	client = quorum_client(false, 2000);
	own = redis_open(&quorum.servers[2]);
	redis_do(own, "SET lk:{a} x");
	redis_close(own);
	lock = lock_leased(client, "a", 15000);
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	proxy_set_all(&quorum_proxies[0], &slow);
	other = quorum_client(true, 4000);
	seen = lock_leased(other, "a", 15000);
	OK(lk_lock_query(seen, &status));
	ck_assert(status.held);
	OK(lk_client_close(other));
	other = quorum_client(true, 4000);
	OK(lk_lock_break(lock_leased(other, "a", 15000), NULL));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

/* One server accepts connections and is silent: the others confirm, and are enough. */
TEST_LIMIT(break_does_not_wait_for_a_silent_server, 60)
{
	int64_t began_ms;

	quorum_fault_set_up(20000);
	client = quorum_client(false, 2000);
	lock = lock_leased(client, "a", 15000);
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	quorum_await_legs();
	proxy_black_hole(&quorum_proxies[0], true);
	other = quorum_client(true, 4 * QUORUM_SLOW_MS);
	began_ms = now_ms();
	OK(lk_lock_break(lock_leased(other, "a", 15000), NULL));
	quorum_expect_soon(began_ms);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

static bool note_name(void *arg, const char *name, size_t len)
{
	char *list = arg;
	size_t used = strlen(list);

	snprintf(list + used, LIST_SIZE - used, "%.*s ", (int)len, name);
	return true;
}

static void *list_names(void *list)
{
	OK(lk_client_names(other, note_name, list));
	return NULL;
}

static bool all_have_answered(void)
{
	for (int i = 0; i < QUORUM_SERVERS; i++)
		if (!proxy_count(&quorum_proxies[i]).held[PROXY_COMMANDS][PROXY_TO_CLIENT])
			return false;
	return true;
}

/* Each server has answered before the client has any answer. */
TEST_LIMIT(names_are_asked_for_at_all_servers_at_once, 60)
{
	const struct proxy_fault stall = {.stall = true};
	char list[LIST_SIZE] = "";
	pthread_t thread;

	quorum_fault_set_up(20000);
	other = quorum_client(true, 40000);
	/* Once all servers have granted it a lock, it asks them all. */
	lock = lock_leased(other, "a", 15000);
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	quorum_await_legs();
	OK(lk_lock_release(lock));
	ck_assert(WITHIN(BACK_MS, quorum_is_clear()));
	for (int i = 0; i < QUORUM_SERVERS; i++) {
		char command[40];
		snprintf(command, sizeof(command), "SADD lk:{name%d} x", i);
		ck_assert_int_eq(quorum_ask_server(i, command), 1);
		ck_assert_int_eq(quorum_ask_server(i, "SADD lk:{a} x"), 1);
		proxy_set(&quorum_proxies[i], PROXY_COMMANDS, PROXY_TO_CLIENT, &stall);
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, list_names, list), 0);
	ck_assert(WITHIN(20000, all_have_answered()));
	for (int i = 0; i < QUORUM_SERVERS; i++)
		proxy_heal(&quorum_proxies[i]);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_str_eq(list, "a name0 name1 name2 ");
	OK(lk_client_close(other));
}

/* The next holder's fence is of the moment of the break, not of the hold that it ended.  Two
 * waiters that came within milliseconds may be served in either order: the clocks of their clients
 * differ. */
TEST_LIMIT(hold_after_a_break_begins_at_the_break, 40)
{
	struct quorum_scene scene;
	struct waiter *const waiters = scene.waiters;
	lk_lock_status status;
	int64_t held_ms;
	uint64_t before;
	int first;

	quorum_fault_set_up(20000);
	quorum_hold_and_wait(&scene, 15000, WAIT_MS);
	before = hold_of(scene.lock).fence;
	nap_ms(2000);
	OK(lk_lock_query(scene.lock, &status));
	held_ms = status.held_ms;
	ck_assert_int_ge(held_ms, 1000);
	OK(lk_lock_break(scene.lock, NULL));
	ck_assert(WITHIN(WAIT_MS, waiters[0].ended || waiters[1].ended));
	first = waiters[0].ended ? 0 : 1;
	ck_assert_int_eq(waiter_join(&waiters[first]), LK_OK);
	ck_assert_uint_ge(waiters[first].fence, before + (uint64_t)(held_ms - 1000) * 1000);
	EXPECT(lk_lock_release(scene.lock), LK_ELOST);
	OK(lk_lock_release(waiters[first].lock));
	ck_assert_int_eq(waiter_join(&waiters[!first]), LK_OK);
	OK(lk_lock_release(waiters[!first].lock));
	quorum_close_all(&scene);
}

/* The leg of one server is younger than the hold: the first two servers that are connected do not
 * tell which is right. */
TEST_LIMIT(age_of_a_hold_is_shown_whichever_connect_first, 60)
{
	const struct proxy_fault slow = {.delay_ms = 150};
	lk_lock_status status;

	quorum_fault_set_up(20000);
	client = quorum_client(false, 2000);
	lock = lock_leased(client, "a", 6000);
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	quorum_await_legs();
	nap_ms(2000);
	ck_assert_int_eq(quorum_ask_server(2, "DEL lk:{a}"), 1);
	ck_assert(WITHIN(20000, quorum_has_leg(2)));
	proxy_set_all(&quorum_proxies[0], &slow);
	for (int i = 0; i < 3; i++) {
		other = quorum_client(true, 8000);
		OK(lk_lock_query(lock_leased(other, "a", 6000), &status));
		ck_assert(status.held);
		ck_assert_int_ge(status.held_ms, 2000);
		OK(lk_client_close(other));
	}
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}
