/* SPDX-License-Identifier: MIT
 * The line that a person at a terminal sees while the lock is another's. */
#ifndef WAITLINE_H
#define WAITLINE_H

#include <latchkey.h>

#include <stdbool.h>
#include <stdint.h>

struct waitline {
	const char *name;
	bool wanted;
	bool drawn;
	int64_t due_ns;
};

void waitline_init(struct waitline *line, const char *name, bool quiet);
/* When to draw next, NEVER = not at all. */
int64_t waitline_due(const struct waitline *line);
/* Draw if it is due, standard error is a terminal and this its foreground group. */
void waitline_draw(struct waitline *line, lk_lock *lock);
/* Leave nothing of it on the terminal. */
void waitline_wipe(struct waitline *line);

#endif
