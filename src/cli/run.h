/* SPDX-License-Identifier: MIT
 * The command while it runs under its lock or permits. */
#ifndef RUN_H
#define RUN_H

#include "guard.h"
#include "hold.h"
#include "options.h"
#include "terminal.h"

#include <latchkey.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct run {
	/* results */
	int wait_status; /* as waitpid() gives it */
	int error;       /* errno, if the command could not be run */
	int signal;      /* INT or QUIT ended it: end by the same */
	bool typed; /* at the terminal, thus sent to the command's group alone: without latchkey
	               the rest of our group, a script's shell, would have got it */
	bool lost;  /* the lock was lost, or the command ended because it was about to be */
	atomic_int reason; /* lk_lost_reason, 0 = not told */
	/* its own */
	const struct options *options;
	struct hold *hold; /* NULL = nothing that could be lost */
	struct guard *guard;
	struct terminal *terminal;
	const char *name;
	pid_t group; /* of the command, 0 = not started */
	bool ended;
	bool stopped;
	bool killed;
	bool had_terminal; /* it goes back to the command after a stop */
	bool max_hold_passed;
	int64_t began_ns;
	int64_t end_ns;   /* the lock is sure until then */
	int64_t grace_ns; /* TERM comes so long before the end, */
	int64_t lead_ns;  /* and KILL so long */
	int64_t tick_ns;
	int64_t kill_at_ns;
	int64_t looked_ns;  /* the last look at the lock */
	int64_t patient_ns; /* the lock may have little lease left until then */
};

/* Run it until it has ended, or was ended since the hold was lost. */
void run_command_under(struct run *run, const struct options *options, struct hold *hold,
                       struct guard *guard, struct terminal *terminal, const char *name);

/* From the library's callback of a loss. */
void run_note_lost(struct run *run, lk_lost_reason reason);

/* The command's exit status as a shell gives it. */
int run_status(const struct run *run);
/* Why the lock was lost, in a word. */
const char *run_reason(const struct run *run);

#endif
