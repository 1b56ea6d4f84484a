/* SPDX-License-Identifier: MIT
 * The signals of the process that the user sees, as events of its loop. */
#include "signals.h"

#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const int handled[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGUSR1,
                              SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};
#define HANDLED (sizeof(handled) / sizeof(handled[0]))

static volatile sig_atomic_t came[HANDLED];
static int wake[2] = {-1, -1};

static void handle(int number)
{
	int saved = errno;

	for (size_t i = 0; i < HANDLED; i++)
		if (handled[i] == number)
			came[i] = 1;
	signals_wake();
	errno = saved;
}

static void install(int number, void (*handler)(int))
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	action.sa_flags = SA_RESTART;
	sigemptyset(&action.sa_mask);
	sigaction(number, &action, NULL);
}

bool signals_take(void)
{
	sigset_t none;

	if (pipe(wake))
		return false;
	for (int i = 0; i < 2; i++) {
		fcntl(wake[i], F_SETFD, FD_CLOEXEC);
		fcntl(wake[i], F_SETFL, O_NONBLOCK);
	}
	for (size_t i = 0; i < HANDLED; i++) {
		struct sigaction before;
		/* Keep ignored signals ignored (nohup, a shell's &), except SIGCHLD, which waiting
		 * needs. */
		if (!sigaction(handled[i], NULL, &before) && before.sa_handler == SIG_IGN &&
		    handled[i] != SIGCHLD && handled[i] != SIGCONT)
			continue;
		install(handled[i], handle);
	}
	/* A closed standard error must not end us while the command runs; nor may the terminal stop
	 * us when we write to it, or take it back, while the command's group has it. */
	install(SIGPIPE, SIG_IGN);
	install(SIGTTOU, SIG_IGN);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return true;
}

int signals_fd(void)
{
	return wake[0];
}

void signals_wake(void)
{
	char byte = 0;

	/* A full pipe wakes, too. */
	if (write(wake[1], &byte, 1) < 0)
		return;
}

int signals_next(void)
{
	char bytes[256];

	while (read(wake[0], bytes, sizeof(bytes)) > 0)
		continue;
	for (size_t i = 0; i < HANDLED; i++)
		if (came[i]) {
			came[i] = 0;
			return handled[i];
		}
	return 0;
}

bool signal_ends(int number)
{
	return number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
}

static volatile sig_atomic_t continued;

static void note_continued(int number)
{
	(void)number;
	continued = 1;
}

bool signals_suspend(bool group)
{
	continued = 0;
	install(SIGCONT, note_continued);
	install(SIGTSTP, SIG_DFL);
	/* Every other thread blocks all signals, so this one is stopped before kill() returns. */
	kill(group ? 0 : getpid(), SIGTSTP);
	install(SIGTSTP, handle);
	install(SIGCONT, handle);
	return continued;
}

void signals_die(int number, bool group)
{
	struct rlimit none = {0, 0};
	sigset_t only;

	/* Only the command may dump core. */
	setrlimit(RLIMIT_CORE, &none);
	install(number, SIG_DFL);
	sigemptyset(&only);
	sigaddset(&only, number);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	if (group)
		kill(0, number);
	raise(number);
	_exit(STATUS_SIGNAL + number);
}
