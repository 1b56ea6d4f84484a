/* SPDX-License-Identifier: MIT
 * The messages of etcd's API (version 3) that a store needs: requests to encode, and answers whose
 * bytes point into what was received.  Members are named as in etcd's rpc.proto, except where that
 * hides a unit. */
#ifndef LK__MESSAGES_H
#define LK__MESSAGES_H

#include "pb.h"

/* What a NUL-ended text is as bytes. */
struct lk__bytes lk__bytes_of(const char *text);
bool lk__bytes_equal(struct lk__bytes a, struct lk__bytes b);

/* ---- Shared parts --------------------------------------------------------------------------- */

struct lk__etcd_header {
	uint64_t cluster_id, member_id;
	int64_t revision;
	uint64_t raft_term;
};

struct lk__etcd_kv {
	struct lk__bytes key, value;
	int64_t create_revision, mod_revision;
	int64_t version; /* 0 = deleted */
	int64_t lease;   /* 0 = none */
};

/* ---- Keys ----------------------------------------------------------------------------------- */

enum lk__etcd_order { LK__ETCD_UNSORTED, LK__ETCD_ASCENDING, LK__ETCD_DESCENDING };
enum lk__etcd_by {
	LK__ETCD_BY_KEY,
	LK__ETCD_BY_VERSION,
	LK__ETCD_BY_CREATE,
	LK__ETCD_BY_MOD,
	LK__ETCD_BY_VALUE
};

/* A range is one key, or [key, range_end). */
struct lk__etcd_range {
	struct lk__bytes key, range_end;
	int64_t limit;    /* 0 = none */
	int64_t revision; /* 0 = the latest */
	enum lk__etcd_order order;
	enum lk__etcd_by by;
	bool serializable, keys_only, count_only;
};

struct lk__etcd_range_answer {
	struct lk__etcd_header header;
	struct lk__pb_list kvs; /* struct lk__etcd_kv */
	bool more;
	int64_t count; /* of all in the range, whatever the limit */
};

struct lk__etcd_put {
	struct lk__bytes key, value;
	int64_t lease;
	bool prev_kv, ignore_value, ignore_lease;
};

struct lk__etcd_put_answer {
	struct lk__etcd_header header;
	bool has_prev_kv;
	struct lk__etcd_kv prev_kv;
};

struct lk__etcd_delete {
	struct lk__bytes key, range_end;
	bool prev_kv;
};

struct lk__etcd_delete_answer {
	struct lk__etcd_header header;
	int64_t deleted;
	struct lk__pb_list prev_kvs; /* struct lk__etcd_kv */
};

enum lk__etcd_result { LK__ETCD_EQUAL, LK__ETCD_GREATER, LK__ETCD_LESS, LK__ETCD_NOT_EQUAL };
enum lk__etcd_target {
	LK__ETCD_VERSION,
	LK__ETCD_CREATE,
	LK__ETCD_MOD,
	LK__ETCD_VALUE,
	LK__ETCD_LEASE
};

/* Is "<target> of each key in the range <result> <number, or value>" true? */
struct lk__etcd_compare {
	enum lk__etcd_result result;
	enum lk__etcd_target target;
	struct lk__bytes key, range_end;
	int64_t number;         /* all targets but LK__ETCD_VALUE */
	struct lk__bytes value; /* LK__ETCD_VALUE */
};

/* One of these is not NULL. */
struct lk__etcd_op {
	const struct lk__etcd_range *range;
	const struct lk__etcd_put *put;
	const struct lk__etcd_delete *del;
};

struct lk__etcd_txn {
	const struct lk__etcd_compare *compares;
	size_t compare_count;
	const struct lk__etcd_op *success;
	size_t success_count;
	const struct lk__etcd_op *failure;
	size_t failure_count;
};

/* One of these is there. */
struct lk__etcd_op_answer {
	bool has_range, has_put, has_del;
	struct lk__etcd_range_answer range;
	struct lk__etcd_put_answer put;
	struct lk__etcd_delete_answer del;
};

struct lk__etcd_txn_answer {
	struct lk__etcd_header header;
	bool succeeded;
	struct lk__pb_list responses; /* struct lk__etcd_op_answer */
};

/* ---- Leases --------------------------------------------------------------------------------- */

struct lk__etcd_lease_grant {
	int64_t ttl_s;
	int64_t id; /* 0 = the server chooses */
};

struct lk__etcd_lease_grant_answer {
	struct lk__etcd_header header;
	int64_t id;
	int64_t ttl_s; /* at least what was asked for */
	struct lk__bytes error;
};

struct lk__etcd_lease_revoke_answer {
	struct lk__etcd_header header;
};

struct lk__etcd_keep_alive_answer {
	struct lk__etcd_header header;
	int64_t id;
	int64_t ttl_s; /* 0 = the lease is gone */
};

struct lk__etcd_time_to_live_answer {
	struct lk__etcd_header header;
	int64_t id;
	int64_t ttl_s; /* left; below 0: the lease is gone */
	int64_t granted_s;
};

/* ---- Watches -------------------------------------------------------------------------------- */

struct lk__etcd_watch_create {
	struct lk__bytes key, range_end;
	int64_t start_revision; /* 0 = from now on */
	int64_t watch_id;       /* 0 = the server chooses */
	bool progress_notify, no_put, no_delete, prev_kv, fragment;
};

enum lk__etcd_event_type { LK__ETCD_EVENT_PUT, LK__ETCD_EVENT_DELETE };

struct lk__etcd_event {
	uint32_t type; /* enum lk__etcd_event_type; the server may know more of them */
	bool has_prev_kv;
	struct lk__etcd_kv kv, prev_kv;
};

struct lk__etcd_watch_answer {
	struct lk__etcd_header header;
	int64_t watch_id;
	bool created, canceled, fragment;
	int64_t compact_revision;
	struct lk__bytes cancel_reason;
	struct lk__pb_list events; /* struct lk__etcd_event */
};

/* ---- The server ----------------------------------------------------------------------------- */

struct lk__etcd_status_answer {
	struct lk__etcd_header header;
	struct lk__bytes version; /* "3.5.13" */
	int64_t db_size, db_size_in_use;
	uint64_t leader;
	uint64_t raft_index, raft_term, raft_applied_index;
	struct lk__pb_list errors; /* struct lk__bytes */
	bool is_learner;
	int64_t db_size_quota; /* from 3.6 on, 0 = it does not report it */
};

struct lk__etcd_authenticate {
	struct lk__bytes name, password;
};

struct lk__etcd_authenticate_answer {
	struct lk__etcd_header header;
	struct lk__bytes token;
};

struct lk__etcd_member {
	uint64_t id;
	struct lk__bytes name;
	struct lk__pb_list peer_urls, client_urls; /* struct lk__bytes */
	bool is_learner;
};

struct lk__etcd_member_list_answer {
	struct lk__etcd_header header;
	struct lk__pb_list members; /* struct lk__etcd_member */
};

enum lk__etcd_alarm_type { LK__ETCD_ALARM_NONE, LK__ETCD_ALARM_NOSPACE, LK__ETCD_ALARM_CORRUPT };

struct lk__etcd_alarm {
	uint64_t member_id;
	uint32_t type; /* enum lk__etcd_alarm_type */
};

struct lk__etcd_alarm_answer {
	struct lk__etcd_header header;
	struct lk__pb_list alarms; /* struct lk__etcd_alarm */
};

/* ---- Encoding ------------------------------------------------------------------------------- */

/* Append a request to a message that has begun; writer->is_full: it does not fit.  The
 * requests for the status and for all alarms have no members: they are no bytes. */
void lk__etcd_put_range(struct lk__pb_writer *writer, const struct lk__etcd_range *range);
void lk__etcd_put_put(struct lk__pb_writer *writer, const struct lk__etcd_put *put);
void lk__etcd_put_delete(struct lk__pb_writer *writer, const struct lk__etcd_delete *del);
void lk__etcd_put_txn(struct lk__pb_writer *writer, const struct lk__etcd_txn *txn);
void lk__etcd_put_lease_grant(struct lk__pb_writer *writer,
                              const struct lk__etcd_lease_grant *grant);
void lk__etcd_put_lease_revoke(struct lk__pb_writer *writer, int64_t id);
void lk__etcd_put_keep_alive(struct lk__pb_writer *writer, int64_t id);
void lk__etcd_put_time_to_live(struct lk__pb_writer *writer, int64_t id);
void lk__etcd_put_watch_create(struct lk__pb_writer *writer,
                               const struct lk__etcd_watch_create *create);
void lk__etcd_put_watch_cancel(struct lk__pb_writer *writer, int64_t watch_id);
void lk__etcd_put_authenticate(struct lk__pb_writer *writer,
                               const struct lk__etcd_authenticate *authenticate);
/* linearizable: asked of the leader, not of this member's memory.  3.4 does not know the field. */
void lk__etcd_put_member_list(struct lk__pb_writer *writer, bool linearizable);

/* ---- Decoding ------------------------------------------------------------------------------- */

/* As lk__pb_read(), with the answer's structure in *out. */
extern const struct lk__pb_shape lk__etcd_range_shape, lk__etcd_put_shape, lk__etcd_delete_shape,
	lk__etcd_txn_shape, lk__etcd_lease_grant_shape, lk__etcd_lease_revoke_shape,
	lk__etcd_keep_alive_shape, lk__etcd_time_to_live_shape, lk__etcd_watch_shape,
	lk__etcd_status_shape, lk__etcd_authenticate_shape, lk__etcd_member_list_shape,
	lk__etcd_alarm_shape;

#endif
