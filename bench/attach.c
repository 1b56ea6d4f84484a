/* SPDX-License-Identifier: MIT
 * Replicas of a contest's server. */
#include "attach.h"

#include "bench.h"
#include "harness/process.h"
#include "harness/redis.h"

#include <stdio.h>

#define ATTACH_MS 20000

const char *const replicas_soon[] = {"--repl-diskless-sync-delay", "0", NULL};

void replicas_attach(const struct test_server *master, struct test_server *replicas, int count)
{
	static char port[16];
	static const char *const args[] = {"--replicaof", "127.0.0.1", port, NULL};
	struct redis *redis = redis_open(master);
	int64_t until_ms = now_ms() + ATTACH_MS;

	snprintf(port, sizeof(port), "%d", master->port);
	for (int i = 0; i < count; i++)
		server_start(&replicas[i], &(struct server_options){.args = args});
	do {
		if (now_ms() > until_ms)
			bench_fail("the replicas confirm nothing");
		redis_do(redis, "SET bench:attached 1");
	} while (redis_int(redis, "WAIT %lld 1000", (long long)count) < count);
	redis_close(redis);
}

void replicas_stop(struct test_server *replicas, int count)
{
	for (int i = 0; i < count; i++)
		server_stop(&replicas[i]);
}
