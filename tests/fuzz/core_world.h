/* SPDX-License-Identifier: MIT
 * One state machine with a lock, a lock of fixed leases, a semaphore and a latch, and callers that
 * do what the public calls do.  The store's replies come from the input: anything that its codec
 * lets through, in any order. */
#ifndef CORE_WORLD_H
#define CORE_WORLD_H

#include "core/core.h"
#include "core/latch.h"
#include "fuzz.h"
#include "promises/promises.h"

#define CORE_MS INT64_C(1000000)
#define CORE_PLACES 4 /* handles */
#define CORE_CALLS 16 /* waiters at the same time */
#define CORE_SENT 64  /* pending requests */
#define CORE_TOPIC "lk:l:0:{c}"

enum core_place { CORE_LOCK, CORE_FIXED, CORE_PERMITS, CORE_LATCH };

struct core_call {
	struct lk__op waiter; /* first */
	bool used;
};

struct core_world {
	struct lk__core core;
	struct lk__session session; /* its only link */
	struct lk__wait_queue *queues[CORE_PLACES];
	struct core_call calls[CORE_CALLS];
	struct lk__pending *sent[CORE_SENT]; /* in order */
	int sent_count;
	struct promise_leaves leaves;
	unsigned memory; /* of the server, which is another one after each loss */
	int64_t now_ns;
};

void core_world_init(struct core_world *world);
/* Close the client, reply to its last requests, and check that nothing is left. */
void core_world_close(struct core_world *world);

/* ---- What callers do.  False when there is no room for another call. ------------------------- */

bool core_acquire(struct core_world *world, enum core_place queue, uint64_t owner, bool only_try);
/* final: they are never released. */
bool core_acquire_permits(struct core_world *world, uint32_t permits, bool only_try, bool final);
bool core_await(struct core_world *world, bool only_try, bool absent_is_open);
bool core_step(struct core_world *world, uint32_t n);
void core_call_event(struct core_world *world, struct fuzz_input *input);

/* ---- What the store and the network do ------------------------------------------------------ */

void core_link(struct core_world *world, bool up);
/* The server loses its memory; clients do not know it yet. */
void core_forget(struct core_world *world);
/* Send all requests of the queue. */
void core_send(struct core_world *world);
/* The oldest pending one, NULL if there is none. */
struct lk__pending *core_take_sent(struct core_world *world);
/* Deliver its reply. */
void core_answer(struct core_world *world, const struct lk__answer *answer);
/* A reply that the codec could produce. */
void core_any_answer(struct fuzz_input *input, struct lk__answer *answer);
/* A good reply to that request. */
void core_good_answer(const struct core_world *world, const struct lk__pending *request,
                      struct lk__answer *answer);
void core_channel_event(struct core_world *world, unsigned choice);
void core_later(struct core_world *world, int64_t ns);

/* wrong: as a promise's function returns it. */
void core_keep(enum promise promise, const char *wrong);
/* After each event: end the completed calls, and check the promises. */
void core_settle(struct core_world *world);

/* Deliver that reply to a request of each kind, each in a world of its own. */
void core_world_answer_all(const struct lk__answer *answer);

#endif
