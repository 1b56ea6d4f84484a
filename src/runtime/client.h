/* SPDX-License-Identifier: MIT
 * A client from inside: the mutex, the state machine it guards, its links and the threads around
 * it.
 *
 * Lock order: the registry of clients (registry.c), then one client's mutex, then leaves
 * (CONTRIBUTING); never two clients'.  "_locked" in a comment means: the client's mutex is held on
 * entry and on return, and may be given up for a while in between where it says so. */
#ifndef LK__CLIENT_H
#define LK__CLIENT_H

#include "core/query.h"
#include "core/session.h"
#include "base/os.h"
#include "store.h"

#include <poll.h>
#include <pthread.h>

/* A call that blocks: an op, and the park of its thread. */
struct lk__call {
	struct lk__op op; /* first */
	struct lk__call *next, *prev;
	struct lk__park park;
	bool listed, parked; /* among the client's; its thread sleeps, and none woke it yet */
	bool reading;   /* it waits for replies, for all: what it is parked at does not wake it */
	bool impatient; /* its reply takes its time */
};

/* A connection to one server, in use until nobody reads or writes it any more, also when it is
 * broken. */
struct lk__connection {
	const struct lk__store_ops *ops;
	struct lk__peer *peer;
	struct lk__pending *sent, **sent_end; /* requests in flight, in order */
	struct lk__buf out;                   /* what the socket has not taken yet */
	struct lk__buf messages_out;          /* the same of messages; the loop alone writes it */
	bool writing, reading, broken, stuck; /* stuck: the socket was full */
	bool hearing;                         /* a thread reads messages */
	int users;
};

/* Which thread reads responses: see reader.c. */
struct lk__reader {
	struct lk__call *next; /* woken to be the next reader: no other call begins to read */
	struct lk__wake wake;  /* the reader may have to stop */
	bool is_loop;          /* no caller reads: the loop does */
};

/* Which thread reads messages: see messages.c. */
struct lk__listener {
	struct lk__call *call; /* reads them itself while it waits for one, NULL = none */
	struct lk__wake wake;  /* it may have to stop */
	bool is_caller;        /* the loop leaves messages to callers ... */
	int64_t linger_ns;     /* ... until then, if no caller reads them */
	int64_t alone_ns;      /* other callers wait, too: none begins before */
};

/* A thread that dials, while it does: see dial.c. */
struct lk__dialer {
	pthread_t thread;
	struct lk__wake cancel;
	bool running, done;        /* done: the thread has a result and can be joined */
	bool starts_local;         /* it may start the server of a local: URL */
	struct lk__why lost;       /* the loss to be logged first, LK_OK = none */
	struct lk__connection *up; /* the result, NULL = it failed */
	struct lk__why why;
};

/* The way to one server of the store.  Each link dials, fails and recovers on its own. */
struct lk__link {
	struct lk__session session; /* first: what is due and what is to be sent */
	struct lk_client *client;
	unsigned index;                    /* as the store counts */
	struct lk__connection *connection; /* NULL while there is none */
	struct lk__connection *polled;     /* by the loop, which alone looks at this */
	struct lk__reader reader;
	struct lk__listener listener;
	struct lk__dialer dialer;
	int64_t introduce_ns; /* when to tell people again who we are */
};

/* Who we are, for people. */
struct lk__identity {
	char *label;
	char host[256], user[128], program[128];
};

struct lk__log {
	lk_log_fn *fn; /* NULL = silent */
	void *arg;
	lk_log_level level;
};

/* The background thread: see loop.c. */
struct lk__loop {
	pthread_t thread;
	struct lk__wake wake;
	int timer_fd;
	struct pollfd *fds; /* of the thread alone */
	int64_t armed_ns;   /* when it wakes, perhaps earlier than it has to */
	bool timed;         /* by its timer */
	bool stop;
	int64_t suspended_ns; /* how long the machine was, until now */
};

/* The thread that runs loss callbacks, from the first handle that has one: see callbacks.c. */
struct lk__callbacks {
	pthread_t thread;
	bool running, stop;
	pthread_cond_t work;         /* a loss is to be reported */
	struct lk__handle *reported; /* whose callback runs now, NULL = none */
};

struct lk_client {
	/* Fixed when it opens. */
	struct lk__target target;
	struct lk__store *store;
	char id[LK__CLIENT_ID_SIZE];
	unsigned fork_generation;
	struct lk__identity identity;
	struct lk__log log;
	char local_path[108];

	struct lk_client *next, *prev; /* guarded by the registry's mutex: registry.c */

	pthread_mutex_t mutex; /* guards all below */
	struct lk__core core;
	struct lk__link *links;
	unsigned link_count;
	struct lk__handle *handles;
	uint64_t handle_serial;
	struct lk__call *calls;
	struct lk__wakes wakes; /* of parked threads, due when the mutex is given up */
	unsigned calls_inside;
	pthread_cond_t quiet_cond; /* calls, a link or the callback that runs changed */
	struct lk__loop loop;
	struct lk__callbacks callbacks;
};

/* What every handle is: a user's way to one name through one client. */
struct lk__handle {
	struct lk_client *client;
	struct lk__link *link;          /* the name's route */
	struct lk__handle *next, *prev; /* of the client */
	struct lk__name *name;
	struct lk__wait_queue *queue; /* a semaphore's: the pattern of its waits' queues */
	char *label;
	uint64_t serial;
	int64_t max_hold_ms;
	unsigned calls_inside;
	uint8_t kind;      /* lk_kind */
	bool reports_loss; /* it has a loss callback */
	bool closing;      /* no call may begin: a callback could still try */
};

struct lk_lock {
	struct lk__handle handle; /* first */
	lk_lost_fn *on_lost;
	void *on_lost_arg;
	bool handle_owns;
};

struct lk_latch {
	struct lk__handle handle; /* first */
	int64_t open_ttl_ms, counting_ttl_ms;
	bool absent_is_open;
};

struct lk_semaphore {
	struct lk__handle handle; /* first */
	lk_semaphore_lost_fn *on_lost;
	void *on_lost_arg;
};

/* ---- link.c: connections of a link, requests out ------------------------------------------- */

/* The link over which the op's requests go. */
struct lk__link *lk__op_link(const struct lk__op *op);
/* A connection that a thread looks at without the mutex is kept until it has left.  _locked */
void lk__connection_use(struct lk__connection *connection);
void lk__connection_leave(struct lk__connection *connection);
/* Leave a connection (NULL = none) that no thread uses, and that no core knows any more. */
void lk__connection_drop(struct lk__connection *connection);
/* The connection is of no use any more.  _locked */
void lk__link_broken(struct lk__link *link, struct lk__connection *connection,
                     const struct lk__why *why);
/* Take up a new connection.  _locked */
void lk__link_up(struct lk__link *link, struct lk__connection *connection);
/* When the oldest request without a response was sent, LK__NEVER.  _locked */
int64_t lk__link_oldest_ns(const struct lk__link *link);
/* When that request becomes overdue.  A thread that reads sees to that itself.  _locked */
int64_t lk__link_overdue_ns(const struct lk__link *link);
/* Break the link because that request is overdue.  _locked */
void lk__link_overdue(struct lk__link *link);
/* Send what is queued on all links; gives the mutex up meanwhile.  _locked */
void lk__client_flush(struct lk_client *client);

/* ---- reader.c: responses in; which thread reads them --------------------------------------- */

/* Read what is there, or wait for it until deadline_ns or a wake; deliver it.  call: of the
 * calling thread, NULL if it is in none.  Gives the mutex up meanwhile.  _locked, and only if
 * !connection->reading. */
void lk__reader_read(struct lk__link *link, struct lk__connection *connection,
                     struct lk__call *call, int64_t deadline_ns);
/* The call's thread is to read now: its response is in flight, and no other thread reads or is to.
 * _locked */
bool lk__reader_is_mine(const struct lk__link *link, const struct lk__call *call);
/* Requests are in flight and no thread reads their responses.  _locked */
bool lk__reader_is_free(const struct lk__link *link);
/* Have a thread read what is in flight.  A thread that was awake calls this before it sleeps or
 * leaves its call.  _locked */
void lk__reader_pass(struct lk_client *client);
/* Have the loop, which calls this, read where no other thread does or is to.  _locked */
void lk__reader_take(struct lk_client *client);

/* ---- settle.c: what a thread owes to others ------------------------------------------------ */

/* Before a thread goes: send what is queued, and have a thread read what is in flight.  _locked */
void lk__client_finish(struct lk_client *client);
/* Give the mutex up, and wake who is to be woken.  Whoever has the mutex gives it up by this. */
void lk__client_unlock(struct lk_client *client);
/* Wait for quiet_cond at most ns nanoseconds, < 0 = without limit.  _locked */
void lk__client_wait_quiet(struct lk_client *client, int64_t ns);
/* Wake all whom the last events of the core concern.  _locked */
void lk__client_settle(struct lk_client *client);
/* Have the waits on that handle (NULL = all) look at their state again.  _locked */
void lk__client_poke(struct lk_client *client, const void *handle);

/* ---- ask.c: queries --------------------------------------------------------------------- */

/* A query about the name of the handle.  NULL when out of memory.  _locked */
struct lk__query *lk__handle_query(const struct lk__handle *handle, enum lk__request_kind kind);
/* Ask and wait, one command timeout in all; LK_OK when each has an answer that is no failure, else
 * the first one's failure is this thread's.  For a thread inside a call.  Gives the mutex up
 * meanwhile.  _locked */
lk_err lk__ask_all(struct lk__link *link, struct lk__query *const *queries, size_t count);
lk_err lk__ask(struct lk__link *link, struct lk__query *query);
/* Ask without waiting for the answer.  The query (NULL: out of memory) is taken.  _locked */
void lk__ask_detached(struct lk__link *link, struct lk__query *query);
/* The answer does not fit the query: make that the error of this thread. */
lk_err lk__odd_answer(const struct lk_client *client);

/* ---- messages.c: the connection that messages come by ------------------------------------- */

/* Send which channels are wanted.  Only by the loop: what the socket took in part is never cut
 * into.  Gives the mutex up meanwhile.  _locked */
void lk__messages_flush(struct lk__link *link);
/* Take what has come, if !connection->hearing.  Gives the mutex up meanwhile.  _locked */
void lk__messages_read(struct lk__link *link, struct lk__connection *connection);
/* Have the call's thread wait for messages itself, until deadline_ns, a message or a wake.  False,
 * and nothing done, when it should sleep.  Gives the mutex up meanwhile.  _locked */
bool lk__messages_listen(struct lk__link *link, struct lk__call *call, int64_t now_ns,
                         int64_t deadline_ns);
/* The loop listens again.  _locked */
void lk__messages_to_loop(struct lk__link *link);

/* ---- dial.c: threads that dial -------------------------------------------------------------- */

/* A connection, dialled by the calling thread.  Without the mutex. */
lk_err lk__dial(struct lk__link *link, struct lk__connection **connection, struct lk__why *why);
/* Start the thread that dials.  _locked */
void lk__dial_start(struct lk__link *link);
/* Take the result of a thread that has one.  Gives the mutex up meanwhile.  _locked */
void lk__dial_take(struct lk__link *link);
/* Cancel the dial and end its thread.  Without the mutex, when no other thread uses the link. */
void lk__dial_stop(struct lk__link *link);

/* ---- loop.c: the background thread -------------------------------------------------------- */

bool lk__loop_init(struct lk_client *client);
void lk__loop_fini(struct lk_client *client);
bool lk__loop_start(struct lk_client *client);
void lk__loop_stop(struct lk_client *client);
/* When the loop has something to do by itself, LK__NEVER.  _locked */
int64_t lk__loop_due(const struct lk_client *client);
/* Have the loop wake then, LK__NEVER.  loop.timed says whether the timer took it.  _locked */
void lk__loop_arm(struct lk_client *client, int64_t due_ns);

/* ---- callbacks.c: the thread that runs loss callbacks --------------------------------------- */

bool lk__callbacks_start(struct lk_client *client); /* _locked */
void lk__callbacks_stop(struct lk_client *client);
/* This thread runs the program's code for the client: it cannot wait for its end.  _locked */
bool lk__callbacks_is_me(const struct lk_client *client);

/* ---- registry.c: the clients of this process ------------------------------------------------ */

void lk__registry_add(struct lk_client *client);
void lk__registry_remove(struct lk_client *client);

/* ---- identity.c: who we are ----------------------------------------------------------------- */

void lk__identity_init(struct lk__identity *identity);
/* Tell people who we are, on each link where it is due and something is held or waited for.
 * _locked */
void lk__client_introduce(struct lk_client *client, int64_t now_ns);
/* And that we are no more.  _locked */
void lk__client_forget(struct lk_client *client);

/* ---- client.c ----------------------------------------------------------------------------- */

/* The link by which requests about that name go. */
struct lk__link *lk__client_route(const struct lk_client *client, const char *name, size_t len);
/* A line for the log hook.  Not with the mutex held. */
void lk__log(struct lk_client *client, lk_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- handle.c: what handles of all kinds have in common ----------------------------------- */

/* What a handle is opened with, checked by lk__handle_open(). */
struct lk__handle_plan {
	const char *name, *label;
	size_t name_len;
	int64_t lease_ms, max_hold_ms; /* 0 = the default */
	int64_t ttl_ms;                /* of a semaphore */
	uint32_t capacity;             /* of a semaphore */
	const int64_t *reserved;       /* 8, of the options */
	struct lk__latch *latch;       /* taken; NULL if it is for none */
	uint8_t kind;                  /* lk_kind */
	bool fixed, reports_loss;
};

/* Make the handle one of the client's.  The memory stays the caller's on failure.  On success the
 * caller is inside a call of the client, with the mutex: lk__call_leave() ends it, after
 * lk__handle_free() if something else failed. */
lk_err lk__handle_open(struct lk_client *client, struct lk__handle *handle,
                       const struct lk__handle_plan *plan);
lk_err lk__handle_close(struct lk__handle *handle);
/* Take it out of the client and free it.  _locked */
void lk__handle_free(struct lk__handle *handle);
lk_err lk__handle_cancel(struct lk__handle *handle);
/* Take the mutex for a look that is not a call, that is also while the handle is being closed
 * or by a thread that may be cancelled.  False, and nothing taken, in a child process. */
bool lk__handle_look(const struct lk__handle *handle);
void lk__handle_unlook(const struct lk__handle *handle);
/* What the owner's hold on the handle's name knows, of one moment; all zero without such a hold, or
 * where it was not acquired through that handle (NULL = any). */
lk_err lk__handle_snapshot(const struct lk__handle *handle, uint64_t owner, const void *through,
                           lk_hold *snapshot);
/* The result of a *_open(): "lease_ms: 100 to 86400000, not 5". */
lk_err lk__check_range(const char *what, int64_t value, int64_t least, int64_t most);

/* ---- call.c: being inside a public call --------------------------------------------------- */

/* Enter a call of the client, or on one of its handles.  Fails with LK_EFORKED or LK_ECLOSED and
 * takes the mutex only when it succeeds.  The thread cannot be cancelled until it leaves: it may
 * write or read for others, and has the mutex. */
lk_err lk__client_enter(struct lk_client *client);
lk_err lk__handle_enter(struct lk__handle *handle);
/* Leave it; handle: NULL for a call of the client.  What was queued must be on its way:
 * lk__client_finish().  Entered with the mutex, returns without it. */
void lk__call_leave(struct lk_client *client, struct lk__handle *handle);

/* A call on the handle whose end is that of an op.  The op has the handle and its queue. */
void lk__call_init(struct lk__call *call, struct lk__handle *handle);
/* It waits so long from now on; 0 = it only tries. */
void lk__call_limit(struct lk__call *call, int64_t now_ns, int64_t wait_ms);
/* What an acquire may need.  Else the op is done for want of memory. */
void lk__call_provide(struct lk__call *call);
/* One of the core's calls: lk__core_acquire() and others. */
typedef void lk__call_fn(struct lk__core *core, int64_t now_ns, struct lk__op *op);
/* Begin the op unless it is done, wait for its end and leave the call.  The op's result, as this
 * thread's error; what was provided and not used is freed.  Entered with the mutex, returns without
 * it. */
lk_err lk__call_run(struct lk__call *call, int64_t now_ns, lk__call_fn *begin);
/* Wait for the end of an op that has begun, inside a call that goes on.  Gives the mutex up
 * meanwhile.  _locked */
void lk__call_await(struct lk_client *client, struct lk__call *call);
/* Have the thread look at its op again.  _locked */
void lk__call_wake(struct lk_client *client, struct lk__call *call);

#endif
