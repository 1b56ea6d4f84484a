/* SPDX-License-Identifier: MIT
 * The process of a contestant: start it, read its words, end it with its whole session. */
#include "driver.h"

#include "harness/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void peer_start(struct peer *peer, const struct contestant *contestant, const char *work,
                const char *port, int workers, double seconds)
{
	char workers_text[16], seconds_text[32];
	int down[2], up[2];
	pid_t parent = getpid();

	snprintf(workers_text, sizeof(workers_text), "%d", workers);
	snprintf(seconds_text, sizeof(seconds_text), "%g", seconds);
	if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC))
		give_up("no pipe: %s", strerror(errno));
	fflush(stdout);
	peer->pid = fork();
	if (peer->pid < 0)
		give_up("cannot fork: %s", strerror(errno));
	if (!peer->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		setsid();
		signal(SIGPIPE, SIG_DFL);
		dup2(down[0], 0);
		dup2(up[1], 1);
		execl(contestant->peer, contestant->peer, "run", contestant->name, work,
		      "127.0.0.1", port, PEER_NAME, workers_text, seconds_text, (char *)NULL);
		_exit(126);
	}
	close(down[0]);
	close(up[1]);
	peer->in = down[1];
	peer->out = up[0];
}

bool peer_end(struct peer *peer, int64_t ms)
{
	siginfo_t info = {0};
	int status = -1;

	/* Not reaped yet: until then the kernel does not reuse the number. */
	(void)WITHIN(ms, (waitid(P_PID, (id_t)peer->pid, &info, WEXITED | WNOHANG | WNOWAIT),
	                  info.si_pid == peer->pid));
	kill(-peer->pid, SIGKILL);
	while (waitpid(peer->pid, &status, 0) < 0 && errno == EINTR)
		continue;
	close(peer->in);
	close(peer->out);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool peer_says(struct peer *peer, const char *word, int64_t ms)
{
	const char *line = line_read(peer->out, ms);

	return line && !strcmp(line, word);
}
