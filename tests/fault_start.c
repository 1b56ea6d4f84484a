/* SPDX-License-Identifier: MIT
 * Starting and ending the private server of local: while system calls fail (C22 of the fault list),
 * also in the child that becomes the server: the n-th one, for every n.
 *
 * LDFLAGS: -Wl,--wrap=fork,--wrap=setsid,--wrap=dup2,--wrap=fcntl,--wrap=flock,--wrap=mkdir
 * LDFLAGS: -Wl,--wrap=open,--wrap=pipe,--wrap=socket,--wrap=connect,--wrap=send,--wrap=recv
 * LDFLAGS: -Wl,--wrap=read,--wrap=write,--wrap=poll,--wrap=chdir,--wrap=execv,--wrap=waitpid
 * LDFLAGS: -Wl,--wrap=sigaction,--wrap=opendir,--wrap=getrlimit
 */
#include "harness/handles.h"
#include "harness/local_folder.h"
#include "harness/process.h"
#include "harness/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS_MAX 600

/* Shared with the children. */
static struct shared {
	atomic_int left; /* which call fails: 1 is the next one, 0 none */
	atomic_int failures;
	char name[20]; /* of the call that failed last */
} * shared;

static bool strikes(const char *name)
{
	if (!shared || shared->left <= 0 || atomic_fetch_sub(&shared->left, 1) != 1)
		return false;
	shared->failures++;
	snprintf(shared->name, sizeof(shared->name), "%s", name);
	return true;
}

#define FAILING(type, failed, name, parameters, arguments, error)                                  \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		if (strikes(#name))                                                                \
			return errno = (error), failed;                                            \
		return __real_##name arguments;                                                    \
	}

FAILING(pid_t, -1, fork, (void), (), EAGAIN)
FAILING(pid_t, -1, setsid, (void), (), EPERM)
FAILING(int, -1, dup2, (int from, int to), (from, to), EBUSY)
FAILING(int, -1, flock, (int fd, int how), (fd, how), ENOLCK)
FAILING(int, -1, mkdir, (const char *path, mode_t mode), (path, mode), ENOSPC)
FAILING(int, -1, pipe, (int fds[2]), (fds), EMFILE)
FAILING(int, -1, socket, (int family, int type, int protocol), (family, type, protocol), EMFILE)
FAILING(int, -1, connect, (int fd, const struct sockaddr *address, socklen_t len),
        (fd, address, len), EACCES)
FAILING(ssize_t, -1, send, (int fd, const void *bytes, size_t len, int flags),
        (fd, bytes, len, flags), ECONNRESET)
FAILING(ssize_t, -1, recv, (int fd, void *bytes, size_t size, int flags), (fd, bytes, size, flags),
        ECONNRESET)
FAILING(ssize_t, -1, read, (int fd, void *bytes, size_t size), (fd, bytes, size), EIO)
FAILING(ssize_t, -1, write, (int fd, const void *bytes, size_t len), (fd, bytes, len), EIO)
FAILING(int, -1, poll, (struct pollfd * fds, nfds_t count, int timeout_ms),
        (fds, count, timeout_ms), ENOMEM)
FAILING(int, -1, chdir, (const char *path), (path), EACCES)
FAILING(int, -1, execv, (const char *path, char *const argv[]), (path, argv), ENOEXEC)
FAILING(pid_t, -1, waitpid, (pid_t pid, int *status, int options), (pid, status, options), EINTR)
FAILING(int, -1, sigaction, (int number, const struct sigaction *action, struct sigaction *old),
        (number, action, old), EINVAL)
FAILING(DIR *, NULL, opendir, (const char *path), (path), EMFILE)
FAILING(int, -1, getrlimit, (__rlimit_resource_t resource, struct rlimit *limit), (resource, limit),
        EPERM)

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	int mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, int) : 0;
	va_end(args);
	if (strikes("open"))
		return errno = ENFILE, -1;
	return __real_open(path, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, ...)
{
	va_list args;
	int arg;

	va_start(args, command);
	arg = va_arg(args, int);
	va_end(args);
	if (strikes("fcntl"))
		return errno = EMFILE, -1;
	return __real_fcntl(fd, command, arg);
}

/* It succeeded, or reports the reason. */
static void check(lk_err err, const char *call, int n)
{
	bool right = err == LK_OK || err == LK_ESYSTEM || err == LK_ECONN || err == LK_ENOMEM ||
	             err == LK_EABSENT;

	ck_assert_msg(right && (err == LK_OK || lk_errmsg()[0]), "n = %d (%s), %s: %s: %s", n,
	              shared->name, call, lk_err_name(err), lk_errmsg());
}

/* Start and stop one with the n-th call failing.  False if there are fewer calls. */
static bool fails_well(int n)
{
	lk_local_info info = {0};
	int before = shared->failures;
	lk_err err;

	shared->left = n;
	err = lk_local_start(&info);
	check(err, "start", n);
	if (err == LK_OK) {
		err = lk_local_stop();
		check(err, "stop", n);
	}
	shared->left = 0;
	/* The next start is not affected, and has one server. */
	OK(lk_local_start(&info));
	ck_assert(info.running);
	ck_assert_msg(WITHIN(2000, local_servers(0) == 1), "n = %d (%s): %d servers", n,
	              shared->name, local_servers(0));
	OK(lk_local_stop());
	ck_assert_msg(WITHIN(2000, local_servers(0) == 0), "n = %d (%s) leaves a server", n,
	              shared->name);
	return shared->failures > before;
}

TEST_LIMIT(c22_every_failing_call_of_a_start_is_an_error_and_nothing_more, 300)
{
	int step = getenv("LK_LONG") ? 1 : 11, seeds = 0, fds, n;

	local_folder();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	ck_assert(!fails_well(CALLS_MAX));
	fds = proc_fd_count(0);
	for (n = 1 + (int)(test_seed() % (unsigned)step); fails_well(n); n += step) {
		ck_assert_msg(proc_fd_count(0) == fds, "n = %d (%s) leaves descriptors", n,
		              shared->name);
		seeds++;
	}
	/* All children were waited for. */
	ck_assert(waitpid(-1, NULL, WNOHANG) <= 0);
	printf("%d of %d calls failed\n", seeds, n);
	ck_assert_int_ge(n, 60);
	ck_assert_int_lt(n, CALLS_MAX);
}
