/* SPDX-License-Identifier: MIT
 * One link to a server: its policy (when to dial, how long to back off, when to check that the
 * server still responds, when a response is overdue), its send queue, and its subscriptions.  As in
 * core.h nothing here blocks or reads a clock: events and time are arguments, and the caller
 * performs the resulting duty. */
#ifndef LK__SESSION_H
#define LK__SESSION_H

#include "../base/error.h"
#include "channel.h"
#include "request.h"

enum lk__session_state {
	LK__SESSION_DOWN,    /* no connection; the next dial follows when it is due */
	LK__SESSION_DIALING, /* the caller dials, and reports the outcome */
	LK__SESSION_UP,
};

enum lk__duty {
	LK__DUTY_NONE,
	LK__DUTY_DIAL,    /* the state is DIALING now: dial, then report _up or _dial_failed */
	LK__DUTY_REFUSE,  /* lk__core_link_refused(): end the calls that wait for the link */
	LK__DUTY_PING,    /* send PING unless a command is in flight */
	LK__DUTY_SILENT,  /* no message since PING: the link is dead, drop it */
	LK__DUTY_OVERDUE, /* the oldest request has no response in time: drop the link */
};

struct lk__ticket;
struct lk__latch;
struct lk__query;
struct lk__session;

/* A request of a ticket, a latch, a query or a session. */
struct lk__pending {
	struct lk__pending *next; /* in its session's queue, then in the connection's list */
	union {
		struct lk__ticket *ticket;
		struct lk__latch *latch; /* LK__LOOK, LK__STEP */
		struct lk__query *query;
		struct lk__session *session; /* LK__EPOCH, LK__CONFIRM */
	};
	int64_t sent_ns;  /* dequeued, and so before any byte was sent */
	int64_t lease_ms; /* LK__RENEW, LK__RECLAIM: the new lease */
	uint8_t kind;     /* enum lk__request_kind */
	uint8_t state;    /* enum lk__pending_state */
	uint8_t heard;    /* kinds of messages that arrived since it was sent, a bit each */
	uint8_t link;     /* TO_SEND, IN_FLIGHT: the index of its session; LK__NO_LINK: of none */
	bool by_text : 1; /* the store did not know the script: send its text */
	bool claim : 1;   /* LK__RENEW: accept any fence of the grant */
	bool extends : 1; /* LK__RENEW: for the first of the extenders */
	bool shares : 1;  /* LK__ASK, LK__RENEW: reports that threads wait here behind the holder */
	/* In a Cluster (route.c): */
	bool tries : 1;   /* LK__ASK: not to be enqueued, since the inbox is not subscribed yet */
	bool narrow : 1;  /* LK__RENEW, LK__LEAVE: with the keys of the hold only */
	bool asking : 1;  /* sent once to the server that takes over the slot */
	bool ahead : 1;   /* IN_FLIGHT: the reply to ASKING comes first */
	bool doubted : 1; /* IN_FLIGHT: to a server that had lost its memory */
	/* Of an answer that is kept (confirm.c, vouch.c): */
	bool waited_for : 1; /* tickets are in the queue */
	bool more : 1;
	union {
		uint32_t permits; /* LK__SHRINK: how many the hold keeps */
		uint64_t fence;   /* of that answer */
	};
};

enum lk__pending_state { LK__IDLE, LK__TO_SEND, LK__IN_FLIGHT };

/* Requests whose grants do not count yet; their answers are kept with them. */
struct lk__kept {
	struct lk__pending *first, *last;
};

/* Whether sentinels name the link's server, as far as a client can know that was stopped: see
 * vouch.c. */
struct lk__vouch {
	int64_t ran_ns;       /* the client ran then; LK__NEVER: no sentinel names the server */
	uint32_t pauses;      /* noticed so far; after each one the sentinels are asked anew */
	bool is_doubted;      /* since the last one they have not named this server */
	bool is_alone;        /* ... and none of them can be asked: why */
	struct lk__kept kept; /* until they have */
	struct lk__why why;
};

/* How the memory that a link has found differs from the one that it knew. */
enum lk__found {
	LK__FOUND_SAME,
	LK__FOUND_FIRST,    /* it knew none */
	LK__FOUND_OTHER,    /* another process, or another server */
	LK__FOUND_PROMOTED, /* the server was a replica meanwhile, or is another one */
	LK__FOUND_EMPTY,    /* the same process without its keys */
	LK__FOUND_ENDED,    /* the grace was ended by hand */
};

/* What a link has to log. */
struct lk__news {
	uint8_t found;        /* enum lk__found */
	uint32_t reclaimed;   /* holds that were taken back */
	int64_t reclaimed_ns; /* the first of these */
	bool is_refused;      /* a renewal was, since the last one that took place: why */
	bool refusal_logged;
	struct lk__why why;
};

struct lk__session {
	struct lk__session *next;                         /* of the same core */
	struct lk__pending *send_queue, **send_queue_end; /* requests to send */
	struct lk__pending memory; /* asks for the marker of the server's memory */
	struct lk__epoch epoch;    /* its last answer */
	struct lk__news news;
	uint32_t replicas;          /* that a grant needs (confirm.c), 0 = none */
	int64_t replicas_ms;        /* how long the server waits for them */
	struct lk__pending confirm; /* the question for them */
	struct lk__kept granted;    /* until its answer */
	bool confirm_due;           /* a request that may grant was sent since the last question */
	struct lk__channels channels;
	struct lk__why why; /* why it is not up */
	uint32_t fences;    /* that one grant has for its threads, 0 = as the store's clock allows:
	                     * up to the next multiple of it */
	uint32_t users;     /* tickets and busy latches whose names are routed to it */
	int64_t connect_timeout_ns, command_timeout_ns;
	int64_t grace_ms;   /* after a loss of memory the server grants nothing new for it; 0 = none
	                     */
	int64_t ping_ns;    /* how long a silence calls for a PING */
	int64_t retry_ns;   /* DOWN: when to dial */
	int64_t backoff_ns; /* the last pause between two dials, 0 = none */
	int64_t up_ns;      /* UP: since then */
	int64_t heard_ns, pinged_ns; /* the last sign of life, the last PING */
	struct lk__vouch vouch;
	int64_t unwatched_ns; /* from then on no hold is certain: no sentinel names the master;
	                       * LK__NEVER */
	uint8_t state;        /* enum lk__session_state */
	uint8_t index;        /* of the core's sessions */
	bool loss_reported;   /* in this outage */
	bool lazy;            /* never up yet: it dials for a call only */
	bool on_demand;       /* of a Cluster: it always dials for a call only */
	bool topology_asked;  /* the question for the topology has no answer yet */
	uint32_t users_left;  /* lazy: holds and leaves, which the last refusal did not end */
	/* Of a quorum: */
	const char *name;       /* host and port, for explanations; NULL = its number */
	char set[LK__SET_TEXT]; /* the part of the marker to write, "" = none */
	int64_t marked_ns;      /* when that was asked for */
	int64_t clock_us;       /* the server's clock as last answered, at clock_ns of ours */
	int64_t clock_ns;
	int64_t memory_ns;     /* when the marker was read last */
	int64_t memory_try_ns; /* when it was asked for last */
};

/* Initialize: DOWN, and due to dial at once; if lazy is set then, at the first call that needs the
 * link.  lk__core_add_session() does the rest. */
void lk__session_init(struct lk__session *session, int64_t connect_timeout_ns,
                      int64_t command_timeout_ns);
/* From now on that many replicas must confirm a grant, 0 = none. */
void lk__session_need_replicas(struct lk__session *session, uint32_t replicas);
/* Check a silent link within a third of this lease, if that is sooner than now. */
void lk__session_mind_lease(struct lk__session *session, int64_t lease_ms);

/* Can requests be answered, and do messages arrive? */
static inline bool lk__session_is_up(const struct lk__session *session)
{
	return session->state == LK__SESSION_UP;
}

/* When lk__session_next() has a duty, LK__NEVER if only an event can bring one.  An idle link,
 * without users, is not checked.  oldest_ns: when the oldest request without a response was sent,
 * LK__NEVER if there is none. */
int64_t lk__session_due(const struct lk__session *session, int64_t oldest_ns);
/* The next due duty; call again until there is none. */
enum lk__duty lk__session_next(struct lk__session *session, int64_t now_ns, int64_t oldest_ns);
/* When a request that was sent at oldest_ns becomes overdue. */
int64_t lk__session_overdue_ns(const struct lk__session *session, int64_t oldest_ns);

/* The caller dials by itself, whether or not a dial was due. */
void lk__session_dial(struct lk__session *session);
/* The link is up.  Called by lk__core_link_up(). */
void lk__session_up(struct lk__session *session, int64_t now_ns);
/* LK__DUTY_REFUSE was performed.  Called by lk__core_link_refused(). */
void lk__session_refused(struct lk__session *session);
/* random: any number; jitter for clients that lost one server together. */
void lk__session_dial_failed(struct lk__session *session, int64_t now_ns, const struct lk__why *why,
                             uint64_t random);
/* The link is down.  Called by lk__core_link_down(). */
void lk__session_down(struct lk__session *session, int64_t now_ns, uint64_t random);
/* A message, or the response to a PING, has arrived. */
void lk__session_heard(struct lk__session *session, int64_t now_ns);
/* An idle client begins to wait: its silence until now was no sign of a dead link. */
void lk__session_wakes(struct lk__session *session, int64_t now_ns);
/* The error for a call whose requests were not sent: the reason why the link is down, or LK_ECONN.
 * Never LK_EUNKNOWN, since nothing can have happened. */
lk_err lk__session_unasked(const struct lk__session *session);
/* DOWN: did the last dial fail for a reason that waiting cannot cure? */
bool lk__session_is_refused(const struct lk__session *session);
/* True once in each outage: log the loss. */
bool lk__session_report_loss(struct lk__session *session);

/* *suspended_ns: how long the machine has been suspended, by two clocks of which only one counts
 * that time.  True if it was suspended since the last call: condition variables and poll() did not
 * count that time, so all sleepers must check the clock. */
bool lk__suspend_noticed(int64_t *suspended_ns, int64_t now_ns, int64_t awake_ns);

#endif
