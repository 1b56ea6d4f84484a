/* SPDX-License-Identifier: MIT
 * The RESP2 codec: the only file that knows hiredis implements this. */
#ifndef LK__RESP_H
#define LK__RESP_H

#include "../base/buf.h"
#include "../base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK__RESP_MAX_ELEMENTS 20000   /* in one reply, all levels */
#define LK__RESP_MAX_BYTES (4u << 20) /* of one reply */

enum lk__resp_type {
	LK__RESP_STRING,
	LK__RESP_STATUS,
	LK__RESP_ERROR,
	LK__RESP_INTEGER,
	LK__RESP_NIL,
	LK__RESP_ARRAY
};

struct lk__resp {
	enum lk__resp_type type;
	bool inside; /* allocated inside its parent array */
	int64_t integer;
	size_t len; /* bytes of str, or number of elements */
	char *str;  /* NUL-terminated; raw bytes of the server: escape before showing */
	struct lk__resp **elements;
};

/* Parses a connection's bytes into replies, under its own lock: one thread may add bytes while
 * another takes replies. */
struct lk__resp_reader;

/* NULL when out of memory. */
struct lk__resp_reader *lk__resp_reader_new(void);
void lk__resp_reader_free(struct lk__resp_reader *reader);

/* Add bytes that arrived.  LK_OK, LK_ENOMEM, LK_ESERVER (more than LK__RESP_MAX_BYTES unparsed). */
lk_err lk__resp_feed(struct lk__resp_reader *reader, const char *bytes, size_t len,
                     struct lk__why *why);

/* The next whole reply, NULL in *resp if there is none yet; free it with lk__resp_free().
 * LK_ESERVER on malformed data or an exceeded limit, LK_ENOMEM: the connection is unusable. */
lk_err lk__resp_next(struct lk__resp_reader *reader, struct lk__resp **resp, struct lk__why *why);
/* The next whole replies, up to max (above 0); *err as above. */
size_t lk__resp_take(struct lk__resp_reader *reader, void **resps, size_t max, lk_err *err,
                     struct lk__why *why);
void lk__resp_free(struct lk__resp *resp);

/* Append one command.  False when out of memory: the buffer is unchanged. */
bool lk__resp_command(struct lk__buf *buf, int argc, const char *const *argv,
                      const size_t *argv_len);

#endif
