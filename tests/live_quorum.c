/* SPDX-License-Identifier: MIT
 * A client of a quorum of three servers, of which some are down, hang, lose their memory, refuse it
 * or are others than it expects.  The contract of a lock there is in live_quorum_contract. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/quorum_setup.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONGEST_MS 60000
#define LEASE_MS 600
#define WAIT_MS 10000
#define TIMEOUT_MS 1000

static struct quorum_setup setup;
static struct test_server *const servers = setup.servers;

/* Calls end soon although a server hangs. */
static lk_client *client_of(const char *url)
{
	const lk_client_options options = {.command_timeout_ms = TIMEOUT_MS};

	return client_with(url, &options);
}

static void take_and_release(lk_lock *lock)
{
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	OK(lk_lock_release(lock));
}

/* "127.0.0.1:PORT" is in the text of the last error. */
static bool is_named(const struct test_server *server)
{
	char place[32];

	snprintf(place, sizeof(place), "127.0.0.1:%d", server->port);
	return strstr(lk_errmsg(), place) != NULL;
}

/* ---- Opening --------------------------------------------------------------------------------- */

TEST(client_opens_and_locks_with_one_server_down)
{
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	server_kill(&servers[1]);
	client = client_at(setup.url);
	take_and_release(lock_named(client, "a"));
	OK(lk_client_close(client));
}

TEST(open_with_two_servers_down_names_both)
{
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	server_kill(&servers[0]);
	server_kill(&servers[2]);
	EXPECT(lk_client_open(setup.url, NULL, &client), LK_ECONN);
	ck_assert_msg(is_named(&servers[0]) && is_named(&servers[2]), "%s", lk_errmsg());
}

static void want_password(const struct test_server *server)
{
	struct redis *redis = redis_open(server);

	redis_do(redis, "CONFIG SET requirepass secret");
	redis_close(redis);
}

TEST(refused_credentials_are_the_reason_although_another_server_is_down)
{
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	want_password(&servers[2]);
	client = client_at(setup.url);
	OK(lk_client_close(client));
	server_kill(&servers[0]);
	EXPECT(lk_client_open(setup.url, NULL, &client), LK_EAUTH);
	ck_assert_msg(is_named(&servers[0]) && is_named(&servers[2]), "%s", lk_errmsg());
}

TEST(open_with_two_hanging_servers_ends_with_the_connect_timeout)
{
	const lk_client_options options = {.connect_timeout_ms = 500};
	int64_t began_ms;
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	server_pause(&servers[0]);
	server_pause(&servers[1]);
	began_ms = now_ms();
	EXPECT(lk_client_open(setup.url, &options, &client), LK_ECONN);
	ck_assert_int_ge(now_ms() - began_ms, 400);
	ck_assert_int_le(now_ms() - began_ms, 5000);
	server_resume(&servers[0]);
	server_resume(&servers[1]);
}

TEST(lazy_client_dials_at_its_first_call)
{
	const lk_client_options options = {.lazy = true};
	lk_lock_status status;
	lk_client *client;
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	client = client_with(setup.url, &options);
	lock = lock_named(client, "a");
	OK(lk_lock_query(lock, &status));
	ck_assert(!status.held);
	OK(lk_client_close(client));

	client = client_with(setup.url, &options);
	take_and_release(lock_named(client, "a"));
	OK(lk_client_close(client));
}

/* As those of a client of one server do: waiting does not help. */
TEST(calls_of_a_lazy_client_end_when_a_majority_refuses_it)
{
	const lk_client_options options = {.lazy = true, .command_timeout_ms = 30000};
	lk_lock_status status;
	lk_client *client;
	int64_t began_ms;
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	want_password(&servers[0]);
	want_password(&servers[2]);
	began_ms = now_ms();
	client = client_with(setup.url, &options);
	lock = lock_named(client, "a");
	for (int i = 0; i < 2; i++) {
		EXPECT(lk_lock_acquire(lock, 30000, NULL), LK_EAUTH);
		ck_assert_msg(is_named(&servers[0]) && is_named(&servers[2]), "%s", lk_errmsg());
		EXPECT(lk_lock_query(lock, &status), LK_EAUTH);
	}
	ck_assert_int_le(now_ms() - began_ms, 20000);
	OK(lk_client_close(client));
}

TEST(name_of_one_server_thrice_is_refused)
{
	char url[100];
	lk_client *client;

	server_start(&servers[0], NULL);
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d,localhost:%d,LOCALHOST:%d",
	         servers[0].port, servers[0].port, servers[0].port);
	EXPECT(lk_client_open(url, NULL, &client), LK_EINVALID);
	ck_assert_msg(strstr(lk_errmsg(), "the same server as"), "%s", lk_errmsg());
}

/* ---- Making a quorum ------------------------------------------------------------------------- */

TEST(quorum_is_made_once_and_of_all_servers)
{
	quorum_setup_start(&setup, NULL);
	server_kill(&servers[1]);
	EXPECT(lk_quorum_begin(setup.url, NULL, 0), LK_ECONN);
	ck_assert_msg(is_named(&servers[1]) && !is_named(&servers[0]), "%s", lk_errmsg());
	ck_assert_msg(strstr(lk_errmsg(), "a new quorum needs all 3 servers: "), "%s", lk_errmsg());
	ck_assert_int_eq(lk_quorum_begin(setup.servers[0].url, NULL, 0), LK_EINVALID);
	ck_assert_int_eq(lk_quorum_begin(setup.url, NULL, LK_LEASE_MIN_MS - 1), LK_EINVALID);
	server_restart(&servers[1]);
	OK(lk_quorum_begin(setup.url, NULL, 5000));
	EXPECT(lk_quorum_begin(setup.url, NULL, 5000), LK_EMISMATCH);
	ck_assert_msg(strstr(lk_errmsg(), "belongs to a quorum already"), "%s", lk_errmsg());
}

TEST(quorum_that_clients_make_is_young)
{
	lk_client *client;
	lk_lock_status status;
	lk_lock *lock;

	quorum_setup_start(&setup, NULL);
	client = client_at(setup.url);
	lock = lock_named(client, "a");
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	OK(lk_lock_query(lock, &status));
	ck_assert(status.grace_ms > 30000 && status.grace_ms <= LONGEST_MS);
	OK(lk_client_close(client));
}

TEST(servers_of_two_quorums_are_no_quorum)
{
	static struct quorum_setup other;
	char url[100];
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	quorum_setup_begin(&other, 0);
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
	         servers[0].port, other.servers[0].port, other.servers[1].port);
	client = client_at(url); /* the majority decides */
	take_and_release(lock_named(client, "a"));
	ck_assert_int_eq(quorum_setup_count(&setup, "lk:fences"), 0);
	OK(lk_client_close(client));
	EXPECT(lk_client_open(setup.servers[0].url, NULL, &client), LK_EFOREIGN);
	ck_assert_msg(strstr(lk_errmsg(), "quorum"), "%s", lk_errmsg());
}

TEST(no_lease_is_longer_than_the_longest)
{
	lk_lock_options options = {.lease_ms = 3001};
	lk_client *client;
	lk_lock_status status;
	lk_lock *lock;

	quorum_setup_begin(&setup, 3000);
	client = client_at(setup.url);
	EXPECT(lk_lock_open(client, "a", 0, &options, &lock), LK_EINVALID);
	ck_assert_msg(strstr(lk_errmsg(), "3000"), "%s", lk_errmsg());
	lock = lock_named(client, "a"); /* its default lease of 10 s is cut */
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_query(lock, &status));
	ck_assert(status.held && status.lease_left_ms <= 3000);
	EXPECT(lk_lock_extend(lock, 3001), LK_EINVALID);
	ck_assert_msg(strstr(lk_errmsg(), "3000"), "%s", lk_errmsg());
	OK(lk_lock_extend(lock, 3000));
	OK(lk_client_close(client));
}

TEST(default_lease_of_a_lazy_client_is_cut)
{
	const lk_client_options options = {.lazy = true};
	lk_client *client;
	lk_lock *lock;
	lk_hold hold;

	quorum_setup_begin(&setup, 3000);
	client = client_with(setup.url, &options);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	OK(lk_lock_snapshot(lock, &hold));
	ck_assert_int_eq(hold.lease_ms, 3000);
	OK(lk_client_close(client));
}

TEST(quorum_has_locks_only)
{
	const lk_semaphore_options two = {.capacity = 2};
	lk_semaphore *semaphore;
	lk_latch *latch;
	lk_memory memory;
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	client = client_at(setup.url);
	EXPECT(lk_semaphore_open(client, "a", 0, &two, &semaphore), LK_EUNSUPPORTED);
	ck_assert_msg(strstr(lk_errmsg(), "quorum"), "%s", lk_errmsg());
	EXPECT(lk_latch_open(client, "a", 0, NULL, &latch), LK_EUNSUPPORTED);
	ck_assert_msg(strstr(lk_errmsg(), "quorum"), "%s", lk_errmsg());
	EXPECT(lk_client_memory(client, &memory), LK_EUNSUPPORTED);
	EXPECT(lk_client_end_grace(client, NULL), LK_EUNSUPPORTED);
	OK(lk_client_close(client));
}

/* ---- Servers that fail ----------------------------------------------------------------------- */

TEST(hold_outlives_a_server_and_is_released_without_it)
{
	lk_client *client, *other;
	uint64_t first, second;
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	client = client_of(setup.url);
	other = client_of(setup.url);
	lock = lock_leased(client, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, WAIT_MS, &first));
	server_kill(&servers[0]);
	nap_ms(2 * LEASE_MS);
	ck_assert(lk_lock_is_mine(lock));
	EXPECT(lk_lock_acquire(lock_named(other, "a"), 0, NULL), LK_EBUSY);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(lock_named(other, "a"), WAIT_MS, &second));
	ck_assert_uint_gt(second, first);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	ck_assert_int_eq(redis_size(redis_open(&servers[1])), 1); /* lk:fences */
}

TEST(hanging_server_delays_no_call)
{
	int64_t began_ms, each_ms;
	lk_client *client;
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	client = client_of(setup.url);
	lock = lock_named(client, "a");
	take_and_release(lock);
	server_pause(&servers[2]);
	began_ms = now_ms();
	for (int i = 0; i < 100; i++)
		take_and_release(lock);
	each_ms = (now_ms() - began_ms) / 100;
	ck_assert_int_lt(each_ms, TIMEOUT_MS / 10);
	began_ms = now_ms();
	OK(lk_client_close(client));
	ck_assert_int_lt(now_ms() - began_ms, TIMEOUT_MS + 2000);
	server_resume(&servers[2]);
}

TEST(wait_with_two_servers_down_ends_in_time_and_names_them)
{
	int64_t began_ms;
	lk_client *client;
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	client = client_of(setup.url);
	lock = lock_named(client, "a");
	take_and_release(lock);
	server_kill(&servers[0]);
	server_kill(&servers[1]);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 0, NULL) != LK_OK));
	began_ms = now_ms();
	ck_assert_int_ne(lk_lock_acquire(lock, 300, NULL), LK_OK);
	ck_assert_msg(is_named(&servers[0]) && is_named(&servers[1]), "%s", lk_errmsg());
	ck_assert_int_lt(now_ms() - began_ms, 300 + TIMEOUT_MS + 2000);
	server_restart(&servers[0]);
	server_restart(&servers[1]);
	lk_client_close(client);
}

static lk_lock *cancelled;

static void *cancel_soon(void *arg)
{
	nap_ms(200);
	OK(lk_lock_cancel(cancelled));
	return arg;
}

TEST(cancel_ends_a_wait_although_no_majority_answers)
{
	int64_t began_ms;
	pthread_t thread;
	lk_client *client;
	lk_err err;

	quorum_setup_begin(&setup, 0);
	client = client_of(setup.url);
	cancelled = lock_named(client, "a");
	take_and_release(cancelled);
	server_pause(&servers[0]);
	server_pause(&servers[1]);
	pthread_create(&thread, NULL, cancel_soon, NULL);
	began_ms = now_ms();
	err = lk_lock_acquire(cancelled, LK_FOREVER, NULL);
	ck_assert_msg(err == LK_ECANCELED || err == LK_EUNKNOWN, "%s", lk_err_name(err));
	ck_assert_int_lt(now_ms() - began_ms, 200 + TIMEOUT_MS + 2000);
	pthread_join(thread, NULL);
	server_resume(&servers[0]);
	server_resume(&servers[1]);
	lk_client_close(client);
}

/* The waiting thread polls the links, on which nothing comes. */
TEST(cancel_ends_a_wait_at_once_although_all_servers_are_down)
{
	int64_t began_ms;
	pthread_t thread;
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	client = client_of(setup.url);
	cancelled = lock_named(client, "a");
	take_and_release(cancelled);
	for (int i = 0; i < QUORUM_SERVERS; i++)
		server_kill(&servers[i]);
	ck_assert(WITHIN(5000, lk_lock_acquire(cancelled, 0, NULL) == LK_ECONN));
	pthread_create(&thread, NULL, cancel_soon, NULL);
	began_ms = now_ms();
	EXPECT(lk_lock_acquire(cancelled, 60000, NULL), LK_ECANCELED);
	ck_assert_int_lt(now_ms() - began_ms, 20000);
	pthread_join(thread, NULL);
	lk_client_close(client);
}

/* A client that never got a majority, and died. */
TEST(ticket_on_one_server_is_no_holder)
{
	static const char dead[] = "q1:AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB:10000:r:1:0 1 10000 -";
	lk_lock_status status;
	struct redis *redis;
	lk_client *client;
	lk_party waiter;
	lk_kind kind;
	lk_lock *lock;
	size_t count;

	quorum_setup_begin(&setup, 0);
	redis = redis_open(&servers[1]);
	redis_do(redis, "SET lk:{a} %b PX 10000", dead, sizeof(dead) - 1);
	client = client_at(setup.url);
	ck_assert(WITHIN(WAIT_MS, lk_client_name_kind(client, "a", 0, &kind) == LK_OK &&
	                                  kind == LK_KIND_LOCK));
	lock = lock_named(client, "a");
	OK(lk_lock_query(lock, &status));
	ck_assert(!status.held && status.queue_len <= 1);
	OK(lk_lock_waiters(lock, 1, &waiter, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_str_eq(waiter.id, "AAAAAAAAAAAAAAAAAAAAAA:BBBBBBBBBBB");
	EXPECT(lk_lock_break(lock, NULL), LK_EABSENT);
	take_and_release(lock);
	OK(lk_client_close(client));
}

static _Atomic(bool) was_logged;

static void note_line(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	if (strstr(line, "the server may have forgotten a holder: it does not vote for "))
		was_logged = true;
}

TEST(server_that_has_lost_its_memory_is_logged)
{
	const lk_client_options options = {.log = note_line};
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	client = client_with(setup.url, &options);
	ck_assert(!was_logged);
	server_restart(&servers[1]);
	ck_assert(WITHIN(WAIT_MS, was_logged));
	OK(lk_client_close(client));
}

/* A server that has lost its memory does not vote until the longest lease is over. */
TEST(restarted_server_is_young_for_the_longest_lease)
{
	lk_lock_status status;
	uint64_t before, after;
	lk_client *client;
	int64_t died_ms;
	lk_lock *lock;

	quorum_setup_begin(&setup, 3000);
	client = client_of(setup.url);
	lock = lock_leased(client, "a", LEASE_MS);
	OK(lk_lock_acquire(lock, WAIT_MS, &before));
	OK(lk_lock_release(lock));
	died_ms = now_ms();
	server_restart(&servers[0]);
	take_and_release(lock); /* the others vote */
	server_restart(&servers[1]);
	OK(lk_lock_acquire(lock, WAIT_MS, &after)); /* a young one is needed */
	ck_assert_int_ge(now_ms() - died_ms, 2900);
	ck_assert_uint_gt(after, before);
	OK(lk_lock_query(lock, &status));
	ck_assert(status.held);
	OK(lk_client_close(client));
}

/* Where all servers forget their set, the next one has the default. */
TEST(longest_lease_is_at_most_the_default)
{
	lk_client *client;

	EXPECT(lk_quorum_begin(setup.url, NULL, 60001), LK_EINVALID);
	quorum_setup_begin(&setup, 60000);
	client = client_of(setup.url);
	OK(lk_client_close(client));
}

/* The thread that logs has begun when the client gives up. */
TEST(open_at_a_young_server_of_a_larger_quorum_fails_in_time)
{
	struct redis *redis;
	lk_client *client;
	char url[64];

	quorum_setup_begin(&setup, 0);
	server_restart(&servers[1]);
	client = client_of(setup.url); /* marks it again */
	redis = redis_open(&servers[1]);
	ck_assert(WITHIN(WAIT_MS, strchr(redis_text(redis, "GET lk:epoch"), '['))); /* its quorum */
	OK(lk_client_close(client));
	snprintf(url, 64, "redis+quorum://127.0.0.1:%d?connect_timeout=500", servers[1].port);
	EXPECT(lk_client_open(url, NULL, &client), LK_EINVALID);
}

/* Waiting does not mend the URL. */
TEST(servers_of_a_larger_quorum_are_refused_at_once)
{
	int64_t began_ms = now_ms();
	lk_client *client;
	char url[100];

	quorum_setup_begin(&setup, 0);
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d?connect_timeout=60000",
	         servers[1].port);
	EXPECT(lk_client_open(url, NULL, &client), LK_EINVALID);
	ck_assert_msg(is_named(&servers[1]) && strstr(lk_errmsg(), "host: 1 in the list, but "),
	              "%s", lk_errmsg());
	snprintf(url, sizeof(url), "redis+quorum://127.0.0.1:%d?lazy=1", servers[1].port);
	client = client_at(url);
	for (int i = 0; i < 2; i++)
		EXPECT(lk_lock_acquire(lock_named(client, "a"), LK_FOREVER, NULL), LK_EINVALID);
	OK(lk_client_close(client));
	ck_assert_int_le(now_ms() - began_ms, 30000);
}

/* One of three has lost its memory: the others show and break what they have granted. */
TEST(young_server_hides_no_holder)
{
	lk_lock_status status;
	lk_client *client, *other;
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	server_restart(&servers[0]);
	client = client_of(setup.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	for (int i = 0; i < 5; i++) {
		other = client_of(setup.url);
		OK(lk_lock_query(lock_named(other, "a"), &status));
		ck_assert(status.held);
		OK(lk_client_close(other));
	}
	OK(lk_client_close(client));
}

/* With a command timeout above the test's limit: the call must not wait for it. */
TEST(break_returns_when_a_majority_has_confirmed)
{
	lk_client *client, *other;
	char url[200];
	lk_lock *lock;

	quorum_setup_begin(&setup, 0);
	client = client_of(setup.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, WAIT_MS, NULL));
	snprintf(url, sizeof(url), "%s?command_timeout=60000", setup.url);
	other = client_of(url);
	OK(lk_lock_break(lock_named(other, "a"), NULL));
	/* The message may be slower than the release's answers. */
	ck_assert(WITHIN(10000, lk_lock_state(lock) == LK_STATE_LOST));
	EXPECT(lk_lock_release(lock), LK_ELOST);
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST(child_of_fork_sends_nothing)
{
	lk_client *client;
	lk_lock *lock;
	int status;
	pid_t pid;

	quorum_setup_begin(&setup, 0);
	client = client_at(setup.url);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	pid = fork();
	if (pid == 0) {
		bool ok = lk_lock_acquire(lock, 0, NULL) == LK_EFORKED &&
		          lk_lock_release(lock) == LK_EFORKED &&
		          lk_client_close(client) == LK_EFORKED;
		_exit(!ok);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert(lk_lock_is_mine(lock));
	OK(lk_client_close(client));
	ck_assert_int_eq(quorum_setup_count(&setup, "lk:{a}"), 0);
}

TEST(damaged_marker_is_named_with_its_server)
{
	struct redis *redis;
	lk_client *client;

	quorum_setup_begin(&setup, 0);
	redis = redis_open(&servers[1]);
	redis_do(redis, "SET lk:epoch damaged");
	server_kill(&servers[0]);
	EXPECT(lk_client_open(setup.url, NULL, &client), LK_EFOREIGN);
	ck_assert_msg(is_named(&servers[1]) && strstr(lk_errmsg(), "lk:epoch is in other use"),
	              "%s", lk_errmsg());
}
