/* SPDX-License-Identifier: MIT
 * What differs between operating systems, and nothing else. */
#ifndef LK__OS_H
#define LK__OS_H

#include <latchkey.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK__MS INT64_C(1000000) /* nanoseconds */

/* CLOCK_BOOTTIME (where the system has it), nanoseconds: goes on while the machine sleeps. */
int64_t lk__now_ns(void);

/* Random bytes of the kernel. */
bool lk__random(void *out, size_t size);

/* A descriptor that becomes readable: eventfd, or a pipe where there is none.  Both ends CLOEXEC
 * and non-blocking. */
struct lk__wake {
	int read_fd;
	int write_fd;
};
bool lk__wake_init(struct lk__wake *wake);
void lk__wake_notify(struct lk__wake *wake); /* any thread, async-signal-safe */
void lk__wake_drain(struct lk__wake *wake);
void lk__wake_fini(struct lk__wake *wake);

/* A timer on the clock of lk__now_ns() as a descriptor to poll.  fd is -1 where the system has
 * none: then, as when it cannot be set, the poll time-out has to do. */
int lk__timer_open(void);
bool lk__timer_set(int fd, int64_t when_ns); /* absolute, 0 = never */
void lk__timer_drain(int fd);

/* Start a joinable thread that no signal is delivered to, named "lk-..." (15 bytes at most). */
bool lk__thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg);

/* Condition variables on CLOCK_MONOTONIC.  Waits at most ns nanoseconds (< 0 = no limit). */
bool lk__cond_init(pthread_cond_t *cond);
void lk__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns);

/* This thread's serial: never 0, never used again after the thread has ended. */
uint64_t lk__thread_serial(void);
/* Have fn called in each ending thread that asked for its serial.  Set once, by the library. */
void lk__thread_on_exit(void (*fn)(uint64_t serial));

/* Facts about this process, for people.  NUL-ended, not escaped, "" when unknown. */
void lk__host_name(char *out, size_t size);
void lk__user_name(char *out, size_t size);
void lk__program_name(char *out, size_t size);

/* poll() for one or two descriptors until now_ns() reaches deadline_ns (< 0 = no limit); EINTR is
 * retried with what time is left.  fd2 may be -1.  Returns bit 1 if fd is ready, bit 2 if fd2 is, 0
 * on time-out. */
int lk__poll2(int fd, short events, int fd2, int64_t deadline_ns);

#endif
