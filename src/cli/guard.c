/* SPDX-License-Identifier: MIT
 * The guard: a small process between latchkey and the command, which ensures that the command does
 * not outlive its lock, whatever happens to latchkey.
 *
 *     shell -- latchkey -- guard -- command -- its children
 *
 * latchkey uses the store and the terminal; the guard is the command's parent.  The command ends in
 * each of these cases:
 *
 *  - latchkey is killed: the kernel closes its socket, the guard reads end of file and kills.  When
 *    no process of the command is left, it releases the hold in place of latchkey.  So it does if
 *    latchkey ends without a confirmation of its release.
 *  - latchkey is stopped: no later deadline arrives, and the guard kills at the last one it has.
 *  - a child leaves the group (setsid) or is orphaned (double fork): the guard is a subreaper, so
 *    that all of them remain its descendants, and it walks the tree below itself.
 *  - the guard is killed: the command dies with its parent (PDEATHSIG), its other processes become
 *    children of latchkey (a subreaper, too), which reads end of file and kills.
 *  - a signal is sent to latchkey's group: the guard has its own group, and blocks all signals.
 *    It stays in the session, or the command's group would be an orphaned one and ^Z would do
 *    nothing.
 *
 * The guard is forked from a process with one thread.  It starts threads (of a client) when
 * latchkey and the command have ended and only the release is left to do. */
#include "guard.h"

#include "clock.h"
#include "job.h"
#include "remains.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define LEFT_BEHIND_NS (5000 * MS) /* from TERM to KILL for the rest of the command's group */
#define LEFT_BEHIND_LOOK_NS (20 * MS)

enum request_kind {
	REQUEST_HOLD = 1,
	REQUEST_RUN,
	REQUEST_DEADLINE,
	REQUEST_SIGNAL,
	REQUEST_END,
	REQUEST_KILL,
	REQUEST_RELEASED,
};

struct request {
	int32_t kind;
	int32_t value;
	int64_t deadline_ns;
	/* of REQUEST_HOLD */
	int64_t keep_until_ns, lease_ms;
	uint64_t fence;
	char holder[LK_HOLDER_ID_SIZE];
	char key[LK_GUARD_KEY_SIZE];
};

struct state {
	const struct guard_setup *setup;
	int fd; /* to latchkey, -1 = it has ended */
	struct job job;
	struct job_start start;
	char holder[LK_HOLDER_ID_SIZE]; /* "" = nothing is held, or already released */
	char key[LK_GUARD_KEY_SIZE];
	int64_t keep_until_ns; /* --min-hold */
	int64_t lease_ms;
	sigset_t waiting;      /* the mask while waiting: only SIGCHLD is unblocked */
	int64_t deadline_ns;   /* when the command must be dead */
	int64_t left_until_ns; /* when the rest of its group must be dead */
	bool ending;           /* the lock is lost: all processes of the command must end */
	bool killed;           /* everything was killed */
	bool late;             /* because the deadline passed */
	bool end_reported;     /* the end of the command was reported */
};

static void send_event(struct state *state, int kind, int value)
{
	struct guard_event event = {.kind = kind, .value = value};

	if (kind == GUARD_ENDED) {
		event.error = job_error(&state->job);
		event.left = state->job.left;
		event.late = state->late;
		state->end_reported = true;
	}
	/* If latchkey has closed its end, the next read returns end of file. */
	if (send(state->fd, &event, sizeof(event), MSG_NOSIGNAL) < 0)
		return;
}

static void kill_all(struct state *state)
{
	state->killed = true;
	job_kill(&state->job, 0);
}

static void return_terminal(const struct state *state)
{
	const struct guard_setup *setup = state->setup;

	if (state->job.pid && setup->terminal_fd >= 0 &&
	    tcgetpgrp(setup->terminal_fd) == state->job.pid)
		tcsetpgrp(setup->terminal_fd, setup->terminal_group);
}

/* latchkey has ended.  Keep daemons of a command that ended normally. */
static void go_on_alone(struct state *state)
{
	close(state->fd);
	state->fd = -1;
	if (state->setup->leave)
		return;
	/* The terminal first: a script that ran latchkey may be about to read from it. */
	return_terminal(state);
	if (state->job.pid && !state->end_reported)
		kill_all(state);
}

/* latchkey and the command have ended. */
static void finish(struct state *state)
{
	struct remains remains = {.options = state->setup->options,
	                          .store = state->setup->store,
	                          .holder = state->holder,
	                          .keep_until_ns = state->keep_until_ns,
	                          .lease_ms = state->lease_ms};

	if (state->end_reported)
		return_terminal(state);
	if (state->setup->terminal_fd >= 0)
		close(state->setup->terminal_fd);
	/* If a process could not be killed, the hold must expire by itself. */
	if (state->holder[0] && !state->job.left)
		remains_release(&remains);
	_exit(0);
}

static void run(struct state *state, const struct request *request)
{
	struct job_start start = state->start;

	start.terminal_fd = request->value ? state->setup->terminal_fd : -1;
	if (job_run(&state->job, &start))
		send_event(state, GUARD_STARTED, state->job.pid);
	else
		send_event(state, GUARD_REFUSED, errno);
}

/* Handle a request; false at end of file. */
static bool handle_request(struct state *state)
{
	struct request request;
	ssize_t len = recv(state->fd, &request, sizeof(request), MSG_WAITALL);

	if (len < 0 && errno == EINTR)
		return true;
	if (len != sizeof(request))
		return false;
	state->deadline_ns = request.deadline_ns;
	switch (request.kind) {
	case REQUEST_HOLD:
		state->start.fence = request.fence;
		state->keep_until_ns = request.keep_until_ns;
		state->lease_ms = request.lease_ms;
		memcpy(state->holder, request.holder, sizeof(state->holder));
		memcpy(state->key, request.key, sizeof(state->key));
		break;
	case REQUEST_RELEASED:
		state->holder[0] = 0;
		break;
	case REQUEST_RUN:
		run(state, &request);
		break;
	case REQUEST_SIGNAL:
		/* A command that was stopped past its lease is ended, never continued. */
		if (request.value != SIGCONT || clock_ns() < state->deadline_ns)
			job_signal(&state->job, request.value, false);
		break;
	/* Ignore a loss after a normal end: daemons may stay.  latchkey may not have received the
	 * event of that end yet. */
	case REQUEST_END:
		if (state->end_reported)
			break;
		state->ending = true;
		job_signal(&state->job, SIGTERM, true);
		break;
	case REQUEST_KILL:
		if (!state->end_reported)
			kill_all(state);
		break;
	default:
		break;
	}
	return true;
}

/* The command has ended by itself: end the rest of its group.  True when done. */
static bool end_group(struct state *state)
{
	struct job *job = &state->job;

	if (state->setup->spare || !job_group_lives(job))
		return true;
	if (clock_ns() < state->left_until_ns)
		return false;
	/* Only their own parents can collect processes that are left after this. */
	job_signal(job, SIGKILL, false);
	return true;
}

/* Collect ended processes and report the end of the command.  After a loss it has ended when no
 * process of it is left, in any group; at the deadline all are killed. */
static void collect(struct state *state)
{
	struct job *job = &state->job;
	int status;

	while (job_collect(job, &status)) {
		if (WIFSTOPPED(status))
			send_event(state, GUARD_STOPPED, WSTOPSIG(status));
		else if (WIFCONTINUED(status))
			send_event(state, GUARD_CONTINUED, 0);
		if (job->reaped && !state->killed && !state->ending && !state->setup->spare &&
		    job_group_lives(job)) {
			/* Stopped processes must run to handle TERM; the lease is still valid. */
			job_signal(job, SIGTERM, false);
			job_signal(job, SIGCONT, false);
			state->left_until_ns = clock_ns() + LEFT_BEHIND_NS;
		}
	}
	if (state->end_reported)
		return;
	if (state->killed && !job->reaped) {
		/* It cannot be killed, and its end cannot be predicted. */
		send_event(state, GUARD_ENDED, SIGKILL);
		return;
	}
	if (!job->reaped)
		return;
	if (state->killed || (state->ending ? job_is_gone(job) : end_group(state)))
		send_event(state, GUARD_ENDED, job->status);
}

static void guard_loop(struct state *state)
{
	for (;;) {
		struct job *job = &state->job;
		bool left_behind = job->reaped && !state->end_reported;
		int64_t until_ns = job->pid && !state->end_reported ? state->deadline_ns : NEVER;
		struct pollfd fds[2];

		/* Orphans may be collected by other processes: polling is the only way to notice
		 * their end. */
		if (left_behind && clock_ns() + LEFT_BEHIND_LOOK_NS < until_ns)
			until_ns = clock_ns() + LEFT_BEHIND_LOOK_NS;
		fds[1].fd = state->fd;
		fds[1].events = POLLIN;
		clock_wait(fds, 2, until_ns, &state->waiting);
		if (fds[1].revents && !handle_request(state))
			go_on_alone(state);
		if (job->pid && !state->end_reported && clock_ns() >= state->deadline_ns) {
			state->late = true;
			kill_all(state);
		}
		if (job->pid)
			collect(state);
		/* A turn at a rate is not a hold: its command needs no guard. */
		if (state->fd < 0 && (!job->pid || state->end_reported || state->setup->spare))
			finish(state);
	}
}

static void on_child(int number)
{
	(void)number;
}

static void guard_main(const struct guard_setup *setup, int fd, const sigset_t *mask)
{
	struct state state;
	struct sigaction action;

	memset(&state, 0, sizeof(state));
	state.setup = setup;
	state.fd = fd;
	state.deadline_ns = NEVER;
	state.job.error_fd = -1;
	state.start.command = setup->command;
	state.start.name = setup->name;
	state.start.holder = state.holder;
	state.start.guard_key = state.key;
	state.start.mask = *mask;
	state.start.die_with_us = !setup->leave;
	setpgid(0, 0);
	tree_adopt();
#ifdef __linux__
	prctl(PR_SET_NAME, "latchkey-guard");
#endif
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_child;
	sigemptyset(&action.sa_mask);
	sigaction(SIGCHLD, &action, &state.start.on_child);
	sigfillset(&state.waiting);
	sigdelset(&state.waiting, SIGCHLD);
	guard_loop(&state);
}

bool guard_start(struct guard *guard, const struct guard_setup *setup)
{
	sigset_t all, mask;
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		return false;
	for (int i = 0; i < 2; i++)
		fcntl(fds[i], F_SETFD, FD_CLOEXEC);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &mask);
	guard->pid = fork();
	if (!guard->pid) {
		close(fds[0]);
		/* The report's reader waits for latchkey to exit, not for --min-hold. */
		if (setup->report_fd >= 0)
			close(setup->report_fd);
		guard_main(setup, fds[1], &mask);
	}
	sigprocmask(SIG_SETMASK, &mask, NULL);
	close(fds[1]);
	guard->fd = fds[0];
	guard->deadline_ns = NEVER;
	if (guard->pid > 0)
		return true;
	close(fds[0]);
	return false;
}

static void send_request(struct guard *guard, struct request *request)
{
	request->deadline_ns = guard->deadline_ns;
	/* A full buffer means a stopped guard; the next request repeats the deadline. */
	if (send(guard->fd, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

void guard_hold(struct guard *guard, const lk_hold *hold, const char *key, int64_t keep_until_ns)
{
	struct request request = {.kind = REQUEST_HOLD,
	                          .fence = hold->fence,
	                          .lease_ms = hold->lease_ms,
	                          .keep_until_ns = keep_until_ns};

	memcpy(request.holder, hold->holder_id, sizeof(request.holder));
	memcpy(request.key, key, strlen(key) + 1);
	send_request(guard, &request);
}

void guard_released(struct guard *guard)
{
	struct request request = {.kind = REQUEST_RELEASED};

	send_request(guard, &request);
}

void guard_unreleased(struct guard *guard)
{
	guard->goes_on = true;
}

void guard_run(struct guard *guard, bool terminal, int64_t deadline_ns)
{
	struct request request = {.kind = REQUEST_RUN, .value = terminal};

	guard->deadline_ns = deadline_ns;
	send_request(guard, &request);
}

void guard_deadline(struct guard *guard, int64_t deadline_ns)
{
	struct request request = {.kind = REQUEST_DEADLINE};

	guard->deadline_ns = deadline_ns;
	send_request(guard, &request);
}

void guard_signal(struct guard *guard, int number)
{
	struct request request = {.kind = REQUEST_SIGNAL, .value = number};

	send_request(guard, &request);
}

void guard_end(struct guard *guard, int64_t deadline_ns)
{
	struct request request = {.kind = REQUEST_END};

	guard->deadline_ns = deadline_ns;
	send_request(guard, &request);
}

void guard_kill(struct guard *guard)
{
	struct request request = {.kind = REQUEST_KILL};

	send_request(guard, &request);
}

void guard_event(struct guard *guard, struct guard_event *event)
{
	if (recv(guard->fd, event, sizeof(*event), MSG_WAITALL) != sizeof(*event)) {
		memset(event, 0, sizeof(*event));
		event->kind = GUARD_GONE;
	}
}

void guard_tend(struct guard *guard)
{
	siginfo_t info = {.si_pid = 0};

	if (!waitid(P_PID, (id_t)guard->pid, &info, WSTOPPED | WNOHANG) && info.si_pid)
		kill(guard->pid, SIGCONT);
	/* Leave an ended guard uncollected: its /proc entry still has its start time. */
	for (;;) {
		info.si_pid = 0;
		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid ||
		    info.si_pid == guard->pid)
			return;
		waitpid(info.si_pid, NULL, WNOHANG);
	}
}

void guard_close(struct guard *guard)
{
	if (guard->pid <= 0)
		return;
	close(guard->fd);
	kill(guard->pid, SIGCONT);
	while (!guard->goes_on && waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	guard->pid = 0;
}
