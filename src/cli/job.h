/* SPDX-License-Identifier: MIT
 * The user's command and what it started: a process group, and whoever left it. */
#ifndef JOB_H
#define JOB_H

#include <latchkey.h>

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job {
	pid_t pid;       /* of the command, also its group's number; 0 = not started */
	bool reaped;     /* the command itself has ended: its status is known */
	bool group_gone; /* nobody is left in its group, the number may be another's by now */
	int status;      /* as waitpid() gives it */
	bool childless;  /* this process has no child left */
	int error_fd;    /* the command writes errno here when it cannot be run */
	int left;        /* processes that job_kill() could not end */
};

/* What the command is started with. */
struct job_start {
	char *const *command;
	const char *name;
	uint64_t fence; /* 0 = nothing is held: the environment stays as it is */
	const char *holder;
	int terminal_fd;  /* give its group this terminal, -1 = do not */
	bool die_with_us; /* where the system can: KILL it when this process ends */
	sigset_t mask;    /* the caller's */
	struct sigaction on_child;
};

/* Fork and run it.  False with errno if the system refuses. */
bool job_run(struct job *job, const struct job_start *start);
/* 0, or the errno with which the command could not be run.  Once it has ended. */
int job_error(struct job *job);

/* To the group, and, if all is set, to those that left it. */
void job_signal(struct job *job, int number, bool all);
/* Is anybody left in its group? */
bool job_group_lives(struct job *job);
/* Where this process adopts orphans and has no other children (the guard): is nothing left of what
 * the command started?  As of the last job_collect(). */
bool job_is_gone(struct job *job);
/* Collect children that ended; a change of the command itself goes into *status.  Its pid, or 0
 * when nothing is left to collect; other children are collected silently. */
pid_t job_collect(struct job *job, int *status);
/* KILL until no process is left, for a second at most; job->left says how many there are then.  For
 * descendants of this process that began at `since` or later; 0 = the guard's, all of them. */
void job_kill(struct job *job, unsigned long long since);

#endif
