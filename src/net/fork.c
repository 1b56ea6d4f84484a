/* SPDX-License-Identifier: MIT
 * The table of the library's sockets.  A socket is created and entered in one critical section, and
 * fork() waits for its end: a child never has a socket that is not in its table. */
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_CAP 8

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;   /* a leaf: no lock is taken under it */
static pthread_cond_t free_cond = PTHREAD_COND_INITIALIZER; /* holders or forks is 0 now */
static atomic_int holders; /* threads between lk__fork_hold() and lk__fork_let() */
static atomic_int forks;   /* threads in fork(), or waiting for the holders; new ones wait for it */
static int *fds;
static size_t fd_count;
static size_t fd_cap;
static bool registered;
static atomic_uint generation;

static void before_fork(void)
{
	pthread_mutex_lock(&mutex);
	atomic_fetch_add(&forks, 1);
	while (atomic_load(&holders))
		pthread_cond_wait(&free_cond, &mutex);
}

static void after_fork_parent(void)
{
	if (atomic_fetch_sub(&forks, 1) == 1)
		pthread_cond_broadcast(&free_cond);
	pthread_mutex_unlock(&mutex);
}

/* Closing sends nothing: the parent still has each connection open. */
static void after_fork_child(void)
{
	for (size_t i = 0; i < fd_count; i++)
		close(fds[i]);
	fd_count = 0;
	atomic_fetch_add(&generation, 1);
	/* The threads that were counted or waited are not here. */
	atomic_store(&holders, 0);
	atomic_store(&forks, 0);
	free_cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	pthread_mutex_unlock(&mutex);
}

/* Register the handlers.  Not with pthread_once(): after a failure for lack of memory, the next
 * attempt may succeed. */
static bool register_locked(void)
{
	if (!registered)
		registered = !pthread_atfork(before_fork, after_fork_parent, after_fork_child);
	return registered;
}

/* Before any thread can hold the mutex: a fork() without the handlers would leave it locked in the
 * child for ever. */
__attribute__((constructor)) static void register_at_start(void)
{
	register_locked(); /* or later, when there is memory */
}

/* Make room for one more entry, and register the handlers. */
static bool prepare_locked(void)
{
	size_t cap;
	int *grown;

	if (!register_locked())
		return false;
	if (fd_count < fd_cap)
		return true;
	cap = fd_cap > 0 ? 2 * fd_cap : FIRST_CAP;
	grown = realloc(fds, cap * sizeof(*grown));
	if (!grown)
		return false;
	fds = grown;
	fd_cap = cap;
	return true;
}

static int open_socket(int family, int type, int protocol)
{
#if defined(SOCK_CLOEXEC) && defined(SOCK_NONBLOCK)
	return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
#else
	int on = 1;
	int fd = socket(family, type, protocol);

	if (fd < 0)
		return -1;
	if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on)) < 0) {
		int saved = errno;

		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
#endif
}

int lk__fork_socket(int family, int type, int protocol)
{
	int fd = -1;

	pthread_mutex_lock(&mutex);
	if (prepare_locked()) {
		fd = open_socket(family, type, protocol);
		if (fd >= 0)
			fds[fd_count++] = fd;
	} else {
		errno = ENOMEM;
	}
	pthread_mutex_unlock(&mutex);
	return fd;
}

void lk__fork_close(int fd)
{
	int saved = errno;

	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < fd_count; i++) {
		if (fds[i] != fd)
			continue;
		fds[i] = fds[--fd_count];
		close(fd);
		break;
	}
	/* Not found: a child closes a handle of its parent, and the number may now be another
	 * file. */
	pthread_mutex_unlock(&mutex);
	errno = saved;
}

bool lk__fork_watch(void)
{
	bool watched;

	pthread_mutex_lock(&mutex);
	watched = register_locked();
	pthread_mutex_unlock(&mutex);
	return watched;
}

unsigned lk__fork_generation(void)
{
	return atomic_load(&generation);
}

/* Either this thread sees a fork() that waits, or that fork() sees this thread. */
void lk__fork_hold(void)
{
	atomic_fetch_add(&holders, 1);
	while (atomic_load(&forks)) {
		lk__fork_let();
		pthread_mutex_lock(&mutex);
		while (atomic_load(&forks))
			pthread_cond_wait(&free_cond, &mutex);
		pthread_mutex_unlock(&mutex);
		atomic_fetch_add(&holders, 1);
	}
}

void lk__fork_let(void)
{
	if (atomic_fetch_sub(&holders, 1) != 1 || !atomic_load(&forks))
		return;
	pthread_mutex_lock(&mutex);
	pthread_cond_broadcast(&free_cond);
	pthread_mutex_unlock(&mutex);
}
