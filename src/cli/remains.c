/* SPDX-License-Identifier: MIT
 * Releasing the hold of a latchkey process that was killed. */
#include "remains.h"

#include "clock.h"

#include <latchkey.h>

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TRY_AGAIN_NS (100 * MS)
#define TRY_MAX_MS 10000 /* limit of all attempts; a longer lease must expire */
#define DESCRIPTORS_MAX 1024

/* Close inherited descriptors, which exec() does not close as it does our own: a reader may wait
 * for end of file, another process for a flock. */
static void close_inherited(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	for (int fd = 0; fd < 3; fd++)
		if (null >= 0)
			dup2(null, fd);
	for (int fd = 3; fd < DESCRIPTORS_MAX; fd++)
		if (!(fcntl(fd, F_GETFD) & FD_CLOEXEC))
			close(fd);
	/* And do not keep a file system busy. */
	if (chdir("/"))
		return;
}

/* Only the release depends on this process now: the usual signals may end it. */
static void wait_until(int64_t until_ns)
{
	static const int ends[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
	struct pollfd timer;
	sigset_t mask;

	sigfillset(&mask);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigdelset(&mask, ends[i]);
	while (clock_ns() < until_ns)
		clock_wait(&timer, 1, until_ns, &mask);
}

static lk_err break_by_id(const struct remains *remains, lk_client *client)
{
	lk_semaphore_options any = {0};
	lk_semaphore *semaphore;
	lk_lock *lock;
	lk_err err;

	if (remains->options->verb == VERB_SEM) {
		err = lk_semaphore_open(client, remains->options->name, 0, &any, &semaphore);
		return err != LK_OK ? err : lk_semaphore_break(semaphore, remains->holder);
	}
	err = lk_lock_open(client, remains->options->name, 0, NULL, &lock);
	return err != LK_OK ? err : lk_lock_break(lock, remains->holder);
}

static bool is_retryable(lk_err err)
{
	return lk_err_is_retryable(err) || err == LK_EUNKNOWN || err == LK_ESERVER ||
	       err == LK_ESYSTEM || err == LK_ENOMEM;
}

static int64_t at_most(int64_t value, int64_t limit)
{
	return value < limit ? value : limit;
}

/* Returns false when another attempt may succeed.  Over a slow link the handshake alone takes
 * seconds, so an attempt has the time-outs of the URL. */
static bool try_once(const struct remains *remains, int64_t end_ns)
{
	int64_t left_ms = (end_ns - clock_ns()) / MS;
	const struct store *store = remains->store;
	lk_client_options options = store->client;
	lk_client *client = NULL;
	lk_err err;

	if (left_ms < 1)
		left_ms = 1;
	options.connect_timeout_ms = at_most(store->connect_timeout_ms, left_ms);
	options.command_timeout_ms = at_most(store->command_timeout_ms, left_ms);
	options.log = NULL;
	err = lk_client_open(store->url, &options, &client);
	if (err == LK_OK)
		err = break_by_id(remains, client);
	lk_client_close(client);
	return !is_retryable(err);
}

/* If the private server was stopped, all its holds have ended; it must not be started again. */
static bool store_is_gone(const struct store *store)
{
	lk_local_info info;

	return !strncmp(store->url, "local:", 6) &&
	       (lk_local_status(&info) != LK_OK || !info.running);
}

void remains_release(const struct remains *remains)
{
	int64_t end_ns;

	close_inherited();
	wait_until(remains->keep_until_ns);
	end_ns = clock_ns() + at_most(remains->lease_ms, TRY_MAX_MS) * MS;
	while (!store_is_gone(remains->store) && !try_once(remains, end_ns) &&
	       clock_ns() < end_ns) {
		struct pollfd timer;
		clock_wait(&timer, 1, clock_ns() + TRY_AGAIN_NS, NULL);
	}
}
