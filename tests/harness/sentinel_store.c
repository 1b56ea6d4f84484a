/* SPDX-License-Identifier: MIT
 * A service of Sentinel as a store: its first master, which no test changes.  A servant of the
 * runner, which outlives the tests, is the parent of its processes, so that a test can let it
 * restart them. */
#include "sentinel_store.h"

#include "process.h"
#include "sentinel_setup.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATIENCE_MS 15000 /* a test may stop or restart the master: that is no failover */
#define ORDER_MS 20000

static struct sentinel_setup *setup; /* for the runner and the tests; the servant has its own */
static struct process servant;
static pid_t runner;

/* The tests count messages at the master: the sentinels, which know each other, publish none. */
static void hush_sentinels(struct sentinel_setup *own)
{
	for (int i = 0; i < SETUP_SENTINELS; i++) {
		struct redis *sentinel = redis_open(&own->sentinels[i]);
		redis_do(sentinel, "SENTINEL DEBUG PUBLISH-PERIOD 86400000");
		redis_close(sentinel);
	}
}

/* Start the service, and obey until the runner has ended. */
static int serve(void *arg, int in, int out)
{
	const struct sentinel_setup_options patient = {.down_after_ms = PATIENCE_MS};
	static struct sentinel_setup own; /* each fork() writes into it */
	struct test_server *master = own.servers;
	const char *order;

	(void)arg;
	sentinel_setup_start(&own, &patient);
	hush_sentinels(&own);
	*setup = own;
	while (line_write(out, "done")) {
		while (!(order = line_read(in, ORDER_MS)) && getppid() == runner)
			continue;
		if (!order)
			break;
		if (!strcmp(order, "restart"))
			server_restart(master);
		else if (!strcmp(order, "pause"))
			server_pause(master);
		else if (!strcmp(order, "resume"))
			server_resume(master);
		else
			sentinel_setup_stop(&own);
	}
	return 0;
}

static void await_servant(void)
{
	const char *line = line_read(servant.out, ORDER_MS);

	ck_assert_msg(line && !strcmp(line, "done"), "the service of Sentinel is gone");
}

static void let(const char *order)
{
	ck_assert(line_write(servant.in, "%s", order));
	await_servant();
}

/* After the last test, when nothing may be asserted any more. */
static void end_setup(void)
{
	if (getpid() != runner)
		return;
	line_write(servant.in, "stop");
	line_read(servant.out, ORDER_MS);
	server_kill(&(struct test_server){.pid = servant.pid});
}

static void start_setup(void)
{
	setup = mmap(NULL, sizeof(*setup), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	             0);
	ck_assert_ptr_ne(setup, MAP_FAILED);
	runner = getpid();
	process_start(&servant, serve, NULL);
	await_servant();
	atexit(end_setup);
}

void sentinel_store_share(void)
{
	test_before_all(start_setup);
}

static struct redis *look_at_master(void)
{
	return redis_open(&setup->servers[0]);
}

static const char *start_store(void)
{
	static char url[160];
	struct redis *redis = look_at_master();

	redis_do(redis, "FLUSHALL");
	redis_do(redis, "SCRIPT FLUSH");
	redis_do(redis, "CONFIG RESETSTAT");
	redis_close(redis);
	snprintf(url, sizeof(url), "%s?grace=0", setup->url);
	return url;
}

static long long requests_of_master(void)
{
	struct redis *redis = look_at_master();
	long long requests = redis_script_calls(redis);

	redis_close(redis);
	return requests;
}

static void restart_master(void)
{
	let("restart");
}

static void pause_master(bool on)
{
	let(on ? "pause" : "resume");
}

const struct test_store store_by_sentinel = {
	.has = STORE_OF_SERVER,
	.start = start_store,
	.restart = restart_master,
	.pause = pause_master,
	.look = look_at_master,
	.requests = requests_of_master,
};
