/* SPDX-License-Identifier: MIT
 * A few clients of one lock, semaphore or latch, and all their possible next actions: the shipped
 * state machines of src/core, the bytes of their requests, the shipped scripts on a Redis in
 * memory, and a network of which the explorer selects every step.
 *
 *   world.c    the clients and their calls
 *   wire.c     their connections: requests, replies, messages, faults
 *   memory.c   the store loses its memory
 *   actions.c  the possible actions in a state, and their execution
 *   urgent.c   of a quorum: what comes next, unless it is late
 *   dump.c     a state's canonical form
 *   check.c    the promises in each state, and at its end; check_quorum.c: those of a quorum
 *   tell.c     actions and states as text
 *   walks.c    random walks; explore.c: every state
 *   believe.c  a wrong variant
 *   etcd*.c    clients of etcd, instead of all but tell.c and explore.c
 *
 * All of a state is in the arena.  Time passes in ticks: every event is at a multiple of one, and
 * it only matters whether a deadline has passed by then.  A process acts when the explorer selects
 * it: one that is never selected is a stopped one. */
#ifndef MODEL_WORLD_H
#define MODEL_WORLD_H

#include "core/core.h"
#include "core/latch.h"
#include "core/quorum.h"
#include "lua_store.h"
#include "promises/promises.h"
#include "redis/codec.h"
#include "store_view.h"

#define MODEL_NAME "x"
#define MODEL_KEY "lk:{" MODEL_NAME "}"
#define MODEL_TOPIC "lk:l:0:{" MODEL_NAME "}"
#define MODEL_MARKER "lk:epoch"
#define MODEL_CLIENTS 3
#define MODEL_SERVERS 5
#define MODEL_REPLICAS 2
#define MODEL_CALLS 5 /* pending requests of a link */
#define MODEL_LATE 2  /* of its lost connections */
#define MODEL_INBOX 8 /* items on its messages connection */
#define MODEL_USES 8  /* grants that are never released */
#define MODEL_TICK_MS 3000
#define MODEL_LEASE_MS 6000
#define MODEL_EXTENSION_MS 12000
#define MODEL_CAPACITY 2
#define MODEL_TTL_MS 20000     /* how long the keys of a semaphore are kept */
#define MODEL_OPEN_TTL_MS 6000 /* of a latch that is open */

struct model_bounds {
	const char *name;
	lk_kind kind;
	bool fixed;     /* leases that are not renewed */
	uint8_t finals; /* that many of the clients, the first ones, never release their permits */
	uint8_t strangers; /* that many, the last ones, connect for the first time at any moment */
	uint8_t clients;   /* at most MODEL_CLIENTS */
	uint8_t servers;   /* of a quorum, at most MODEL_SERVERS; 0 = one server */
	uint8_t steps;     /* scripts that the store runs for each client */
	uint8_t ticks;     /* of time */
	uint8_t stalls;    /* ticks that pass while a client, or traffic to it, is stalled */
	uint8_t calls;     /* acquire, try, await, count down: by each client */
	/* Over all clients. */
	uint8_t tries, twos, extends, give_ups, abandons, shrinks;
	uint8_t cuts, lates, crashes, losses; /* faults; lates: requests that run after a cut */
	uint8_t refusals, put_offs;           /* error replies that are permanent, or transient */
	/* The store loses its memory; copies: of its keys; behind: ticks, the promoted server's
	 * clock. */
	uint8_t flushes, restarts, promotions, copies, behind;
	uint8_t grace;    /* ticks; 0 = the longest lease */
	uint8_t replicas; /* so many must confirm each grant; there is no grace unless it is set */
	uint8_t second;   /* 1 = there are two, which lag differently */
	uint8_t better;   /* 1 = of these, the one that has more is promoted */
	uint8_t shorts;   /* questions to which too few have confirmed */
	uint8_t faults;   /* of these kinds in total */
	/* Of a quorum. */
	uint8_t held; /* at first the first client holds that many legs; its other asks are sent */
	uint8_t any_order;            /* 0 = what is not late comes at once: see urgent.c */
	uint8_t delays;               /* replies and messages that are late */
	uint8_t slows;                /* ticks that pass while a link is stalled */
	uint8_t downs;                /* servers that go down for good */
	uint8_t jumps;                /* a server's clock is set forward by a lease */
	uint8_t yields;               /* of a leg, at most */
	uint8_t sets, removes, count; /* of a latch */
	/* Of etcd (etcd.h). */
	uint8_t members; /* 0 = it is Redis */
	uint8_t idle;    /* that many of the clients, the first ones, make no calls */
	uint8_t elects, halts, freezes, revokes; /* faults */
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
	DO_SLOW,
	DO_LATE_ANSWER,
	DO_LATE_MESSAGE,
	DO_TIME,
	DO_CUT,
	DO_LINK,
	DO_LATE,
	DO_CRASH,
	DO_CRASH_UNSEEN,
	DO_LOSE,
	DO_REFUSE,
	DO_PUT_OFF,
	DO_SHORT,
	DO_FIRST,
	DO_SECOND,
	DO_COPY,
	DO_COPY_OTHER,
	DO_FLUSH,
	DO_RESTART,
	DO_RESTORE,
	DO_PROMOTE,
	DO_PROMOTE_OTHER,
	DO_DOWN,
	DO_JUMP,
	DO_ELECT,
	DO_HALT,
	DO_FREEZE,
	DO_GO_ON,
	DO_REVOKE,
	MODEL_VERBS
};

/* A wrong variant that must be found: see plants.c. */
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
	RULE_NO_GRACE,
	RULE_WAIT_ELSEWHERE,
	RULE_MESSAGE_UNCOUNTED,
	RULE_RENEWAL_UNCOUNTED,
	RULE_ONE_IS_ENOUGH,
	RULE_OLDER_PROMOTED,
	RULE_NEVER_YIELDS,
	RULE_YIELD_BELIEVED,
	RULE_UNCOMMITTED,
	RULE_ETCD_ERA,
	RULE_ETCD_OLD,
};

/* A pending request, or one that a lost connection may still deliver. */
struct model_call {
	struct lk__pending *request; /* NULL: no caller waits for its reply */
	struct lk__buf bytes;
	struct lk__answer answer; /* once executed */
	char nonce[LK__NONCE_SIZE];
	uint64_t arrival, fence, last_fence, number;
	int64_t lease_ms;
	uint32_t permits;
	uint64_t proposal;      /* of a quorum */
	uint16_t leg_epoch;     /* the same */
	struct lk__epoch epoch; /* that it was encoded with */
	uint8_t kind;           /* enum lk__request_kind */
	bool only_try, executed;
	bool owned; /* a leave: the store had its ticket as the holder's until then */
};

struct model_item {
	enum { ITEM_MESSAGE, ITEM_BROADCAST, ITEM_SUBSCRIBED, ITEM_UNSUBSCRIBED } kind;
	struct lk__message message;
};

/* Of a client to a server: the connection for requests, and that for messages. */
struct model_link {
	struct lk__session session;
	struct model_client *client;
	struct model_server *server;
	struct model_call calls[MODEL_CALLS], late[MODEL_LATE];
	struct model_item inbox[MODEL_INBOX];
	uint8_t call_count, late_count, inbox_count;
	int64_t kept_until_ns; /* RULE_YIELD_BELIEVED */
	uint64_t kept_fence;
	int64_t doubted_until_ns; /* legs up to then may have ended: the server's clock was set */
	bool linked, heard, listens;
	bool stalled;                         /* carries nothing until the next tick */
	bool is_answer_late, is_message_late; /* the next one, and those behind it */
	bool returns;                         /* its server began anew: it is up again at once */
};

struct model_server {
	struct model_world *world;
	struct lua_store *store;
	int64_t ahead_us; /* its clock */
	bool down;        /* for good */
};

struct model_client {
	struct lk__core core;
	struct model_link *links;     /* one to each server */
	struct lk__wait_queue *queue; /* of its handle */
	struct lk__op *waiter;        /* its call, NULL if none is pending */
	uint64_t owner;               /* of its hold, 0 if it has none */
	uint64_t seen;                /* the last fence that a hold had when its call began */
	uint64_t told;                /* the fence of the last hold whose loss was reported to it */
	uint8_t verb;                 /* of its call */
	uint8_t scripts, begun, stepped; /* stepped: it began to count down */
	uint16_t counted;                /* its counted steps, a bit each by number */
	bool alive;
	bool stalled; /* does nothing until the next tick */
	bool gave_up;
	bool was_open;  /* the latch, at any time during its wait */
	bool was_valid; /* its hold, when its call began */
	bool denied;    /* a server did not have what the call released */
	bool refused;   /* the store replied with an error since its last call ended */
};

/* Permits that a caller acquired and never releases: the store counts them from the fence's time
 * on. */
struct model_use {
	uint64_t fence;
	uint32_t permits;
};

struct model_etcd;

struct model_world {
	const struct model_bounds *bounds;
	struct model_etcd *etcd; /* NULL = it is Redis; then all below from the servers on */
	int64_t now_ns;
	enum model_rule rule;
	uint8_t server_count;
	uint64_t seen;   /* the largest fence that a hold had; of a quorum, if it was sure */
	uint64_t opened; /* the last generation that was reported open */
	uint8_t ticks;   /* elapsed */
	uint8_t stalls;
	uint8_t used[MODEL_VERBS];
	uint8_t faults;
	uint8_t use_count;
	/* What replicas have of its keys, or a file; NULL = none.  A replica with a larger number
	 * has received more. */
	struct lua_store_image *copies[MODEL_REPLICAS];
	uint32_t received[MODEL_REPLICAS], saves;
	bool has_lost;                     /* the store has lost its memory */
	bool is_older;                     /* it began anew from keys of an earlier moment */
	bool excused;                      /* two tickets were decided, one by doubted legs */
	bool free_run;                     /* no bounds: all calls run to their end */
	const struct model_call *answered; /* whose reply is being read, NULL = none */
	const char *wrong;                 /* the result of the last action, NULL = none */
	struct model_use uses[MODEL_USES]; /* by fence */
	struct model_server servers[MODEL_SERVERS];
	struct model_client clients[MODEL_CLIENTS];
	struct model_link links[]; /* by client, then by server */
};

/* The world in the arena; the first state is in it. */
struct model_world *world_begin(const struct model_bounds *bounds, enum model_rule rule,
                                const char *script, const char *old, const char *new);
void world_end(struct model_world *world);

/* ---- Events, each followed by what the client sends at once --------------------------------- */

void world_call(struct model_world *world, struct model_client *client, enum model_verb verb);
/* confirmed: those replicas answer a question for them, a bit each. */
void world_execute(struct model_world *world, struct model_link *link, unsigned confirmed);
/* All replicas, a bit each. */
unsigned world_replicas(const struct model_world *world);
void world_execute_late(struct model_world *world, struct model_link *link);
void world_subscribe(struct model_world *world, struct model_link *link);
void world_question(struct model_world *world, struct model_link *link, enum model_verb verb);
void world_answer(struct model_world *world, struct model_link *link);
void world_hear(struct model_world *world, struct model_link *link);
void world_timer(struct model_world *world, struct model_client *client);
void world_time(struct model_world *world, int64_t ns);
void world_cut(struct model_world *world, struct model_link *link);
void world_link(struct model_world *world, struct model_link *link);
void world_crash(struct model_world *world, struct model_client *client, bool unseen);
void world_lose(struct model_link *link);
void world_refuse(struct model_link *link, bool passes);
struct model_call *world_next_call(struct model_link *link);

/* Its hold, NULL if it has none; and whether that is valid. */
struct lk__hold *world_hold(const struct model_client *client);
bool world_valid(const struct model_world *world, const struct model_client *client);
/* It holds that many legs. */
void world_hold_legs(struct model_world *world, int client, int legs);
/* The same in the store. */
void world_ticket(const struct model_world *world, const struct model_client *client,
                  const struct lk__ticket *ticket, char text[LK__TICKET_MAX]);
int world_index(const struct model_world *world, const struct model_client *client);
int world_server(const struct model_world *world, const struct model_server *server);
/* The client of a ticket in the store. */
int world_owner(const struct store_ticket *ticket);
/* It never releases its permits. */
bool world_is_final(const struct model_world *world, const struct model_client *client);

/* ---- The store loses its memory (memory.c) -------------------------------------------------- */

/* The store is emptied; or it begins anew, empty or from the first copy; or a replica is promoted,
 * which has the keys of its copy, or all. */
void world_copy(struct model_world *world, unsigned replicas);
void world_flush(struct model_world *world, struct model_server *server);
void world_restart(struct model_world *world, struct model_server *server, bool from_copy);
void world_down(struct model_world *world, struct model_server *server);
void world_jump(struct model_world *world, struct model_server *server);
void world_promote(struct model_world *world, int replica);
/* No other replica has received more. */
bool world_is_better(const struct model_world *world, int replica);
/* May that happen again? */
bool world_may_lose(const struct model_world *world);
/* Nothing new is granted for that long after a loss. */
int64_t world_grace_ms(const struct model_bounds *bounds);
/* Nothing new is granted: the store has no marker, or its grace is not over. */
bool world_is_young(const struct model_server *server);
/* It has not connected yet. */
bool world_is_stranger(const struct model_client *client);
/* The present memory has granted or confirmed its hold, as far as it knows. */
bool world_is_confirmed(const struct model_world *world, const struct model_client *client);
/* The store executed a request to take a hold back. */
void world_check_reclaim(struct model_world *world, const struct model_client *client,
                         const struct model_call *call);

/* The store has begun anew from the replica: it has each valid hold. */
void world_check_replica(struct model_world *world);

/* A caller acquired permits that it never releases. */
void world_use(struct model_world *world, uint64_t fence, uint32_t permits);

/* ---- Shared by world.c and wire.c
 * ------------------------------------------------------------- */

/* wrong: as a promise's function returns it.  The first broken promise counts. */
void world_keep(struct model_world *world, enum promise promise, const char *wrong);
const struct lk__space *world_space(const struct model_world *world,
                                    const struct model_client *client);
void world_free_call(struct lk__op *waiter);
void world_set_time(struct model_world *world, int64_t now_ns);
/* A quorum: its servers belong to a set, and are not young. */
void world_mark_servers(struct model_world *world);
/* A server's connections are lost, with all that was not executed. */
void world_drop(struct model_world *world, const struct model_server *server);
/* After each event: send the client's requests, and complete its calls. */
void world_after(struct model_world *world, struct model_client *client);
lua_store_publish_fn world_publish;

/* RULE_YIELD_BELIEVED (believe.c): after an event, and before the answer to a yield. */
void world_believe(struct model_world *world, struct model_client *client);
void world_disbelieve(struct lk__ticket *leg);

/* ---- Possible actions (actions.c) --------------------------------------------------- */

#define MODEL_ACTIONS (MODEL_VERBS * MODEL_CLIENTS * MODEL_SERVERS)

/* (verb * MODEL_CLIENTS + client) * MODEL_SERVERS + server; returns how many. reduced: only those
 * of a client with which no other can interfere, if there is one: see actions.c. */
int world_actions(const struct model_world *world, bool reduced, uint16_t actions[MODEL_ACTIONS]);
void world_do(struct model_world *world, uint16_t action);
bool world_is_fault(enum model_verb verb);
bool world_is_of_server(enum model_verb verb); /* or of a link to one */
/* Is it possible? */
bool world_may(const struct model_world *world, struct model_link *link, enum model_verb verb);
uint16_t world_action(const struct model_world *world, const struct model_link *link,
                      enum model_verb verb);
/* What must come next in a quorum, or its fault; 0 = anything may. */
int world_urgent(const struct model_world *world, uint16_t *actions);
enum model_verb world_verb_of(uint16_t action);
struct model_link *world_link_of(const struct model_world *world, uint16_t action);
/* As text, a line without its end. */
void world_tell(const struct model_world *world, uint16_t action, char *text, size_t size);

/* ---- A state's canonical form (dump.c)
 * ------------------------------------------------------------ */

uint64_t world_hash(struct model_world *world, bool with_bounds);
/* ---- Promises (check.c) --------------------------------------------------------------- */

/* The broken promise, NULL if all are kept. */
const char *world_wrong(struct model_world *world);
/* The same of a quorum (check_quorum.c), around a script, in each state, and at the end. */
void world_check_member(struct model_world *world, const struct model_server *server,
                        const struct store_view *before, const struct model_call *call);
const char *world_quorum_wrong(struct model_world *world);
/* How long a wait may take when there are no more faults. */
int64_t world_quorum_served_ms(const struct model_world *world, int64_t most_ms);
const char *world_quorum_rest(const struct model_world *world, const struct model_client *client);
bool world_quorum_is_left(const struct model_world *world);
/* Has no server's clock been set forward since the leg was granted?  A majority of the hold's? */
bool world_leg_is_sure(const struct model_client *client, const struct lk__ticket *leg);
bool world_is_sure(const struct model_world *world, const struct model_client *client);
/* Of a release, whole or partial, or an extension that has ended. */
const char *world_result_wrong(const struct model_world *world, const struct model_client *client,
                               lk_err err);
/* Is this client idle, except for time, faults and new calls? */
bool world_rests(const struct model_world *world, const struct model_client *client);
bool world_quiet(const struct model_world *world);
/* Run all calls to their end, and return the failure, if any; the state is lost. *longest becomes
 * the longest wait, in ms, if that is longer. */
const char *world_finish(struct model_world *world, int64_t *longest);
/* A summary of it, as a line. */
void world_print(const struct model_world *world);
/* The state of the name in the store; valid until the next but one is read. */
const struct store_view *world_view(const struct model_server *server);
/* The store may have been changed, or replaced: read it again. */
void world_view_forget(void);
/* The store executed this call. */
void world_check_run(struct model_world *world, const struct model_server *server,
                     const struct store_view *before, const struct model_call *call);

#endif
