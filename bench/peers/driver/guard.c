/* SPDX-License-Identifier: MIT
 * The run has a process of its own, and the parent ends all processes that remain of it: a
 * contestant leads a session, which a Ctrl-C does not reach, and its workers need not end with it.
 */
#include "driver.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t child, stopped;

static void stop(int number)
{
	stopped = number;
	if (child > 0)
		kill(child, SIGKILL);
}

/* A process that loses its parent becomes a child of this one, so in the end none is left. */
static void end_children(void)
{
	char path[64];
	int pid;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	do {
		FILE *children = fopen(path, "re");

		while (children && fscanf(children, "%d", &pid) == 1)
			kill(pid, SIGKILL);
		if (children)
			fclose(children);
		else
			return;
	} while (wait(NULL) > 0 || errno == EINTR);
}

int guarded(int (*run)(void *arg), void *arg)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = stop};
	pid_t parent = getpid();
	int status = -1;
	sigset_t stops;

	sigemptyset(&stops);
	for (int i = 0; i < 3; i++)
		sigaddset(&stops, numbers[i]);
	sigprocmask(SIG_BLOCK, &stops, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fflush(NULL);
	child = fork();
	if (child < 0)
		give_up("cannot fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		sigprocmask(SIG_UNBLOCK, &stops, NULL);
		exit(run(arg));
	}
	/* Also where SIGINT was ignored, as by a shell for a command that it starts with &. */
	for (int i = 0; i < 3; i++)
		sigaction(numbers[i], &action, NULL);
	sigprocmask(SIG_UNBLOCK, &stops, NULL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	child = 0;
	end_children();
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "bench-peers: stopped by signal %d\n",
	        stopped ? stopped : WTERMSIG(status));
	return 1;
}
