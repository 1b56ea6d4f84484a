/* SPDX-License-Identifier: MIT
 * One Lua script as tools/embed puts it into the library. */
#ifndef LK__SCRIPT_H
#define LK__SCRIPT_H

#include <stddef.h>

struct lk__script {
	const char *name; /* "lock_ask" */
	const char *text; /* comments blanked, so that line numbers are those of the file */
	size_t len;
	char sha1[41]; /* of text, lower-case hex */
	int keys;      /* how many KEYS it declares */
};

#endif
