/* SPDX-License-Identifier: MIT
 * The text of --help and of the verb help. */
#ifndef HELP_H
#define HELP_H

#include <stdbool.h>
#include <stddef.h>

/* The verb to explain: "latch", "set". */
struct help_topic {
	const char *word;
	const char *second; /* NULL = every verb that begins with word */
	/* Does it take this option, "-n" or "--wait"? */
	bool (*takes)(const struct help_topic *topic, const char *option, size_t len);
};

/* Print the whole help, or the part for the topic (NULL = none). */
void help_print(const struct help_topic *topic);

#endif
