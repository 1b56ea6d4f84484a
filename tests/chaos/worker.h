/* SPDX-License-Identifier: MIT
 * One worker of the chaos program: a process with a client and some threads. */
#ifndef WORKER_H
#define WORKER_H

#include "chaos/chaos.h"

#include <pthread.h>

struct worker;

/* A handle of one name; two of a name differ in lease and renewal. */
struct worker_handle {
	struct worker *worker;
	int name;
	bool fixed;
	int64_t lease_ms;
	lk_lock *lock;
	lk_semaphore *semaphore;
	lk_latch *latch;
};

#define WORKER_HANDLES (2 * CHAOS_NAMES)

/* Where all threads of a worker go for a while, so that one hands a lock to the next. */
struct worker_crowd {
	_Atomic int64_t until_ns;
	_Atomic int handle;
};

struct worker {
	struct history *history;
	struct chaos_page *page;
	lk_client *client;
	const char *url;
	int log_fd; /* of the nemesis: a break is a fault, too */
	int slot;   /* of its first thread */
	uint64_t seed;
	int64_t ends_ns;
	struct worker_handle handles[WORKER_HANDLES];
	int handle_count;
	struct worker_crowd crowd;
};

struct worker_thread {
	struct worker *worker;
	pthread_t thread;
	int slot;
	struct chaos_dice dice;
	_Atomic bool over;
	/* Of a wait without end: who cancels it, and when. */
	pthread_mutex_t wait_mutex;
	const struct worker_handle *wait_handle;
	uint64_t wait_call;
	int64_t cancel_ns; /* 0 = there is none */
};

/* Nobody begins a call any more. */
bool worker_over(const struct worker *worker);
/* A record of a call on a handle. */
struct history_record worker_record(const struct worker_handle *handle, enum history_op op);
/* Write how a call ended; an error that no fault explains is told on standard error. */
void worker_done(const struct worker_handle *handle, struct history_record *record, lk_err err);
/* Rest after an error that comes at once, so that no loop is hot. */
void worker_rest(struct worker_thread *thread, lk_err err);
/* For how long to wait for something, 0 = a try, LK_FOREVER = until it is cancelled; and for how
 * long to hold it. */
int64_t worker_wait_ms(struct worker_thread *thread);
int64_t worker_hold_us(struct worker_thread *thread, const struct worker_handle *handle);
/* Write that a wait begins, and have it cancelled some time if it has no end. */
void worker_wait_begin(struct worker_thread *thread, const struct worker_handle *handle,
                       struct history_record *record, int64_t wait_ms);
void worker_wait_end(struct worker_thread *thread);
/* Let some time pass. */
void worker_nap_us(int64_t us);
/* A pair was made. */
void worker_pair(const struct worker *worker, bool waited);

/* One turn with a lock, a semaphore, a rate, a latch. */
void worker_lock(struct worker_thread *thread, struct worker_handle *handle);
/* In a thread that ends while it holds the lock. */
void worker_abandon(struct worker_thread *thread, struct worker_handle *handle);
/* Close the client, at times while a wait goes on. */
lk_err worker_close(struct worker *worker);
/* Take a lock, or the only hold of a semaphore, from whoever has it. */
void worker_break(struct worker_handle *handle);
void worker_semaphore(struct worker_thread *thread, struct worker_handle *handle);
void worker_rate(struct worker_thread *thread, struct worker_handle *handle);
void worker_latch(struct worker_thread *thread, struct worker_handle *handle);

lk_lost_fn worker_lock_lost;
lk_semaphore_lost_fn worker_permits_lost;

#endif
