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

/* Topic "rights".  Ends in subscriber mode: so it is the last one. */
void lk__doctor_rights(struct lk__doctor *doctor);
/* The rules that are tried, one a command, NULL behind the last. */
const char *lk__doctor_rule(size_t index, bool *needed);

#endif
