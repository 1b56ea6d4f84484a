/* SPDX-License-Identifier: MIT
 * Errors inside the library: a code with a text, passed by value; and this thread's last error. */
#ifndef LK__ERROR_H
#define LK__ERROR_H

#include <latchkey.h>

/* A failure and its text.  The text is already escaped: lk__why_set() escapes all of it,
 * lk__why_about() all but the subject. */
struct lk__why {
	lk_err err;
	char text[480]; /* the reasons of several servers */
};

/* Fill why (may be NULL) and return err, so that a failure is one line: return lk__why_set(...). */
lk_err lk__why_set(struct lk__why *why, lk_err err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, with "<subject>: " before the message.  The subject must already be escaped. */
lk_err lk__why_about(struct lk__why *why, lk_err err, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same with the text of an errno in lower case, followed by after ("" = nothing). */
lk_err lk__why_errno(struct lk__why *why, lk_err err, const char *subject, int number,
                     const char *after);

/* Make it this thread's lk_errmsg() and return the code.  LK_OK keeps the previous text. */
lk_err lk__fail(const struct lk__why *why);

/* lk__why_set() and lk__fail() in one step, for the public functions. */
lk_err lk__failf(lk_err err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The error of a call that sent nothing, for this reason: never LK_EUNKNOWN, since nothing can have
 * happened, and LK_ECONN if there is no reason. */
lk_err lk__why_unasked(const struct lk__why *why);

/* Refuse a NULL argument of a public function: LK_EINVALID with the argument's name in the header,
 * else LK_OK. */
lk_err lk__refuse_null(const void *argument, const char *name);

#endif
