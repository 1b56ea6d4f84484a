/* SPDX-License-Identifier: MIT
 * A semaphore whose holders are killed.  tests/stores/permits.h has those that live. */
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

static struct test_server server;
static struct redis *redis;

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

/* In memory that processes share. */
struct crowd {
	atomic_int grants;
	atomic_bool end;
};

/* Acquire and release at random until killed or signalled to end. */
static int live_at_random(void *arg, int in, int out)
{
	struct crowd *crowd = arg;
	const char *number = line_read(in, 30000);
	unsigned short seed[3] = {(unsigned short)test_seed(), 9, 0};
	lk_semaphore *semaphore;
	lk_client *client;

	(void)out;
	if (!number)
		return 2;
	seed[2] = (unsigned short)atoi(number);
	client = client_at(server.unix_url);
	semaphore = semaphore_of(client, "a", 7, 400);
	while (!crowd->end) {
		uint64_t hold;
		int64_t wanted = 1 + nrand48(seed) % 4;
		lk_err err =
			lk_semaphore_acquire(semaphore, wanted, 100 + nrand48(seed) % 3000, &hold);
		if (err == LK_ETIMEDOUT)
			continue;
		if (err)
			return 3;
		crowd->grants++;
		nap_ms(nrand48(seed) % 20);
		if (wanted > 1 && lk_semaphore_release_some(semaphore, hold, 1) == LK_EINVALID)
			return 4;
		lk_semaphore_release(semaphore, hold);
	}
	return lk_client_close(client) != LK_OK;
}

TEST_LIMIT(c9_processes_killed_at_random_leave_nothing, 90)
{
	enum { MANY = 60 };
	struct crowd *crowd = mmap(NULL, sizeof(*crowd), PROT_READ | PROT_WRITE,
	                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct process workers[MANY];
	unsigned short seed[3] = {(unsigned short)test_seed(), 1, 2};
	lk_semaphore *semaphore;
	uint64_t hold;
	int killed = 0;

	ck_assert_ptr_ne(crowd, MAP_FAILED);
	server_start(&server, NULL);
	for (int i = 0; i < MANY; i++)
		process_start(&workers[i], live_at_random, crowd);
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
	ck_assert_int_gt(crowd->grants, MANY);
	printf("%d grants, %d killed\n", crowd->grants, killed);
	crowd->end = true;
	for (int i = MANY * 3 / 4; i < MANY; i++)
		ck_assert_msg(process_succeeded(&workers[i], 20000), "worker %d", i);
	/* One lease later all permits of the dead are free. */
	OK(lk_semaphore_acquire(semaphore, 7, 2000, &hold));
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(permits_at_rest(redis, "a", 7));
}
