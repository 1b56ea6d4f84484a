/* SPDX-License-Identifier: MIT
 * The values of options and operands.  Each function reports an invalid one. */
#include "value.h"

#include "say.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECONDS_DIGITS_MAX 9 /* before the point */
#define COUNT_DIGITS_MAX 10

/* Parse a decimal number of seconds as milliseconds, rounded up: "0.0001" must not mean "try
 * once". */
static bool parse_seconds(const char *text, int64_t min_ms, int64_t max_ms, int64_t *ms)
{
	int64_t value = 0, unit = 100;
	int digits = 0;
	bool rest = false;

	for (; isdigit((unsigned char)*text); text++, digits++) {
		if (digits == SECONDS_DIGITS_MAX)
			return false;
		value = value * 10 + (*text - '0') * 1000;
	}
	if (*text == '.')
		for (text++; isdigit((unsigned char)*text); text++, digits++, unit /= 10) {
			value += (*text - '0') * unit;
			rest = rest || (!unit && *text != '0');
		}
	value += rest;
	if (!digits || *text || value < min_ms || value > max_ms)
		return false;
	*ms = value;
	return true;
}

const char *value_time(char text[VALUE_TIME_SIZE], int64_t ms)
{
	int64_t rest = ms % 1000;

	if (rest)
		snprintf(text, VALUE_TIME_SIZE, "%" PRId64 ".%03" PRId64, ms / 1000, rest);
	else
		snprintf(text, VALUE_TIME_SIZE, "%" PRId64, ms / 1000);
	return text;
}

bool value_seconds(const char *option, const char *text, int64_t min_ms, int64_t max_ms,
                   int64_t *ms)
{
	if (parse_seconds(text, min_ms, max_ms, ms))
		return true;
	say("--%s: must be %lld.%03lld to %lld seconds", option, (long long)min_ms / 1000,
	    (long long)min_ms % 1000, (long long)max_ms / 1000);
	return false;
}

bool value_count(const char *what, const char *text, int64_t min, int64_t max, int64_t *count)
{
	int64_t value = 0;
	int digits = 0;

	for (; isdigit((unsigned char)*text) && digits < COUNT_DIGITS_MAX; text++, digits++)
		value = value * 10 + (*text - '0');
	if (!digits || *text || value < min || value > max) {
		say("%s: must be %" PRId64 " to %" PRId64, what, min, max);
		return false;
	}
	*count = value;
	return true;
}

bool value_status(const char *text, int *status)
{
	bool given = *text;
	int number = 0;

	for (int i = 0; i < 3 && isdigit((unsigned char)*text); i++)
		number = number * 10 + (*text++ - '0');
	if (!given || *text || number > 255) {
		say("-E: must be 0 to 255");
		return false;
	}
	*status = number;
	return true;
}

bool value_on_lost(const char *text, enum on_lost *on_lost)
{
	static const char *const names[] = {"term", "kill", "warn"};

	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(text, names[i])) {
			*on_lost = (enum on_lost)i;
			return true;
		}
	say("--on-lost: must be term, kill or warn");
	return false;
}

/* Every user can read a command line. */
static bool has_password(const char *url)
{
	const char *query = strchr(url, '?');
	const char *begin = strstr(url, "://");
	size_t len = query ? (size_t)(query - url) : strlen(url);
	const char *at, *colon;

	for (; query; query = strchr(query + 1, '&'))
		if (!strncmp(query + 1, "password=", 9))
			return true;
	begin = begin ? begin + 3 : url;
	if (begin > url + len || *begin == '/')
		return false;
	at = memchr(begin, '@', len - (size_t)(begin - url));
	colon = memchr(begin, ':', len - (size_t)(begin - url));
	return at && colon && colon < at;
}

bool value_url(const char *what, const char *text, const char **url)
{
	if (!*text) {
		/* Perhaps from an unset variable: local: would lock on this machine only. */
		say("%s: must not be empty", what);
		return false;
	}
	if (has_password(text)) {
		say("%s: every user of this machine could read its password: put the "
		    "URL into LATCHKEY_URL, or the password into a file named by "
		    "LATCHKEY_PASSWORD_FILE",
		    what);
		return false;
	}
	*url = text;
	return true;
}

bool value_step(const char *text, const char **step)
{
	size_t len = strlen(text);

	if (!len || len > LK_STEP_MAX) {
		say("--id: must be 1 to %d bytes", LK_STEP_MAX);
		return false;
	}
	*step = text;
	return true;
}

bool value_name(const char *text, const char **name)
{
	size_t len = text ? strlen(text) : 0;

	if (!text) {
		say("NAME: missing");
		return false;
	}
	if (!len || len > LK_NAME_MAX) {
		say("NAME: must be 1 to %d bytes", LK_NAME_MAX);
		return false;
	}
	*name = text;
	return true;
}

bool value_grace(const char *text, bool *ends)
{
	*ends = text && !strcmp(text, "end");
	if (!text || *ends)
		return true;
	say("latchkey grace: may only be followed by end");
	return false;
}

bool value_local(const char *text, enum local_action *action)
{
	static const char *const names[] = {"start", "stop", "status"};

	for (unsigned i = 0; text && i < 3; i++)
		if (!strcmp(text, names[i])) {
			*action = (enum local_action)i;
			return true;
		}
	say("latchkey local: must be followed by start, stop or status");
	return false;
}
