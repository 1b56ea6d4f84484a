/* SPDX-License-Identifier: MIT
 * What holds cost a server and its process: requests, round trips, processor time, memory.  The
 * server counts scripts; renewals and descriptions of clients depend on the clock, and their
 * digests distinguish them.  tests/stores/cost.h has what needs no such server. */
#define STORE store_on_server

#include "stores/set_up.h"
#include "harness/proxy.h"

#include "scripts.h"

#include <malloc.h>
#include <stdio.h>

#define HOLDS 1000

/* Call the function for each line that the monitor saw until now. */
static void each_line(struct monitor *monitor, void (*look)(const char *line))
{
	static int marks;
	char mark[32];
	const char *line;

	snprintf(mark, sizeof(mark), "\"mark-%d\"", ++marks);
	redis_do(redis, "ECHO mark-%lld", (long long)marks);
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, mark))
		look(line);
	ck_assert_ptr_nonnull(line);
}

/* ---- Under contention ---------------------------------------------------------------------- */

TEST(reentry_takes_no_request)
{
	lk_client *client = set_up();
	lk_lock *lock = lock_named(client, "a");
	long long before;

	OK(lk_lock_acquire(lock, 1000, NULL));
	nap_ms(50); /* the client's description is sent by now */
	before = redis_info(redis, "total_commands_processed");
	for (int i = 0; i < 1000; i++)
		OK(lk_lock_acquire(lock, 1000, NULL));
	for (int i = 0; i < 1000; i++)
		OK(lk_lock_release(lock));
	/* Only the test's own two INFO. */
	ck_assert_int_le(redis_info(redis, "total_commands_processed") - before, 2);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

enum { WORKERS = 16, ROUNDS = 60 };

struct contest {
	const struct noun *noun;
	struct noun_options options;
	int64_t size;
};

static int contend(void *arg, int in, int out)
{
	const struct contest *contest = arg;
	const struct noun *noun = contest->noun;
	uint64_t hold;
	void *handle;

	if (!line_read(in, 20000))
		return 2;
	handle = noun_open(noun, client_at(url), "a", contest->options);
	for (int i = 0; i <= ROUNDS; i++) {
		/* The first round has the server know the scripts and the client's description. */
		if (i == 1) {
			line_write(out, "warm");
			if (!line_read(in, 20000))
				return 3;
		}
		if (noun->acquire(handle, contest->size, LK_FOREVER, &hold) ||
		    noun->release(handle, hold))
			return 4;
	}
	line_write(out, "done");
	return line_read(in, 20000) ? 0 : 5;
}

/* The number of commands that clients sent, without those for their descriptions. */
static long long count_commands(void)
{
	static const char *const other[] = {
		"ping",  "subscribe",   "unsubscribe",    "auth",      "select",
		"hello", "script|load", "client|setname", "client|id", "scan"};
	long long commands = redis_script_calls(redis) - redis_calls(redis, "hsetnx");

	for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
		commands += redis_calls(redis, other[i]);
	return commands;
}

static void contend_for(const struct noun *noun, int64_t capacity, int64_t size)
{
	struct contest contest = {noun, {.capacity = capacity}, size};
	struct process workers[WORKERS];
	long long commands;

	url = STORE.start();
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], contend, &contest);
	redis = STORE.look();
	for (int i = 0; i < WORKERS; i++) {
		line_write(workers[i].in, "warm up");
		ck_assert_ptr_nonnull(line_read(workers[i].out, 20000));
	}
	nap_ms(100);
	commands = count_commands();
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < WORKERS; i++)
		ck_assert_ptr_nonnull(line_read(workers[i].out, 60000));
	commands = count_commands() - commands;
	printf("contended %s: %.3f commands an acquisition\n", noun->name,
	       (double)commands / (WORKERS * ROUNDS));
	ck_assert_msg((double)commands <= 2.2 * WORKERS * ROUNDS,
	              "%lld commands for %d acquisitions", commands, WORKERS * ROUNDS);
	ck_assert(noun->at_rest(redis, "a"));
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "end");
	for (int i = 0; i < WORKERS; i++)
		ck_assert(process_succeeded(&workers[i], 20000));
}

TEST_NOUN(contended_acquisition_takes_at_most_2_2_requests, 90, 0)
{
	contend_for(noun, 0, NOUN_ALONE);
}

TEST_LIMIT(contended_acquisition_of_3_permits_takes_at_most_2_2_requests, 90)
{
	contend_for(&noun_semaphore, 3, 1);
}

/* ---- Renewal ------------------------------------------------------------------------------ */

static int lock_renewals, semaphore_renewals;

static void count_renewal(const char *line)
{
	lock_renewals += strstr(line, lk__script_lock_renew.sha1) != NULL;
	semaphore_renewals += strstr(line, lk__script_semaphore_renew.sha1) != NULL;
}

/* A thousand locks of one client, and a thousand holds of a semaphore of another one. */
TEST_LIMIT(thousand_holds_are_renewed_in_ten_round_trips, 90)
{
	static struct {
		void *handle;
		uint64_t fence;
	} holds[2][HOLDS];
	const struct noun *nouns[2] = {&noun_lock, &noun_semaphore};
	const struct proxy_fault slow = {.delay_ms = 10};
	lk_client *clients[2];
	struct proxy proxies[2];
	struct monitor *monitor;
	int64_t turns[2];

	OK(lk_client_close(set_up()));
	for (int i = 0; i < 2; i++) {
		proxy_start(&proxies[i], &test_store_server);
		clients[i] = client_at(proxies[i].url);
		for (int j = 0; j < HOLDS; j++) {
			char name[32];
			snprintf(name, sizeof(name), "held-%d", j);
			holds[i][j].handle = noun_open(
				nouns[i], clients[i], i ? "a" : name,
				(struct noun_options){.lease_ms = 3000, .capacity = HOLDS});
			OK(nouns[i]->acquire(holds[i][j].handle, 1, 1000, &holds[i][j].fence));
		}
	}
	for (int i = 0; i < 2; i++)
		proxy_set_all(&proxies[i], &slow);
	nap_ms(1000); /* a whole period passes */
	monitor = monitor_open(&test_store_server);
	for (int i = 0; i < 2; i++)
		turns[i] = proxy_count(&proxies[i]).turns[PROXY_COMMANDS];
	nap_ms(3000); /* three periods */
	for (int i = 0; i < 2; i++) {
		turns[i] = proxy_count(&proxies[i]).turns[PROXY_COMMANDS] - turns[i];
		ck_assert_int_le(turns[i], 30);
		for (int j = 0; j < HOLDS; j++)
			ck_assert_int_eq(nouns[i]->state(holds[i][j].handle, holds[i][j].fence),
			                 LK_STATE_HELD);
	}
	each_line(monitor, count_renewal);
	printf("renewal: %lld and %lld round trips, %d and %d renewals in 3 periods\n",
	       (long long)turns[0], (long long)turns[1], lock_renewals, semaphore_renewals);
	ck_assert(lock_renewals >= 2 * HOLDS && lock_renewals <= 4 * HOLDS);
	ck_assert(semaphore_renewals >= 2 * HOLDS && semaphore_renewals <= 4 * HOLDS);
	for (int i = 0; i < 2; i++) {
		proxy_heal(&proxies[i]);
		OK(lk_client_close(clients[i]));
	}
	monitor_close(monitor);
	ck_assert(noun_semaphore.at_rest(redis, "a"));
	ck_assert_int_le(redis_size(redis), 2);
}

/* ---- After the end ------------------------------------------------------------------------ */

enum { RACERS = 8, RACES = 40 };

static const struct noun *raced;
static char released[RACERS * RACES][LK_HOLDER_ID_SIZE];
static int released_count, renewals;

/* Hold for about the time of a renewal, release, and leave a mark in the server's stream. */
static void *race_renewal(void *arg)
{
	lk_client *client = client_at(test_store_server.unix_url);
	struct redis *mine = STORE.look();
	char name[16], id[LK_HOLDER_ID_SIZE];
	void *handle;

	/* Permits of the same semaphore, as they are enough for all. */
	snprintf(name, sizeof(name), "race-%d", raced == &noun_lock ? (int)(intptr_t)arg : 0);
	handle = noun_open(raced, client, name,
	                   (struct noun_options){.lease_ms = 100, .capacity = RACERS});
	for (int i = 0; i < RACES; i++) {
		uint64_t hold = 0;
		lk_err err;
		OK(raced->acquire(handle, 1, 1000, &hold));
		memcpy(id, noun_snapshot(raced, handle, hold).holder_id, sizeof(id));
		nap_ms(28 + i % 10);
		err = raced->release(handle, hold); /* on a busy machine a lease may have expired */
		ck_assert(err == LK_OK || err == LK_ELOST);
		redis_do(mine, "ECHO released:%s", id);
	}
	redis_close(mine);
	OK(lk_client_close(client));
	return NULL;
}

static void check_renewal(const char *line)
{
	const char *mark = strstr(line, "\"released:");

	if (mark) {
		ck_assert_int_lt(released_count, RACERS * RACES);
		sscanf(mark + 10, "%39[^\"]", released[released_count++]);
	} else if (strstr(line, raced->renew->sha1)) {
		renewals++;
		for (int i = 0; i < released_count; i++)
			ck_assert_msg(!strstr(line, released[i]), "renewed after its release: %s",
			              line);
	}
}

TEST_NOUN(c25_released_hold_is_never_renewed, 60, 0)
{
	pthread_t threads[RACERS];
	struct monitor *monitor;

	raced = noun;
	OK(lk_client_close(set_up()));
	monitor = monitor_open(&test_store_server);
	for (int i = 0; i < RACERS; i++)
		pthread_create(&threads[i], NULL, race_renewal, (void *)(intptr_t)i);
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	nap_ms(100);
	each_line(monitor, check_renewal);
	ck_assert_int_eq(released_count, RACERS * RACES);
	ck_assert_int_gt(renewals, 50); /* otherwise there was no race */
	monitor_close(monitor);
}

/* ---- The process ---------------------------------------------------------------------------- */

static int idle(void *arg, int in, int out)
{
	lk_client *client;
	lk_lock *lock;
	int64_t before;
	int threads;

	(void)arg;
	if (!line_read(in, 10000))
		return 2;
	before = proc_socket_count(0);
	threads = proc_thread_count(0);
	client = client_at(url);
	lock = lock_named(client, "idle");
	OK(lk_lock_acquire(lock, 1000, NULL));
	OK(lk_lock_release(lock));
	/* Threads for look-ups and connects end soon; the thread sanitizer has one of its own. */
	WITHIN(1000, proc_thread_count(0) - threads <= 1);
	line_write(out, "%d %d", (int)(proc_socket_count(0) - before),
	           proc_thread_count(0) - threads);
	return line_read(in, 20000) ? 0 : 3;
}

TEST(idle_client_costs_two_connections_and_a_thread)
{
	struct process worker;
	int sockets, threads;
	int64_t cpu_ms;
	long long connected;

	url = STORE.start();
	process_start(&worker, idle, NULL);
	redis = STORE.look();
	connected = redis_info(redis, "connected_clients");
	line_write(worker.in, "go");
	ck_assert_int_eq(sscanf(line_read(worker.out, 10000), "%d %d", &sockets, &threads), 2);
	ck_assert_int_eq(sockets, 2);
	ck_assert_int_ge(threads, 1);
	ck_assert_int_le(threads, 1 + 2 * TSAN);
	ck_assert_int_eq(redis_info(redis, "connected_clients") - connected, 2);
	cpu_ms = proc_cpu_ms(worker.pid);
	nap_ms(3000);
	cpu_ms = proc_cpu_ms(worker.pid) - cpu_ms;
	ck_assert_msg(cpu_ms <= (TSAN || ASAN ? 60 : 10), "%lld ms in 3 s", (long long)cpu_ms);
	line_write(worker.in, "end");
	ck_assert(process_succeeded(&worker, 5000));
}

/* The probe, and the question for the marker of the server's memory; a server that has the scripts
 * gets no text. */
TEST(connecting_to_a_known_server_runs_two_scripts)
{
	long long texts, digests;

	url = STORE.start();
	redis = STORE.look();
	OK(lk_client_close(client_at(url)));
	texts = redis_calls(redis, "eval") + redis_calls(redis, "script|load");
	digests = redis_calls(redis, "evalsha");
	OK(lk_client_close(client_at(url)));
	ck_assert_int_eq(redis_calls(redis, "eval") + redis_calls(redis, "script|load"), texts);
	ck_assert_int_eq(redis_calls(redis, "evalsha") - digests, 2);
}

static size_t heap_bytes(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

TEST_LIMIT(idle_lock_costs_512_bytes_and_a_held_one_768, 60)
{
	static lk_lock *locks[HOLDS];
	lk_client *client;
	size_t empty, open, held;

	OK(lk_client_close(set_up()));
	client = client_at(test_store_server.unix_url);
	empty = heap_bytes();
	for (int i = 0; i < HOLDS; i++) {
		char name[40];
		snprintf(name, sizeof(name), "a-name-of-thirty-two-bytes-%05d", i);
		ck_assert_uint_eq(strlen(name), 32);
		locks[i] = lock_named(client, name);
	}
	open = heap_bytes();
	for (int i = 0; i < HOLDS; i++)
		OK(lk_lock_acquire(locks[i], 1000, NULL));
	held = heap_bytes();
	printf("heap: %zu bytes an open lock, %zu a held one\n", (open - empty) / HOLDS,
	       (held - empty) / HOLDS);
	if (!TSAN && !ASAN) {
		ck_assert_uint_le((open - empty) / HOLDS, 512);
		ck_assert_uint_le((held - empty) / HOLDS, 768);
	}
	OK(lk_client_close(client));
}
