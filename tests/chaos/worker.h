/* SPDX-License-Identifier: MIT
 * One worker of the chaos program: a process with a client and some threads. */
#ifndef WORKER_H
#define WORKER_H

#include "chaos/chaos.h"

#include <pthread.h>

struct worker;

/* A handle of one name; the two of a name differ in lease and renewal. */
struct worker_handle {
	struct worker *worker;
	int name;
	bool fixed;
	int64_t lease_ms;
	lk_lock *lock;
	lk_semaphore *semaphore;
	lk_latch *latch;
};

#define WORKER_HANDLES (2 * CHAOS_NAMES_ALL)
#define WORKER_PIECE_US 20000 /* between two looks at a hold */

/* The name for which all threads of a worker compete for a while, to cause hand-overs. */
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
	bool etcd;
	bool quorum; /* then a hold may be lost before its lease ends */
	int slot;    /* of its first thread */
	uint64_t seed;
	/* With Sentinel: how much longer to hold while the link is down, and how late this client
	 * follows a failover.  So others meet its holds if they are granted at the new master. */
	int64_t apart_us, late_us;
	atomic_bool is_open;
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
	/* Of a wait without limit: its canceller, and the time. */
	pthread_mutex_t wait_mutex;
	const struct worker_handle *wait_handle;
	uint64_t wait_call;
	int64_t cancel_ns; /* 0 = there is none */
};

/* Begin no more calls. */
bool worker_over(const struct worker *worker);
/* Prepare the record of a call on a handle. */
struct history_record worker_record(const struct worker_handle *handle, enum history_op op);
/* Record the result of a call; an error that no fault explains is printed on standard error. */
void worker_done(const struct worker_handle *handle, struct history_record *record, lk_err err);
/* Pause after an immediate error, so that the loop does not spin. */
void worker_rest(struct worker_thread *thread, lk_err err);
/* The wait for the next acquire, 0 = a try, LK_FOREVER = until it is cancelled; and the time of the
 * hold. */
int64_t worker_wait_ms(struct worker_thread *thread);
int64_t worker_hold_us(struct worker_thread *thread, const struct worker_handle *handle);
/* Record that a wait begins, and schedule its cancel if it has no limit. */
void worker_wait_begin(struct worker_thread *thread, const struct worker_handle *handle,
                       struct history_record *record, int64_t wait_ms);
void worker_wait_end(struct worker_thread *thread);
/* Let some time pass. */
void worker_nap_us(int64_t us);
/* Count a pair. */
void worker_pair(const struct worker *worker, bool waited);

/* One turn with a lock, a semaphore, a rate, a latch. */
void worker_lock(struct worker_thread *thread, struct worker_handle *handle);
/* The same in a thread that ends while it holds the lock. */
void worker_abandon(struct worker_thread *thread, struct worker_handle *handle);
/* Close the client, at times during a wait. */
lk_err worker_close(struct worker *worker);
/* Break the hold of a lock, or the only hold of a semaphore. */
void worker_break(struct worker_handle *handle);
void worker_semaphore(struct worker_thread *thread, struct worker_handle *handle);
void worker_rate(struct worker_thread *thread, struct worker_handle *handle);
void worker_latch(struct worker_thread *thread, struct worker_handle *handle);

lk_lost_fn worker_lock_lost;
lk_semaphore_lost_fn worker_permits_lost;

#endif
