/* SPDX-License-Identifier: MIT
 * The numbers of the fields in etcd's API, and nothing else: requests by functions, answers by
 * descriptions. */
#include "messages.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

struct lk__bytes lk__bytes_of(const char *text)
{
	return (struct lk__bytes){text, strlen(text)};
}

bool lk__bytes_equal(struct lk__bytes a, struct lk__bytes b)
{
	return a.len == b.len && (!a.len || !memcmp(a.data, b.data, a.len));
}

/* ---- Requests ------------------------------------------------------------------------------- */

void lk__etcd_put_range(struct lk__pb_writer *writer, const struct lk__etcd_range *range)
{
	lk__pb_put_bytes(writer, 1, range->key);
	lk__pb_put_bytes(writer, 2, range->range_end);
	lk__pb_put_number(writer, 3, (uint64_t)range->limit);
	lk__pb_put_number(writer, 4, (uint64_t)range->revision);
	lk__pb_put_number(writer, 5, range->order);
	lk__pb_put_number(writer, 6, range->by);
	lk__pb_put_number(writer, 7, range->serializable);
	lk__pb_put_number(writer, 8, range->keys_only);
	lk__pb_put_number(writer, 9, range->count_only);
}

void lk__etcd_put_put(struct lk__pb_writer *writer, const struct lk__etcd_put *put)
{
	lk__pb_put_bytes(writer, 1, put->key);
	lk__pb_put_bytes(writer, 2, put->value);
	lk__pb_put_number(writer, 3, (uint64_t)put->lease);
	lk__pb_put_number(writer, 4, put->prev_kv);
	lk__pb_put_number(writer, 5, put->ignore_value);
	lk__pb_put_number(writer, 6, put->ignore_lease);
}

void lk__etcd_put_delete(struct lk__pb_writer *writer, const struct lk__etcd_delete *del)
{
	lk__pb_put_bytes(writer, 1, del->key);
	lk__pb_put_bytes(writer, 2, del->range_end);
	lk__pb_put_number(writer, 3, del->prev_kv);
}

/* What is compared has a field for each target: 4 version, 5 create, 6 mod, 7 value, 8 lease.  A
 * comparison with 0 must name its field as well. */
static void put_compare(struct lk__pb_writer *writer, const struct lk__etcd_compare *compare)
{
	const uint32_t field = 4 + (uint32_t)compare->target;

	lk__pb_put_number(writer, 1, compare->result);
	lk__pb_put_number(writer, 2, compare->target);
	lk__pb_put_bytes(writer, 3, compare->key);
	if (compare->target == LK__ETCD_VALUE)
		lk__pb_put_chosen_bytes(writer, field, compare->value);
	else
		lk__pb_put_chosen_number(writer, field, (uint64_t)compare->number);
	lk__pb_put_bytes(writer, 64, compare->range_end);
}

static void put_op(struct lk__pb_writer *writer, const struct lk__etcd_op *op)
{
	size_t begun = lk__pb_begin(writer, op->range ? 1 : op->put ? 2 : 3);

	if (op->range)
		lk__etcd_put_range(writer, op->range);
	else if (op->put)
		lk__etcd_put_put(writer, op->put);
	else
		lk__etcd_put_delete(writer, op->del);
	lk__pb_end(writer, begun);
}

static void put_ops(struct lk__pb_writer *writer, uint32_t field, const struct lk__etcd_op *ops,
                    size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t begun = lk__pb_begin(writer, field);
		put_op(writer, &ops[i]);
		lk__pb_end(writer, begun);
	}
}

void lk__etcd_put_txn(struct lk__pb_writer *writer, const struct lk__etcd_txn *txn)
{
	for (size_t i = 0; i < txn->compare_count; i++) {
		size_t begun = lk__pb_begin(writer, 1);
		put_compare(writer, &txn->compares[i]);
		lk__pb_end(writer, begun);
	}
	put_ops(writer, 2, txn->success, txn->success_count);
	put_ops(writer, 3, txn->failure, txn->failure_count);
}

void lk__etcd_put_lease_grant(struct lk__pb_writer *writer,
                              const struct lk__etcd_lease_grant *grant)
{
	lk__pb_put_number(writer, 1, (uint64_t)grant->ttl_s);
	lk__pb_put_number(writer, 2, (uint64_t)grant->id);
}

void lk__etcd_put_lease_revoke(struct lk__pb_writer *writer, int64_t id)
{
	lk__pb_put_number(writer, 1, (uint64_t)id);
}

void lk__etcd_put_keep_alive(struct lk__pb_writer *writer, int64_t id)
{
	lk__pb_put_number(writer, 1, (uint64_t)id);
}

void lk__etcd_put_time_to_live(struct lk__pb_writer *writer, int64_t id)
{
	lk__pb_put_number(writer, 1, (uint64_t)id);
}

void lk__etcd_put_watch_create(struct lk__pb_writer *writer,
                               const struct lk__etcd_watch_create *create)
{
	/* Field 5 is a packed list: the numbers of events that are not sent, one byte each. */
	char filters[2];
	size_t begun = lk__pb_begin(writer, 1), count = 0;

	if (create->no_put)
		filters[count++] = LK__ETCD_EVENT_PUT;
	if (create->no_delete)
		filters[count++] = LK__ETCD_EVENT_DELETE;
	lk__pb_put_bytes(writer, 1, create->key);
	lk__pb_put_bytes(writer, 2, create->range_end);
	lk__pb_put_number(writer, 3, (uint64_t)create->start_revision);
	lk__pb_put_number(writer, 4, create->progress_notify);
	lk__pb_put_bytes(writer, 5, (struct lk__bytes){filters, count});
	lk__pb_put_number(writer, 6, create->prev_kv);
	lk__pb_put_number(writer, 7, (uint64_t)create->watch_id);
	lk__pb_put_number(writer, 8, create->fragment);
	lk__pb_end(writer, begun);
}

void lk__etcd_put_watch_cancel(struct lk__pb_writer *writer, int64_t watch_id)
{
	size_t begun = lk__pb_begin(writer, 2);

	lk__pb_put_number(writer, 1, (uint64_t)watch_id);
	lk__pb_end(writer, begun);
}

void lk__etcd_put_authenticate(struct lk__pb_writer *writer,
                               const struct lk__etcd_authenticate *authenticate)
{
	lk__pb_put_bytes(writer, 1, authenticate->name);
	lk__pb_put_bytes(writer, 2, authenticate->password);
}

void lk__etcd_put_member_list(struct lk__pb_writer *writer, bool linearizable)
{
	lk__pb_put_number(writer, 1, linearizable);
}

/* ---- Answers -------------------------------------------------------------------------------- */

#define SHAPE(type, rules)                                                                         \
	{                                                                                          \
		sizeof(struct type), COUNT(rules), rules                                           \
	}
#define RULE(type, number, what, member)                                                           \
	{                                                                                          \
		number, what, offsetof(struct type, member), 0, NULL                               \
	}
#define PART(type, number, member, shape)                                                          \
	{                                                                                          \
		number, LK__PB_PART, offsetof(struct type, member), 0, &(shape)                    \
	}
#define OPTION(type, number, member, shape)                                                        \
	{                                                                                          \
		number, LK__PB_OPTION, offsetof(struct type, member),                              \
			offsetof(struct type, has_##member), &(shape)                              \
	}
#define LIST(type, number, member, shape)                                                          \
	{                                                                                          \
		number, LK__PB_LIST, offsetof(struct type, member), 0, shape                       \
	}

static const struct lk__pb_rule header_rules[] = {
	RULE(lk__etcd_header, 1, LK__PB_NUMBER, cluster_id),
	RULE(lk__etcd_header, 2, LK__PB_NUMBER, member_id),
	RULE(lk__etcd_header, 3, LK__PB_NUMBER, revision),
	RULE(lk__etcd_header, 4, LK__PB_NUMBER, raft_term),
};
static const struct lk__pb_shape header_shape = SHAPE(lk__etcd_header, header_rules);
#define HEADER(type) PART(type, 1, header, header_shape)

static const struct lk__pb_rule kv_rules[] = {
	RULE(lk__etcd_kv, 1, LK__PB_BYTES, key),
	RULE(lk__etcd_kv, 2, LK__PB_NUMBER, create_revision),
	RULE(lk__etcd_kv, 3, LK__PB_NUMBER, mod_revision),
	RULE(lk__etcd_kv, 4, LK__PB_NUMBER, version),
	RULE(lk__etcd_kv, 5, LK__PB_BYTES, value),
	RULE(lk__etcd_kv, 6, LK__PB_NUMBER, lease),
};
static const struct lk__pb_shape kv_shape = SHAPE(lk__etcd_kv, kv_rules);

static const struct lk__pb_rule range_rules[] = {
	HEADER(lk__etcd_range_answer),
	LIST(lk__etcd_range_answer, 2, kvs, &kv_shape),
	RULE(lk__etcd_range_answer, 3, LK__PB_FLAG, more),
	RULE(lk__etcd_range_answer, 4, LK__PB_NUMBER, count),
};
const struct lk__pb_shape lk__etcd_range_shape = SHAPE(lk__etcd_range_answer, range_rules);

static const struct lk__pb_rule put_rules[] = {
	HEADER(lk__etcd_put_answer),
	OPTION(lk__etcd_put_answer, 2, prev_kv, kv_shape),
};
const struct lk__pb_shape lk__etcd_put_shape = SHAPE(lk__etcd_put_answer, put_rules);

static const struct lk__pb_rule delete_rules[] = {
	HEADER(lk__etcd_delete_answer),
	RULE(lk__etcd_delete_answer, 2, LK__PB_NUMBER, deleted),
	LIST(lk__etcd_delete_answer, 3, prev_kvs, &kv_shape),
};
const struct lk__pb_shape lk__etcd_delete_shape = SHAPE(lk__etcd_delete_answer, delete_rules);

/* Field 4 would be the answer to a Txn inside of a Txn, which is never asked. */
static const struct lk__pb_rule op_rules[] = {
	OPTION(lk__etcd_op_answer, 1, range, lk__etcd_range_shape),
	OPTION(lk__etcd_op_answer, 2, put, lk__etcd_put_shape),
	OPTION(lk__etcd_op_answer, 3, del, lk__etcd_delete_shape),
};
static const struct lk__pb_shape op_shape = SHAPE(lk__etcd_op_answer, op_rules);

static const struct lk__pb_rule txn_rules[] = {
	HEADER(lk__etcd_txn_answer),
	RULE(lk__etcd_txn_answer, 2, LK__PB_FLAG, succeeded),
	LIST(lk__etcd_txn_answer, 3, responses, &op_shape),
};
const struct lk__pb_shape lk__etcd_txn_shape = SHAPE(lk__etcd_txn_answer, txn_rules);

static const struct lk__pb_rule lease_grant_rules[] = {
	HEADER(lk__etcd_lease_grant_answer),
	RULE(lk__etcd_lease_grant_answer, 2, LK__PB_NUMBER, id),
	RULE(lk__etcd_lease_grant_answer, 3, LK__PB_NUMBER, ttl_s),
	RULE(lk__etcd_lease_grant_answer, 4, LK__PB_BYTES, error),
};
const struct lk__pb_shape lk__etcd_lease_grant_shape =
	SHAPE(lk__etcd_lease_grant_answer, lease_grant_rules);

static const struct lk__pb_rule lease_revoke_rules[] = {HEADER(lk__etcd_lease_revoke_answer)};
const struct lk__pb_shape lk__etcd_lease_revoke_shape =
	SHAPE(lk__etcd_lease_revoke_answer, lease_revoke_rules);

static const struct lk__pb_rule keep_alive_rules[] = {
	HEADER(lk__etcd_keep_alive_answer),
	RULE(lk__etcd_keep_alive_answer, 2, LK__PB_NUMBER, id),
	RULE(lk__etcd_keep_alive_answer, 3, LK__PB_NUMBER, ttl_s),
};
const struct lk__pb_shape lk__etcd_keep_alive_shape =
	SHAPE(lk__etcd_keep_alive_answer, keep_alive_rules);

static const struct lk__pb_rule time_to_live_rules[] = {
	HEADER(lk__etcd_time_to_live_answer),
	RULE(lk__etcd_time_to_live_answer, 2, LK__PB_NUMBER, id),
	RULE(lk__etcd_time_to_live_answer, 3, LK__PB_NUMBER, ttl_s),
	RULE(lk__etcd_time_to_live_answer, 4, LK__PB_NUMBER, granted_s),
};
const struct lk__pb_shape lk__etcd_time_to_live_shape =
	SHAPE(lk__etcd_time_to_live_answer, time_to_live_rules);

static const struct lk__pb_rule event_rules[] = {
	RULE(lk__etcd_event, 1, LK__PB_WORD, type),
	PART(lk__etcd_event, 2, kv, kv_shape),
	OPTION(lk__etcd_event, 3, prev_kv, kv_shape),
};
static const struct lk__pb_shape event_shape = SHAPE(lk__etcd_event, event_rules);

static const struct lk__pb_rule watch_rules[] = {
	HEADER(lk__etcd_watch_answer),
	RULE(lk__etcd_watch_answer, 2, LK__PB_NUMBER, watch_id),
	RULE(lk__etcd_watch_answer, 3, LK__PB_FLAG, created),
	RULE(lk__etcd_watch_answer, 4, LK__PB_FLAG, canceled),
	RULE(lk__etcd_watch_answer, 5, LK__PB_NUMBER, compact_revision),
	RULE(lk__etcd_watch_answer, 6, LK__PB_BYTES, cancel_reason),
	RULE(lk__etcd_watch_answer, 7, LK__PB_FLAG, fragment),
	LIST(lk__etcd_watch_answer, 11, events, &event_shape),
};
const struct lk__pb_shape lk__etcd_watch_shape = SHAPE(lk__etcd_watch_answer, watch_rules);

static const struct lk__pb_rule status_rules[] = {
	HEADER(lk__etcd_status_answer),
	RULE(lk__etcd_status_answer, 2, LK__PB_BYTES, version),
	RULE(lk__etcd_status_answer, 3, LK__PB_NUMBER, db_size),
	RULE(lk__etcd_status_answer, 4, LK__PB_NUMBER, leader),
	RULE(lk__etcd_status_answer, 5, LK__PB_NUMBER, raft_index),
	RULE(lk__etcd_status_answer, 6, LK__PB_NUMBER, raft_term),
	RULE(lk__etcd_status_answer, 7, LK__PB_NUMBER, raft_applied_index),
	LIST(lk__etcd_status_answer, 8, errors, NULL),
	RULE(lk__etcd_status_answer, 9, LK__PB_NUMBER, db_size_in_use),
	RULE(lk__etcd_status_answer, 10, LK__PB_FLAG, is_learner),
	RULE(lk__etcd_status_answer, 12, LK__PB_NUMBER, db_size_quota),
};
const struct lk__pb_shape lk__etcd_status_shape = SHAPE(lk__etcd_status_answer, status_rules);

static const struct lk__pb_rule authenticate_rules[] = {
	HEADER(lk__etcd_authenticate_answer),
	RULE(lk__etcd_authenticate_answer, 2, LK__PB_BYTES, token),
};
const struct lk__pb_shape lk__etcd_authenticate_shape =
	SHAPE(lk__etcd_authenticate_answer, authenticate_rules);

static const struct lk__pb_rule member_rules[] = {
	RULE(lk__etcd_member, 1, LK__PB_NUMBER, id),
	RULE(lk__etcd_member, 2, LK__PB_BYTES, name),
	LIST(lk__etcd_member, 3, peer_urls, NULL),
	LIST(lk__etcd_member, 4, client_urls, NULL),
	RULE(lk__etcd_member, 5, LK__PB_FLAG, is_learner),
};
static const struct lk__pb_shape member_shape = SHAPE(lk__etcd_member, member_rules);

static const struct lk__pb_rule member_list_rules[] = {
	HEADER(lk__etcd_member_list_answer),
	LIST(lk__etcd_member_list_answer, 2, members, &member_shape),
};
const struct lk__pb_shape lk__etcd_member_list_shape =
	SHAPE(lk__etcd_member_list_answer, member_list_rules);

static const struct lk__pb_rule alarm_rules[] = {
	RULE(lk__etcd_alarm, 1, LK__PB_NUMBER, member_id),
	RULE(lk__etcd_alarm, 2, LK__PB_WORD, type),
};
static const struct lk__pb_shape alarm_shape = SHAPE(lk__etcd_alarm, alarm_rules);

static const struct lk__pb_rule alarm_answer_rules[] = {
	HEADER(lk__etcd_alarm_answer),
	LIST(lk__etcd_alarm_answer, 2, alarms, &alarm_shape),
};
const struct lk__pb_shape lk__etcd_alarm_shape = SHAPE(lk__etcd_alarm_answer, alarm_answer_rules);
