/* SPDX-License-Identifier: MIT
 * The command line. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum verb {
	VERB_LOCK,
	VERB_SEM,
	VERB_RATE,
	VERB_LATCH_SET,
	VERB_LATCH_RESET,
	VERB_LATCH_DOWN,
	VERB_LATCH_WAIT,
	VERB_LATCH_SHOW,
	VERB_LATCH_RM,
	VERB_SHOW,
	VERB_BREAK,
	VERB_LOCAL,
	VERB_GRACE,
	VERB_QUORUM,
	VERB_DOCTOR,
};

enum on_lost { ON_LOST_TERM, ON_LOST_KILL, ON_LOST_WARN };

enum local_action { LOCAL_START, LOCAL_STOP, LOCAL_STATUS };

struct options {
	enum verb verb;
	const char *url; /* --url, NULL = not given */
	bool quiet;
	bool verbose;
	bool json;
	bool fixed;
	bool resize;
	bool absent_is_open;
	bool ends_grace; /* grace end */
	bool yes;
	int64_t wait_ms;  /* -1 = no limit */
	int busy_status;  /* -E */
	int64_t lease_ms; /* --lease, --per, --longest-lease; this and the next five: 0 = not
	                   * given */
	int64_t slack_ms;
	int64_t min_hold_ms;
	int64_t max_hold_ms;
	int64_t ttl_ms; /* of a semaphore, a rate, a latch that counts */
	int64_t open_ttl_ms;
	int64_t permits; /* --permits, --limit */
	int64_t units;   /* of these, for this command */
	int64_t count;   /* of a latch */
	const char *step;
	enum on_lost on_lost;
	enum local_action local;
	const char *label;
	const char *report;
	const char *if_holder;
	const char *name; /* NULL = none */
	char **command;   /* NULL-terminated; NULL = none */
	char *shell[4];   /* the command for -c */
};

/* False when the program must end with *status at once: after help, or a usage error, which is
 * reported. */
bool options_parse(struct options *options, int argc, char **argv, int *status);

#endif
