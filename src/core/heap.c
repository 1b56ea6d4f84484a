/* SPDX-License-Identifier: MIT
 * The pairing heap of timers. */
#include "heap.h"

#include <stddef.h>

void lk__timer_init(struct lk__timer *timer)
{
	*timer = (struct lk__timer){.due_ns = LK__NEVER};
}

static struct lk__timer *meld(struct lk__timer *a, struct lk__timer *b)
{
	if (!a)
		return b;
	if (!b)
		return a;
	if (b->due_ns < a->due_ns) {
		struct lk__timer *swap = a;
		a = b;
		b = swap;
	}
	b->prev = a;
	b->next = a->child;
	if (a->child)
		a->child->prev = b;
	a->child = b;
	a->next = a->prev = NULL;
	return a;
}

/* Meld a list of siblings in pairs from the left, then all from the right. */
static struct lk__timer *meld_pairs(struct lk__timer *list)
{
	struct lk__timer *stack = NULL, *all = NULL;

	while (list) {
		struct lk__timer *a = list, *b = a->next, *pair;
		list = b ? b->next : NULL;
		a->next = a->prev = NULL;
		if (b)
			b->next = b->prev = NULL;
		pair = meld(a, b);
		pair->next = stack;
		stack = pair;
	}
	while (stack) {
		struct lk__timer *next = stack->next;
		stack->next = stack->prev = NULL;
		all = meld(all, stack);
		stack = next;
	}
	return all;
}

static void unlink_timer(struct lk__heap *heap, struct lk__timer *timer)
{
	struct lk__timer *rest = meld_pairs(timer->child);

	if (heap->root == timer) {
		heap->root = rest;
	} else {
		if (timer->prev->child == timer)
			timer->prev->child = timer->next;
		else
			timer->prev->next = timer->next;
		if (timer->next)
			timer->next->prev = timer->prev;
		heap->root = meld(heap->root, rest);
	}
	if (heap->root)
		heap->root->prev = heap->root->next = NULL;
	timer->child = timer->next = timer->prev = NULL;
}

void lk__heap_set(struct lk__heap *heap, struct lk__timer *timer, int64_t due_ns)
{
	if (timer->due_ns == due_ns)
		return;
	if (timer->due_ns != LK__NEVER)
		unlink_timer(heap, timer);
	timer->due_ns = due_ns;
	if (due_ns != LK__NEVER)
		heap->root = meld(heap->root, timer);
}
