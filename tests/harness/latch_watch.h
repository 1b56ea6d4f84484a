/* SPDX-License-Identifier: MIT
 * Latches of a test in one line each, and waits in threads of their own. */
#ifndef LATCH_WATCH_H
#define LATCH_WATCH_H

#include "handles.h"

#include <pthread.h>
#include <stdatomic.h>

static inline lk_latch *latch_with(lk_client *client, const char *name,
                                   const lk_latch_options *options)
{
	lk_latch *latch = NULL;

	OK(lk_latch_open(client, name, 0, options, &latch));
	return latch;
}

static inline lk_latch *latch_named(lk_client *client, const char *name)
{
	return latch_with(client, name, NULL);
}

/* Count it down and assert that the step counted; return the remaining count. */
int64_t latch_down(lk_latch *latch, int64_t n, const char *name);
lk_latch_status latch_status(lk_latch *latch);

/* One await in a thread of its own, with a small stack. */
struct awaiter {
	lk_latch *latch;
	int64_t wait_ms;
	lk_err err;
	int64_t took_ms;
	atomic_bool ended;
	atomic_int thread_id; /* 0 = it has not begun */
	pthread_t thread;
};

void awaiter_start(struct awaiter *awaiter, lk_latch *latch, int64_t wait_ms);
/* The result of its await; fails the test if there is none within 20 s. */
lk_err awaiter_join(struct awaiter *awaiter);

#endif
