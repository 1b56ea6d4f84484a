/* SPDX-License-Identifier: MIT
 * The line that a person at a terminal sees while waiting. */
#ifndef WAITLINE_H
#define WAITLINE_H

#include "hold.h"
#include "options.h"

#include <stdbool.h>
#include <stdint.h>

struct waitline {
	const struct options *options;
	bool wanted;
	bool drawn;
	int64_t due_ns;
	int64_t explain_ns; /* when to explain a grace, NEVER = it was explained */
};

void waitline_init(struct waitline *line, const struct options *options);
/* When to draw next, NEVER = never. */
int64_t waitline_due(const struct waitline *line);
/* Draw if it is due, standard error is a terminal and this its foreground group: that queries the
 * store once a second. */
void waitline_draw(struct waitline *line, struct hold *hold);
/* Remove it from the terminal. */
void waitline_wipe(struct waitline *line);

#endif
