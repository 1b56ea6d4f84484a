/* SPDX-License-Identifier: MIT
 * System calls that fail (C22 of the fault list): the n-th one does, for every n that the library
 * reaches, with an error, by a signal, or by a partial transfer.
 *
 * LDFLAGS: -Wl,--wrap=socket,--wrap=connect,--wrap=setsockopt,--wrap=getsockopt,--wrap=getsockname
 * LDFLAGS: -Wl,--wrap=poll,--wrap=send,--wrap=recv,--wrap=read,--wrap=write,--wrap=close
 * LDFLAGS: -Wl,--wrap=eventfd,--wrap=timerfd_create,--wrap=timerfd_settime,--wrap=getrandom
 * LDFLAGS: -Wl,--wrap=getaddrinfo,--wrap=gethostname,--wrap=getpwuid_r,--wrap=pthread_create
 */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/server.h"
#include "harness/shortage.h"
#include "harness/test.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum how { AN_ERROR, A_SIGNAL, A_PART };

static struct shortage calls;
static enum how how;

/* How often each call failed: a test that reaches few of them proves little. */
static struct {
	const char *name;
	atomic_int failures;
} kinds[20];

static bool strikes(const char *name)
{
	int i = 0;

	if (!shortage_strikes(&calls))
		return false;
	while (kinds[i].name && strcmp(kinds[i].name, name))
		i++;
	kinds[i].name = name;
	kinds[i].failures++;
	return true;
}

/* __wrap_NAME fails with that error in the error mode. */
#define FAILING(type, name, parameters, arguments, error)                                          \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		if (how == AN_ERROR && strikes(#name))                                             \
			return errno = (error), -1;                                                \
		return __real_##name arguments;                                                    \
	}

FAILING(int, socket, (int family, int type, int protocol), (family, type, protocol), EMFILE)
FAILING(int, setsockopt, (int fd, int level, int option, const void *value, socklen_t len),
        (fd, level, option, value, len), ENOMEM)
FAILING(int, getsockopt, (int fd, int level, int option, void *value, socklen_t *len),
        (fd, level, option, value, len), ENOBUFS)
FAILING(int, getsockname, (int fd, struct sockaddr *address, socklen_t *len), (fd, address, len),
        ENOBUFS)
FAILING(int, eventfd, (unsigned start, int flags), (start, flags), ENFILE)
FAILING(int, timerfd_create, (int clock, int flags), (clock, flags), EMFILE)
FAILING(ssize_t, getrandom, (void *bytes, size_t size, unsigned flags), (bytes, size, flags),
        ENOSYS)
FAILING(int, gethostname, (char *name, size_t size), (name, size), EPERM)

static bool no_timer; /* no timer can be set any more */

int __real_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when,
                           struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *old)
{
	if (no_timer || (how == AN_ERROR && strikes("timerfd_settime")))
		return errno = EINVAL, -1;
	return __real_timerfd_settime(fd, flags, when, old);
}

/* ... and with EINTR in the signal mode. */
#define INTERRUPTED(type, name, parameters, arguments, error)                                      \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		if (how != A_PART && strikes(#name))                                               \
			return errno = how == A_SIGNAL ? EINTR : (error), -1;                      \
		return __real_##name arguments;                                                    \
	}

INTERRUPTED(int, poll, (struct pollfd * fds, nfds_t count, int timeout_ms),
            (fds, count, timeout_ms), ENOMEM)

/* A signal does not stop a connect: it continues. */
int __real_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t len)
{
	bool fails = how != A_PART && strikes("connect");
	int result;

	if (fails && how == AN_ERROR)
		return errno = EHOSTUNREACH, -1;
	result = __real_connect(fd, address, len);
	if (fails && (result == 0 || errno == EINPROGRESS))
		return errno = EINTR, -1;
	return result;
}

/* ... and with one byte only in the partial mode. */
#define TRANSFER(name, parameters, whole, part, error)                                             \
	ssize_t __real_##name parameters;                                                          \
	ssize_t __wrap_##name parameters;                                                          \
	ssize_t __wrap_##name parameters                                                           \
	{                                                                                          \
		if (!strikes(#name))                                                               \
			return __real_##name whole;                                                \
		if (how == A_PART)                                                                 \
			return __real_##name part;                                                 \
		return errno = how == A_SIGNAL ? EINTR : (error), -1;                              \
	}

TRANSFER(send, (int fd, const void *bytes, size_t len, int flags), (fd, bytes, len, flags),
         (fd, bytes, 1, flags), ENOBUFS)
TRANSFER(recv, (int fd, void *bytes, size_t size, int flags), (fd, bytes, size, flags),
         (fd, bytes, 1, flags), ECONNRESET)

/* For descriptors that transfer eight bytes at once. */
INTERRUPTED(ssize_t, read, (int fd, void *bytes, size_t size), (fd, bytes, size), EIO)
INTERRUPTED(ssize_t, write, (int fd, const void *bytes, size_t len), (fd, bytes, len), EIO)

/* The descriptor is closed all the same, as on Linux. */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	bool fails = how != A_PART && strikes("close");
	int result = __real_close(fd);

	if (!fails)
		return result;
	errno = how == A_SIGNAL ? EINTR : EIO;
	return -1;
}

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **list);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **list)
{
	if (how == AN_ERROR && strikes("getaddrinfo"))
		return EAI_AGAIN;
	return __real_getaddrinfo(host, port, hints, list);
}

int __real_getpwuid_r(uid_t uid, struct passwd *entry, char *strings, size_t size,
                      struct passwd **found);
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *strings, size_t size,
                      struct passwd **found);
int __wrap_getpwuid_r(uid_t uid, struct passwd *entry, char *strings, size_t size,
                      struct passwd **found)
{
	if (how == AN_ERROR && strikes("getpwuid_r"))
		return *found = NULL, ENFILE;
	return __real_getpwuid_r(uid, entry, strings, size, found);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*fn)(void *),
                          void *arg)
{
	if (how == AN_ERROR && strikes("pthread_create"))
		return EAGAIN;
	return __real_pthread_create(thread, attr, fn, arg);
}

static void try_everywhere(enum how which, bool unix_socket, int least)
{
	static struct test_server server;

	server_start(&server, NULL);
	how = which;
	calls.harmless = which != AN_ERROR;
	shortage_everywhere(&server, unix_socket ? server.unix_url : server.url, &calls, least);
	for (int i = 0; kinds[i].name; i++)
		printf("%s %d, ", kinds[i].name, kinds[i].failures);
	printf("\n");
}

TEST_LIMIT(c22_every_failing_call_is_an_error_and_nothing_more, 120)
{
	try_everywhere(AN_ERROR, false, 100);
}

TEST_LIMIT(c22_every_failing_call_on_a_unix_socket, 120)
{
	calls.step = 5;
	try_everywhere(AN_ERROR, true, 80);
}

TEST_LIMIT(c17_every_call_that_a_signal_interrupts_goes_on, 120)
{
	try_everywhere(A_SIGNAL, false, 80);
}

TEST_LIMIT(c22_every_transfer_of_a_part_is_completed, 120)
{
	try_everywhere(A_PART, false, 40);
}

TEST(c22_a_timer_that_cannot_be_set_delays_no_renewal)
{
	static struct test_server server;
	lk_lock *lock;

	server_start(&server, NULL);
	lock = lock_leased(client_at(server.unix_url), "a", 400);
	no_timer = true;
	OK(lk_lock_acquire(lock, 0, NULL));
	for (int i = 0; i < 20; i++) {
		nap_ms(60); /* three leases in all */
		ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	}
	OK(lk_lock_release(lock));
}
