/* SPDX-License-Identifier: MIT
 * What --help and the verb help print. */
#ifndef HELP_H
#define HELP_H

#include <stdbool.h>
#include <stddef.h>

/* The verb that is asked about: "latch", "set". */
struct help_topic {
	const char *word;
	const char *second; /* NULL = every verb that begins with word */
	/* Does it take this option, "-n" or "--wait"? */
	bool (*takes)(const struct help_topic *topic, const char *option, size_t len);
};

/* Print the whole help, or what of it concerns the topic (NULL = none). */
void help_print(const struct help_topic *topic);

#endif
