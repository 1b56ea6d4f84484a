/* SPDX-License-Identifier: MIT
 * The number of allocations of an operation, in all threads of the process and in hiredis' reader,
 * so that an increase fails a test.  The cheapest of several turns counts: allocations caused by
 * the clock are left out, those of the code are not.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
 * LDFLAGS: -Wl,-u,redisReaderCreateWithFunctions -l:libhiredis.a
 */
#include "harness/counted_memory.h"
#include "harness/handles.h"
#include "harness/operations.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EACH 100 /* hand-overs a turn */
#define TURNS 6
#define LOCKS 200

static struct test_server server;
static lk_client *client;

static void set_up(void)
{
	server_start(&server, NULL);
	client = client_at(server.url);
}

/* Return the allocations of the cheapest turn, per operation. */
static double cost_of(const char *what, void (*work)(void *), void *arg, int each)
{
	long best = -1;

	work(arg); /* buffers grow, the server caches the scripts */
	for (int i = 0; i < TURNS; i++) {
		long before = atomic_load(&asked), cost;
		work(arg);
		cost = atomic_load(&asked) - before;
		if (best < 0 || cost < best)
			best = cost;
	}
	printf("%s: %.2f requests for memory\n", what, (double)best / each);
	return (double)best / each;
}

TEST(operations_ask_for_memory_as_listed)
{
	set_up();
	for (const struct operation *each = operations; each->name; each++) {
		double cost = cost_of(each->name, each->run, each->open(client), OPERATIONS_EACH);
		ck_assert_msg(cost <= each->allocations, "%s: %.2f requests for memory, not %.2f",
		              each->name, cost, each->allocations);
	}
}

static void *pass_on(void *lock)
{
	for (int i = 0; i < EACH / 2; i++) {
		DO(lk_lock_acquire(lock, LK_FOREVER, NULL));
		nap_ms(1);
		DO(lk_lock_release(lock));
	}
	return NULL;
}

static void let_them_pass(void *lock)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		ck_assert(!pthread_create(&threads[i], NULL, pass_on, lock));
	for (int i = 0; i < 2; i++)
		ck_assert(!pthread_join(threads[i], NULL));
}

/* An unneeded ticket, a hold; some responses, and the threads. */
TEST(hand_over_between_threads_asks_for_memory_twice)
{
	set_up();
	ck_assert_double_le(cost_of("hand-over", let_them_pass, lock_named(client, "a"), EACH),
	                    2.5);
}

static void let_time_pass(void *arg)
{
	(void)arg;
	nap_ms(1000);
}

/* The response. */
TEST_LIMIT(renewal_asks_for_memory_once, 60)
{
	set_up();
	for (int i = 0; i < LOCKS; i++) {
		char name[32];
		snprintf(name, sizeof(name), "held-%d", i);
		OK(lk_lock_acquire(lock_leased(client, name, 1500), 1000, NULL));
	}
	/* A turn has two periods, perhaps a little of a third. */
	ck_assert_double_le(cost_of("renewal", let_time_pass, NULL, 2 * LOCKS), 1.5);
	OK(lk_client_close(client));
}
