/* SPDX-License-Identifier: MIT
 * The verbs lock, sem and rate: acquire, run the command, release, report. */
#include "acquire.h"
#include "clock.h"
#include "guard.h"
#include "report.h"
#include "run.h"
#include "say.h"
#include "signals.h"
#include "status.h"
#include "terminal.h"
#include "tree.h"
#include "verbs.h"

#include <latchkey.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define NARROW_AGAIN_NS (50 * MS)
#define REASON_NS (500 * MS) /* limit for a callback */

struct session {
	const struct options *options;
	char name[NAME_TEXT_SIZE]; /* for messages */
	struct report report;
	struct terminal terminal;
	struct guard guard;
	struct acquire acquire;
	struct run run;
	int64_t held_since_ns;
};

/* Write the report and end the guard, before this process ends by a signal. */
static void conclude(struct session *session, int status)
{
	session->report.status = status;
	report_write(&session->report);
	guard_close(&session->guard);
}

static void before_death(void *arg, int number)
{
	struct session *session = arg;

	session->report.outcome = "cancelled";
	session->report.waited_ms = (clock_ns() - session->acquire.began_ns) / MS;
	conclude(session, STATUS_SIGNAL + number);
}

static void on_lost(void *arg, lk_lost_reason reason)
{
	struct session *session = arg;

	run_note_lost(&session->run, reason);
	signals_wake();
}

/* Start the private server, if it is used, before orphans become our children: the server must be a
 * child of init and must not die with a command.  If this fails, opening the client reports why. */
static void start_local(const struct store *store)
{
	lk_local_info info;

	if (!strncmp(store->url, "local:", 6) && lk_local_start(&info) != LK_OK)
		return;
}

/* Fork the guard before anything exists that it must not inherit. */
static bool prepare(struct session *session, const struct store *store)
{
	const struct options *options = session->options;
	bool rate = options->verb == VERB_RATE;
	struct guard_setup setup = {.command = options->command,
	                            .name = options->name,
	                            .leave = rate || options->on_lost == ON_LOST_WARN,
	                            .spare = rate,
	                            .report_fd = report_fd(&session->report),
	                            .options = options,
	                            .store = store};

	terminal_open(&session->terminal);
	setup.terminal_fd = session->terminal.fd;
	setup.terminal_group = session->terminal.own;
	if (!rate)
		tree_adopt();
	if ((!options->command || guard_start(&session->guard, &setup)) && signals_take())
		return true;
	say("cannot start: %s", strerror(errno));
	session->report.outcome = "error";
	return false;
}

static int report_not_acquired(struct session *session)
{
	const struct options *options = session->options;
	const struct acquire *acquire = &session->acquire;
	int status = status_of(acquire->err);

	session->report.outcome = acquire->err == LK_EREPLICAS ? "replicas"
	                          : acquire->err == LK_EAUTH   ? "refused"
	                          : status == STATUS_STORE     ? "unreachable"
	                                                       : "error";
	if (acquire->nested) {
		session->report.outcome = "nested";
		status = options->busy_status;
	} else if (status == STATUS_BUSY) {
		session->report.outcome = "busy";
		status = options->busy_status;
		if (options->quiet)
			return status;
	}
	say("cannot acquire \"%s\": %s", session->name, acquire->message);
	return status;
}

/* The library refuses only the turn, when its semaphore has been made. */
static bool is_refused(struct session *session, const struct store *store, int *status)
{
	struct acquire *acquire = &session->acquire;

	if (session->options->verb != VERB_RATE || !store_is_etcd(store))
		return false;
	acquire->err = LK_EUNSUPPORTED;
	snprintf(acquire->message, sizeof(acquire->message),
	         "no rate limit on etcd: its transactions have no clock; use one Redis server");
	*status = report_not_acquired(session);
	return true;
}

/* Handle pending signals while no command runs.  Returns one that ends programs, else 0. */
static int take_signals(struct session *session)
{
	int number;

	while ((number = signals_next()) && !signal_ends(number)) {
		if (number == SIGTSTP)
			signals_suspend(false);
		else if (number == SIGCHLD)
			guard_tend(&session->guard);
	}
	return number;
}

/* Wait until then, or until a signal or a loss. */
static void pause_until(int64_t until_ns)
{
	struct pollfd fds[2];

	fds[1].fd = signals_fd();
	fds[1].events = POLLIN;
	clock_wait(fds, 2, until_ns, NULL);
}

/* Keep the hold until --min-hold is over.  Returns the signal that ended this earlier, else 0. */
static int hold_on(struct session *session)
{
	int64_t until_ns = session->held_since_ns + session->options->min_hold_ms * MS;
	int number = 0;

	/* After --max-hold the hold stays valid; without a connection a lost one cannot be kept. */
	if (!session->options->min_hold_ms ||
	    (session->run.lost && acquire_is_cut(&session->acquire)))
		return 0;
	while (!number && clock_ns() < until_ns &&
	       hold_state(&session->acquire.hold) != LK_STATE_LOST) {
		pause_until(until_ns);
		number = take_signals(session);
	}
	return number;
}

static void release(struct session *session)
{
	bool over;
	lk_err err;

	/* The time until the store confirms does not count as held. */
	session->report.held_ms = (clock_ns() - session->held_since_ns) / MS;
	if (session->run.lost && acquire_is_cut(&session->acquire)) {
		/* Only the loss matters; the store's entry expires with the lease. */
		guard_released(&session->guard);
		acquire_give_up(&session->acquire);
		return;
	}
	err = hold_release(&session->acquire.hold);
	if (err == LK_EUNKNOWN || err == LK_ECONN)
		acquire_give_up(&session->acquire);
	/* A loss ends the lease soon; --max-hold ends it no earlier. */
	over = err == LK_OK || err == LK_ELOST ||
	       (session->run.lost && !session->run.max_hold_passed);
	if (over)
		guard_released(&session->guard);
	else
		guard_unreleased(&session->guard);
	if (err != LK_OK && err != LK_ELOST)
		say("\"%s\": release not confirmed, it %s with its lease: %s", session->name,
		    over ? "expires" : "is tried again, or expires", lk_errmsg());
	if (err == LK_ELOST && !session->options->min_hold_ms)
		session->run.lost = true;
}

/* Returns the exit status; *number is the signal to end by, if any. */
static int report_ended(struct session *session, int *number)
{
	const struct run *run = &session->run;
	int status = run_status(run);

	session->report.outcome = "ended";
	session->report.command_status = run->error ? -1 : status;
	if (run->error) {
		char command[NAME_TEXT_SIZE];
		const char *file = session->options->command[0];
		say("cannot run \"%s\": %s",
		    text_escape(command, sizeof(command), file, strlen(file)),
		    strerror(run->error));
		session->report.outcome = "cannot-run";
	}
	if (run->lost) {
		*number = 0;
		session->report.outcome = "lost";
		session->report.reason = run_reason(run);
		say("\"%s\" was lost while the command ran (%s)", session->name, run_reason(run));
		return STATUS_LOST;
	}
	if (run->signal && !*number)
		*number = run->signal;
	return *number ? STATUS_SIGNAL + *number : status;
}

static void report_acquired(const struct session *session)
{
	char time[32];

	text_duration(time, session->acquire.waited_ms);
	if (session->report.fence)
		say("acquired \"%s\" after %s, fence %" PRIu64, session->name, time,
		    session->report.fence);
	else
		say("a turn at \"%s\" after %s", session->name, time);
}

/* --min-hold must hold even if this process is killed: extend the lease in the store until then.
 * This process goes back to the usual lease at once (the store never shortens one): with the long
 * one it would not renew, nor notice a loss, for as long.  Returns the signal that ended the
 * attempts, else 0. */
static int keep_for_min_hold(struct session *session, const lk_hold *before)
{
	const struct options *options = session->options;
	struct hold *hold = &session->acquire.hold;
	int64_t lease_ms = before->lease_ms, min_ms = options->min_hold_ms;
	int64_t until_ns = clock_ns() + lease_ms / 2 * MS;
	char time[32];
	int number;
	lk_err err;

	/* A fixed lease is longer than --min-hold, unless a quorum has cut the default.  For
	 * others, part of the lease may have passed. */
	if (options->fixed && lease_ms && min_ms > lease_ms)
		say("\"%s\": --min-hold not kept: the fixed lease is %s", session->name,
		    text_seconds(time, lease_ms));
	if (options->fixed || min_ms <= before->remaining_ms)
		return 0;
	err = hold_extend(hold, min_ms < LK_LEASE_MAX_MS ? min_ms : LK_LEASE_MAX_MS);
	if (err != LK_OK && err != LK_ELOST)
		say("\"%s\": --min-hold not confirmed, the lock may expire earlier if latchkey "
		    "is killed: %s",
		    session->name, lk_errmsg());
	/* An unconfirmed extension may be confirmed by the next attempt. */
	if (err != LK_OK && err != LK_EUNKNOWN)
		return 0;
	do {
		if ((number = take_signals(session)))
			return number;
		err = hold_extend(hold, lease_ms);
		if (err != LK_ECONN && err != LK_EUNKNOWN)
			return 0;
		pause_until(clock_ns() + NARROW_AGAIN_NS);
	} while (clock_ns() < until_ns);
	return 0;
}

/* Ensure that the hold does not outlive this process and the command, nor end before --min-hold.
 * Returns a pending signal that ends programs, else 0. */
static int secure_hold(struct session *session)
{
	lk_hold hold = hold_snapshot(&session->acquire.hold);
	char key[LK_GUARD_KEY_SIZE];
	int number;

	hold_guard_key(&session->acquire.hold, key);
	guard_hold(&session->guard, &hold, key,
	           session->held_since_ns + session->options->min_hold_ms * MS);
	number = keep_for_min_hold(session, &hold);
	return number ? number : take_signals(session);
}

/* Wait for the callback with the reason of the loss, which comes from another thread. */
static void await_reason(struct session *session)
{
	int64_t until_ns = clock_ns() + REASON_NS;

	while (!atomic_load(&session->run.reason) && clock_ns() < until_ns) {
		pause_until(until_ns);
		take_signals(session);
	}
}

/* End the hold before the command began: it was lost, or a signal came.  Returns the status. */
static int end_unused(struct session *session, int *number)
{
	struct run *run = &session->run;
	bool lost = hold_state(&session->acquire.hold) == LK_STATE_LOST;

	run->lost = lost;
	if (lost)
		await_reason(session);
	release(session);
	if (!lost) {
		session->report.outcome = "cancelled";
		return STATUS_SIGNAL + *number;
	}
	*number = 0;
	session->report.outcome = "lost";
	session->report.reason = run_reason(run);
	say("\"%s\" was lost before the command began (%s)", session->name, run_reason(run));
	return STATUS_LOST;
}

static int run_command(struct session *session, int *number)
{
	const struct options *options = session->options;
	struct hold *hold = &session->acquire.hold;

	session->held_since_ns = clock_ns();
	session->report.fence = hold_fence(hold);
	if (options->verbose)
		report_acquired(session);
	if (!hold_lasts(hold)) {
		/* The turn was granted, and no further request is needed. */
		acquire_close(&session->acquire);
		hold = NULL;
	} else {
		*number = secure_hold(session);
		if (*number || hold_state(hold) == LK_STATE_LOST)
			return end_unused(session, number);
	}
	if (options->command) {
		session->run.outage = &session->acquire.outage;
		run_command_under(&session->run, options, hold, &session->guard, &session->terminal,
		                  session->name);
		if (hold) {
			*number = hold_on(session);
			release(session);
		}
		return report_ended(session, number);
	}
	session->report.outcome = "ended";
	return 0;
}

int verb_lock(const struct options *options)
{
	static struct store store;
	static struct session session;
	struct acquire *acquire = &session.acquire;
	int status, number = 0;

	session.options = options;
	text_escape(session.name, sizeof(session.name), options->name, strlen(options->name));
	if (!report_open(&session.report, options->report)) {
		char path[256];
		const char *report = options->report;
		say("cannot write the report %s: %s",
		    text_escape(path, sizeof(path), report, strlen(report)), strerror(errno));
		return STATUS_USAGE;
	}
	if (!store_find(&store, options, &status)) {
		session.report.outcome = "error";
		conclude(&session, status);
		return status;
	}
	if (is_refused(&session, &store, &status)) {
		conclude(&session, status);
		return status;
	}
	start_local(&store);
	if (!prepare(&session, &store)) {
		conclude(&session, STATUS_SYSTEM);
		return STATUS_SYSTEM;
	}
	acquire->store = &store;
	acquire->hold.options = options;
	acquire->hold.on_lost = on_lost;
	acquire->hold.on_lost_arg = &session;
	acquire_run(acquire, before_death, &session);
	session.report.waited_ms = acquire->waited_ms;
	if (acquire->signal) {
		number = acquire->signal;
		if (acquire->err == LK_OK && hold_lasts(&acquire->hold))
			hold_release(&acquire->hold);
		session.report.outcome = "cancelled";
		status = STATUS_SIGNAL + number;
	} else if (acquire->err != LK_OK) {
		status = report_not_acquired(&session);
	} else {
		status = run_command(&session, &number);
	}
	acquire_close(acquire);
	conclude(&session, status);
	if (number)
		signals_die(number, session.run.typed);
	return status;
}
