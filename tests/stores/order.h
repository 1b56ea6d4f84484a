/* SPDX-License-Identifier: MIT
 * Fairness of locks and semaphores on any store: clients are served FIFO, dead ones are skipped at
 * once, and the threads of one client do not starve others. */
#ifndef STORES_ORDER_H
#define STORES_ORDER_H

#include "stores/set_up.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#define WAITERS_MAX 100
/* The limit between the ends of two holds with dead waiters between them; a claim window is 3 s. */
#define SKIP_MS_MAX 500

/* In memory that processes share. */
struct service {
	const struct noun *noun;
	atomic_int served;
	struct {
		int number;
		uint64_t fence;
		int64_t released_ms;
	} order[WAITERS_MAX];
};

static struct service *service;

static void service_start(const struct noun *noun)
{
	service = mmap(NULL, sizeof(*service), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	               -1, 0);
	ck_assert_ptr_ne(service, MAP_FAILED);
	service->noun = noun;
	url = STORE.start();
	redis = STORE.look();
}

/* Acquire, record it, release. */
static void wait_and_release(lk_client *client, int number)
{
	void *handle = noun_named(service->noun, client, "a");
	int64_t size = number % 3 + 1; /* several holds of a semaphore fit, but not all */
	uint64_t fence = 0;
	int turn;

	OK(service->noun->acquire(handle, size, LK_FOREVER, &fence));
	turn = service->served++;
	service->order[turn].number = number;
	service->order[turn].fence = fence;
	service->order[turn].released_ms = now_ms();
	OK(service->noun->release(handle, fence));
}

static void *wait_in_thread(void *arg)
{
	lk_client *client = client_at(url);

	wait_and_release(client, (int)(intptr_t)arg);
	OK(lk_client_close(client));
	return NULL;
}

static int wait_in_process(void *arg, int in, int out)
{
	lk_client *client;

	(void)out;
	if (!line_read(in, 60000))
		return 2;
	client = client_at(url);
	wait_and_release(client, (int)(intptr_t)arg);
	return lk_client_close(client) != LK_OK;
}

static int by_fence(const void *one, const void *other)
{
	const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return a < b ? -1 : a > b;
}

/* All but the dead were served FIFO, and no waiter waited for a dead one. */
static void check_order(int count, const bool *dead, int64_t released_ms)
{
	uint64_t fences[WAITERS_MAX];
	int next = 0;

	for (int i = 0; i < service->served; i++)
		fences[i] = service->order[i].fence;
	qsort(fences, (size_t)service->served, sizeof(fences[0]), by_fence);
	for (int i = 0; i < service->served; i++) {
		int turn = 0;
		while (service->order[turn].fence != fences[i])
			turn++;
		while (dead && next < count && dead[next])
			next++;
		ck_assert_int_eq(service->order[turn].number, next++);
		ck_assert_msg(!dead ||
		                      service->order[turn].released_ms - released_ms <= SKIP_MS_MAX,
		              "waited %lld ms for a dead one",
		              (long long)(service->order[turn].released_ms - released_ms));
		released_ms = service->order[turn].released_ms;
	}
	while (dead && next < count && dead[next])
		next++;
	ck_assert_int_eq(next, count);
}

TEST_NOUN(clients_are_served_in_order, 60, 0)
{
	enum { CLIENTS = 8 };
	pthread_t threads[CLIENTS];
	lk_client *client;
	int64_t released_ms;
	uint64_t hold;
	void *handle;

	service_start(noun);
	client = client_at(url);
	handle = noun_named(noun, client, "a");
	OK(noun->acquire(handle, NOUN_CAPACITY, 0, &hold));
	for (int i = 0; i < CLIENTS; i++) {
		pthread_create(&threads[i], NULL, wait_in_thread, (void *)(intptr_t)i);
		ck_assert(WITHIN(10000, noun_status(noun, handle).queue_len == i + 1));
	}
	released_ms = now_ms();
	OK(noun->release(handle, hold));
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(threads[i], NULL);
	check_order(CLIENTS, NULL, released_ms);
	ck_assert(is_at_rest(noun, handle));
	OK(lk_client_close(client));
}

/* Processes that wait; so many of them are killed before the release. */
static void serve_processes(const struct noun *noun, int count, int kills)
{
	unsigned short seed[3] = {(unsigned short)test_seed(), (unsigned short)(test_seed() >> 16),
	                          7};
	struct process workers[WAITERS_MAX];
	bool dead[WAITERS_MAX] = {false};
	lk_client *client;
	int64_t released_ms;
	uint64_t hold;
	void *handle;

	service_start(noun);
	for (int i = 0; i < count; i++)
		process_start(&workers[i], wait_in_process, (void *)(intptr_t)i);
	client = client_at(url);
	handle = noun_named(noun, client, "a");
	OK(noun->acquire(handle, NOUN_CAPACITY, 0, &hold));
	for (int i = 0; i < count; i++) {
		line_write(workers[i].in, "go");
		ck_assert(WITHIN(10000, noun_status(noun, handle).queue_len == i + 1));
	}
	for (int killed = 0; killed < kills;) {
		int i = (int)(nrand48(seed) % count);
		if (dead[i])
			continue;
		killed++;
		dead[i] = true;
		process_kill(&workers[i]);
	}
	released_ms = now_ms();
	OK(noun->release(handle, hold));
	for (int i = 0; i < count; i++)
		ck_assert_msg(dead[i] || process_succeeded(&workers[i], 20000), "worker %d", i);
	check_order(count, kills ? dead : NULL, released_ms);
	ck_assert(is_at_rest(noun, handle));
	OK(lk_client_close(client));
}

TEST_NOUN(fifty_processes_are_served_in_order, 90, STORE_SHARED)
{
	serve_processes(noun, 50, 0);
}

TEST_NOUN(thirty_dead_of_a_hundred_waiters_are_skipped_at_once, 120, STORE_SHARED | STORE_SKIPS)
{
	serve_processes(noun, 100, 30);
}

/* ---- A crowd of local threads --------------------------------------------------------------- */

/* Local threads that contend without a pause.  A thread holds until another one wants it, too, up
 * to a limit: otherwise a store that responds at once would get a request for each round of a lone
 * thread. */
struct crowd {
	const struct noun *noun;
	lk_client *client;
	pthread_t threads[4];
	atomic_bool ends;
	atomic_int rounds, wants;
};

static void *crowd_thread(void *arg)
{
	struct crowd *crowd = arg;
	void *handle = noun_named(crowd->noun, crowd->client, "a");

	while (!crowd->ends) {
		uint64_t hold;
		crowd->wants++;
		hold = noun_hold(crowd->noun, handle, LK_FOREVER);
		crowd->wants--;
		crowd->rounds++;
		for (int i = 0; i < 10000 && !crowd->ends && crowd->wants < 3; i++)
			sched_yield();
		OK(crowd->noun->release(handle, hold));
	}
	return NULL;
}

static void crowd_start(struct crowd *crowd, const struct noun *noun)
{
	*crowd = (struct crowd){.noun = noun, .client = client_at(url)};
	for (int i = 0; i < 4; i++)
		pthread_create(&crowd->threads[i], NULL, crowd_thread, crowd);
	ck_assert(WITHIN(5000, crowd->rounds > 200));
}

static void crowd_end(struct crowd *crowd)
{
	crowd->ends = true;
	for (int i = 0; i < 4; i++)
		pthread_join(crowd->threads[i], NULL);
	OK(lk_client_close(crowd->client));
}

TEST_STORE(local_crowd_hands_over_without_requests, 20, STORE_LOCKS | STORE_HANDS_OVER)
{
	long long before, requests;
	struct crowd crowd;
	int rounds;

	url = STORE.start();
	crowd_start(&crowd, &noun_lock);
	rounds = crowd.rounds;
	before = STORE.requests();
	ck_assert(WITHIN(10000, crowd.rounds > rounds + 2000));
	requests = STORE.requests() - before;
	crowd_end(&crowd);
	ck_assert_msg(requests < 1000, "%lld requests for 2,000 rounds", requests);
}

/* Each acquisition takes less than a second. */
static void acquire_often(const struct noun *noun)
{
	lk_client *client = client_at(url);
	void *handle = noun_named(noun, client, "a");

	for (int i = 0; i < 20; i++)
		OK(noun->release(handle, noun_hold(noun, handle, 1000)));
	OK(lk_client_close(client));
}

TEST_NOUN(local_crowd_lets_another_client_in, 60, 0)
{
	struct crowd crowd;

	url = STORE.start();
	crowd_start(&crowd, noun);
	acquire_often(noun);
	crowd_end(&crowd);
}

static int acquire_in_process(void *noun, int in, int out)
{
	(void)out;
	if (!line_read(in, 20000))
		return 2;
	acquire_often(noun);
	return 0;
}

TEST_NOUN(local_crowd_lets_another_process_in, 60, STORE_SHARED)
{
	struct process worker;
	struct crowd crowd;

	url = STORE.start();
	process_start(&worker, acquire_in_process, (void *)(intptr_t)noun);
	crowd_start(&crowd, noun);
	line_write(worker.in, "go");
	ck_assert(process_succeeded(&worker, 30000));
	crowd_end(&crowd);
}

#endif
