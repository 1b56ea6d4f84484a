/* SPDX-License-Identifier: MIT
 * Faults in a crowd (S11, S21, C9, C23, C24 of the fault list): many waiters, many keys, many dying
 * processes, many locks, small stacks.  LK_LONG=1 makes the crowds as large as in the list. */
#include "harness/primitive.h"
#include "harness/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LONG_LIMIT 4000 /* s */

/* The short form is for every change, the long one for a nightly run. */
static long long size_of(long long in_short, long long in_long)
{
	const char *wanted = getenv("LK_LONG");

	return wanted && !strcmp(wanted, "1") ? in_long : in_short;
}

/* ---- S11: flushed while many wait --------------------------------------------------------- */

TEST_EACH(s11_flushall_under_a_thousand_waiters_leaves_none_behind, EVERY, 120)
{
	/* A tenth of it where each thread is expensive. */
	enum { CLIENTS = TSAN ? 10 : 100, WAITERS = 10 * CLIENTS };
	const int64_t lease_ms = TSAN ? 2000 : 1000;
	static struct claims waits[WAITERS];
	lk_client *clients[CLIENTS], *client;
	struct claims held;
	int64_t start_ms, opened_ms;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, lease_ms);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = client_at(server.url);
	for (int i = 0; i < WAITERS; i++) {
		claims_open(&waits[i], set, clients[i % CLIENTS], lease_ms);
		claims_start(&waits[i], 60000, false);
	}
	/* Of a lock and a latch, a client waits once for all its waiters. */
	ck_assert(WITHIN(20000, claims_waiting(set, set & SEMAPHORE ? WAITERS : CLIENTS)));
	redis_do(redis, "FLUSHALL ASYNC");
	ck_assert_int_eq(redis_calls(redis, "flushall"), 1);
	start_ms = now_ms();
	EACH (claim, &held) {
		lk_err err = claim->primitive->release(claim);
		ck_assert_msg(err == claim->primitive->absent_err || err == LK_OK, "%s",
		              lk_err_name(err));
		if (claim->primitive->is_leased)
			continue;
		for (int i = 0; i < WAITERS; i++)
			claims_expect_still_waiting(&waits[i], CLIENTS);
		claims_hold_again(&held);
	}
	opened_ms = now_ms();
	for (int i = 0; i < WAITERS; i++) {
		ck_assert_msg(WITHIN(60000, claims_all_ended(&waits[i])), "the %dth hangs", i);
		claims_join(&waits[i], LK_OK);
		if (set & LEASED)
			claims_expect_newer(&waits[i], &held);
	}
	/* By the message of the opening: the next look would come after 10 s. */
	if (!(set & LEASED))
		ck_assert_int_le(now_ms() - opened_ms, 5000);
	printf("all waits ended after %lld ms\n", (long long)(now_ms() - start_ms));
	ck_assert(claims_at_rest(set));
	for (int i = 0; i < CLIENTS; i++)
		OK(lk_client_close(clients[i]));
	OK(lk_client_close(client));
}

/* ---- S21: keys that the server is slow to expire ------------------------------------------ */

/* A worker that holds them until it is killed. */
static int hold_them(void *arg, int in, int out)
{
	struct claims held;

	if (!line_read(in, 60000))
		return 2;
	claims_hold(&held, *(unsigned *)arg, client_at(server.url), 1000);
	line_write(out, "holds");
	line_read(in, 60000);
	return 3;
}

TEST_OF(s21_slow_expiry_delays_no_waiter, LEASED, 120)
{
	struct process holder;
	struct claims waits, next;
	lk_client *client;
	int64_t start_ms;

	server_start(&server, NULL);
	process_start(&holder, hold_them, &set);
	redis = redis_open(&server);
	/* As many expired keys, and no active expiry: the server never reaches the library's
	 * keys. */
	redis_do(redis, "DEBUG SET-ACTIVE-EXPIRE 0");
	redis_do(redis, "EVAL %s 0 %lld",
	         "for i = 1, ARGV[1] do redis.call('SET', 'k' .. i, i, 'PX', 100) end",
	         size_of(50000, 1000000));
	line_write(holder.in, "go");
	ck_assert_ptr_nonnull(line_read(holder.out, 10000));
	client = client_at(server.url);
	claims_queue(&waits, set, client, 0, false);
	process_kill(&holder);
	start_ms = now_ms();
	claims_join(&waits, LK_OK);
	ck_assert_int_le(now_ms() - start_ms, 1000 + 800);
	ck_assert_int_ge(redis_size(redis), size_of(50000, 1000000)); /* still present */
	/* The smaller of the killed holder's two holds may end after the waiter's release: its
	 * permits come back at the next request. */
	claims_hold_later(&next, set, client, 0);
	claims_release(&next);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* ---- C9: processes that die at any moment ------------------------------------------------- */

#define NAMES 3
#define WORKERS_MAX 100
#define CROWD_LEASE_MS 400

/* In shared memory: the holder, and the earliest end of its hold, in one word, so that a process
 * that was stopped for long cannot combine its own word with a newer one. */
static struct crowd {
	_Atomic uint64_t hold[NAMES]; /* 0 = none */
	_Atomic uint64_t fence[NAMES];
	atomic_int grants, overlaps, regressions, failures;
} * crowd;

static uint64_t word_of(int64_t until_ms, int number)
{
	return (uint64_t)until_ms << 8 | (uint64_t)(number + 1);
}

/* Acquire, check for other holders, hold for a moment, release. */
static void visit(lk_lock *lock, int name, int number, unsigned short seed[3])
{
	lk_err err = lk_lock_acquire(lock, 10000, NULL);
	uint64_t before, fence, mine;

	if (err) {
		crowd->failures++;
		return;
	}
	before = crowd->hold[name];
	fence = crowd->fence[name];
	mine = word_of(now_ms() + hold_of(lock).remaining_ms, number);
	/* The check counts if the hold is still valid: otherwise this process was stopped. */
	if (lk_lock_is_mine(lock)) {
		crowd->overlaps += (int64_t)(before >> 8) > now_ms();
		crowd->regressions += fence >= hold_of(lock).fence;
		crowd->fence[name] = hold_of(lock).fence;
		crowd->hold[name] = mine;
		crowd->grants++;
		if (nrand48(seed) % 4 == 0)
			nap_ms(nrand48(seed) % 8);
		atomic_compare_exchange_strong(&crowd->hold[name], &mine, 0);
	}
	lk_lock_release(lock);
}

static int live(void *arg, int in, int out)
{
	int number = *(int *)arg;
	unsigned short seed[3] = {(unsigned short)test_seed(), 9, (unsigned short)now_us()};
	lk_lock *locks[NAMES];
	lk_client *client;
	char name[8];

	(void)out;
	client = client_at(server.url);
	for (int i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "c%d", i);
		locks[i] = lock_leased(client, name, CROWD_LEASE_MS);
	}
	while (!line_read(in, 0)) { /* until it is killed */
		int i = (int)(nrand48(seed) % NAMES);
		visit(locks[i], i, number, seed);
	}
	return 0;
}

TEST_LIMIT(c9_processes_killed_at_random_leave_nothing_and_never_overlap, LONG_LIMIT)
{
	static struct process workers[WORKERS_MAX];
	static int numbers[WORKERS_MAX];
	unsigned short seed[3] = {(unsigned short)test_seed(), 9, 0};
	int count = (int)size_of(24, WORKERS_MAX), kills = 0;
	int64_t end_ms;

	crowd = mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	             0);
	ck_assert_ptr_ne(crowd, MAP_FAILED);
	server_start(&server, NULL);
	for (int i = 0; i < count; i++) {
		numbers[i] = i;
		process_start(&workers[i], live, &numbers[i]);
	}
	end_ms = now_ms() + size_of(2500, 3600000);
	while (now_ms() < end_ms) {
		int i = (int)(nrand48(seed) % (unsigned)count);
		nap_ms(nrand48(seed) % 100);
		process_kill(&workers[i]);
		process_start(&workers[i], live, &numbers[i]);
		kills++;
		ck_assert_int_eq(crowd->overlaps, 0);
		ck_assert_int_eq(crowd->regressions, 0);
	}
	for (int i = 0; i < count; i++)
		process_kill(&workers[i]);
	printf("%d kills, %d grants, %d failures\n", kills, crowd->grants, crowd->failures);
	ck_assert_int_ge(kills, 10);
	ck_assert_int_gt(crowd->grants, 20 * kills / 10);
	ck_assert_int_eq(crowd->failures, 0);
	/* A lease later everything is free: the next client acquires at once, past all dead
	 * ones. */
	redis = redis_open(&server);
	nap_ms(CROWD_LEASE_MS);
	for (int i = 0; i < NAMES; i++) {
		lk_client *client = client_at(server.url);
		char name[8];
		lk_lock *lock;
		snprintf(name, sizeof(name), "c%d", i);
		lock = lock_leased(client, name, CROWD_LEASE_MS);
		OK(lk_lock_acquire(lock, 2 * CROWD_LEASE_MS + 500, NULL));
		ck_assert_uint_gt(hold_of(lock).fence, crowd->fence[i]);
		OK(lk_lock_release(lock));
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{%s} lk:{%s}:q", name, name), 0);
		OK(lk_client_close(client));
	}
}

/* ---- C23: small stacks, many handles ------------------------------------------------------ */

struct small {
	lk_client *client;
	atomic_bool well;
	pthread_t thread;
	int number;
};

/* Every kind of call, in a thread with a stack of 64 kB. */
static void *call_everything(void *arg)
{
	struct small *small = arg;
	char name[16];
	lk_party parties[2];
	lk_ticket permits[2];
	lk_latch_status latch_status;
	lk_lock_status status;
	lk_semaphore *semaphore;
	lk_client *client;
	lk_latch *latch;
	lk_lock *lock;
	uint64_t hold;
	size_t count;

	snprintf(name, sizeof(name), "n%d", small->number);
	OK(lk_client_open(server.url, NULL, &client));
	lock = lock_named(small->client, name);
	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_query(lock, &status));
	OK(lk_lock_waiters(lock, 2, parties, &count));
	EXPECT(lk_lock_acquire(lock_named(client, name), 20, NULL), LK_ETIMEDOUT);
	OK(lk_lock_release(lock));
	snprintf(name, sizeof(name), "s%d", small->number);
	semaphore = semaphore_of(small->client, name, 2, 0);
	hold = permits_of(semaphore, 2, 1000);
	OK(lk_semaphore_holders(semaphore, 2, permits, &count));
	OK(lk_semaphore_release(semaphore, hold));
	snprintf(name, sizeof(name), "l%d", small->number);
	OK(lk_latch_open(small->client, name, 0, NULL, &latch));
	OK(lk_latch_set(latch, 1, NULL));
	EXPECT(lk_latch_await(latch, 20), LK_ETIMEDOUT);
	OK(lk_latch_down(latch, 1, "step", 0, NULL));
	OK(lk_latch_query(latch, &latch_status));
	OK(lk_client_close(client));
	small->well = true;
	return NULL;
}

TEST_LIMIT(c23_small_stacks_and_ten_thousand_handles_work, 60)
{
	enum { THREADS = 8, HANDLES = 10000 };
	static lk_lock *handles[HANDLES];
	struct small threads[THREADS];
	pthread_attr_t attributes;
	lk_client *client;
	char name[16];

	server_start(&server, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	for (int i = 0; i < HANDLES; i++) {
		snprintf(name, sizeof(name), "h%d", i);
		handles[i] = lock_named(client, name);
	}
	ck_assert(!pthread_attr_init(&attributes));
	if (!TSAN && !ASAN) /* the sanitizers need larger stacks */
		ck_assert(!pthread_attr_setstacksize(&attributes, 64 * 1024));
	for (int i = 0; i < THREADS; i++) {
		threads[i] = (struct small){.client = client, .number = i};
		ck_assert(!pthread_create(&threads[i].thread, &attributes, call_everything,
		                          &threads[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i].thread, NULL);
		ck_assert(threads[i].well);
	}
	pthread_attr_destroy(&attributes);
	for (int i = 0; i < HANDLES; i += 97) {
		OK(lk_lock_acquire(handles[i], 0, NULL));
		OK(lk_lock_release(handles[i]));
	}
	for (int i = 0; i < HANDLES; i++)
		OK(lk_lock_close(handles[i]));
	OK(lk_client_close(client));
	ck_assert_str_eq(redis_text(redis, "KEYS lk:{h*"), "");
}

/* ---- C24: many holds ---------------------------------------------------------------------- */

static atomic_bool load_ends;
static atomic_int load_rounds;

static void *load(void *arg)
{
	lk_lock *lock = lock_of_handle(arg, "load", 0);

	while (!load_ends) {
		OK(lk_lock_acquire(lock, 5000, NULL));
		OK(lk_lock_release(lock));
		load_rounds++;
	}
	return NULL;
}

/* No renewal is late: a third of each lease is left at any time. */
TEST_LIMIT(c24_many_holds_are_renewed_in_time_though_another_server_is_stopped, 120)
{
	enum { HOLDS_MAX = 10000 };
	static lk_lock *locks[HOLDS_MAX];
	int count = (int)size_of(2000, HOLDS_MAX);
	const int64_t lease_ms = size_of(1500, 3000);
	struct test_server slow;
	lk_client *client, *other;
	pthread_t thread;
	int64_t end_ms;
	char name[16];

	server_start(&server, NULL);
	server_start(&slow, NULL);
	client = client_at(server.url);
	other = client_at(slow.url);
	OK(lk_lock_acquire(lock_leased(other, "a", lease_ms), 0, NULL));
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "h%d", i);
		locks[i] = lock_leased(client, name, lease_ms);
		OK(lk_lock_acquire(locks[i], 0, NULL));
	}
	ck_assert(!pthread_create(&thread, NULL, load, client));
	server_pause(&slow);
	end_ms = now_ms() + size_of(lease_ms * 4 / 3, lease_ms * 20);
	while (now_ms() < end_ms) {
		for (int i = 0; i < count; i++)
			ck_assert_msg(hold_of(locks[i]).remaining_ms >= lease_ms / 3 - 50,
			              "hold %d has %lld ms", i,
			              (long long)hold_of(locks[i]).remaining_ms);
		nap_ms(20);
	}
	load_ends = true;
	pthread_join(thread, NULL);
	printf("%d holds, %d other acquisitions\n", count, load_rounds);
	ck_assert_int_gt(load_rounds, 100);
	server_resume(&slow);
	OK(lk_client_close(client));
	lk_client_close(other);
}
