/* SPDX-License-Identifier: MIT
 * Worker processes share a spool of jobs and a database that is easily overloaded:
 * worker_pool [URL]
 *
 * A lock makes taking a job one step: its holder finds a waiting job and marks it as taken.  A
 * semaphore of two permits admits two of the six workers to the database.  Two workers are killed,
 * one with a permit, one with the lock.  Their holds expire with their leases; their parent sees
 * them die and puts their jobs back.  In the end each job must have been done once, and never more
 * than two at a time. */
#include <latchkey.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 6
#define JOBS 24
#define PERMITS 2 /* workers in the database at once */
#define LEASE_MS 2000
#define WAIT_MS 60000
#define WORK_MS 60 /* of a job, in the database */

/* The first worker that takes one of these jobs is killed. */
#define JOB_KILLED_WITH_LOCK 5
#define JOB_KILLED_WITH_PERMIT 11

#define NO_JOB (-1)

struct job {
	enum { WAITING, TAKEN, DONE } state;
	int worker; /* the last one that took it */
	int times_taken;
};

/* A measurement in shared memory, independent of the library. */
struct meter {
	atomic_bool inside[WORKERS]; /* this worker is in the database */
	atomic_int most;             /* workers in the database at once */
};

struct pool {
	const char *url;
	int spool;   /* a file of JOBS struct jobs */
	int results; /* a file: the numbers of the jobs that were done, in this order */
	struct meter *meter;
};

/* Exit unless the call of the library succeeded. */
static void need(lk_err err, const char *what)
{
	if (err == LK_OK)
		return;
	fprintf(stderr, "worker_pool: %s: %s\n", what, lk_errmsg());
	exit(1);
}

static void need_system(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "worker_pool: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct job job_read(const struct pool *pool, int number)
{
	struct job job;

	need_system(pread(pool->spool, &job, sizeof(job), number * (off_t)sizeof(job)) ==
	                    (ssize_t)sizeof(job),
	            "cannot read the spool");
	return job;
}

static void job_write(const struct pool *pool, int number, struct job job)
{
	need_system(pwrite(pool->spool, &job, sizeof(job), number * (off_t)sizeof(job)) ==
	                    (ssize_t)sizeof(job),
	            "cannot write the spool");
}

static int find_waiting(const struct pool *pool)
{
	for (int number = 0; number < JOBS; number++)
		if (job_read(pool, number).state == WAITING)
			return number;
	return NO_JOB;
}

static void mark_taken(const struct pool *pool, int number, int worker)
{
	struct job job = job_read(pool, number);

	job.state = TAKEN;
	job.worker = worker;
	job.times_taken++;
	job_write(pool, number, job);
	if (number == JOB_KILLED_WITH_LOCK && job.times_taken == 1)
		kill(getpid(), SIGKILL);
}

/* Take a job.  Without the lock, two workers could take the same one. */
static int take_job(const struct pool *pool, lk_lock *spool_lock, int worker)
{
	int number;

	need(lk_lock_acquire(spool_lock, WAIT_MS, NULL), "cannot lock the spool");
	number = find_waiting(pool);
	if (number != NO_JOB)
		mark_taken(pool, number, worker);
	need(lk_lock_release(spool_lock), "cannot unlock the spool");
	return number;
}

static void finish_job(const struct pool *pool, lk_lock *spool_lock, int number)
{
	struct job job;

	need(lk_lock_acquire(spool_lock, WAIT_MS, NULL), "cannot lock the spool");
	job = job_read(pool, number);
	job.state = DONE;
	job_write(pool, number, job);
	need(lk_lock_release(spool_lock), "cannot unlock the spool");
}

/* Enter first, then count: the worker that enters last sees all others. */
static void meter_enter(struct meter *meter, int worker)
{
	int count = 0, most = atomic_load(&meter->most);

	atomic_store(&meter->inside[worker], true);
	for (int i = 0; i < WORKERS; i++)
		count += atomic_load(&meter->inside[i]);
	while (count > most && !atomic_compare_exchange_weak(&meter->most, &most, count))
		;
}

static void meter_leave(struct meter *meter, int worker)
{
	atomic_store(&meter->inside[worker], false);
}

/* Do the part of a job that needs the database, with a permit. */
static void use_database(const struct pool *pool, lk_semaphore *database, int worker, int number)
{
	struct timespec work = {.tv_nsec = WORK_MS * 1000000L};
	uint64_t hold;

	need(lk_semaphore_acquire(database, 1, WAIT_MS, &hold), "no permit for the database");
	meter_enter(pool->meter, worker);
	nanosleep(&work, NULL);
	if (number == JOB_KILLED_WITH_PERMIT && job_read(pool, number).times_taken == 1)
		kill(getpid(), SIGKILL);
	need_system(write(pool->results, &number, sizeof(number)) == (ssize_t)sizeof(number),
	            "cannot write the results");
	meter_leave(pool->meter, worker);
	need(lk_semaphore_release(database, hold), "cannot give the permit back");
}

/* Run a worker.  It is a process with a client and connections of its own. */
static void work(const struct pool *pool, int worker)
{
	lk_lock_options lock_options = {.lease_ms = LEASE_MS};
	lk_semaphore_options database_options = {
		.capacity = PERMITS, .lease_ms = LEASE_MS, .ttl_ms = 60000};
	lk_client *client;
	lk_lock *spool_lock;
	lk_semaphore *database;
	int number;

	need(lk_client_open(pool->url, NULL, &client), "no store");
	need(lk_lock_open(client, "worker_pool/spool", 0, &lock_options, &spool_lock), "no lock");
	need(lk_semaphore_open(client, "worker_pool/database", 0, &database_options, &database),
	     "no semaphore");
	while ((number = take_job(pool, spool_lock, worker)) != NO_JOB) {
		use_database(pool, database, worker, number);
		finish_job(pool, spool_lock, number);
	}
	need(lk_client_close(client), "cannot close");
}

static pid_t start_worker(const struct pool *pool, int worker)
{
	pid_t pid = fork();

	need_system(pid >= 0, "cannot fork");
	if (pid == 0) {
		work(pool, worker);
		exit(0);
	}
	return pid;
}

/* Put the job of a dead worker back.  If it died with the lock, this waits until the lease has
 * ended. */
static void put_back(const struct pool *pool, lk_lock *spool_lock, int worker)
{
	need(lk_lock_acquire(spool_lock, WAIT_MS, NULL), "cannot lock the spool");
	for (int number = 0; number < JOBS; number++) {
		struct job job = job_read(pool, number);

		if (job.state != TAKEN || job.worker != worker)
			continue;
		printf("worker %d was killed with job %d, which is put back\n", worker, number);
		job.state = WAITING;
		job_write(pool, number, job);
	}
	need(lk_lock_release(spool_lock), "cannot unlock the spool");
}

/* Start all workers, and replace each one that is killed, until no job is left. */
static bool run_workers(const struct pool *pool)
{
	lk_lock_options options = {.lease_ms = LEASE_MS};
	pid_t pids[WORKERS], pid;
	int status, living = WORKERS;
	bool ok = true;
	lk_client *client;
	lk_lock *spool_lock;

	for (int worker = 0; worker < WORKERS; worker++)
		pids[worker] = start_worker(pool, worker);
	need(lk_client_open(pool->url, NULL, &client), "no store");
	need(lk_lock_open(client, "worker_pool/spool", 0, &options, &spool_lock), "no lock");
	while (living > 0) {
		int worker = 0;

		pid = wait(&status);
		need_system(pid > 0, "cannot wait for the workers");
		while (pids[worker] != pid)
			worker++;
		if (WIFSIGNALED(status)) {
			/* Dead, it is not in the database; its permit is out until the lease ends.
			 */
			meter_leave(pool->meter, worker);
			put_back(pool, spool_lock, worker);
			pids[worker] = start_worker(pool, worker);
		} else {
			ok = ok && WEXITSTATUS(status) == 0;
			living--;
		}
	}
	need(lk_client_close(client), "cannot close");
	return ok;
}

/* Judge the run by its results, not by reports of the workers. */
static bool check(const struct pool *pool)
{
	int number, wrong = 0, again = 0, most = atomic_load(&pool->meter->most);
	int times_done[JOBS] = {0};

	need_system(lseek(pool->results, 0, SEEK_SET) == 0, "cannot read the results");
	while (read(pool->results, &number, sizeof(number)) == (ssize_t)sizeof(number))
		times_done[number]++;
	for (number = 0; number < JOBS; number++) {
		if (times_done[number] != 1) {
			printf("job %d was done %d times\n", number, times_done[number]);
			wrong++;
		}
		again += job_read(pool, number).times_taken > 1;
	}
	printf("jobs done exactly once: %d of %d, %d of them by a second worker\n", JOBS - wrong,
	       JOBS, again);
	printf("workers in the database at once: %d, %d allowed\n", most, PERMITS);
	return wrong == 0 && most <= PERMITS;
}

int main(int argc, char **argv)
{
	FILE *spool = tmpfile(), *results = tmpfile();
	struct meter *meter = mmap(NULL, sizeof(*meter), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pool pool = {.url = argc > 1 ? argv[1] : NULL, .meter = meter};

	need_system(spool && results && meter != MAP_FAILED, "no files");
	pool.spool = fileno(spool);
	pool.results = fileno(results);
	need_system(fcntl(pool.results, F_SETFL, O_APPEND) == 0, "cannot append to the results");
	for (int number = 0; number < JOBS; number++)
		job_write(&pool, number, (struct job){.state = WAITING});
	/* Write each line at once, so that no child process inherits a partial line. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("%d workers, %d jobs\n", WORKERS, JOBS);
	return run_workers(&pool) && check(&pool) ? 0 : 1;
}
