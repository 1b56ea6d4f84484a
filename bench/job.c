/* SPDX-License-Identifier: MIT
 * Commands as contestants. */
#include "job.h"

#include "bench.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

struct job {
	char *words[JOB_WORDS];
	posix_spawn_file_actions_t files;
};

void job_run(void *arg)
{
	const struct job *job = arg;
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, job->words[0], &job->files, NULL, job->words, environ))
		bench_fail("cannot run %s", job->words[0]);
	if (waitpid(pid, &status, 0) != pid || status)
		bench_fail("%s ended with wait status %#x", job->words[0], (unsigned)status);
}

void *job_make(const char *const *words)
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
static int64_t us_ns(const struct timeval *time)
{
	return ((int64_t)time->tv_sec * 1000000 + time->tv_usec) * 1000;
}

int64_t job_cpu_ns(void *arg)
{
	struct rusage usage;

	(void)arg;
	getrusage(RUSAGE_CHILDREN, &usage);
	return bench_cpu_ns(0) + us_ns(&usage.ru_utime) + us_ns(&usage.ru_stime);
}

void job_close(void *arg)
{
	struct job *job = arg;

	for (int i = 0; job->words[i]; i++)
		free(job->words[i]);
	posix_spawn_file_actions_destroy(&job->files);
	free(job);
}

/* How much longer a run of a takes than a run of b. */
struct spread longer_ms(const struct result *result, int a, int b)
{
	double difference[ROUNDS_MAX];

	for (int i = 0; i < result->rounds; i++)
		difference[i] = 1000 / result->of[a].by_round[i] - 1000 / result->of[b].by_round[i];
	return spread_of(difference, result->rounds);
}
