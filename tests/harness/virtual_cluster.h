/* SPDX-License-Identifier: MIT
 * One client of a Cluster in virtual time: its state machine, a link to each of four servers, and a
 * test that is the servers.  It takes each request as a value and answers it by hand, so that any
 * answer can be late, lost, or that of another server.  There is one such world. */
#ifndef VIRTUAL_CLUSTER_H
#define VIRTUAL_CLUSTER_H

#include "core/latch.h"
#include "core/query.h"

#define VC_MS INT64_C(1000000)
#define VC_LINKS 4
#define VC_OPS 64
#define VC_LEASE_MS 3000
#define VC_GRACE_MS 10000

struct vc {
	struct lk__core core;
	struct lk__session links[VC_LINKS];
	uint8_t owner[LK__SLOTS]; /* for vc_topology() */
	int64_t now_ns;
	uint64_t fence; /* the last one that was granted */
	struct lk__op *ops[VC_OPS];
	int op_count;
};
extern struct vc vc;

/* Links 0 to 2 are up, and link 3 was never dialled; no slot has a known owner. */
void vc_start(void);
/* Assert that nothing is left and no link has users. */
void vc_end(void);

/* ---- Servers ------------------------------------------------------------------------------ */

/* Before its first handle: the name's slot belongs to that server. */
void vc_own(const char *name, int link);
/* Another name in that slot; valid until the next call. */
const char *vc_twin(const char *name);
/* A topology arrived: the same, and names move. */
void vc_give(const char *name, int link);
void vc_link_up(int link);
void vc_link_down(int link);
/* The marker of its memory, read now.  Memory "m" began long ago; any other one at this moment. */
void vc_memory(int link, const char *id);
int64_t vc_store_us(void);

/* ---- Calls; ops are freed with the world -------------------------------------------------- */

struct lk__wait_queue *vc_open(lk_kind kind, const char *name, bool fixed);
struct lk__op *vc_op(struct lk__wait_queue *queue, uint64_t owner);
struct lk__op *vc_acquire(struct lk__wait_queue *queue, uint64_t owner);
struct lk__op *vc_release(struct lk__wait_queue *queue, uint64_t owner);
struct lk__op *vc_acquire_permits(struct lk__wait_queue *queue, uint32_t permits);
struct lk__op *vc_release_permits(struct lk__wait_queue *queue, uint64_t fence, uint32_t permits);
struct lk__op *vc_await(struct lk__wait_queue *queue);
struct lk__op *vc_step(struct lk__wait_queue *queue);
void vc_give_up(struct lk__op *op);
lk_state vc_state(const struct lk__wait_queue *queue, uint64_t owner);
/* The call has ended so. */
void vc_done(const struct lk__op *op, lk_err err);
void vc_waits(const struct lk__op *op);

/* ---- Requests ----------------------------------------------------------------------------- */

/* The next request over that link; a question for the marker before it finds the same memory, one
 * for the topology fails, unless that kind is wanted. */
struct lk__pending *vc_take(int link, enum lk__request_kind kind);
/* There is no other request over that link. */
void vc_idle(int link);
struct lk__request vc_request(const struct lk__pending *request);

void vc_answer(struct lk__pending *request, struct lk__answer answer);
uint64_t vc_granted(struct lk__pending *request);
void vc_queued(struct lk__pending *request);
void vc_busy(struct lk__pending *request);
void vc_kept(struct lk__pending *request, int64_t waiting);
void vc_gone(struct lk__pending *request);
void vc_left(struct lk__pending *request, bool mine, bool more);
void vc_shown(struct lk__pending *request, lk_latch_state state, uint64_t generation);
void vc_divided(struct lk__pending *request);
void vc_moved(struct lk__pending *request, int link);
void vc_asked(struct lk__pending *request, int link);

/* ---- Channels and messages ---------------------------------------------------------------- */

/* The next command over that link, which must subscribe to that topic; its confirmation. */
void vc_subscribed(int link, const char *topic);
void vc_refused(int link, const char *topic);
/* The server ends the subscription. */
void vc_dropped(int link, const char *topic);
/* No command waits to be sent. */
bool vc_no_command(int link);
/* The ticket of that queue is granted its hold, by a message over that link. */
void vc_grant_message(int link, const struct lk__ticket *ticket);

/* ---- Time --------------------------------------------------------------------------------- */

/* Let time pass; timers run when they are due.  A timer that stays due fails the test. */
void vc_pass(int64_t ms);

#endif
