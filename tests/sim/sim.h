/* SPDX-License-Identifier: MIT
 * The simulator: many clients with their real state machines and real bytes, the library's own
 * scripts on a Redis in memory, and between them a network, a server and processes that fail by a
 * plan; in one thread, in virtual time, from one seed.
 *
 *   sim_plan.c       the plan of a seed: duration, clients, load, times of faults
 *   sim_world.c      the run: each step is the earliest event
 *   sim_client.c     a process: its clock, its state machine, its link to the server
 *   sim_dial.c       its dials
 *   sim_links.c      its connections
 *   sim_network.c    requests, replies and messages in flight
 *   sim_server.c     the server: its clock, its memory, its subscribers
 *   sim_faults.c     what each fault does
 *   sim_service.c    with sentinels: the servers; each failover makes another one the master
 *   sim_replicas.c   ... what the replicas have, and the count of those that confirm
 *   sim_sentinels.c  ... the sentinels, and each client's conversations with them
 *   sim_cluster.c    a Cluster: which node has which name, moves of slots, failovers
 *   sim_nodes.c      ... and each client's way to the nodes
 *   sim_quorum.c     a quorum: its members, what fails there, and each client's way to them
 *   sim_etcd.c       a cluster of etcd: its members, and what fails there
 *   sim_etcd_link.c  ... connections to them
 *   sim_etcd_client.c    ... each client's session
 *   sim_etcd_asks.c  ... queries of clients
 *   sim_callers.c    threads that acquire, hold and release; at random, or by a scene
 *   sim_latches.c    threads that await, count down, set and remove
 *   sim_check*.c     the promises: what they read, at which moment, and what a fault excuses
 *   sim_trace.c      the last events, as text
 *   sim_shrink.c     the smallest plan that fails in the same way
 *
 * Each client, thread and fault has a random stream of its own, so leaving one out of the plan
 * changes no draw of the others. */
#ifndef SIM_H
#define SIM_H

#include "core/core.h"
#include "core/session.h"
#include "core/latch.h"
#include "core/query.h"
#include "lua_store.h"
#include "promises/promises.h"
#include "redis/codec.h"
#include "store_view.h"
#include "sim_plan.h"
#include "sim_cluster.h"
#include "sim_etcd.h"
#include "sim_quorum.h"
#include "sim_sentinel.h"

#define SIM_EPOCH_US INT64_C(1700000000000000)
#define SIM_START_NS (1000 * SIM_S)
#define SIM_TIMEOUT_NS (2000 * SIM_MS) /* of a command, the library's default */
#define SIM_GRANTS 1024                /* remembered of a name */
#define SIM_TTL_MS 3600000             /* how long the keys of a semaphore are kept */
#define SIM_STEP_NAMES 6               /* of steps of a latch */

struct sim;
struct sim_client;

/* One grant of the store. */
struct sim_grant {
	uint64_t fence;
	int epoch, era, regime, slot, life;
	uint32_t permits;
	int64_t lease_ms, granted_ns;
	int64_t era_ns;     /* since when it is of its era */
	int64_t counted_ns; /* since when it had its whole lease */
	char nonce[LK__NONCE_SIZE];
	bool whole;   /* counted_ns is true */
	bool broken;  /* by an operator */
	bool excused; /* ... or the memory was lost; its holder may believe in it until then: */
	int64_t excused_ns;
	bool forgotten; /* reported to its caller, and detached from then on */
	int64_t forgotten_ns;
	int handed;        /* local hand-overs while other clients are known to wait */
	int64_t handed_ns; /* the last one */
	bool stale;     /* by a master after a failover had replaced it, and not taken back since */
	int64_t new_ns; /* ... the new one began then, */
	int64_t apart_ns;   /* and grants nothing new until then */
	bool is_kept;       /* excused_ns is what a failover kept, and not more */
	int64_t carried_ns; /* a belief until then is of an earlier memory: no failover keeps it */
	bool in_grace; /* handed on by its holder, or granted by a replaced master and taken back */
};

/* Tickets that left, and that a late ask or a restored image brought back. */
#define SIM_GHOSTS 2048

/* A grant by message that its client has not claimed yet. */
struct sim_pending {
	int name, slot, life;
	int place; /* of a quorum: the member that granted it */
	int64_t at_ns;
	char nonce[LK__NONCE_SIZE];
};
#define SIM_PENDING 64

struct sim_capacity {
	int64_t since_ns, capacity;
};

#define SIM_CAPACITIES 256
#define SIM_COUNTED 1024

/* A counted step of a latch. */
struct sim_counted {
	int slot, life;
	uint64_t number;
};

/* The record of one generation of a latch. */
struct sim_count {
	uint64_t generation;
	struct sim_counted steps[SIM_COUNTED];
	int step_count;
	bool named[SIM_STEP_NAMES + 1];
	uint64_t published; /* the last generation that was reported open */
};

/* The record of a name: the present state in the store, and the promises made. */
struct sim_name {
	char text[12];
	int index;
	lk_kind kind;
	bool rate; /* most of its permits are forgotten */
	char main[24], queue[24], holds[24], memory[24], topic[40];
	struct store_view view; /* after the last read */
	int epoch;              /* of its memory: grants before a loss prove nothing after it */
	int era;    /* ... of a loss for which the grace does not make up: see sim_check_forced() */
	int regime; /* of its fences: restart after the counter is lost while the clock is behind */
	int64_t forced_ns;  /* when its memory was last lost */
	uint64_t fence_max; /* issued, in this regime */
	uint64_t store_max; /* ... by the store, or reported to it */
	const struct sim_grant
		*local;    /* the grant under which threads issued the last local fence */
	int64_t local_ns;  /* when */
	uint64_t made_max; /* of acquired holds, in made_era */
	int made_era, made_regime;
	struct sim_grant grants[SIM_GRANTS]; /* the last ones, at fence order modulo their number */
	int grant_count;
	struct sim_capacity capacities[SIM_CAPACITIES];
	int capacity_count;
	bool torn;             /* half of it was evicted */
	int64_t idle_since_ns; /* since when a waiter fits and is not granted */
	char idle[LK__TICKET_MAX];
	int64_t busy_since_ns; /* since when the queue was never empty */
	struct sim_count count;
	uint64_t opened;        /* the last generation that opened */
	int64_t opened_ns;      /* when */
	int64_t open_ns;        /* when a latch was last open */
	int64_t absent_ns;      /* when no latch last existed */
	int64_t removed_ns;     /* when a latch was last removed */
	uint64_t stale_max;     /* the largest fence of a replaced master */
	int64_t stale_capacity; /* of a semaphore, at a replaced master */
};

/* ---- In flight (sim_network.c) -------------------------------------------------------------- */

enum sim_call_kind {
	SIM_PING = 100, /* else enum lk__request_kind */
	SIM_QUESTION,
};

struct sim_call {
	struct sim_call *next;
	struct lk__pending *request; /* NULL: a ping, a query, or its client has ended */
	struct sim_caller *asker;    /* of a query */
	struct lk__buf bytes, reply;
	int64_t sent_ns; /* local */
	int64_t at_ns;   /* arrival at the server, then at the client */
	bool executed;
	uint8_t kind;
	int name, slot, life, place;
	char ticket[LK__TICKET_MAX], nonce[LK__NONCE_SIZE];
	int64_t arrival_us; /* of an ask: permits that it reports */
	uint64_t fence;     /* the last local one, which it reports to the store */
	uint32_t permits;   /* of a partial release: the rest */
	uint64_t generation, number;
	uint32_t n;
	int step_name;                 /* 0 = none */
	bool asking;                   /* a Cluster's node */
	struct lk__topology *topology; /* the answer to LK__TOPOLOGY */
	struct sim_wait wait;
};

enum sim_item_kind {
	SIM_MESSAGE,
	SIM_SUBSCRIBED,
	SIM_UNSUBSCRIBED,
	SIM_PUT_OFF,
	SIM_PONG,
	SIM_MOVED,
};

/* A message on the message connection, either way. */
struct sim_item {
	struct sim_item *next;
	int64_t at_ns;
	uint8_t kind;
	int topic; /* a name, -1 = the client's own channel, SIM_NAMES + name: its inbox */
	size_t len;
	char text[160];
};

enum sim_way { SIM_COMMANDS_OUT, SIM_COMMANDS_IN, SIM_MESSAGES_OUT, SIM_MESSAGES_IN, SIM_WAYS };

/* The two connections of one client, as long as either end considers them open. */
struct sim_link {
	struct sim_link *next;
	struct sim_client *client;
	int life, place;
	char channel[LK__CHANNEL_MAX];
	bool here, there;
	int64_t there_until_ns;     /* when the server notices the end */
	int64_t reset_ns;           /* when the client notices the end */
	uint32_t topics;            /* names subscribed */
	uint64_t wrote;             /* its last write, by the master's count, 0 = none */
	struct sim_etcd_link *etcd; /* of etcd, instead of the following; else NULL */
	struct sim_call *calls, **calls_end;
	struct sim_item *orders, **orders_end; /* to the server */
	struct sim_item *items, **items_end;   /* to the client */
	int64_t last_ns[SIM_WAYS];             /* a connection keeps the order */
	int64_t stalled_ns[SIM_WAYS];          /* nothing arrives until then */
};

/* ---- Threads (sim_callers.c, sim_latches.c) ------------------------------------------------- */

enum sim_doing {
	SIM_IDLE,
	SIM_ACQUIRING,
	SIM_HOLDING,
	SIM_RELEASING,
	SIM_EXTENDING,
	SIM_AWAITING,
	SIM_STEPPING,
	SIM_ASKING,
};

struct sim_caller {
	struct lk__op waiter; /* first */
	struct sim_client *client;
	struct sim_random random;
	int index;
	enum sim_doing doing;
	const struct sim_act *act;    /* of a scene: the current one, or the next; NULL = none */
	int name;                     /* of its activity */
	struct lk__wait_queue *queue; /* the handle of its hold */
	uint64_t owner;               /* of its hold: itself, or the permits' fence */
	uint32_t count;               /* permits held or wanted */
	int depth;                    /* it waits, and then has one command timeout */
	int64_t next_ns;              /* true: its next step, if it waits for nothing */
	bool waits;                   /* local: the end of the wait; of other calls: their begin */
	int64_t until_ns;             /* local: the end of that; of other calls: their begin */
	int64_t cancel_ns;            /* true */
	int64_t began_ns;             /* true */
	int epoch;                    /* of the name, when it began */
	lk_err gave_up;               /* it timed out, or was cancelled; LK_OK = neither */
	int64_t gave_up_ns;           /* true */
	bool was_valid;               /* its hold, when it began to release */
	uint64_t lapsed;              /* fence of a hold that expired */
	uint64_t told;                /* ... whose loss was reported to it */
	uint32_t least;               /* permits before it released some */
	char nonce[LK__NONCE_SIZE];   /* of the ticket that its end releases */
	uint64_t step_number, step_generation; /* its step's, 0 = not sent yet */
	const struct sim_lane *asks;           /* SIM_ASKING: over that one */
	struct lk__query *query;               /* ... of etcd: the question */
	uint32_t legs; /* of its hold in a quorum: servers whose legs were valid at its begin */
	uint32_t held, left; /* ... at its release; of these, where the first leave found the leg */
	uint32_t broken;     /* ... and where an operator had broken it before */
};

/* ---- Processes (sim_client.c) --------------------------------------------------------------- */

enum sim_event {
	SIM_NOTHING,
	SIM_EXECUTE,
	SIM_REPLY,
	SIM_ORDER,
	SIM_HEAR,
	SIM_TICK,
	SIM_FLUSH,
	SIM_PROBE,
	SIM_DIAL,
	SIM_HUNG_UP,
	SIM_DUTY,
	SIM_CALL,
	SIM_CANCEL,
	SIM_CLOSE,
	SIM_START,
	SIM_LATE,
	SIM_HALF_OPEN,
	SIM_IMAGE,
	SIM_FAULT,
	SIM_WATCH,   /* a conversation with a sentinel, or a dial that depends on them */
	SIM_ASKED,   /* a question is at a sentinel */
	SIM_SERVICE, /* the servers or the sentinels change by themselves */
};

struct sim_next {
	enum sim_event event;
	int64_t at_ns;
	uint64_t tie;
	struct sim_caller *caller;
	struct sim_lane *lane;
};

/* The way to one server. */
struct sim_lane {
	struct lk__session session;    /* first */
	struct sim_link *link;         /* NULL = it has none */
	int64_t probe_ns;              /* true: when the dial's last request is at the server, */
	int64_t dial_ns;               /* and when its reply is here */
	struct sim_link *dialled;      /* the link until then */
	struct lk__epoch found;        /* the marker in that reply, */
	lk_err dial_err;               /* or why the dial fails */
	struct lk__topology *topology; /* in that reply, NULL = none */
	int64_t flush_ns;
	/* For checks, all true: */
	int64_t linked_ns, unlinked_ns; /* when its last link came up, and went down */
	int64_t denied_ns;              /* when a dial last failed for lack of rights */
	int64_t heard_ns;               /* when it last received from the server */
	int64_t used_ns;                /* names are routed to it since */
	bool is_missing;                /* ... and it has no link */
	int64_t disturbed_ns;           /* of a quorum: when its last fault ended, */
	int64_t refused_ns;             /* when its server last refused a request, */
	int64_t apart_ns; /* and until when nothing passes to its server, one way or both */
};

struct sim_client {
	struct sim *sim;
	int slot, life; /* life: the process, from 1 */
	bool alive, closed;
	struct lk__core core;
	struct lk__space space;
	struct sim_random random; /* of its machine and network */
	struct sim_random tie;    /* of the order of simultaneous events */
	int64_t offset_ns;        /* its clock: the true time, plus this, */
	int64_t drift_ppm;        /* plus so many millionths.  CLOCK_BOOTTIME is never set */
	struct sim_lane lanes[SIM_NODES]; /* one for each node or member; else the first */
	int lane_count;
	struct sim_lane *lane; /* of the present event */
	/* For checks, all true: */
	int64_t busy_ns;  /* it waits or holds since, LK__NEVER: it does neither */
	int64_t lease_ms; /* the shortest */
	int64_t resume_ns, start_ns, close_ns;
	int64_t cut_off_ns;   /* it reaches no server until then */
	int64_t disturbed_ns; /* when its last fault ended */
	struct lk__wait_queue *queues[SIM_NAMES][SIM_HANDLES];
	struct sim_caller callers[SIM_THREADS];
	struct sim_next next; /* cached; dirty: to be computed again */
	bool dirty;
	struct promise_leaves leaves;
	struct lk_counters counted; /* results that its callers saw, and reclaims */
	struct sim_watch watch;     /* of sentinels */
	int64_t short_ns;           /* when it last received a count of too few replicas */
	int64_t stale_ns; /* when a replaced master last ran a script of it, or wrote to it */
};

/* ---- The world ------------------------------------------------------------------------------ */

struct sim_image; /* of the store, with the record of each name */

struct sim {
	const struct sim_plan *plan;
	struct lua_store *store;
	int64_t now_ns;          /* the true time */
	int64_t store_offset_us; /* the server's clock, less now_ns */
	bool clock_was_back;     /* it was set back once */
	uint64_t fence_max;      /* the largest that the store ever issued */
	int64_t since_us;        /* of its marker, INT64_MAX = it has none */
	int64_t marked_ns;       /* when that changed */
	uint64_t runs, replids;  /* of processes, of histories: the last ones */
	struct lua_store_process
		standby; /* the other machine's, which a fail-over makes the server */
	bool scripts_loaded;
	struct sim_client clients[SIM_CLIENTS];
	struct sim_name names[SIM_NAMES];
	struct sim_link *links;
	struct sim_call *late;
	struct sim_image *images[SIM_FAULTS + SIM_PLACES]; /* of faults; of deaf replicas */
	int next_fault;
	struct sim_pending pending[SIM_PENDING];
	int pending_count;
	char ghosts[SIM_GHOSTS][LK__TICKET_MAX];
	int ghost_count;
	int64_t up_ns; /* when the server runs again */
	int64_t sick_until_ns;
	const char *sick;     /* how it refuses until then */
	bool sick_to_some;    /* it refuses every second client only: those without rights */
	int64_t disturbed_ns; /* when the server's last fault ended */
	bool ending;
	int64_t end_ns;
	int64_t pace;     /* divides the pauses: a plan with little load gets more */
	int64_t paced_ns; /* when load was last adjusted */
	struct sim_service service;
	struct sim_cluster cluster;
	struct sim_quorum quorum;
	struct sim_etcd etcd;
	struct sim_tally tally;
	struct sim_result *result;
	FILE *trace;
};

/* sim_world.c */
void sim_set_time(struct sim *sim, int64_t now_ns);
/* Is a fault of a client, or of the server, in effect until then? */
void sim_disturb(int64_t *disturbed_ns, int64_t until_ns);
bool sim_is_fine(const struct sim_client *client, int64_t for_ns);
/* When the last fault of the client's link to that server ended, of a single server that of the
 * client. */
int64_t *sim_disturbed(struct sim_client *client, int place);

/* sim_client.c */
void sim_client_start(struct sim *sim, int slot);
void sim_client_free(struct sim_client *client);
void sim_client_crash(struct sim_client *client);
void sim_client_happen(struct sim_client *client, const struct sim_next *next);
void sim_client_find_next(struct sim_client *client);
void sim_client_settle(struct sim_client *client);
void sim_client_close(struct sim_client *client);
/* Run the timers, as any thread that wakes up for one does. */
void sim_client_tick(struct sim_client *client);
int64_t sim_local(const struct sim_client *client);
/* The first true time at which the client's clock shows local_ns. */
int64_t sim_true(const struct sim_client *client, int64_t local_ns);
/* The next way of a client, the first for NULL; NULL after the last one.  It is the present one. */
struct sim_lane *sim_client_lane(struct sim_client *client, struct sim_lane *lane);
/* The index of the present one. */
int sim_client_place(const struct sim_client *client);
/* The client closes its end of its link. */
void sim_client_unlink(struct sim_client *client, lk_err err);
/* Close the client's end: *at is the link, NULL = there is none. */
void sim_client_drop_link(struct sim_client *client, struct sim_link **at);
/* The client of the ticket, NULL if that process has ended. */
struct sim_client *sim_client_of(struct sim *sim, const struct store_ticket *ticket);
/* In its id, c<slot>_<life>_aaaaaaaaaaaa. */
int sim_slot_of(const struct store_ticket *ticket);
int sim_life_of(const struct store_ticket *ticket);

/* sim_network.c */
void sim_network_flush(struct sim_client *client);
void sim_network_execute(struct sim_client *client);
void sim_network_reply(struct sim_client *client);
void sim_network_order(struct sim_client *client);
void sim_network_hear(struct sim_client *client);
void sim_network_late(struct sim *sim);
void sim_network_ping(struct sim_client *client);
/* The server has ended that subscription. */
void sim_network_unsubscribed(struct sim_link *link, int topic);
int sim_network_publish(void *arg, const char *channel, const char *text, size_t len);
void sim_network_ask(struct sim_caller *caller, enum lk__request_kind kind,
                     const struct lk__details *details);

/* sim_dial.c */
/* Dial the server that the sentinels named; stop that; it has failed. */
void sim_client_connect(struct sim_client *client);
void sim_client_cancel_dial(struct sim_client *client);
void sim_client_dial_failed(struct sim_client *client, const struct lk__why *why);
/* Both connections are up, and the client's own channel is subscribed.  The last request of the
 * dial is at the server: it asks for the marker of the server's memory. */
void sim_dial_probe(struct sim_client *client);
void sim_dial_end(struct sim_client *client);

/* sim_links.c */
int64_t sim_delay(struct sim_client *client);
/* The arrival time of bytes that are sent now. */
int64_t sim_link_arrival(struct sim_link *link, enum sim_way way);
struct sim_link *sim_link_new(struct sim_client *client, int place);
/* Requests sent by the client that the server has not run: some of them still run. */
void sim_link_cut(struct sim_link *link);
void sim_link_drop(struct sim_link *link);
void sim_link_free(struct sim *sim, struct sim_link *link);
void sim_link_free_all(struct sim *sim);
/* The first call that was not executed, NULL if there is none. */
struct sim_call *sim_link_to_execute(const struct sim_link *link);
int64_t sim_link_first(const struct sim_link *link, enum sim_way way);
void sim_call_free(struct sim_call *call);
/* Without a caller, and later. */
void sim_call_late(struct sim_client *client, struct sim_call *call);

/* sim_server.c */
void sim_server_init(struct sim *sim);
void sim_server_fini(struct sim *sim);
void sim_name_init(const struct sim *sim, struct sim_name *name, int index);
int64_t sim_server_us(const struct sim *sim);
void sim_server_run(struct sim *sim, struct sim_call *call);
struct lua_store *sim_server_store(struct sim *sim);
void sim_server_load(struct sim *sim);
/* Close every connection to a server, and discard its pending requests. */
void sim_server_hang_up(struct sim *sim, int place);
/* The same at the master, which stays down for a while. */
void sim_server_restart(struct sim *sim, int64_t away_ns);
void sim_server_save(struct sim *sim, int image);
void sim_server_move_image(struct sim *sim, int from, int image);
void sim_server_restore(struct sim *sim, int image, bool covered);
/* Of the present member of a quorum: its keys are those of the image. */
void sim_server_reload(struct sim *sim, int image);
/* Record the loss of a name's memory, -1 = of all, with the fence counter; covered: as the grace is
 * meant for. */
void sim_server_forced(struct sim *sim, int name, bool covered);
/* Read the marker, which may have changed. */
void sim_server_mark(struct sim *sim);
/* Nothing new is granted, by the server's clock; in a Cluster, of the selected name. */
bool sim_server_in_grace(const struct sim *sim);
/* Another process is the server: a new one, or the other machine's, which was a replica. */
void sim_server_begin(struct sim *sim, struct sim_random *random);
void sim_server_promote(struct sim *sim, struct sim_random *random);
/* Does it refuse a request of that kind from that client? */
bool sim_server_refuses(const struct sim *sim, int slot, int kind);
/* If the fence counter is lost and the clock is behind, fences restart. */
void sim_server_uncounted(struct sim *sim);
/* SCRIPT FLUSH */
void sim_server_forget(struct sim *sim);

/* sim_faults.c */
void sim_fault_happen(struct sim *sim, const struct sim_fault *fault);
void sim_faults_heal(struct sim *sim);
/* The error of a server that refuses; to_some: it refuses some clients only. */
const char *sim_fault_refusal(struct sim_random *random, int64_t length_ns, bool *to_some);

/* sim_callers.c */
/* Schedule its next step within that time, by the pace of the run. */
void sim_caller_plan(struct sim_caller *caller, int64_t ns);
void sim_caller_step(struct sim_caller *caller);
/* The call waits so long: LK__NEVER = without limit, 0 = it is a try. */
void sim_caller_limit(struct sim_caller *caller, int64_t wait_ns);
/* Is it inside a call that is an op of the state machine? */
bool sim_caller_is_inside(const struct sim_caller *caller);
void sim_caller_cancel(struct sim_caller *caller);
/* It times out, or its client closes. */
void sim_caller_note(struct sim_caller *caller, lk_err why);
void sim_caller_done(struct sim_caller *caller);
void sim_caller_provide(struct sim_caller *caller);
void sim_caller_free(struct sim_caller *caller);
void sim_caller_begin(struct sim_caller *caller, enum sim_doing doing);

/* sim_latches.c */
void sim_latch_begin(struct sim_caller *caller);
void sim_latch_act(struct sim_caller *caller, const struct sim_act *act);
void sim_latch_done(struct sim_caller *caller, enum sim_doing was);
void sim_latch_answered(struct sim_caller *caller, bool answered);
/* An operator changes it; at the end of the run, wakes all waiters. */
void sim_latch_open_all(struct sim *sim);
void sim_latch_change(struct sim *sim, int name, uint64_t chance);
struct lk__details sim_latch_any_set(uint64_t chance);

/* sim_trace.c */
void sim_trace(struct sim *sim, const struct sim_client *client, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
const char *sim_flat(const char *bytes, size_t len);
const char *sim_call_name(const struct sim_call *call);
void sim_trace_name(struct sim *sim, const struct sim_name *name);

#include "sim_check.h"

#endif
