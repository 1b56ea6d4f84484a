/* SPDX-License-Identifier: MIT
 * Split a Lua text into its statements. */
#ifndef SPLIT_H
#define SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* From the first byte up to the one after the last; a statement may contain others, which are
 * listed, too. */
struct statement {
	size_t start, end;
	int line;
};

/* Returns their number, -1 if the text cannot be parsed; "line" is then the position. */
int split(const char *text, struct statement *statements, int max, int *line);

#endif
