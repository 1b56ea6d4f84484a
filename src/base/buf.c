/* SPDX-License-Identifier: MIT
 * Bytes that grow. */
#include "buf.h"

#include <stdlib.h>

void lk__buf_fini(struct lk__buf *buf)
{
	free(buf->data);
	*buf = (struct lk__buf){0};
}
