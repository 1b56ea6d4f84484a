/* SPDX-License-Identifier: MIT
 * The command while it runs under its lock or permits. */
#ifndef RUN_H
#define RUN_H

#include "guard.h"
#include "hold.h"
#include "options.h"
#include "outage.h"
#include "terminal.h"

#include <latchkey.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct run {
	/* results */
	int wait_status; /* as from waitpid() */
	int error;       /* errno, if the command could not be run */
	int signal;      /* INT or QUIT ended it: end by the same signal */
	/* It was typed at the terminal, and so sent to the command's group only: without latchkey,
	 * the rest of our group (a script's shell) would have received it. */
	bool typed;
	bool lost;         /* the lock was lost, or the command ended because it was about to be */
	atomic_int reason; /* lk_lost_reason, 0 = not known yet */
	/* its own */
	const struct options *options;
	struct hold *hold; /* NULL = nothing that can be lost */
	struct outage *outage;
	struct guard *guard;
	struct terminal *terminal;
	const char *name;
	pid_t group; /* of the command, 0 = not started */
	bool ended;
	bool stopped;
	bool killed;
	bool had_terminal; /* it gets the terminal back after a stop */
	bool max_hold_passed;
	int64_t began_ns;
	int64_t end_ns;   /* the lock is certain until then */
	int64_t grace_ns; /* TERM so long before the end, */
	int64_t lead_ns;  /* KILL so long before it */
	int64_t tick_ns;
	int64_t kill_at_ns;
	int64_t looked_ns;  /* the last check of the lock */
	int64_t patient_ns; /* tolerate little remaining lease until then */
};

/* Run it until it has ended by itself or because of a loss. */
void run_command_under(struct run *run, const struct options *options, struct hold *hold,
                       struct guard *guard, struct terminal *terminal, const char *name);

/* Called from the library's on_lost callback. */
void run_note_lost(struct run *run, lk_lost_reason reason);

/* The command's exit status, as in a shell. */
int run_status(const struct run *run);
/* Why the lock was lost, in one word. */
const char *run_reason(const struct run *run);

#endif
