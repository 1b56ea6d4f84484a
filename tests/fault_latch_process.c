/* SPDX-License-Identifier: MIT
 * Latches while processes are killed, stopped and cancelled (C4 to C9 of the fault list). */
#include "harness/fault.h"
#include "harness/latch_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int subscribers(void)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB lk:l:0:{a}");

	return atoi(text + strcspn(text, "\n"));
}

/* A job that counts under its name and then dies, unless its order is to live. */
static int job(void *arg, int in, int out)
{
	lk_client *client = client_at(server.url);
	lk_latch *latch = latch_named(client, "a");
	char name[24];
	lk_latch_step step;

	(void)in;
	snprintf(name, sizeof(name), "job %d", (int)(intptr_t)arg);
	nap_ms((int64_t)(random() % 30));
	OK(lk_latch_down(latch, 1, name, 0, &step));
	line_write(out, "%d", step.counted);
	nap_ms((int64_t)(random() % 30));
	OK(lk_client_close(client));
	return 0;
}

/* Each is killed at random and run again, a few times; the last run ends by itself. */
TEST_LIMIT(c9_killed_and_restarted_jobs_count_once_each, 60)
{
	enum { JOBS = 12, ROUNDS = 5 };
	struct process jobs[JOBS];
	int counted_before = 0;
	lk_client *client;

	fault_set_up(NULL);
	srandom((unsigned)test_seed());
	redis_do(redis, "HSET lk:{a} kind 1:latch gen 7 count %lld initial %lld open_ttl 60000",
	         (long long)JOBS + 1, (long long)JOBS + 1);
	redis_do(redis, "HSET lk:{a}:s gen 7");
	for (int round = 0; round < ROUNDS; round++) {
		bool last = round == ROUNDS - 1;
		for (int i = 0; i < JOBS; i++)
			process_start(&jobs[i], job, (void *)(intptr_t)i);
		for (int i = 0; i < JOBS; i++) {
			nap_ms((int64_t)(random() % 12));
			if (last)
				ck_assert(process_succeeded(&jobs[i], 20000));
			else
				process_kill(&jobs[i]);
		}
		if (!last)
			counted_before = JOBS + 1 - (int)redis_int(redis, "HGET lk:{a} count");
	}
	printf("%d of %d counted before they were killed\n", counted_before, JOBS);
	client = client_at(server.url);
	ck_assert_int_eq(latch_status(latch_named(client, "a")).count, 1);
	OK(lk_client_close(client));
}

static int wait_for_it(void *arg, int in, int out)
{
	lk_client *client = client_at(server.url);

	(void)arg, (void)in;
	OK(lk_latch_await(latch_named(client, "a"), 30000));
	line_write(out, "released");
	OK(lk_client_close(client));
	return 0;
}

/* C4 to C6: a latch has no hand-off, so dead and stopped waiters delay no other. */
TEST_LIMIT(c5_killed_and_stopped_waiters_keep_nobody, 40)
{
	enum { WAITERS = 6 };
	struct process waiters[WAITERS];
	lk_client *client;
	lk_latch *latch;

	server_start(&server, NULL);
	for (int i = 0; i < WAITERS; i++)
		process_start(&waiters[i], wait_for_it, NULL);
	redis = redis_open(&server);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	ck_assert(WITHIN(5000, subscribers() == WAITERS));
	process_kill(&waiters[0]);
	process_kill(&waiters[3]);
	process_pause(&waiters[1]);
	OK(lk_latch_set(latch, 1, NULL));
	latch_down(latch, 1, NULL);
	for (int i = 2; i < WAITERS; i++)
		if (i != 3)
			ck_assert(process_succeeded(&waiters[i], 3000));
	/* A waiter that was stopped is released, though the latch counts again. */
	OK(lk_latch_set(latch, 5, NULL));
	process_continue(&waiters[1]);
	ck_assert(process_succeeded(&waiters[1], 5000));
	OK(lk_client_close(client));
}

static void *open_after(void *arg)
{
	lk_latch *latch = arg;

	nap_ms(10);
	OK(lk_latch_set(latch, 0, NULL));
	return NULL;
}

TEST_LIMIT(c7_timeout_and_opening_at_once_have_one_outcome, 40)
{
	int released = 0, late = 0;
	lk_client *client, *other;
	lk_latch *latch, *theirs;

	fault_set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	latch = latch_named(client, "a");
	theirs = latch_named(other, "a");
	for (int i = 0; i < 150; i++) {
		pthread_t thread;
		lk_err err;
		pthread_create(&thread, NULL, open_after, theirs);
		err = lk_latch_await(latch, 8 + i % 5);
		if (err == LK_OK)
			OK(lk_latch_await(theirs, 0)); /* open afterwards */
		else
			ck_assert_int_eq(err, LK_ETIMEDOUT);
		released += !err;
		late += err == LK_ETIMEDOUT;
		pthread_join(thread, NULL);
		OK(lk_latch_remove(theirs));
	}
	ck_assert_int_gt(released, 0);
	ck_assert_int_gt(late, 0);
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_LIMIT(c8_cancel_in_every_state_ends_the_wait, 40)
{
	lk_client *client;
	lk_latch *latch;

	fault_set_up(NULL);
	client = client_at(server.url);
	latch = latch_named(client, "a");
	for (int i = 0; i < 200; i++) {
		struct awaiter awaiter;
		awaiter_start(&awaiter, latch, 10000);
		for (int spin = 0; spin < (i % 40) * 500; spin++)
			__asm__ volatile("");
		ck_assert(WITHIN(2000, (lk_latch_cancel(latch), awaiter.ended)));
		EXPECT(awaiter_join(&awaiter), LK_ECANCELED);
	}
	OK(lk_client_close(client));
}
