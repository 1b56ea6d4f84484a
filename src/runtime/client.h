/* SPDX-License-Identifier: MIT
 * Internals of a client: the mutex, the state machine that it guards, its links and its threads.
 *
 * Lock order: the registry of clients (registry.c), then one client's mutex, then leaves
 * (CONTRIBUTING); never two clients'.  "_locked" in a comment: the client's mutex is held on entry
 * and on return.  The comment says so if it is released in between. */
#ifndef LK__CLIENT_H
#define LK__CLIENT_H

#include "core/query.h"
#include "core/quorum.h"
#include "core/sentinel.h"
#include "core/session.h"
#include "base/os.h"
#include "store.h"

#include <poll.h>
#include <pthread.h>

/* A blocking call: an op, and the park of its thread. */
struct lk__call {
	struct lk__op op; /* first */
	struct lk__call *next, *prev;
	struct lk__park park;
	bool listed, parked;   /* in the client's list; its thread sleeps and was not woken yet */
	bool reading;          /* its thread reads responses for all, and is not parked */
	bool impatient;        /* its response is slow: do not block in read() */
	struct lk__link *link; /* where its thread reads or listens, NULL = nowhere */
};

/* A connection to one server.  Freed when no thread uses it any more, even if it is broken
 * before. */
struct lk__connection {
	const struct lk__store_ops *ops;
	struct lk__peer *peer;
	struct lk__pending *sent, **sent_end; /* requests in flight, in order */
	struct lk__buf out;                   /* bytes that the socket has not taken yet */
	struct lk__buf messages_out;          /* the same for messages; only the loop writes it */
	bool writing, reading, broken, stuck; /* stuck: the socket was full */
	bool hearing;                         /* a thread reads messages */
	int users;
	struct lk__why refusal; /* of ASKING, ahead of the request that is the next one in flight */
	const char *text;       /* names the server */
	char place[];           /* that text, if Sentinel named the server */
};

/* The choice of the thread that reads responses: see reader.c. */
struct lk__reader {
	struct lk__call *next; /* woken to be the next reader: no other call starts to read */
	struct lk__wake wake;  /* makes the reader stop */
	bool is_loop;          /* no caller reads: the loop does; see lk__client_loop_reads() */
};

/* The choice of the thread that reads messages: see messages.c. */
struct lk__listener {
	struct lk__call *call; /* reads messages itself while it waits for one, NULL = none */
	struct lk__wake wake;  /* makes it stop */
	bool is_caller;        /* the loop leaves messages to callers ... */
	int64_t linger_ns;     /* ... until then, if no caller reads them */
	int64_t alone_ns;      /* several callers waited: none starts to read before */
};

/* The choice of the thread that polls all links of a quorum: see poller.c. */
struct lk__poller {
	struct lk__call *call; /* polls them itself while it waits, NULL = none */
	struct lk__wake wake;  /* makes it stop */
	bool is_caller;        /* the loop leaves the links to callers ... */
	int64_t linger_ns;     /* ... until then, if no caller polls them */
	int64_t alone_ns;      /* several callers waited: none starts to poll before */
};

/* A thread that dials: see dial.c. */
struct lk__dialer {
	pthread_t thread;
	struct lk__wake cancel;
	bool running, done;            /* done: the thread has a result and can be joined */
	bool starts_local;             /* may start the server of a local: URL */
	struct lk__epoch epoch;        /* the last known memory of the server, then the found one */
	struct lk__place place;        /* of a Cluster's node: to dial, then what was found */
	struct lk__topology *topology; /* that was found, also if the dial has failed */
	struct lk__why lost;           /* the loss to log first, LK_OK = none */
	struct lk__connection *up;     /* the result, NULL = failed */
	struct lk__why why;
};

/* A thread that talks to one sentinel: see sentinels.c. */
struct lk__watcher {
	struct lk_client *client;
	unsigned index; /* as in the URL */
	pthread_t thread;
	struct lk__wake wake; /* ends its pause or its wait for a report */
	struct lk__sentinel_conn *conn;
	uint64_t asked_round; /* of its last question */
	int64_t asked_ns;     /* LK__NEVER: answered */
	int64_t heard_ns;     /* the last report */
	int64_t retry_ns;     /* without a connection: the next dial */
	int64_t backoff_ns;
	bool running, dialing;
	bool is_idle; /* it checks nothing while the link has no users */
};

/* The sentinels of a client: see sentinels.c. */
struct lk__sentinels {
	struct lk__watch watch;
	struct lk__wake news; /* for the dial: there was a report */
	bool stop;
	uint32_t pauses;            /* of the client, after which they were asked anew */
	bool is_lonely, is_logging; /* logged that no sentinel answers; a thread logs */
	lk_resolve_fn *resolve;     /* constant, NULL = none */
	void *resolve_arg;
	unsigned count;
	struct lk__watcher watchers[];
};

/* The link to one server of the store.  Each dials, fails and recovers on its own. */
struct lk__link {
	struct lk__session session; /* first: policy and send queue */
	struct lk_client *client;
	unsigned index;                    /* as the store counts */
	struct lk__place place;            /* of a Cluster's node or a quorum's server; no host:
	                                    * of any */
	char *name;                        /* of a quorum's server, as text; NULL: out of memory */
	struct lk__connection *connection; /* NULL while there is none */
	struct lk__connection *polled;     /* by the loop; only the loop uses this */
	struct lk__reader reader;
	struct lk__listener listener;
	struct lk__dialer dialer;
	int64_t introduce_ns; /* when to publish our details again */
};

/* The details of this client, for display. */
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
	struct pollfd *fds; /* only for that thread */
	int64_t armed_ns;   /* when it wakes, perhaps earlier than necessary */
	bool timed;         /* by its timer */
	bool stop;
	int64_t suspended_ns; /* total time of suspension so far */
};

/* The thread that runs loss callbacks, started for the first handle that has one, or for the first
 * news to log: see callbacks.c. */
struct lk__callbacks {
	pthread_t thread;
	bool running, stop;
	pthread_cond_t work;         /* there is a loss to report */
	struct lk__handle *reported; /* its callback is running, NULL = none */
};

struct lk_client {
	/* Set when it opens, constant afterwards. */
	struct lk__target target;
	struct lk__store *store;
	char id[LK__CLIENT_ID_SIZE];
	lk_resolve_fn *resolve; /* of a Cluster's nodes, NULL = none */
	void *resolve_arg;
	unsigned fork_generation;
	struct lk__identity identity;
	struct lk__log log;
	char local_path[108];

	struct lk_client *next, *prev; /* guarded by the registry's mutex: registry.c */

	pthread_mutex_t mutex; /* guards everything below */
	struct lk__core core;
	struct lk__link *links[LK__NODES_MAX]; /* only ever more */
	unsigned link_count;
	bool is_cluster;
	struct lk__topology *topology;   /* of the last dial or answer, to be applied */
	struct lk__sentinels *sentinels; /* NULL = the URL names the server */
	struct lk__handle *handles;
	uint64_t handle_serial;
	struct lk__call *calls;
	struct lk__wakes wakes; /* of parked threads, performed when the mutex is released */
	unsigned calls_inside;
	unsigned quorum_waiters;   /* threads that wait until a majority votes */
	int64_t quorum_begins_ms;  /* it makes a new quorum: the longest lease; else 0 */
	pthread_cond_t quiet_cond; /* a call, a link or the running callback has changed */
	struct lk__loop loop;
	struct lk__poller poller;
	struct lk__callbacks callbacks;
	int64_t long_lease_ms; /* longer than the grace, to be logged, 0 = none: see news.c */
	bool long_lease_logged, partial_logged;
};

/* The common part of all handles: access to one name through one client. */
struct lk__handle {
	struct lk_client *client;
	struct lk__handle *next, *prev; /* of the client */
	struct lk__name *name;
	struct lk__wait_queue *queue; /* a semaphore's: the template for the queues of its waits */
	char *label;
	uint64_t serial;
	int64_t max_hold_ms;
	unsigned calls_inside;
	uint8_t kind;          /* lk_kind */
	bool reports_loss : 1; /* it has a loss callback */
	bool owns : 1;         /* a lock's: the handle is the owner, not the thread */
	/* Those are constant, and read without the mutex: not in one byte with what changes. */
	bool : 0;
	bool closing : 1;    /* no call may begin: a callback could still try */
	bool introduced : 1; /* in a Cluster: the client's details are beside the name */
};

struct lk_lock {
	struct lk__handle handle; /* first */
	lk_lost_fn *on_lost;
	void *on_lost_arg;
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

/* Names the link's server in a log: the node of a Cluster, the server of a quorum, otherwise as the
 * URL does.  _locked */
const char *lk__link_text(const struct lk__link *link, char text[LK__PLACE_SIZE]);
/* Does no call read a link of its own?  So it is for a quorum, since a call has its responses on
 * several links (poller.c), and for a store with one stream for both sides. */
bool lk__client_loop_reads(const struct lk_client *client);
/* The link for the handle's name, the first one of a quorum; the only link where the op's thread
 * may read its responses, NULL = none.  _locked */
struct lk__link *lk__handle_link(const struct lk__handle *handle);
struct lk__link *lk__op_link(const struct lk__op *op);
/* Keep a connection alive while a thread uses it without the mutex.  _locked */
void lk__connection_use(struct lk__connection *connection);
void lk__connection_leave(struct lk__connection *connection);
/* The oldest request in flight, which is none any more; NULL = there was none.  _locked */
struct lk__pending *lk__connection_take_sent(struct lk__connection *connection);
#define LK__LINK_FDS 2 /* of each link in poll(), by enum lk__side */
/* Read the responses and messages of a link that poll() has found, and leave its connection, NULL =
 * none.  Releases the mutex meanwhile.  _locked */
void lk__link_serve(struct lk__link *link, struct lk__connection *connection,
                    const struct pollfd fds[LK__LINK_FDS]);
/* Drop a connection (NULL = none) that no thread uses and the core has forgotten. */
void lk__connection_drop(struct lk__connection *connection);
/* The connection is unusable from now on.  _locked */
void lk__link_broken(struct lk__link *link, struct lk__connection *connection,
                     const struct lk__why *why);
/* Add a link to another server, which is dialled when it is needed.  NULL when out of memory, or
 * there are too many.  _locked */
struct lk__link *lk__client_add_link(struct lk_client *client);
/* Start to use a new connection.  _locked */
void lk__link_up(struct lk__link *link, struct lk__connection *connection);
/* When the oldest request without a response was sent, LK__NEVER.  _locked */
int64_t lk__link_oldest_ns(const struct lk__link *link);
/* When that request becomes overdue.  A thread that reads checks that itself.  _locked */
int64_t lk__link_overdue_ns(const struct lk__link *link);
/* Break the link because that request is overdue.  _locked */
void lk__link_overdue(struct lk__link *link);
/* Send the queued requests of all links; releases the mutex meanwhile.  _locked */
void lk__client_flush(struct lk_client *client);

/* ---- stream.c: peers with one stream for both sides ----------------------------------------- */

/* When such a peer has something to do by itself, LK__NEVER.  _locked */
int64_t lk__stream_due_ns(const struct lk__link *link);
/* Let the peer do what is due, collect its bytes to send, and deliver what has come.  True if there
 * was something to deliver, and the link is still up: requests may follow from it.  _locked */
bool lk__stream_turn(struct lk__link *link);

/* ---- reader.c: responses in; which thread reads them --------------------------------------- */

/* Read available responses, or wait for them until deadline_ns or a wake, and deliver them.  call:
 * of the calling thread, NULL if it is in none.  Releases the mutex meanwhile.  Requires
 * !connection->reading.  _locked */
void lk__reader_read(struct lk__link *link, struct lk__connection *connection,
                     struct lk__call *call, int64_t deadline_ns);
/* Must the call's thread read now?  Its response is in flight, and no other thread reads or will
 * read.  _locked */
bool lk__reader_is_mine(const struct lk__link *link, const struct lk__call *call);
/* Are requests in flight without a thread that reads their responses?  _locked */
bool lk__reader_is_free(const struct lk__link *link);
/* Choose a reader for the responses in flight.  An awake thread calls this before it sleeps or
 * leaves its call.  _locked */
void lk__reader_pass(struct lk_client *client);
/* Make the calling loop the reader where no other thread reads or will read.  _locked */
void lk__reader_take(struct lk_client *client);

/* ---- settle.c: duties of a thread to others ------------------------------------------------ */

/* Before a thread leaves: send queued requests, and choose a reader.  _locked */
void lk__client_finish(struct lk_client *client);
/* Release the mutex and perform the recorded wakes.  The mutex is always released by this. */
void lk__client_unlock(struct lk_client *client);
/* Wait for quiet_cond at most ns nanoseconds, < 0 = no limit.  _locked */
void lk__client_wait_quiet(struct lk_client *client, int64_t ns);
/* Wake all threads that the last events of the core concern.  _locked */
void lk__client_settle(struct lk_client *client);
/* Make the waits on that handle (NULL = all) check their state.  _locked */
void lk__client_wake_calls(struct lk_client *client, const void *handle);

/* ---- ask.c: queries --------------------------------------------------------------------- */

/* A query about the handle's name.  NULL when out of memory.  _locked */
struct lk__query *lk__handle_query(const struct lk__handle *handle, enum lk__request_kind kind);
/* Send queries and wait; the thread's call has one command timeout for all of its queries.  LK_OK
 * when all succeeded, otherwise the first failure becomes this thread's error.  For a thread inside
 * a call.  Releases the mutex meanwhile.  _locked */
lk_err lk__ask_all(struct lk__link *link, struct lk__query *const *queries, size_t count);
lk_err lk__ask(struct lk__link *link, struct lk__query *query);
/* Is that command timeout over? */
bool lk__ask_is_late(const struct lk_client *client);
/* Send a query without waiting.  Takes the query (NULL: out of memory).  _locked */
void lk__ask_detached(struct lk__link *link, struct lk__query *query);
/* The response does not fit the query, which may have changed something: make that the error of
 * this thread. */
lk_err lk__malformed_answer(const struct lk_client *client);

/* ---- messages.c: the connection for messages ---------------------------------------------- */

/* Send SUBSCRIBE, UNSUBSCRIBE and PING.  For the loop only, so that a partly written command is
 * completed before the next.  Releases the mutex meanwhile.  _locked */
void lk__messages_flush(struct lk__link *link);
/* Read the messages that have arrived.  Requires !connection->hearing.  Releases the mutex
 * meanwhile.  _locked */
void lk__messages_read(struct lk__link *link, struct lk__connection *connection);
/* Something about messages or topics has come over the link. */
void lk__messages_take(struct lk__link *link, const struct lk__event *event);
/* Let the call's thread wait for messages itself, until deadline_ns, a message or a wake.  False,
 * without effect, when it should park.  Releases the mutex meanwhile.  _locked */
bool lk__messages_listen(struct lk__link *link, struct lk__call *call, int64_t now_ns,
                         int64_t deadline_ns);
/* Let the loop read messages again.  _locked */
void lk__messages_to_loop(struct lk__link *link);

/* ---- poller.c: the thread that polls the links of a quorum ------------------------------------
 */

/* Let the call's thread poll all links itself, until its op is due, an event or a wake.  False when
 * it should park.  Releases the mutex meanwhile.  _locked */
bool lk__poller_wait(struct lk_client *client, struct lk__call *call, int64_t now_ns);
/* Wake the call that polls, if there is one.  _locked */
void lk__poller_wake(struct lk_client *client);
/* If no call polls, let the loop do so again at once.  _locked */
void lk__poller_to_loop(struct lk_client *client);
/* For the loop when its timer has fired, and before it judges a link: read what has come, and poll
 * again unless a call does.  Releases the mutex meanwhile.  _locked */
void lk__poller_catch_up(struct lk_client *client);
/* When the loop must do so, LK__NEVER.  _locked */
int64_t lk__poller_due_ns(const struct lk_client *client);
bool lk__poller_init(struct lk_client *client);
void lk__poller_fini(struct lk_client *client);

/* ---- dial.c: threads that dial -------------------------------------------------------------- */

/* Dial in the calling thread.  Without the mutex. */
lk_err lk__dial(struct lk__link *link, struct lk__connection **connection, struct lk__why *why);
/* Start the thread that dials.  _locked */
void lk__dial_start(struct lk__link *link);
/* A dial has succeeded: apply what it found of a Cluster.  Returns the link.  _locked */
struct lk__link *lk__dial_found(struct lk__link *link);
/* Collect the result of a finished thread.  Releases the mutex meanwhile.  _locked */
void lk__dial_take(struct lk__link *link);
/* Cancel the dial and join its thread.  Without the mutex, when no other thread uses the link. */
void lk__dial_stop(struct lk__link *link);

/* ---- cluster.c: the nodes of a Cluster ------------------------------------------------------ */

/* Dial the link's node, or any one if it has no place yet.  Whether or not that succeeds, dialer
 * has the topology if a node answered it.  For the thread that dials, without the mutex. */
lk_err lk__cluster_dial(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                        struct lk__connection *connection, struct lk__why *why);
/* A node of a Cluster was found at a plain URL, which may be no master: err is why its dial failed.
 * When the client opens, it becomes one of a Cluster; later that is an error, and closes the peer.
 * For the thread that dials, without the mutex. */
lk_err lk__cluster_meet(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                        lk_err err, struct lk__connection *connection, struct lk__why *why);
/* The store is a Cluster, before any name was opened.  False when out of memory.
 * _locked */
bool lk__cluster_begin(struct lk_client *client);
/* This client's inbox for a name.  NULL when out of memory. */
struct lk__inbox *lk__cluster_inbox(const struct lk_client *client, const char *name, size_t len);
/* Apply the topology that a dial has found.  _locked */
void lk__cluster_adopt(struct lk_client *client, const struct lk__link *from,
                       struct lk__topology *topology);
/* Apply the topology that a node has answered, if there is one.  _locked */
void lk__cluster_refresh(struct lk_client *client);
/* Ask a node for the topology, so that every master has a link; nothing without a Cluster.
 * Releases the mutex meanwhile.  _locked */
lk_err lk__cluster_learn(struct lk_client *client);
/* A node answered a request, or a subscription (pending NULL), with a redirect.  _locked */
void lk__cluster_redirect(struct lk__link *link, struct lk__pending *pending, bool is_asked,
                          const char *text);

/* ---- quorum.c: the servers of a quorum ------------------------------------------------------ */

/* Is the store a quorum? */
static inline bool lk__client_is_quorum(const struct lk_client *client)
{
	return client->core.quorum != NULL;
}
/* Before the first link is added: the store is a quorum.  False when out of memory. */
bool lk__quorum_begin(struct lk_client *client);
/* Set the place of a new link; make the copy of a target lead there, which borrows it. */
void lk__quorum_place(struct lk__link *link);
void lk__quorum_aim(struct lk__link *link, struct lk__target *target);
/* A dial has succeeded.  False, with the reason, if another link of a quorum leads to the same
 * server.  _locked */
bool lk__quorum_takes(const struct lk__link *link, struct lk__why *why);
/* Dial, also without a call that needs the links, and wait until a majority votes (of a new quorum,
 * until all servers belong to it), or until deadline_ns.  gives_up: or until so many dials have
 * failed that no majority can be reached. Releases the mutex meanwhile.  _locked */
lk_err lk__quorum_await(struct lk_client *client, int64_t deadline_ns, bool gives_up,
                        struct lk__why *why);

/* ---- quorum_ask.c: the same question to all servers of a quorum ------------------------------ */

/* The question to each server by its link, NULL = it is not asked, or has no answer. */
struct lk__round {
	struct lk__query *queries[LK__SERVERS_MAX];
};

/* Wait until a majority votes, at most one command timeout.  For a thread inside a call.  Releases
 * the mutex meanwhile.  _locked */
lk_err lk__round_begin(struct lk_client *client);
/* The answers of so many servers leave it open: are there more to ask now?  Waits for links that
 * come up, until deadline_ns at most, LK__NEVER = none.  _locked */
bool lk__round_await_more(struct lk_client *client, unsigned count, int64_t deadline_ns);
/* Is that server to be asked?  It is connected, and belongs to the set.  _locked */
bool lk__round_includes(const struct lk_client *client, unsigned link);
/* Send the questions and wait for the answers.  Frees the questions that have none; LK_OK when so
 * many have one, otherwise why the others have not becomes this thread's error.  Releases the mutex
 * meanwhile.  _locked */
lk_err lk__round_ask(struct lk_client *client, struct lk__round *round, unsigned enough);
void lk__round_end(struct lk_client *client, struct lk__round *round);

/* ---- sentinels.c: threads that talk to sentinels ------------------------------------------- */

bool lk__sentinels_init(struct lk_client *client, const lk_client_options *options);
/* End the threads and free all; for the end of a client, when no other thread uses it. */
void lk__sentinels_fini(struct lk_client *client);
/* Ask all sentinels, by deadline_ns, and make target lead to the master; *place has room for its
 * host.  Starts the threads if they do not run.  For the thread that dials, without the mutex. */
lk_err lk__sentinels_choose(struct lk__link *link, int64_t deadline_ns, struct lk__target *target,
                            struct lk__place *place, struct lk__why *why);
/* The dial to that master has ended with err.  May the thread dial again before deadline_ns?  Then
 * it has waited for *pause_ns, or a sentinel names another master; otherwise why is complete.
 * Without the mutex. */
bool lk__sentinels_dial_again(struct lk__link *link, lk_err err, int64_t deadline_ns,
                              int64_t *pause_ns, struct lk__why *why);
/* Does a sentinel name another master than the one dialled?  Without the mutex. */
bool lk__sentinels_disagree(struct lk_client *client);
/* Cut the link if a sentinel names another master.  _locked */
void lk__sentinels_judge(struct lk__link *link);
/* After a pause of the client, ask all sentinels anew, once.  _locked */
void lk__sentinels_vouch(struct lk_client *client);
/* Make idle threads check their sentinels while the link has users.  _locked */
void lk__sentinels_mind(struct lk_client *client);

/* ---- loop.c: the background thread -------------------------------------------------------- */

bool lk__loop_init(struct lk_client *client);
void lk__loop_fini(struct lk_client *client);
bool lk__loop_start(struct lk_client *client);
void lk__loop_stop(struct lk_client *client);
/* When the loop must act by itself, LK__NEVER.  _locked */
int64_t lk__loop_due(const struct lk_client *client);
/* Make the loop wake then, LK__NEVER.  loop.timed: whether the timer was set.  _locked */
void lk__loop_arm(struct lk_client *client, int64_t due_ns);

/* ---- callbacks.c: the thread that runs loss callbacks --------------------------------------- */

bool lk__callbacks_start(struct lk_client *client); /* _locked */
void lk__callbacks_stop(struct lk_client *client);
/* Is this a thread that runs the program's callbacks?  It cannot wait for their end.  _locked */
bool lk__callbacks_is_me(const struct lk_client *client);

/* ---- news.c: log lines about the servers' memories ------------------------------------------ */

/* Write the next line that is due.  Returns when to call again, LK__NEVER.  For the thread that
 * runs callbacks.  Releases the mutex meanwhile.  _locked */
int64_t lk__news_log(struct lk_client *client, int64_t now_ns);
/* If there is something to log, make that thread do it.  _locked */
void lk__news_wake(struct lk_client *client);
/* A handle has that lease.  _locked */
void lk__news_lease(struct lk_client *client, int64_t lease_ms);

/* ---- registry.c: the clients of this process ------------------------------------------------ */

void lk__registry_add(struct lk_client *client);
void lk__registry_remove(struct lk_client *client);

/* ---- identity.c: details of a client -------------------------------------------------------- */

void lk__identity_init(struct lk__identity *identity);
/* Publish our details on each link where that is due and the client holds or waits.  _locked */
void lk__client_introduce(struct lk_client *client, int64_t now_ns);
/* Remove them.  _locked */
void lk__client_forget(struct lk_client *client);
/* In a Cluster: the same for a handle that is closed.  _locked */
void lk__handle_forget(struct lk__handle *handle);

/* ---- client.c ----------------------------------------------------------------------------- */

/* The link for requests about that name. */
struct lk__link *lk__client_route(const struct lk_client *client, const char *name, size_t len);
/* Write a line to the log hook.  Not with the mutex held. */
void lk__log(struct lk_client *client, lk_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- handle.c: the common part of all handles --------------------------------------------- */

/* No lease of a quorum may be longer than a server that has lost its memory is young: LK_EINVALID.
 * _locked */
lk_err lk__quorum_check_lease(const struct lk_client *client, int64_t lease_ms);

/* The arguments of lk__handle_open(), which checks them. */
struct lk__handle_plan {
	const char *name, *label;
	size_t name_len;
	int64_t lease_ms, max_hold_ms; /* 0 = the default */
	int64_t ttl_ms;                /* of a semaphore */
	uint32_t capacity;             /* of a semaphore */
	const int64_t *reserved;       /* 8, of the options */
	struct lk__latch *latch;       /* taken on success; NULL unless it is a latch's */
	uint8_t kind;                  /* lk_kind */
	bool fixed, reports_loss;
};

/* Add the handle to the client.  On failure the memory still belongs to the caller.  On success the
 * caller is inside a call of the client, with the mutex: end it by lk__call_leave(), after
 * lk__handle_free() if a later step failed. */
lk_err lk__handle_open(struct lk_client *client, struct lk__handle *handle,
                       const struct lk__handle_plan *plan);
lk_err lk__handle_close(struct lk__handle *handle);
/* Remove it from the client and free it.  _locked */
void lk__handle_free(struct lk__handle *handle);
lk_err lk__handle_cancel(struct lk__handle *handle);
/* A snapshot of the owner's hold on the handle's name; all zero without such a hold, or if it was
 * not acquired through that handle (NULL = any).  This is not a call, and so it works while the
 * handle is being closed, too, and in a thread that may be cancelled. */
lk_err lk__handle_snapshot(const struct lk__handle *handle, uint64_t owner, const void *through,
                           lk_hold *snapshot);
/* The state of that hold alone; LK_STATE_NONE in a child process. */
lk_state lk__handle_state(const struct lk__handle *handle, uint64_t owner, const void *through);
/* Check an argument: LK_EINVALID "lease_ms: must be 100 to 86400000, not 5", else LK_OK. */
lk_err lk__check_range(const char *what, int64_t value, int64_t least, int64_t most);
/* The same for a length: "name: must be 1 to 512 bytes, not 0"; and for a wait. */
lk_err lk__check_len(const char *what, size_t len, int most);
lk_err lk__check_wait(int64_t wait_ms);

/* ---- call.c: entering and leaving calls --------------------------------------------------- */

/* Enter a call of the client, or on one of its handles.  LK_EFORKED or LK_ECLOSED; locks the mutex
 * only on success.  The thread cannot be cancelled until it leaves: it may write or read for
 * others, and holds the mutex. */
lk_err lk__client_enter(struct lk_client *client);
lk_err lk__handle_enter(struct lk__handle *handle);
/* When the thread's call entered.  Its queries have one command timeout from then on. */
int64_t lk__call_entered_ns(void);
/* Count the time of the thread's call from now on: it has any number of requests. */
void lk__call_reenter(void);
/* Leave it; handle: NULL for a call of the client.  Call lk__client_finish() first if requests may
 * be queued.  Entered with the mutex, returns without it. */
void lk__call_leave(struct lk_client *client, struct lk__handle *handle);

/* Prepare a call on the handle that consists of one op.  Sets the op's handle and queue. */
void lk__call_init(struct lk__call *call, struct lk__handle *handle);
/* Set how long it waits from now on; 0 = only try. */
void lk__call_limit(struct lk__call *call, int64_t now_ns, int64_t wait_ms);
/* Allocate the memory that an acquire may need.  If that fails, the op is done, with LK_ENOMEM. */
void lk__call_provide(struct lk__call *call);
/* A call of the core: lk__core_acquire() and others. */
typedef void lk__call_fn(struct lk__core *core, int64_t now_ns, struct lk__op *op);
/* Begin the op unless it is done, wait for its end and leave the call.  Returns the op's result, as
 * this thread's error; frees unused memory of lk__call_provide().  Entered with the mutex, returns
 * without it. */
lk_err lk__call_run(struct lk__call *call, int64_t now_ns, lk__call_fn *begin);
/* Wait for the end of an op that has begun, inside a call that continues.  Releases the mutex
 * meanwhile.  _locked */
void lk__call_await(struct lk_client *client, struct lk__call *call);
/* Make the thread check its op.  _locked */
void lk__call_wake(struct lk_client *client, struct lk__call *call);

#endif
