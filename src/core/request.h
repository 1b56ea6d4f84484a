/* SPDX-License-Identifier: MIT
 * The values that cross the seam: requests, answers, messages.  A store turns them into bytes and
 * back.  It knows nothing of the state machines, and they know nothing of its bytes. */
#ifndef LK__REQUEST_H
#define LK__REQUEST_H

#include "../base/slot.h"

#include <latchkey.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK__NONCE_SIZE 12 /* 11 characters and a NUL */

#define LK__QUEUE_LIFE_MS 30000    /* of a queue without asks */
#define LK__HEAD_PATIENCE_MS 21000 /* for a silent head of the queue: two re-asks */

struct lk__session;

enum lk__request_kind {
	LK__ASK,     /* acquire, or enqueue */
	LK__LEAVE,   /* end a wait or a hold, serve the queue */
	LK__HAND,    /* serve the queue of a free name */
	LK__YIELD,   /* of a quorum: end an epoch, enqueue the next one, serve the queue */
	LK__RENEW,   /* renew or extend a hold, or claim a grant */
	LK__SHRINK,  /* release some permits of a hold, serve the queue */
	LK__LOOK,    /* get a latch's state */
	LK__STEP,    /* count a latch down */
	LK__RECLAIM, /* take a hold back that the server has forgotten */
	LK__EPOCH,   /* get the marker of the server's memory */
	LK__CONFIRM, /* count the replicas that have what this connection wrote */
	/* Queries, sent once each: */
	LK__SHOW,      /* get holders and waiters, or a latch's state */
	LK__DESCRIBE,  /* get the published details of a client */
	LK__BREAK,     /* end the hold of another client */
	LK__SIZE,      /* set a semaphore's capacity */
	LK__SET,       /* set or reset a latch */
	LK__REMOVE,    /* remove a latch */
	LK__KIND,      /* get the kind of a name */
	LK__LIST,      /* list the names */
	LK__INTRODUCE, /* publish the details of this client */
	LK__FORGET,    /* remove them */
	LK__RECALL,    /* get the marker of the server's memory, for the caller */
	LK__END_GRACE, /* end the grace of that memory */
	LK__TOPOLOGY,  /* get the masters of a Cluster, and their slots */
	LK__PING,
};

static inline bool lk__is_query(uint8_t kind)
{
	return kind >= LK__SHOW;
}

#define LK__EPOCH_SIZE 168
#define LK__SET_SIZE 24 /* the id of a quorum's set of servers, and a NUL */
#define LK__SET_TEXT 64 /* "<set id> <i>/<N> <W ms>", and a NUL */

/* What a server remembers without a gap, and since when.  Nothing new is granted for a grace after
 * that moment: an earlier memory may have granted it, and forgotten. */
struct lk__epoch {
	int64_t since_us;   /* the store's clock; 0 = ended by hand, or no grace needed */
	int64_t read_us;    /* when it was read, by that clock */
	int64_t unheld_pid; /* a server's process that began when nothing was held, 0 = unknown */
	bool is_partial;    /* INFO is refused: only the loss of the marker shows a loss */
	/* Of a member of a quorum: */
	char set[LK__SET_SIZE]; /* id of its set of servers, "" = not a member */
	uint8_t set_servers;    /* how many there are */
	uint8_t set_place;      /* which of them this is, from 1 on; 0 = unknown */
	int64_t longest_ms;     /* the longest lease: for so long it is young after a loss */
	uint8_t len;            /* of the text, 0 = unknown */
	char text[LK__EPOCH_SIZE];
};

/* A ticket's identity in the store. */
struct lk__ticket_id {
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms;
	uint32_t permits; /* 0 = a lock's */
	bool fixed;
	bool final; /* never released: its grant is for the whole lease at once */
	/* Of a leg, a ticket's part on one server of a quorum: */
	uint64_t priority; /* its place in the queue, the same on all servers; 0 = not a leg */
	uint16_t epoch;    /* counts its yields */
};

/* One request.  Its pointers are borrowed until it has been encoded. */
struct lk__request {
	uint8_t kind; /* enum lk__request_kind */
	uint8_t noun; /* lk_kind of the name */
	bool by_text; /* the store did not know the script: send its text */
	bool narrow;  /* LK__RENEW, LK__LEAVE: only by the keys that exist while it is held */
	bool asking;  /* the server imports the slot, and must serve it all the same */
	uint16_t name_len;
	const char *name;
	struct lk__ticket_id ticket;   /* all but LK__HAND, LK__LOOK, LK__STEP */
	const struct lk__epoch *epoch; /* the memory that the link knows */
	/* LK__EPOCH, LK__RECALL, LK__END_GRACE: its marker's key, NULL = that of a single server */
	const char *marker;
	/* LK__EPOCH: other markers that were found there; one of the same memory vouches for it */
	const char *const *vouchers;
	int voucher_count;
	/* LK__EPOCH, LK__RECALL of a quorum: the part of the marker in brackets, to be written
	 * unless it is there; the memory then begins.  NULL = leave it as it is. */
	const char *set;
	bool set_is_new; /* the server has no set: it need not be young if it is empty */
	bool quorum;     /* the link leads to a member of a quorum */
	/* LK__ASK, LK__LEAVE, LK__HAND, LK__YIELD of a quorum: the least fence of a grant, within
	 * limits that the server's clock sets */
	uint64_t proposal;
	/* LK__ASK */
	bool only_try;
	uint64_t arrival; /* from an earlier answer, 0 = none */
	/* LK__ASK, LK__RECLAIM */
	uint32_t capacity; /* for a semaphore that has to be created */
	int64_t ttl_ms;    /* of a semaphore without holds */
	/* LK__ASK, LK__RENEW, LK__RECLAIM */
	bool share; /* threads wait behind the holder: notify it of waiters elsewhere */
	/* LK__RENEW: 0 = a claim, any fence.  LK__LEAVE: of a used grant, which stays, 0 = none. */
	uint64_t fence;
	/* LK__RENEW, LK__RECLAIM; 0, of a quorum: the lease stays */
	int64_t lease_ms;
	bool extends; /* LK__RENEW: a call waits for it; the lease begins with this request */
	/* LK__RENEW, LK__RECLAIM, LK__LEAVE of a lock */
	uint64_t last_fence; /* issued by the client itself; LK__RENEW of a quorum: raise the
	                      * counter to it, 0 = do not */
	/* LK__SHRINK, LK__RECLAIM */
	uint32_t keep; /* how many permits the hold keeps */
	/* LK__STEP */
	uint64_t generation, number;
	uint32_t n;
	bool is_repeated; /* it may have been counted already */
	uint16_t step_len, topic_len;
	const char *step;  /* its name, step_len bytes, 0 = none */
	const char *topic; /* of the latch */
	/* LK__CONFIRM */
	uint32_t replicas;
	int64_t wait_ms;
	/* Queries. */
	const struct lk__details *details;
};

#define LK__ID_SIZE 80 /* of a hold or a wait, as in the store */

/* The further arguments of a query. */
struct lk__details {
	/* LK__SHOW */
	size_t holders, waiters; /* limits of the listed ones */
	const char *only;        /* the id of the only holder to list, NULL = any */
	/* LK__DESCRIBE: the party's id.  LK__BREAK: lk__entry.id, "" = only serve the queue. */
	const char *subject;
	uint64_t proposal; /* LK__BREAK of a quorum: the least fence of the next holder */
	/* LK__SIZE */
	bool must_exist; /* a resize; otherwise create it, or check its capacity (0 = any) */
	int64_t capacity, ttl_ms;
	/* LK__SET */
	bool anew; /* replace a counting generation, too */
	int64_t count, open_ttl_ms, counting_ttl_ms;
	/* LK__INTRODUCE; NULL = not published.  With a name: only the label. */
	const char *host, *user, *program, *label;
	int64_t pid, life_ms;
};

/* A hold or a wait. */
struct lk__entry {
	char party[LK_HOLDER_ID_SIZE];
	char id[LK__ID_SIZE];
	int64_t permits;
	uint64_t fence; /* of a hold */
	int64_t left_ms;
};

/* Filled by LK__SHOW for a lock or a semaphore: holds first, then waits. */
struct lk__listing {
	int64_t store_us;
	bool has_no_clock;              /* the store: how old a hold is, is unknown */
	int64_t capacity, used, ttl_ms; /* of a semaphore */
	int64_t holders, waiting, rank; /* rank: of the given ticket, -1 = none */
	size_t held, count;             /* entries that are holds; all entries */
	size_t room;                    /* set by the caller */
	struct lk__entry entries[];
};

#define LK__CURSOR_SIZE 2048

/* Filled by LK__LIST: names with their lengths, some of them perhaps twice. */
struct lk__names {
	char cursor[LK__CURSOR_SIZE]; /* "0" at first; pass it to the next query; "0" again = end of
	                                 the list */
	size_t count, cap;
	struct lk__listed_name {
		size_t len;
		char bytes[];
	} * *list;
};

/* Make room for one more name.  False when out of memory. */
bool lk__names_grow(struct lk__names *names);

#define LK__PLACE_TEXT (LK_HOST_SIZE + 16) /* "[host]:port" with its NUL */

/* The address of a server, as a sentinel or a node names it. */
struct lk__place {
	char host[LK_HOST_SIZE];
	int port; /* 0 = none */
};

#define LK__NODES_MAX 64
#define LK__NODE_ID_SIZE 41
#define LK__NO_OWNER 0xff

/* Filled by LK__TOPOLOGY: the masters of a Cluster that have slots. */
struct lk__topology {
	int count;
	struct lk__cluster_node {
		struct lk__place place;
		char id[LK__NODE_ID_SIZE];
	} nodes[LK__NODES_MAX];
	uint8_t owner[LK__SLOTS]; /* an index of nodes, or LK__NO_OWNER */
};

enum lk__answer_kind {
	LK__GRANTED, /* to ask: fence, store_us, waiting, more; of a quorum also last, older */
	LK__QUEUED,  /* to ask: arrival, rank, left_ms, free */
	LK__BUSY,    /* to ask that only tries: free */
	LK__KEPT,    /* to renew and reclaim: fence, store_us, waiting; as granted */
	LK__GONE,    /* to renew and reclaim: the store has no such hold */
	LK__LEFT,    /* to leave, hand, yield and shrink: mine, more, free */
	LK__YOUNG,   /* of a quorum, to ask, claim and hand: grace_ms; nothing was done */
	LK__SHOWN,   /* to look, show: latch_state, fence, opened, removed, next, left_ms, counts */
	LK__STEPPED, /* to step: remaining, counted */
	LK__STALE,   /* the server has another memory than the link knows; nothing was done */
	LK__MEMORY,  /* to epoch: the marker */
	LK__OTHER,   /* to step: fence is the latch's generation, 0 = there is none */
	LK__CONFIRMED, /* to confirm: replicas */
	/* Of a Cluster, text is "<slot> <host>:<port>"; nothing was done.  No host: the same. */
	LK__MOVED, /* that node has the slot from now on */
	LK__ASKED, /* that node imports the slot: this time, send it there with asking */
	/* To queries: */
	LK__LISTED,   /* to show, describe, list, topology: fills the given structure */
	LK__SIZED,    /* to size: capacity, more */
	LK__MISMATCH, /* to size: capacity */
	LK__MADE,     /* to set: latch_state is the state before */
	LK__COUNTS,   /* to set: remaining, initial; nothing was changed */
	LK__IS,       /* to kind: noun */
	LK__ABSENT,   /* to show, size, remove: no such name */
	LK__DONE,     /* to remove, introduce, forget, ping */
	LK__FAILED,   /* err, retryable, by_script, ambiguous, text */
};

struct lk__answer {
	enum lk__answer_kind kind;
	uint64_t fence;
	uint64_t last; /* granted, kept, of a quorum: the counter of the name's class */
	bool older;    /* granted, kept, of a quorum: an older ticket is the head of the queue */
	uint64_t arrival;
	int64_t store_us; /* the store's clock when it answered */
	int64_t since_ns; /* granted, kept: our clock at the begin of its lease, 0 = the sending */
	int64_t waiting;  /* tickets in the queue */
	int64_t rank;
	int64_t left_ms;  /* until the leases in the way have expired */
	int64_t grace_ms; /* to ask, young: left of the grace, 0 = none */
	int64_t replicas; /* to confirm */
	struct lk__epoch epoch;
	bool free; /* to ask: not held, serve the queue; to leave: the queue is empty */
	bool mine; /* the ticket was a holder's */
	bool more; /* the run had its limit: serve the queue again */
	/* To leave: nothing names the ticket any more, so its nonce may be given to another one. */
	bool is_spare;
	lk_latch_state latch_state;
	uint64_t opened, removed; /* the last generation that was opened, removed */
	uint64_t next;            /* no later generation is smaller */
	int64_t remaining, initial;
	bool counted;
	int64_t capacity;
	lk_kind noun;
	lk_err err;
	bool retryable;   /* the same request may succeed later */
	bool by_script;   /* refused by the script, before it wrote anything */
	bool ambiguous;   /* the request may have been executed */
	bool divided;     /* nothing was done: the slot migrates, and only some of its keys have */
	const char *text; /* escaped; borrowed during the call */
};

enum lk__message_kind {
	LK__GRANT,  /* the lock is granted to this ticket */
	LK__WANTED, /* another client waits for this hold */
	LK__REASK,  /* ask again in in_ms */
	LK__BROKEN, /* this hold was broken */
	LK__TAKEN,  /* the store does not have this hold any more */
	/* On the channel of a latch; fence is its generation. */
	LK__OPENED,
	LK__REMOVED,
};

struct lk__message {
	enum lk__message_kind kind;
	char nonce[LK__NONCE_SIZE];
	int64_t lease_ms; /* the ticket's */
	bool fixed, final;
	uint32_t permits;  /* 0 = a lock's */
	uint64_t priority; /* of a quorum's ticket, 0 = a single server's */
	uint16_t epoch;    /* the same */
	uint64_t fence;
	int64_t life_ms;  /* LK__GRANT: until the store's lease expires */
	int64_t since_ns; /* LK__GRANT: our clock at the begin of its lease, 0 = the first ask */
	bool claim;       /* LK__GRANT: not valid until claimed */
	int64_t waiting;
	int64_t store_us;
	int64_t in_ms;                  /* LK__REASK */
	const struct lk__session *from; /* the link over which it came, NULL = any */
};

enum lk__report_kind {
	LK__REPORT_NONE,    /* nothing new */
	LK__REPORT_NAMED,   /* answer: place is the master */
	LK__REPORT_UNAWARE, /* answer: the sentinel knows no such service */
	LK__REPORT_CHANGED, /* message: place is the master from now on */
};

/* What a sentinel says about the service. */
struct lk__report {
	enum lk__report_kind kind;
	struct lk__place place;
};

#endif
