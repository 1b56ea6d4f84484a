/* SPDX-License-Identifier: MIT
 * The command while it runs under its lock or permits ("the lock" below).
 *
 * The lock is certain until `end`: the remaining time of the hold, or --max-hold.  Only this file
 * enforces --max-hold, since the library would release the lock before the command has ended.  A
 * renewed lock always has at least a third of its lease left.  One with less than `grace` (a
 * quarter) is about to be lost: its command gets TERM while it has time to clean up, and KILL
 * `lead` before the end, since a killed process still needs the processor to exit.  Each tick sends
 * that time to the guard, which acts if this process cannot. */
#include "run.h"

#include "clock.h"
#include "job.h"
#include "say.h"
#include "signals.h"
#include "status.h"
#include "tree.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#define GRACE_MAX_NS (5000 * MS)
#define LEAD_MAX_NS (200 * MS)
#define TICK_MAX_NS (60000 * MS)
#define PATIENCE_NS (250 * MS)
/* After an unforeseeable loss (broken, emptied store): another client may hold it already. */
#define LATE_GRACE_NS (500 * MS)

static int64_t at_most(int64_t value, int64_t limit)
{
	return value < limit ? value : limit;
}

void run_note_lost(struct run *run, lk_lost_reason reason)
{
	atomic_store(&run->reason, (int)reason);
}

const char *run_reason(const struct run *run)
{
	int reason = atomic_load(&run->reason);

	if (run->max_hold_passed)
		reason = LK_LOST_MAX_HOLD;
	return lk_lost_reason_name(reason ? (lk_lost_reason)reason : LK_LOST_EXPIRED);
}

int run_status(const struct run *run)
{
	if (run->error)
		return run->error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN;
	if (WIFSIGNALED(run->wait_status))
		return STATUS_SIGNAL + WTERMSIG(run->wait_status);
	return WEXITSTATUS(run->wait_status);
}

static bool leaves(const struct run *run)
{
	return run->options->on_lost == ON_LOST_WARN;
}

/* Compute the end as of now, and whether it is that of --max-hold. */
static int64_t find_end(struct run *run, int64_t now_ns)
{
	int64_t end_ns = now_ns + hold_snapshot(run->hold).remaining_ms * MS;
	int64_t max_ns =
		run->options->max_hold_ms ? run->began_ns + run->options->max_hold_ms * MS : NEVER;

	run->max_hold_passed = max_ns <= end_ns && now_ns >= max_ns - run->grace_ns;
	return at_most(end_ns, max_ns);
}

static void kill_now(struct run *run)
{
	if (run->killed)
		return;
	run->killed = true;
	guard_kill(run->guard);
}

/* Write " (WHY)", or "" if it is unknown. */
static const char *cause_of(struct run *run, char cause[OUTAGE_WHY_SIZE + 3])
{
	char why[OUTAGE_WHY_SIZE];

	cause[0] = '\0';
	if (*outage_cause(run->outage, why))
		snprintf(cause, OUTAGE_WHY_SIZE + 3, " (%s)", why);
	return cause;
}

/* The lock is lost, or cannot be kept. */
static void lose(struct run *run, int64_t now_ns, bool over)
{
	char cause[OUTAGE_WHY_SIZE + 3];
	const char *does = leaves(run)                             ? "the command continues"
	                   : run->options->on_lost == ON_LOST_KILL ? "killing the command"
	                                                           : "ending the command";

	if (over)
		say("\"%s\" is lost: %s", run->name, does);
	else if (run->max_hold_passed)
		say("\"%s\" has been held for its --max-hold: %s", run->name, does);
	else if (run->options->fixed)
		say("the fixed lease of \"%s\" ends: %s", run->name, does);
	else
		say("\"%s\" cannot be renewed and will be lost%s: %s", run->name,
		    cause_of(run, cause), does);
	run->lost = true;
	if (leaves(run))
		return;
	/* A lease that had time left was ended by others: already late. */
	run->kill_at_ns = run->end_ns - run->lead_ns;
	if (over)
		run->kill_at_ns = at_most(run->kill_at_ns, now_ns + LATE_GRACE_NS);
	/* A stopped command cannot handle TERM, and must not be continued. */
	if (run->options->on_lost == ON_LOST_KILL || run->stopped || run->kill_at_ns <= now_ns)
		kill_now(run);
	else
		guard_end(run->guard, run->kill_at_ns);
}

/* Is the lock certain to be lost, though it is still held? */
static bool is_doomed(struct run *run, int64_t now_ns)
{
	if (now_ns < run->end_ns - (leaves(run) ? 0 : run->grace_ns))
		return false;
	/* This process was stopped, and with it the thread that renews: let that try first. */
	if (now_ns - run->looked_ns > 2 * run->tick_ns)
		run->patient_ns =
			now_ns + at_most(PATIENCE_NS, (run->end_ns - run->lead_ns - now_ns) / 2);
	return run->options->fixed || run->max_hold_passed || now_ns >= run->patient_ns;
}

/* Check the lock; returns the time of the next check. */
static int64_t watch(struct run *run)
{
	int64_t now_ns = clock_ns();

	if (!run->hold)
		return NEVER;
	if (!run->lost) {
		bool over = hold_state(run->hold) == LK_STATE_LOST, doomed;
		int64_t end_ns = find_end(run, now_ns), next_ns;

		if (!over)
			run->end_ns = end_ns;
		doomed = over || is_doomed(run, now_ns);
		run->looked_ns = now_ns;
		if (!doomed) {
			if (!leaves(run))
				guard_deadline(run->guard, end_ns - run->lead_ns);
			next_ns = end_ns - (leaves(run) ? 0 : run->grace_ns);
			if (next_ns <= now_ns)
				next_ns = run->patient_ns;
			return at_most(now_ns + run->tick_ns, next_ns);
		}
		lose(run, now_ns, over);
	}
	if (leaves(run) || run->killed)
		return NEVER;
	if (now_ns >= run->kill_at_ns) {
		kill_now(run);
		return NEVER;
	}
	return run->kill_at_ns;
}

/* Continue the command, if its lock is still certain. */
static void resume(struct run *run)
{
	if (!run->group || run->ended)
		return;
	watch(run);
	if (run->lost && !leaves(run)) {
		if (run->stopped)
			kill_now(run);
		return;
	}
	if (run->had_terminal)
		terminal_give(run->terminal, run->group);
	run->stopped = false;
	guard_signal(run->guard, SIGCONT);
}

/* The command was stopped.  At a terminal, stop this process, too, so that the shell notices. */
static void follow_stop(struct run *run, int number)
{
	bool reads = number == SIGTTIN || number == SIGTTOU;

	run->stopped = true;
	if (run->lost && !leaves(run)) {
		kill_now(run);
		return;
	}
	if (run->terminal->fd < 0)
		return;
	if (reads && terminal_is_ours(run->terminal)) {
		/* As part of a pipeline it has not needed the terminal until now. */
		run->had_terminal = true;
		resume(run);
		return;
	}
	terminal_take(run->terminal, run->group);
	if (signals_suspend(true) || number == SIGTSTP)
		resume(run);
}

static void on_signal(struct run *run, int number)
{
	if (number == SIGCHLD) {
		guard_tend(run->guard);
		return;
	}
	if (number == SIGCONT && run->stopped) {
		resume(run);
		return;
	}
	if (number == SIGINT || number == SIGQUIT)
		run->signal = number;
	guard_signal(run->guard, number);
	/* As shells do: a process must run to handle the signal that ends it. */
	if (run->stopped && signal_ends(number))
		resume(run);
}

static void report_left(int left)
{
	say("%d processes of the command could not be killed: another user's, or stuck in the "
	    "kernel",
	    left);
}

/* The guard was killed.  Its orphans are now our children. */
static void do_guards_work(struct run *run)
{
	struct job job = {.pid = run->group, .error_fd = -1};
	unsigned long long began = tree_began(run->guard->pid);

	say("the guard of the command was killed: ending the command");
	job_kill(&job, began ? began : 1);
	if (job.left)
		report_left(job.left);
	run->wait_status = job.reaped ? job.status : SIGKILL;
	run->ended = true;
}

static void on_ended(struct run *run, const struct guard_event *event)
{
	run->ended = true;
	run->wait_status = event->value;
	run->error = event->error;
	/* Even if no thread of this process could notice it. */
	if (event->late || (run->hold && !run->lost && hold_state(run->hold) == LK_STATE_LOST))
		run->lost = true;
	if (WIFSIGNALED(event->value) && !run->signal &&
	    (WTERMSIG(event->value) == SIGINT || WTERMSIG(event->value) == SIGQUIT)) {
		run->signal = WTERMSIG(event->value);
		run->typed = run->had_terminal;
	}
	if (event->left)
		report_left(event->left);
}

static void on_event(struct run *run)
{
	struct guard_event event;

	guard_event(run->guard, &event);
	switch (event.kind) {
	case GUARD_STARTED:
		run->group = event.value;
		break;
	case GUARD_REFUSED:
		run->error = event.value;
		run->ended = true;
		break;
	case GUARD_STOPPED:
		follow_stop(run, event.value);
		break;
	case GUARD_CONTINUED:
		run->stopped = false;
		break;
	case GUARD_ENDED:
		on_ended(run, &event);
		break;
	default:
		do_guards_work(run);
		break;
	}
}

static void run_init(struct run *run, const struct options *options)
{
	/* A quorum cuts the default lease.  A turn, and a hold that is lost already, have none. */
	int64_t lease_ms = run->hold ? hold_snapshot(run->hold).lease_ms : 0;

	run->options = options;
	run->began_ns = run->looked_ns = clock_ns();
	run->lead_ns = at_most(lease_ms * MS / 8, LEAD_MAX_NS);
	run->grace_ns = at_most(lease_ms * MS / 4, GRACE_MAX_NS);
	if (options->max_hold_ms)
		run->grace_ns = at_most(run->grace_ns, options->max_hold_ms * MS / 4);
	run->lead_ns = at_most(run->lead_ns, run->grace_ns / 2);
	run->tick_ns = at_most(lease_ms * MS / 6, TICK_MAX_NS);
}

void run_command_under(struct run *run, const struct options *options, struct hold *hold,
                       struct guard *guard, struct terminal *terminal, const char *name)
{
	int64_t deadline_ns = NEVER;

	run->hold = hold;
	run->guard = guard;
	run->terminal = terminal;
	run->name = name;
	run_init(run, options);
	if (hold) {
		run->end_ns = find_end(run, run->began_ns);
		if (!leaves(run))
			deadline_ns = run->end_ns - run->lead_ns;
	}
	run->had_terminal = !terminal->piped && terminal_is_ours(terminal);
	guard_run(guard, run->had_terminal, deadline_ns);
	while (!run->ended) {
		int64_t until_ns = watch(run);
		struct pollfd fds[3];
		int number;

		fds[1].fd = signals_fd();
		fds[2].fd = guard->fd;
		fds[1].events = fds[2].events = POLLIN;
		clock_wait(fds, 3, until_ns, NULL);
		while (!run->ended && (number = signals_next()))
			on_signal(run, number);
		if (fds[2].revents)
			on_event(run);
	}
	terminal_take(terminal, run->group);
}
