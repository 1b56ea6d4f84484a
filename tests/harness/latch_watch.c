/* SPDX-License-Identifier: MIT
 * Latches of a test, and waits in threads of their own. */
#include "latch_watch.h"

#include "process.h"

#include <unistd.h>

#define STACK_BYTES (256 * 1024)

int64_t latch_down(lk_latch *latch, int64_t n, const char *name)
{
	lk_latch_step step;

	OK(lk_latch_down(latch, n, name, 0, &step));
	ck_assert(step.counted);
	return step.remaining;
}

lk_latch_status latch_status(lk_latch *latch)
{
	lk_latch_status status;

	OK(lk_latch_query(latch, &status));
	return status;
}

static void *await(void *arg)
{
	struct awaiter *awaiter = arg;
	int64_t start_ms = now_ms();

	awaiter->thread_id = gettid();
	awaiter->err = lk_latch_await(awaiter->latch, awaiter->wait_ms);
	awaiter->took_ms = now_ms() - start_ms;
	awaiter->ended = true;
	return NULL;
}

void awaiter_start(struct awaiter *awaiter, lk_latch *latch, int64_t wait_ms)
{
	pthread_attr_t attributes;

	awaiter->latch = latch;
	awaiter->wait_ms = wait_ms;
	awaiter->ended = false;
	awaiter->thread_id = 0;
	ck_assert_int_eq(pthread_attr_init(&attributes), 0);
	if (!TSAN && !ASAN)
		pthread_attr_setstacksize(&attributes, STACK_BYTES);
	ck_assert_int_eq(pthread_create(&awaiter->thread, &attributes, await, awaiter), 0);
	pthread_attr_destroy(&attributes);
}

lk_err awaiter_join(struct awaiter *awaiter)
{
	ck_assert_msg(WITHIN(20000, awaiter->ended), "a wait does not end");
	pthread_join(awaiter->thread, NULL);
	return awaiter->err;
}
