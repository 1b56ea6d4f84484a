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
#define LK__WAKES_MAX 32
#if defined(__linux__) && !defined(LK__OS_PORTABLE)
#define LK__HAVE_FUTEX 1
#endif

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

/* Where a thread sleeps until another one wakes it.  The thread prepares under the mutex that
 * guards what it waits for, gives the mutex up and sleeps.  The other one notes the wake under the
 * mutex and does it when it gives the mutex up: a thread that wakes earlier finds it taken and
 * sleeps again. */
struct lk__park {
#ifdef LK__HAVE_FUTEX
	_Atomic uint32_t state; /* enum park_state in os.c */
#else
	pthread_mutex_t mutex; /* a leaf; guards woken */
	pthread_cond_t cond;
	bool woken;
#endif
};
/* What is noted: whom to wake. */
struct lk__wakes {
	struct lk__park *parks[LK__WAKES_MAX];
	unsigned count;
};
bool lk__park_init(struct lk__park *park);
void lk__park_fini(struct lk__park *park);
/* With the mutex held: what wakes the park from now on ends the sleep that follows. */
void lk__park_prepare(struct lk__park *park);
/* Without the mutex: sleep at most ns nanoseconds (< 0 = no limit), perhaps less.  True for a
 * thread that was dismissed. */
bool lk__park_sleep(struct lk__park *park, int64_t ns);
/* With the mutex held. */
void lk__park_wake(struct lk__park *park, struct lk__wakes *wakes);
/* With the mutex held: wake it so that it does not come for the mutex.  Claim it first, which fails
 * for a thread that is awake already, or where a sleeper cannot do without the mutex; between the
 * two it does not go; after them the park is its thread's again, and may be gone. */
bool lk__park_claim(struct lk__park *park);
void lk__park_dismiss(struct lk__park *park, struct lk__wakes *wakes);
/* Give the mutex up, then wake whom it notes. */
void lk__wakes_unlock(struct lk__wakes *wakes, pthread_mutex_t *mutex);
/* Wake them now, for a wait on something else. */
void lk__wakes_now(struct lk__wakes *wakes);

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
