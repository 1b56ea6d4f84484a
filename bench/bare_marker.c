/* SPDX-License-Identifier: MIT
 * The server's memory, for baselines. */
#include "bare_marker.h"

#include "bench.h"
#include "harness/redis.h"
#include "scripts.h"

#include <stdio.h>

void bare_marker_find(const struct test_server *server, struct bare_marker *marker)
{
	struct redis *redis = redis_open(server);
	const char *found = redis_text(redis, "EVAL %b 1 lk:epoch %s 0 0",
	                               lk__script_epoch_set.text, lk__script_epoch_set.len, "");

	if (sscanf(found, "epoch\n%119[^\n]\n%23[0-9]\n", marker->text, marker->end) != 2)
		bench_fail("no marker of the server's memory: %s", found);
	redis_close(redis);
}
