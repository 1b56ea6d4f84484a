/* SPDX-License-Identifier: MIT
 * A semaphore under load: many threads and processes, holders that are killed, a changing capacity.
 * A counter in unprotected shared memory checks that no more permits are held than exist. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define THREADS_MAX 64
#define PROCESSES 16

/* In shared memory. */
struct witness {
	atomic_int out;   /* permits that are held, or slightly fewer */
	atomic_int limit; /* the most permits that may be held */
	atomic_int worst, grants, partial, failures;
	atomic_bool end;
};

struct crowd {
	struct witness *witness;
	int threads, rounds;
	int64_t capacity, wanted_max;
	lk_client *client; /* of one process */
	unsigned number;   /* of the process */
	bool resized;
};

static struct test_server server;
static struct redis *redis;

static struct crowd crowd_of(int threads, int rounds, int64_t capacity)
{
	struct crowd crowd = {.threads = threads,
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
static bool one_round(struct crowd *crowd, lk_semaphore *semaphore, unsigned short seed[3])
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

static void *crowd_thread(void *arg)
{
	struct crowd *crowd = arg;
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

static int crowd_process(void *arg, int in, int out)
{
	struct crowd *crowd = arg;
	pthread_t threads[THREADS_MAX];
	const char *number;

	(void)out;
	if (in >= 0) {
		number = line_read(in, 20000);
		if (!number)
			return 2;
		crowd->number = (unsigned)atoi(number);
	}
	crowd->client = client_at(server.url);
	for (int i = 0; i < crowd->threads; i++)
		ck_assert(!pthread_create(&threads[i], NULL, crowd_thread, crowd));
	for (int i = 0; i < crowd->threads; i++)
		pthread_join(threads[i], NULL);
	return lk_client_close(crowd->client) != LK_OK;
}

static void check_end(const struct crowd *crowd, int64_t capacity)
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

static void *crowd_in_thread(void *arg)
{
	static int status;

	status = crowd_process(arg, -1, -1);
	return &status;
}

/* Check that the store's counts agree at all times, until this many grants. */
static void watch_crowd(const struct crowd *crowd, int until)
{
	while (crowd->witness->grants < until) {
		int grants = crowd->witness->grants;
		permits_add_up(redis, "a");
		ck_assert_msg(WITHIN(10000, crowd->witness->grants > grants), "no progress");
	}
}

TEST_LIMIT(sixty_four_threads_never_have_more_than_there_is, 90)
{
	struct crowd crowd = crowd_of(64, 30, 7);
	pthread_t thread;
	void *status;

	server_start(&server, NULL);
	redis = redis_open(&server);
	semaphore_of(client_at(server.url), "a", 7, 0);
	pthread_create(&thread, NULL, crowd_in_thread, &crowd);
	watch_crowd(&crowd, 64 * 25);
	pthread_join(thread, &status);
	ck_assert_int_eq(*(int *)status, 0);
	ck_assert_int_eq(crowd.witness->grants, 64 * 30);
	check_end(&crowd, 7);
}

TEST_LIMIT(sixteen_processes_never_have_more_than_there_is, 90)
{
	struct crowd crowd = crowd_of(4, 30, 7);
	struct process workers[PROCESSES];

	server_start(&server, NULL);
	for (int i = 0; i < PROCESSES; i++)
		process_start(&workers[i], crowd_process, &crowd);
	redis = redis_open(&server);
	semaphore_of(client_at(server.url), "a", 7, 0);
	for (int i = 0; i < PROCESSES; i++)
		line_write(workers[i].in, "%d", i);
	watch_crowd(&crowd, PROCESSES * 4 * 25);
	for (int i = 0; i < PROCESSES; i++)
		ck_assert(process_succeeded(&workers[i], 60000));
	ck_assert_int_eq(crowd.witness->grants, PROCESSES * 4 * 30);
	check_end(&crowd, 7);
}

TEST_LIMIT(capacity_that_changes_under_load_is_kept, 90)
{
	static const int capacities[] = {3, 8, 1, 5, 2, 9, 4, 7, 1, 6};
	struct crowd crowd = crowd_of(3, 0, 7);
	struct process workers[8];
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	int last = 7;

	crowd.resized = true;
	server_start(&server, NULL);
	for (int i = 0; i < 8; i++)
		process_start(&workers[i], crowd_process, &crowd);
	redis = redis_open(&server);
	semaphore = semaphore_of(client_at(server.url), "a", 7, 0);
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
	check_end(&crowd, last);
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

TEST_LIMIT(threads_give_the_permits_of_one_hold_back_one_by_one, 60)
{
	pthread_t threads[THREADS_MAX];
	struct shared_hold shared = {0};

	server_start(&server, NULL);
	redis = redis_open(&server);
	shared.semaphore = semaphore_of(client_at(server.url), "a", THREADS_MAX, 0);
	for (int round = 0; round < 10; round++) {
		shared.hold = permits_of(shared.semaphore, THREADS_MAX, 1000);
		for (int i = 0; i < THREADS_MAX; i++)
			ck_assert(!pthread_create(&threads[i], NULL, give_one_back, &shared));
		for (int i = 0; i < THREADS_MAX; i++)
			pthread_join(threads[i], NULL);
		ck_assert_int_eq(shared.wrong, 0);
		EXPECT(lk_semaphore_release(shared.semaphore, shared.hold), LK_ENOTOWNER);
		ck_assert(permits_at_rest(redis, "a", THREADS_MAX));
	}
}

/* ---- Holders that die --------------------------------------------------------------------- */

#define LEASE_MS 800

/* Hold this many permits until killed. */
static int hold_for_ever(void *arg, int in, int out)
{
	lk_client *client;

	if (!line_read(in, 20000))
		return 2;
	client = client_at(server.unix_url);
	permits_of(semaphore_of(client, "a", 9, LEASE_MS), (int)(intptr_t)arg, 5000);
	line_write(out, "held");
	return line_read(in, 60000) ? 3 : 4;
}

/* Processes that hold 2, 3 and 4 of 9. */
static lk_semaphore *start_holders(struct process *holders)
{
	lk_semaphore *semaphore;

	server_start(&server, NULL);
	for (int i = 0; i < 3; i++)
		process_start(&holders[i], hold_for_ever, (void *)(intptr_t)(i + 2));
	redis = redis_open(&server);
	semaphore = semaphore_of(client_at(server.url), "a", 9, LEASE_MS);
	for (int i = 0; i < 3; i++) {
		line_write(holders[i].in, "go");
		ck_assert_ptr_nonnull(line_read(holders[i].out, 10000));
	}
	permits_add_up(redis, "a");
	ck_assert_int_eq(permits_used(redis, "a"), 9);
	return semaphore;
}

TEST_LIMIT(c4_permits_of_killed_holders_come_back_and_nobody_polls_for_them, 40)
{
	struct process holders[3];
	lk_semaphore *semaphore = start_holders(holders);
	long long scripts, commands;
	int64_t start_ms;
	uint64_t hold;

	hold = 0;
	EXPECT(lk_semaphore_acquire(semaphore, 1, 0, &hold), LK_EBUSY);
	nap_ms(100);
	for (int i = 0; i < 3; i++)
		process_kill(&holders[i]);
	start_ms = now_ms();
	scripts = redis_script_calls(redis);
	commands = redis_info(redis, "total_commands_processed");
	nap_ms(LEASE_MS + 100);
	/* There is no waiter, so no client sends a request: only the test's two queries, and
	 * pings. */
	ck_assert_int_eq(redis_script_calls(redis), scripts);
	ck_assert_int_le(redis_info(redis, "total_commands_processed") - commands, 12);
	OK(lk_semaphore_acquire(semaphore, 9, 0, &hold));
	ck_assert_int_le(now_ms() - start_ms, LEASE_MS + 200);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(permits_at_rest(redis, "a", 9));
}

TEST_LIMIT(c4_waiters_get_the_permits_of_killed_holders_after_their_lease, 40)
{
	struct process holders[3];
	lk_semaphore *semaphore = start_holders(holders);
	static const int64_t wanted[] = {2, 5, 1, 1};
	struct permit_wait waits[4];
	long long scripts;
	int64_t start_ms;

	for (int i = 0; i < 4; i++)
		permit_wait_queue(&waits[i], redis, "a", semaphore, wanted[i], true);
	scripts = redis_script_calls(redis);
	for (int i = 0; i < 3; i++)
		process_kill(&holders[i]);
	start_ms = now_ms();
	for (int i = 0; i < 4; i++)
		OK(permit_wait_join(&waits[i]));
	ck_assert_int_ge(now_ms() - start_ms, LEASE_MS / 3);
	ck_assert_int_le(now_ms() - start_ms, LEASE_MS + 300);
	/* Each waiter has asked by the end of the first lease, and once was enough. */
	scripts = redis_script_calls(redis) - scripts;
	printf("%lld scripts\n", scripts);
	ck_assert_int_le(scripts, 12);
	for (int i = 1; i < 4; i++)
		ck_assert_uint_gt(waits[i].hold, waits[i - 1].hold);
	ck_assert_int_eq(permits_used(redis, "a"), 9);
	permits_add_up(redis, "a");
}

TEST_LIMIT(c4_permits_come_back_while_others_go_on_renewing, 40)
{
	struct process holders[3];
	lk_semaphore *semaphore = start_holders(holders);
	struct permit_wait wait;
	int64_t start_ms;

	permit_wait_queue(&wait, redis, "a", semaphore, 3, true);
	nap_ms(300);
	process_kill(&holders[1]); /* it holds 3 */
	start_ms = now_ms();
	OK(permit_wait_join(&wait));
	printf("%lld ms\n", (long long)(now_ms() - start_ms));
	/* The waiter asks at the earliest end of a lease: one more lease at most. */
	ck_assert_int_le(now_ms() - start_ms, 2 * LEASE_MS + 200);
	ck_assert_int_eq(permits_used(redis, "a"), 9);
	permits_add_up(redis, "a");
}

/* Hold one permit a hundred times until killed. */
static int hold_many(void *arg, int in, int out)
{
	lk_semaphore *semaphore;

	(void)arg;
	if (!line_read(in, 20000))
		return 2;
	semaphore = semaphore_of(client_at(server.unix_url), "a", 100, LEASE_MS);
	for (int i = 0; i < 100; i++)
		permits_of(semaphore, 1, 5000);
	line_write(out, "held");
	return line_read(in, 60000) ? 3 : 4;
}

/* One request reclaims only some of them; the rest follows at once, for a wait and for a try. */
static void reclaim_hundred(bool wait)
{
	struct process holder;
	lk_semaphore *semaphore;
	int64_t start_ms;
	uint64_t hold;

	server_start(&server, NULL);
	process_start(&holder, hold_many, NULL);
	redis = redis_open(&server);
	semaphore = semaphore_of(client_at(server.url), "a", 100, 0);
	line_write(holder.in, "go");
	ck_assert_ptr_nonnull(line_read(holder.out, 10000));
	process_kill(&holder);
	ck_assert_int_eq(permits_holds(redis, "a"), 100);
	start_ms = now_ms();
	if (!wait)
		nap_ms(LEASE_MS + 50);
	OK(lk_semaphore_acquire(semaphore, 100, wait ? 5000 : 0, &hold));
	ck_assert_int_le(now_ms() - start_ms, LEASE_MS + 300);
	ck_assert_int_eq(permits_holds(redis, "a"), 1);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(permits_at_rest(redis, "a", 100));
}

TEST_LIMIT(c4_hundred_holds_of_a_killed_process_come_back_to_a_waiter, 40)
{
	reclaim_hundred(true);
}

TEST_LIMIT(c4_hundred_holds_of_a_killed_process_come_back_to_a_try, 40)
{
	reclaim_hundred(false);
}

/* ---- C9 ----------------------------------------------------------------------------------- */

/* Acquire and release at random until killed or signalled to end. */
static int live_at_random(void *arg, int in, int out)
{
	struct crowd *crowd = arg;
	const char *number = line_read(in, 30000);
	unsigned short seed[3] = {(unsigned short)test_seed(), 9, 0};
	lk_semaphore *semaphore;

	(void)out;
	if (!number)
		return 2;
	seed[2] = (unsigned short)atoi(number);
	crowd->client = client_at(server.unix_url);
	semaphore = semaphore_of(crowd->client, "a", 7, 400);
	while (!crowd->witness->end) {
		uint64_t hold;
		int64_t wanted = 1 + nrand48(seed) % 4;
		lk_err err =
			lk_semaphore_acquire(semaphore, wanted, 100 + nrand48(seed) % 3000, &hold);
		if (err == LK_ETIMEDOUT)
			continue;
		if (err)
			return 3;
		crowd->witness->grants++;
		nap_ms(nrand48(seed) % 20);
		if (wanted > 1 && lk_semaphore_release_some(semaphore, hold, 1) == LK_EINVALID)
			return 4;
		lk_semaphore_release(semaphore, hold);
	}
	return lk_client_close(crowd->client) != LK_OK;
}

TEST_LIMIT(c9_processes_killed_at_random_leave_nothing, 90)
{
	enum { MANY = 60 };
	struct crowd crowd = crowd_of(1, 0, 7);
	struct process workers[MANY];
	unsigned short seed[3] = {(unsigned short)test_seed(), 1, 2};
	lk_semaphore *semaphore;
	uint64_t hold;
	int killed = 0;

	server_start(&server, NULL);
	for (int i = 0; i < MANY; i++)
		process_start(&workers[i], live_at_random, &crowd);
	redis = redis_open(&server);
	semaphore = semaphore_of(client_at(server.url), "a", 7, 400);
	for (int i = 0; i < MANY; i++) {
		line_write(workers[i].in, "%d", i);
		if (i < MANY / 4)
			continue;
		/* One starts, one is killed. */
		nap_ms(10 + nrand48(seed) % 80);
		process_kill(&workers[i - MANY / 4]);
		killed++;
		permits_add_up(redis, "a");
	}
	ck_assert_int_eq(killed, MANY * 3 / 4);
	ck_assert_int_gt(crowd.witness->grants, MANY);
	printf("%d grants, %d killed\n", crowd.witness->grants, killed);
	crowd.witness->end = true;
	for (int i = MANY * 3 / 4; i < MANY; i++)
		ck_assert_msg(process_succeeded(&workers[i], 20000), "worker %d", i);
	/* One lease later all permits of the dead are free. */
	OK(lk_semaphore_acquire(semaphore, 7, 2000, &hold));
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(permits_at_rest(redis, "a", 7));
}
