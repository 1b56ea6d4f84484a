/* SPDX-License-Identifier: MIT
 * The heap of timers, compared with a linear search. */
#include "core/heap.h"
#include "test.h"

#include <stdlib.h>

#define TIMERS 200

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (random_state >> 33) % below;
}

TEST(heap_gives_the_earliest_after_any_change)
{
	static struct lk__timer timers[TIMERS];
	struct lk__heap heap = {0};

	random_state = test_seed();
	for (int i = 0; i < TIMERS; i++)
		lk__timer_init(&timers[i]);
	for (int step = 0; step < 20000; step++) {
		struct lk__timer *timer = &timers[draw(TIMERS)];
		int64_t earliest = LK__NEVER;
		lk__heap_set(&heap, timer, draw(3) ? (int64_t)draw(500) : LK__NEVER);
		for (int i = 0; i < TIMERS; i++)
			if (timers[i].due_ns < earliest)
				earliest = timers[i].due_ns;
		if (earliest == LK__NEVER)
			ck_assert_ptr_null(lk__heap_first(&heap));
		else
			ck_assert_int_eq(lk__heap_first(&heap)->due_ns, earliest);
	}
}

TEST(heap_gives_all_in_order)
{
	static struct lk__timer timers[TIMERS];
	struct lk__heap heap = {0};
	int64_t last = -1;
	int count = 0;

	random_state = test_seed();
	for (int i = 0; i < TIMERS; i++) {
		lk__timer_init(&timers[i]);
		lk__heap_set(&heap, &timers[i], (int64_t)draw(1000));
	}
	while (lk__heap_first(&heap)) {
		struct lk__timer *first = lk__heap_first(&heap);
		ck_assert_int_ge(first->due_ns, last);
		last = first->due_ns;
		lk__heap_set(&heap, first, LK__NEVER);
		count++;
	}
	ck_assert_int_eq(count, TIMERS);
}

TEST(heap_timer_armed_for_never_is_not_in_it)
{
	struct lk__heap heap = {0};
	struct lk__timer timer;

	lk__timer_init(&timer);
	lk__heap_set(&heap, &timer, LK__NEVER);
	ck_assert_ptr_null(lk__heap_first(&heap));
	lk__heap_set(&heap, &timer, 5);
	lk__heap_set(&heap, &timer, 5);
	ck_assert_ptr_eq(lk__heap_first(&heap), &timer);
}
