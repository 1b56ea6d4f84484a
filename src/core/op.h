/* SPDX-License-Identifier: MIT
 * A call in progress: what it asks for, how long it may take, what came of it. */
#ifndef LK__OP_H
#define LK__OP_H

#include "../base/error.h"

struct lk__hold;
struct lk__place;
struct lk__session;
struct lk__step;
struct lk__ticket;

enum lk__op_where {
	LK__NOWHERE,
	LK__IN_PLACE,
	LK__FOR_LEAVE,
	LK__FOR_EXTEND,
	LK__IN_LATCH, /* until it is open */
	LK__FOR_STEP,
	LK__FOR_QUESTION,
};

struct lk__op {
	struct lk__op *next;
	struct lk__session *session; /* by which its requests go; the core does not look at it */
	struct lk__place *place;
	void *handle;
	uint64_t owner;
	int64_t max_hold_ms; /* 0 = no limit */
	int64_t lease_ms;    /* extend */
	int64_t began_ns;    /* acquire */
	uint32_t permits;    /* to acquire, to give back */
	bool only_try;
	bool acquires;
	bool resumes;   /* its call goes on when it is done */
	bool behind;    /* somebody of this process was before it */
	bool forget;    /* the permits are nobody's once they are granted */
	bool tell_loss; /* the handle has a loss callback */
	/* Brought along; taken when used, else the caller frees them. */
	struct lk__ticket *spare_ticket;
	struct lk__hold *spare_hold;
	struct lk__place *spare_place; /* permits */
	struct lk__step *spare_step;   /* of a latch */
	/* Of a latch. */
	uint64_t joined, stamp;   /* see latch.c */
	uint64_t opened, removed; /* the last ones that it heard of */
	bool absent_is_open, late;
	/* Out. */
	uint64_t fence;            /* of the permits */
	struct lk__ticket *ticket; /* FOR_LEAVE, FOR_EXTEND */
	bool sent;                 /* FOR_EXTEND: its request went out */
	int64_t remaining;         /* FOR_STEP, and counted */
	bool counted;
	uint8_t where;
	bool done;
	struct lk__why why; /* the result, with its sentence */
};

#endif
