/* SPDX-License-Identifier: MIT
 * The controlling terminal: which process group has it, and giving it to the command's. */
#include "terminal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_pipe(int fd)
{
	struct stat info;

	return !fstat(fd, &info) && S_ISFIFO(info.st_mode);
}

void terminal_open(struct terminal *terminal)
{
	terminal->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	terminal->own = getpgrp();
	terminal->piped = is_pipe(STDIN_FILENO) || is_pipe(STDOUT_FILENO);
}

bool terminal_is_ours(const struct terminal *terminal)
{
	return terminal->fd >= 0 && tcgetpgrp(terminal->fd) == terminal->own;
}

void terminal_give(const struct terminal *terminal, pid_t group)
{
	if (terminal_is_ours(terminal))
		tcsetpgrp(terminal->fd, group);
}

void terminal_take(const struct terminal *terminal, pid_t group)
{
	if (terminal->fd >= 0 && group > 0 && tcgetpgrp(terminal->fd) == group)
		tcsetpgrp(terminal->fd, terminal->own);
}
