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

	if (sscanf(found, "epoch\n%159[^\n]\n%23[0-9]\n", marker->text, marker->end) != 2)
		bench_fail("no marker of the server's memory: %s", found);
	redis_close(redis);
}

/* Until when it was young: see lk__codec_set(). */
void bare_marker_of_member(const struct test_server *server, struct bare_marker *marker)
{
	struct redis *redis = redis_open(server);
	long long since_us, longest_ms;

	snprintf(marker->text, sizeof(marker->text), "%s", redis_text(redis, "GET lk:epoch"));
	if (sscanf(marker->text, "1 %*s %lld [%*s %*s %lld]", &since_us, &longest_ms) != 2)
		bench_fail("not the marker of a member: %s", marker->text);
	snprintf(marker->end, sizeof(marker->end), "%lld", since_us + longest_ms * 1000);
	redis_close(redis);
}
