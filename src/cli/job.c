/* SPDX-License-Identifier: MIT
 * The user's command and its processes: a process group, and descendants that left it. */
#include "job.h"

#include "clock.h"
#include "status.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#define KILL_NS (1000 * MS) /* processes still alive by then are left */
#define KILL_ROUND_NS (2 * MS)
#define KILL_DENIED_ROUND_NS (20 * MS) /* when all that are left refuse the signal */
#define EMPTY_WALKS 2 /* one walk may miss a child whose pid is below its parent's */

/* Append to the list of holders above this command: a latchkey below it looks for its own holder
 * there. */
static void chain_extend(const char *holder)
{
	const char *before = getenv("LATCHKEY_CHAIN");
	size_t size = strlen(holder) + (before ? strlen(before) : 0) + 2;
	char *chain = malloc(size);

	if (!chain)
		return;
	if (before && *before)
		snprintf(chain, size, "%s %s", before, holder);
	else
		snprintf(chain, size, "%s", holder);
	setenv("LATCHKEY_CHAIN", chain, 1);
	free(chain);
}

/* A comparison as etcdctl txn reads it: the key quoted as in Go. */
static void set_guard(const char *key, uint64_t fence)
{
	static char text[4 * LK_GUARD_KEY_SIZE + 64];
	size_t len = (size_t)snprintf(text, sizeof(text), "create(\"");

	if (!*key) {
		unsetenv("LATCHKEY_GUARD"); /* of a lock around this one */
		return;
	}
	for (; *key; key++) {
		unsigned char byte = (unsigned char)*key;
		bool is_plain = byte > 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
		len += (size_t)snprintf(text + len, sizeof(text) - len, is_plain ? "%c" : "\\x%02x",
		                        byte);
	}
	snprintf(text + len, sizeof(text) - len, "\") = \"%" PRIu64 "\"", fence >> 16);
	setenv("LATCHKEY_GUARD", text, 1);
}

/* In the child.  Signals stay blocked until everything is as in the caller. */
static void job_become(const struct job_start *start, pid_t parent, int error_fd)
{
	char fence[32];
	int error;

	setpgid(0, 0);
	if (start->terminal_fd >= 0)
		tcsetpgrp(start->terminal_fd, getpid());
#ifdef __linux__
	if (start->die_with_us) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(STATUS_CANNOT_RUN);
	}
#else
	(void)parent;
#endif
	if (start->fence) {
		snprintf(fence, sizeof(fence), "%" PRIu64, start->fence);
		setenv("LATCHKEY_NAME", start->name, 1);
		setenv("LATCHKEY_FENCE", fence, 1);
		setenv("LATCHKEY_HOLDER", start->holder, 1);
		set_guard(start->guard_key, start->fence);
		chain_extend(start->holder);
	}
	sigaction(SIGCHLD, &start->on_child, NULL);
	sigprocmask(SIG_SETMASK, &start->mask, NULL);
	execvp(start->command[0], start->command);
	error = errno;
	if (write(error_fd, &error, sizeof(error)) < 0)
		error = EIO;
	_exit(error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN);
}

bool job_run(struct job *job, const struct job_start *start)
{
	pid_t parent = getpid();
	int error[2];

	if (pipe(error))
		return false;
	for (int i = 0; i < 2; i++) {
		fcntl(error[i], F_SETFD, FD_CLOEXEC);
		fcntl(error[i], F_SETFL, O_NONBLOCK);
	}
	job->pid = fork();
	if (job->pid < 0) {
		job->pid = 0;
		close(error[0]);
		close(error[1]);
		return false;
	}
	if (!job->pid)
		job_become(start, parent, error[1]);
	close(error[1]);
	/* Done in parent and child, so that the order in which they run does not matter. */
	setpgid(job->pid, job->pid);
	job->error_fd = error[0];
	return true;
}

int job_error(struct job *job)
{
	int error = 0;

	if (job->error_fd < 0)
		return 0;
	if (read(job->error_fd, &error, sizeof(error)) != sizeof(error))
		error = 0;
	close(job->error_fd);
	job->error_fd = -1;
	return error;
}

bool job_group_lives(struct job *job)
{
	if (!job->pid || job->group_gone)
		return false;
	/* The number stays its own until the command is collected. */
	if (job->reaped && kill(-job->pid, 0) && errno == ESRCH)
		job->group_gone = true;
	return !job->group_gone;
}

void job_signal(struct job *job, int number, bool all)
{
	struct tree_count count;

	if (job_group_lives(job))
		kill(-job->pid, number);
	if (all)
		tree_signal(number, 0, job->pid, &count);
}

bool job_is_gone(struct job *job)
{
	/* Every descendant is below a child, and orphans become children at once: without children
	 * there are no descendants.  Where orphans are not adopted, only the group is known. */
	return job->childless && !job_group_lives(job);
}

pid_t job_collect(struct job *job, int *status)
{
	pid_t pid;

	while ((pid = waitpid(-1, status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
		if (pid != job->pid)
			continue;
		if (WIFEXITED(*status) || WIFSIGNALED(*status)) {
			job->reaped = true;
			job->status = *status;
		}
		return pid;
	}
	job->childless = pid < 0 && errno == ECHILD;
	return 0;
}

void job_kill(struct job *job, unsigned long long since)
{
	int64_t end = clock_ns() + KILL_NS;
	struct tree_count count;
	struct pollfd timer;
	int status, empty = 0;

	while (job->pid) {
		bool seen, over;
		if (job_group_lives(job))
			kill(-job->pid, SIGKILL);
		if (!job->reaped)
			kill(job->pid, SIGKILL);
		/* Each round kills processes that were started during the one before. */
		seen = tree_signal(SIGKILL, since, 0, &count);
		while (job_collect(job, &status))
			continue;
		empty = seen && !count.found ? empty + 1 : 0;
		/* latchkey may have other children, from before its exec(). */
		if (since)
			over = seen ? empty >= EMPTY_WALKS : !job_group_lives(job);
		else
			over = job_is_gone(job);
		job->left = over ? 0 : seen && count.found ? count.found : 1;
		if (over || clock_ns() >= end)
			break;
		clock_wait(&timer, 1,
		           clock_ns() + (seen && count.found && count.found == count.denied
		                                 ? KILL_DENIED_ROUND_NS
		                                 : KILL_ROUND_NS),
		           NULL);
	}
}
