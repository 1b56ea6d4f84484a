/* SPDX-License-Identifier: MIT
 * Getting the lock: in a thread, so that signals and the waiting line are served meanwhile. */
#include "acquire.h"

#include "clock.h"
#include "say.h"
#include "signals.h"
#include "waitline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_AGAIN_NS (50 * MS)

enum stage { STAGE_OPENING, STAGE_WAITING, STAGE_DONE };

/* Does the holder's id stand among those of the commands above us?  Ids are never the same twice,
 * so that one that was handed down to a daemon and is long over means nothing. */
static bool chain_has(const char *chain, const char *id)
{
	size_t len = strlen(id);
	const char *at = chain;

	while (len && (at = strstr(at, id))) {
		if ((at == chain || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
		at += len;
	}
	return false;
}

static bool is_nested(lk_lock *lock)
{
	const char *chain = getenv("LATCHKEY_CHAIN");
	lk_lock_status status;

	/* If the store does not answer here, acquiring will say so. */
	return chain && *chain && lk_lock_query(lock, &status) == LK_OK && status.held &&
	       chain_has(chain, status.holder.id);
}

/* What others see beside host and pid: never the command's arguments, they carry secrets. */
static const char *label_of(const struct options *options)
{
	const char *program = options->command[0];
	const char *slash = strrchr(program, '/');

	if (options->label)
		return options->label;
	if (slash && slash[1])
		program = slash + 1;
	return strlen(program) <= LK_LABEL_MAX ? program : NULL;
}

static lk_err open_lock(struct acquire *acquire)
{
	const struct options *options = acquire->options;
	lk_lock_options lock = {0};
	lk_err err;

	err = lk_client_open(acquire->store->url, &acquire->store->client, &acquire->client);
	if (err != LK_OK)
		return err;
	lock.lease_ms = options->lease_ms;
	lock.fixed = options->fixed;
	lock.owner = LK_OWNER_HANDLE;
	lock.label = label_of(options);
	lock.on_lost = acquire->on_lost;
	lock.on_lost_arg = acquire->on_lost_arg;
	return lk_lock_open(acquire->client, options->name, &lock, &acquire->lock);
}

static void *acquire_thread(void *arg)
{
	struct acquire *acquire = arg;
	int64_t wait_ms = acquire->options->wait_ms;

	acquire->err = open_lock(acquire);
	if (acquire->err == LK_OK && is_nested(acquire->lock)) {
		acquire->nested = true;
		acquire->err = LK_EDEADLOCK;
	}
	if (acquire->err == LK_OK) {
		if (wait_ms > 0) {
			wait_ms -= (clock_ns() - acquire->began_ns) / MS;
			if (wait_ms < 1)
				wait_ms = 1;
		}
		atomic_store(&acquire->stage, STAGE_WAITING);
		acquire->err = lk_lock_acquire(acquire->lock, wait_ms);
	}
	if (acquire->err != LK_OK) {
		const char *detail = lk_errmsg();
		snprintf(acquire->message, sizeof(acquire->message), "%s",
		         acquire->nested ? "the command that runs this one holds it"
		         : *detail       ? detail
		                         : lk_err_text(acquire->err));
	}
	atomic_store(&acquire->stage, STAGE_DONE);
	signals_wake();
	return NULL;
}

static bool thread_start(struct acquire *acquire)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&acquire->thread, NULL, acquire_thread, acquire);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		return true;
	acquire->err = LK_ESYSTEM;
	snprintf(acquire->message, sizeof(acquire->message), "cannot start a thread: %s",
	         strerror(error));
	return false;
}

void acquire_run(struct acquire *acquire, void (*before_death)(void *arg, int number), void *arg)
{
	struct waitline line;

	acquire->began_ns = clock_ns();
	if (!thread_start(acquire))
		return;
	waitline_init(&line, acquire->options->name, acquire->options->quiet);
	for (;;) {
		struct pollfd fds[2];
		int64_t until_ns = waitline_due(&line);
		int number, stage = atomic_load(&acquire->stage);

		if (stage == STAGE_DONE)
			break;
		if (acquire->signal)
			/* A cancel that came before the wait had begun was for nothing. */
			until_ns = clock_ns() + CANCEL_AGAIN_NS;
		fds[1].fd = signals_fd();
		fds[1].events = POLLIN;
		clock_wait(fds, 2, until_ns, NULL);
		while ((number = signals_next())) {
			if (number == SIGTSTP) {
				waitline_wipe(&line);
				signals_suspend(false);
			} else if (signal_ends(number)) {
				waitline_wipe(&line);
				if (acquire->signal ||
				    atomic_load(&acquire->stage) == STAGE_OPENING) {
					before_death(arg, number);
					signals_die(number, false);
				}
				acquire->signal = number;
			}
		}
		if (atomic_load(&acquire->stage) != STAGE_WAITING)
			continue;
		if (acquire->signal)
			lk_lock_cancel(acquire->lock);
		else
			waitline_draw(&line, acquire->lock);
	}
	waitline_wipe(&line);
	pthread_join(acquire->thread, NULL);
	acquire->waited_ms = (clock_ns() - acquire->began_ns) / MS;
}
