/* SPDX-License-Identifier: MIT
 * A few clients of one lock, semaphore or latch, and all that may happen to them next: the state
 * machines of src/core as they ship, the bytes of their requests, the scripts as they ship on a
 * Redis in memory, and a network of which the explorer chooses every step.
 *
 *   world.c    the clients and their calls
 *   wire.c     their connections: requests, answers, messages, faults
 *   actions.c  what may happen in a state, and doing it
 *   dump.c     a state's one form
 *   check.c    what must hold in each state, and at its end
 *
 * All of a state lies in the arena.  Time goes in ticks: every event is at a multiple of one, and
 * only whether a deadline has passed by then matters.  A process acts when the explorer lets it:
 * one that is not let is a stopped one. */
#ifndef MODEL_WORLD_H
#define MODEL_WORLD_H

#include "core/core.h"
#include "core/latch.h"
#include "lua_store.h"
#include "redis/codec.h"

#define MODEL_NAME "x"
#define MODEL_TOPIC "lk:l:0:{" MODEL_NAME "}"
#define MODEL_CLIENTS 3
#define MODEL_CALLS 5  /* requests of a client under way */
#define MODEL_LATE 2   /* of its lost connections */
#define MODEL_INBOX 8  /* what comes on its messages connection */
#define MODEL_ORDER 16 /* tickets in the store */
#define MODEL_USES 8   /* grants that are never released */
#define MODEL_TICK_MS 3000
#define MODEL_LEASE_MS 6000
#define MODEL_EXTENSION_MS 12000
#define MODEL_CAPACITY 2
#define MODEL_TTL_MS 20000     /* of a semaphore's memory */
#define MODEL_OPEN_TTL_MS 6000 /* of a latch that is open */

struct model_bounds {
	const char *name;
	lk_kind kind;
	bool fixed;      /* leases that are not renewed */
	uint8_t finals;  /* so many of the clients, the first ones, never release their permits */
	uint8_t clients; /* at most MODEL_CLIENTS */
	uint8_t steps;   /* scripts that the store runs for each client */
	uint8_t ticks;   /* of time */
	uint8_t stalls; /* ticks that go by while a client, or what is under way to it, stands still
	                 */
	uint8_t calls;  /* acquire, try, await, count down: by each client */
	/* By all clients together. */
	uint8_t tries, twos, extends, give_ups, abandons, shrinks;
	uint8_t cuts, lates, crashes, losses; /* faults; lates: requests that run after a cut */
	uint8_t refusals, put_offs;           /* errors for an answer that stay, or pass */
	uint8_t faults;                       /* of these kinds together */
	uint8_t sets, removes, count;         /* of a latch */
};

enum model_verb {
	DO_ACQUIRE,
	DO_ACQUIRE_TWO,
	DO_TRY,
	DO_RELEASE,
	DO_RELEASE_ONE,
	DO_EXTEND,
	DO_AWAIT,
	DO_AWAIT_TRY,
	DO_STEP,
	DO_STEP_NAMED,
	DO_SET,
	DO_REMOVE,
	DO_GIVE_UP,
	DO_ABANDON,
	DO_EXECUTE,
	DO_SUBSCRIBE,
	DO_ANSWER,
	DO_HEAR,
	DO_TIMER,
	DO_STALL,
	DO_TIME,
	DO_CUT,
	DO_LINK,
	DO_LATE,
	DO_CRASH,
	DO_CRASH_UNSEEN,
	DO_LOSE,
	DO_REFUSE,
	DO_PUT_OFF,
	MODEL_VERBS
};

/* One of the wrong variants that must be found: see plants.c. */
enum model_rule {
	RULES_AS_SHIPPED,
	RULE_SCRIPT, /* a script is altered, the core is not */
	RULE_VALID_FROM_REPLY,
	RULE_LATE_ANSWER_HOLDS,
	RULE_VALID_FROM_QUEUED,
	RULE_CLAIM_SKIPPED,
	RULE_NEVER_ASKS_AGAIN,
	RULE_STEP_RENUMBERED,
	RULE_LATE_GRANT_REVIVES,
	RULE_FENCE_OF_MESSAGE,
	RULE_LOSS_UNTOLD,
	RULE_RELEASE_LOST,
	RULE_RELEASE_UNKNOWN,
	RULE_EXTEND_UNKNOWN,
	RULE_LEAVE_FORGOTTEN,
};

/* A request under way, or one that a lost connection may still bring. */
struct model_call {
	struct lk__pending *request; /* NULL: nobody waits for its answer */
	struct lk__buf bytes;
	struct lk__answer answer; /* once executed */
	char nonce[LK__NONCE_SIZE];
	uint64_t arrival, fence, last_fence, number;
	int64_t lease_ms;
	uint32_t permits;
	uint8_t kind; /* enum lk__request_kind */
	bool only_try, executed;
	bool owned; /* a leave: the store had it as the holder's until then */
};

struct model_item {
	enum { ITEM_MESSAGE, ITEM_BROADCAST, ITEM_SUBSCRIBED, ITEM_UNSUBSCRIBED } kind;
	struct lk__message message;
};

struct model_client {
	struct lk__core core;
	struct lk__session session;   /* its only link */
	struct lk__wait_queue *queue; /* of its handle */
	struct lk__op *waiter;        /* its call, NULL if none is under way */
	uint64_t owner;               /* of its hold, 0 if it has none */
	uint64_t seen;                /* the last fence that a hold had when its call began */
	uint64_t told;                /* the fence of the hold whose loss it was told last */
	struct model_call calls[MODEL_CALLS], late[MODEL_LATE];
	struct model_item inbox[MODEL_INBOX];
	uint8_t verb; /* of its call */
	uint8_t call_count, late_count, inbox_count;
	uint8_t scripts, begun, stepped; /* stepped: it began to count down */
	uint16_t counted;                /* its steps that were, a bit each by number */
	bool alive, linked, heard, listens;
	bool stalled; /* does nothing until the next tick */
	bool gave_up;
	bool was_open;  /* the latch, at some moment of its wait */
	bool was_valid; /* its hold, as its call began */
	bool refused;   /* the store answered with an error since its last call ended */
};

/* Permits that a caller got and never releases: the store counts them from the fence's time on. */
struct model_use {
	uint64_t fence;
	uint32_t permits;
};

struct model_world {
	const struct model_bounds *bounds;
	struct lua_store *store;
	int64_t now_ns;
	enum model_rule rule;
	uint64_t seen;   /* the largest fence that a hold had */
	uint64_t opened; /* the last generation that was said to be open */
	uint8_t ticks;   /* gone by */
	uint8_t stalls;
	uint8_t used[MODEL_VERBS];
	uint8_t faults;
	uint8_t use_count;
	bool free_run;                     /* no bounds: everything comes to its end */
	const struct model_call *answered; /* whose answer is being read, NULL = none */
	const char *wrong;                 /* what the last action did, NULL = nothing */
	struct model_use uses[MODEL_USES]; /* by fence */
	struct model_client clients[MODEL_CLIENTS];
};

/* The world in the arena; the first state is in it. */
struct model_world *world_begin(const struct model_bounds *bounds, enum model_rule rule,
                                const char *script, const char *old, const char *new);
void world_end(struct model_world *world);

/* ---- Events, each followed by what the client sends at once --------------------------------- */

void world_call(struct model_world *world, struct model_client *client, enum model_verb verb);
void world_execute(struct model_world *world, struct model_client *client);
void world_execute_late(struct model_world *world, struct model_client *client);
void world_subscribe(struct model_world *world, struct model_client *client);
void world_question(struct model_world *world, struct model_client *client, enum model_verb verb);
void world_answer(struct model_world *world, struct model_client *client);
void world_hear(struct model_world *world, struct model_client *client);
void world_timer(struct model_world *world, struct model_client *client);
void world_time(struct model_world *world, int64_t ns);
void world_cut(struct model_world *world, struct model_client *client);
void world_link(struct model_world *world, struct model_client *client);
void world_crash(struct model_world *world, struct model_client *client, bool unseen);
void world_lose(struct model_client *client);
void world_refuse(struct model_client *client, bool passes);
struct model_call *world_next_call(struct model_client *client);

/* Its hold, NULL if it has none; and whether that is valid. */
struct lk__hold *world_hold(const struct model_client *client);
bool world_valid(const struct model_world *world, const struct model_client *client);
/* As the store knows it. */
void world_ticket(const struct model_world *world, const struct model_client *client,
                  const struct lk__ticket *ticket, char text[LK__TICKET_MAX]);
int world_index(const struct model_world *world, const struct model_client *client);
/* It never releases its permits. */
bool world_is_final(const struct model_world *world, const struct model_client *client);
const char *world_key(const char *suffix);
/* What the store answers to a command, elements a line each; valid until the next one. */
const char *world_value(const struct model_world *world, int argc, const char *const *argv);
#define world_text(world, ...)                                                                     \
	world_value(world, sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *),           \
	            (const char *[]){__VA_ARGS__})

/* A caller got permits that it never releases.  NULL if nothing is wrong with that. */
const char *world_use(struct model_world *world, uint64_t fence, uint32_t permits);

/* ---- Between world.c and wire.c ------------------------------------------------------------- */

void world_fail(struct model_world *world, const char *wrong);
const struct lk__space *world_space(const struct model_world *world,
                                    const struct model_client *client);
void world_set_time(struct model_world *world, int64_t now_ns);
/* After each event: what the client sends at once, and which of its calls are done. */
void world_after(struct model_world *world, struct model_client *client);
lua_store_publish_fn world_publish;

/* ---- All that may happen next (actions.c) --------------------------------------------------- */

#define MODEL_ACTIONS (MODEL_VERBS * MODEL_CLIENTS)

/* verb * MODEL_CLIENTS + client; how many.  reduced: those alone of a client with which nobody else
 * can interfere, if there is one: see actions.c. */
int world_actions(const struct model_world *world, bool reduced, uint8_t actions[MODEL_ACTIONS]);
void world_do(struct model_world *world, uint8_t action);
/* Into text, as a line without its end. */
void world_tell(const struct model_world *world, uint8_t action, char *text, size_t size);

/* ---- A state's one form (dump.c) ------------------------------------------------------------ */

uint64_t world_hash(struct model_world *world, bool with_bounds);
/* ---- What must hold (check.c) --------------------------------------------------------------- */

/* NULL if nothing is wrong. */
const char *world_wrong(const struct model_world *world);
/* Of a release, whole or partial, or an extension that is over. */
const char *world_result_wrong(const struct model_world *world, const struct model_client *client,
                               lk_err err);
/* Nothing can happen with this client but time, faults and new calls. */
bool world_rests(const struct model_world *world, const struct model_client *client);
bool world_quiet(const struct model_world *world);
/* Let everything come to its end, and say what is wrong with that; the state is lost.  The longest
 * wait, in ms, goes to *longest if it is longer. */
const char *world_finish(struct model_world *world, int64_t *longest);
/* What there is to see of it, as a line. */
void world_print(const struct model_world *world);
/* Around a script: who was in the queue, and who holds. */
struct model_order {
	int count, owner_count;
	char queue[MODEL_ORDER][LK__TICKET_MAX], owners[MODEL_ORDER][LK__TICKET_MAX];
	uint64_t arrivals[MODEL_ORDER];
};
const struct model_order *world_order(const struct model_world *world);
/* The store may be another one now: look again. */
void world_order_forget(void);
/* call: what was run in between. */
const char *world_order_wrong(const struct model_world *world, const struct model_order *before,
                              const struct model_order *after, const struct model_call *call);

#endif
