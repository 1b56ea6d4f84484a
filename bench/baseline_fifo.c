/* SPDX-License-Identifier: MIT
 * A queue of threads: one mutex and a condition variable for each who waits. */
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

/* The condition is signalled without the mutex, so that who wakes up need not wait for it: it
 * belongs to the thread and lasts. */
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
