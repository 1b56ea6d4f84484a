/* SPDX-License-Identifier: MIT
 * Errors: the names of all codes, and the text of this thread's last failure. */
#include "error.h"

#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* A plain array: a thread may fail while its destructors run, so this must not need one. */
static _Thread_local char last_text[sizeof(((struct lk__why *)NULL)->text)];

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
	lk__escape_format(last_text, sizeof(last_text), fmt, args);
	va_end(args);
	errno = saved;
	return err;
}

lk_err lk__refuse_null(const void *argument, const char *name)
{
	return argument ? LK_OK : lk__failf(LK_EINVALID, "%s: must not be NULL", name);
}
