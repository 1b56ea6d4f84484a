/* SPDX-License-Identifier: MIT
 * The clock that the library reads: this program's clock_gettime() returns a different reading for
 * each clock. */
#include "base/os.h"
#include "test.h"

#include <time.h>

static struct {
	clockid_t clock;
	time_t seconds;
} const readings[] = {
	{CLOCK_REALTIME, 1700000000},
	{CLOCK_MONOTONIC, 3000}, /* the machine has slept since its start */
	{CLOCK_BOOTTIME, 90000},
};

int clock_gettime(clockid_t clock, struct timespec *now)
{
	*now = (struct timespec){0};
	for (size_t i = 0; i < sizeof(readings) / sizeof(readings[0]); i++)
		if (readings[i].clock == clock)
			now->tv_sec = readings[i].seconds;
	return 0;
}

/* A clock that can be set, or stops during sleep, would lengthen holds. */
TEST(time_is_of_the_clock_that_counts_sleep_and_nobody_sets)
{
	ck_assert_int_eq(lk__now_ns(), INT64_C(90000) * 1000 * LK__MS);
}
