/* SPDX-License-Identifier: MIT
 * A growing byte buffer. */
#ifndef LK__BUF_H
#define LK__BUF_H

#include <stddef.h>

struct lk__buf {
	char *data;
	size_t len, cap;
};

void lk__buf_fini(struct lk__buf *buf);

#endif
