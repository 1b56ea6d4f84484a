/* SPDX-License-Identifier: MIT
 * A queue of threads: one mutex, a condition variable for each waiting thread, and a release hands
 * over to the first.  The least that a fair lock inside one process can cost. */
#ifndef BASELINE_FIFO_H
#define BASELINE_FIFO_H

#include <pthread.h>
#include <stdbool.h>

struct fifo_thread {
	pthread_cond_t cond;
	struct fifo_thread *next;
	bool granted;
};

struct fifo {
	pthread_mutex_t mutex;
	struct fifo_thread *first, **end; /* waiting threads */
	bool held;
};

void fifo_init(struct fifo *fifo);
void fifo_acquire(struct fifo *fifo, struct fifo_thread *me);
void fifo_release(struct fifo *fifo);

#endif
