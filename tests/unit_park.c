/* SPDX-License-Identifier: MIT
 * Threads that sleep until they are woken, and decimal numbers: every request uses both. */
#include "base/os.h"
#include "process.h"
#include "test.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define SLEEPERS (LK__WAKES_MAX + 8)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lk__wakes wakes;

struct sleeper {
	pthread_t thread;
	struct lk__park park;
	bool asleep, may_go, gone;
	int64_t ns;
};

/* Sleep once, as the library's threads do.  Entered with the mutex, returns without it. */
static bool sleep_once(struct lk__park *park, int64_t ns)
{
	lk__park_prepare(park);
	lk__wakes_unlock(&wakes, &mutex);
	return lk__park_sleep(park, ns);
}

static void *sleep_until_woken(void *arg)
{
	struct sleeper *sleeper = arg;

	pthread_mutex_lock(&mutex);
	while (!sleeper->may_go) {
		sleeper->asleep = true;
		ck_assert(!sleep_once(&sleeper->park, sleeper->ns));
		pthread_mutex_lock(&mutex);
	}
	sleeper->gone = true;
	lk__wakes_unlock(&wakes, &mutex);
	return NULL;
}

static bool reads(const bool *what)
{
	bool value;

	pthread_mutex_lock(&mutex);
	value = *what;
	pthread_mutex_unlock(&mutex);
	return value;
}

static void start(struct sleeper *sleeper, int64_t ns)
{
	*sleeper = (struct sleeper){.ns = ns};
	ck_assert(lk__park_init(&sleeper->park));
	ck_assert(lk__thread_start(&sleeper->thread, "lk-sleep", sleep_until_woken, sleeper));
	ck_assert(WITHIN(5000, reads(&sleeper->asleep)));
}

static void end(struct sleeper *sleeper)
{
	ck_assert(!pthread_join(sleeper->thread, NULL));
	lk__park_fini(&sleeper->park);
}

TEST(thread_parks_no_longer_than_asked)
{
	struct lk__park park;
	int64_t begin = lk__now_ns();

	ck_assert(lk__park_init(&park));
	pthread_mutex_lock(&mutex);
	ck_assert(!sleep_once(&park, 30 * LK__MS));
	pthread_mutex_lock(&mutex);
	ck_assert(!sleep_once(&park, 0));
	ck_assert_int_lt(lk__now_ns() - begin, 5000 * LK__MS);
	lk__park_fini(&park);
}

TEST(parked_thread_of_any_length_is_woken)
{
	static const int64_t lengths[] = {-1, INT64_MAX, INT64_MIN, 999999999};

	for (int i = 0; i < 4; i++) {
		struct sleeper sleeper;

		start(&sleeper, lengths[i]);
		pthread_mutex_lock(&mutex);
		sleeper.may_go = true;
		lk__park_wake(&sleeper.park, &wakes);
		lk__wakes_unlock(&wakes, &mutex);
		end(&sleeper);
	}
}

TEST(more_threads_are_woken_than_can_be_noted)
{
	static struct sleeper sleepers[SLEEPERS];

	for (int i = 0; i < SLEEPERS; i++)
		start(&sleepers[i], -1);
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < SLEEPERS; i++) {
		sleepers[i].may_go = true;
		lk__park_wake(&sleepers[i].park, &wakes);
	}
	lk__wakes_unlock(&wakes, &mutex);
	for (int i = 0; i < SLEEPERS; i++)
		end(&sleepers[i]);
}

/* For a wait that releases the mutex itself. */
TEST(noted_wake_can_be_done_with_the_mutex_held)
{
	struct sleeper sleeper;

	start(&sleeper, -1);
	pthread_mutex_lock(&mutex);
	sleeper.may_go = true;
	lk__park_wake(&sleeper.park, &wakes);
	lk__wakes_now(&wakes);
	ck_assert_uint_eq(wakes.count, 0);
	pthread_mutex_unlock(&mutex);
	ck_assert(WITHIN(5000, reads(&sleeper.gone)));
	end(&sleeper);
}

/* It was woken after its last check under the mutex, and before its sleep. */
TEST(wake_that_comes_before_the_sleep_is_not_lost)
{
	struct sleeper sleeper;

	for (int i = 0; i < 200; i++) {
		sleeper = (struct sleeper){.ns = -1};
		ck_assert(lk__park_init(&sleeper.park));
		ck_assert(
			lk__thread_start(&sleeper.thread, "lk-sleep", sleep_until_woken, &sleeper));
		while (!reads(&sleeper.asleep))
			continue;
		pthread_mutex_lock(&mutex);
		sleeper.may_go = true;
		lk__park_wake(&sleeper.park, &wakes);
		lk__wakes_unlock(&wakes, &mutex);
		end(&sleeper);
	}
}

static atomic_bool dismissed;

static void *sleep_until_dismissed(void *arg)
{
	struct sleeper *sleeper = arg;

	pthread_mutex_lock(&mutex);
	sleeper->asleep = true;
	dismissed = sleep_once(&sleeper->park, -1);
	return NULL;
}

/* It returns while the mutex is held. */
TEST(dismissed_thread_needs_no_mutex)
{
	struct sleeper sleeper = {0};
	bool claimed;

	ck_assert(lk__park_init(&sleeper.park));
	ck_assert(lk__thread_start(&sleeper.thread, "lk-sleep", sleep_until_dismissed, &sleeper));
	ck_assert(WITHIN(5000, reads(&sleeper.asleep)));
	pthread_mutex_lock(&mutex);
	claimed = lk__park_claim(&sleeper.park);
	ck_assert(!lk__park_claim(&sleeper.park));
	if (claimed)
		lk__park_dismiss(&sleeper.park, &wakes);
	else /* threads on this system need the mutex */
		lk__park_wake(&sleeper.park, &wakes);
	lk__wakes_now(&wakes);
	end(&sleeper);
	pthread_mutex_unlock(&mutex);
	ck_assert_int_eq(dismissed, claimed);
}

TEST(decimal_numbers_are_those_of_printf)
{
	static const int64_t numbers[] = {
		0,   1,        9,         10,        99,        100,       -1,
		-10, 86400000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1795323277910936};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		char ours[LK__DECIMAL_SIZE], theirs[32];
		size_t len = lk__decimal(ours, numbers[i]);

		snprintf(theirs, sizeof(theirs), "%" PRId64, numbers[i]);
		ck_assert_str_eq(ours, theirs);
		ck_assert_uint_eq(len, strlen(theirs));
	}
}
