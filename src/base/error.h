/* SPDX-License-Identifier: MIT
 * Errors inside the library: a code with a sentence, carried by value; this thread's last one. */
#ifndef LK__ERROR_H
#define LK__ERROR_H

#include <latchkey.h>

/* A failure and its sentence.  The text is already escaped: lk__why_set() escapes the
 * whole, lk__why_about() all but the subject. */
struct lk__why {
	lk_err err;
	char text[240];
};

/* Fill why (may be NULL) and return err, so that a failure is one line: return lk__why_set(...). */
lk_err lk__why_set(struct lk__why *why, lk_err err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same, with "<subject>: " before the words.  The subject is escaped already. */
lk_err lk__why_about(struct lk__why *why, lk_err err, const char *subject, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same with the words of an errno in lower case, and what follows them ("" = nothing). */
lk_err lk__why_errno(struct lk__why *why, lk_err err, const char *subject, int number,
                     const char *after);

/* Make it this thread's lk_errmsg() and return the code.  LK_OK leaves the last one. */
lk_err lk__fail(const struct lk__why *why);

/* Both in one step, for the public functions. */
lk_err lk__failf(lk_err err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Refuse an argument of a public function that is NULL: LK_EINVALID with the name that the header
 * gives it, else LK_OK. */
lk_err lk__refuse_null(const void *argument, const char *name);

#endif
