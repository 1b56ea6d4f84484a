/* SPDX-License-Identifier: MIT
 * A client's state in etcd: its leases, its mailbox, its tickets.  A state machine between the
 * requests of the core and the calls of etcd, without I/O: time and what arrives are arguments, and
 * calls go out through struct lk__etcd_wire.  It outlives connections.
 *
 *   job     a request of the core.  Several calls may be necessary for it, and jobs are answered in
 *           order, as the runtime expects
 *   chore   a leave that the core has asked for and may have given up, since in its view the lease
 *           has ended: here the client's lease lives, and the ticket with it.  It is repeated over
 *           each connection until it is confirmed
 *   call    a request to etcd that has no answer yet
 *   lease   of all renewed tickets of one time to live, or of one ticket that is fixed or extended
 *   era     counts the set-ups of connections: see lock.h
 *   query   a job that is sent once, and reads: session_query.c
 *
 * With the first request that puts something, a connection gets its era and its mailbox, which is
 * watched for as long as the connection is up; then tickets are put. */
#ifndef LK__ETCD_SESSION_H
#define LK__ETCD_SESSION_H

#include "lease.h"
#include "lock.h"

#include "../base/error.h"
#include "../base/text.h"
#include "../core/table.h"

#define LK__ETCD_TTL_MIN_S 2   /* of a member with the default election timeout */
#define LK__ETCD_HOME_TTL_S 10 /* of the lease that has the era and the mailbox */

enum lk__etcd_method {
	LK__ETCD_CALL_TXN,
	LK__ETCD_CALL_GRANT,
	LK__ETCD_CALL_REVOKE,
	LK__ETCD_CALL_TIME_TO_LIVE,
	LK__ETCD_CALL_KEEP_ALIVE, /* a stream of one message and one answer */
};

/* How calls go out.  Each returns false when out of memory, and has then sent nothing. */
struct lk__etcd_wire {
	void *arg;
	bool (*call)(void *arg, uint32_t id, enum lk__etcd_method method, const void *message,
	             size_t len);
	/* Send on the stream of watches; the first one opens it. */
	bool (*watch)(void *arg, const void *message, size_t len);
};

/* What became of a call. */
struct lk__etcd_outcome {
	lk_err err;          /* LK_OK: there is an answer */
	const void *message; /* the answer */
	size_t len;
	bool retryable; /* the same call may succeed later */
	bool no_lease;  /* the lease that it names does not exist */
	bool is_full;   /* only what puts nothing is executed */
	const char *text;
};

struct lk__h2_event;
/* False: its end is unknown, so the connection has to end. */
bool lk__etcd_outcome_of(const struct lk__h2_event *event, struct lk__etcd_outcome *outcome);

struct lk__etcd_job;
struct lk__etcd_call;
struct lk__etcd_heard;
struct lk__etcd_memo;
struct lk__etcd_said;
struct lk__etcd_latch;
struct lk__etcd_notice;
struct lk__event;
struct lk__etcd_known;
struct lk__etcd_mail;

struct lk__etcd_lease {
	struct lk__etcd_lease *next;
	int64_t id, ttl_s;
	int64_t sent_ns; /* of the call that grants it */
	enum { LK__LEASE_NEW, LK__LEASE_GRANTING, LK__LEASE_LIVE } state;
	struct lk__lease machine;
	unsigned tickets; /* that are under it */
	bool is_own;      /* of one ticket */
	bool is_ended;    /* to be freed */
	bool rests;       /* that ticket holds, or will: only a request renews it */
};

struct lk__etcd_own_ticket {
	struct lk__node node; /* by nonce */
	struct lk__etcd_lease *lease;
	struct lk__etcd_lease *longer; /* to which an extension moves it, NULL = none */
	struct lk__etcd_job *busy;     /* that a call is made for, NULL = none */
	int64_t created;               /* its place, 0 = unknown */
	uint64_t era;                  /* in which it was put, 0 = unknown */
	int64_t lease_ms;              /* as the core has it */
	bool fixed;
	char kind;             /* the letter of its name's */
	uint32_t permits;      /* of a semaphore's, as it is put from now on */
	uint32_t stored;       /* and what the store may have: not less */
	int64_t granted;       /* the place that a letter has granted, 0 = none */
	int64_t broken;        /* the same, of a break that came before its place was known */
	bool is_waiting;       /* it is in the queue, and not the first */
	bool is_leaving;       /* a leave was asked for */
	bool is_moving;        /* a call moves it to another lease */
	bool is_under_another; /* lease, or perhaps: it is moved to its own before it counts */
	uint32_t watch_id;     /* of the watch of the ticket before it, 0 = none */
	bool watches_all;      /* of all before it */
	uint32_t wanted_id;    /* of the watch for tickets after it, 0 = none */
	unsigned count;        /* of next: the tickets after it, none left out */
	struct lk__etcd_ticket next[LK__ETCD_NEXT_MAX];
	char nonce[LK__NONCE_SIZE];
	size_t name_len;
	char name[];
};

struct lk__etcd_session {
	const char *prefix, *client; /* borrowed */
	struct lk__etcd_wire wire;
	enum {
		LK__ETCD_DOWN,    /* there is no connection */
		LK__ETCD_IDLE,    /* nothing was asked over it yet */
		LK__ETCD_POSTING, /* the era and the mailbox are being put */
		LK__ETCD_OPENING, /* the watch of the mailbox is being created */
		LK__ETCD_READY,
	} state;
	bool is_watching; /* the mailbox, over this connection */
	bool has_no_era;  /* the key was deleted over it, since a full store takes no other one */
	int64_t retry_ns; /* IDLE, after a refusal: not before */
	int64_t revision; /* of the store, as an answer has shown it last */
	uint64_t era;
	char era_text[LK__DECIMAL_SIZE];
	struct lk__etcd_lease *leases, *home;
	uint64_t leases_made;
	struct lk__table tickets;
	struct lk__etcd_job *jobs, **jobs_end; /* in the order of requests */
	struct lk__etcd_job *chores;
	struct lk__etcd_call *calls;
	uint32_t last_call, last_watch;
	struct lk__etcd_heard *heard, **heard_end; /* messages to the core */
	struct lk__etcd_memo *memo;                /* a queue that has to be served, NULL = none */
	struct lk__etcd_said *said;                /* details that are under the home lease */
	struct lk__etcd_latch *latches;            /* what is known of them */
	struct lk__etcd_notice *notices, **notices_end; /* events of topics; the first was taken */
	struct lk__etcd_known *known;                   /* semaphores */
	struct lk__etcd_mail *mails; /* letters about permits, to other clients */
	struct lk__etcd_job *taken;  /* whose answer was taken last, NULL = none */
	struct lk__why why;          /* of the same */
};

/* prefix and client are borrowed.  False when out of memory. */
bool lk__etcd_session_init(struct lk__etcd_session *session, const char *prefix, const char *client,
                           const struct lk__etcd_wire *wire);
void lk__etcd_session_fini(struct lk__etcd_session *session);

/* A connection is up, to any member; or it is down, and with it all requests, calls and messages.
 */
void lk__etcd_session_up(struct lk__etcd_session *session, int64_t now_ns);
void lk__etcd_session_down(struct lk__etcd_session *session);
/* The client ends: revoke its leases, and with them what it has put.  The session is then only good
 * for _down and _fini. */
void lk__etcd_session_end(struct lk__etcd_session *session);

/* What comes in.  False when out of memory: nothing was done. */
bool lk__etcd_session_request(struct lk__etcd_session *session, int64_t now_ns,
                              const struct lk__request *request);
void lk__etcd_session_outcome(struct lk__etcd_session *session, int64_t now_ns, uint32_t call,
                              const struct lk__etcd_outcome *outcome);
/* A message of the stream of watches.  False: it is malformed. */
bool lk__etcd_session_watched(struct lk__etcd_session *session, int64_t now_ns, const void *message,
                              size_t len);
/* Do what is due; when the next thing is, LK__NEVER = nothing. */
void lk__etcd_session_tick(struct lk__etcd_session *session, int64_t now_ns);
int64_t lk__etcd_session_due_ns(const struct lk__etcd_session *session);

/* What goes out to the core: the answer to the oldest request, if there is one yet, and messages.
 * The texts are valid until the next call.
 *
 * A call whose end is unknown ends the connection: it may be executed later, and only another era
 * excludes that. */
bool lk__etcd_session_answer(struct lk__etcd_session *session, struct lk__answer *answer);
/* Fill the structure of the query whose answer was taken last; NULL: its caller has returned.  It
 * may make the answer a failure. */
void lk__etcd_session_fill(struct lk__etcd_session *session, void *into, struct lk__answer *answer);
bool lk__etcd_session_message(struct lk__etcd_session *session, struct lk__message *message);

/* The topic of a latch is its key.  Subscribe to it, or end that: an event says what became of it.
 * False when out of memory. */
bool lk__etcd_session_subscribe(struct lk__etcd_session *session, const char *topic, bool on);
/* An event of a topic. */
bool lk__etcd_session_event(struct lk__etcd_session *session, struct lk__event *event);

#endif
