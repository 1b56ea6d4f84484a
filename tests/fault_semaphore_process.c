/* SPDX-License-Identifier: MIT
 * Faults of processes that hold permits or wait for them, and of their calls (C1, C5 to C8 of the
 * fault list): stopped, killed, given up while the grant is in flight. */
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
#include <time.h>

#define WAITERS 5
#define CAPACITY 6

static struct test_server server;
static struct proxy proxy;
static struct redis *redis;

/* ---- Processes ---------------------------------------------------------------------------- */

struct job {
	int64_t lease_ms, permits;
};

/* Orders, one per line: acquire, state, release, quit. */
static int obey(void *arg, int in, int out)
{
	const struct job *job = arg;
	lk_semaphore *semaphore;
	lk_client *client;
	const char *order;
	uint64_t hold = 0;

	if (!line_read(in, 30000)) /* the server is up */
		return 2;
	client = client_at(server.url);
	semaphore = semaphore_of(client, "warm", 1, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 5000)));
	semaphore = semaphore_of(client, "a", CAPACITY, job->lease_ms);
	line_write(out, "ready");
	while ((order = line_read(in, 60000))) {
		if (!strcmp(order, "acquire")) {
			lk_err err =
				lk_semaphore_acquire(semaphore, job->permits, LK_FOREVER, &hold);
			line_write(out, "%s %lld", lk_err_name(err), (long long)hold);
		} else if (!strcmp(order, "state")) {
			line_write(out, "%d", (int)lk_semaphore_state(semaphore, hold));
		} else if (!strcmp(order, "some")) {
			line_write(out, "%s",
			           lk_err_name(lk_semaphore_release_some(semaphore, hold, 1)));
		} else if (!strcmp(order, "release")) {
			line_write(out, "%s", lk_err_name(lk_semaphore_release(semaphore, hold)));
		} else if (!strcmp(order, "quit")) {
			return lk_client_close(client) != LK_OK;
		}
	}
	return 3;
}

/* Send an order and return the answer. */
static const char *tell(struct process *process, const char *order)
{
	const char *answer;

	line_write(process->in, "%s", order);
	answer = line_read(process->out, 10000);
	ck_assert_msg(answer != NULL, "no answer to %s", order);
	return answer;
}

TEST(c1_holder_stopped_past_its_lease_is_told_and_harmless)
{
	struct job job = {.lease_ms = 500, .permits = 4};
	struct process holder;
	lk_semaphore *semaphore;
	char state[8];
	uint64_t hold;

	server_start(&server, NULL);
	process_start(&holder, obey, &job);
	redis = redis_open(&server);
	semaphore = semaphore_of(client_at(server.url), "a", CAPACITY, 0);
	tell(&holder, "start");
	ck_assert(!strncmp(tell(&holder, "acquire"), "LK_OK ", 6));
	process_pause(&holder);
	ck_assert_int_eq(proc_state(holder.pid), 'T');
	hold = permits_of(semaphore, CAPACITY, 5000);
	process_continue(&holder);
	snprintf(state, sizeof(state), "%d", LK_STATE_LOST);
	ck_assert_str_eq(tell(&holder, "state"), state); /* the first call detects it */
	ck_assert_str_eq(tell(&holder, "some"), "LK_ELOST");
	ck_assert_str_eq(tell(&holder, "release"), "LK_ELOST");
	nap_ms(200);
	ck_assert_int_eq(lk_semaphore_state(semaphore, hold), LK_STATE_HELD);
	ck_assert_int_eq(permits_used(redis, "a"), CAPACITY);
	permits_add_up(redis, "a");
	OK(lk_semaphore_release(semaphore, hold));
	line_write(holder.in, "quit");
	ck_assert(process_succeeded(&holder, 5000));
}

/* Start the workers, hold all permits, and queue them in their order. */
static lk_semaphore *queue_workers(struct process *workers, struct job *job, uint64_t *hold)
{
	lk_semaphore *semaphore;

	server_start(&server, NULL);
	for (int i = 0; i < WAITERS; i++)
		process_start(&workers[i], obey, job);
	redis = redis_open(&server);
	semaphore = semaphore_of(client_at(server.url), "a", CAPACITY, job->lease_ms);
	*hold = permits_of(semaphore, CAPACITY, 0);
	for (int i = 0; i < WAITERS; i++) {
		tell(&workers[i], "start");
		line_write(workers[i].in, "acquire");
		ck_assert(WITHIN(2000, permits_queue(redis, "a") == i + 1));
	}
	return semaphore;
}

/* That worker must be the next to hold, within ms; it releases. */
static long long expect_next(struct process *worker, int64_t ms)
{
	const char *answer = line_read(worker->out, ms);
	long long fence;

	ck_assert_msg(answer != NULL, "not granted within %lld ms", (long long)ms);
	ck_assert_int_eq(sscanf(answer, "LK_OK %lld", &fence), 1);
	ck_assert_str_eq(tell(worker, "release"), "LK_OK");
	return fence;
}

TEST(c5_killed_waiters_are_skipped_wherever_they_stand)
{
	struct job job = {.lease_ms = 3000, .permits = 4}; /* one at a time */
	struct process workers[WAITERS];
	uint64_t hold;
	lk_semaphore *semaphore = queue_workers(workers, &job, &hold);

	for (int i = 0; i < WAITERS; i += 2) /* head, middle, tail */
		process_kill(&workers[i]);
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert_int_gt(expect_next(&workers[1], 300), (long long)hold);
	expect_next(&workers[3], 300);
	ck_assert(WITHIN(500, permits_at_rest(redis, "a", CAPACITY)));
}

/* A stopped waiter keeps its connection, so it gets the grant; then it is killed. */
static void kill_granted(int64_t permits, int64_t queued_ms, int64_t within_ms)
{
	struct job job = {.lease_ms = 1200, .permits = permits}; /* claimed within 600 ms */
	struct process workers[WAITERS];
	uint64_t hold;
	lk_semaphore *semaphore = queue_workers(workers, &job, &hold);
	long long fence;
	int64_t start_ms;

	nap_ms(queued_ms);
	process_pause(&workers[0]);
	OK(lk_semaphore_release(semaphore, hold));
	start_ms = now_ms();
	ck_assert_int_eq(permits_used(redis, "a"), CAPACITY / permits * permits); /* granted */
	fence = redis_int(redis, "GET lk:fence");
	process_kill(&workers[0]);
	for (int i = 1; i < WAITERS; i++) {
		long long next = expect_next(&workers[i], within_ms);
		if (permits == CAPACITY)
			ck_assert_int_gt(next, fence);
		fence = next;
	}
	ck_assert_int_le(now_ms() - start_ms, within_ms + 500);
	ck_assert(WITHIN(1500, permits_holds(redis, "a") <= 1));
	/* The dead worker's permits are free again, too. */
	OK(lk_semaphore_acquire(semaphore, CAPACITY, 2000, &hold));
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(permits_at_rest(redis, "a", CAPACITY));
}

TEST(c6_full_grant_of_a_killed_waiter_ends_with_its_lease)
{
	kill_granted(CAPACITY, 0, 1200 + 1200 + 500); /* a lease, then the next repeated ask */
}

TEST(c6_short_grant_of_a_killed_waiter_ends_with_its_claim_window)
{
	kill_granted(CAPACITY, 700, 600 + 600);
}

TEST(c6_one_killed_after_its_grant_does_not_hold_up_who_was_granted_beside_it)
{
	kill_granted(2, 0, 1500);
}

/* ---- C7: the end of a wait races the grant ------------------------------------------------ */

static void set_up(void)
{
	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
}

static bool is_free(void)
{
	return permits_at_rest(redis, "a", CAPACITY);
}

/* A wait that ended with err either holds or not; the store agrees in any case. */
static void settle(struct permit_wait *wait, lk_err other_end, struct redis *own, const char *name)
{
	lk_err err = permit_wait_join(wait);

	ck_assert_msg(err == LK_OK || err == other_end, "%s", lk_err_name(err));
	if (err == LK_OK)
		OK(lk_semaphore_release(wait->semaphore, wait->hold));
	else
		ck_assert_uint_eq(wait->hold, 0);
	/* A grant without a holder is left at once, not kept for its lease. */
	ck_assert(WITHIN(500, permits_at_rest(own, name, CAPACITY)));
}

/* Parallel lanes, each with its own semaphore, since most of the time is waiting. */
#define RACES 4
#define ROUNDS 50

struct race {
	char name[8];
	bool fixed; /* its grants by message must be claimed */
	lk_semaphore *held, *semaphore;
	struct redis *redis;
	int got, missed;
	pthread_t thread;
};

static void *race_thread(void *arg)
{
	struct race *race = arg;
	struct permit_wait wait;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t hold = permits_of(race->held, 4, 1000);
		struct timespec until;
		int64_t ns;
		clock_gettime(CLOCK_MONOTONIC, &until);
		permit_wait_start(&wait, race->semaphore, 3, 20, true);
		/* Around the end of the wait, a little earlier or later each time. */
		ns = until.tv_nsec + (race->fixed ? 18500000 : 19000000) + i % 25 * 80000;
		until.tv_sec += ns / 1000000000;
		until.tv_nsec = ns % 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		OK(lk_semaphore_release(race->held, hold));
		settle(&wait, LK_ETIMEDOUT, race->redis, race->name);
		race->got += wait.err == LK_OK;
		race->missed += wait.err != LK_OK;
	}
	return NULL;
}

static void race_time_out(bool fixed)
{
	const lk_semaphore_options options = {.capacity = CAPACITY, .fixed = fixed};
	static struct race races[RACES];
	int got = 0, missed = 0;

	server_start(&server, NULL);
	for (int i = 0; i < RACES; i++) {
		struct race *race = &races[i];
		snprintf(race->name, sizeof(race->name), "a%d", i);
		race->fixed = fixed;
		race->held = semaphore_of(client_at(server.url), race->name, CAPACITY, 0);
		race->semaphore = semaphore_with(client_at(server.url), race->name, &options);
		race->redis = redis_open(&server);
		pthread_create(&race->thread, NULL, race_thread, race);
	}
	for (int i = 0; i < RACES; i++) {
		pthread_join(races[i].thread, NULL);
		got += races[i].got;
		missed += races[i].missed;
	}
	printf("%d granted, %d timed out\n", got, missed);
	ck_assert_int_gt(got, 0);
	ck_assert_int_gt(missed, 0);
}

TEST_LIMIT(c7_time_out_that_races_a_grant_ends_one_way, 60)
{
	race_time_out(false);
}

TEST_LIMIT(c7_time_out_that_races_a_claim_ends_one_way, 60)
{
	race_time_out(true);
}

/* ---- C8: cancel in each state ------------------------------------------------------------- */

TEST(c8_cancel_before_the_ask_is_answered)
{
	const struct proxy_fault late = {.delay_ms = 300};
	struct permit_wait wait;
	lk_semaphore *semaphore;

	set_up();
	semaphore = semaphore_of(client_at(proxy.url), "a", CAPACITY, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 1000)));
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	permit_wait_start(&wait, semaphore, 5, LK_FOREVER, true);
	ck_assert(WITHIN(1000, permits_used(redis, "a") == 5)); /* granted, answer late */
	OK(lk_semaphore_cancel(semaphore));
	settle(&wait, LK_ECANCELED, redis, "a");
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
}

/* Other clients hold 4 of 6, and a wait for 3 is queued. */
static lk_semaphore *queue_one(struct permit_wait *wait, int64_t lease_ms, uint64_t *hold)
{
	lk_semaphore *held;

	set_up();
	held = semaphore_of(client_at(server.url), "a", CAPACITY, 0);
	*hold = permits_of(held, 4, 0);
	permit_wait_queue(wait, redis, "a",
	                  semaphore_of(client_at(proxy.url), "a", CAPACITY, lease_ms), 3, true);
	return held;
}

TEST(c8_cancel_while_queued)
{
	struct permit_wait wait, small;
	uint64_t hold;
	lk_semaphore *held = queue_one(&wait, 0, &hold);

	/* One that would fit is queued behind it, and is granted at once afterwards. */
	permit_wait_queue(&small, redis, "a", semaphore_of(client_at(server.url), "a", 0, 0), 2,
	                  false);
	OK(lk_semaphore_cancel(wait.semaphore));
	EXPECT(permit_wait_join(&wait), LK_ECANCELED);
	OK(permit_wait_join(&small));
	ck_assert_int_le(small.took_ms, 1000);
	ck_assert_int_eq(permits_queue(redis, "a"), 0); /* the store has confirmed it */
	OK(lk_semaphore_release(held, hold));
	ck_assert(is_free());
}

TEST(c8_cancel_while_the_grant_is_on_its_way)
{
	const struct proxy_fault late = {.delay_ms = 300};
	struct permit_wait wait;
	uint64_t hold;
	lk_semaphore *held = queue_one(&wait, 0, &hold);

	proxy_set(&proxy, PROXY_MESSAGES, PROXY_TO_CLIENT, &late);
	OK(lk_semaphore_release(held, hold));
	OK(lk_semaphore_cancel(wait.semaphore));
	settle(&wait, LK_ECANCELED, redis, "a");
	nap_ms(400); /* the message arrives, too late to matter */
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_MESSAGES][PROXY_TO_CLIENT], 0);
	ck_assert(is_free());
}

TEST(c8_cancel_while_the_grant_is_being_claimed)
{
	const struct proxy_fault late = {.delay_ms = 200};
	struct permit_wait wait;
	uint64_t hold;
	lk_semaphore *held = queue_one(&wait, 600, &hold);

	nap_ms(400); /* older than its claim window: the grant must be claimed */
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &late);
	OK(lk_semaphore_release(held, hold));
	nap_ms(50);
	OK(lk_semaphore_cancel(wait.semaphore));
	settle(&wait, LK_ECANCELED, redis, "a");
	ck_assert_int_gt(proxy_count(&proxy).late[PROXY_COMMANDS][PROXY_TO_CLIENT], 0);
}

TEST(c8_cancel_while_the_link_is_down)
{
	struct permit_wait wait;
	uint64_t hold;
	lk_semaphore *held = queue_one(&wait, 1000, &hold);
	int64_t start_ms;
	lk_err err;

	proxy_refuse(&proxy, true);
	proxy_cut(&proxy, PROXY_COMMANDS, false);
	proxy_cut(&proxy, PROXY_MESSAGES, false);
	ck_assert(WITHIN(2000, proxy_count(&proxy).refused > 0));
	start_ms = now_ms();
	OK(lk_semaphore_cancel(wait.semaphore));
	err = permit_wait_join(&wait);
	/* Without confirmation it must not report that nothing is left behind. */
	ck_assert_msg(err == LK_EUNKNOWN || err == LK_ECANCELED, "%s", lk_err_name(err));
	ck_assert_int_le(now_ms() - start_ms, 2000 + 300);
	proxy_heal(&proxy);
	ck_assert(WITHIN(8000, permits_queue(redis, "a") == 0));
	OK(lk_semaphore_release(held, hold));
	ck_assert(WITHIN(1500, is_free()));
}
