/* SPDX-License-Identifier: MIT
 * Readings before and after a turn: the time, CPU times, the number of commands from clients. */
#include "measure.h"

#include "bench.h"
#include "harness/redis.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
	struct timespec now;

	if (clock_gettime(id, &now))
		bench_fail("cannot read a clock: %s", strerror(errno));
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t bench_now_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64_t bench_cpu_ns(int pid)
{
	clockid_t id = CLOCK_PROCESS_CPUTIME_ID;
	int err = pid ? clock_getcpuclockid(pid, &id) : 0;

	if (err)
		bench_fail("no CPU clock of process %d: %s", pid, strerror(err));
	return read_clock(id);
}

/* Redis 7.0 counts a command that a script runs exactly as one that a client sends, in
 * total_commands_processed and in commandstats alike.  So these commands, which scripts run, are
 * not counted where scripts run. */
static bool runs_in_scripts(const char *name, size_t len)
{
	static const char *const data[] = {
		"del",       "exists",        "expire",  "get",     "hdel",
		"hexists",   "hget",          "hgetall", "hincrby", "hlen",
		"hmget",     "hset",          "hsetnx",  "incr",    "incrby",
		"decr",      "lpop",          "lpush",   "llen",    "pexpire",
		"pttl",      "publish",       "rpush",   "set",     "spublish",
		"time",      "type",          "zadd",    "zcard",   "zcount",
		"zrange",    "zrangebyscore", "zrank",   "zrem",    "zremrangebyscore",
		"zrevrange", "zscore",
	};

	for (size_t i = 0; i < sizeof(data) / sizeof(data[0]); i++)
		if (strlen(data[i]) == len && !memcmp(name, data[i], len))
			return true;
	return false;
}

struct requests requests_of(const struct test_server *server)
{
	static const char head[] = "cmdstat_", calls[] = ":calls=";
	struct redis *redis = redis_open(server);
	const char *at = redis_text(redis, "INFO commandstats");
	struct requests requests = {0};

	while ((at = strstr(at, head))) {
		const char *name = at + strlen(head), *end = strstr(name, calls);
		size_t len;
		int64_t count;

		if (!end)
			break;
		len = (size_t)(end - name);
		count = strtoll(end + strlen(calls), NULL, 10);
		at = end;
		if (len == 4 && !memcmp(name, "info", 4))
			continue; /* ours */
		if ((len == 4 && !memcmp(name, "eval", 4)) ||
		    (len == 7 && !memcmp(name, "evalsha", 7)))
			requests.scripts += count;
		requests.all += count;
		if (!runs_in_scripts(name, len))
			requests.outside_scripts += count;
	}
	redis_close(redis);
	return requests;
}

int64_t requests_between(const struct requests *before, const struct requests *after)
{
	return after->scripts > before->scripts ? after->outside_scripts - before->outside_scripts
	                                        : after->all - before->all;
}

int64_t bench_requests(const struct test_server *server)
{
	const struct requests none = {0}, now = requests_of(server);

	return requests_between(&none, &now);
}
