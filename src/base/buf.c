/* SPDX-License-Identifier: MIT
 * A growing byte buffer. */
#include "buf.h"

#include <stdlib.h>

void lk__buf_fini(struct lk__buf *buf)
{
	free(buf->data);
	*buf = (struct lk__buf){0};
}
