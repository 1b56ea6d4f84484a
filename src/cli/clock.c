/* SPDX-License-Identifier: MIT
 * The clock of leases, and waiting on it. */
#include "clock.h"

#include <string.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/timerfd.h>
#endif

#ifndef CLOCK_BOOTTIME
#define CLOCK_BOOTTIME CLOCK_MONOTONIC
#endif

#define SECOND INT64_C(1000000000)

int64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return now.tv_sec * SECOND + now.tv_nsec;
}

/* poll() counts only time while the machine is awake; a timer on this clock ends a wait in time
 * after a suspend.  -1 where there is none: then the time-out must do. */
static int timer_arm(int64_t deadline_ns)
{
#ifdef __linux__
	static int timer = -1;
	struct itimerspec when;

	if (timer < 0)
		timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (timer < 0)
		return -1;
	memset(&when, 0, sizeof(when));
	if (deadline_ns != NEVER) {
		when.it_value.tv_sec = deadline_ns / SECOND;
		when.it_value.tv_nsec = deadline_ns % SECOND;
	}
	/* This also clears an earlier expiry that was not read. */
	timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
	return timer;
#else
	(void)deadline_ns;
	return -1;
#endif
}

void clock_wait(struct pollfd *fds, nfds_t count, int64_t deadline_ns, const sigset_t *mask)
{
	struct timespec span, *limit = NULL;

	fds[0].fd = timer_arm(deadline_ns);
	fds[0].events = POLLIN;
	if (deadline_ns != NEVER) {
		int64_t left = deadline_ns - clock_ns();
		if (left < 0)
			left = 0;
		span.tv_sec = left / SECOND;
		span.tv_nsec = left % SECOND;
		limit = &span;
	}
	if (ppoll(fds, count, limit, mask) <= 0)
		for (nfds_t i = 0; i < count; i++)
			fds[i].revents = 0;
}
