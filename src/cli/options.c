/* SPDX-License-Identifier: MIT
 * The command line.
 *
 * Read by hand: getopt_long() prints the argument it does not know, which may be a URL with a
 * password, and takes abbreviations, which a new option would break. */
#include "options.h"

#include "help.h"
#include "say.h"
#include "status.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECONDS_DIGITS_MAX 9 /* before the point */

enum option_id {
	OPTION_URL,
	OPTION_QUIET,
	OPTION_VERBOSE,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_NONBLOCK,
	OPTION_WAIT,
	OPTION_STATUS,
	OPTION_LEASE,
	OPTION_FIXED,
	OPTION_MIN_HOLD,
	OPTION_MAX_HOLD,
	OPTION_ON_LOST,
	OPTION_LABEL,
	OPTION_REPORT,
	OPTION_JSON,
	OPTION_IF_HOLDER,
};

#define FOR(verb) (1u << (verb))
#define FOR_ALL (~0u)
#define FOR_STORE (FOR_ALL & ~FOR(VERB_LOCAL))

static const struct option_spec {
	char letter; /* 0 = none */
	const char *name;
	enum option_id id;
	bool has_value;
	unsigned verbs;
} specs[] = {
	{0, "url", OPTION_URL, true, FOR_STORE},
	{'q', "quiet", OPTION_QUIET, false, FOR_ALL},
	{'v', "verbose", OPTION_VERBOSE, false, FOR_ALL},
	{'h', "help", OPTION_HELP, false, FOR_ALL},
	{'V', "version", OPTION_VERSION, false, FOR_ALL},
	{'n', "nonblock", OPTION_NONBLOCK, false, FOR(VERB_LOCK)},
	{0, "nb", OPTION_NONBLOCK, false, FOR(VERB_LOCK)},
	{'w', "wait", OPTION_WAIT, true, FOR(VERB_LOCK)},
	{0, "timeout", OPTION_WAIT, true, FOR(VERB_LOCK)},
	{'E', "conflict-exit-code", OPTION_STATUS, true, FOR(VERB_LOCK)},
	{0, "lease", OPTION_LEASE, true, FOR(VERB_LOCK)},
	{0, "fixed", OPTION_FIXED, false, FOR(VERB_LOCK)},
	{0, "min-hold", OPTION_MIN_HOLD, true, FOR(VERB_LOCK)},
	{0, "max-hold", OPTION_MAX_HOLD, true, FOR(VERB_LOCK)},
	{0, "on-lost", OPTION_ON_LOST, true, FOR(VERB_LOCK)},
	{0, "label", OPTION_LABEL, true, FOR(VERB_LOCK)},
	{0, "report", OPTION_REPORT, true, FOR(VERB_LOCK)},
	{0, "json", OPTION_JSON, false, FOR(VERB_SHOW)},
	{0, "if-holder", OPTION_IF_HOLDER, true, FOR(VERB_BREAK)},
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

static const char *const verb_names[] = {"lock", "show", "break", "local", "doctor"};
#define VERBS (sizeof(verb_names) / sizeof(verb_names[0]))

struct parser {
	struct options *options;
	char **argv; /* NULL-ended */
	int at;
	bool seen[SPECS];
	bool help;
	bool version;
	bool waits; /* -n or -w was given */
};

/* A decimal number of seconds as milliseconds, rounded up: "0.0001" is not "try once". */
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

static bool seconds_option(const struct option_spec *spec, const char *value, int64_t min_ms,
                           int64_t max_ms, int64_t *ms)
{
	if (parse_seconds(value, min_ms, max_ms, ms))
		return true;
	say("--%s takes seconds, %lld.%03lld to %lld", spec->name, (long long)min_ms / 1000,
	    (long long)min_ms % 1000, (long long)max_ms / 1000);
	return false;
}

static bool parse_status(const char *value, int *status)
{
	bool given = *value;
	int number = 0;

	for (int i = 0; i < 3 && isdigit((unsigned char)*value); i++)
		number = number * 10 + (*value++ - '0');
	if (!given || *value || number > 255) {
		say("-E takes an exit status, 0 to 255");
		return false;
	}
	*status = number;
	return true;
}

static bool parse_on_lost(const char *value, enum on_lost *on_lost)
{
	static const char *const names[] = {"term", "kill", "warn"};

	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(value, names[i])) {
			*on_lost = (enum on_lost)i;
			return true;
		}
	say("--on-lost takes term, kill or warn");
	return false;
}

/* A command line is everybody's to read. */
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

static bool parse_url(const char *value, const char **url)
{
	if (!*value) {
		/* As from a variable that was not set: local: would lock this machine alone. */
		say("--url is empty");
		return false;
	}
	if (has_password(value)) {
		say("--url with a password could be read by every user of this machine: put the "
		    "URL into LATCHKEY_URL, or the password into a file named by "
		    "LATCHKEY_PASSWORD_FILE");
		return false;
	}
	*url = value;
	return true;
}

static bool apply_wait(struct parser *parser, const struct option_spec *spec, const char *value)
{
	if (parser->waits) {
		say("-n and -w: one of them, once");
		return false;
	}
	parser->waits = true;
	if (value)
		return seconds_option(spec, value, 0, 999999999000, &parser->options->wait_ms);
	parser->options->wait_ms = 0;
	return true;
}

static bool apply(struct parser *parser, const struct option_spec *spec, char *value)
{
	struct options *options = parser->options;

	parser->seen[spec - specs] = true;
	switch (spec->id) {
	case OPTION_URL:
		return parse_url(value, &options->url);
	case OPTION_QUIET:
		return options->quiet = true;
	case OPTION_VERBOSE:
		return options->verbose = true;
	case OPTION_HELP:
		return parser->help = true;
	case OPTION_VERSION:
		return parser->version = true;
	case OPTION_NONBLOCK:
	case OPTION_WAIT:
		return apply_wait(parser, spec, value);
	case OPTION_STATUS:
		return parse_status(value, &options->busy_status);
	case OPTION_LEASE:
		return seconds_option(spec, value, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS,
		                      &options->lease_ms);
	case OPTION_FIXED:
		return options->fixed = true;
	case OPTION_MIN_HOLD:
		return seconds_option(spec, value, 1, 999999999000, &options->min_hold_ms);
	case OPTION_MAX_HOLD:
		return seconds_option(spec, value, 1, 999999999000, &options->max_hold_ms);
	case OPTION_ON_LOST:
		return parse_on_lost(value, &options->on_lost);
	case OPTION_LABEL:
		options->label = value;
		return true;
	case OPTION_REPORT:
		options->report = value;
		return true;
	case OPTION_JSON:
		return options->json = true;
	case OPTION_IF_HOLDER:
		options->if_holder = value;
		return true;
	}
	return false;
}

/* --name, --name=value or --name value. */
static bool parse_long(struct parser *parser, char *text)
{
	size_t len = strcspn(text, "=");
	char *value = text[len] ? text + len + 1 : NULL;

	for (size_t i = 0; i < SPECS; i++) {
		const struct option_spec *spec = &specs[i];
		if (strncmp(spec->name, text, len) || spec->name[len])
			continue;
		if (!spec->has_value && value) {
			say("--%s takes no value", spec->name);
			return false;
		}
		if (spec->has_value && !value)
			value = parser->argv[parser->at] ? parser->argv[parser->at++] : NULL;
		if (spec->has_value && !value) {
			say("--%s needs a value", spec->name);
			return false;
		}
		return apply(parser, spec, value);
	}
	{
		char name[64];
		say("no option is called --%s", text_escape(name, sizeof(name), text, len));
	}
	return false;
}

/* -n, -nq, -w5 or -w 5. */
static bool parse_short(struct parser *parser, char *text)
{
	while (*text) {
		const struct option_spec *spec = NULL;
		char *value = NULL, name[8];

		for (size_t i = 0; i < SPECS && !spec; i++)
			if (specs[i].letter == *text)
				spec = &specs[i];
		if (!spec) {
			say("no option is called -%s", text_escape(name, sizeof(name), text, 1));
			return false;
		}
		text++;
		if (spec->has_value) {
			value = *text ? text : parser->argv[parser->at];
			if (!value) {
				say("-%c needs a value", spec->letter);
				return false;
			}
			if (!*text)
				parser->at++;
			text = value + strlen(value);
		}
		if (!apply(parser, spec, value))
			return false;
	}
	return true;
}

/* Options up to the first word that is none; "--" ends them. */
static bool parse_options(struct parser *parser)
{
	char *word;

	while ((word = parser->argv[parser->at]) && word[0] == '-' && word[1]) {
		parser->at++;
		if (!strcmp(word, "--"))
			break;
		if (!(word[1] == '-' ? parse_long(parser, word + 2)
		                     : parse_short(parser, word + 1)))
			return false;
	}
	return true;
}

static bool parse_verb(struct parser *parser)
{
	const char *word = parser->argv[parser->at];
	char text[64];

	if (!word) {
		say("a verb is missing: lock, show, break, local or doctor");
		return false;
	}
	parser->at++;
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(word, verb_names[i])) {
			parser->options->verb = (enum verb)i;
			return true;
		}
	if (!strcmp(word, "sem") || !strcmp(word, "rate") || !strcmp(word, "latch"))
		say("%s: not in this version", word);
	else
		say("no verb is called \"%s\"",
		    text_escape(text, sizeof(text), word, strlen(word)));
	return false;
}

/* NAME -c 'SHELL' or NAME [--] COMMAND [ARG...] */
static bool parse_command(struct parser *parser)
{
	struct options *options = parser->options;
	char **rest = parser->argv + parser->at;
	static char sh[] = "/bin/sh", flag[] = "-c";

	if (*rest && (!strcmp(*rest, "-c") || !strcmp(*rest, "--command"))) {
		if (!rest[1] || rest[2]) {
			say("-c takes one argument, a command line for /bin/sh");
			return false;
		}
		options->shell[0] = sh;
		options->shell[1] = flag;
		options->shell[2] = rest[1];
		options->command = options->shell;
		return true;
	}
	if (*rest && !strcmp(*rest, "--")) {
		rest++;
	} else if (*rest && **rest == '-') {
		say("options come before the name; a command that begins with a dash follows --");
		return false;
	}
	if (!*rest || !**rest) {
		say("a command is missing: latchkey lock NAME COMMAND");
		return false;
	}
	options->command = rest;
	return true;
}

static bool parse_local(struct parser *parser)
{
	static const char *const names[] = {"start", "stop", "status"};
	const char *word = parser->argv[parser->at];

	for (unsigned i = 0; word && i < 3; i++)
		if (!strcmp(word, names[i]) && !parser->argv[parser->at + 1]) {
			parser->options->local = (enum local_action)i;
			return true;
		}
	say("latchkey local takes start, stop or status");
	return false;
}

static bool parse_name(struct parser *parser, bool needed)
{
	const char *name = parser->argv[parser->at];

	if (name) {
		size_t len = strlen(name);
		parser->at++;
		if (!len || len > LK_NAME_MAX) {
			say("a name has 1 to %d bytes", LK_NAME_MAX);
			return false;
		}
	} else if (needed) {
		say("a name is missing");
		return false;
	}
	parser->options->name = name;
	return true;
}

static bool parse_rest(struct parser *parser)
{
	enum verb verb = parser->options->verb;

	if (verb == VERB_LOCAL)
		return parse_local(parser);
	if (verb != VERB_DOCTOR && !parse_name(parser, verb != VERB_SHOW))
		return false;
	if (verb == VERB_LOCK)
		return parse_command(parser);
	if (parser->argv[parser->at]) {
		say("%s: too many arguments", verb_names[verb]);
		return false;
	}
	return true;
}

/* Options that stood before the verb are checked here, too. */
static bool fits_verb(const struct parser *parser)
{
	const struct options *options = parser->options;

	for (size_t i = 0; i < SPECS; i++)
		if (parser->seen[i] && !(specs[i].verbs & FOR(options->verb))) {
			say("--%s is no option of %s", specs[i].name, verb_names[options->verb]);
			return false;
		}
	if (options->quiet && options->verbose) {
		say("-q and -v: one of them");
		return false;
	}
	if (options->min_hold_ms && options->max_hold_ms &&
	    options->min_hold_ms > options->max_hold_ms) {
		say("--min-hold is longer than --max-hold");
		return false;
	}
	if (options->fixed &&
	    options->min_hold_ms > (options->lease_ms ? options->lease_ms : LK_LEASE_DEFAULT_MS)) {
		say("--min-hold is longer than the --fixed lease");
		return false;
	}
	return true;
}

bool options_parse(struct options *options, int argc, char **argv, int *status)
{
	struct parser parser;

	memset(options, 0, sizeof(*options));
	options->wait_ms = LK_FOREVER;
	options->busy_status = STATUS_BUSY;
	memset(&parser, 0, sizeof(parser));
	parser.options = options;
	parser.argv = argv;
	parser.at = argc > 0;
	*status = STATUS_USAGE;
	if (parse_options(&parser)) {
		bool asked = parser.help || parser.version;
		if (asked || (parse_verb(&parser) && parse_options(&parser))) {
			if (parser.version)
				printf("latchkey %s\n", lk_version());
			else if (parser.help)
				fputs(help_text, stdout);
			else if (fits_verb(&parser) && parse_rest(&parser))
				return true;
			if (parser.version || parser.help) {
				*status = 0;
				return false;
			}
		}
	}
	say("latchkey --help says more");
	return false;
}
