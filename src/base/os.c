/* SPDX-License-Identifier: MIT
 * The differences between operating systems, and nothing else.  Linux is tested; the other branches
 * are for macOS.  LK__OS_PORTABLE builds those that Linux can run, too. */
#include "os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__) && !defined(LK__OS_PORTABLE)
#define HAVE_LINUX_FDS 1
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#endif
#if defined(__linux__) || defined(__APPLE__)
#include <sys/random.h>
#endif

#define NS_PER_S INT64_C(1000000000)
#define THREAD_NAME_SIZE 16
#define RANDOM_CHUNK 256 /* limit of one getentropy() */
#define PASSWD_SIZE 4096 /* for the strings of one user's entry */

/* Waits are limited to these: callers wait in a loop, and sums of time cannot overflow. */
#define COND_WAIT_MAX_NS (3600 * NS_PER_S)
#define POLL_MAX_MS INT64_C(3600000)

int64_t lk__now_ns(void)
{
	struct timespec now;

#ifdef CLOCK_BOOTTIME
	clock_gettime(CLOCK_BOOTTIME, &now);
#else
	/* On macOS this clock advances while the machine sleeps. */
	clock_gettime(CLOCK_MONOTONIC, &now);
#endif
	return now.tv_sec * NS_PER_S + now.tv_nsec;
}

bool lk__random(void *out, size_t size)
{
	unsigned char *pos = out;

	while (size > 0) {
#ifdef __linux__
		ssize_t got = getrandom(pos, size, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
#else
		size_t got = size < RANDOM_CHUNK ? size : RANDOM_CHUNK;

		if (getentropy(pos, got) != 0)
			return false;
#endif
		pos += got;
		size -= (size_t)got;
	}
	return true;
}

/* ---- Descriptors to poll ------------------------------------------------------------------ */

bool lk__wake_init(struct lk__wake *wake)
{
#ifdef HAVE_LINUX_FDS
	wake->read_fd = wake->write_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return wake->read_fd >= 0;
#else
	int fds[2];

	wake->read_fd = wake->write_fd = -1;
	if (pipe(fds) != 0)
		return false;
	for (int i = 0; i < 2; i++) {
		fcntl(fds[i], F_SETFD, FD_CLOEXEC);
		fcntl(fds[i], F_SETFL, O_NONBLOCK);
	}
	wake->read_fd = fds[0];
	wake->write_fd = fds[1];
	return true;
#endif
}

void lk__wake_notify(struct lk__wake *wake)
{
	int saved = errno;
	uint64_t one = 1;
	ssize_t put;

	/* A full pipe is readable already. */
	do
		put = write(wake->write_fd, &one, sizeof(one));
	while (put < 0 && errno == EINTR);
	errno = saved;
}

/* One read empties an eventfd; a pipe is empty after a short read. */
static void drain(int fd)
{
	char bytes[64];
	ssize_t got;

	do
		got = read(fd, bytes, sizeof(bytes));
	while (got == (ssize_t)sizeof(bytes) || (got < 0 && errno == EINTR));
}

void lk__wake_drain(struct lk__wake *wake)
{
	drain(wake->read_fd);
}

void lk__wake_fini(struct lk__wake *wake)
{
	if (wake->write_fd >= 0 && wake->write_fd != wake->read_fd)
		close(wake->write_fd);
	if (wake->read_fd >= 0)
		close(wake->read_fd);
	wake->read_fd = wake->write_fd = -1;
}

int lk__timer_open(void)
{
#ifdef HAVE_LINUX_FDS
	return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
#else
	return -1;
#endif
}

bool lk__timer_set(int fd, int64_t when_ns)
{
#ifdef HAVE_LINUX_FDS
	struct itimerspec spec = {.it_value = {0}};

	if (when_ns < 0)
		when_ns = 1; /* in the past; 0 would mean never */
	spec.it_value.tv_sec = (time_t)(when_ns / NS_PER_S);
	spec.it_value.tv_nsec = (long)(when_ns % NS_PER_S);
	return fd >= 0 && timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0;
#else
	(void)fd;
	(void)when_ns;
	return false;
#endif
}

void lk__timer_drain(int fd)
{
	if (fd >= 0)
		drain(fd);
}

int lk__poll2(int fd, short events, int fd2, int64_t deadline_ns)
{
	struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = fd2, .events = POLLIN}};

	for (;;) {
		int64_t left_ns = deadline_ns < 0 ? -1 : deadline_ns - lk__now_ns();
		int64_t wait_ms = -1;
		int ready;

		if (deadline_ns >= 0) {
			/* Round up: the last fraction of a millisecond would otherwise be spent
			 * spinning. */
			wait_ms = left_ns > 0 ? (left_ns - 1) / LK__MS + 1 : 0;
			if (wait_ms > POLL_MAX_MS)
				wait_ms = POLL_MAX_MS;
		}
		ready = poll(fds, 2, (int)wait_ms);
		if (ready > 0)
			return (fds[0].revents ? 1 : 0) | (fds[1].revents ? 2 : 0);
		if (ready < 0 && errno != EINTR)
			return 0;
		if (deadline_ns >= 0 && lk__now_ns() >= deadline_ns)
			return 0;
	}
}

/* ---- Threads ------------------------------------------------------------------------------ */

struct thread_start {
	void *(*fn)(void *);
	void *arg;
	char name[THREAD_NAME_SIZE];
};

static void *run_thread(void *arg)
{
	struct thread_start start = *(struct thread_start *)arg;

	free(arg);
	/* A cancelled thread would leave mutexes locked. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
#ifdef __APPLE__
	pthread_setname_np(start.name);
#else
	pthread_setname_np(pthread_self(), start.name);
#endif
	return start.fn(start.arg);
}

bool lk__thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg)
{
	/* Faults of the thread itself: if they were blocked, the program's own crash handler would
	 * not run. */
	static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	struct thread_start *start = malloc(sizeof(*start));
	sigset_t blocked, before;
	int error;

	if (!start)
		return false;
	start->fn = fn;
	start->arg = arg;
	snprintf(start->name, sizeof(start->name), "%s", name);
	sigfillset(&blocked);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&blocked, faults[i]);
	/* The new thread inherits the mask: it never runs with a signal unblocked. */
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	error = pthread_create(thread, NULL, run_thread, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error != 0)
		free(start);
	return error == 0;
}

bool lk__cond_init(pthread_cond_t *cond)
{
#ifdef __APPLE__
	return pthread_cond_init(cond, NULL) == 0;
#else
	pthread_condattr_t attr;
	bool done;

	if (pthread_condattr_init(&attr) != 0)
		return false;
	done = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
	       pthread_cond_init(cond, &attr) == 0;
	pthread_condattr_destroy(&attr);
	return done;
#endif
}

void lk__cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t ns)
{
	struct timespec when;

	if (ns < 0) {
		pthread_cond_wait(cond, mutex);
		return;
	}
	if (ns > COND_WAIT_MAX_NS)
		ns = COND_WAIT_MAX_NS;
#ifdef __APPLE__
	when.tv_sec = (time_t)(ns / NS_PER_S);
	when.tv_nsec = (long)(ns % NS_PER_S);
	pthread_cond_timedwait_relative_np(cond, mutex, &when);
#else
	clock_gettime(CLOCK_MONOTONIC, &when);
	ns += when.tv_nsec;
	when.tv_sec += (time_t)(ns / NS_PER_S);
	when.tv_nsec = (long)(ns % NS_PER_S);
	pthread_cond_timedwait(cond, mutex, &when);
#endif
}

/* ---- Parking ------------------------------------------------------------------------------ */

#ifdef LK__HAVE_FUTEX

/* A sleeper is woken to reacquire the mutex, or claimed by the thread with the mutex and then
 * dismissed. */
enum park_state { ASLEEP, WOKEN, CLAIMED, DISMISSED };

bool lk__park_init(struct lk__park *park)
{
	atomic_init(&park->state, WOKEN);
	return true;
}

void lk__park_fini(struct lk__park *park)
{
	(void)park;
}

static void futex(struct lk__park *park, int what, uint32_t value, const struct timespec *left)
{
	syscall(SYS_futex, &park->state, what | FUTEX_PRIVATE_FLAG, value, left, NULL, 0);
}

/* The thread may be awake already and its park freed: the kernel then finds no waiter at that
 * address, or one that tolerates a spurious wake-up. */
static void unpark(struct lk__park *park)
{
	futex(park, FUTEX_WAKE, 1, NULL);
}

static void set_and_note(struct lk__park *park, enum park_state state, struct lk__wakes *wakes)
{
	atomic_store(&park->state, state);
	if (wakes->count == LK__WAKES_MAX)
		unpark(park);
	else
		wakes->parks[wakes->count++] = park;
}

void lk__park_wake(struct lk__park *park, struct lk__wakes *wakes)
{
	set_and_note(park, WOKEN, wakes);
}

bool lk__park_claim(struct lk__park *park)
{
	uint32_t state = ASLEEP;

	return atomic_compare_exchange_strong(&park->state, &state, CLAIMED);
}

void lk__park_dismiss(struct lk__park *park, struct lk__wakes *wakes)
{
	set_and_note(park, DISMISSED, wakes);
}

void lk__park_prepare(struct lk__park *park)
{
	atomic_store(&park->state, ASLEEP);
}

bool lk__park_sleep(struct lk__park *park, int64_t ns)
{
	uint32_t state = ASLEEP;
	struct timespec left;

	if (ns > COND_WAIT_MAX_NS)
		ns = COND_WAIT_MAX_NS;
	left.tv_sec = (time_t)(ns / NS_PER_S);
	left.tv_nsec = (long)(ns % NS_PER_S);
	futex(park, FUTEX_WAIT, ASLEEP, ns < 0 ? NULL : &left);
	/* From here on it cannot be claimed. */
	if (atomic_compare_exchange_strong(&park->state, &state, WOKEN))
		return false;
	while ((state = atomic_load(&park->state)) == CLAIMED)
		futex(park, FUTEX_WAIT, CLAIMED, NULL);
	return state == DISMISSED;
}

#else

bool lk__park_init(struct lk__park *park)
{
	if (pthread_mutex_init(&park->mutex, NULL) != 0)
		return false;
	if (lk__cond_init(&park->cond))
		return true;
	pthread_mutex_destroy(&park->mutex);
	return false;
}

void lk__park_fini(struct lk__park *park)
{
	pthread_cond_destroy(&park->cond);
	pthread_mutex_destroy(&park->mutex);
}

static void unpark(struct lk__park *park)
{
	pthread_mutex_lock(&park->mutex);
	park->woken = true;
	pthread_cond_signal(&park->cond);
	pthread_mutex_unlock(&park->mutex);
}

/* Not deferred: the park is freed with its thread. */
void lk__park_wake(struct lk__park *park, struct lk__wakes *wakes)
{
	(void)wakes;
	unpark(park);
}

bool lk__park_claim(struct lk__park *park)
{
	(void)park;
	return false;
}

void lk__park_dismiss(struct lk__park *park, struct lk__wakes *wakes)
{
	(void)park;
	(void)wakes;
}

void lk__park_prepare(struct lk__park *park)
{
	pthread_mutex_lock(&park->mutex);
	park->woken = false;
	pthread_mutex_unlock(&park->mutex);
}

bool lk__park_sleep(struct lk__park *park, int64_t ns)
{
	pthread_mutex_lock(&park->mutex);
	if (!park->woken)
		lk__cond_wait(&park->cond, &park->mutex, ns);
	pthread_mutex_unlock(&park->mutex);
	return false;
}

#endif

void lk__wakes_now(struct lk__wakes *wakes)
{
	for (unsigned i = 0; i < wakes->count; i++)
		unpark(wakes->parks[i]);
	wakes->count = 0;
}

void lk__wakes_unlock(struct lk__wakes *wakes, pthread_mutex_t *mutex)
{
	struct lk__wakes mine;

	mine.count = wakes->count;
	memcpy(mine.parks, wakes->parks, mine.count * sizeof(mine.parks[0]));
	wakes->count = 0;
	pthread_mutex_unlock(mutex);
	lk__wakes_now(&mine);
}

/* ---- Serials of threads ------------------------------------------------------------------- */

static _Thread_local uint64_t this_serial; /* 0 = not assigned yet */
static _Atomic uint64_t last_serial;
static void (*_Atomic exit_fn)(uint64_t serial);
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static atomic_bool key_made;

/* The key's value is the serial where it fits into a pointer: some systems free thread-local
 * variables by a key like this one, perhaps before it. */
static void thread_ends(void *value)
{
	uint64_t serial = sizeof(value) >= sizeof(serial) ? (uintptr_t)value : this_serial;
	void (*fn)(uint64_t) = atomic_load(&exit_fn);

	/* If a later destructor of the program calls the library, it does so as a new thread. */
	this_serial = 0;
	if (fn)
		fn(serial);
}

static void make_key(void)
{
	atomic_store(&key_made, pthread_key_create(&key, thread_ends) == 0);
}

/* After dlclose(), thread_ends() no longer exists. */
__attribute__((destructor)) static void delete_key(void)
{
	if (atomic_exchange(&key_made, false))
		pthread_key_delete(key);
}

uint64_t lk__thread_serial(void)
{
	if (this_serial == 0) {
		pthread_once(&key_once, make_key);
		this_serial = atomic_fetch_add(&last_serial, 1) + 1;
		if (atomic_load(&key_made))
			pthread_setspecific(key, (void *)(uintptr_t)this_serial);
	}
	return this_serial;
}

void lk__thread_on_exit(void (*fn)(uint64_t serial))
{
	atomic_store(&exit_fn, fn);
}

/* ---- Facts about this process ------------------------------------------------------------- */

void lk__host_name(char *out, size_t size)
{
	char name[256];

	if (gethostname(name, sizeof(name)) != 0)
		name[0] = '\0';
	name[sizeof(name) - 1] = '\0'; /* a truncated name may lack it */
	snprintf(out, size, "%s", name);
}

void lk__user_name(char *out, size_t size)
{
	char strings[PASSWD_SIZE];
	struct passwd entry;
	struct passwd *found = NULL;

	if (getpwuid_r(geteuid(), &entry, strings, sizeof(strings), &found) != 0)
		found = NULL;
	snprintf(out, size, "%s", found ? found->pw_name : "");
}

void lk__program_name(char *out, size_t size)
{
#ifdef __linux__
	const char *name = program_invocation_short_name;
#else
	const char *name = getprogname();
#endif

	snprintf(out, size, "%s", name ? name : "");
}
