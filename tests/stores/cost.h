/* SPDX-License-Identifier: MIT
 * How many requests calls take, on any store. */
#ifndef STORES_COST_H
#define STORES_COST_H

#include "stores/set_up.h"
#include "harness/latch_watch.h"
#include "harness/permit_watch.h"

/* Use the handle once, and wait for the client's description, which is sent in the background: then
 * the store has all that a pair of calls needs. */
static void warm_up(const struct noun *noun, void *handle)
{
	uint64_t hold = noun_hold(noun, handle, 5000);

	ck_assert(WITHIN(2000, noun_status(noun, handle).holder.host[0] != 0));
	OK(noun->release(handle, hold));
}

TEST_NOUN(acquire_and_release_take_two_requests, 20, 0)
{
	lk_client *client = set_up();
	void *handle = noun_named(noun, client, "a");
	long long before;

	warm_up(noun, handle);
	before = STORE.requests();
	for (int i = 0; i < 100; i++)
		OK(noun->release(handle, noun_hold(noun, handle, 1000)));
	ck_assert_int_eq(STORE.requests() - before, 200);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(noun->state(handle, 1), LK_STATE_NONE);
		EXPECT(noun->release(handle, 1), LK_ENOTOWNER);
	}
	ck_assert_int_eq(STORE.requests() - before, 200);
	/* The text of a script is sent once, to a store that does not have it yet. */
	if (redis)
		ck_assert_int_le(redis_calls(redis, "eval"), 6);
	OK(lk_client_close(client));
}

TEST_STORE(partial_release_and_query_take_one_request_each, 20, STORE_SEMAPHORES)
{
	lk_client *client = set_up();
	lk_semaphore *semaphore = semaphore_of(client, "a", NOUN_CAPACITY, 0);
	lk_semaphore_status status;
	long long before;
	uint64_t hold;

	warm_up(&noun_semaphore, semaphore);
	before = STORE.requests();
	hold = permits_of(semaphore, 3, 0);
	OK(lk_semaphore_release_some(semaphore, hold, 1));
	OK(lk_semaphore_release(semaphore, hold));
	OK(lk_semaphore_query(semaphore, &status));
	ck_assert_int_eq(STORE.requests() - before, 4);
	OK(lk_client_close(client));
}

static int64_t requests_of(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.requests;
}

/* Clients wait for 5 s at the same time: for a lock, for permits of which none is free, for more
 * permits than are free, and for a latch. */
TEST_STORE(wait_of_5_s_takes_at_most_3_requests, 30,
           STORE_LOCKS | STORE_SEMAPHORES | STORE_LATCHES | STORE_KEYS)
{
	static const struct {
		const struct noun *noun;
		const char *name;
		int64_t held;
	} cases[] = {{&noun_lock, "lock", 1},
	             {&noun_semaphore, "none", NOUN_CAPACITY},
	             {&noun_semaphore, "few", NOUN_ALONE}};
	enum { HOLDS = 3, CLIENTS = HOLDS + 2 };
	lk_client *clients[CLIENTS] = {set_up()};
	struct noun_wait waits[HOLDS];
	uint64_t holds[HOLDS];
	void *held[HOLDS];
	struct awaiter awaiter;
	lk_latch *latch = latch_named(clients[0], "latch");
	long long executed, subscribed, pings;
	int64_t sent = 0;

	OK(lk_latch_set(latch, 1, NULL));
	for (int i = 0; i < HOLDS; i++) {
		held[i] = noun_named(cases[i].noun, clients[0], cases[i].name);
		OK(cases[i].noun->acquire(held[i], cases[i].held, 0, &holds[i]));
	}
	for (int i = 1; i < CLIENTS; i++)
		clients[i] = client_at(url);
	for (int i = 0; i < CLIENTS; i++)
		sent -= requests_of(clients[i]);
	executed = STORE.requests();
	subscribed = redis_calls(redis, "subscribe");
	pings = redis_calls(redis, "ping");
	for (int i = 0; i < HOLDS; i++)
		noun_wait_start(&waits[i], cases[i].noun,
		                noun_named(cases[i].noun, clients[i + 1], cases[i].name), 20000,
		                false);
	awaiter_start(&awaiter, latch_named(clients[HOLDS + 1], "latch"), 20000);
	nap_ms(5000);
	ck_assert_int_le(redis_calls(redis, "subscribe") - subscribed, 1); /* to the latch */
	/* Pings check connections; they are no part of a wait. */
	ck_assert_int_le(redis_calls(redis, "ping") - pings, 4 * CLIENTS);
	for (int i = 0; i < HOLDS; i++)
		OK(cases[i].noun->release(held[i], holds[i]));
	latch_down(latch, 1, NULL);
	for (int i = 0; i < HOLDS; i++)
		OK(noun_wait_join(&waits[i]));
	OK(awaiter_join(&awaiter));
	/* Its asks and its release. */
	for (int i = 1; i < CLIENTS; i++)
		ck_assert_int_le(requests_of(clients[i]), 3);
	ck_assert_int_le(requests_of(clients[HOLDS + 1]), 2);
	/* The store executed what the clients count, a description of each of them, and two
	 * openings of a semaphore. */
	for (int i = 0; i < CLIENTS; i++)
		sent += requests_of(clients[i]);
	ck_assert_int_ge(STORE.requests() - executed, sent);
	ck_assert_int_le(STORE.requests() - executed, sent + CLIENTS + 2);
	for (int i = 0; i < CLIENTS; i++)
		OK(lk_client_close(clients[i]));
}

#endif
