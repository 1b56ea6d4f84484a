/* SPDX-License-Identifier: MIT
 * Whole command lines: an accepted one satisfies what the verbs rely on, a rejected one gets a
 * plain message without a secret.  Nothing is run: only options_parse() reads them.  Its messages
 * come here: a program with this file is linked with --wrap=say. */
#include "cli/options.h"
#include "cli/say.h"
#include "cli/status.h"
#include "fuzz.h"

#include <latchkey.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 40
#define SECRET "Zq7x" /* from the dictionary: contained in a password */
#define HOLD_MAX_MS 999999999000

void __wrap_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static int said;           /* messages of this command line */
static bool secret_in_url; /* a --url has a password: no message may show it */

void __wrap_say(const char *fmt, ...)
{
	char line[4096];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	FUZZ_MUST(len > 0 && (size_t)len < sizeof(line), "a message of %d bytes", len);
	FUZZ_MUST(fuzz_is_plain(line), "a message that is not plain");
	FUZZ_MUST(!secret_in_url || !strstr(line, SECRET), "a message shows a secret: %s", line);
	said++;
}

static bool within(int64_t value, int64_t min, int64_t max)
{
	return value >= min && value <= max;
}

static void check_times(const struct options *options)
{
	FUZZ_MUST(within(options->wait_ms, -1, HOLD_MAX_MS), "wait_ms");
	FUZZ_MUST(!options->lease_ms || within(options->lease_ms, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS),
	          "lease_ms");
	FUZZ_MUST(within(options->slack_ms, 0, LK_LEASE_MAX_MS - options->lease_ms), "slack_ms");
	FUZZ_MUST(within(options->min_hold_ms, 0, HOLD_MAX_MS) &&
	                  within(options->max_hold_ms, 0, HOLD_MAX_MS),
	          "min_hold_ms, max_hold_ms");
	FUZZ_MUST(!options->ttl_ms || within(options->ttl_ms, LK_TTL_MIN_MS, LK_TTL_MAX_MS),
	          "ttl_ms");
	FUZZ_MUST(!options->open_ttl_ms ||
	                  within(options->open_ttl_ms, LK_TTL_MIN_MS, LK_TTL_MAX_MS),
	          "open_ttl_ms");
}

static void check_verb(const struct options *options)
{
	bool permits = options->verb == VERB_SEM || options->verb == VERB_RATE;
	bool needs_name = options->verb != VERB_SHOW && options->verb != VERB_LOCAL &&
	                  options->verb != VERB_DOCTOR && options->verb != VERB_GRACE;
	bool needs_command = options->verb == VERB_LOCK || options->verb == VERB_SEM;

	FUZZ_MUST(!needs_name || options->name, "no name");
	FUZZ_MUST(!options->name || within((int64_t)strlen(options->name), 1, LK_NAME_MAX),
	          "the name's length");
	FUZZ_MUST(!needs_command ||
	                  (options->command && options->command[0] && options->command[0][0]),
	          "no command");
	FUZZ_MUST(needs_command || options->verb == VERB_RATE || !options->command,
	          "a command where none belongs");
	FUZZ_MUST(!permits || (within(options->permits, 1, LK_PERMITS_MAX) &&
	                       within(options->units, 1, options->permits)),
	          "permits");
	FUZZ_MUST(within(options->count, 0, LK_COUNT_MAX), "count");
	FUZZ_MUST(options->count || options->verb == VERB_LATCH_SET ||
	                  options->verb == VERB_LATCH_RESET,
	          "a step of 0");
	FUZZ_MUST(within(options->busy_status, 0, 255), "busy_status");
	FUZZ_MUST(!options->step || within((int64_t)strlen(options->step), 1, LK_STEP_MAX), "--id");
	FUZZ_MUST((int)options->on_lost >= 0 && options->on_lost <= ON_LOST_WARN &&
	                  (int)options->local >= 0 && options->local <= LOCAL_STATUS,
	          "an enum");
	FUZZ_MUST(!options->url || options->url[0], "an empty URL");
}

/* options_parse() itself prints only --help and --version. */
static bool parse_quietly(struct options *options, int argc, char **argv, int *status)
{
	static FILE *nowhere;
	FILE *before = stdout;
	bool good;

	if (!nowhere && !(nowhere = fopen("/dev/null", "w")))
		abort();
	stdout = nowhere;
	said = 0;
	good = options_parse(options, argc, argv, status);
	stdout = before;
	return good;
}

/* Is the text in a URL with a password, as the value of --url, and nowhere else? */
static bool has_secret_url(int argc, char **argv)
{
	int count = 0;

	for (int i = 1; i < argc; i++)
		for (const char *at = argv[i]; (at = strstr(at, SECRET)); at++)
			count++;
	if (count != 1)
		return false;
	for (int i = 1; i < argc; i++) {
		const char *url = NULL, *colon;
		if (!strncmp(argv[i], "--url=redis://", 14))
			url = argv[i] + 14;
		else if (!strcmp(argv[i], "--url") && i + 1 < argc &&
		         !strncmp(argv[i + 1], "redis://", 8))
			url = argv[i + 1] + 8;
		colon = url ? strchr(url, ':') : NULL;
		if (colon && strchr(colon, '@') && strstr(colon, SECRET))
			return true;
	}
	return false;
}

static void check_line(int argc, char **argv)
{
	struct options options, again;
	int status = -1, other = -1;
	bool good;

	secret_in_url = has_secret_url(argc, argv);
	good = parse_quietly(&options, argc, argv, &status);
	if (good) {
		FUZZ_MUST(!said, "it was accepted, with an error message");
		check_times(&options);
		check_verb(&options);
	} else {
		FUZZ_MUST(status == 0 || status == STATUS_USAGE, "status %d", status);
		FUZZ_MUST(status == 0 ? !said : said == 2, "status %d and %d messages", status,
		          said);
	}
	FUZZ_MUST(parse_quietly(&again, argc, argv, &other) == good && (good || status == other),
	          "reading it twice gives different results");
	secret_in_url = false;
}

/* The arguments, one a line. */
void fuzz_command_line(const uint8_t *data, size_t size)
{
	static char program[] = "latchkey";
	char *text = malloc(size + 1), *args[ARGS_MAX + 2], *copy = malloc(size + 1);
	int argc = 1;

	if (!text || !copy)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	args[0] = program;
	for (char *at = text; *at && argc <= ARGS_MAX;) {
		args[argc++] = at;
		at += strcspn(at, "\n");
		if (*at)
			*at++ = '\0';
	}
	args[argc] = NULL;
	memcpy(copy, text, size + 1);
	check_line(argc, args);
	FUZZ_MUST(!memcmp(copy, text, size + 1), "it was written to");
	free(text);
	free(copy);
}
