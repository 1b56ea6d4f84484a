/* SPDX-License-Identifier: MIT
 * Errors as values: a code and its text. */
#include "error.h"

#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

lk_err lk__why_set(struct lk__why *why, lk_err err, const char *fmt, ...)
{
	int saved = errno; /* the caller may still need errno */
	va_list args;

	if (!why)
		return err;
	why->err = err;
	va_start(args, fmt);
	lk__escape_format(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	errno = saved;
	return err;
}

lk_err lk__why_about(struct lk__why *why, lk_err err, const char *subject, const char *fmt, ...)
{
	size_t len;
	va_list args;

	if (!why)
		return err;
	why->err = err;
	/* Limit the subject to two thirds, so that part of the message is always visible. */
	len = strlen(subject);
	if (len > sizeof(why->text) * 2 / 3)
		len = sizeof(why->text) * 2 / 3;
	memcpy(why->text, subject, len);
	memcpy(why->text + len, ": ", 2);
	len += 2;
	va_start(args, fmt);
	lk__escape_format(why->text + len, sizeof(why->text) - len, fmt, args);
	va_end(args);
	return err;
}

lk_err lk__why_errno(struct lk__why *why, lk_err err, const char *subject, int number,
                     const char *after)
{
	char buffer[128];
	/* glibc's version (_GNU_SOURCE) returns the text, which need not be in the buffer. */
#if defined(__GLIBC__)
	const char *words = strerror_r(number, buffer, sizeof(buffer));
#else
	const char *words = strerror_r(number, buffer, sizeof(buffer)) ? "unknown error" : buffer;
#endif

	return lk__why_about(why, err, subject, "%c%s%s", tolower((unsigned char)words[0]),
	                     words + 1, after);
}

lk_err lk__why_unasked(const struct lk__why *why)
{
	return why->err == LK_EUNKNOWN || !why->err ? LK_ECONN : why->err;
}
