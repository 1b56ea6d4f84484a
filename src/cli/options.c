/* SPDX-License-Identifier: MIT
 * The command line.
 *
 * Not parsed by getopt_long(), which prints unknown arguments (perhaps a URL with a password) and
 * accepts abbreviations, which a new option would break. */
#include "options.h"

#include "help.h"
#include "say.h"
#include "status.h"
#include "value.h"

#include <latchkey.h>

#include <stdio.h>
#include <string.h>

#define HOLD_MAX_MS 999999999000 /* for times that no lease limits */

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
	OPTION_PERMITS,
	OPTION_UNITS,
	OPTION_PER,
	OPTION_SLACK,
	OPTION_RESIZE,
	OPTION_TTL,
	OPTION_OPEN_TTL,
	OPTION_STEP,
	OPTION_ABSENT_IS_OPEN,
	OPTION_YES,
	OPTION_LONGEST_LEASE,
};

#define FOR(verb) (1u << (verb))
#define FOR_ALL (~0u)
#define FOR_STORE (FOR_ALL & ~FOR(VERB_LOCAL))
#define FOR_HOLD (FOR(VERB_LOCK) | FOR(VERB_SEM))
#define FOR_COMMAND (FOR_HOLD | FOR(VERB_RATE))
#define FOR_WAIT (FOR_COMMAND | FOR(VERB_LATCH_WAIT))
#define FOR_PERMITS (FOR(VERB_SEM) | FOR(VERB_RATE))
#define FOR_MAKE (FOR(VERB_LATCH_SET) | FOR(VERB_LATCH_RESET))
#define FOR_TTL (FOR_MAKE | FOR_PERMITS)
#define FOR_SHOW (FOR(VERB_SHOW) | FOR(VERB_LATCH_SHOW) | FOR(VERB_GRACE))

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
	{'n', "nonblock", OPTION_NONBLOCK, false, FOR_WAIT},
	{0, "nb", OPTION_NONBLOCK, false, FOR_WAIT},
	{'w', "wait", OPTION_WAIT, true, FOR_WAIT},
	{0, "timeout", OPTION_WAIT, true, FOR_WAIT},
	{'E', "conflict-exit-code", OPTION_STATUS, true, FOR_WAIT},
	{0, "lease", OPTION_LEASE, true, FOR_HOLD},
	{0, "fixed", OPTION_FIXED, false, FOR_HOLD},
	{0, "min-hold", OPTION_MIN_HOLD, true, FOR_HOLD},
	{0, "max-hold", OPTION_MAX_HOLD, true, FOR_HOLD},
	{0, "on-lost", OPTION_ON_LOST, true, FOR_HOLD},
	{0, "label", OPTION_LABEL, true, FOR_COMMAND},
	{0, "report", OPTION_REPORT, true, FOR_COMMAND},
	{0, "permits", OPTION_PERMITS, true, FOR(VERB_SEM)},
	{0, "limit", OPTION_PERMITS, true, FOR(VERB_RATE)},
	{'k', "units", OPTION_UNITS, true, FOR_PERMITS},
	{0, "per", OPTION_PER, true, FOR(VERB_RATE)},
	{0, "slack", OPTION_SLACK, true, FOR(VERB_RATE)},
	{0, "resize", OPTION_RESIZE, false, FOR_PERMITS},
	{0, "ttl", OPTION_TTL, true, FOR_TTL},
	{0, "open-ttl", OPTION_OPEN_TTL, true, FOR_MAKE},
	{0, "id", OPTION_STEP, true, FOR(VERB_LATCH_DOWN)},
	{0, "absent-is-open", OPTION_ABSENT_IS_OPEN, false, FOR(VERB_LATCH_WAIT)},
	{0, "json", OPTION_JSON, false, FOR_SHOW},
	{0, "if-holder", OPTION_IF_HOLDER, true, FOR(VERB_BREAK)},
	{'y', "yes", OPTION_YES, false, FOR(VERB_GRACE)},
	{0, "longest-lease", OPTION_LONGEST_LEASE, true, FOR(VERB_QUORUM)},
};
#define SPECS (sizeof(specs) / sizeof(specs[0]))

/* In the order of enum verb; the number of words after it, if no command follows. */
static const struct verb_spec {
	const char *word;
	const char *second; /* NULL = the verb is one word */
	int least;
	int most;
} verbs[] = {
	{"lock", NULL, 0, 0},    {"sem", NULL, 0, 0},      {"rate", NULL, 0, 0},
	{"latch", "set", 2, 2},  {"latch", "reset", 2, 2}, {"latch", "down", 1, 2},
	{"latch", "wait", 1, 1}, {"latch", "show", 1, 1},  {"latch", "rm", 1, 1},
	{"show", NULL, 0, 1},    {"break", NULL, 1, 1},    {"local", NULL, 1, 1},
	{"grace", NULL, 0, 1},   {"quorum", "init", 0, 1}, {"doctor", NULL, 0, 0},
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))
#define WORDS_MAX 2

struct parser {
	struct options *options;
	char **argv; /* NULL-terminated */
	int at;
	bool seen[SPECS];
	bool help;
	bool version;
	int words;  /* words of the verb read so far: 0, 1 of two, 2 = all */
	bool waits; /* -n or -w was given */
	bool over;  /* "--" ended the options */
};

static bool is_for(const struct parser *parser, unsigned wanted)
{
	return wanted & FOR(parser->options->verb);
}

/* "latch set" */
static const char *verb_name(const struct options *options, char text[32])
{
	const struct verb_spec *verb = &verbs[options->verb];

	snprintf(text, 32, "%s%s%s", verb->word, verb->second ? " " : "",
	         verb->second ? verb->second : "");
	return text;
}

static bool apply_wait(struct parser *parser, const struct option_spec *spec, const char *value)
{
	if (parser->waits) {
		say("-n and -w: give one of them, once");
		return false;
	}
	parser->waits = true;
	if (value)
		return value_seconds(spec->name, value, 0, HOLD_MAX_MS, &parser->options->wait_ms);
	parser->options->wait_ms = 0;
	return true;
}

/* Apply an option whose value is a time. */
static bool apply_time(struct options *options, const struct option_spec *spec, const char *value)
{
	const char *name = spec->name;

	switch (spec->id) {
	case OPTION_MIN_HOLD:
		return value_seconds(name, value, 1, HOLD_MAX_MS, &options->min_hold_ms);
	case OPTION_MAX_HOLD:
		return value_seconds(name, value, 1, HOLD_MAX_MS, &options->max_hold_ms);
	case OPTION_SLACK:
		return value_seconds(name, value, 0, LK_LEASE_MAX_MS, &options->slack_ms);
	case OPTION_TTL:
		return value_seconds(name, value, LK_TTL_MIN_MS, LK_TTL_MAX_MS, &options->ttl_ms);
	case OPTION_OPEN_TTL:
		return value_seconds(name, value, LK_TTL_MIN_MS, LK_TTL_MAX_MS,
		                     &options->open_ttl_ms);
	case OPTION_LONGEST_LEASE:
		return value_seconds(name, value, LK_LEASE_MIN_MS, LONGEST_LEASE_MAX_MS,
		                     &options->lease_ms);
	default:
		return value_seconds(name, value, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS,
		                     &options->lease_ms);
	}
}

static bool apply(struct parser *parser, const struct option_spec *spec, char *value)
{
	struct options *options = parser->options;

	parser->seen[spec - specs] = true;
	switch (spec->id) {
	case OPTION_URL:
		return value_url("--url", value, &options->url);
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
		return value_status(value, &options->busy_status);
	case OPTION_LEASE:
	case OPTION_PER:
	case OPTION_SLACK:
	case OPTION_MIN_HOLD:
	case OPTION_MAX_HOLD:
	case OPTION_TTL:
	case OPTION_OPEN_TTL:
	case OPTION_LONGEST_LEASE:
		return apply_time(options, spec, value);
	case OPTION_FIXED:
		return options->fixed = true;
	case OPTION_ON_LOST:
		return value_on_lost(value, &options->on_lost);
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
	case OPTION_PERMITS:
		return value_count(*spec->name == 'l' ? "--limit" : "--permits", value, 1,
		                   LK_PERMITS_MAX, &options->permits);
	case OPTION_UNITS:
		return value_count("-k", value, 1, LK_PERMITS_MAX, &options->units);
	case OPTION_RESIZE:
		return options->resize = true;
	case OPTION_STEP:
		return value_step(value, &options->step);
	case OPTION_ABSENT_IS_OPEN:
		return options->absent_is_open = true;
	case OPTION_YES:
		return options->yes = true;
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
			say("--%s: takes no value", spec->name);
			return false;
		}
		if (spec->has_value && !value)
			value = parser->argv[parser->at] ? parser->argv[parser->at++] : NULL;
		if (spec->has_value && !value) {
			say("--%s: value missing", spec->name);
			return false;
		}
		return apply(parser, spec, value);
	}
	{
		char name[64];
		say("unknown option --%s", text_escape(name, sizeof(name), text, len));
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
			say("unknown option -%s", text_escape(name, sizeof(name), text, 1));
			return false;
		}
		text++;
		if (spec->has_value) {
			value = *text ? text : parser->argv[parser->at];
			if (!value) {
				say("-%c: value missing", spec->letter);
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

/* Parse options up to the first other word; "--" ends them. */
static bool parse_options(struct parser *parser)
{
	char *word;

	while ((word = parser->argv[parser->at]) && word[0] == '-' && word[1]) {
		parser->at++;
		if (!strcmp(word, "--")) {
			parser->over = true;
			break;
		}
		if (!(word[1] == '-' ? parse_long(parser, word + 2)
		                     : parse_short(parser, word + 1)))
			return false;
	}
	return true;
}

/* Parse the second word of "latch set"; first is the first verb that begins with "latch". */
static bool parse_second(struct parser *parser, size_t first)
{
	const char *word;

	if (!parse_options(parser))
		return false;
	word = parser->argv[parser->at];
	for (size_t i = first; word && i < VERBS && verbs[i].second; i++)
		if (!strcmp(verbs[first].word, verbs[i].word) && !strcmp(word, verbs[i].second)) {
			parser->at++;
			parser->options->verb = (enum verb)i;
			parser->words = 2;
			return true;
		}
	if (parser->help || parser->version)
		return true;
	say("latchkey %s: must be followed by %s", verbs[first].word,
	    first == VERB_QUORUM ? "init" : "set, reset, down, wait, show or rm");
	return false;
}

static bool parse_verb(struct parser *parser);

/* Skip what is written after the verb as if it were a part of it. */
static void skip_action(struct parser *parser)
{
	const char *word = parser->argv[parser->at];
	enum verb verb = parser->options->verb;

	if (word && ((verb == VERB_GRACE && !strcmp(word, "end")) ||
	             (verb == VERB_LOCAL && (!strcmp(word, "start") || !strcmp(word, "stop") ||
	                                     !strcmp(word, "status")))))
		parser->at++;
}

/* Parse the rest after "help": nothing, or a verb. */
static bool parse_help(struct parser *parser)
{
	parser->help = true;
	if (!parse_options(parser) || (parser->argv[parser->at] && !parse_verb(parser)))
		return false;
	skip_action(parser);
	if (!parser->argv[parser->at])
		return true;
	say("help: too many arguments");
	return false;
}

static bool parse_verb(struct parser *parser)
{
	const char *word = parser->argv[parser->at];
	char text[64];

	if (!word) {
		say("verb missing: lock, sem, rate, latch, show, break, local, grace, quorum, "
		    "doctor or help");
		return false;
	}
	parser->at++;
	if (!strcmp(word, "help"))
		return parser->help || parse_help(parser);
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(word, verbs[i].word)) {
			parser->options->verb = (enum verb)i;
			parser->words = verbs[i].second ? 1 : 2;
			return !verbs[i].second || parse_second(parser, i);
		}
	say("unknown verb \"%s\"", text_escape(text, sizeof(text), word, strlen(word)));
	return false;
}

/* Parse NAME -c 'SHELL' or NAME [--] COMMAND [ARG...] */
static bool parse_command(struct parser *parser)
{
	struct options *options = parser->options;
	char **rest = parser->argv + parser->at;
	static char sh[] = "/bin/sh", flag[] = "-c";

	if (!*rest && options->verb == VERB_RATE)
		return true;
	if (*rest && (!strcmp(*rest, "-c") || !strcmp(*rest, "--command"))) {
		if (!rest[1] || rest[2]) {
			say("-c: must have one argument, a command line for /bin/sh");
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
		say("COMMAND: missing (latchkey %s NAME COMMAND)", verbs[options->verb].word);
		return false;
	}
	options->command = rest;
	return true;
}

/* For verbs without a command, options may also come between and after the words. */
static bool parse_words(struct parser *parser, const char *words[WORDS_MAX])
{
	const struct verb_spec *verb = &verbs[parser->options->verb];
	char name[32];
	int count = 0;

	for (;;) {
		const char *word;
		if (!parser->over && !parse_options(parser))
			return false;
		word = parser->argv[parser->at];
		if (!word)
			break;
		if (count == verb->most) {
			say("%s: too many arguments", verb_name(parser->options, name));
			return false;
		}
		words[count++] = word;
		parser->at++;
	}
	return true;
}

static bool parse_rest(struct parser *parser)
{
	struct options *options = parser->options;
	const struct verb_spec *verb = &verbs[options->verb];
	const char *words[WORDS_MAX] = {NULL};
	char name[32];

	if (is_for(parser, FOR_COMMAND)) {
		const char *word = parser->argv[parser->at];
		parser->at += word != NULL;
		return value_name(word, &options->name) && parse_command(parser);
	}
	if (!parse_words(parser, words))
		return false;
	if (parser->help || parser->version)
		return true;
	if (options->verb == VERB_LOCAL)
		return value_local(words[0], &options->local);
	if (options->verb == VERB_QUORUM)
		return !words[0] || value_url("URL", words[0], &options->url);
	if (options->verb == VERB_GRACE)
		return value_grace(words[0], &options->ends_grace);
	if ((words[0] || verb->least) && !value_name(words[0], &options->name))
		return false;
	if (verb->least == 2 && !words[1]) {
		say("N: missing (latchkey %s NAME N)", verb_name(options, name));
		return false;
	}
	return !words[1] ||
	       value_count("N", words[1], !is_for(parser, FOR_MAKE), LK_COUNT_MAX, &options->count);
}

/* Check the options of permits. */
static bool fits_permits(const struct options *options)
{
	const char *permits = options->verb == VERB_RATE ? "--limit" : "--permits";

	if (!options->permits) {
		say("%s: missing", permits);
		return false;
	}
	if (options->verb == VERB_RATE && !options->lease_ms) {
		say("--per: missing");
		return false;
	}
	if (options->lease_ms + options->slack_ms > LK_LEASE_MAX_MS) {
		say("--per plus --slack: must not exceed %d seconds", LK_LEASE_MAX_MS / 1000);
		return false;
	}
	if (options->units > options->permits) {
		say("-k: must not exceed %s", permits);
		return false;
	}
	return true;
}

/* Check the options against the verb, also those before it. */
static bool fits_verb(const struct parser *parser)
{
	const struct options *options = parser->options;
	char name[32];

	for (size_t i = 0; i < SPECS; i++)
		if (parser->seen[i] && !is_for(parser, specs[i].verbs)) {
			say("--%s: not an option of %s", specs[i].name, verb_name(options, name));
			return false;
		}
	if (options->quiet && options->verbose) {
		say("-q and -v: give only one of them");
		return false;
	}
	if (options->min_hold_ms && options->max_hold_ms &&
	    options->min_hold_ms > options->max_hold_ms) {
		say("--min-hold: must not exceed --max-hold");
		return false;
	}
	if (options->fixed &&
	    options->min_hold_ms > (options->lease_ms ? options->lease_ms : LK_LEASE_DEFAULT_MS)) {
		say("--min-hold: must not exceed the --fixed lease");
		return false;
	}
	return !is_for(parser, FOR_PERMITS) || fits_permits(options);
}

static bool topic_takes(const struct help_topic *topic, const char *option, size_t len)
{
	unsigned wanted = 0;

	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(topic->word, verbs[i].word) &&
		    (!topic->second || !strcmp(topic->second, verbs[i].second)))
			wanted |= FOR(i);
	for (size_t i = 0; i < SPECS; i++)
		if (len == 2 ? option[1] == specs[i].letter
		             : len == strlen(specs[i].name) + 2 &&
		                       !memcmp(option + 2, specs[i].name, len - 2))
			return specs[i].verbs & wanted;
	return false;
}

/* "latchkey --help", or the help of the given verb. */
static void print_help(const struct parser *parser)
{
	const struct verb_spec *verb = &verbs[parser->options->verb];
	const struct help_topic topic = {verb->word, parser->words == 2 ? verb->second : NULL,
	                                 topic_takes};

	help_print(parser->words ? &topic : NULL);
}

static bool asks(const struct parser *parser)
{
	return parser->help || parser->version;
}

bool options_parse(struct options *options, int argc, char **argv, int *status)
{
	struct parser parser;

	memset(options, 0, sizeof(*options));
	options->wait_ms = LK_FOREVER;
	options->busy_status = STATUS_BUSY;
	options->units = 1;
	options->count = 1;
	memset(&parser, 0, sizeof(parser));
	parser.options = options;
	parser.argv = argv;
	parser.at = argc > 0;
	*status = STATUS_USAGE;
	if (parse_options(&parser) &&
	    (asks(&parser) || (parse_verb(&parser) && (asks(&parser) || parse_options(&parser)) &&
	                       (asks(&parser) || parse_rest(&parser))))) {
		if (asks(&parser)) {
			if (parser.version)
				printf("latchkey %s\n", lk_version());
			else
				print_help(&parser);
			*status = 0;
			return false;
		}
		if (fits_verb(&parser))
			return true;
	}
	say("try latchkey --help");
	return false;
}
