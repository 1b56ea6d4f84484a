/* SPDX-License-Identifier: MIT
 * Ends of waits (C7, C8 of the fault list): a wait times out while its grant is in flight, or is
 * cancelled in each of its states.  It holds, or it has left nothing. */
#include "harness/permit_watch.h"
#include "harness/primitive.h"
#include "harness/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

/* A wait that ended with err either holds or not; the store agrees in any case. */
static void settle(struct claim *claim, lk_err other_end)
{
	lk_err err = claim_join(claim);

	ck_assert_msg(err == LK_OK || err == other_end, "%s: %s", claim->name, lk_err_name(err));
	ck_assert_int_eq(claim->primitive->state(claim),
	                 err == LK_OK ? LK_STATE_HELD : LK_STATE_NONE);
	EXPECT(claim->primitive->release(claim), err == LK_OK ? LK_OK : LK_ENOTOWNER);
	/* A grant without a holder is left at once, not kept for its lease. */
	ck_assert(WITHIN(500, claim->primitive->is_at_rest(claim->name)));
}

static void settle_each(struct claims *claims)
{
	EACH (claim, claims)
		settle(claim, LK_ECANCELED);
}

static void cancel_each(struct claims *claims)
{
	EACH (claim, claims)
		OK(claim->primitive->cancel(claim));
}

/* ---- C7: the end of a wait races the grant ------------------------------------------------ */

/* Parallel lanes, each with its own name, since most of the time is waiting. */
#define RACES 4
#define ROUNDS 50

struct race {
	char name[24];
	struct claim held, waits;
	int got, missed;
	pthread_t thread;
};

static void *race_thread(void *arg)
{
	struct race *race = arg;
	struct claim *held = &race->held, *waits = &race->waits;

	redis = redis_open(&server);
	for (int i = 0; i < ROUNDS; i++) {
		struct timespec until;
		int64_t ns;
		OK(held->primitive->hold(held, 0));
		clock_gettime(CLOCK_MONOTONIC, &until);
		waits->fence = 0;
		claim_start(waits, 20, true);
		/* Around the end of the wait, a little earlier or later each time. */
		ns = until.tv_nsec + 18500000 + i % 25 * 80000;
		until.tv_sec += ns / 1000000000;
		until.tv_nsec = ns % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		OK(held->primitive->release(held));
		settle(waits, LK_ETIMEDOUT);
		race->got += waits->err == LK_OK;
		race->missed += waits->err != LK_OK;
	}
	redis_close(redis);
	return NULL;
}

static void race_time_out(unsigned set, bool fixed)
{
	static struct race races[PRIMITIVES][RACES];

	fault_set_up(NULL);
	for (int row = 0; row < PRIMITIVES; row++) {
		for (int i = 0; i < RACES && set & 1u << row; i++) {
			struct race *race = &races[row][i];
			snprintf(race->name, sizeof(race->name), "%s%d", primitives[row].name, i);
			claim_init(&race->held, row, client_at(server.url), race->name, 0);
			claim_init(&race->waits, row, client_at(server.url), race->name, 0);
			race->waits.fixed = fixed; /* its grants by message must be claimed */
			OK(primitives[row].open(&race->held, true));
			OK(primitives[row].open(&race->waits, true));
			pthread_create(&race->thread, NULL, race_thread, race);
		}
	}
	for (int row = 0; row < PRIMITIVES; row++) {
		int got = 0, missed = 0;
		if (!(set & 1u << row))
			continue;
		for (int i = 0; i < RACES; i++) {
			pthread_join(races[row][i].thread, NULL);
			got += races[row][i].got;
			missed += races[row][i].missed;
		}
		printf("%s: %d granted, %d timed out\n", primitives[row].name, got, missed);
		ck_assert(got && missed);
	}
}

TEST_OF(c7_time_out_that_races_a_grant_ends_one_way, LEASED, 60)
{
	race_time_out(set, false);
}

TEST_OF(c7_time_out_that_races_a_claim_ends_one_way, LEASED, 60)
{
	race_time_out(set, true);
}

/* ---- C8: cancel in each state ------------------------------------------------------------- */

TEST_OF(c8_cancel_before_the_ask_is_answered, LEASED, 20)
{
	const struct proxy_fault late = {.delay_ms = 300};
	struct claims waits;
	lk_client *far;

	fault_set_up_proxy();
	far = far_client(0);
	claims_warm_up(set, far);
	claims_open(&waits, set, far, 0);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	claims_start(&waits, LK_FOREVER, true);
	ck_assert(WITHIN(1000, claims_in_use(set))); /* granted, answer late */
	cancel_each(&waits);
	settle_each(&waits);
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
}

/* Another client holds all, and a wait of one behind the proxy is queued. */
static void queue_one(unsigned set, struct claims *held, struct claims *waits, int64_t lease_ms)
{
	fault_set_up_proxy();
	claims_hold(held, set, client_at(server.url), 0);
	claims_queue(waits, set, far_client(0), lease_ms, true);
}

TEST_OF(c8_cancel_while_queued, EVERY, 20)
{
	struct claims held, waits;

	queue_one(set, &held, &waits, 0);
	cancel_each(&waits);
	claims_join(&waits, LK_ECANCELED);
	ck_assert(claims_waiting(set & LEASED, 0)); /* the store has confirmed it */
	claims_release(&held);
	ck_assert(claims_at_rest(set));
}

TEST(c8_cancel_of_the_head_grants_a_smaller_one_behind_it)
{
	struct permit_wait wait, small;
	lk_semaphore *held;
	uint64_t hold;

	fault_set_up_proxy();
	held = semaphore_of(client_at(server.url), "a", 6, 0);
	hold = permits_of(held, 4, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(client_at(proxy.url), "a", 6, 0), 3,
	                  true);
	permit_wait_queue(&small, redis, "a", semaphore_of(client_at(server.url), "a", 0, 0), 2,
	                  false);
	OK(lk_semaphore_cancel(wait.semaphore));
	EXPECT(permit_wait_join(&wait), LK_ECANCELED);
	OK(permit_wait_join(&small));
	ck_assert_int_le(small.took_ms, 1000);
	ck_assert_int_eq(permits_queue(redis, "a"), 0);
	OK(lk_semaphore_release(held, hold));
	ck_assert(permits_at_rest(redis, "a", 6));
}

TEST_OF(c8_cancel_while_the_grant_is_on_its_way, LEASED, 20)
{
	const struct proxy_fault late = {.delay_ms = 300};
	struct claims held, waits;

	queue_one(set, &held, &waits, 0);
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &late);
	claims_release(&held);
	cancel_each(&waits);
	settle_each(&waits);
	nap_ms(400); /* the message arrives, too late to matter */
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_MESSAGES][PROXY_TO_CLIENT], 0);
	ck_assert(claims_at_rest(set));
	EACH (claim, &waits)
		ck_assert_int_eq(claim->primitive->state(claim), LK_STATE_NONE);
}

TEST_OF(c8_cancel_while_the_grant_is_being_claimed, LEASED, 20)
{
	const struct proxy_fault late = {.delay_ms = 200};
	struct claims held, waits;

	queue_one(set, &held, &waits, 600);
	nap_ms(400); /* older than its claim window: the grant must be claimed */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	claims_release(&held);
	nap_ms(50);
	cancel_each(&waits);
	settle_each(&waits);
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
}

TEST_OF(c8_cancel_while_the_link_is_down, EVERY, 20)
{
	struct claims held, waits;
	int64_t start_ms;

	queue_one(set, &held, &waits, 1000);
	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert(WITHIN(2000, proxy_count(&proxy).refused > 0));
	start_ms = now_ms();
	cancel_each(&waits);
	EACH (claim, &waits) {
		lk_err err = claim_join(claim);
		/* Without confirmation it must not report that nothing is left behind. */
		ck_assert_msg(err == LK_EUNKNOWN || err == LK_ECANCELED, "%s: %s", claim->name,
		              lk_err_name(err));
	}
	ck_assert_int_le(now_ms() - start_ms, 2000 + 300);
	proxy_heal(&proxy);
	ck_assert(WITHIN(8000, claims_waiting(set & LEASED, 0)));
	claims_release(&held);
	ck_assert(WITHIN(1500, claims_at_rest(set)));
}

TEST(c8_cancel_in_the_line_inside_the_process)
{
	struct waiter first, second;
	lk_client *client;
	lk_lock *held, *lock;

	fault_set_up(NULL);
	client = client_at(server.url);
	held = lock_of_handle(client, "a", 0);
	lock = lock_of_handle(client, "a", 0);
	OK(lk_lock_acquire(held, 0, NULL));
	waiter_start(&first, lock, LK_FOREVER, true);
	waiter_start(&second, lock_of_handle(client, "a", 0), LK_FOREVER, true);
	nap_ms(100);
	OK(lk_lock_cancel(lock));
	EXPECT(waiter_join(&first), LK_ECANCELED);
	OK(lk_lock_release(held));
	OK(waiter_join(&second));
	OK(lk_lock_release(second.lock));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
}
