/* SPDX-License-Identifier: MIT
 * What the files of the model of etcd share: see etcd_model.h. */
#ifndef ETCD_MODEL_PARTS_H
#define ETCD_MODEL_PARTS_H

#include "etcd_model.h"

#include <stddef.h>

#define EM_MS INT64_C(1000000)
#define EM_S (1000 * EM_MS)

enum {
	EM_OPS_MAX = 128,         /* of a Txn */
	EM_REQUEST_MAX = 3 << 19, /* 1.5 MiB */
	EM_ANSWER_MAX = 16 << 20, /* of the model */
	EM_TOKENS_MAX = 16,
};

#define EM_TIMEOUT_NS (7 * EM_S)       /* of a request that waits for a leader */
#define EM_LEASE_LOOP_NS (500 * EM_MS) /* a leader looks for expired leases */
#define EM_WATCH_LOOP_NS (100 * EM_MS) /* a member serves watches from the past */

/* ---- Errors -----------------------------------------------------------------------------------
 */

enum em_error {
	EM_OK,
	EM_WAITS, /* no answer yet */
	EM_EEMPTY_KEY,
	EM_EKEY_NOT_FOUND,
	EM_EVALUE_PROVIDED,
	EM_ELEASE_PROVIDED,
	EM_ETOO_MANY_OPS,
	EM_EDUPLICATE_KEY,
	EM_ESORT,
	EM_ECOMPACTED,
	EM_EFUTURE,
	EM_ENOSPACE,
	EM_ELEASE_NOT_FOUND,
	EM_ELEASE_EXISTS,
	EM_ETTL,
	EM_ENOT_PRIMARY,
	EM_ETOO_LARGE,
	EM_ETOO_MANY,
	EM_EUSER_EMPTY,
	EM_EAUTH_FAILED,
	EM_EAUTH_DISABLED,
	EM_EDENIED,
	EM_ETOKEN,
	EM_ENO_LEADER,
	EM_ECHANGED,
	EM_ETIMEOUT,
	EM_ETIMEOUT_LEADER,
	EM_EDEADLINE,
	EM_EDEADLINE_OLD,
	EM_EMALFORMED,
	EM_EUNKNOWN,
	EM_ERRORS
};

struct em_status {
	int status; /* of gRPC */
	const char *text;
};

struct em_status em_status_of(enum em_error error);

/* ---- Arrays that grow -------------------------------------------------------------------------
 */

struct em_vec {
	void *data;
	size_t count, room;
	size_t size; /* of an element */
};

#define EM_AT(vec, type, index) ((type *)(vec).data + (index))
/* For each element; the body must not add or remove any. */
#define EM_EACH(type, element, vec)                                                                \
	for (type *element = (vec).data,                                                           \
	          *element##_end = (vec).count ? element + (vec).count : NULL;                     \
	     element != element##_end && (vec).count; element++)

/* Another element at the end, zeroed. */
void *em_vec_add(struct em_vec *vec);
void em_vec_remove(struct em_vec *vec, size_t index);
void em_vec_copy(struct em_vec *vec); /* its own memory instead of the original's */
/* Append bytes to a vec of bytes; returns where they begin. */
size_t em_vec_append(struct em_vec *vec, const void *data, size_t len);

/* ---- Keys -------------------------------------------------------------------------------------
 */

struct em_span {
	size_t at, len; /* in em_store.bytes */
};

/* A key from one revision on. */
struct em_record {
	struct em_span key, value;
	int64_t create, mod;
	int64_t version; /* 0 = deleted */
	int64_t lease;
	size_t previous; /* the key's record before, plus 1; 0 = none */
};

struct em_store {
	struct em_vec bytes;   /* unsigned char */
	struct em_vec records; /* struct em_record, by revision */
	struct em_vec keys;    /* size_t: each key's last record, by name */
	struct em_vec found;   /* size_t: the records that em_store_scan() found, by name */
	int64_t revision;
	int64_t compacted;
	bool has_changed; /* since em_store_commit() */
};

void em_store_init(struct em_store *store);
void em_store_copy(struct em_store *store);
void em_store_fini(struct em_store *store);

struct lk__bytes em_store_bytes(const struct em_store *store, struct em_span span);
/* The revision that reads see: with the changes of this request. */
int64_t em_store_read_revision(const struct em_store *store);
/* Find what keys were in a range at that revision, into store->found.  As in etcd, no end means one
 * key, and the end "\0" all keys from this one on. */
size_t em_store_scan(struct em_store *store, struct lk__bytes key, struct lk__bytes end,
                     int64_t revision);
struct em_record *em_store_found(const struct em_store *store, size_t index);
/* The key at that revision; NULL = it is not there. */
struct em_record *em_store_find(const struct em_store *store, struct lk__bytes key,
                                int64_t revision);
/* What the record's key was at that revision. */
struct em_record *em_store_as_of(const struct em_store *store, struct em_record *record,
                                 int64_t revision);
struct em_record *em_store_put(struct em_store *store, struct lk__bytes key, struct lk__bytes value,
                               int64_t lease);
void em_store_delete(struct em_store *store, const struct em_record *record);
/* End a request: its changes, if any, are the next revision. */
bool em_store_commit(struct em_store *store);
/* The first record from that revision on. */
size_t em_store_since(const struct em_store *store, int64_t revision);
void em_store_compact(struct em_store *store, int64_t revision);
/* Is the key in the range of em_store_scan()? */
bool em_in_range(struct lk__bytes key, struct lk__bytes from, struct lk__bytes end);
int em_bytes_order(struct lk__bytes one, struct lk__bytes other);

/* ---- Requests as a server reads them ----------------------------------------------------------
 */

struct em_compare {
	uint32_t result, target;
	struct lk__bytes key, range_end, value;
	int64_t numbers[5]; /* by enum lk__etcd_target */
};

struct em_op {
	bool has_range, has_put, has_del;
	struct lk__etcd_range range;
	struct lk__etcd_put put;
	struct lk__etcd_delete del;
};

struct em_txn {
	struct lk__pb_list compares, success, failure;
};

struct em_watch_create {
	struct lk__bytes key, range_end, filters;
	int64_t start_revision, watch_id;
	bool progress_notify, prev_kv, fragment;
};

struct em_watch_cancel {
	int64_t watch_id;
};

struct em_watch_request {
	bool has_create, has_cancel;
	struct em_watch_create create;
	struct em_watch_cancel cancel;
};

struct em_number {
	int64_t value;
};

struct em_time_to_live {
	int64_t id;
	bool keys;
};

struct em_flag {
	bool value;
};

struct em_alarm_request {
	uint32_t action, type;
	uint64_t member_id;
};

extern const struct lk__pb_shape em_range_shape, em_put_shape, em_delete_shape, em_txn_shape,
	em_compare_shape, em_op_shape, em_grant_shape, em_number_shape, em_watch_shape,
	em_time_to_live_shape, em_flag_shape, em_authenticate_shape, em_alarm_shape;

bool em_read(const struct lk__pb_shape *shape, struct lk__bytes message, void *out);
void em_write_kv(struct lk__pb_writer *writer, uint32_t field, const struct em_store *store,
                 const struct em_record *record, bool keys_only);
/* The header of an answer inside of a Txn's: the revision alone. */
void em_write_revision(struct lk__pb_writer *writer, int64_t revision);

/* ---- The world --------------------------------------------------------------------------------
 */

struct em_member {
	bool is_up, is_frozen, is_stopped, is_cut, is_lagging, holds_revokes;
	/* As far as it knows. */
	uint64_t term;
	int leader;      /* -1 = none */
	bool is_primary; /* its lessor lets leases expire */
	uint64_t applied_index;
	int64_t applied_revision;
	int64_t seen_revision, seen_until_ns; /* that serializable reads see until then */
	int64_t learns_ns; /* when it learns which member leads, 0 = it knows, or cannot learn it */
	int64_t lost_ns;   /* when it notices that it has no leader, 0 = it has one */
	int64_t streams_end_ns;               /* those that want a leader, 0 = it knows one */
	int64_t lease_loop_ns, watch_loop_ns; /* the next turns */
};

enum em_revoke {
	EM_REVOKE_NONE,
	EM_REVOKE_WAITS,  /* forwarded to the next leader, if the member does not lead any more */
	EM_REVOKE_IN_LOG, /* of a leader without its peers: lost with its term */
};

struct em_lease {
	int64_t id, ttl_s;
	uint64_t granted_index, gone_index; /* 0 = not gone */
	int64_t expires_ns[EM_MEMBERS_MAX]; /* by the lessor of that member, if primary */
	/* Found expired by that member. */
	uint8_t revoke[EM_MEMBERS_MAX]; /* enum em_revoke */
};

struct em_connection {
	uint64_t id;
	int member;
};

struct em_stream {
	uint64_t id, connection;
	int member;
	bool is_watch, has_leader;
	char token[32];
	int64_t next_watch_id;
};

struct em_watcher {
	uint64_t stream;
	int member;
	int64_t id;
	struct em_span key, end; /* in etcd_model.names */
	int64_t next_revision;
	bool is_unsynced, no_put, no_delete, prev_kv;
};

struct em_method;

/* A unary call or a message to a stream, that has no answer yet. */
struct em_request {
	uint64_t call, connection;
	int member;
	const struct em_method *method;
	void *message;
	size_t len;
	int64_t sent_ns;
	char token[32];
	bool has_leader;
	bool has_arrived;
	uint64_t term; /* of the member, when it arrived */
	/* The leader that a write or a keep-alive was forwarded to, plus 1; 0 = none.  It may be
	 * the member itself. */
	int holder;
	bool was_cut, is_lost;              /* it is never executed */
	bool loses_answer, cuts, times_out; /* once it is executed */
	bool has_ended;                     /* its caller has an answer */
};

struct em_plan {
	enum em_fault fault;
	const char *path;
	int skip;
};

struct em_answer {
	struct em_output output;
	void *message;
};

struct em_token {
	char text[32];
	int64_t ends_ns;
};

struct etcd_model {
	struct em_setup setup;
	int64_t now_ns;
	uint64_t random, last_id, last_token;
	struct em_store store;
	struct em_member members[EM_MEMBERS_MAX];
	/* The cluster. */
	int leader; /* of the last election */
	uint64_t term, index;
	int64_t begins_ns;    /* the term's first entry is committed then, 0 = it is */
	int64_t election_ns;  /* 0 = none is due */
	struct em_vec leases; /* struct em_lease, by id */
	int64_t last_lease;
	bool is_full;
	const char *denied;
	struct em_token tokens[EM_TOKENS_MAX];
	/* Clients. */
	struct em_vec connections, streams, watchers, requests, plans, answers;
	struct em_vec names; /* bytes */
	size_t taken;        /* answers */
	void *last_taken;
	int lessor;             /* the member that renews, during a keep-alive */
};

/* From 0 to below limit. */
uint64_t em_random(struct etcd_model *model, uint64_t limit);
void em_write_header(const struct etcd_model *model, struct lk__pb_writer *writer, int member,
                     int64_t revision);

/* ---- Answers ----------------------------------------------------------------------------------
 */

/* Begin to write an answer. */
struct lk__pb_writer em_begin(void);
void em_answer_message(struct etcd_model *model, uint64_t connection, uint64_t call,
                       const struct lk__pb_writer *writer, bool ends);
void em_answer_status(struct etcd_model *model, uint64_t connection, uint64_t call,
                      struct em_status status);
void em_close_connection(struct etcd_model *model, uint64_t connection);
struct em_stream *em_stream_find(const struct etcd_model *model, uint64_t id);
/* The server ends it. */
void em_stream_end(struct etcd_model *model, uint64_t id, struct em_status status);

/* ---- Methods ----------------------------------------------------------------------------------
 */

enum em_needs {
	EM_NEEDS_NOTHING, /* the member answers by itself */
	EM_NEEDS_READ,    /* it asks the leader first */
	EM_NEEDS_WRITE,
	EM_NEEDS_LESSOR,
};

/* Execute a request; the answer is written. */
typedef enum em_error em_serve_fn(struct etcd_model *model, int member, struct lk__bytes message,
                                  struct lk__pb_writer *writer);

/* Which token a call may come with, where there are users. */
enum em_rights {
	EM_ANY_TOKEN,
	EM_VALID_TOKEN, /* or none */
	EM_USER,        /* a valid one */
};

struct em_method {
	const char *path;
	bool is_stream;
	enum em_rights rights, rights_3_4;
	/* What refuses it whatever is in the store; NULL = nothing. */
	enum em_error (*check)(struct lk__bytes message);
	enum em_needs (*needs)(struct lk__bytes message);
	em_serve_fn *serve;
};

const struct em_method *em_method_find(const char *path);
em_serve_fn em_serve_range, em_serve_put, em_serve_delete, em_serve_txn, em_serve_compact,
	em_serve_grant, em_serve_revoke, em_serve_time_to_live, em_serve_keep_alive,
	em_serve_status, em_serve_members, em_serve_alarm, em_serve_authenticate;
enum em_needs em_txn_needs(struct lk__bytes message);
enum em_error em_txn_check(struct lk__bytes message);

/* Try all requests that wait. */
void em_requests_try(struct etcd_model *model);
/* When one of them times out. */
int64_t em_requests_due(const struct etcd_model *model);
/* A new one; tried at once. */
void em_request_add(struct etcd_model *model, const struct em_request *request,
                    struct lk__bytes message);

/* ---- Parts of methods -------------------------------------------------------------------------
 */

/* May a client send that, with its token? */
enum em_error em_check_rights(struct etcd_model *model, const struct em_request *request);
enum em_error em_check_range(const struct lk__etcd_range *range);
enum em_error em_check_put(const struct lk__etcd_put *put);
enum em_error em_check_delete(const struct lk__etcd_delete *del);
/* What can refuse them in the store, as it is now. */
enum em_error em_can_range(const struct etcd_model *model, const struct lk__etcd_range *range,
                           int64_t latest);
enum em_error em_can_put(const struct etcd_model *model, const struct lk__etcd_put *put,
                         bool key_first);
void em_do_range(struct etcd_model *model, const struct lk__etcd_range *range, int64_t latest,
                 struct lk__pb_writer *writer);
void em_do_put(struct etcd_model *model, const struct lk__etcd_put *put,
               struct lk__pb_writer *writer);
void em_do_delete(struct etcd_model *model, const struct lk__etcd_delete *del,
                  struct lk__pb_writer *writer);
/* May users touch them? */
bool em_permits(const struct etcd_model *model, struct lk__bytes key, struct lk__bytes end);
bool em_token_is_valid(struct etcd_model *model, const char *token);

/* End a write: members in touch apply it. */
void em_committed(struct etcd_model *model);

/* ---- Members ----------------------------------------------------------------------------------
 */

/* In touch with other members that are. */
bool em_is_well(const struct etcd_model *model, int member);
/* A majority confirms that this member leads. */
bool em_leads(const struct etcd_model *model, int member);
/* It reaches a leader that a majority follows. */
bool em_is_in_touch(const struct etcd_model *model, int member);
/* The revision that serializable reads see. */
int64_t em_member_revision(const struct etcd_model *model, int member);
/* Members that are in touch apply what is committed. */
void em_cluster_apply(struct etcd_model *model);
/* Everything that is due now. */
void em_cluster_step(struct etcd_model *model);

/* ---- Leases -----------------------------------------------------------------------------------
 */

/* That the member's lessor knows; NULL = none. */
struct em_lease *em_lease_find(const struct etcd_model *model, int member, int64_t id);
/* That the store knows. */
struct em_lease *em_lease_live(const struct etcd_model *model, int64_t id);
void em_lessor_promote(struct etcd_model *model, int member);
void em_lessor_demote(struct etcd_model *model, int member);
void em_lessor_step(struct etcd_model *model);
int64_t em_lessor_due(const struct etcd_model *model);
bool em_revoke(struct etcd_model *model, int64_t id);

/* ---- Watches ----------------------------------------------------------------------------------
 */

void em_watch_message(struct etcd_model *model, struct em_stream *stream, struct lk__bytes message);
/* The member has applied all revisions up to that one. */
void em_watch_notify(struct etcd_model *model, int member, int64_t revision);
void em_watch_step(struct etcd_model *model);
int64_t em_watch_due(const struct etcd_model *model);
void em_watch_forget(struct etcd_model *model, uint64_t stream);

#endif
