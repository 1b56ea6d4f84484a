/* SPDX-License-Identifier: MIT
 * A queue of threads: one mutex, and a condition variable for each waiting thread. */
#include "baseline_fifo.h"

void fifo_init(struct fifo *fifo)
{
	*fifo = (struct fifo){.mutex = PTHREAD_MUTEX_INITIALIZER};
	fifo->end = &fifo->first;
}

void fifo_acquire(struct fifo *fifo, struct fifo_thread *me)
{
	pthread_mutex_lock(&fifo->mutex);
	if (!fifo->held) {
		fifo->held = true;
	} else {
		me->next = NULL;
		me->granted = false;
		*fifo->end = me;
		fifo->end = &me->next;
		while (!me->granted)
			pthread_cond_wait(&me->cond, &fifo->mutex);
	}
	pthread_mutex_unlock(&fifo->mutex);
}

/* Signal without the mutex, so that the woken thread need not wait for it.  The condition belongs
 * to that thread and outlives the call. */
void fifo_release(struct fifo *fifo)
{
	struct fifo_thread *next;

	pthread_mutex_lock(&fifo->mutex);
	next = fifo->first;
	if (next) {
		fifo->first = next->next;
		if (!fifo->first)
			fifo->end = &fifo->first;
		next->granted = true;
	} else {
		fifo->held = false;
	}
	pthread_mutex_unlock(&fifo->mutex);
	if (next)
		pthread_cond_signal(&next->cond);
}
