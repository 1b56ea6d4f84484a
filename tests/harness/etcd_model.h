/* SPDX-License-Identifier: MIT
 * An etcd cluster in memory: requests and answers are the bytes of etcd's messages, time is set by
 * the test, and chance comes from a seed.  The same calls lead to the same answers.
 * live_etcd_model.c compares it with a real server.
 *
 *   etcd_model.c           the world: connections, calls, streams, answers, and faults of calls
 *   etcd_model_request.c   what each method does, and when its answer can be given
 *   etcd_model_cluster.c   members, terms, elections, and the passing of time
 *   etcd_model_store.c     keys with their history
 *   etcd_model_kv.c        Range, Put, DeleteRange, Compact
 *   etcd_model_txn.c       Txn
 *   etcd_model_lease.c     leases, and each member's lessor
 *   etcd_model_watch.c     watches
 *   etcd_model_server.c    Status, MemberList, Alarm, Authenticate; rights
 *   etcd_model_codec.c     the messages of etcd's API, as a server reads and writes them
 *
 * What members do was read in the sources of etcd 3.4.23 and of 3.8.0-alpha.0:
 *
 *   - a member answers reads and writes while it is in touch with a leader that a majority follows;
 *     else they wait, and end after 7 s with "request timed out".  Reads that wait may end with
 *     "leader changed";
 *   - a write is forwarded to the leader that the member knows.  If that one is frozen or stopped,
 *     the write may be executed when it goes on, long after it timed out; if it is dead or cut off,
 *     the write is lost.  One that meets no leader ends with "context deadline exceeded", and is
 *     never executed;
 *   - a keep-alive that is forwarded to a leader that is stopped or cut off ends its stream after
 *     7 s;
 *   - a serializable read is answered from what the member has applied;
 *   - a leader lets a lease expire at the next turn of a loop of 500 ms; a new leader gives each
 *     lease its whole time to live and an election timeout;
 *   - a leader with a frozen disk goes on as what it was, but learns and sends nothing, and answers
 *     keep-alives if it is old (3.4.23) or if another member forwards them;
 *   - a watch from a past revision is served by a loop of 100 ms;
 *   - events are sent before a serializable read sees their revision.
 *
 * Not here: a Txn inside of a Txn, roles, progress notifications, fragments, learners, the limit of
 * 1,000 revokes a second, checkpoints of long leases; and that a leader which has just been thawed
 * may revoke a lease before it learns that it has been replaced: em_hold_revokes() does the like.
 */
#ifndef ETCD_MODEL_H
#define ETCD_MODEL_H

#include "etcd/messages.h"

#include <stdbool.h>
#include <stdint.h>

enum { EM_MEMBERS_MAX = 5 };

struct em_setup {
	int members;         /* 0 = 1 */
	const char *version; /* NULL = "3.5.35"; borrowed, as all texts here */
	/* As 3.4.23: a leader whose disk stands still renews and revokes without asking the others,
	 * the status of a write that meets no leader is 2, not 4, and fewer methods want a user.
	 * Else as 3.5.35 and 3.6.16. */
	bool is_3_4;
	int64_t election_ms; /* timeout, 0 = 1000 */
	int64_t early_ns;    /* an event's revision can be read that long after it, 0 = at once */
	const char *user, *password; /* NULL = without authentication */
	int64_t token_ttl_ms;        /* 0 = 300 s */
};

struct etcd_model;

/* Member 0 leads, and the revision is 1.  Aborts when out of memory, as do all functions here. */
struct etcd_model *em_new(const struct em_setup *setup, uint64_t seed, int64_t now_ns);
void em_free(struct etcd_model *model);
/* The same world once more: with equal calls, both go on alike. */
struct etcd_model *em_copy(const struct etcd_model *model);

/* Chance goes on from there. */
void em_seed(struct etcd_model *model, uint64_t seed);

/* Let everything happen until now_ns, which does not go back. */
void em_tick(struct etcd_model *model, int64_t now_ns);
/* When em_tick() has something to do; INT64_MAX = never. */
int64_t em_due_ns(const struct etcd_model *model);

/* ---- Clients ------------------------------------------------------------------------------- */

struct em_metadata {
	const char *token; /* NULL = none */
	bool has_leader;   /* hasleader: true */
};

/* A connection to a member; 0 if the member is down. */
uint64_t em_connect(struct etcd_model *model, int member);
/* The client closes it: its calls and streams end without an answer. */
void em_disconnect(struct etcd_model *model, uint64_t connection);

/* Call a unary method: "/etcdserverpb.KV/Range".  The answer may be there at once. */
uint64_t em_call(struct etcd_model *model, uint64_t connection, const char *path,
                 const struct em_metadata *metadata, struct lk__bytes message);
/* Open a stream: "/etcdserverpb.Watch/Watch", "/etcdserverpb.Lease/LeaseKeepAlive". */
uint64_t em_open(struct etcd_model *model, uint64_t connection, const char *path,
                 const struct em_metadata *metadata);
void em_send(struct etcd_model *model, uint64_t stream, struct lk__bytes message);
/* The client gives a call or a stream up; there are no more answers to it. */
void em_cancel(struct etcd_model *model, uint64_t call);

struct em_output {
	uint64_t connection;
	uint64_t call; /* or stream; 0 = the connection was closed */
	bool has_message;
	struct lk__bytes message; /* valid until the next call of em_take() */
	bool has_ended;           /* with this status */
	int status;               /* of gRPC, 0 = well */
	const char *text;
};

/* The next answer, in order.  False: there is none now. */
bool em_take(struct etcd_model *model, struct em_output *output);

/* ---- Faults of calls ------------------------------------------------------------------------- */

enum em_fault {
	EM_LOSE_REQUEST,  /* never arrives; no answer */
	EM_LOSE_ANSWER,   /* executed; no answer */
	EM_CUT_BEFORE,    /* the connection ends; not executed */
	EM_CUT_AFTER,     /* executed, then the connection ends instead of an answer */
	EM_TIME_OUT,      /* "request timed out"; not executed */
	EM_TIME_OUT_DONE, /* "request timed out"; executed */
	EM_TOO_MANY,      /* "too many requests" */
	EM_NO_LEADER,     /* "no leader" */
	EM_CHANGED,       /* "leader changed" */
	EM_BAD_TOKEN,     /* "invalid auth token" */
};

/* Let that happen to the next unary call, or message to a stream, of that path (NULL = any), after
 * so many that go well.  Faults that wait see each call once. */
void em_fault(struct etcd_model *model, enum em_fault fault, const char *path, int skip);
/* Faults that wait for their call. */
int em_faults_left(const struct etcd_model *model);

/* ---- Faults of members ----------------------------------------------------------------------- */

void em_kill(struct etcd_model *model, int member);
void em_start(struct etcd_model *model, int member);
/* The member's disk stands still: it goes on as what it was, but learns and sends nothing. */
void em_freeze(struct etcd_model *model, int member, bool is_frozen);
/* The member's process is stopped: it does nothing, and its connections stay. */
void em_stop(struct etcd_model *model, int member, bool is_stopped);
/* The member is cut off from all others, not from its clients. */
void em_cut(struct etcd_model *model, int member, bool is_cut);
/* The member applies nothing for now: reads and events of it are late. */
void em_lag(struct etcd_model *model, int member, bool is_lagging);
/* What the member finds expired is not revoked for now: it has asked whether it leads, and its
 * revokes are on the way. */
void em_hold_revokes(struct etcd_model *model, int member, bool holds);
/* That member is elected now.  False: it is not possible. */
bool em_elect(struct etcd_model *model, int member);
/* The one that leads; -1 = none. */
int em_leader(const struct etcd_model *model);
uint64_t em_term(const struct etcd_model *model);

/* ---- The store --------------------------------------------------------------------------------
 */

int64_t em_revision(const struct etcd_model *model);
/* The alarm NOSPACE: keys can be deleted, and leases kept alive. */
void em_set_full(struct etcd_model *model, bool is_full);
/* All tokens end. */
void em_expire_tokens(struct etcd_model *model);
/* Users may not touch keys of that prefix; NULL = all are permitted. */
void em_deny(struct etcd_model *model, const char *prefix);

/* All keys that are there, by name; the function does not change the model. */
typedef void em_key_fn(void *arg, const struct lk__etcd_kv *kv);
void em_each_key(const struct etcd_model *model, em_key_fn *fn, void *arg);
/* ... that were there at that revision, which was not compacted. */
void em_each_key_at(const struct etcd_model *model, int64_t revision, em_key_fn *fn, void *arg);
/* The first revision that is known. */
int64_t em_compacted(const struct etcd_model *model);
/* Does the leader know it?  Its time to live; 0 = no. */
int64_t em_lease_ttl_s(const struct etcd_model *model, int64_t lease);

#endif
