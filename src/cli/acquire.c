/* SPDX-License-Identifier: MIT
 * Getting what is named: in a thread, so that signals and the waiting line are served meanwhile. */
#include "acquire.h"

#include "clock.h"
#include "signals.h"
#include "waitline.h"

#include <stdio.h>
#include <string.h>

#define CANCEL_AGAIN_NS (50 * MS)
#define PROMPT_NS (200 * MS) /* after the end of a wait */

enum stage { STAGE_OPENING, STAGE_WAITING, STAGE_DONE };

static lk_err open_hold(struct acquire *acquire)
{
	lk_err err = store_open(acquire->store, &acquire->client);

	return err != LK_OK ? err : hold_open(&acquire->hold, acquire->client);
}

/* Has the store just answered?  A wait ends one command timeout late when it did not, and a request
 * to a server that is gone would add another. */
static bool store_answers(const struct acquire *acquire)
{
	int64_t wait_ms = acquire->hold.options->wait_ms;

	return acquire->err == LK_EBUSY ||
	       (acquire->err == LK_ETIMEDOUT &&
	        clock_ns() < acquire->began_ns + wait_ms * MS + PROMPT_NS);
}

/* Why it was not acquired, for the user: the holder rather than "busy". */
static void explain(struct acquire *acquire)
{
	const char *detail = store_errmsg(acquire->store);
	char text[512], more[1200] = "";

	snprintf(text, sizeof(text), "%s%s", *detail ? detail : lk_err_text(acquire->err),
	         acquire->err == LK_EMISMATCH ? " (--resize changes it)" : "");
	if (!acquire->hold.options->quiet && store_answers(acquire) &&
	    hold_explain(&acquire->hold, more, sizeof(more)) && acquire->err == LK_EBUSY)
		text[0] = 0;
	snprintf(acquire->message, sizeof(acquire->message), "%s%s%s", text,
	         *text && *more ? ", " : "", more);
}

static void *acquire_thread(void *arg)
{
	struct acquire *acquire = arg;
	struct hold *hold = &acquire->hold;
	int64_t wait_ms = hold->options->wait_ms;

	acquire->err = open_hold(acquire);
	if (acquire->err == LK_OK &&
	    hold_is_nested(hold, acquire->message, sizeof(acquire->message))) {
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
		acquire->err = hold_acquire(hold, wait_ms);
	}
	if (acquire->err != LK_OK && !acquire->nested)
		explain(acquire);
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
	waitline_init(&line, acquire->hold.options);
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
					if (before_death)
						before_death(arg, number);
					signals_die(number, false);
				}
				acquire->signal = number;
			}
		}
		if (atomic_load(&acquire->stage) != STAGE_WAITING)
			continue;
		if (acquire->signal)
			hold_cancel(&acquire->hold);
		else
			waitline_draw(&line, &acquire->hold);
	}
	waitline_wipe(&line);
	pthread_join(acquire->thread, NULL);
	acquire->waited_ms = (clock_ns() - acquire->began_ns) / MS;
}

void acquire_close(struct acquire *acquire)
{
	/* What the store did not answer once it need not be asked again: the wait was long enough,
	 * and with the connection the ticket is gone. */
	if (acquire->err != LK_EUNKNOWN && acquire->err != LK_ECONN)
		lk_client_close(acquire->client);
	acquire->client = NULL;
}
