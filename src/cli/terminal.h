/* SPDX-License-Identifier: MIT
 * The controlling terminal: which process group has it, and giving it to the command's. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>

struct terminal {
	int fd;     /* -1 = this process has none */
	pid_t own;  /* our process group */
	bool piped; /* we are one part of a pipeline: others in our group may need the terminal */
};

void terminal_open(struct terminal *terminal);
/* Does our group have it? */
bool terminal_is_ours(const struct terminal *terminal);
/* Give it to the command's group; take it back if that group still has it. */
void terminal_give(const struct terminal *terminal, pid_t group);
void terminal_take(const struct terminal *terminal, pid_t group);

#endif
