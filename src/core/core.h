/* SPDX-License-Identifier: MIT
 * The state machine of waits and holds.  Nothing here blocks, reads a clock, starts a thread or
 * touches a socket: time and events are arguments, requests and completions come out, and the
 * caller's one mutex guards everything.  Callers supply the memory that later events may need, so
 * that no event can fail for lack of it.
 *
 *   name        a lock, semaphore or latch by its name; has wait queues and holds
 *   wait queue  the waiters of this client that share a ticket in the store: for a lock all those
 *               with the same lease, fixed or renewed; for permits each wait has its own
 *   ticket      one wait and the hold that it becomes, in the store
 *   hold        one ownership in this process, from grant to release
 *   op          a call in progress (op.h): in a wait queue, a waiter */
#ifndef LK__CORE_H
#define LK__CORE_H

#include "../base/error.h"
#include "channel.h"
#include "heap.h"
#include "op.h"
#include "request.h"
#include "route.h"
#include "session.h"
#include "table.h"

#define LK__HANDOVERS_MAX 16     /* between threads, while another process waits */
#define LK__REASK_MAX_MS 10000   /* a waiter asks again at least this often */
#define LK__COUNT_MAX 0x7fffffff /* re-entries, permits */
#define LK__GHOSTS_MAX 64        /* ended waits that are remembered */
#define LK__UNCONFIRMED_MAX 1000 /* limit of tickets whose refused leave is repeated */

struct lk__core;
struct lk__hold;
struct lk__legs;
struct lk__quorum;

struct lk__name {
	struct lk__node node;
	struct lk__session *session; /* its route: the link for its requests */
	struct lk__inbox *inbox;     /* in a Cluster, else NULL */
	struct lk__wait_queue *queues;
	struct lk__hold *holds;
	struct lk__latch *latch; /* NULL unless it is a latch */
	uint32_t refs;           /* references: its wait queues, and a busy latch */
	uint16_t len;
	uint8_t kind; /* lk_kind */
	char bytes[];
};

struct lk__wait_queue {
	struct lk__name *name;
	struct lk__wait_queue *next;
	struct lk__op *first, *last; /* waiters */
	struct lk__ticket *ticket;   /* theirs, or the hold's; NULL if there is neither */
	struct lk__hold *hold;       /* the valid one, NULL if none */
	int64_t lease_ms;
	int64_t ttl_ms;    /* of a semaphore without holds */
	uint32_t capacity; /* for a semaphore that has to be created */
	uint32_t permits;  /* wanted; 0 = a lock's, or a handle's */
	uint32_t refs;     /* handles and tickets */
	bool fixed;        /* its lease is not renewed */
	bool by_default;   /* no caller has chosen the lease: a quorum may cut it */
	bool final;        /* its permits are never released: only the grant counts */
};

/* Before HOLDING, calls wait for the ticket in its wait queue: it ends with the last of them. */
enum lk__ticket_state {
	LK__ASKING,   /* the store has not responded yet */
	LK__WAITING,  /* is in the queue */
	LK__CLAIMING, /* granted by a message, to be claimed */
	LK__HOLDING,
	LK__LEAVING, /* its end is unconfirmed (leave.c); its queue may have another ticket */
	LK__SERVING, /* ended, or final; the head of the queue still has to be served */
	LK__OVER,    /* kept only for a response that is still in flight */
};

struct lk__ticket {
	struct lk__timer timer; /* first: a due timer is its ticket */
	struct lk__node node;   /* by nonce */
	struct lk__ticket *next, *prev;
	struct lk__session *session; /* the name's route; NULL: it has legs */
	struct lk__wait_queue *queue;
	struct lk__legs *legs;  /* of a ticket of a quorum, else NULL: quorum.h */
	struct lk__op *leavers; /* calls that wait for its end, or a partial release */
	union {
		struct lk__op *extenders; /* calls that each wait for a renewal, in order */
		struct lk__ticket *whole; /* of a leg: see lk__ticket_whole() */
	};
	int64_t next_ns;        /* when to send the request of its state, LK__NEVER */
	int64_t first_sent_ns;  /* its first ask, 0 = none yet */
	int64_t valid_until_ns; /* of the hold, also while LEAVING */
	int64_t grace_from_ns;  /* waiting: when the store first answered that it is in a grace */
	int64_t grace_until_ns; /* the end of that grace */
	int64_t store_us;       /* the store's clock */
	union {
		int64_t store_us_ns;    /* our clock when store_us arrived */
		int64_t leave_until_ns; /* LEAVING, SERVING: the end of retries */
	};
	uint64_t fence, last_fence; /* of the grant; the last one issued here */
	uint64_t arrival;
	struct lk__pending main, leave;
	uint32_t hand_overs : 16; /* that count towards the limit */
	uint32_t hops : 8;        /* consecutive redirections, up to a limit */
	/* Flags of a leg, here for the sake of the size. */
	bool is_leg : 1;     /* the part of a quorum's ticket on one server */
	bool is_busy : 1;    /* a leg's try has found it held */
	bool is_refused : 1; /* the server refuses the leg for good */
	bool is_minor : 1;   /* a majority of the other legs has ended: its end needs no caller */
	bool yields : 1;     /* a leg's last epoch is to be ended, and this one enqueued */
	uint32_t permits;    /* of its hold, as confirmed by the store; 0 = a lock's */
	uint16_t leaves_sent;
	uint16_t epoch; /* of a leg */
	char nonce[LK__NONCE_SIZE];
	uint8_t state : 4;    /* enum lk__ticket_state */
	uint8_t hands : 4;    /* heads of the queue served while it waits */
	uint8_t refusals : 3; /* consecutive errors, up to a limit */
	uint8_t refusal : 5;  /* the last one: lk_err */
	/* Flags; docs/protocol.md lists them, and those above, too. */
	bool is_try : 1;             /* its asks are tries: the store does not enqueue it */
	bool has_spare_nonce : 1;    /* the store says so: is_spare */
	bool may_be_known : 1;       /* to the store: at least one ask may have succeeded */
	bool granted_by_message : 1; /* and not handed over to another thread since */
	bool is_shared : 1;          /* the store knows that threads of this process wait, too */
	bool is_wanted : 1;          /* another process waits, as far as this client knows */
	bool renewal_failed : 1;     /* the last renewal was answered with an error */
	bool head_unserved : 1;      /* the head of the queue might be granted: serve it first */
	bool released : 1;           /* by its owner: if its leave finds nothing, it was lost */
	bool leave_refused : 1;      /* none confirmed since; see core->unconfirmed */
	bool is_forgotten : 1; /* the server has another memory than at its grant: reclaim the hold
	                        */
	bool is_doubted : 1;   /* the server does not have the hold: has it lost its memory? */
	bool outlasts_grace : 1; /* a renewal or an extension gave it a lease longer than the grace
	                          */
	bool uses_inbox : 1;     /* in a Cluster: it needs messages on the name's channel */
	bool is_divided : 1;     /* its keys are on two servers: the last renewal was narrow */
};

/* The ticket of the quorum to which that leg belongs; NULL: it has ended, or this is no leg. */
static inline struct lk__ticket *lk__ticket_whole(const struct lk__ticket *ticket)
{
	return ticket->is_leg ? ticket->whole : NULL;
}

struct lk__hold {
	struct lk__hold *next_of_name;
	struct lk__hold *next, *prev; /* all of the client */
	struct lk__hold *next_lost;
	void *handle;   /* through which it was acquired */
	uint64_t owner; /* of permits: their fence */
	struct lk__name *name;
	struct lk__ticket *ticket; /* NULL once lost */
	uint64_t fence;
	int64_t since_ns;
	int64_t max_until_ns; /* LK__NEVER */
	uint32_t count;       /* acquisitions, or permits */
	uint8_t lost;         /* lk_lost_reason, 0 = not lost */
	bool loss_reported;   /* the loss was reported, or needs no report */
	bool released;        /* by its owner; freed once the loss was reported */
};

/* One count-down of a latch. */
struct lk__step {
	struct lk__step *next;
	struct lk__op *waiter; /* NULL: the call has returned, and the step continues */
	uint64_t number;       /* new for each, 0 = none yet */
	uint64_t generation;   /* of the last time it was sent */
	uint64_t joined;       /* asks sent before it was queued */
	uint32_t n;
	bool may_be_counted; /* it was sent, without a response */
	uint16_t len;
	char name[LK_STEP_MAX]; /* len bytes, 0 = none */
};

/* One latch in this client: its waiters, its steps, one request of each kind. */
struct lk__latch {
	struct lk__timer timer; /* first: a due timer is its latch */
	struct lk__name *name;
	struct lk__latch *next, *prev; /* list of busy latches */
	struct lk__channel *channel;
	struct lk__channels *channels; /* of the link where it is */
	struct lk__op *first, *last;   /* waiters */
	struct lk__step *steps, **steps_end;
	struct lk__pending ask, down;
	int64_t ask_ns, step_ns;  /* when to send them, LK__NEVER */
	uint64_t generation;      /* from the last answer, 0 = absent or unknown */
	int64_t known_ns;         /* the time of that answer */
	uint64_t asks;            /* sent so far */
	uint64_t answered;        /* the last of them with an answer */
	uint64_t confirmed;       /* asks sent before the channel was confirmed */
	bool busy, using_channel; /* busy: it references the name, and is in the core's list */
	bool heard;               /* an answer arrived since the link came up */
	uint8_t hops;             /* consecutive redirections, up to a limit */
	struct lk__why trouble;   /* why the last request failed, if it will be repeated */
};

/* The last waits that have ended: see ghosts.c. */
struct lk__ghosts {
	struct lk__ghost {
		struct lk__name *name; /* NULL = none, or it was freed */
		char nonce[LK__NONCE_SIZE];
	} ring[LK__GHOSTS_MAX];
	unsigned next; /* to be replaced */
};

#define LK__SPARES_MAX 4 /* nonces of tickets that have left: see is_spare */

struct lk__core {
	struct lk__table names, tickets;
	struct lk__heap timers;
	struct lk__heap op_timers;  /* deadlines; see op.h */
	int64_t command_timeout_ns; /* LK__NEVER = only waits have a deadline */
	const char *server;         /* its name in error texts */
	struct lk__ticket *all_tickets;
	struct lk__hold *all_holds;
	struct lk__op *done, **done_end;
	struct lk__hold *lost, **lost_end;
	struct lk__session *sessions;             /* links; each name has one as its route */
	struct lk__session *links[LK__NODES_MAX]; /* the same by index */
	unsigned link_count;
	struct lk__route *route;   /* of a Cluster, else NULL */
	struct lk__quorum *quorum; /* of a quorum, else NULL */
	struct lk_counters counters;
	struct lk__heap latch_timers;
	struct lk__latch *latches; /* list of busy latches */
	struct lk__query *queries; /* those without a response */
	struct lk__ghosts ghosts;
	struct lk__spares {
		char nonces[LK__SPARES_MAX][LK__NONCE_SIZE];
		unsigned count;
	} spares;
	uint64_t step_number; /* the last one assigned */
	int64_t seen_ns;      /* the time of the last tick or answer */
	uint64_t random;
	uint32_t unconfirmed;              /* tickets with leave_refused */
	bool closing;                      /* every wait ends, no new one begins */
	bool leave_given_up;               /* closing: a refused leave was not repeated */
	bool has_news;                     /* a session may have something to log */
	struct lk__topology *topology;     /* that arrived last, NULL = taken */
	struct lk__session *topology_from; /* over that link */
	struct lk__why refusal;            /* the latest error in an answer to a ticket */
};

/* ---- Life (core.c) ------------------------------------------------------------------------ */

bool lk__core_init(struct lk__core *core, uint64_t seed);
/* Frees the rest, in any state; the sessions belong to their owner. */
void lk__core_fini(struct lk__core *core);
/* Add a link, after lk__session_init().  False when out of memory, or there are LK__NODES_MAX. */
bool lk__core_add_session(struct lk__core *core, struct lk__session *session);

struct lk__name *lk__name_new(lk_kind kind, const char *bytes, size_t len);
struct lk__wait_queue *lk__wait_queue_new(int64_t lease_ms, bool fixed);
/* The wait queue for that name and kind; frees an argument if there is one already.  session: the
 * name's route, always the same one for the same name. */
struct lk__wait_queue *lk__wait_queue_open(struct lk__core *core, struct lk__session *session,
                                           struct lk__name *name, struct lk__wait_queue *queue);
/* Drop a reference to a name. */
void lk__name_close(struct lk__core *core, struct lk__name *name);
/* Is there a wait, a hold, or an unsettled step? */
bool lk__core_busy(const struct lk__core *core);
/* Is a request queued? */
bool lk__core_has_requests(const struct lk__core *core);
/* Is a step of a latch unsettled? */
bool lk__core_stepping(const struct lk__core *core);
/* May the store still have a ticket, as a hold whose lease had not expired at since_ns or in a
 * queue, unless a leave is confirmed? */
bool lk__core_unconfirmed(const struct lk__core *core, int64_t since_ns);
/* Drop a reference to a queue; a closing handle must have no waiter or hold left. */
void lk__wait_queue_close(struct lk__core *core, struct lk__wait_queue *queue);

/* ---- Calls (call.c).  op->done is set at once or later; see lk__core_next_done(). ----- */

/* Acquire once more, or release one of several acquisitions: sends no request and needs no waiter.
 * 0 (false), without effect, if the owner's hold is not certain or that is not enough.  A re-entry
 * returns the hold's fence. */
uint64_t lk__core_reenter(struct lk__core *core, int64_t now_ns, const struct lk__name *name,
                          uint64_t owner);
bool lk__core_unenter(int64_t now_ns, const struct lk__name *name, uint64_t owner);
void lk__core_acquire(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* The same for permits; the op's queue is the handle's, and is replaced by one of its own. */
void lk__core_acquire_permits(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
void lk__core_release(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* Release waiter->permits of the hold with that owner, 0 = all. */
void lk__core_release_permits(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
void lk__core_extend(struct lk__core *core, int64_t now_ns, struct lk__op *waiter);
/* op.c: end a wait with LK_ETIMEDOUT, LK_ECANCELED or LK_ECLOSED, at once or when the store
 * confirms; within one command timeout. */
void lk__core_give_up(struct lk__core *core, int64_t now_ns, struct lk__op *op, lk_err why);
/* The caller stops waiting: done is set on return. */
void lk__core_abandon(struct lk__core *core, int64_t now_ns, struct lk__op *op);
/* End every wait on the handle. */
void lk__core_cancel(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle,
                     lk_err why);
/* Release everything acquired through the handle, and drop losses not yet reported. */
void lk__core_drop(struct lk__core *core, int64_t now_ns, struct lk__name *name, void *handle);
void lk__core_thread_ended(struct lk__core *core, int64_t now_ns, uint64_t owner);
/* End every wait with LK_ECLOSED, release every hold. */
void lk__core_close(struct lk__core *core, int64_t now_ns);

/* The owner's hold on the name, NULL if none. */
struct lk__hold *lk__core_hold(const struct lk__name *name, uint64_t owner);
lk_state lk__hold_state(const struct lk__hold *hold, int64_t now_ns);
int64_t lk__hold_left_ns(const struct lk__hold *hold, int64_t now_ns);
/* Fill in everything but the id, which only the client knows. */
void lk__hold_snapshot(const struct lk__hold *hold, int64_t now_ns, lk_hold *snapshot);

/* ---- Events (core.c, answer.c, message.c) ------------------------------------------------- */

void lk__core_link_up(struct lk__core *core, struct lk__session *session, int64_t now_ns);
/* Requests in flight over that link will have no response.  random: see
 * lk__session_dial_failed(). */
void lk__core_link_down(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                        const struct lk__why *why, uint64_t random);
/* The marker of the server's memory, as read by a dial or in an answer: lk__core_link_up() follows
 * a dial.  If it is another one than before, holds that are still valid are reclaimed. */
void lk__core_memory(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                     const struct lk__epoch *epoch);
/* How much of the grace is left at a time of the store's clock. */
int64_t lk__grace_left_ms(const struct lk__epoch *epoch, int64_t store_us, int64_t grace_ms);
/* vouch.c, of a link to a server that sentinels name.  The sentinels are asked for a dial. */
void lk__vouch_begin(struct lk__session *session, int64_t now_ns);
/* After a pause they have named the server again; none of them can be asked. */
void lk__core_vouched(struct lk__core *core, struct lk__session *session, int64_t now_ns);
void lk__core_unvouched(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                        const struct lk__why *why);
/* LK__DUTY_REFUSE: end every call that waits for that link, with the reason why it is down. */
void lk__core_link_refused(struct lk__core *core, struct lk__session *session, int64_t now_ns);
/* Is it a latch's?  Otherwise it is a ticket's, or a query's. */
bool lk__pending_is_latch(const struct lk__pending *pending);
void lk__core_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *pending,
                     const struct lk__answer *answer);
/* message->from: NULL = any link. */
void lk__core_message(struct lk__core *core, int64_t now_ns, const struct lk__message *message);
void lk__core_tick(struct lk__core *core, int64_t now_ns);
/* When to tick next, LK__NEVER.  Excludes deadlines of ops: their threads tick for them. */
int64_t lk__core_due(const struct lk__core *core);

/* The next request to send over a link, in order; it is then in flight.  NULL if none. */
struct lk__pending *lk__core_next_request(struct lk__core *core, struct lk__session *session,
                                          int64_t now_ns);
/* Describe a request as a value, which borrows memory until the answer. */
void lk__core_request(const struct lk__pending *pending, struct lk__request *request);
/* The structure that the answer fills, NULL if none. */
void *lk__core_into(const struct lk__pending *pending);
/* The waiter that the answer will end or advance, NULL if none or unknown. */
struct lk__op *lk__core_asker(const struct lk__pending *pending);
/* A response will end or advance this wait; only a response or its deadline will; a message may. */
bool lk__op_expects_response(const struct lk__op *waiter);
bool lk__op_is_patient(const struct lk__op *waiter);
bool lk__op_expects_message(const struct lk__op *waiter);
/* The store did not run it: put it first in the queue again.  False when it is not needed any
 * more. */
bool lk__core_resend(struct lk__core *core, struct lk__pending *pending);
/* The next completed op, each once. */
struct lk__op *lk__core_next_done(struct lk__core *core);
/* The next loss to report, each once; return it with lk__core_loss_reported(). */
struct lk__hold *lk__core_next_lost(struct lk__core *core);
void lk__core_loss_reported(struct lk__hold *hold);

/* A message of that kind arrived while the request was in flight: its answer may be older. */
bool lk__pending_heard(const struct lk__pending *pending, enum lk__message_kind kind);
/* The ticket's identity in the store. */
struct lk__ticket_id lk__ticket_id(const struct lk__ticket *ticket);
/* The part of a lease that is not trusted, for the drift between two clocks. */
int64_t lk__margin_ns(int64_t lease_ms);

/* ---- Between these files ---------------------------------------------------------- */

void lk__ticket_start(struct lk__core *core, int64_t now_ns, struct lk__wait_queue *queue);
void lk__ticket_pursue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__ticket_leave(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* Its request had no answer that counts: send what its state needs, now. */
void lk__ticket_resume(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* decide.c.  Granted: make a hold for the first waiter. */
void lk__ticket_take(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     uint64_t fence, int64_t store_us, int64_t waiting);
/* End its calls with the server's error, and let it leave. */
void lk__ticket_fail(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     const struct lk__answer *answer);
/* End its calls with that error, and let it leave. */
void lk__ticket_refuse(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket, lk_err err,
                       const char *text);
/* The store reports that the hold has ended. */
void lk__ticket_lose(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     lk_lost_reason reason);
/* The tries of its calls found the name held. */
void lk__decide_busy(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                     const struct lk__answer *answer);
/* A leave was answered: complete the calls that wait for it. */
void lk__decide_left(struct lk__core *core, struct lk__ticket *ticket,
                     const struct lk__answer *answer);
/* Complete a call whose wait is confirmed to have ended. */
void lk__complete_ended(struct lk__core *core, struct lk__op *op);
/* Enqueue a request; dequeue it if it is queued. */
void lk__pending_enqueue(struct lk__session *session, struct lk__pending *pending);
void lk__pending_dequeue(const struct lk__core *core, struct lk__pending *pending);
/* The link was lost, with the request if it was sent or queued there.  False if it was not. */
bool lk__pending_drop(const struct lk__core *core, const struct lk__session *session,
                      struct lk__pending *pending);
void lk__ticket_end(struct lk__core *core, struct lk__ticket *ticket);
/* memory.c: ask for the marker of the server's memory. */
void lk__memory_ask(struct lk__session *session);
/* In a Cluster: is the marker not known for sure any more?  When to ask for it, LK__NEVER. */
bool lk__memory_is_old(const struct lk__core *core, const struct lk__session *session,
                       int64_t now_ns);
int64_t lk__memory_due(const struct lk__core *core, const struct lk__session *session);
void lk__memory_answer(struct lk__core *core, int64_t now_ns, struct lk__session *session,
                       const struct lk__answer *answer);
/* A hold was taken back. */
void lk__memory_reclaimed(struct lk__core *core, int64_t now_ns, const struct lk__ticket *ticket,
                          const struct lk__answer *answer);
/* A request of the ticket was for another memory: send it again once the marker is known. */
void lk__ticket_stale(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* The store does not have the hold: it was taken, unless the server has lost its memory. */
void lk__ticket_doubt(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* confirm.c: may its answer make or prolong a hold of a ticket that is not over?  Keep that answer,
 * which is such a grant; what was kept. */
bool lk__pending_makes_hold(const struct lk__pending *request);
void lk__kept_add(struct lk__kept *kept, int64_t now_ns, struct lk__pending *request,
                  const struct lk__answer *answer);
struct lk__answer lk__kept_answer(const struct lk__pending *request);
/* The next request to send, then the question behind those that replicas must confirm; NULL. */
struct lk__pending *lk__confirm_next(struct lk__session *session);
/* Keep the answer of such a request until the replicas of its server have confirmed it.  False if
 * it counts as it is. */
bool lk__confirm_keep(const struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                      const struct lk__answer *answer);
void lk__confirm_answer(struct lk__core *core, int64_t now_ns, struct lk__session *session,
                        const struct lk__answer *answer);
/* The link is down: there will be no answer. */
void lk__confirm_forget(const struct lk__core *core, struct lk__session *session);
/* vouch.c: the client runs.  When it must run again, LK__NEVER. */
void lk__vouch_run(struct lk__session *session, int64_t now_ns);
int64_t lk__vouch_due(const struct lk__session *session);
/* A request of a ticket has that answer, unless it must be kept until sentinels name the server. */
void lk__vouch_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                      const struct lk__answer *answer);
/* The link is down: what was kept does not count. */
void lk__vouch_forget(struct lk__session *session);
/* ghosts.c: the ticket ends, or gets another nonce.  A message is for none of the tickets. */
void lk__ghost_note(struct lk__core *core, const struct lk__ticket *ticket);
void lk__ghost_message(struct lk__core *core, int64_t now_ns, const struct lk__message *message);
/* The name is freed. */
void lk__ghosts_forget(struct lk__core *core, const struct lk__name *name);
/* A ticket of an ended wait comes back, to leave.  Takes queue and ticket, which are zeroed but for
 * the ticket's identity. */
void lk__ticket_raise(struct lk__core *core, int64_t now_ns, struct lk__name *name,
                      struct lk__wait_queue *queue, struct lk__ticket *ticket, const char *nonce);
/* answer.c: a request of a ticket that is not over has that answer. */
void lk__ticket_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                       const struct lk__answer *answer);
/* pending.c: can the request's script return this answer? */
bool lk__pending_fits(const struct lk__pending *request, const struct lk__answer *answer);
/* leave.c */
void lk__refusal_note(struct lk__core *core, struct lk__ticket *ticket,
                      const struct lk__answer *answer);
bool lk__ticket_is_unknown(const struct lk__ticket *ticket);
/* The grant was used, without a hold: no leave may end it. */
bool lk__ticket_is_used(const struct lk__ticket *ticket);
void lk__leave_begin(int64_t now_ns, struct lk__ticket *ticket);
bool lk__ticket_matters(const struct lk__ticket *ticket, int64_t since_ns);
void lk__leave_refused(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                       const struct lk__answer *answer);
bool lk__leave_shows_loss(const struct lk__ticket *ticket, const struct lk__answer *answer);
bool lk__leave_confirmed(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                         const struct lk__answer *answer);
bool lk__ticket_is_leaving(const struct lk__ticket *ticket);
bool lk__ticket_has_lapsed(const struct lk__ticket *ticket);
bool lk__leave_is_overdue(const struct lk__ticket *ticket, int64_t now_ns);
void lk__leave_now(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__leave_ghosts(struct lk__core *core, int64_t now_ns, const struct lk__ticket *waiter);
void lk__leave_close(struct lk__core *core, int64_t now_ns);
void lk__leave_forget(struct lk__core *core, struct lk__ticket *ticket);
int64_t lk__refusal_retry_ns(const struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                             const struct lk__answer *answer);
/* divided.c: when to repeat a request whose keys are on two servers. */
int64_t lk__divided_retry_ns(int64_t now_ns, struct lk__ticket *ticket);
/* Is the request to be sent with the keys of the hold only?  Send it. */
bool lk__divided_narrows(const struct lk__ticket *ticket, const struct lk__pending *request,
                         const struct lk__answer *answer);
void lk__divided_narrow(struct lk__ticket *ticket, struct lk__pending *request);
/* HOLDING: the store has not confirmed the release of some permits. */
bool lk__ticket_is_shrinking(const struct lk__ticket *ticket);
/* When its hold is to be renewed next, LK__NEVER; when it has a request to send. */
int64_t lk__ticket_renewal_ns(const struct lk__ticket *ticket);
int64_t lk__ticket_next_ns(const struct lk__ticket *ticket, int64_t now_ns);
/* It has ended, but the head of the queue must still be served. */
void lk__ticket_serve(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
void lk__ticket_restart(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket);
/* The leg or ticket of that nonce at the server of that link (NULL: any). */
struct lk__ticket *lk__ticket_find_at(const struct lk__core *core, const char *nonce,
                                      const struct lk__session *session);
struct lk__ticket *lk__ticket_find(const struct lk__core *core, const char *nonce);
uint64_t lk__core_random(struct lk__core *core);
/* Make a new nonce.  Add a ticket that has one to the lists of the core. */
void lk__nonce_new(struct lk__core *core, char nonce[LK__NONCE_SIZE]);
void lk__ticket_add(struct lk__core *core, struct lk__ticket *ticket);
/* Queue the request of that kind, with what the ticket's state gives it. */
void lk__ticket_enqueue(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket,
                        struct lk__pending *request, enum lk__request_kind kind);
/* The first call that waits for an extension of its hold. */
struct lk__op *lk__ticket_extender(const struct lk__ticket *ticket);
void lk__hold_make(struct lk__core *core, int64_t now_ns, struct lk__wait_queue *queue);
struct lk__op *lk__wait_queue_pop(struct lk__wait_queue *queue);
void lk__hold_lose(struct lk__core *core, int64_t now_ns, struct lk__hold *hold,
                   lk_lost_reason reason);
void lk__hold_free(struct lk__core *core, struct lk__hold *hold);
/* The owner has released it. */
void lk__hold_retire(struct lk__core *core, struct lk__hold *hold);
/* Lose it if its time is over; hold may be NULL. */
void lk__hold_expire(struct lk__core *core, int64_t now_ns, struct lk__hold *hold);

#endif
