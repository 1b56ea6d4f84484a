/* SPDX-License-Identifier: MIT
 * The state machine of waits and holds.  Nothing here blocks, reads a clock, starts a thread or
 * touches a socket: time and events are arguments, requests and completions come out, and the
 * caller's one mutex guards it all.  Memory that an event may need is brought along by its caller,
 * so that no event can fail for want of it.
 *
 *   name    what users agree on; its places and holds
 *   place   one kind of ticket of this client for a name (lease, fixed or renewed); its waiters
 *           stand in line here and one ticket stands in the store for all of them
 *   ticket  one wait and the hold that it becomes, in the store
 *   hold    what one owner in this process has, from grant to release
 *   waiter  one call that blocks */
#ifndef LK__CORE_H
#define LK__CORE_H

#include "../error.h"
#include "../store.h"
#include "heap.h"
#include "table.h"

#define LK__HANDOVERS_MAX 16     /* between threads, once another process waits */
#define LK__REASK_MAX_MS 10000   /* a waiter asks again at least this often */
#define LK__QUEUE_LIFE_MS 30000  /* of a queue that nobody asks about */
#define LK__COUNT_MAX 0x7fffffff /* re-entries */

struct lk__core;
struct lk__hold;

struct lk__name {
	struct lk__link link;
	struct lk__place *places;
	struct lk__hold *holds;
	uint32_t refs; /* its places */
	uint16_t len;
	char bytes[];
};

struct lk__place {
	struct lk__name *name;
	struct lk__place *next;
	struct lk__waiter *first, *last; /* waiters in line */
	struct lk__ticket *ticket;       /* for them, or for the hold; NULL if neither */
	struct lk__hold *hold;           /* the valid one, NULL if none */
	int64_t lease_ms;
	uint32_t refs; /* handles and tickets */
	bool fixed;
};

enum lk__ticket_state {
	LK__ASKING,   /* the store has not answered yet */
	LK__WAITING,  /* stands in the queue */
	LK__CLAIMING, /* granted by a message that has to be claimed */
	LK__HOLDING,
	LK__LEAVING, /* on its way out; its place may have another ticket by now */
	LK__OVER,    /* only waits for an answer that is still under way */
};

struct lk__ticket {
	struct lk__timer timer; /* first: a due timer is its ticket */
	struct lk__link link;   /* by nonce */
	struct lk__ticket *next, *prev;
	struct lk__place *place;
	struct lk__waiter *leavers;   /* calls that wait for the end of it */
	struct lk__waiter *extenders; /* calls that wait for a renewal each, in order */
	int64_t next_ns;              /* when to send what its state asks for, LK__NEVER */
	int64_t first_sent_ns;        /* its first ask, 0 = none yet */
	int64_t valid_until_ns;
	int64_t store_us, store_us_ns; /* the store's clock, and ours when we heard of it */
	uint64_t fence, last_fence;    /* of the grant; given out last */
	uint64_t arrival;
	struct lk__request main, leave;
	int64_t lease_ms;
	uint32_t hand_overs; /* that count */
	uint16_t leaves_sent;
	char nonce[LK__NONCE_SIZE];
	uint8_t state; /* enum lk__ticket_state */
	uint8_t hands; /* heads served on the way */
	bool fixed, only_try, wanted, share, share_asked, again, trouble, handing;
	bool doubted; /* it was broken while its request was under way */
};

struct lk__hold {
	struct lk__hold *next_of_name;
	struct lk__hold *next, *prev; /* all of the client */
	struct lk__hold *next_lost;
	void *handle; /* through which it was acquired */
	uint64_t owner;
	struct lk__name *name;
	struct lk__ticket *ticket; /* NULL once lost */
	uint64_t fence;
	int64_t max_until_ns; /* LK__NEVER */
	uint32_t count;
	uint8_t lost;  /* lk_lost_reason, 0 = not lost */
	bool told;     /* its loss was told, or is nobody's to know */
	bool released; /* the owner is done with it; freed when told */
};

enum lk__waiter_where { LK__NOWHERE, LK__IN_PLACE, LK__FOR_LEAVE, LK__FOR_EXTEND };

struct lk__waiter {
	struct lk__waiter *next;
	struct lk__place *place;
	void *handle;
	uint64_t owner;
	int64_t max_hold_ms; /* 0 = no limit */
	int64_t lease_ms;    /* extend */
	bool only_try;
	bool tell_loss; /* the handle has a loss callback */
	/* Brought along; taken when used, else the caller frees them. */
	struct lk__ticket *spare_ticket;
	struct lk__hold *spare_hold;
	/* Out. */
	struct lk__ticket *ticket; /* FOR_LEAVE, FOR_EXTEND */
	bool sent;                 /* FOR_EXTEND: its request went out */
	uint8_t where;
	bool done;
	struct lk__why why; /* the result, with its sentence */
};

struct lk__core {
	struct lk__table names, tickets;
	struct lk__heap timers;
	struct lk__ticket *all_tickets;
	struct lk__hold *all_holds;
	struct lk__request *line, **line_end; /* requests to send */
	struct lk__waiter *done, **done_end;
	struct lk__hold *lost, **lost_end;
	uint64_t random;
	bool linked;             /* the store can be asked, and messages come */
	bool closing;            /* every wait ends, nothing new begins */
	struct lk__why link_why; /* why it is not linked */
};

/* ---- Life (core.c) ------------------------------------------------------------------------ */

bool lk__core_init(struct lk__core *core, uint64_t seed);
/* Frees what is left, whatever it was. */
void lk__core_fini(struct lk__core *core);

struct lk__name *lk__name_new(const char *bytes, size_t len);
struct lk__place *lk__place_new(int64_t lease_ms, bool fixed);
/* The place for that name and kind: the given ones are taken or freed. */
struct lk__place *lk__place_open(struct lk__core *core, struct lk__name *name,
                                 struct lk__place *place);
/* No waiter or hold of the closing handle may be left. */
void lk__place_close(struct lk__core *core, struct lk__place *place);

/* ---- Calls (call.c).  waiter->done is set at once or later; see lk__core_next_done(). ----- */

void lk__core_acquire(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter);
void lk__core_release(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter);
void lk__core_extend(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter);
/* A wait ends with LK_ETIMEDOUT, LK_ECANCELED or LK_ECLOSED, at once or when the store confirms. */
void lk__core_give_up(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter, lk_err why);
/* The caller can wait no longer: done is set on return. */
void lk__core_abandon(struct lk__core *core, int64_t now_ns, struct lk__waiter *waiter);
/* Every wait on the handle. */
void lk__core_cancel(struct lk__core *core, int64_t now_ns, struct lk__place *place, void *handle,
                     lk_err why);
/* Give back what was acquired through the handle, and forget losses not yet told. */
void lk__core_drop(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle);
void lk__core_thread_ended(struct lk__core *core, int64_t now_ns, uint64_t owner);
/* Every wait ends with LK_ECLOSED, every hold is given back. */
void lk__core_close(struct lk__core *core, int64_t now_ns);

/* The owner's hold on the name, NULL if none. */
struct lk__hold *lk__core_hold(const struct lk__name *name, uint64_t owner);
lk_state lk__hold_state(const struct lk__core *core, const struct lk__hold *hold, int64_t now_ns);
int64_t lk__hold_left_ns(const struct lk__hold *hold, int64_t now_ns);

/* ---- Events (core.c, answer.c)
 * -------------------------------------------------------------------- */

void lk__core_link_up(struct lk__core *core, int64_t now_ns);
/* What was under way has no answer any more. */
void lk__core_link_down(struct lk__core *core, int64_t now_ns, const struct lk__why *why);
void lk__core_answer(struct lk__core *core, int64_t now_ns, struct lk__request *request,
                     const struct lk__answer *answer);
void lk__core_message(struct lk__core *core, int64_t now_ns, const struct lk__message *message);
void lk__core_tick(struct lk__core *core, int64_t now_ns);
/* When to tick next, LK__NEVER. */
int64_t lk__core_due(const struct lk__core *core);

/* The next request to send, in order; it is under way from now on.  NULL if none. */
struct lk__request *lk__core_next_request(struct lk__core *core, int64_t now_ns);
/* The store did not run it: put it first in the line again.  False when it need not be sent. */
bool lk__core_resend(struct lk__core *core, struct lk__request *request);
/* A waiter that is done, each once. */
struct lk__waiter *lk__core_next_done(struct lk__core *core);
/* A loss to tell, each once; give it back with lk__core_told(). */
struct lk__hold *lk__core_next_lost(struct lk__core *core);
void lk__core_told(struct lk__hold *hold);

/* What a lease of that length leaves as valid after drift of two clocks: the margin. */
int64_t lk__margin_ns(int64_t lease_ms);

/* ---- Between these files ---------------------------------------------------------- */

void lk__ticket_start(struct lk__core *core, int64_t now_ns, struct lk__place *place);
void lk__ticket_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__ticket_leave(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__ticket_unhand(struct lk__core *core, struct lk__request *request);
void lk__ticket_end(struct lk__core *core, struct lk__ticket *ticket);
void lk__ticket_begin_again(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
struct lk__ticket *lk__ticket_find(const struct lk__core *core, const char *nonce);
uint64_t lk__core_random(struct lk__core *core);
void lk__complete(struct lk__core *core, struct lk__waiter *waiter, lk_err err, const char *text);
void lk__hold_make(struct lk__core *core, int64_t now_ns, struct lk__place *place);
void lk__hold_lose(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                   lk_lost_reason reason);
void lk__hold_free(struct lk__core *core, struct lk__hold *hold);

#endif
