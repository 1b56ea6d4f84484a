/* SPDX-License-Identifier: MIT
 * What the end of a call means for its request, by gRPC's status and etcd's texts. */
#ifndef LK__ETCD_STATUS_H
#define LK__ETCD_STATUS_H

#include "h2.h"

enum lk__etcd_meaning {
	LK__ETCD_DONE,      /* it was run, and answered */
	LK__ETCD_AGAIN,     /* it was not run: repeat it */
	LK__ETCD_AMBIGUOUS, /* it may have been run, or may still be: repeat what may run twice */
	LK__ETCD_LOGIN,     /* it was not run: authenticate anew, then repeat it */
	/* It was not run, and repeating it does not help: */
	LK__ETCD_DENIED,    /* wrong credentials, or a right is missing */
	LK__ETCD_FULL,      /* the quota of the store is used up: only deletions are run */
	LK__ETCD_NO_LEASE,  /* the lease has expired, or was revoked */
	LK__ETCD_COMPACTED, /* the revision is not kept any more */
	LK__ETCD_FUTURE,    /* the revision is not there yet */
	LK__ETCD_REFUSED,   /* for another reason, which the text says */
};

struct lk__etcd_verdict {
	enum lk__etcd_meaning meaning;
	bool elsewhere; /* repeat it on another member: this one cannot help for now */
};

/* The meaning of LK__H2_ANSWER or LK__H2_ENDED.  What is not known is ambiguous. */
struct lk__etcd_verdict lk__etcd_judge(const struct lk__h2_event *event);

/* Part of etcd's text if it knows users, and the call has none. */
#define LK__ETCD_NO_USER "user name is empty"

/* What to do about a refusal with that text, " (...)", or "". */
const char *lk__etcd_cure(const char *text);

/* May a server of that version end a renewed lease early?  Before 3.5.13, and 3.4.31 of 3.4, a
 * leader that was replaced and does not know it revokes leases. */
bool lk__etcd_is_old(const char *version);

#endif
