/* SPDX-License-Identifier: MIT
 * A lock over a quorum: N independent servers, of which a majority Q = N/2 + 1 decides.
 *
 *   leg      a ticket's part on one server: a ticket of its own there, with the states of any other
 *   epoch    of a leg: counts its yields, in which it is released and asked for again
 *   decided  Q legs are valid now; of all tickets of a name, one at most is decided at any time
 *   hold     decided, and its fence is committed: it has reached the counters of Q servers whose
 *            legs were valid at its begin
 *   priority the place in the queues, the same on all servers: the time of the servers' clocks when
 *            the ticket asked first
 *
 * docs/quorum.md says why this is safe. */
#ifndef LK__QUORUM_H
#define LK__QUORUM_H

#include "core.h"

#define LK__SERVERS_MAX 7    /* of a quorum */
#define LK__LONGEST_MS 60000 /* the longest lease, unless the quorum was made with another */

/* The servers of a quorum: members.c. */
struct lk__quorum {
	unsigned servers, majority;
	char set[LK__SET_SIZE]; /* the id of the set that a majority belongs to, "" = unknown */
	char own[LK__SET_SIZE]; /* the id that this client gives a set that it makes */
	int64_t longest_ms;     /* of that set, 0 = unknown */
	int64_t begins_ms; /* only make a new set, of servers that hold nothing, with that longest
	                    * lease; 0 = as usual */
	struct lk__ticket *touched; /* tickets to decide when the event is over */
};

/* The legs of a ticket of a quorum. */
struct lk__legs {
	struct lk__ticket *leg[LK__SERVERS_MAX]; /* by the index of the link; NULL: it has ended */
	struct lk__ticket *next_touched;
	uint64_t priority;    /* 0 = not chosen yet */
	uint64_t proposal;    /* of its latest requests: see lk__quorum_proposal() */
	uint64_t commit;      /* undecided: the fence that renewals commit, 0 = none */
	int64_t refreshed_ns; /* a fixed lease: the legs are renewed since then, 0 = not yet */
	uint8_t servers, majority;
	/* A bit for each server: */
	uint8_t held;       /* the leg was valid when the ticket began to leave */
	uint8_t missing;    /* of these: the server did not have it, */
	uint8_t stood;      /* or had it still */
	uint8_t left;       /* the leave is confirmed, or not necessary */
	uint8_t unleft;     /* the leave was refused for good */
	uint8_t extended;   /* the extension of the first extender: confirmed, */
	uint8_t unextended; /* refused, */
	uint8_t extending;  /* or sent without a response */
	uint8_t forgotten;  /* the server has lost the granted leg with its memory */
	bool is_touched;
	bool is_leaving; /* the legs are leaving one by one: the ticket stays */
	bool was_taken;  /* a server did not have a leg of the hold */
	bool was_queued; /* a leg had to wait */
};

/* ---- For the client ----------------------------------------------------------------------- */

/* Before the first link is added: a link each to that many servers follows.  False when out of
 * memory. */
bool lk__core_use_quorum(struct lk__core *core, unsigned servers);
/* The spare memory for a call that acquires: op->spare_legs.  NULL when out of memory. */
struct lk__legs *lk__legs_new(unsigned servers);
void lk__legs_free(struct lk__legs *legs);
/* How many servers are connected and belong to the set. */
unsigned lk__quorum_votes(const struct lk__core *core);
/* Is the set known, and does a majority vote? */
bool lk__quorum_is_ready(const struct lk__core *core);
/* Does that server belong to the set? */
bool lk__quorum_accepts(const struct lk__core *core, const struct lk__session *session);
/* May that server have forgotten what it granted? */
bool lk__quorum_is_young(const struct lk__core *core, const struct lk__session *session,
                         int64_t now_ns);
/* Do so many connected servers belong to quorums of another number of servers that no majority is
 * left?  Waiting does not help: the URL is wrong.  *why says so. */
bool lk__quorum_misfits(const struct lk__core *core, struct lk__why *why);
/* Servers whose responses decide nothing for the op unless another server responds, too, or a
 * message comes: a bit for each.  They need not be read before. */
uint8_t lk__quorum_spared(const struct lk__op *op, int64_t now_ns);
/* Why no majority votes; the error for a call whose requests could not be sent.  LK_OK if one
 * does. */
lk_err lk__quorum_explain(const struct lk__core *core, struct lk__why *why);

/* ---- Between the core's files ------------------------------------------------------------- */

/* members.c: a marker was read.  Which servers belong together? */
void lk__members_judge(struct lk__core *core, int64_t now_ns);
/* When to ask again for a mark that was not stored, LK__NEVER. */
int64_t lk__members_due(const struct lk__session *session);
/* quorum.c: tickets */
void lk__quorum_start(struct lk__core *core, int64_t now_ns, struct lk__wait_queue *queue);
void lk__quorum_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__quorum_leave(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* The ticket is freed. */
void lk__quorum_forget(struct lk__core *core, struct lk__ticket *ticket);
/* Decide the ticket of that leg when the event is over; decide those that are due. */
void lk__quorum_touch(struct lk__core *core, struct lk__ticket *leg);
void lk__quorum_settle(struct lk__core *core, int64_t now_ns);
/* Before an answer or a message changes a leg: a hold whose time is over is lost, and cannot be
 * revived by it. */
void lk__quorum_expire(struct lk__core *core, int64_t now_ns, const struct lk__ticket *leg);
/* May a thread's call still be waiting for the leg's leave? */
bool lk__quorum_is_awaited(const struct lk__ticket *leg);
/* A leg that was refused last, if no majority is left without such legs; else NULL. */
const struct lk__ticket *lk__quorum_refused(const struct lk__ticket *ticket);
bool lk__quorum_is_unknown(const struct lk__ticket *ticket);
bool lk__quorum_is_sure(const struct lk__ticket *ticket);
/* The servers' time, us: the median of their clocks. */
uint64_t lk__quorum_time_us(const struct lk__core *core, int64_t now_ns);
/* The least fence of what a request may grant: the same for all legs.  Else their fences would
 * differ, and the hold would need a second round trip. */
uint64_t lk__quorum_proposal(const struct lk__core *core, const struct lk__pending *request);
/* The first call that waits for an extension of that leg's ticket. */
struct lk__op *lk__quorum_extender(const struct lk__ticket *leg);
/* An extension was abandoned by its caller, or completed: forget what servers said of it. */
void lk__quorum_next_extender(struct lk__ticket *ticket);
/* majority.c: how many bits are set; is the leg granted, and for how much longer? */
unsigned lk__legs_bits(uint8_t set);
bool lk__legs_exclude(const struct lk__legs *legs, uint8_t set);
bool lk__leg_is_valid(const struct lk__ticket *leg, int64_t now_ns);
unsigned lk__legs_valid(const struct lk__legs *legs, int64_t now_ns);
/* Until when a majority of the legs is valid, 0 = none is. */
int64_t lk__legs_valid_until_ns(const struct lk__legs *legs);
bool lk__leg_is_fresh(const struct lk__ticket *leg, int64_t now_ns);
/* The least fence with which a hold may begin, 0 = none; what to commit before. */
uint64_t lk__legs_committed_fence(const struct lk__legs *legs, int64_t now_ns);
uint64_t lk__legs_fence_to_commit(const struct lk__legs *legs, int64_t now_ns);
/* Was the released hold lost before its release? */
bool lk__legs_were_lost(const struct lk__ticket *ticket);
/* ... and may servers that have not answered yet show it? */
bool lk__legs_may_be_lost(const struct lk__ticket *ticket);
/* quorum_leg.c: what one server answered, or does not answer any more */
bool lk__leg_may_ask(const struct lk__core *core, const struct lk__ticket *leg);
/* Before an answer to the leg changes it. */
void lk__leg_note(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                  const struct lk__answer *answer);
/* The leg's link was lost, with a request that was sent or queued. */
void lk__leg_dropped(struct lk__core *core, struct lk__ticket *leg);
void lk__leg_granted(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                     const struct lk__pending *request, const struct lk__answer *answer);
void lk__leg_take(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg, uint64_t fence,
                  int64_t store_us);
void lk__leg_kept(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                  const struct lk__pending *request, const struct lk__answer *answer);
void lk__leg_gone(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg);
void lk__leg_busy(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg);
void lk__leg_young(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                   const struct lk__answer *answer);
void lk__leg_failed(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                    const struct lk__pending *request, const struct lk__answer *answer);
void lk__leg_refused(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg, lk_err err,
                     const char *text);
void lk__leg_yielded(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                     const struct lk__answer *answer);
void lk__leg_broken(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg);
void lk__leg_forgotten(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg);
void lk__leg_left(struct lk__core *core, struct lk__ticket *leg, const struct lk__answer *answer);
void lk__leg_ended(struct lk__core *core, struct lk__ticket *leg);
/* A message for another epoch of the leg.  True when the message concerns the leg no more. */
bool lk__leg_is_old(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg,
                    const struct lk__message *message);
/* Send what a granted leg has to send. */
void lk__leg_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *leg);

#endif
