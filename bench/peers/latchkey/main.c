/* SPDX-License-Identifier: MIT
 * Latchkey as a contestant of ../README.md: a process a worker, or a thread a worker, each with a
 * client of its own.
 *
 *   latchkey list
 *   latchkey run CONTESTANT WORK HOST PORT NAME WORKERS SECONDS (of failover,
 *            cluster and quorum: PORTS of sentinels, of nodes, of servers)
 */
#include "contestant.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OURS "latchkey"
#define THREADS "latchkey-threads"
#define NO_GRACE "latchkey-no-grace"
#define WORKERS_MAX 1024
#define TURNS_A_SECOND 200000 /* of all workers together, at most */

static const char *const works[] = {"pairs", "contend", "semaphore", "latch", "quorum"};
#define WORK_COUNT (sizeof(works) / sizeof(works[0]))

static struct worker {
	struct job *job;
	int number;
	pid_t pid;
	pthread_t thread;
} workers[WORKERS_MAX];

/* In a process of many workers: end them all. */
void fail(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "latchkey: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	_exit(1);
}

int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void nap_ns(int64_t ns)
{
	struct timespec rest = {ns / 1000000000, ns % 1000000000};

	while (nanosleep(&rest, &rest) && errno == EINTR)
		continue;
}

void meet(struct job *job)
{
	pthread_barrier_wait(&job->step);
}

void say(const char *line)
{
	int c;

	printf("%s\n", line);
	fflush(stdout);
	do
		c = getchar();
	while (c != '\n' && c != EOF);
}

void *shared_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
	                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		fail("no memory: %s", strerror(errno));
	return memory;
}

static struct job *job_make(char **args)
{
	struct job *job = shared_memory(sizeof(*job));
	double seconds = strtod(args[6], NULL);
	pthread_barrierattr_t attr;
	size_t work = 0;

	while (work < WORK_COUNT && strcmp(args[1], works[work]))
		work++;
	job->workers = (int)strtol(args[5], NULL, 10);
	if (work == WORK_COUNT || job->workers < 1 || job->workers > WORKERS_MAX || !(seconds > 0))
		fail("bad work, workers or seconds");
	job->work = (enum work)work;
	if (job->work == WORK_QUORUM)
		quorum_begin(job, args[2], args[3]);
	else
		snprintf(job->url, sizeof(job->url), "redis://%s:%s?grace=0", args[2], args[3]);
	snprintf(job->name, sizeof(job->name), "%s", args[4]);
	job->length_ns = (int64_t)(seconds * 1e9);
	job->room = (size_t)(seconds * TURNS_A_SECOND) / (size_t)job->workers + 10000;
	job->counts = shared_memory((size_t)job->workers * sizeof(*job->counts));
	job->turns = shared_memory((size_t)job->workers * job->room * sizeof(*job->turns));
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&job->step, &attr, (unsigned)job->workers + 1);
	return job;
}

static void *thread_main(void *arg)
{
	struct worker *worker = arg;

	worker_run(worker->job, worker->number);
	return NULL;
}

/* End the run if a worker ends early: the others would wait for it without end. */
static void worker_ended(int number)
{
	int status;

	(void)number;
	while (waitpid(-1, &status, WNOHANG) > 0)
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			_exit(1);
}

pid_t process_fork(void)
{
	pid_t parent = getpid(), pid;

	signal(SIGCHLD, worker_ended);
	pid = fork();
	if (pid < 0)
		fail("cannot fork: %s", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	signal(SIGCHLD, SIG_DFL);
	return 0;
}

static void process_start(struct worker *worker)
{
	worker->pid = process_fork();
	if (worker->pid)
		return;
	worker_run(worker->job, worker->number);
	_exit(0);
}

static void workers_start(struct job *job, bool processes)
{
	for (int i = 0; i < job->workers; i++) {
		workers[i].job = job;
		workers[i].number = i;
		if (processes)
			process_start(&workers[i]);
		else if (pthread_create(&workers[i].thread, NULL, thread_main, &workers[i]))
			fail("cannot start a thread");
	}
}

/* Processes are reaped by worker_ended(), or here. */
static void workers_end(struct job *job, bool processes)
{
	int status;

	signal(SIGCHLD, SIG_DFL);
	for (int i = 0; i < job->workers; i++)
		if (!processes)
			pthread_join(workers[i].thread, NULL);
		else if (waitpid(workers[i].pid, &status, 0) == workers[i].pid &&
		         (!WIFEXITED(status) || WEXITSTATUS(status)))
			fail("a worker failed in the end");
}

static void run(bool processes, char **args)
{
	struct job *job = job_make(args);

	workers_start(job, processes);
	lead(job);
	for (int i = 0; i < job->workers; i++) {
		const struct turn *turn = &job->turns[(size_t)i * job->room];
		for (size_t k = 0; k < job->counts[i]; k++, turn++)
			printf("%d %lld %lld %lld\n", i, (long long)turn->asked,
			       (long long)turn->granted, (long long)turn->released);
	}
	fflush(stdout);
	workers_end(job, processes);
}

int main(int argc, char **argv)
{
	static const char list[] = OURS
		"\tpairs contend semaphore latch failover cluster quorum\t"
		"Latchkey of this tree, C, a process a worker, a client each; all defaults: lease "
		"10 s, renewed; waits for the grant\n" THREADS "\tpairs contend semaphore latch\t"
		"Latchkey of this tree, C, a thread a worker, a client each (so nothing is handed "
		"over inside); all defaults\n" NO_GRACE "\tfailover cluster\t"
		"as latchkey with grace=0, which gives up the promise of one holder\n";
	bool cluster = argc == 9 && !strcmp(argv[3], "cluster");
	bool failover = cluster || (argc == 9 && !strcmp(argv[3], "failover"));

	if (argc == 2 && !strcmp(argv[1], "list"))
		return fputs(list, stdout) < 0;
	if (argc != 9 || strcmp(argv[1], "run") ||
	    (strcmp(argv[2], OURS) && strcmp(argv[2], failover ? NO_GRACE : THREADS)))
		fail("usage: list | run CONTESTANT WORK HOST PORT NAME WORKERS SECONDS");
	if (failover)
		failover_run(cluster, !strcmp(argv[2], OURS), argv[4], argv[5], argv[6],
		             (int)strtol(argv[7], NULL, 10), strtod(argv[8], NULL));
	run(!strcmp(argv[2], OURS), argv + 2);
	return 0;
}
