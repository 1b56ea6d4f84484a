/* SPDX-License-Identifier: MIT
 * Acquiring the named lock, permits, turn or open latch in a thread, so that signals, the waiting
 * line and the end of the wait are handled meanwhile.  The thread is detached if only a dead store
 * delays it. */
#include "acquire.h"

#include "clock.h"
#include "say.h"
#include "signals.h"
#include "value.h"
#include "waitline.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CANCEL_AGAIN_NS (50 * MS)
#define PROMPT_NS (200 * MS) /* after the end of a wait */
#define BACKOFF_FIRST_MS 20  /* between attempts to connect, as in the library */
#define BACKOFF_MAX_MS 500
/* An attempt to connect that ends with the wait needs time to report its error. */
#define ATTEMPT_GRACE_NS (100 * MS)

enum stage { STAGE_OPENING, STAGE_WAITING, STAGE_DONE, STAGE_ABANDONED };

/* ---- The thread --------------------------------------------------------------------------- */

/* Make one attempt, with the whole connect timeout, which the client keeps for each reconnect:
 * await() handles the end of the wait. */
static lk_err open_hold(struct acquire *acquire)
{
	lk_client_options options = acquire->store->client;
	lk_counters counters;
	lk_err err;

	options.log = outage_log;
	options.log_arg = &acquire->outage;
	options.log_level = LK_LOG_INFO;
	if (!acquire->opened) {
		err = lk_client_open(acquire->store->url, &options, &acquire->opened);
		store_judge(acquire->store, err);
		if (err != LK_OK)
			return err;
		lk_client_counters(acquire->opened, &counters);
		if (counters.connected) /* a lazy client has not tried yet */
			outage_opened(&acquire->outage);
	}
	if (atomic_load(&acquire->stage) == STAGE_ABANDONED)
		return LK_ECANCELED;
	return hold_open(&acquire->hold, acquire->opened);
}

/* Pause before the next attempt; false when the wait ends before that.  Jitter: commands that
 * failed together do not retry together. */
static bool back_off(const struct acquire *acquire, int64_t *backoff_ms)
{
	int64_t now_ns = clock_ns(), left_ms = (acquire->end_ns - now_ns) / MS, ms;

	*backoff_ms = *backoff_ms * 2 < BACKOFF_MAX_MS ? *backoff_ms * 2 : BACKOFF_MAX_MS;
	ms = *backoff_ms / 2 + (now_ns / 1000 + getpid() * 7919) % (*backoff_ms / 2);
	if (left_ms > 0)
		poll(NULL, 0, (int)(ms < left_ms ? ms : left_ms));
	return ms < left_ms && atomic_load(&acquire->stage) != STAGE_ABANDONED;
}

/* Retry until the end of the wait while the only problem is the connection. */
static lk_err open_in_time(struct acquire *acquire)
{
	int64_t backoff_ms = BACKOFF_FIRST_MS / 2;
	lk_err err;

	while ((err = open_hold(acquire)) == LK_ECONN || err == LK_EAGAIN || err == LK_EUNKNOWN) {
		if (!acquire->opened) /* otherwise its log has more detail */
			outage_failed(&acquire->outage, lk_errmsg());
		if (acquire->end_ns == NEVER || !back_off(acquire, &backoff_ms))
			break;
	}
	return err;
}

/* Enter that stage; false when the thread was abandoned and its result is unused. */
static bool enter(struct acquire *acquire, int stage)
{
	int before = atomic_load(&acquire->stage);

	while (before != STAGE_ABANDONED)
		if (atomic_compare_exchange_weak(&acquire->stage, &before, stage))
			return true;
	return false;
}

static int64_t wait_left_ms(const struct acquire *acquire)
{
	int64_t wait_ms = acquire->hold.options->wait_ms;

	if (acquire->end_ns == NEVER)
		return wait_ms;
	wait_ms = (acquire->end_ns - clock_ns()) / MS;
	return wait_ms > 1 ? wait_ms : 1;
}

/* Has the store responded just now?  Otherwise the wait ended one command timeout late, and a
 * request to a dead server would add another. */
static bool store_answers(struct acquire *acquire, lk_err err)
{
	return err == LK_EBUSY ||
	       (err == LK_ETIMEDOUT && clock_ns() < acquire->end_ns + PROMPT_NS &&
	        !outage_lasts(&acquire->outage));
}

/* The library names the member of the options: name the option of the command. */
static bool explain_lease(const char *detail, char *text, size_t size)
{
	char limit[VALUE_TIME_SIZE];
	long long ms;

	if (sscanf(detail, "lease_ms: must be at most %lld,", &ms) != 1)
		return false;
	snprintf(text, size, "--lease: must be at most %s seconds, the quorum's longest lease",
	         value_time(limit, ms));
	return true;
}

/* Describe the failure for the user: name the holder rather than say "busy". */
static void explain(struct acquire *acquire, lk_err err)
{
	const char *detail = store_errmsg(acquire->store);
	char text[512], more[1200] = "";

	if (!explain_lease(detail, text, sizeof(text)))
		snprintf(text, sizeof(text), "%s%s", *detail ? detail : lk_err_text(err),
		         err == LK_EMISMATCH ? " (--resize changes it)" : "");
	if (!acquire->hold.options->quiet && store_answers(acquire, err) &&
	    hold_explain(&acquire->hold, more, sizeof(more)) && err == LK_EBUSY)
		text[0] = 0;
	/* What follows says it better: for how long. */
	if (err == LK_ETIMEDOUT && acquire->hold.grace_ms)
		text[strcspn(text, ":")] = 0;
	snprintf(acquire->detail, sizeof(acquire->detail), "%s%s%s", text,
	         *text && *more ? ", " : "", more);
}

static void *acquire_thread(void *arg)
{
	struct acquire *acquire = arg;
	struct hold *hold = &acquire->hold;
	bool nested = false;
	lk_err err = open_in_time(acquire);

	if (err == LK_OK && hold_is_nested(hold, acquire->detail, sizeof(acquire->detail))) {
		nested = true;
		err = LK_EDEADLOCK;
	}
	if (err == LK_OK) {
		if (!enter(acquire, STAGE_WAITING))
			return NULL;
		signals_wake(); /* for the waiting line */
		err = hold_acquire(hold, wait_left_ms(acquire));
	}
	if (err != LK_OK && !nested)
		explain(acquire, err);
	acquire->result = err;
	if (enter(acquire, STAGE_DONE))
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

/* ---- The wait ----------------------------------------------------------------------------- */

/* The time to abandon the thread: there is no connection, and the wait is over or was ended by a
 * signal. */
static int64_t abandon_ns(struct acquire *acquire)
{
	char why[OUTAGE_WHY_SIZE];

	if (!outage_lasts(&acquire->outage))
		return NEVER;
	if (acquire->signal)
		return 0;
	if (acquire->end_ns == NEVER)
		return NEVER;
	return acquire->end_ns + (*outage_why(&acquire->outage, why) ? 0 : ATTEMPT_GRACE_NS);
}

/* False when the thread has just finished. */
static bool abandon(struct acquire *acquire)
{
	int before = atomic_load(&acquire->stage);

	while (before != STAGE_DONE)
		if (atomic_compare_exchange_weak(&acquire->stage, &before, STAGE_ABANDONED))
			return true;
	return false;
}

static int64_t next_ns(struct acquire *acquire, const struct waitline *line)
{
	int64_t due_ns = outage_due_ns(&acquire->outage), end_ns = abandon_ns(acquire), until_ns;

	if (atomic_load(&acquire->stage) != STAGE_WAITING || outage_lasts(&acquire->outage))
		until_ns = NEVER;
	else if (acquire->signal)
		/* Repeat a cancel: one that was sent before the wait began had no effect. */
		until_ns = clock_ns() + CANCEL_AGAIN_NS;
	else
		until_ns = waitline_due(line);
	if (due_ns < until_ns)
		until_ns = due_ns;
	return end_ns < until_ns ? end_ns : until_ns;
}

static void take_signals(struct acquire *acquire, struct waitline *line,
                         void (*before_death)(void *arg, int number), void *arg)
{
	int number;

	while ((number = signals_next())) {
		if (number == SIGTSTP) {
			waitline_wipe(line);
			signals_suspend(false);
		} else if (signal_ends(number)) {
			waitline_wipe(line);
			if (acquire->signal || atomic_load(&acquire->stage) == STAGE_OPENING) {
				if (before_death)
					before_death(arg, number);
				signals_die(number, false);
			}
			acquire->signal = number;
		}
	}
}

/* After the opening.  A quorum's servers are connected and lost one by one. */
bool acquire_is_cut(struct acquire *acquire)
{
	lk_server server;
	bool cut = outage_lasts(&acquire->outage);

	if (!acquire->hold.in_quorum || !acquire->opened)
		return cut;
	if (lk_client_server(acquire->opened, &server) != LK_OK)
		outage_failed(&acquire->outage, lk_errmsg());
	else if (cut)
		outage_ended(&acquire->outage);
	return outage_lasts(&acquire->outage);
}

static void report_outage(struct acquire *acquire, struct waitline *line)
{
	if (outage_lasts(&acquire->outage) && line->drawn)
		waitline_wipe(line);
	if (outage_due_ns(&acquire->outage) <= clock_ns())
		outage_report(&acquire->outage);
}

/* Wait for the thread; false when it was abandoned. */
static bool await(struct acquire *acquire, struct waitline *line,
                  void (*before_death)(void *arg, int number), void *arg)
{
	while (atomic_load(&acquire->stage) != STAGE_DONE) {
		struct pollfd fds[2];

		fds[1].fd = signals_fd();
		fds[1].events = POLLIN;
		clock_wait(fds, 2, next_ns(acquire, line), NULL);
		take_signals(acquire, line, before_death, arg);
		if (atomic_load(&acquire->stage) == STAGE_WAITING)
			acquire_is_cut(acquire);
		if (abandon_ns(acquire) <= clock_ns() && abandon(acquire))
			return false;
		report_outage(acquire, line);
		if (atomic_load(&acquire->stage) != STAGE_WAITING)
			continue;
		if (acquire->signal)
			hold_cancel(&acquire->hold);
		else if (!outage_lasts(&acquire->outage))
			waitline_draw(line, &acquire->hold);
	}
	return true;
}

/* The wait ended without a connection: busy if the store responded until just now, else
 * unreachable. */
static void judge_outage(struct acquire *acquire)
{
	char why[OUTAGE_WHY_SIZE], servers[OUTAGE_WHY_SIZE];

	outage_why(&acquire->outage, why);
	if (outage_is_young(&acquire->outage)) {
		acquire->err = LK_ETIMEDOUT;
		snprintf(acquire->message, sizeof(acquire->message), "not acquired in time (%s)",
		         why);
		return;
	}
	acquire->err = LK_ECONN;
	if (!*why && *outage_new(&acquire->outage, servers))
		snprintf(acquire->message, sizeof(acquire->message),
		         "not connected in time: no response from %s yet", servers);
	else
		snprintf(acquire->message, sizeof(acquire->message), "%s",
		         *why ? why : "not connected in time");
}

void acquire_give_up(struct acquire *acquire)
{
	acquire->client = NULL;
}

void acquire_run(struct acquire *acquire, void (*before_death)(void *arg, int number), void *arg)
{
	const struct options *options = acquire->hold.options;
	struct waitline line;

	acquire->began_ns = clock_ns();
	acquire->end_ns = NEVER;
	acquire->hold.in_quorum = store_is_quorum(acquire->store);
	if (options->wait_ms > 0 && options->wait_ms < (NEVER - acquire->began_ns) / MS / 2)
		acquire->end_ns = acquire->began_ns + options->wait_ms * MS;
	/* A command that does not wait reports its failure only. */
	outage_init(&acquire->outage, acquire->store->command_timeout_ms,
	            options->quiet || !options->wait_ms, options->verbose);
	acquire->outage.warned = options->quiet;
	acquire->outage.in_quorum = acquire->hold.in_quorum;
	if (acquire->hold.in_quorum)
		store_servers(acquire->store, acquire->outage.new, sizeof(acquire->outage.new));
	if (!thread_start(acquire))
		return;
	waitline_init(&line, options);
	if (await(acquire, &line, before_death, arg)) {
		pthread_join(acquire->thread, NULL);
		acquire->client = acquire->opened;
		acquire->err = acquire->result;
		acquire->nested = acquire->err == LK_EDEADLOCK;
		memcpy(acquire->message, acquire->detail, sizeof(acquire->message));
		if ((acquire->err == LK_ECONN || acquire->err == LK_EUNKNOWN) &&
		    acquire->end_ns != NEVER && outage_lasts(&acquire->outage)) {
			judge_outage(acquire);
			acquire_give_up(acquire); /* whatever judge_outage() found */
		}
	} else {
		pthread_detach(acquire->thread);
		judge_outage(acquire);
	}
	waitline_wipe(&line);
	acquire->waited_ms = (clock_ns() - acquire->began_ns) / MS;
}

void acquire_close(struct acquire *acquire)
{
	/* After LK_EUNKNOWN or LK_ECONN a close would ask a silent store again.  The store has had
	 * its time, and the ticket ends with the connection. */
	if (acquire->err != LK_EUNKNOWN && acquire->err != LK_ECONN)
		lk_client_close(acquire->client);
	acquire->client = NULL;
}
