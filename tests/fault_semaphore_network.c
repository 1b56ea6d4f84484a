/* SPDX-License-Identifier: MIT
 * Network faults that concern permits only (N2, N4, N10 of the fault list): releases and resizes
 * whose answers never arrive.  fault_network.c has the others. */
#include "harness/fault.h"
#include "harness/permit_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct proxy_fault dropped = {.drop = true};

/* From now on requests arrive and answers do not. */
static void lose_answers(void)
{
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &dropped);
}

static void expect_lost_answers(void)
{
	ck_assert(WITHIN(500, proxy_count(&proxy).dropped[PROXY_COMMANDS][PROXY_TO_CLIENT] > 0));
}

/* ---- N2: answers that never arrive -------------------------------------------------------- */

TEST(n2_release_without_an_answer_is_unknown_and_done)
{
	lk_semaphore *semaphore;
	lk_client *far;
	uint64_t hold;

	fault_set_up_proxy();
	far = far_client(400);
	semaphore = semaphore_of(far, "a", 4, 10000);
	/* The server has the scripts and the client's description. */
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 1000)));
	hold = permits_of(semaphore, 3, 1000);
	nap_ms(50);
	lose_answers();
	EXPECT(lk_semaphore_release(semaphore, hold), LK_EUNKNOWN);
	expect_lost_answers();
	EXPECT(lk_semaphore_release(semaphore, hold), LK_ENOTOWNER);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_NONE);
	ck_assert_int_eq(permits_used(redis, "a"), 0);
	proxy_heal(&proxy);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 4, 5000)));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(far));
}

/* In both cases: the request is lost, or its answer. */
TEST(n2_partial_release_without_an_answer_is_repeated_until_confirmed)
{
	fault_set_up_proxy();
	for (int way = 0; way < PROXY_WAYS; way++) {
		lk_client *far = far_client(400);
		lk_semaphore *semaphore = semaphore_of(far, "a", 5, 2400);
		uint64_t hold;

		OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 1000)));
		hold = permits_of(semaphore, 5, 1000);
		nap_ms(50);
		proxy_set(&proxy, PROXY_COMMANDS, (enum proxy_way)way, &dropped);
		EXPECT(lk_semaphore_release_some(semaphore, hold, 2), LK_EUNKNOWN);
		ck_assert_int_eq(hold_in(semaphore, hold).count, 3); /* no more from now on */
		EXPECT(lk_semaphore_release_some(semaphore, hold, 4), LK_ELIMIT);
		ck_assert_int_gt(proxy_count(&proxy).dropped[PROXY_COMMANDS][way], 0);
		ck_assert_int_eq(permits_used(redis, "a"), way == PROXY_TO_SERVER ? 5 : 3);
		proxy_heal(&proxy);
		ck_assert(WITHIN(3500, permits_used(redis, "a") == 3));
		ck_assert_int_eq(hold_in(semaphore, hold).count, 3);
		ck_assert(WITHIN(1000, lk_semaphore_state(semaphore, hold) == LK_STATE_HELD));
		nap_ms(900); /* a renewal is over */
		ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
		ck_assert_int_eq(permits_used(redis, "a"), 3);
		permits_add_up(redis, "a");
		OK(lk_semaphore_release_some(semaphore, hold, 1));
		ck_assert_int_eq(permits_used(redis, "a"), 2);
		OK(lk_semaphore_release(semaphore, hold));
		ck_assert(permits_at_rest(redis, "a", 5));
		OK(lk_client_close(far));
	}
}

TEST(n2_resize_without_an_answer_is_unknown_and_may_have_happened)
{
	lk_semaphore *semaphore;
	lk_semaphore_status status;
	lk_client *far;

	fault_set_up_proxy();
	far = far_client(400);
	semaphore = semaphore_of(far, "a", 4, 0);
	nap_ms(50);
	lose_answers();
	EXPECT(lk_semaphore_resize(semaphore, 6), LK_EUNKNOWN);
	expect_lost_answers();
	proxy_heal(&proxy);
	ck_assert(WITHIN(3000, lk_semaphore_query(semaphore, &status) == LK_OK));
	ck_assert_int_eq(status.capacity, 6);
	OK(lk_semaphore_resize(semaphore, 6)); /* repeating it is harmless */
	ck_assert(permits_at_rest(redis, "a", 6));
	OK(lk_client_close(far));
}

/* ---- N4: no link at all ------------------------------------------------------------------ */

TEST(n4_calls_without_a_link_say_so_and_are_made_good)
{
	lk_semaphore *semaphore, *closed = NULL;
	lk_semaphore_status status;
	lk_client *far;
	uint64_t holds[2], got = 77;

	fault_set_up_proxy();
	far = far_client(400);
	semaphore = semaphore_of(far, "a", 5, 5000);
	holds[0] = permits_of(semaphore, 3, 1000);
	holds[1] = permits_of(semaphore, 2, 1000);
	nap_ms(50);
	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert(WITHIN(2000, lk_semaphore_state(semaphore, holds[0]) == LK_STATE_UNSURE));
	ck_assert(WITHIN(2000, proxy_count(&proxy).refused > 0));
	EXPECT(lk_semaphore_acquire(semaphore, 1, 200, &got), LK_ECONN);
	EXPECT(lk_semaphore_query(semaphore, &status), LK_ECONN);
	EXPECT(lk_semaphore_resize(semaphore, 6), LK_ECONN);
	EXPECT(lk_semaphore_open(far, "b", 0, &(lk_semaphore_options){.capacity = 1}, &closed),
	       LK_ECONN);
	EXPECT(lk_semaphore_extend(semaphore, holds[0], 6000), LK_ECONN);
	ck_assert_ptr_null(closed);
	ck_assert_uint_eq(got, 77);
	EXPECT(lk_semaphore_release_some(semaphore, holds[0], 1), LK_EUNKNOWN);
	EXPECT(lk_semaphore_release_some(semaphore, holds[0], 1), LK_EUNKNOWN);
	ck_assert_int_eq(hold_in(semaphore, holds[0]).count, 1);
	EXPECT(lk_semaphore_release(semaphore, holds[1]), LK_EUNKNOWN);
	ck_assert_int_eq(permits_used(redis, "a"), 5);
	proxy_heal(&proxy);
	ck_assert(WITHIN(5000, permits_used(redis, "a") == 1));
	ck_assert(WITHIN(1000, lk_semaphore_state(semaphore, holds[0]) == LK_STATE_HELD));
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, holds[0]));
	ck_assert(permits_at_rest(redis, "a", 5));
	OK(lk_client_close(far));
}

/* ---- N10: links that come and go ---------------------------------------------------------- */

#define FLAPPERS 8
#define FLAP_CAPACITY 5
#define FLAP_MS 2500
#define FLAP_LONG_MS 60000 /* LK_LONG=1 */

/* The least that a thread holds: so many permits, at least until then.  Odd while it is written. */
struct claim {
	atomic_uint version;
	atomic_int permits;
	_Atomic int64_t until_ms;
	lk_semaphore *semaphore;
	int number;
};

static struct claim claims[FLAPPERS];
static atomic_bool flap_ends;
static atomic_int flap_grants, flap_failures, flap_losses;

static void claim(struct claim *mine, int64_t permits, int64_t until_ms)
{
	mine->version++;
	mine->permits = (int)permits;
	mine->until_ms = until_ms;
	mine->version++;
}

/* Acquire and release at random, whatever the links do. */
static void *flap_thread(void *arg)
{
	struct claim *mine = arg;
	unsigned short seed[3] = {(unsigned short)test_seed(), 10, (unsigned short)mine->number};

	while (!flap_ends) {
		int64_t start_ms = now_ms(), permits = 1 + nrand48(seed) % 3;
		uint64_t hold;
		lk_err err = lk_semaphore_acquire(mine->semaphore, permits, 1500, &hold);
		if (err) {
			flap_failures++;
			nap_ms(5);
			continue;
		}
		flap_grants++;
		start_ms = now_ms();
		claim(mine, permits, start_ms + hold_in(mine->semaphore, hold).remaining_ms);
		nap_ms(nrand48(seed) % 30);
		if (permits > 1) {
			claim(mine, permits - 1, mine->until_ms);
			lk_semaphore_release_some(mine->semaphore, hold, 1);
			nap_ms(nrand48(seed) % 10);
		}
		claim(mine, 0, 0);
		flap_losses += lk_semaphore_release(mine->semaphore, hold) == LK_ELOST;
	}
	return NULL;
}

/* The sum of the threads' permits at one moment; -1 if no consistent one was found. */
static int claimed(void)
{
	unsigned versions[FLAPPERS];
	int64_t until_ms = INT64_MAX;
	int sum = 0;

	for (int i = 0; i < FLAPPERS; i++) {
		versions[i] = claims[i].version;
		if (!claims[i].permits || claims[i].until_ms <= now_ms()) {
			versions[i] = 0;
			continue;
		}
		sum += claims[i].permits;
		if (claims[i].until_ms < until_ms)
			until_ms = claims[i].until_ms;
	}
	for (int i = 0; i < FLAPPERS; i++)
		if (versions[i] && (versions[i] % 2 || claims[i].version != versions[i]))
			return -1;
	return now_ms() < until_ms ? sum : -1;
}

TEST_LIMIT(n10_no_permit_is_out_twice_while_links_flap, 120)
{
	lk_client *clients[4];
	pthread_t threads[FLAPPERS];
	int64_t end_ms, next_ms;
	int most = 0, looks = 0;

	fault_set_up_proxy();
	for (int i = 0; i < 4; i++)
		clients[i] = far_client(300);
	for (int i = 0; i < FLAPPERS; i++) {
		claims[i].semaphore = semaphore_of(clients[i % 4], "a", FLAP_CAPACITY, 700);
		claims[i].number = i;
	}
	for (int i = 0; i < FLAPPERS; i++)
		pthread_create(&threads[i], NULL, flap_thread, &claims[i]);
	end_ms = now_ms() + (getenv("LK_LONG") ? FLAP_LONG_MS : FLAP_MS);
	next_ms = 0;
	for (int flap = 0; now_ms() < end_ms; looks++) {
		int sum = claimed();
		ck_assert_msg(sum <= FLAP_CAPACITY, "%d permits are held", sum);
		most = sum > most ? sum : most;
		if (now_ms() < next_ms)
			continue;
		proxy_cut(&proxy, flap % 3 ? PROXY_COMMANDS : PROXY_MESSAGES, flap % 2);
		next_ms = now_ms() + 100 + flap++ % 4 * 60;
	}
	flap_ends = true;
	for (int i = 0; i < FLAPPERS; i++)
		pthread_join(threads[i], NULL);
	printf("%d grants, %d failures, %d losses, %lld cuts, at most %d of %d held at once\n",
	       flap_grants, flap_failures, flap_losses, (long long)proxy_count(&proxy).cuts, most,
	       FLAP_CAPACITY);
	ck_assert_int_ge(proxy_count(&proxy).cuts, 10);
	ck_assert_int_gt(flap_grants, 20);
	ck_assert_int_ge(most, FLAP_CAPACITY - 1); /* otherwise nothing was observed */
	ck_assert(WITHIN(3000, permits_at_rest(redis, "a", FLAP_CAPACITY)));
	for (int i = 0; i < 4; i++)
		OK(lk_client_close(clients[i]));
}
