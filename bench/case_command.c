/* SPDX-License-Identifier: MIT
 * The command: what it costs to run a job under a lock, against flock(1) and redis-cli(1). */
#include "bench.h"
#include "harness/command.h"
#include "harness/local_folder.h"
#include "harness/process.h"

#include <latchkey.h>

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* A command line, with copies of its words. */
struct job {
	char *words[8];
	posix_spawn_file_actions_t files;
};

static void job_run(void *arg)
{
	const struct job *job = arg;
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, job->words[0], &job->files, NULL, job->words, environ))
		bench_fail("cannot run %s", job->words[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		bench_fail("%s ended with wait status %#x", job->words[0], (unsigned)status);
}

static struct job *job_make(const char *const *words)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job || posix_spawn_file_actions_init(&job->files) ||
	    posix_spawn_file_actions_addopen(&job->files, 1, "/dev/null", O_WRONLY, 0))
		bench_fail("out of memory");
	for (int i = 0; words[i]; i++)
		if (!(job->words[i] = strdup(words[i])))
			bench_fail("out of memory");
	job_run(job);
	return job;
}
#define JOB(...) job_make((const char *const[]){__VA_ARGS__, NULL})

static int64_t us_ns(const struct timeval *time)
{
	return ((int64_t)time->tv_sec * 1000000 + time->tv_usec) * 1000;
}

static int64_t job_cpu_ns(void *arg)
{
	struct rusage usage;

	(void)arg;
	getrusage(RUSAGE_CHILDREN, &usage);
	return bench_cpu_ns(0) + us_ns(&usage.ru_utime) + us_ns(&usage.ru_stime);
}

static void job_close(void *arg)
{
	struct job *job = arg;

	for (int i = 0; job->words[i]; i++)
		free(job->words[i]);
	posix_spawn_file_actions_destroy(&job->files);
	free(job);
}

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

/* How much longer a run of a takes than a run of b. */
static struct spread longer_ms(const struct result *result, int a, int b)
{
	double difference[ROUNDS_MAX];

	for (int i = 0; i < result->rounds; i++)
		difference[i] = 1000 / result->of[a].by_round[i] - 1000 / result->of[b].by_round[i];
	return spread_of(difference, result->rounds);
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
