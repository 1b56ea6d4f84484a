/* SPDX-License-Identifier: MIT
 * The programs that run scripts in memory, and must notice a missing statement. */
#include "statements.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 60

struct killer {
	const char *sources; /* words: it tests the sources whose names have one of them */
	const char *program; /* in the build folder */
	const char *args[4];
};

/* In this order: fast programs that test the scripts' contracts come first. */
static const struct killer killers[] = {
	{"lock change", "tests/unit_lock_contract", {NULL}},
	{"latch name_ client_ link_", "tests/unit_latch_contract", {NULL}},
	{"semaphore", "tests/unit_semaphore_contract", {NULL}},
	{"semaphore", "tests/unit_semaphore_contract_store", {NULL}},
	{"semaphore", "tests/unit_semaphore_waits", {NULL}},
	{"semaphore", "tests/unit_semaphore_holds", {NULL}},
	{"semaphore", "tests/unit_semaphore_rate", {NULL}},
};
#define KILLERS ((int)(sizeof(killers) / sizeof(*killers)))

static const char *build_folder(void)
{
	const char *folder = getenv("LK_BUILD");

	return folder ? folder : "build";
}

static void path_of(const struct killer *killer, char path[600])
{
	snprintf(path, 600, "%s/%s", build_folder(), killer->program);
}

static bool concerns(const struct killer *killer, const char *source)
{
	char words[100], *rest = words, *word;

	snprintf(words, sizeof(words), "%s", killer->sources);
	while ((word = strsep(&rest, " ")))
		if (strstr(source, word))
			return true;
	return false;
}

bool killers_there(const char *source)
{
	bool all = true;

	for (int i = 0; i < KILLERS; i++) {
		char path[600];
		path_of(&killers[i], path);
		if (!concerns(&killers[i], source) || !access(path, X_OK))
			continue;
		fprintf(stderr, "statements: %s is not built\n", path);
		all = false;
	}
	return all;
}

const char *killer_name(int index)
{
	return killers[index].program;
}

static void execute(const struct killer *killer)
{
	const char *argv[8] = {killer->program};
	int null = open("/dev/null", O_RDWR);
	char path[600];
	char *const *exec_argv;
	int argc = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	for (int i = 0; killer->args[i]; i++)
		argv[argc++] = killer->args[i];
	path_of(killer, path);
	memcpy(&exec_argv, &(const char **){argv}, sizeof(exec_argv));
	execv(path, exec_argv);
	_exit(127);
}

/* Does it succeed in time? */
static bool passes(const struct killer *killer)
{
	pid_t pid = fork();
	int status = 0;

	if (pid < 0)
		abort();
	if (!pid)
		execute(killer);
	for (int ms = 0; waitpid(pid, &status, WNOHANG) != pid; ms += 5) {
		poll(NULL, 0, 5);
		if (ms < LIMIT_S * 1000)
			continue;
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return false;
	}
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int killers_run(const char *source)
{
	for (int i = 0; i < KILLERS; i++)
		if (concerns(&killers[i], source) && !passes(&killers[i]))
			return i;
	return -1;
}
