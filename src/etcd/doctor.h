/* SPDX-License-Identifier: MIT
 * One examination of the members of an etcd cluster, shared by the files that examine. */
#ifndef LK__ETCD_DOCTOR_H
#define LK__ETCD_DOCTOR_H

#include "etcd_store.h"
#include "keys.h"
#include "messages.h"
#include "status.h"

/* A member that the URL names. */
struct lk__etcd_examined {
	char text[LK__PLACE_SIZE];  /* escaped */
	struct lk__etcd_peer *peer; /* NULL: why */
	struct lk__why why;
	bool is_known; /* its status: all that follows */
	char version[32];
	uint64_t cluster_id, id, leader;
	int64_t revision, size, quota; /* bytes; quota 0 = it does not report it */
	bool is_learner, is_full, is_corrupt;
};

struct lk__etcd_exam {
	struct lk__target *target;
	struct lk__etcd etcd; /* for connections only */
	lk_finding_fn *fn;    /* may be NULL */
	void *arg;
	lk_fitness worst;
	int count;
	struct lk__etcd_examined members[LK__SEEDS_MAX];
	struct lk__etcd_peer *peer; /* of a member with a leader, for what all have in common */
	bool is_lost;               /* it did not answer a call: it is asked nothing more */
	int64_t revision;           /* of the store */
};

/* Report a finding.  text and cure must already be escaped. */
void lk__etcd_report(struct lk__etcd_exam *exam, lk_fitness fitness, const char *topic,
                     const char *cure, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Make a call over exam->peer.  False when the connection is lost: verdict is ambiguous. */
bool lk__etcd_examine(struct lk__etcd_exam *exam, const char *path,
                      const struct lk__pb_writer *message, struct lk__h2_event *event,
                      struct lk__etcd_verdict *verdict);

/* The cure if the members accept no user, or demand one. */
const char *lk__etcd_doctor_user(const struct lk__etcd_exam *exam);
/* Write a key that the user may read; nothing has it. */
struct lk__bytes lk__etcd_doctor_key(const struct lk__etcd_exam *exam, char key[LK__ETCD_OWN_MAX]);

/* doctor_store.c: topics "space", "rights" and "tickets". */
void lk__etcd_doctor_space(struct lk__etcd_exam *exam);
void lk__etcd_doctor_rights(struct lk__etcd_exam *exam);
void lk__etcd_doctor_tickets(struct lk__etcd_exam *exam);

/* More revisions than these should have been compacted.  A test sets it. */
extern int64_t lk__etcd_revisions_max;

#endif
