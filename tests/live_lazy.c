/* SPDX-License-Identifier: MIT
 * Clients that connect at the first call that needs the store: the number and times of connections,
 * and the ends of calls that get none. */
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/local_folder.h"
#include "harness/peer.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TIMEOUT_MS 400 /* the command timeout */
#define SOON_MS 1000   /* far less than a wait of full length */
#define LINES_MAX 4096

static struct test_server server;
static char lines[LINES_MAX]; /* of the log */

static void take_line(void *arg, lk_log_level level, const char *line)
{
	size_t len = strlen(lines);

	(void)arg;
	(void)level;
	snprintf(lines + len, sizeof(lines) - len, "%s\n", line);
}

static lk_client *lazy_client(const char *url)
{
	const lk_client_options options = {.lazy = true,
	                                   .connect_timeout_ms = 20000,
	                                   .command_timeout_ms = TIMEOUT_MS,
	                                   .log = take_line,
	                                   .log_level = LK_LOG_DEBUG};

	return client_with(url, &options);
}

static int64_t connected(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.connected;
}

/* Make all calls that need no store. */
static void use_without_a_store(lk_client *client)
{
	lk_lock *lock = lock_named(client, "a");
	lk_latch *latch = latch_named(client, "l");

	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_NONE);
	OK(lk_lock_cancel(lock));
	EXPECT(lk_lock_release(lock), LK_ENOTOWNER);
	EXPECT(lk_lock_extend(lock, 1000), LK_ENOTOWNER);
	OK(lk_latch_cancel(latch));
	OK(lk_lock_close(lock));
	OK(lk_latch_close(latch));
	ck_assert_int_eq(connected(client), 0);
}

/* Each kind of call that needs the store ends with that error, within the time. */
static void expect_all(lk_client *client, int64_t wait_ms, lk_err err, int64_t within_ms)
{
	const lk_semaphore_options three = {.capacity = 3};
	lk_semaphore *semaphore = NULL;
	lk_lock *lock = lock_named(client, "a");
	lk_latch *latch = latch_named(client, "l");
	lk_lock_status status;
	lk_kind kind;
	int64_t start_ms = now_ms();

#define ENDS(call)                                                                                 \
	EXPECT(call, err);                                                                         \
	ck_assert_msg(now_ms() - start_ms <= within_ms, "%s took %d ms", #call,                    \
	              (int)(now_ms() - start_ms));                                                 \
	ck_assert_msg(*lk_errmsg(), "%s leaves no error text", #call);                             \
	start_ms = now_ms()
	ENDS(lk_lock_acquire(lock, 0, NULL));
	ENDS(lk_lock_acquire(lock, wait_ms, NULL));
	ENDS(lk_lock_query(lock, &status));
	ENDS(lk_semaphore_open(client, "s", 0, &three, &semaphore));
	ENDS(lk_latch_await(latch, 0));
	ENDS(lk_latch_await(latch, wait_ms));
	ENDS(lk_latch_down(latch, 1, NULL, 0, NULL));
	ENDS(lk_latch_set(latch, 1, NULL));
	ENDS(lk_client_name_kind(client, "a", 0, &kind));
#undef ENDS
	ck_assert_int_eq(connected(client), 0);
	OK(lk_lock_close(lock));
	OK(lk_latch_close(latch));
}

static void close_quickly(lk_client *client)
{
	int64_t start_ms = now_ms();

	OK(lk_client_close(client));
	ck_assert_int_le(now_ms() - start_ms, SOON_MS);
}

/* ---- When it connects --------------------------------------------------------------------- */

static void hang_up(int fd, void *arg)
{
	(void)fd;
	(void)arg;
}

TEST(no_connection_is_made_before_the_first_call)
{
	struct peer peer;
	lk_client *client;

	peer_start(&peer, hang_up, NULL);
	client = lazy_client(peer.url);
	use_without_a_store(client);
	nap_ms(200);
	ck_assert_int_eq(peer.accepted, 0);
	EXPECT(lk_lock_acquire(lock_named(client, "a"), 100, NULL), LK_ECONN);
	ck_assert_int_ge(peer.accepted, 1);
	close_quickly(client);
	peer_stop(&peer);
}

TEST(close_without_a_call_sends_nothing)
{
	struct peer peer;

	peer_start(&peer, hang_up, NULL);
	close_quickly(lazy_client(peer.url));
	ck_assert_int_eq(peer.accepted, 0);
	ck_assert_str_eq(lines, "");
	peer_stop(&peer);
}

TEST(client_that_no_call_waits_for_dials_no_more)
{
	struct peer peer;
	lk_client *client;
	int accepted;

	peer_start(&peer, hang_up, NULL);
	client = lazy_client(peer.url);
	EXPECT(lk_lock_acquire(lock_named(client, "a"), 100, NULL), LK_ECONN);
	nap_ms(500); /* for a dial that has begun */
	accepted = peer.accepted;
	nap_ms(1200);
	ck_assert_int_eq(peer.accepted, accepted);
	OK(lk_client_close(client));
	peer_stop(&peer);
}

TEST(first_call_connects_once)
{
	char url[160];
	lk_client *client;
	lk_semaphore *semaphore;
	lk_lock *lock;

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "%s&lazy=1", server.url);
	client = client_at(url);
	ck_assert_int_eq(connected(client), 0);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 0, NULL));
	ck_assert_int_eq(connected(client), 1);
	OK(lk_lock_release(lock));
	semaphore = semaphore_of(client, "s", 3, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 0)));
	ck_assert_int_eq(connected(client), 1);
	close_quickly(client);
	/* Opening a semaphore needs the store, too. */
	client = lazy_client(server.url);
	semaphore_of(client, "s", 3, 0);
	ck_assert_int_eq(connected(client), 1);
	ck_assert_ptr_nonnull(strstr(lines, ": connected\n"));
	ck_assert_ptr_null(strstr(lines, "connection lost"));
	OK(lk_client_close(client));
	server_stop(&server);
}

TEST(wait_for_a_latch_connects_and_hears_of_its_opening)
{
	struct awaiter awaiter;
	lk_client *client, *other;

	server_start(&server, NULL);
	client = lazy_client(server.url);
	other = client_at(server.url);
	OK(lk_latch_set(latch_named(other, "l"), 1, NULL));
	awaiter_start(&awaiter, latch_named(client, "l"), 10000);
	ck_assert(WITHIN(2000, connected(client) == 1));
	latch_down(latch_named(other, "l"), 1, NULL);
	OK(awaiter_join(&awaiter));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
	server_stop(&server);
}

TEST(server_that_comes_up_later_is_reached)
{
	struct waiter waiter;
	lk_client *client;

	server_start(&server, NULL);
	server_kill(&server);
	client = lazy_client(server.url);
	waiter_start(&waiter, lock_of_handle(client, "a", 10000), 10000, true);
	nap_ms(300);
	ck_assert(!waiter.ended);
	server_restart(&server);
	OK(waiter_join(&waiter));
	ck_assert_ptr_null(strstr(lines, "connection lost"));
	ck_assert_ptr_nonnull(strstr(lines, "cannot connect"));
	OK(lk_client_close(client));
	server_stop(&server);
}

/* ---- Failures to connect ------------------------------------------------------------------- */

TEST(calls_end_by_their_wait_and_one_command_timeout)
{
	struct peer hole;
	lk_client *client;
	char url[64];

	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port_pick());
	client = lazy_client(url);
	expect_all(client, 200, LK_ECONN, TIMEOUT_MS + SOON_MS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "connection refused"));
	close_quickly(client);
	/* No server answers there, and a dial takes far longer than a call. */
	peer_start(&hole, NULL, NULL);
	client = lazy_client(hole.url);
	expect_all(client, 200, LK_ECONN, TIMEOUT_MS + SOON_MS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "not connected yet"));
	close_quickly(client);
	peer_stop(&hole);
}

TEST(close_ends_a_wait_that_has_no_connection)
{
	struct waiter waiter;
	struct peer hole;
	lk_client *client;

	peer_start(&hole, NULL, NULL);
	client = lazy_client(hole.url);
	waiter_start(&waiter, lock_of_handle(client, "a", 10000), LK_FOREVER, true);
	nap_ms(100);
	ck_assert(!waiter.ended);
	close_quickly(client);
	EXPECT(waiter_join(&waiter), LK_ECLOSED);
	peer_stop(&hole);
}

TEST(name_is_looked_up_by_the_first_call)
{
	lk_client *client = lazy_client("redis://no-such-host.invalid");

	use_without_a_store(client);
	EXPECT(lk_lock_acquire(lock_named(client, "a"), 200, NULL), LK_ECONN);
	OK(lk_client_close(client));
}

TEST_LIMIT(wrong_password_ends_calls_at_once, 30)
{
	struct redis *redis;
	lk_client *client;
	lk_lock *lock;
	char url[80];

	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, "CONFIG SET requirepass sesame");
	snprintf(url, sizeof(url), "redis://:wrong@127.0.0.1:%d?grace=0", server.port);
	client = lazy_client(url);
	use_without_a_store(client);
	for (int i = 0; i < 5; i++)
		expect_all(client, LK_FOREVER, LK_EAUTH, SOON_MS);
	/* The next dial notices the cure. */
	redis_do(redis, "CONFIG SET requirepass wrong");
	lock = lock_named(client, "a");
	ck_assert(WITHIN(8000, lk_lock_acquire(lock, 0, NULL) == LK_OK));
	redis_close(redis);
	OK(lk_client_close(client));
	server_stop(&server);
}

static void say(int fd, void *words)
{
	char bytes[512];

	peer_read(fd, bytes, sizeof(bytes));
	peer_send(fd, words, strlen(words));
}

TEST(peer_that_is_no_redis_ends_calls_at_once)
{
	char words[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	lk_client *client;
	struct peer peer;

	peer_start(&peer, say, words);
	client = lazy_client(peer.url);
	expect_all(client, LK_FOREVER, LK_ESERVER, SOON_MS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "not the Redis protocol"));
	close_quickly(client);
	peer_stop(&peer);
}

TEST(refusal_after_the_first_connection_is_waited_out)
{
	struct redis *redis;
	struct waiter waiter;
	lk_client *client;
	lk_lock *lock;

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = lazy_client(server.url);
	lock = lock_of_handle(client, "a", 10000);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	redis_do(redis, "CONFIG SET requirepass sesame");
	redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
	redis_do(redis, "CLIENT KILL TYPE pubsub");
	waiter_start(&waiter, lock, 15000, true);
	nap_ms(500);
	ck_assert(!waiter.ended);
	redis_do(redis, "CONFIG SET requirepass %s", "");
	OK(waiter_join(&waiter));
	redis_close(redis);
	OK(lk_client_close(client));
	server_stop(&server);
}

/* ---- local: ------------------------------------------------------------------------------- */

TEST(local_server_starts_at_the_first_call)
{
	const char *dir = local_folder();
	lk_client *client = lazy_client("local:");
	lk_lock *lock;

	use_without_a_store(client);
	nap_ms(100);
	ck_assert_int_ne(access(dir, F_OK), 0);
	ck_assert_int_eq(local_servers(0), 0);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 15000, NULL));
	ck_assert_int_eq(local_servers(0), 1);
	OK(lk_client_close(client));
}

TEST(local_without_a_server_binary_ends_calls_at_once)
{
	lk_client *client;

	local_folder();
	setenv("LATCHKEY_SERVER", "/nowhere/redis-server", 1);
	client = lazy_client("local:?prefix=p");
	expect_all(client, LK_FOREVER, LK_ENOSERVER, SOON_MS);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "apt-get install redis-server"));
	close_quickly(client);
}

/* A binary that listens nowhere: the close does not wait for it. */
TEST(close_ends_the_start_of_a_local_server)
{
	static const char script[] = "#!/bin/sh\nwhile :; do sleep 0.1; done\n";
	lk_client *client;
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s.server", local_folder());
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ck_assert_int_eq(write(fd, script, strlen(script)), (int)strlen(script));
	close(fd);
	setenv("LATCHKEY_SERVER", path, 1);
	client = lazy_client("local:?prefix=p");
	EXPECT(lk_lock_acquire(lock_named(client, "a"), 0, NULL), LK_ECONN);
	close_quickly(client);
}

TEST(local_folder_that_is_unsafe_ends_calls_at_once)
{
	const char *dir = local_folder();
	lk_client *client;

	ck_assert_int_eq(mkdir(dir, 0777), 0);
	ck_assert_int_eq(chmod(dir, 0777), 0);
	client = lazy_client("local:?prefix=p");
	expect_all(client, LK_FOREVER, LK_ESYSTEM, SOON_MS);
	close_quickly(client);
}

/* ---- fork() ------------------------------------------------------------------------------- */

TEST(child_of_a_client_that_never_connected_has_none)
{
	lk_client *client;
	lk_lock *lock;
	int status;
	pid_t pid;

	server_start(&server, NULL);
	client = lazy_client(server.url);
	lock = lock_named(client, "a");
	pid = process_fork();
	if (pid == 0) {
		bool good = lk_lock_acquire(lock, 0, NULL) == LK_EFORKED &&
		            lk_client_close(client) == LK_EFORKED;
		_exit(good ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	ck_assert_int_eq(connected(client), 0);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_client_close(client));
	server_stop(&server);
}
