/* SPDX-License-Identifier: MIT
 * The differences between operating systems, and nothing else. */
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

/* CLOCK_BOOTTIME (where the system has it), nanoseconds: advances while the machine sleeps. */
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
 * none: then, or if setting it fails, rely on the poll time-out. */
int lk__timer_open(void);
bool lk__timer_set(int fd, int64_t when_ns); /* absolute, 0 = never */
void lk__timer_drain(int fd);

/* Start a joinable thread with all signals blocked, named "lk-..." (15 bytes at most). */
bool lk__thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg);

/* Condition variables on CLOCK_MONOTONIC.  Waits at most ns nanoseconds (< 0 = no limit). */
bool lk__cond_init(pthread_cond_t *cond);
void lk__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns);

/* A park: where one thread sleeps until another wakes it.  The sleeper prepares under the mutex
 * that guards its condition, unlocks and sleeps.  The waker records the wake under the mutex and
 * performs it after unlocking: a thread woken earlier would find the mutex locked and sleep
 * again. */
struct lk__park {
#ifdef LK__HAVE_FUTEX
	_Atomic uint32_t state; /* enum park_state in os.c */
#else
	pthread_mutex_t mutex; /* a leaf; guards woken */
	pthread_cond_t cond;
	bool woken;
#endif
};
/* Recorded wakes. */
struct lk__wakes {
	struct lk__park *parks[LK__WAKES_MAX];
	unsigned count;
};
bool lk__park_init(struct lk__park *park);
void lk__park_fini(struct lk__park *park);
/* With the mutex held: any wake from now on ends the sleep that follows. */
void lk__park_prepare(struct lk__park *park);
/* Without the mutex: sleep at most ns nanoseconds (< 0 = no limit), perhaps less.  Returns true if
 * the thread was dismissed. */
bool lk__park_sleep(struct lk__park *park, int64_t ns);
/* With the mutex held. */
void lk__park_wake(struct lk__park *park, struct lk__wakes *wakes);
/* With the mutex held: complete the wait without making the sleeper reacquire the mutex.  Claim
 * first; that fails if the thread is awake already, or on systems without a futex.  A claimed
 * thread sleeps until it is dismissed; after that the park belongs to its thread again and may be
 * freed. */
bool lk__park_claim(struct lk__park *park);
void lk__park_dismiss(struct lk__park *park, struct lk__wakes *wakes);
/* Unlock the mutex, then perform the recorded wakes. */
void lk__wakes_unlock(struct lk__wakes *wakes, pthread_mutex_t *mutex);
/* Perform the recorded wakes now, before waiting for something else. */
void lk__wakes_now(struct lk__wakes *wakes);

/* This thread's serial: never 0, never reused after the thread has ended. */
uint64_t lk__thread_serial(void);
/* Make each ending thread that has a serial call fn.  Set once, by the library. */
void lk__thread_on_exit(void (*fn)(uint64_t serial));

/* Facts about this process, for display.  NUL-terminated, not escaped, "" when unknown. */
void lk__host_name(char *out, size_t size);
void lk__user_name(char *out, size_t size);
void lk__program_name(char *out, size_t size);

/* poll() one or two descriptors until lk__now_ns() reaches deadline_ns (< 0 = no limit); retries
 * EINTR with the remaining time.  fd2 may be -1.  Returns bit 1 if fd is ready, bit 2 if fd2 is, 0
 * on time-out. */
int lk__poll2(int fd, short events, int fd2, int64_t deadline_ns);

#endif
