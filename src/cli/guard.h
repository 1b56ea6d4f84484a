/* SPDX-License-Identifier: MIT
 * The guard: a small process between latchkey and the command, which ensures that the command does
 * not outlive its lock, whatever happens to latchkey, and that the lock does not outlive both. */
#ifndef GUARD_H
#define GUARD_H

#include "options.h"
#include "store.h"

#include <latchkey.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guard {
	pid_t pid;
	int fd;
	bool goes_on;        /* after this process */
	int64_t deadline_ns; /* the last one that was sent */
};

/* The guard's set-up, from before it is forked. */
struct guard_setup {
	char *const *command;
	const char *name;
	int report_fd;        /* latchkey's only: the guard closes it; -1 = none */
	int terminal_fd;      /* -1 = none */
	pid_t terminal_group; /* the group that gets the terminal back */
	bool leave;           /* let the command live when its lock is lost or latchkey dies */
	bool spare;           /* keep the rest of the command's group, too: nothing is held */
	const struct options *options; /* names the hold and its options, for a release */
	const struct store *store;
};

enum guard_event_kind {
	GUARD_STARTED = 1, /* value: the command's pid */
	GUARD_REFUSED,     /* value: errno; the system cannot start any process */
	GUARD_STOPPED,     /* value: signal */
	GUARD_CONTINUED,
	GUARD_ENDED, /* value: status as of waitpid() */
	GUARD_GONE,  /* the guard itself has ended */
};

struct guard_event {
	int32_t kind;
	int32_t value;
	int32_t error; /* of GUARD_ENDED: errno if the command could not be run */
	int32_t left;  /* of GUARD_ENDED: processes that could not be killed */
	int32_t late;  /* of GUARD_ENDED: the guard killed it at the deadline */
};

/* Fork the guard.  Call it before a client is open and signals are handled: the guard must not hold
 * a socket of the client, and the command inherits its signal dispositions.  The setup's pointers
 * must stay valid.  False with errno. */
bool guard_start(struct guard *guard, const struct guard_setup *setup);

/* Report the hold, and its guard key.  If this process is killed, the guard releases it when the
 * command has ended, but not before keep_until_ns. */
void guard_hold(struct guard *guard, const lk_hold *hold, const char *key, int64_t keep_until_ns);
/* Report that nothing is held any more. */
void guard_released(struct guard *guard);
/* The store has not confirmed the release: as if this process had been killed, the guard tries for
 * a while, and guard_close() does not wait for it. */
void guard_unreleased(struct guard *guard);
/* Start the command; kill it at deadline_ns (NEVER = no deadline). */
void guard_run(struct guard *guard, bool terminal, int64_t deadline_ns);
void guard_deadline(struct guard *guard, int64_t deadline_ns);
/* Signal the command's group. */
void guard_signal(struct guard *guard, int number);
/* The lock is lost: send TERM to all processes of the command, and KILL at deadline_ns.  From now
 * on the command has ended when none of them is left. */
void guard_end(struct guard *guard, int64_t deadline_ns);
/* Kill all processes of the command. */
void guard_kill(struct guard *guard);

/* The next event, when guard->fd is readable. */
void guard_event(struct guard *guard, struct guard_event *event);

/* On SIGCHLD: continue a guard that was stopped, collect orphans that became our children. */
void guard_tend(struct guard *guard);

/* Let it end, and wait for that, unless it has a release to do. */
void guard_close(struct guard *guard);

#endif
