/* SPDX-License-Identifier: MIT
 * The works "failover" and "cluster": a process a worker, each of which goes on whatever its calls
 * return, until the driver ends the program. */
#include "contestant.h"

#include <errno.h>
#include <latchkey.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define HOLD_NS 20000000
#define RETRY_NS 50000000  /* after a call that failed */
#define LONG_HOLD_PART 0.4 /* of the time of the run */
#define NAME_ROOM 300

/* In memory that all processes share. */
static struct stage {
	char url[200];
	char name[NAME_ROOM], long_name[NAME_ROOM];
	int contenders;
	int64_t keep_ns;
	pthread_barrier_t all; /* and the leader */
	sem_t hold, held;      /* the long hold may begin; it has begun */
} * stage;

/* Of the holder's process. */
static sem_t told;
static int64_t told_ns;

static void report_at(int worker, const char *what, int64_t ns)
{
	char line[80];
	int len = snprintf(line, sizeof(line), "%d %s %lld\n", worker, what, (long long)ns);

	/* One write, so that lines of several processes do not mix. */
	if (write(1, line, (size_t)len) != len)
		_exit(1);
}

static void report(int worker, const char *what)
{
	report_at(worker, what, now_ns());
}

static void await(sem_t *semaphore)
{
	while (sem_wait(semaphore) && errno == EINTR)
		continue;
}

static void take_loss(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	(void)arg;
	(void)lock;
	(void)fence;
	(void)reason;
	told_ns = now_ns();
	sem_post(&told);
}

/* Ask until it is granted. */
static void acquire(int worker, lk_lock *lock)
{
	report(worker, "asked");
	while (lk_lock_acquire(lock, LK_FOREVER, NULL) != LK_OK) {
		report(worker, "failed");
		nap_ns(RETRY_NS);
	}
	report(worker, "granted");
}

static void release(int worker, lk_lock *lock)
{
	lk_err err = lk_lock_release(lock);

	report(worker, err == LK_OK ? "released" : err == LK_ELOST ? "lost" : "unreleased");
}

static void contend(int worker, lk_lock *lock)
{
	for (;;) {
		acquire(worker, lock);
		nap_ns(HOLD_NS);
		report(worker, "ended");
		release(worker, lock);
	}
}

static void hold(int worker, lk_lock *lock)
{
	struct timespec end;
	int64_t end_ns;
	bool lost;

	await(&stage->hold);
	acquire(worker, lock);
	sem_post(&stage->held);
	end_ns = now_ns() + stage->keep_ns;
	end = (struct timespec){end_ns / 1000000000, end_ns % 1000000000};
	while ((lost = !sem_clockwait(&told, CLOCK_MONOTONIC, &end), !lost) && errno == EINTR)
		continue;
	report_at(worker, "ended", lost ? told_ns : now_ns());
	release(worker, lock);
}

static lk_lock *lock_of(lk_client *client, const char *name)
{
	const lk_lock_options options = {.on_lost = take_loss};
	lk_lock *lock;

	if (lk_lock_open(client, name, 0, &options, &lock) != LK_OK)
		fail("open: %s", lk_errmsg());
	return lock;
}

static _Noreturn void worker_main(int worker)
{
	bool contends = worker < stage->contenders;
	char own[NAME_ROOM + 16];
	lk_client *client;
	lk_lock *warm, *lock;

	sem_init(&told, 0, 0);
	snprintf(own, sizeof(own), "%s-w%d", stage->name, worker);
	if (lk_client_open(stage->url, NULL, &client) != LK_OK)
		fail("open: %s", lk_errmsg());
	warm = lock_of(client, own);
	for (int i = 0; i < 20; i++)
		if (lk_lock_acquire(warm, LK_FOREVER, NULL) != LK_OK ||
		    lk_lock_release(warm) != LK_OK)
			fail("warm-up: %s", lk_errmsg());
	lock = lock_of(client, contends ? stage->name : stage->long_name);
	pthread_barrier_wait(&stage->all); /* ready */
	pthread_barrier_wait(&stage->all);
	if (contends)
		contend(worker, lock);
	if (worker == stage->contenders) {
		hold(worker, lock);
	} else {
		await(&stage->held);
		acquire(worker, lock);
		nap_ns(HOLD_NS);
		report(worker, "ended");
		release(worker, lock);
	}
	for (;;)
		pause();
}

/* "redis+sentinel://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/main", "redis+cluster://..." */
static void write_url(const char *host, const char *ports, bool cluster, bool grace)
{
	const char *scheme = cluster ? "redis+cluster://" : "redis+sentinel://";
	size_t len = 0, size = sizeof(stage->url);

	for (const char *at = ports; *at && len < size; at += strcspn(at, ","), at += *at == ',')
		len += (size_t)snprintf(stage->url + len, size - len, "%s%s:%.*s",
		                        len ? "," : scheme, host, (int)strcspn(at, ","), at);
	if (len < size)
		len += (size_t)snprintf(stage->url + len, size - len, "%s%s",
		                        cluster ? "" : "/main", grace ? "" : "?grace=0");
	if (len >= size)
		fail("the URL is too long");
}

/* The service is new, and nothing was held before. */
static void end_first_grace(void)
{
	lk_client *client;
	lk_err err;

	if (lk_client_open(stage->url, NULL, &client) != LK_OK)
		fail("open: %s", lk_errmsg());
	err = lk_client_end_grace(client, NULL);
	if (err != LK_OK && err != LK_EABSENT)
		fail("end of the grace: %s", lk_errmsg());
	lk_client_close(client);
}

void failover_run(bool cluster, bool grace, const char *host, const char *ports, const char *name,
                  int workers, double seconds)
{
	pthread_barrierattr_t attr;

	stage = shared_memory(sizeof(*stage));
	stage->contenders = workers;
	stage->keep_ns = (int64_t)(seconds * LONG_HOLD_PART * 1e9);
	snprintf(stage->name, sizeof(stage->name), "%s", name);
	snprintf(stage->long_name, sizeof(stage->long_name), "%.200s-long", name);
	write_url(host, ports, cluster, grace);
	end_first_grace();
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&stage->all, &attr, (unsigned)workers + 3);
	sem_init(&stage->hold, 1, 0);
	sem_init(&stage->held, 1, 0);
	for (int i = 0; i < workers + 2; i++)
		if (!process_fork())
			worker_main(i);
	pthread_barrier_wait(&stage->all);
	say("ready");
	pthread_barrier_wait(&stage->all);
	if (getchar() != EOF)
		sem_post(&stage->hold);
	for (;;)
		pause();
}
