/* SPDX-License-Identifier: MIT
 * The explorer of permits: clients with threads that acquire, hold, extend, give back some or all,
 * cancel and forget at random, over a network with delays and faults, while somebody resizes; in
 * virtual time and from one seed.  After every script it compares the store with what it was
 * before, after every step it checks the clients; at the end, that nothing is left.
 *
 *   permits_explorer.c      the run: each step is the event whose time comes first
 *   permits_callers.c       threads: what semaphore.c and its users are to the state machine
 *   permits_network.c       chance, delays, faults
 *   permits_check.c         what must hold at every step, and at the end
 *   permits_check_script.c  what a script may make of the store */
#ifndef PERMITS_EXPLORER_H
#define PERMITS_EXPLORER_H

#include "permits_world.h"

#define PERMITS_THREADS 4 /* a client */
#define PERMITS_NAMES 2
#define PERMITS_KINDS 2 /* of places: renewed, and fixed or renewed for longer */
#define PERMITS_CALLS 64
#define PERMITS_LATE 32     /* requests that arrive after their connection's end */
#define PERMITS_GRANTS 8192 /* more than a run has */
#define PERMITS_CAPACITIES 2048
#define PERMITS_TIMEOUT_NS (2000 * PERMITS_MS)

/* What may go wrong in a run. */
enum permits_fault {
	PERMITS_LINKS = 1,    /* connections break and hang */
	PERMITS_PAUSES = 2,   /* processes are stopped */
	PERMITS_CRASHES = 4,  /* processes die */
	PERMITS_MESSAGES = 8, /* single messages are lost */
	PERMITS_STORE = 16,   /* the store refuses for a while, forgets scripts */
	PERMITS_FORCE = 32,   /* flushes, restarts, evictions, breaks: what ends holds by force */
	PERMITS_CLOCK = 64,   /* the server's clock steps back */
	PERMITS_LATECOMERS = 128, /* requests are executed after their connection's end */
};

enum permits_state {
	PERMITS_IDLE,
	PERMITS_ACQUIRING,
	PERMITS_HOLDING,
	PERMITS_RELEASING,
	PERMITS_EXTENDING
};

struct permits_explorer;
struct permits_actor;

struct permits_caller {
	struct lk__waiter waiter; /* first */
	struct permits_actor *actor;
	enum permits_state state;
	int64_t next_ns;            /* true time of its next step when it waits for nothing */
	int64_t until_ns;           /* local: when to give up */
	int64_t limit_ns;           /* local: when to abandon */
	int64_t cancel_ns;          /* true: when to cancel */
	int64_t asked_ns;           /* true: when it began to acquire */
	struct lk__place *held;     /* the handle's */
	uint64_t fence;             /* of its hold */
	uint32_t count;             /* permits that it has, or wants */
	bool forever;               /* waits without limit */
	bool was_valid;             /* its hold, as it began to release */
	uint64_t lapsed;            /* the fence of a hold whose time was over */
	char nonce[LK__NONCE_SIZE]; /* of the ticket that its end takes along */
};

struct permits_actor {
	struct permits_client *client;
	struct permits_explorer *explorer;
	struct permits_caller callers[PERMITS_THREADS];
	struct lk__place *places[PERMITS_NAMES * PERMITS_KINDS];
	struct permits_call calls[PERMITS_CALLS]; /* under way, in order */
	int call_count;
	bool dead, black, closed; /* black: nothing comes through */
	int64_t close_ns;         /* true: when it closes, LK__NEVER */
	int64_t resume_ns;        /* stopped until then */
	int64_t flush_ns;         /* when to send what is in line */
	int64_t link_ns;          /* when the link goes up or down, LK__NEVER */
	int64_t half_open_ns;     /* until when a lost subscription still counts */
	int64_t disturbed_ns;     /* when something went wrong with it last */
};

/* One grant of the store. */
struct permits_grant {
	char ticket[LK__TICKET_MAX];
	uint64_t fence;
	int name, epoch, client;
	uint32_t permits;
	int64_t lease_ms;
	int64_t granted_ns;
	int64_t counted_ns; /* since when it lasts for its whole lease */
	bool whole;         /* counted_ns is true */
	bool broken;
	bool forgotten;       /* reported to its caller, and nobody's from then on */
	int64_t forgotten_ns; /* counted_ns as it was reported */
};

struct permits_capacity {
	int64_t since_ns, capacity;
};

struct permits_late {
	struct permits_call call; /* its request is gone */
	struct permits_actor *actor;
};

/* What is known of one semaphore. */
struct permits_record {
	struct permits_view view; /* after the last script */
	int64_t view_ns;
	struct permits_capacity capacities[PERMITS_CAPACITIES];
	int capacity_count;
	int epoch;             /* of the store's memory */
	bool torn;             /* half of it was evicted */
	int64_t idle_since_ns; /* since when a waiter fits whom nobody serves */
	char idle[LK__TICKET_MAX];
};

struct permits_explorer {
	struct permits_world world;
	struct permits_actor actors[PERMITS_CLIENTS];
	struct permits_record records[PERMITS_NAMES];
	struct permits_grant grants[PERMITS_GRANTS];
	int grant_count;
	int forgotten[PERMITS_GRANTS]; /* indices */
	int forgotten_count;
	struct permits_late late[PERMITS_LATE];
	int late_count;
	uint64_t fence_max; /* given out so far */
	uint64_t random, seed;
	unsigned faults; /* of enum permits_fault */
	int64_t delay_max_ns;
	uint64_t idle_ms, hold_ms; /* of callers, at most */
	unsigned release_percent;  /* of what a caller does with a hold */
	unsigned forget_percent;   /* of acquires of fixed permits */
	uint32_t capacity_max;
	bool one_name, resizes, any_fixed;
	int64_t resize_ns;
	int64_t chaos_ns, chaos_each_ns;
	int64_t end_ns; /* of activity */
	int64_t sick_until_ns;
	bool ending, trace;
	int acquired, forgot, shrunk, lost, limited, waited, steps; /* what the run came by */
	char failure[400];
};

/* Run one seed.  False with explorer->failure when a check failed. */
bool permits_explore(struct permits_explorer *explorer, uint64_t seed, unsigned faults);

/* "s" or "t". */
const char *permits_name(int name);
int permits_name_of(const char *name);

/* ---- permits_network.c ---------------------------------------------------------------------- */

uint64_t permits_draw(struct permits_explorer *explorer, uint64_t below);
bool permits_percent(struct permits_explorer *explorer, unsigned percents);
int64_t permits_within_ms(struct permits_explorer *explorer, uint64_t ms);
int64_t permits_message_delay(struct permits_world *world, struct permits_client *client);
void permits_chaos(struct permits_explorer *explorer);
void permits_resize_one(struct permits_explorer *explorer);
/* Send what is in line. */
void permits_actor_send(struct permits_actor *actor);
/* The next request reaches the store; the next answer comes back. */
void permits_actor_execute(struct permits_actor *actor);
void permits_actor_answer(struct permits_actor *actor);
void permits_actor_change_link(struct permits_actor *actor);
/* The first of those that come late. */
void permits_late_execute(struct permits_explorer *explorer);
void permits_network_fini(struct permits_explorer *explorer);
/* It runs, and nothing went wrong with it or the store for so long. */
bool permits_actor_is_fine(const struct permits_actor *actor, int64_t for_ns);

/* ---- permits_callers.c ---------------------------------------------------------------------- */

void permits_caller_plan(struct permits_caller *caller, uint64_t ms);
void permits_caller_step(struct permits_caller *caller);
void permits_caller_give_up(struct permits_caller *caller, lk_err why);
/* Take out what the state machine has for its shell. */
void permits_actor_settle(struct permits_actor *actor);
/* Close the client. */
void permits_actor_close(struct permits_actor *actor);

/* ---- permits_check.c ------------------------------------------------------------------------ */

void permits_fail(struct permits_explorer *explorer, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void permits_check_step(struct permits_explorer *explorer);
void permits_check_made(struct permits_explorer *explorer, struct permits_caller *caller);
void permits_check_forgotten(struct permits_explorer *explorer, struct permits_caller *caller);
void permits_check_end(struct permits_explorer *explorer);

/* ---- permits_check_script.c ----------------------------------------------------------------- */

/* Look at the store before, run, look after, and check the difference.  actor and call are NULL for
 * what comes from outside, which may end holds by force. */
void permits_check_before(struct permits_explorer *explorer, int name);
void permits_check_after(struct permits_explorer *explorer, int name,
                         const struct permits_actor *actor, const struct permits_call *call);
/* Something took the store's memory: what follows has another epoch. */
void permits_check_forced(struct permits_explorer *explorer, int name);
struct permits_grant *permits_grant_of(struct permits_explorer *explorer, int name, uint64_t fence);
/* The largest capacity since then. */
int64_t permits_capacity_since(const struct permits_explorer *explorer, int name, int64_t since_ns);
int64_t permits_least_capacity_since(const struct permits_explorer *explorer, int name,
                                     int64_t since_ns);

#endif
