/* SPDX-License-Identifier: MIT
 * How many system calls a piece of work costs, by kind: all threads of the process count.  A child
 * is traced while it works; its own sanitizers would add calls, so such builds leave this out. */
#ifndef CALLS_H
#define CALLS_H

#include <stdbool.h>

struct calls {
	double all;
	double sends, receives; /* send*, recv*; read and write are among the others */
	double polls;           /* poll, ppoll, epoll_wait, select */
	double sleeps, wakes;   /* futex */
	double timers;          /* timerfd_settime */
	double descriptors;     /* read, write: of descriptors that wake, or the program's own */
	double memory;          /* mmap, munmap, brk, madvise, mprotect */
};

/* What is counted: prepare() once, then work() as often as it is said, in a child.  arg is for
 * both. */
struct calls_work {
	void (*prepare)(void *arg);
	void (*work)(void *arg);
	void *arg;
	int each; /* operations in one work() */
};

/* A piece of work of the cheapest of several work()s, an operation: what the clock adds to one of
 * them is left out that way, and what the code adds to all is not. */
struct calls calls_of(const struct calls_work *work);

#endif
