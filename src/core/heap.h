/* SPDX-License-Identifier: MIT
 * Timers by due time: a pairing heap with its links inside the timers, so that arming one cannot
 * fail.  (Fredman, Sedgewick, Sleator, Tarjan: The pairing heap, 1986.) */
#ifndef LK__HEAP_H
#define LK__HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define LK__NEVER INT64_MAX

struct lk__timer {
	int64_t due_ns;                        /* LK__NEVER: not in the heap */
	struct lk__timer *child, *next, *prev; /* prev: left sibling, or the parent of a first
	                                        * child */
};

struct lk__heap {
	struct lk__timer *root;
};

void lk__timer_init(struct lk__timer *timer);
/* Arm, move or (LK__NEVER) disarm. */
void lk__heap_set(struct lk__heap *heap, struct lk__timer *timer, int64_t due_ns);
/* The earliest one, NULL if none. */
static inline struct lk__timer *lk__heap_first(const struct lk__heap *heap)
{
	return heap->root;
}

#endif
