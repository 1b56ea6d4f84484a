/* SPDX-License-Identifier: MIT
 * One examination of one server, shared by the files that examine. */
#ifndef LK__DOCTOR_H
#define LK__DOCTOR_H

#include "conn.h"

struct lk__doctor {
	const struct lk__target *target;
	struct lk__conn *conn;
	lk_finding_fn *fn; /* may be NULL */
	void *arg;
	lk_fitness worst;
	char user[128];      /* escaped */
	struct lk__why lost; /* the connection's end; LK_OK while it is usable */
	bool lost_told;
	struct lk__resp *info; /* to INFO: perhaps an error, NULL = none came */
};

/* Tell a finding.  What goes into text and cure must be escaped already. */
void lk__doctor_tell(struct lk__doctor *doctor, lk_fitness fitness, const char *topic,
                     const char *cure, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* A command and its reply, an error reply as well; NULL when the connection is lost. */
struct lk__resp *lk__doctor_call(struct lk__doctor *doctor, int argc, const char *const *argv);
/* Can the topic be told from resp?  If not, tells that and why; rule is the right it needs. */
bool lk__doctor_usable(struct lk__doctor *doctor, const char *topic, const char *rule,
                       const struct lk__resp *resp);

/* ---- doctor_clock.c ----------------------------------------------------------------------- */

/* Topic "clock".  Takes a second at most, or three round trips if these take longer. */
void lk__doctor_clock(struct lk__doctor *doctor);

/* The server read its clock between these two moments of ours, CLOCK_BOOTTIME. */
struct lk__clock_reading {
	int64_t sent_ns, received_ns;
	int64_t server_us;
};

/* How fast the server's clock runs, in relation to ours: at least low, at most high; 1 = as fast.
 * If low is more than high, no constant speed explains the readings. */
struct lk__clock_rate {
	double low, high;
};

#define LK__CLOCK_RATE_MAX 1e9    /* nothing is known: from the negative of it */
#define LK__CLOCK_FASTEST 1.01    /* what the margin of a lease bears */
#define LK__CLOCK_ERROR_MAX 0.003 /* above it the speed is unknown */

enum lk__clock_verdict {
	LK__CLOCK_FITS,
	LK__CLOCK_FAST,     /* for sure faster than the margin bears */
	LK__CLOCK_DOUBTFUL, /* perhaps */
	LK__CLOCK_UNKNOWN,  /* the error is too large */
	LK__CLOCK_UNEVEN,   /* one of the clocks was set meanwhile */
};

/* From readings in their order, each sent after the one before was received. */
struct lk__clock_rate lk__clock_rate(const struct lk__clock_reading *readings, size_t count);
/* Half the distance between the bounds. */
double lk__clock_error(const struct lk__clock_rate *rate);
enum lk__clock_verdict lk__clock_judge(const struct lk__clock_rate *rate);

/* ---- doctor_rights.c ---------------------------------------------------------------------- */

/* Topic "rights".  Ends in subscriber mode: so it is the last one. */
void lk__doctor_rights(struct lk__doctor *doctor);
/* The rules that are tried, one a command, NULL behind the last. */
const char *lk__doctor_rule(size_t index, bool *needed);

#endif
