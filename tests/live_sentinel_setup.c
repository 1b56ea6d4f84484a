/* SPDX-License-Identifier: MIT
 * The service of Sentinel that other tests use: it becomes ready, fails over, and loses what its
 * replicas have not received. */
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/sentinel_setup.h"
#include "harness/test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct sentinel_setup setup;

TEST(setup_is_ready_with_two_replicas_in_sync)
{
	struct redis *redis;

	sentinel_setup_start(&setup, NULL);
	ck_assert_int_eq(sentinel_setup_master(&setup), 0);
	ck_assert(sentinel_setup_is_master(&setup, 0));
	ck_assert(!sentinel_setup_is_master(&setup, 1) && !sentinel_setup_is_master(&setup, 2));
	redis = redis_open(&setup.servers[0]);
	redis_do(redis, "SET a 1");
	ck_assert_int_eq(redis_int(redis, "WAIT 2 5000"), 2);
	redis_close(redis);
	for (int i = 0; i < SETUP_SENTINELS; i++)
		ck_assert_int_lt(setup.sentinels[i].port, 32768);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(setup_fails_over_as_planned_and_by_a_crash, 60)
{
	int master, last;

	sentinel_setup_start(&setup, NULL);
	sentinel_setup_failover(&setup);
	master = sentinel_setup_await_switch(&setup, 0);
	ck_assert(sentinel_setup_is_master(&setup, master));
	server_restart(&setup.servers[0]); /* else it is a master for 10 s more */
	server_kill(&setup.servers[master]);
	last = sentinel_setup_await_switch(&setup, master);
	ck_assert(sentinel_setup_is_master(&setup, last));
	ck_assert_int_ne(last, 0);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(replicas_that_are_cut_lack_what_the_master_executes, 60)
{
	struct redis *redis;
	int master;

	sentinel_setup_start(&setup, NULL);
	redis = redis_open(&setup.servers[0]);
	redis_do(redis, "SET a 1");
	sentinel_setup_await_sync(&setup, 0);
	sentinel_setup_cut_replicas(&setup, 0);
	redis_do(redis, "SET b 1");
	redis_close(redis);
	server_kill(&setup.servers[0]);
	for (int i = 1; i < SETUP_SERVERS; i++)
		server_resume(&setup.servers[i]);
	master = sentinel_setup_await_switch(&setup, 0);
	redis = redis_open(&setup.servers[master]);
	ck_assert_int_eq(redis_int(redis, "EXISTS a"), 1);
	ck_assert_int_eq(redis_int(redis, "EXISTS b"), 0);
	redis_close(redis);
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(killed_sentinel_comes_back_and_knows_the_service, 60)
{
	sentinel_setup_start(&setup,
	                     &(struct sentinel_setup_options){.sentinel_password = "watchword"});
	server_kill(&setup.sentinels[1]);
	ck_assert_int_eq(sentinel_setup_master(&setup), 0);
	sentinel_setup_restart(&setup, 1);
	ck_assert_int_eq(sentinel_setup_named(&setup, 1), 0);
	sentinel_setup_stop(&setup);
}

static int run_setup(void *arg, int in, int out)
{
	(void)arg;
	(void)in;
	sentinel_setup_start(&setup, NULL);
	for (int i = 0; i < SETUP_SERVERS; i++)
		line_write(out, "%d %d", (int)setup.servers[i].pid, (int)setup.sentinels[i].pid);
	pause();
	return 0;
}

TEST(all_processes_end_with_the_one_that_started_them)
{
	struct process process;
	int server, sentinel, pids[SETUP_SERVERS + SETUP_SENTINELS];

	process_start(&process, run_setup, NULL);
	for (int i = 0; i < SETUP_SERVERS; i++) {
		const char *line = line_read(process.out, 15000);
		ck_assert_ptr_nonnull(line);
		ck_assert_int_eq(sscanf(line, "%d %d", &server, &sentinel), 2);
		ck_assert(!kill(server, 0) && !kill(sentinel, 0));
		pids[2 * i] = server;
		pids[2 * i + 1] = sentinel;
	}
	process_kill(&process);
	/* Another process may have to collect them. */
	for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++)
		ck_assert(WITHIN(5000, proc_state(pids[i]) == 0 || proc_state(pids[i]) == 'Z'));
}
