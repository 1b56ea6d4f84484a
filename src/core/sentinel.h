/* SPDX-License-Identifier: MIT
 * Which server is the master, by the reports of several sentinels: what to dial, and when a link
 * must be cut.  As in core.h nothing here blocks or reads a clock: reports and time are
 * arguments.  docs/sentinel.md has the rules and the reasons. */
#ifndef LK__SENTINEL_H
#define LK__SENTINEL_H

#include "../base/error.h"
#include "request.h"

#define LK__WATCHED_MAX 16

enum lk__sentinel_state {
	LK__SENTINEL_UNKNOWN,     /* no report yet */
	LK__SENTINEL_NAMES,       /* it names an address */
	LK__SENTINEL_UNAWARE,     /* it knows no such service */
	LK__SENTINEL_REFUSES,     /* why: credentials, a right, TLS, or it is no sentinel */
	LK__SENTINEL_UNREACHABLE, /* why */
};

struct lk__sentinel {
	char text[200];            /* its own address, escaped */
	uint8_t state;             /* enum lk__sentinel_state: its last report */
	uint64_t round;            /* of that report */
	struct lk__place named;    /* the last address that it named */
	int64_t since_ns;          /* when it named that first */
	struct lk__place outvoted; /* what it named when another address was chosen */
	struct lk__why why;
};

struct lk__watch {
	char service[200]; /* escaped */
	struct lk__sentinel sentinels[LK__WATCHED_MAX];
	int count;
	uint64_t round;         /* of the attempt to dial; each asks all sentinels anew */
	int64_t answered_ns;    /* the first answer of this round, LK__NEVER */
	struct lk__place place; /* that was chosen: it is being dialled, or the link leads there */
	bool is_cut;            /* a sentinel names another one by now: by */
	int by;
	bool found;       /* some sentinel knew the service */
	int64_t alone_ns; /* since when no sentinel names an address, LK__NEVER */
};

enum lk__watch_advice {
	LK__WATCH_WAIT, /* for a report, or until lk__watch_due() */
	LK__WATCH_DIAL, /* watch->place */
	LK__WATCH_FAIL, /* there is nothing to dial */
};

/* The caller then sets the text of each sentinel. */
void lk__watch_init(struct lk__watch *watch, const char *service, int count, int64_t now_ns);

/* An attempt to dial begins: the caller asks every sentinel, and reports with this round. */
void lk__watch_begin(struct lk__watch *watch);
/* What to do in this attempt.  LK__WATCH_DIAL chooses the place. */
enum lk__watch_advice lk__watch_advise(struct lk__watch *watch, int64_t now_ns);
/* After a pause of the client: the caller asks every sentinel anew.  Then, with a link:
 * LK__WATCH_DIAL if they still name its place, LK__WATCH_FAIL if none of them can be asked. */
void lk__watch_doubt(struct lk__watch *watch);
enum lk__watch_advice lk__watch_recheck(const struct lk__watch *watch, int64_t now_ns);
/* When the advice changes without a report, LK__NEVER. */
int64_t lk__watch_due(const struct lk__watch *watch);
/* Why there is nothing to dial; why the place is not named again.  Returns the error. */
lk_err lk__watch_why(const struct lk__watch *watch, struct lk__why *why);
lk_err lk__watch_doubt_why(const struct lk__watch *watch, struct lk__why *why);
/* There is no link, and no place any more. */
void lk__watch_leave(struct lk__watch *watch);

/* Sentinel i names that place, in answer to a question of that round; a message counts as an answer
 * of the present round. */
void lk__watch_named(struct lk__watch *watch, int i, uint64_t round, int64_t now_ns,
                     const struct lk__place *place);
/* It knows no such service. */
void lk__watch_unaware(struct lk__watch *watch, int i, uint64_t round, int64_t now_ns);
/* It was not reached, was lost, or refuses: by the error. */
void lk__watch_failed(struct lk__watch *watch, int i, uint64_t round, int64_t now_ns,
                      const struct lk__why *why);

/* Why the link was cut. */
void lk__watch_cut_why(const struct lk__watch *watch, struct lk__why *why);
/* A sentinel that names the chosen place, NULL = none. */
const struct lk__sentinel *lk__watch_witness(const struct lk__watch *watch);

#endif
