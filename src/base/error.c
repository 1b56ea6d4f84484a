/* SPDX-License-Identifier: MIT
 * Errors: the names of all codes, and the text of this thread's last failure. */
#include "error.h"

#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A plain array: a thread may fail while its destructors run, so this must not need one. */
static _Thread_local char last_text[sizeof(((struct lk__why *)NULL)->text)];

/* Text is cut to this size before escaping.  Larger than lk__why's text, so that a cut shows as
 * "...". */
#define RAW_SIZE 512

const char *lk_version(void)
{
	return LK_VERSION;
}

const char *lk_err_name(lk_err err)
{
	switch (err) {
#define CASE(name, number, text)                                                                   \
	case name:                                                                                 \
		return #name;
		LK_ERR_MAP(CASE)
#undef CASE
	}
	return "LK_E?";
}

const char *lk_err_text(lk_err err)
{
	switch (err) {
#define CASE(name, number, text)                                                                   \
	case name:                                                                                 \
		return text;
		LK_ERR_MAP(CASE)
#undef CASE
	}
	return "not an error code of Latchkey";
}

bool lk_err_is_ambiguous(lk_err err)
{
	return err == LK_EUNKNOWN;
}

bool lk_err_is_retryable(lk_err err)
{
	return err == LK_EBUSY || err == LK_ETIMEDOUT || err == LK_ECONN || err == LK_EAGAIN ||
	       err == LK_EREPLICAS;
}

const char *lk_lost_reason_name(lk_lost_reason reason)
{
	switch (reason) {
	case LK_LOST_EXPIRED:
		return "expired";
	case LK_LOST_TAKEN:
		return "taken";
	case LK_LOST_BROKEN:
		return "broken";
	case LK_LOST_MAX_HOLD:
		return "max-hold";
	case LK_LOST_THREAD:
		return "thread-ended";
	}
	return "unknown";
}

const char *lk_errmsg(void)
{
	return last_text;
}

__attribute__((format(printf, 3, 0))) static void format_escaped(char *out, size_t size,
                                                                 const char *fmt, va_list args)
{
	char raw[RAW_SIZE];
	int len = vsnprintf(raw, sizeof(raw), fmt, args);

	if (len < 0)
		len = 0;
	if ((size_t)len >= sizeof(raw))
		len = (int)sizeof(raw) - 1;
	lk__escape(out, size, raw, (size_t)len);
}

lk_err lk__why_set(struct lk__why *why, lk_err err, const char *fmt, ...)
{
	int saved = errno; /* the caller may still need errno */
	va_list args;

	if (!why)
		return err;
	why->err = err;
	va_start(args, fmt);
	format_escaped(why->text, sizeof(why->text), fmt, args);
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
	format_escaped(why->text + len, sizeof(why->text) - len, fmt, args);
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

lk_err lk__fail(const struct lk__why *why)
{
	if (why->err != LK_OK)
		memcpy(last_text, why->text, sizeof(last_text));
	return why->err;
}

lk_err lk__failf(lk_err err, const char *fmt, ...)
{
	int saved = errno;
	va_list args;

	va_start(args, fmt);
	format_escaped(last_text, sizeof(last_text), fmt, args);
	va_end(args);
	errno = saved;
	return err;
}

lk_err lk__why_unasked(const struct lk__why *why)
{
	return why->err == LK_EUNKNOWN || !why->err ? LK_ECONN : why->err;
}

lk_err lk__refuse_null(const void *argument, const char *name)
{
	return argument ? LK_OK : lk__failf(LK_EINVALID, "%s: must not be NULL", name);
}
