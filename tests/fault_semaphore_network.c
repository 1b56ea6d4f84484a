/* SPDX-License-Identifier: MIT
 * Network faults for holders of permits and for waiters (N2, N4 to N7, N10 of the fault list):
 * answers that never arrive, a message link that is cut or stalled. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct test_server server;
static struct proxy proxy;
static struct redis *redis;

static const struct proxy_fault stalled = {.stall = true};
static const struct proxy_fault dropped = {.drop = true};

static void set_up(void)
{
	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
}

/* A client behind the proxy. */
static lk_client *far_client(int64_t command_timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = command_timeout_ms};

	return client_with(proxy.url, &options);
}

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

TEST(n2_grant_without_an_answer_is_unknown_and_given_back)
{
	lk_semaphore *semaphore;
	lk_client *far;
	int64_t start_ms;
	uint64_t hold = 77;

	set_up();
	far = far_client(400);
	semaphore = semaphore_of(far, "a", 4, 3000);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 1000)));
	nap_ms(50);
	lose_answers();
	start_ms = now_ms();
	EXPECT(lk_semaphore_acquire(semaphore, 3, 0, &hold), LK_EUNKNOWN);
	ck_assert_int_le(now_ms() - start_ms, 400 + 400);
	ck_assert_uint_eq(hold, 77);
	expect_lost_answers();
	ck_assert_int_eq(permits_used(redis, "a"), 3); /* it took effect */
	proxy_heal(&proxy);
	ck_assert(WITHIN(2000, permits_at_rest(redis, "a", 4)));
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 4, 2000)));
	OK(lk_client_close(far));
}

TEST(n2_grant_whose_answer_is_lost_becomes_one_hold)
{
	lk_semaphore *semaphore;
	struct permit_wait wait;
	lk_client *far;

	set_up();
	far = far_client(400);
	semaphore = semaphore_of(far, "a", 4, 3000);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 1000)));
	nap_ms(50);
	lose_answers();
	permit_wait_start(&wait, semaphore, 2, 10000, true); /* a second grant would fit, too */
	ck_assert(WITHIN(1000, permits_used(redis, "a") == 2));
	expect_lost_answers();
	nap_ms(100);
	ck_assert(!wait.ended);
	proxy_heal(&proxy);
	OK(permit_wait_join(&wait)); /* the link is given up, and the ask repeated */
	ck_assert_int_le(wait.took_ms, 2000);
	ck_assert_int_eq(permits_used(redis, "a"), 2);
	ck_assert_int_eq(permits_holds(redis, "a"), 1);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, wait.hold));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(far));
}

TEST(n2_release_without_an_answer_is_unknown_and_done)
{
	lk_semaphore *semaphore;
	lk_client *far;
	uint64_t hold;

	set_up();
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
	set_up();
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

	set_up();
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

	set_up();
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

/* ---- N5: the message link is cut ---------------------------------------------------------- */

TEST(n5_message_link_cut_wakes_waiters_in_order)
{
	struct permit_wait waits[3];
	lk_client *near, *far;
	lk_semaphore *held, *waiting;
	int64_t start_ms;
	uint64_t hold;

	set_up();
	near = client_at(server.url);
	far = far_client(0);
	held = semaphore_of(near, "a", 4, 0);
	waiting = semaphore_of(far, "a", 4, 0);
	for (int gently = 0; gently < 2; gently++) {
		hold = permits_of(held, 4, 1000);
		for (int i = 0; i < 3; i++)
			permit_wait_queue(&waits[i], redis, "a", waiting, 2 + i % 2, false);
		proxy_cut(&proxy, PROXY_MESSAGES, gently);
		start_ms = now_ms();
		OK(lk_semaphore_release(held, hold)); /* no subscriber, or a stale one */
		for (int i = 0; i < 3; i++)
			OK(permit_wait_join(&waits[i]));
		ck_assert_int_le(now_ms() - start_ms, 2000);
		ck_assert_int_eq(proxy_count(&proxy).cuts, gently + 1);
		ck_assert(permits_at_rest(redis, "a", 4));
	}
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n5_message_links_killed_by_the_server_wake_waiters)
{
	struct permit_wait waits[3];
	lk_client *near, *far;
	lk_semaphore *held, *waiting;
	int64_t start_ms;
	uint64_t hold;

	set_up();
	near = client_at(server.url);
	far = far_client(0);
	held = semaphore_of(near, "a", 4, 5000);
	waiting = semaphore_of(far, "a", 4, 5000);
	hold = permits_of(held, 4, 0);
	for (int i = 0; i < 3; i++)
		permit_wait_queue(&waits[i], redis, "a", waiting, i + 1, false);
	ck_assert_int_eq(redis_int(redis, "CLIENT KILL TYPE pubsub"), 2);
	permits_stay_held(held, hold, 300); /* the holder lost its message link, too */
	start_ms = now_ms();
	OK(lk_semaphore_release(held, hold));
	for (int i = 0; i < 3; i++)
		OK(permit_wait_join(&waits[i]));
	ck_assert_int_le(now_ms() - start_ms, 2000);
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

/* ---- N6, N7: a stalled link --------------------------------------------------------------- */

TEST(n6_stalled_message_link_is_noticed)
{
	struct permit_wait wait;
	lk_client *near, *far;
	lk_semaphore *held;
	int64_t start_ms;
	uint64_t hold;

	set_up();
	near = client_at(server.url);
	far = far_client(500);
	held = semaphore_of(near, "a", 4, 900);
	hold = permits_of(held, 4, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(far, "a", 4, 900), 3, true);
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &stalled);
	OK(lk_semaphore_release(held, hold)); /* the proxy keeps the grant back */
	start_ms = now_ms();
	ck_assert(WITHIN(2000, proxy_count(&proxy).held[PROXY_MESSAGES][PROXY_TO_CLIENT] > 0));
	/* The client notices the silence, and opens new links, which work. */
	ck_assert(WITHIN(2000, proxy_count(&proxy).connections > 2));
	ck_assert(!wait.ended);
	proxy_heal(&proxy);
	OK(permit_wait_join(&wait));
	ck_assert_int_le(now_ms() - start_ms, 3000);
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	ck_assert_int_eq(permits_holds(redis, "a"), 1);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(wait.semaphore, wait.hold));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n6_wait_that_ends_while_the_message_link_stands_still_leaves_nothing)
{
	struct permit_wait wait;
	lk_client *near, *far;
	lk_semaphore *held;
	uint64_t hold;

	set_up();
	near = client_at(server.url);
	far = far_client(1500);
	held = semaphore_of(near, "a", 4, 10000);
	hold = permits_of(held, 4, 0);
	permit_wait_start(&wait, semaphore_of(far, "a", 4, 10000), 3, 600, true);
	ck_assert(WITHIN(500, permits_queue(redis, "a") == 1));
	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &stalled);
	OK(lk_semaphore_release(held, hold));
	ck_assert_int_eq(permits_used(redis, "a"), 3); /* granted, but the message is stuck */
	EXPECT(permit_wait_join(&wait), LK_ETIMEDOUT);
	ck_assert_int_gt(proxy_count(&proxy).held[PROXY_MESSAGES][PROXY_TO_CLIENT], 0);
	ck_assert(permits_at_rest(redis, "a", 4)); /* long before the lease's end */
	proxy_heal(&proxy);
	nap_ms(100); /* the grant arrives, too late to matter */
	ck_assert(permits_at_rest(redis, "a", 4));
	permits_of(held, 4, 0);
	OK(lk_client_close(near));
	OK(lk_client_close(far));
}

TEST(n7_grant_to_be_claimed_is_no_hold_until_it_is)
{
	struct permit_wait wait;
	lk_client *near, *far;
	lk_semaphore *held;
	uint64_t hold;

	set_up();
	near = client_at(server.url);
	far = far_client(5000);
	held = semaphore_of(near, "a", 4, 5000);
	hold = permits_of(held, 4, 0);
	permit_wait_queue(&wait, redis, "a", semaphore_of(far, "a", 4, 1600), 3, true);
	nap_ms(1000); /* longer than its claim window of 800 ms */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_SERVER, &stalled);
	OK(lk_semaphore_release(held, hold));
	ck_assert(WITHIN(2000, proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_SERVER] > 0));
	nap_ms(200);
	ck_assert(!wait.ended);
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	proxy_heal(&proxy);
	OK(permit_wait_join(&wait));
	ck_assert_int_eq(hold_in(wait.semaphore, wait.hold).count, 3);
	permits_stay_held(wait.semaphore, wait.hold, 1200); /* longer than the grant's life */
	OK(lk_semaphore_release(wait.semaphore, wait.hold));
	ck_assert(permits_at_rest(redis, "a", 4));
	OK(lk_client_close(near));
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

	set_up();
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
