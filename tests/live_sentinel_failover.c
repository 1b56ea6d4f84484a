/* SPDX-License-Identifier: MIT
 * Failovers of a real service: one master, two replicas, three sentinels.  Planned, by a crash, and
 * of a master that is stopped and wakes up. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define COUNT 3 /* servers, and sentinels */
#define DOWN_AFTER_MS 1000
#define FAILOVER_MS 12000 /* far more than a failover takes */

static struct test_server servers[COUNT], watchers[COUNT]; /* watchers: sentinels */
static struct process processes[COUNT];
static struct redis *watcher; /* a connection to the first sentinel */
static char url[300];

static int run_sentinel(void *arg, int in, int out)
{
	const struct test_server *sentinel = arg;
	char path[4200], config[120];
	const char *argv0;

	(void)in;
	(void)out;
	if (!server_find(path, sizeof(path), &argv0))
		return 1;
	snprintf(config, sizeof(config), "%s/conf", sentinel->dir);
	execl(path, argv0, config, "--sentinel", (char *)NULL);
	return 1;
}

static void start_sentinel(int i)
{
	struct test_server *sentinel = &watchers[i];
	char path[120];
	FILE *config;

	folder_make(sentinel->dir, sizeof(sentinel->dir));
	sentinel->port = port_pick();
	snprintf(sentinel->socket_path, sizeof(sentinel->socket_path), "%s/s", sentinel->dir);
	snprintf(path, sizeof(path), "%s/conf", sentinel->dir);
	config = fopen(path, "w");
	ck_assert_ptr_nonnull(config);
	fprintf(config,
	        "port %d\nbind 127.0.0.1\ndir %s\nunixsocket %s\nlogfile log\n"
	        "sentinel monitor service 127.0.0.1 %d 2\n"
	        "sentinel down-after-milliseconds service %d\n"
	        "sentinel failover-timeout service 5000\n",
	        sentinel->port, sentinel->dir, sentinel->socket_path, servers[0].port,
	        DOWN_AFTER_MS);
	ck_assert(!fclose(config));
	process_start(&processes[i], run_sentinel, sentinel);
	ck_assert(WITHIN(5000, access(sentinel->socket_path, F_OK) == 0));
}

/* Does the sentinel know all replicas and all other sentinels? */
static bool knows_all(const struct test_server *sentinel)
{
	struct redis *redis = redis_open(sentinel);
	const char *text = redis_text(redis, "SENTINEL MASTER service");
	bool all = strstr(text, "num-slaves\n2\n") && strstr(text, "num-other-sentinels\n2\n");

	redis_close(redis);
	return all;
}

static void start(void)
{
	char port[16];
	const char *const first[] = {"--repl-diskless-sync-delay", "0",
	                             "--repl-ping-replica-period", "1", NULL};
	const char *const others[] = {"--repl-diskless-sync-delay",
	                              "0",
	                              "--repl-ping-replica-period",
	                              "1",
	                              "--replicaof",
	                              "127.0.0.1",
	                              port,
	                              NULL};

	server_start(&servers[0], &(struct server_options){.args = first});
	snprintf(port, sizeof(port), "%d", servers[0].port);
	for (int i = 1; i < COUNT; i++)
		server_start(&servers[i], &(struct server_options){.args = others});
	for (int i = 0; i < COUNT; i++)
		start_sentinel(i);
	for (int i = 0; i < COUNT; i++)
		ck_assert(WITHIN(20000, knows_all(&watchers[i])));
	watcher = redis_open(&watchers[0]);
	snprintf(url, sizeof(url),
	         "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/service?grace=4000",
	         watchers[0].port, watchers[1].port, watchers[2].port);
}

static void end(void)
{
	redis_close(watcher);
	for (int i = 0; i < COUNT; i++) {
		process_kill(&processes[i]);
		folder_remove(watchers[i].dir);
	}
	for (int i = 0; i < COUNT; i++)
		server_stop(&servers[i]);
}

static bool is_master(const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	bool is = !strncmp(redis_text(redis, "ROLE"), "master", 6);

	redis_close(redis);
	return is;
}

/* The connections of this program's clients. */
static long long clients_at(const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	const char *list = redis_text(redis, "CLIENT LIST TYPE normal");
	long long count = 0;

	for (const char *at = list; (at = strstr(at, "name=latchkey")); at++)
		count++;
	redis_close(redis);
	return count;
}

static int64_t reclaimed(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.reclaimed;
}

/* A lock that is held by one client, and waited for by another in a thread. */
struct contest {
	lk_client *holder, *waiter;
	lk_lock *held, *wanted;
	uint64_t fence, next_fence;
	lk_err err;
	pthread_t thread;
	bool done;
};

static void *wait_for_lock(void *arg)
{
	struct contest *contest = arg;

	contest->err = lk_lock_acquire(contest->wanted, 40000, &contest->next_fence);
	__atomic_store_n(&contest->done, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void begin(struct contest *contest)
{
	const lk_client_options options = {.command_timeout_ms = 1000};
	const lk_lock_options shared = {.owner = LK_OWNER_HANDLE}; /* another thread releases it */

	memset(contest, 0, sizeof(*contest));
	contest->holder = client_with(url, &options);
	contest->waiter = client_with(url, &options);
	contest->held = lock_named(contest->holder, "a");
	contest->wanted = lock_with(contest->waiter, "a", &shared);
	OK(lk_lock_acquire(contest->held, 15000, &contest->fence));
	ck_assert(!pthread_create(&contest->thread, NULL, wait_for_lock, contest));
	nap_ms(300); /* it is in the queue, or soon is */
}

/* The hold has survived; its release lets the waiter in, with a larger fence. */
static void finish(struct contest *contest)
{
	ck_assert(WITHIN(FAILOVER_MS, reclaimed(contest->holder) == 1));
	ck_assert(WITHIN(3000, lk_lock_state(contest->held) == LK_STATE_HELD));
	ck_assert(!__atomic_load_n(&contest->done, __ATOMIC_SEQ_CST));
	OK(lk_lock_release(contest->held));
	pthread_join(contest->thread, NULL);
	ck_assert_int_eq(contest->err, LK_OK);
	ck_assert_uint_gt(contest->next_fence, contest->fence);
	OK(lk_lock_release(contest->wanted));
	OK(lk_client_close(contest->holder));
	OK(lk_client_close(contest->waiter));
}

TEST_LIMIT(planned_failover_moves_holds_while_both_are_masters, 60)
{
	struct contest contest;

	start();
	begin(&contest);
	ck_assert_str_eq(redis_text(watcher, "SENTINEL FAILOVER service"), "OK");
	ck_assert(WITHIN(FAILOVER_MS, reclaimed(contest.holder) == 1));
	/* Nothing but the sentinels could tell. */
	ck_assert(is_master(&servers[0]));
	ck_assert(WITHIN(2000, clients_at(&servers[0]) == 0));
	ck_assert_int_eq(is_master(&servers[1]) + is_master(&servers[2]), 1);
	finish(&contest);
	end();
}

TEST_LIMIT(crash_of_the_master_moves_holds, 60)
{
	struct contest contest;

	start();
	begin(&contest);
	server_kill(&servers[0]);
	finish(&contest);
	ck_assert_int_eq(is_master(&servers[1]) + is_master(&servers[2]), 1);
	end();
}

TEST_LIMIT(stopped_master_that_wakes_up_is_left, 60)
{
	struct contest contest;

	start();
	begin(&contest);
	server_pause(&servers[0]);
	ck_assert(WITHIN(FAILOVER_MS, reclaimed(contest.holder) == 1));
	server_resume(&servers[0]);
	nap_ms(500);
	ck_assert_int_eq(clients_at(&servers[0]), 0);
	finish(&contest);
	end();
}

TEST_LIMIT(client_opened_in_a_failover_waits_for_its_end, 60)
{
	const lk_client_options options = {.connect_timeout_ms = FAILOVER_MS};

	start();
	server_kill(&servers[0]);
	OK(lk_client_close(client_with(url, &options)));
	end();
}
