/* SPDX-License-Identifier: MIT
 * The command: what it costs to run a job under a lock, against flock(1) and redis-cli(1). */
#include "harness/command.h"
#include "harness/local_folder.h"
#include "harness/process.h"
#include "job.h"

#include <latchkey.h>

#include <stdio.h>

static void *open_lock(const struct stage *stage)
{
	return JOB(command_path(), "lock", "--url", stage->server->url, "x", "--", "true");
}

/* The private server is running, as it is from the second command on. */
static void *open_lock_local(const struct stage *stage)
{
	lk_local_info info;

	(void)stage;
	local_folder();
	if (lk_local_start(&info))
		bench_fail("local: %s", lk_errmsg());
	return JOB(command_path(), "lock", "--url", "local:", "x", "--", "true");
}

static void close_lock_local(void *arg)
{
	if (lk_local_stop())
		bench_fail("local: %s", lk_errmsg());
	job_close(arg);
}

static void *open_flock(const struct stage *stage)
{
	char path[120];

	snprintf(path, sizeof(path), "%s/flock", stage->server->dir);
	return JOB("flock", path, "true");
}

static void *open_ping(const struct stage *stage)
{
	char port[16];

	snprintf(port, sizeof(port), "%d", stage->server->port);
	return JOB("redis-cli", "-p", port, "PING");
}

static void run(struct bench *bench)
{
	static const struct contestant lock = {
		"latchkey lock x -- true", open_lock, NULL, job_run, job_close, job_cpu_ns};
	static const struct contestant local = {
		"the same with local:", open_lock_local, NULL, job_run,
		close_lock_local,       job_cpu_ns};
	static const struct contestant flock = {"flock FILE true", open_flock, NULL,
	                                        job_run,           job_close,  job_cpu_ns};
	static const struct contestant ping = {"redis-cli PING", open_ping, NULL,
	                                       job_run,          job_close, job_cpu_ns};
	struct contest contest = {
		.id = "command",
		.what = "run true under a lock",
		.size = 1,
		.contestants = {&lock, &local},
	};
	int count = 2, flock_at = 0, ping_at = 0;
	struct result result;

	if (shell("command -v flock >/dev/null"))
		bench_note(bench, "flock is not there: no figure against it");
	else
		contest.contestants[flock_at = count++] = &flock;
	if (shell("command -v redis-cli >/dev/null"))
		bench_note(bench, "redis-cli is not there: no figure against it");
	else
		contest.contestants[ping_at = count++] = &ping;
	bench_note(bench, "local: has a server of its own, whose requests are not in the row");
	bench_contest(bench, &contest, &result);
	if (flock_at) {
		bench_figure(bench, "command.longer.flock", "command: longer than flock",
		             longer_ms(&result, 0, flock_at), "ms", AT_MOST, 5);
		bench_figure(bench, "command.local.longer.flock",
		             "command: longer than flock, with local:",
		             longer_ms(&result, 1, flock_at), "ms", AT_MOST, 5);
	}
	if (ping_at)
		bench_figure(bench, "command.longer.ping", "command: longer than redis-cli PING",
		             longer_ms(&result, 0, ping_at), "ms", NO_GOAL, 0);
}

const struct bench_case case_command = {"command", "latchkey lock x -- true", run};
