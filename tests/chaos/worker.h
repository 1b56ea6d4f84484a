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
};

struct worker_thread {
	struct worker *worker;
	pthread_t thread;
	int slot;
	struct chaos_dice dice;
};

/* Nobody begins a call any more. */
bool worker_over(const struct worker *worker);
/* A record of a call on a handle. */
struct history_record worker_record(const struct worker_handle *handle, enum history_op op);
/* Write how a call ended; an error that no fault explains is told on standard error. */
void worker_done(const struct worker_handle *handle, struct history_record *record, lk_err err);
/* Rest after an error that comes at once, so that no loop is hot. */
void worker_rest(struct worker_thread *thread, lk_err err);
/* For how long to wait for something, 0 = a try; and for how long to hold it. */
int64_t worker_wait_ms(struct worker_thread *thread);
int64_t worker_hold_us(struct worker_thread *thread, int64_t lease_ms);
/* The beginning of a wait in its record. */
void worker_wait_note(struct history_record *record, int64_t wait_ms);
/* Let some time pass. */
void worker_nap_us(int64_t us);
/* A pair was made. */
void worker_pair(const struct worker *worker, bool waited);

/* One turn with a lock, a semaphore, a rate, a latch. */
void worker_lock(struct worker_thread *thread, struct worker_handle *handle);
/* Take a lock from whoever has it. */
void worker_break(struct worker_handle *handle);
void worker_semaphore(struct worker_thread *thread, struct worker_handle *handle);
void worker_rate(struct worker_thread *thread, struct worker_handle *handle);
void worker_latch(struct worker_thread *thread, struct worker_handle *handle);

lk_lost_fn worker_lock_lost;
lk_permits_lost_fn worker_permits_lost;

#endif
