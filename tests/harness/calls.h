/* SPDX-License-Identifier: MIT
 * Count the system calls of a piece of work, by kind, over all threads of the process.  A child is
 * traced while it works.  Builds with sanitizers leave this out, because a sanitizer adds calls. */
#ifndef CALLS_H
#define CALLS_H

#include <stdbool.h>

struct calls {
	double all;
	double sends, receives; /* send*, recv*; read and write count as others */
	double polls;           /* poll, ppoll, epoll_wait, select */
	double sleeps, wakes;   /* futex */
	double timers;          /* timerfd_settime */
	double descriptors;     /* read, write: descriptors that wake, or the program's own */
	double memory;          /* mmap, munmap, brk, madvise, mprotect */
};

/* The work to count, in a child: prepare() once, then work() as often as requested.  Both receive
 * arg. */
struct calls_work {
	void (*prepare)(void *arg);
	void (*work)(void *arg);
	void *arg;
	int each; /* operations in one work() */
};

/* The counts of one operation in the cheapest of several work()s.  This leaves out calls that the
 * clock causes in some of them, and keeps those that the code makes in each. */
struct calls calls_of(const struct calls_work *work);

#endif
