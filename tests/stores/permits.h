/* SPDX-License-Identifier: MIT
 * A semaphore under load, on any store: many threads and processes, a changing capacity.  A counter
 * in unprotected shared memory checks that no more permits are held than exist. */
#ifndef STORES_PERMITS_H
#define STORES_PERMITS_H

#include "stores/set_up.h"
#include "harness/permit_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PERMIT_THREADS_MAX 64
#define PERMIT_PROCESSES 16

/* In shared memory. */
struct witness {
	atomic_int out;   /* permits that are held, or slightly fewer */
	atomic_int limit; /* the most permits that may be held */
	atomic_int worst, grants, partial, failures;
	atomic_bool end;
};

struct permit_crowd {
	struct witness *witness;
	int threads, rounds;
	int64_t capacity, wanted_max;
	lk_client *client; /* of one process */
	unsigned number;   /* of the process */
	bool resized;
};

static struct permit_crowd permit_crowd_of(int threads, int rounds, int64_t capacity)
{
	struct permit_crowd crowd = {.threads = threads,
	                             .rounds = rounds,
	                             .capacity = capacity,
	                             .wanted_max = capacity / 2 + 1};

	crowd.witness = mmap(NULL, sizeof(*crowd.witness), PROT_READ | PROT_WRITE,
	                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(crowd.witness, MAP_FAILED);
	crowd.witness->limit = (int)capacity;
	return crowd;
}

/* Count these permits as held.  The limit may change meanwhile: it is raised before the store's,
 * and lowered after it. */
static void count_out(struct witness *witness, int permits)
{
	int before = witness->limit;
	int out = atomic_fetch_add(&witness->out, permits) + permits;
	int after = witness->limit;

	witness->grants++;
	if (out > (before > after ? before : after))
		witness->failures++;
	if (out > witness->worst)
		witness->worst = out;
}

/* Acquire, release some, pause, release the rest.  False if a call fails. */
static bool one_round(struct permit_crowd *crowd, lk_semaphore *semaphore, unsigned short seed[3])
{
	int64_t wanted = 1 + nrand48(seed) % crowd->wanted_max, less;
	uint64_t hold;
	lk_err err = lk_semaphore_acquire(semaphore, wanted, LK_FOREVER, &hold);

	if (err == LK_ELIMIT && crowd->resized) {
		nap_ms(1); /* more than the present capacity */
		return true;
	}
	if (err)
		return false;
	count_out(crowd->witness, (int)wanted);
	if (wanted > 1 && nrand48(seed) % 3 == 0) {
		less = 1 + nrand48(seed) % (wanted - 1);
		wanted -= less;
		crowd->witness->out -= (int)less;
		crowd->witness->partial++;
		if (lk_semaphore_release_some(semaphore, hold, less))
			return false;
	}
	if (nrand48(seed) % 8 == 0)
		nap_ms(1);
	crowd->witness->out -= (int)wanted;
	return lk_semaphore_release(semaphore, hold) == LK_OK;
}

static void *permit_crowd_thread(void *arg)
{
	struct permit_crowd *crowd = arg;
	static atomic_uint threads;
	unsigned short seed[3] = {(unsigned short)test_seed(), (unsigned short)++threads,
	                          (unsigned short)crowd->number};
	lk_semaphore *semaphore = semaphore_of(crowd->client, "a", 0, 0);

	for (int i = 0; (!crowd->rounds || i < crowd->rounds) && !crowd->witness->end; i++)
		if (!one_round(crowd, semaphore, seed))
			crowd->witness->failures++;
	OK(lk_semaphore_close(semaphore));
	return NULL;
}

static int permit_crowd_process(void *arg, int in, int out)
{
	struct permit_crowd *crowd = arg;
	pthread_t threads[PERMIT_THREADS_MAX];
	const char *number;

	(void)out;
	if (in >= 0) {
		number = line_read(in, 20000);
		if (!number)
			return 2;
		crowd->number = (unsigned)atoi(number);
	}
	crowd->client = client_at(url);
	for (int i = 0; i < crowd->threads; i++)
		ck_assert(!pthread_create(&threads[i], NULL, permit_crowd_thread, crowd));
	for (int i = 0; i < crowd->threads; i++)
		pthread_join(threads[i], NULL);
	return lk_client_close(crowd->client) != LK_OK;
}

static void check_permit_crowd(const struct permit_crowd *crowd, int64_t capacity)
{
	const struct witness *witness = crowd->witness;

	printf("%d grants, %d partial releases, at most %d of %lld out\n", witness->grants,
	       witness->partial, witness->worst, (long long)crowd->capacity);
	ck_assert_int_eq(witness->failures, 0);
	ck_assert_int_eq(witness->out, 0);
	ck_assert_int_gt(witness->worst, 1); /* otherwise there was no contention */
	ck_assert_int_gt(witness->partial, 0);
	ck_assert(permits_at_rest(redis, "a", capacity));
}

static void *permit_crowd_in_thread(void *arg)
{
	static int status;

	status = permit_crowd_process(arg, -1, -1);
	return &status;
}

/* Check that the store's counts agree at all times, until this many grants. */
static void watch_permit_crowd(const struct permit_crowd *crowd, int until)
{
	while (crowd->witness->grants < until) {
		int grants = crowd->witness->grants;
		permits_add_up(redis, "a");
		ck_assert_msg(WITHIN(10000, crowd->witness->grants > grants), "no progress");
	}
}

TEST_STORE(sixty_four_threads_never_have_more_than_there_is, 90, STORE_SEMAPHORES | STORE_KEYS)
{
	struct permit_crowd crowd = permit_crowd_of(64, 30, 7);
	pthread_t thread;
	void *status;

	url = STORE.start();
	redis = STORE.look();
	semaphore_of(client_at(url), "a", 7, 0);
	pthread_create(&thread, NULL, permit_crowd_in_thread, &crowd);
	watch_permit_crowd(&crowd, 64 * 25);
	pthread_join(thread, &status);
	ck_assert_int_eq(*(int *)status, 0);
	ck_assert_int_eq(crowd.witness->grants, 64 * 30);
	check_permit_crowd(&crowd, 7);
}

TEST_STORE(sixteen_processes_never_have_more_than_there_is, 90,
           STORE_SEMAPHORES | STORE_KEYS | STORE_SHARED)
{
	struct permit_crowd crowd = permit_crowd_of(4, 30, 7);
	struct process workers[PERMIT_PROCESSES];

	url = STORE.start();
	for (int i = 0; i < PERMIT_PROCESSES; i++)
		process_start(&workers[i], permit_crowd_process, &crowd);
	redis = STORE.look();
	semaphore_of(client_at(url), "a", 7, 0);
	for (int i = 0; i < PERMIT_PROCESSES; i++)
		line_write(workers[i].in, "%d", i);
	watch_permit_crowd(&crowd, PERMIT_PROCESSES * 4 * 25);
	for (int i = 0; i < PERMIT_PROCESSES; i++)
		ck_assert(process_succeeded(&workers[i], 60000));
	ck_assert_int_eq(crowd.witness->grants, PERMIT_PROCESSES * 4 * 30);
	check_permit_crowd(&crowd, 7);
}

TEST_STORE(capacity_that_changes_under_load_is_kept, 90,
           STORE_SEMAPHORES | STORE_KEYS | STORE_SHARED)
{
	static const int capacities[] = {3, 8, 1, 5, 2, 9, 4, 7, 1, 6};
	struct permit_crowd crowd = permit_crowd_of(3, 0, 7);
	struct process workers[8];
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	int last = 7;

	crowd.resized = true;
	url = STORE.start();
	for (int i = 0; i < 8; i++)
		process_start(&workers[i], permit_crowd_process, &crowd);
	redis = STORE.look();
	semaphore = semaphore_of(client_at(url), "a", 7, 0);
	for (int i = 0; i < 8; i++)
		line_write(workers[i].in, "%d", i);
	for (int i = 0; i < 30; i++) {
		int grants = crowd.witness->grants, next = capacities[i % 10];
		if (next > last)
			crowd.witness->limit = next;
		OK(lk_semaphore_resize(semaphore, next));
		/* Shrink: as soon as the holds fit, they fit from then on. */
		ck_assert(WITHIN(5000, lk_semaphore_query(semaphore, &status) == LK_OK &&
		                               status.available >= 0));
		ck_assert_int_eq(status.capacity, next);
		crowd.witness->limit = next;
		last = next;
		ck_assert_msg(WITHIN(10000, crowd.witness->grants > grants + 20),
		              "no progress at %d", next);
		permits_add_up(redis, "a");
	}
	crowd.witness->end = true;
	for (int i = 0; i < 8; i++)
		ck_assert(process_succeeded(&workers[i], 60000));
	check_permit_crowd(&crowd, last);
}

/* ---- Threads that share a hold ----------------------------------------------------------- */

struct shared_hold {
	lk_semaphore *semaphore;
	uint64_t hold;
	atomic_int wrong;
};

static void *give_one_back(void *arg)
{
	struct shared_hold *shared = arg;

	shared->wrong += lk_semaphore_release_some(shared->semaphore, shared->hold, 1) != LK_OK;
	return NULL;
}

TEST_STORE(threads_give_the_permits_of_one_hold_back_one_by_one, 60, STORE_SEMAPHORES | STORE_KEYS)
{
	pthread_t threads[PERMIT_THREADS_MAX];
	struct shared_hold shared = {0};

	url = STORE.start();
	redis = STORE.look();
	shared.semaphore = semaphore_of(client_at(url), "a", PERMIT_THREADS_MAX, 0);
	for (int round = 0; round < 10; round++) {
		shared.hold = permits_of(shared.semaphore, PERMIT_THREADS_MAX, 1000);
		for (int i = 0; i < PERMIT_THREADS_MAX; i++)
			ck_assert(!pthread_create(&threads[i], NULL, give_one_back, &shared));
		for (int i = 0; i < PERMIT_THREADS_MAX; i++)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(shared.wrong, 0);
		EXPECT(lk_semaphore_release(shared.semaphore, shared.hold), LK_ENOTOWNER);
		ck_assert(permits_at_rest(redis, "a", PERMIT_THREADS_MAX));
	}
}

#endif
