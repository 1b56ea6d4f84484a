/* SPDX-License-Identifier: MIT
 * The user's command and its processes: a process group, and descendants that left it. */
#ifndef JOB_H
#define JOB_H

#include <latchkey.h>

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job {
	pid_t pid;       /* of the command, also its group; 0 = not started */
	bool reaped;     /* the command itself has ended: its status is known */
	bool group_gone; /* its group is empty; the number may be reused */
	int status;      /* as from waitpid() */
	bool childless;  /* this process has no child left */
	int error_fd;    /* the command writes errno here when it cannot be run */
	int left;        /* processes that job_kill() could not end */
};

/* The start of the command. */
struct job_start {
	char *const *command;
	const char *name;
	uint64_t fence; /* 0 = nothing is held: no change of the environment */
	const char *holder;
	const char *guard_key; /* "" = none */
	int terminal_fd;       /* give its group this terminal, -1 = do not */
	bool die_with_us;      /* where the system can: KILL it when this process ends */
	sigset_t mask;         /* the caller's */
	struct sigaction on_child;
};

/* Fork and run it.  False with errno if the system refuses. */
bool job_run(struct job *job, const struct job_start *start);
/* The errno if the command could not be run, else 0.  Call it once the command has ended. */
int job_error(struct job *job);

/* Signal the group and, with all, descendants that left it. */
void job_signal(struct job *job, int number, bool all);
/* Does its group have a living process? */
bool job_group_lives(struct job *job);
/* Have all processes of the command ended, as of the last job_collect()?  For a process that adopts
 * orphans and has no other children (the guard). */
bool job_is_gone(struct job *job);
/* Collect ended children; *status is set on a change of the command itself.  Returns its pid, or 0
 * when there is nothing left to collect; other children are collected silently. */
pid_t job_collect(struct job *job, int *status);
/* KILL until no process is left, for a second at most; job->left is the number that remains.
 * Covers descendants of this process that began at `since` or later; 0 = all of them (for the
 * guard). */
void job_kill(struct job *job, unsigned long long since);

#endif
