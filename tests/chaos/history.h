/* SPDX-License-Identifier: MIT
 * The records of a process under chaos: one before each call and one after it, each with one
 * write(2), so that a killed process leaves a call that began and never ended.  One file a process,
 * named "<pid>.history".  Times are CLOCK_MONOTONIC, ns: the same for all processes of a
 * machine. */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum history_op {
	HISTORY_START,   /* the process starts; text of its client id follows in HISTORY_ID */
	HISTORY_ID,      /* text[]: the client's id, NUL-padded */
	HISTORY_OPEN,    /* lk_client_open */
	HISTORY_CLOSE,   /* lk_client_close */
	HISTORY_ACQUIRE, /* a lock or permits; permits: how many it wants */
	HISTORY_ENTER,   /* into the canary, after a grant; err 1 = another thread was inside */
	HISTORY_LEAVE,   /* out of the canary, before the release */
	HISTORY_RELEASE, /* amount: permits to release, 0 = all */
	HISTORY_EXTEND,  /* amount: lease ms */
	HISTORY_LOST,    /* the loss callback ran, or a call returned LK_ELOST */
	HISTORY_SET,     /* a latch was set or reset */
	HISTORY_DOWN,    /* a step of a latch */
	HISTORY_AWAIT,   /* a wait for a latch */
	HISTORY_END,     /* the process exits by itself */
	HISTORY_CANCEL,  /* cancels a wait; fence: the number of its call */
	HISTORY_SEEN,    /* a check of a hold: valid_until, 0 = it has ended */
};

enum history_phase {
	HISTORY_BEGIN = 1,
	HISTORY_DONE = 2,
	HISTORY_EVENT = 3, /* an event, without an end */
};

struct history_record {
	int64_t at_ns;
	uint64_t call; /* unique in its process: joins the beginning and the end of a call */
	uint32_t pid;
	uint32_t thread;
	uint8_t op;    /* enum history_op */
	uint8_t phase; /* enum history_phase */
	uint8_t kind;  /* lk_kind */
	uint8_t flags; /* HISTORY_FIXED, HISTORY_RATE ... */
	uint16_t name; /* an index of the run's table of names */
	uint16_t spare;
	int32_t err; /* lk_err of an ended call */
	int32_t permits;
	union {
		struct {
			uint64_t fence;
			int64_t valid_until_ns; /* of the hold, CLOCK_MONOTONIC; 0 = none */
			int64_t amount;
		} of;
		char text[24];
	} u;
};

_Static_assert(sizeof(struct history_record) == 64, "one record");

#define HISTORY_FIXED 1 /* the lease is not renewed */
#define HISTORY_RATE 2  /* these permits are never released */
#define HISTORY_NAMED 4 /* a step with a name of its own */

/* The judge joins records by these members:
 *
 *   calls        the end of a call repeats call, op, kind, name and flags of its beginning
 *   a hold       is known by its fence, in u.of.fence of the end of an ACQUIRE that
 *                succeeded, in ENTER, LEAVE, EXTEND and LOST and in both records of RELEASE;
 *                0 only if it cannot be known (the grants of a rate)
 *   permits      in all records of a hold its permits; in both of RELEASE u.of.amount is
 *                how many it releases, 0 = all
 *   valid_until  remaining_ms, added to a clock that was read before it: never later
 *                than the truth.  In the end of ACQUIRE and of EXTEND, in ENTER and LEAVE and in
 *                the beginning of RELEASE (a renewal may have moved it); 0 = not known.  In SEEN
 *                0 = the hold has ended
 *   ACQUIRE      beginning: u.of.amount = the lease in ms, u.of.valid_until_ns = when its wait
 *                ends, 0 = never, the record's own time or before it = it is a try
 *   SET          u.of.amount = the count; flags HISTORY_RESET for lk_latch_reset
 *   DOWN         beginning: permits = n, and for a step with a name HISTORY_NAMED and in
 *                u.of.valid_until_ns a number for the name; end: u.of.amount = the
 *                remaining count, flags HISTORY_AGAIN if it was counted before
 *   AWAIT        beginning: u.of.valid_until_ns as for ACQUIRE
 *   generations  u.of.fence in the ends of SET, DOWN and AWAIT, 0 = not known
 *   re-entries   are not written, or with HISTORY_REENTRY, and then the release of each, too
 *   the end      HISTORY_CLOSE (both records), then HISTORY_END */
#define HISTORY_RESET 8
#define HISTORY_AGAIN 16
#define HISTORY_REENTRY 32

/* err of ENTER: 1 = another thread was inside with a valid hold, 2 = the fenced store refused a
 * valid hold. err of LEAVE: 1 = another thread entered while this hold was valid, 2 = another one
 * wrote, 3 = the fenced store refused it. u.of.amount is then the pid of the other, if known.  The
 * other files of a round's folder: see judge.h. */

#define HISTORY_EXIT 70 /* the exit status of a process whose history cannot be written */

/* ---- writing
 * ----------------------------------------------------------------------------------- */

struct history;

/* The history of this process in folder; NULL with errno set.  After a fork the child opens its
 * own.  Call it in one thread; the functions below are for any thread. */
struct history *history_open(const char *folder);
void history_close(struct history *history);

/* Write a record; time, process, thread and phase are filled in. history_begin() assigns the number
 * of the call, which history_done() expects in its record.  The time of a beginning is before the
 * call's, that of an end or an event after it. */
uint64_t history_begin(struct history *history, const struct history_record *record);
void history_done(struct history *history, const struct history_record *record);
void history_event(struct history *history, const struct history_record *record);

int64_t history_now_ns(void);

/* ---- reading -----------------------------------------------------------------------------------
 */

struct history_list {
	struct history_record
		*records; /* by time; those of the same time in the order of writing */
	size_t count;
	size_t files;
	size_t torn; /* files whose last record is incomplete */
};

/* Read one file, or all "*.history" of a folder.  False with errno set; then the list is empty. */
bool history_read(struct history_list *list, const char *path);
bool history_sort(struct history_list *list);
void history_free(struct history_list *list);

#endif
