/* SPDX-License-Identifier: MIT
 * A Lua text into its statements. */
#ifndef SPLIT_H
#define SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* From the first byte up to the one after the last; a statement with statements in it is one, and
 * so is each of those. */
struct statement {
	size_t start, end;
	int line;
};

/* Returns how many there are, -1 if the text is none that this understands; "line" is then where.
 */
int split(const char *text, struct statement *statements, int max, int *line);

#endif
