/* SPDX-License-Identifier: MIT
 * The explorer: clients with threads that acquire, hold, extend, cancel and release at random, over
 * a network with delays and faults, in virtual time and from one seed.  After every step it checks
 * what must hold at every step; at the end, that nothing is left. */
#ifndef EXPLORER_H
#define EXPLORER_H

#include "virtual.h"

#define EXPLORER_THREADS 3   /* a client */
#define EXPLORER_PLACES 4    /* a client: two kinds of two names */
#define EXPLORER_CALLS 64    /* under way, a client */
#define EXPLORER_EPOCHS 8192 /* more than faults in a run */
#define COMMAND_TIMEOUT_NS (2000 * VIRT_MS)

/* What may go wrong in a run. */
enum explorer_fault {
	FAULT_LINKS = 1,    /* connections break and hang */
	FAULT_PAUSES = 2,   /* processes are stopped */
	FAULT_CRASHES = 4,  /* processes die */
	FAULT_MESSAGES = 8, /* single messages are lost */
	FAULT_STORE = 16,   /* the store refuses for a while, forgets scripts */
	FAULT_FORCE = 32,   /* flushes, restarts, breaks: what ends holds by force */
};

enum caller_state { IDLE, ACQUIRING, HOLDING, RELEASING, EXTENDING };

/* A thread of a client: what lock.c is to the state machine. */
struct caller {
	struct lk__waiter waiter; /* first */
	struct actor *actor;
	uint64_t owner;
	enum caller_state state;
	int64_t next_ns;            /* true time of its next step when it waits for nothing */
	int64_t until_ns;           /* local: when to give up */
	int64_t limit_ns;           /* local: when to abandon */
	int64_t cancel_ns;          /* true: when to cancel */
	struct lk__place *held;     /* through which it acquired */
	bool forever, fresh;        /* fresh: no re-entry */
	bool was_valid;             /* its hold, as it began to release */
	uint64_t lapsed;            /* the fence of a hold whose time was over */
	char nonce[LK__NONCE_SIZE]; /* of the ticket that its end takes along */
};

struct explorer_call {
	struct virt_call call;
	bool unknown; /* the store did not know the script */
};

struct actor {
	struct virt_client *client;
	struct explorer *explorer;
	struct caller callers[EXPLORER_THREADS];
	struct lk__place *places[EXPLORER_PLACES];
	struct explorer_call calls[EXPLORER_CALLS]; /* under way, in order */
	int call_count;
	bool dead, black, closed; /* black: nothing comes through */
	int64_t close_ns;         /* true: when it closes, LK__NEVER */
	int64_t resume_ns;        /* stopped until then */
	int64_t flush_ns;         /* when to send what is in line */
	int64_t link_ns;          /* when the link goes up or down, LK__NEVER */
	int64_t half_open_ns;     /* until when a lost subscription still counts, 0 = does not */
	int losses, losses_told;
};

struct explorer {
	struct virt virt;
	struct actor actors[VIRT_CLIENTS];
	uint64_t random;
	uint64_t seed;
	unsigned faults; /* of enum explorer_fault */
	int64_t delay_max_ns;
	uint64_t idle_ms, hold_ms; /* of callers, at most */
	unsigned release_percent;  /* of what a caller does with a hold */
	bool one_name;
	int64_t chaos_ns, chaos_each_ns;
	int64_t end_ns; /* of activity */
	int64_t sick_until_ns;
	bool ending, trace;
	/* Of the checks. */
	uint64_t made_max[MODEL_NAMES]; /* greatest fence of any hold so far */
	uint64_t made_in_epoch[MODEL_NAMES][EXPLORER_EPOCHS]; /* the same, by epoch */
	int64_t free_since_ns[MODEL_NAMES];
	int acquired, handed_over, lost, steps; /* what the run came by */
	char failure[300];
};

/* Run one seed.  False with explorer->failure when a check failed. */
bool explorer_run(struct explorer *explorer, uint64_t seed, unsigned faults);

/* ---- explorer_network.c --------------------------------------------------------------------- */

uint64_t explorer_draw(struct explorer *explorer, uint64_t below);
bool explorer_percent(struct explorer *explorer, unsigned percents);
int64_t explorer_within_ms(struct explorer *explorer, uint64_t ms);
int64_t explorer_message_delay(struct virt *virt, struct virt_client *client);
void explorer_chaos(struct explorer *explorer);
/* Send what is in line. */
void actor_send(struct actor *actor);
/* The next request reaches the store; the next answer comes back. */
void actor_execute(struct actor *actor);
void actor_answer(struct actor *actor);
void actor_change_link(struct actor *actor);

/* ---- explorer_callers.c --------------------------------------------------------------------- */

void caller_plan(struct caller *caller, uint64_t ms);
void caller_step(struct caller *caller);
void caller_give_up(struct caller *caller, lk_err why);
/* Take out what the state machine has for its shell. */
void actor_settle(struct actor *actor);
/* Close the client. */
void actor_close(struct actor *actor);

/* ---- explorer_check.c ----------------------------------------------------------------------- */

void explorer_fail(struct explorer *explorer, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void explorer_check_step(struct explorer *explorer);
void explorer_check_made(struct explorer *explorer, struct caller *caller);
void explorer_check_grant(void *arg, int name, uint64_t fence);
void explorer_check_end(struct explorer *explorer);

#endif
