/* SPDX-License-Identifier: MIT
 * A real master with replicas: see replicated.h. */
#include "replicated.h"

#include "process.h"
#include "redis.h"
#include "test.h"

#include <check.h>
#include <stdio.h>

#define CONFIRM_MS 20000

/* A replica that has just attached may take a second to confirm anything. */
static bool all_confirm(struct replicated *replicated)
{
	redis_do(replicated->redis, "SET attached 1");
	return redis_int(replicated->redis, "WAIT %lld 1000", (long long)replicated->count) ==
	       replicated->count;
}

void replicated_sync(struct replicated *replicated)
{
	ck_assert(WITHIN(CONFIRM_MS, all_confirm(replicated)));
	redis_do(replicated->redis, "DEL attached");
}

void replicated_start(struct replicated *replicated, int count)
{
	static char port[16]; /* the servers borrow their arguments */
	static const char *const args[] = {"--replicaof", "127.0.0.1", port, NULL};
	static const char *const at_once[] = {"--repl-diskless-sync-delay", "0", NULL};

	ck_assert_int_le(count, REPLICATED_MAX);
	server_start(&replicated->master, &(struct server_options){.args = at_once});
	replicated->redis = redis_open(&replicated->master);
	replicated->count = count;
	snprintf(port, sizeof(port), "%d", replicated->master.port);
	for (int i = 0; i < count; i++)
		server_start(&replicated->replicas[i], &(struct server_options){.args = args});
	replicated_sync(replicated);
}

void replicated_stop(struct replicated *replicated)
{
	redis_close(replicated->redis);
	for (int i = 0; i < replicated->count; i++)
		server_stop(&replicated->replicas[i]);
	server_stop(&replicated->master);
}

void replicated_pause(struct replicated *replicated, int count)
{
	for (int i = 0; i < count; i++)
		server_pause(&replicated->replicas[i]);
}

void replicated_resume(struct replicated *replicated, int count)
{
	for (int i = 0; i < count; i++)
		server_resume(&replicated->replicas[i]);
}

/* ---- A row for tests/stores ------------------------------------------------------------------ */

static struct replicated store;

static const char *start_store(void)
{
	static char url[120];

	replicated_start(&store, 1);
	snprintf(url, sizeof(url), "%s&replicas=1", store.master.url);
	return url;
}

static struct redis *look_at_store(void)
{
	return redis_open(&store.master);
}

static long long requests_of_store(void)
{
	return redis_script_calls(store.redis);
}

static void restart_store(void)
{
	server_restart(&store.master);
	redis_close(store.redis);
	store.redis = look_at_store();
	replicated_sync(&store);
}

static void pause_store(bool on)
{
	(on ? server_pause : server_resume)(&store.master);
}

const struct test_store store_with_replica = {
	.has = STORE_OF_SERVER,
	.start = start_store,
	.restart = restart_store,
	.pause = pause_store,
	.look = look_at_store,
	.requests = requests_of_store,
};
