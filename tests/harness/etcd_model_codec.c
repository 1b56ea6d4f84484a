/* SPDX-License-Identifier: MIT
 * The messages of etcd's API as a server reads and writes them, for the model: see etcd_model.h.
 * The shipped code, src/etcd/messages.c, has the other half. */
#include "etcd_model_parts.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define SHAPE(type, rules)                                                                         \
	{                                                                                          \
		sizeof(struct type), COUNT(rules), rules                                           \
	}
#define RULE(type, number, what, member)                                                           \
	{                                                                                          \
		number, what, offsetof(struct type, member), 0, NULL                               \
	}
#define OPTION(type, number, member, shape)                                                        \
	{                                                                                          \
		number, LK__PB_OPTION, offsetof(struct type, member),                              \
			offsetof(struct type, has_##member), &(shape)                              \
	}
#define LIST(type, number, member, shape)                                                          \
	{                                                                                          \
		number, LK__PB_LIST, offsetof(struct type, member), 0, &(shape)                    \
	}

/* ---- Requests ---------------------------------------------------------------------------------
 */

static const struct lk__pb_rule range_rules[] = {
	RULE(lk__etcd_range, 1, LK__PB_BYTES, key),
	RULE(lk__etcd_range, 2, LK__PB_BYTES, range_end),
	RULE(lk__etcd_range, 3, LK__PB_NUMBER, limit),
	RULE(lk__etcd_range, 4, LK__PB_NUMBER, revision),
	RULE(lk__etcd_range, 5, LK__PB_WORD, order),
	RULE(lk__etcd_range, 6, LK__PB_WORD, by),
	RULE(lk__etcd_range, 7, LK__PB_FLAG, serializable),
	RULE(lk__etcd_range, 8, LK__PB_FLAG, keys_only),
	RULE(lk__etcd_range, 9, LK__PB_FLAG, count_only),
};
const struct lk__pb_shape em_range_shape = SHAPE(lk__etcd_range, range_rules);

static const struct lk__pb_rule put_rules[] = {
	RULE(lk__etcd_put, 1, LK__PB_BYTES, key),
	RULE(lk__etcd_put, 2, LK__PB_BYTES, value),
	RULE(lk__etcd_put, 3, LK__PB_NUMBER, lease),
	RULE(lk__etcd_put, 4, LK__PB_FLAG, prev_kv),
	RULE(lk__etcd_put, 5, LK__PB_FLAG, ignore_value),
	RULE(lk__etcd_put, 6, LK__PB_FLAG, ignore_lease),
};
const struct lk__pb_shape em_put_shape = SHAPE(lk__etcd_put, put_rules);

static const struct lk__pb_rule delete_rules[] = {
	RULE(lk__etcd_delete, 1, LK__PB_BYTES, key),
	RULE(lk__etcd_delete, 2, LK__PB_BYTES, range_end),
	RULE(lk__etcd_delete, 3, LK__PB_FLAG, prev_kv),
};
const struct lk__pb_shape em_delete_shape = SHAPE(lk__etcd_delete, delete_rules);

static const struct lk__pb_rule compare_rules[] = {
	RULE(em_compare, 1, LK__PB_WORD, result),
	RULE(em_compare, 2, LK__PB_WORD, target),
	RULE(em_compare, 3, LK__PB_BYTES, key),
	RULE(em_compare, 4, LK__PB_NUMBER, numbers[LK__ETCD_VERSION]),
	RULE(em_compare, 5, LK__PB_NUMBER, numbers[LK__ETCD_CREATE]),
	RULE(em_compare, 6, LK__PB_NUMBER, numbers[LK__ETCD_MOD]),
	RULE(em_compare, 7, LK__PB_BYTES, value),
	RULE(em_compare, 8, LK__PB_NUMBER, numbers[LK__ETCD_LEASE]),
	RULE(em_compare, 64, LK__PB_BYTES, range_end),
};
const struct lk__pb_shape em_compare_shape = SHAPE(em_compare, compare_rules);

static const struct lk__pb_rule op_rules[] = {
	OPTION(em_op, 1, range, em_range_shape),
	OPTION(em_op, 2, put, em_put_shape),
	OPTION(em_op, 3, del, em_delete_shape),
};
const struct lk__pb_shape em_op_shape = SHAPE(em_op, op_rules);

static const struct lk__pb_rule txn_rules[] = {
	LIST(em_txn, 1, compares, em_compare_shape),
	LIST(em_txn, 2, success, em_op_shape),
	LIST(em_txn, 3, failure, em_op_shape),
};
const struct lk__pb_shape em_txn_shape = SHAPE(em_txn, txn_rules);

static const struct lk__pb_rule grant_rules[] = {
	RULE(lk__etcd_lease_grant, 1, LK__PB_NUMBER, ttl_s),
	RULE(lk__etcd_lease_grant, 2, LK__PB_NUMBER, id),
};
const struct lk__pb_shape em_grant_shape = SHAPE(lk__etcd_lease_grant, grant_rules);

/* LeaseRevoke and LeaseKeepAlive: a lease; Compact: a revision. */
static const struct lk__pb_rule number_rules[] = {RULE(em_number, 1, LK__PB_NUMBER, value)};
const struct lk__pb_shape em_number_shape = SHAPE(em_number, number_rules);

static const struct lk__pb_rule time_to_live_rules[] = {
	RULE(em_time_to_live, 1, LK__PB_NUMBER, id),
	RULE(em_time_to_live, 2, LK__PB_FLAG, keys),
};
const struct lk__pb_shape em_time_to_live_shape = SHAPE(em_time_to_live, time_to_live_rules);

static const struct lk__pb_rule flag_rules[] = {RULE(em_flag, 1, LK__PB_FLAG, value)};
const struct lk__pb_shape em_flag_shape = SHAPE(em_flag, flag_rules);

static const struct lk__pb_rule create_rules[] = {
	RULE(em_watch_create, 1, LK__PB_BYTES, key),
	RULE(em_watch_create, 2, LK__PB_BYTES, range_end),
	RULE(em_watch_create, 3, LK__PB_NUMBER, start_revision),
	RULE(em_watch_create, 4, LK__PB_FLAG, progress_notify),
	RULE(em_watch_create, 5, LK__PB_BYTES, filters),
	RULE(em_watch_create, 6, LK__PB_FLAG, prev_kv),
	RULE(em_watch_create, 7, LK__PB_NUMBER, watch_id),
	RULE(em_watch_create, 8, LK__PB_FLAG, fragment),
};
static const struct lk__pb_shape create_shape = SHAPE(em_watch_create, create_rules);
static const struct lk__pb_rule cancel_rules[] = {
	RULE(em_watch_cancel, 1, LK__PB_NUMBER, watch_id),
};
static const struct lk__pb_shape cancel_shape = SHAPE(em_watch_cancel, cancel_rules);
static const struct lk__pb_rule watch_rules[] = {
	OPTION(em_watch_request, 1, create, create_shape),
	OPTION(em_watch_request, 2, cancel, cancel_shape),
};
const struct lk__pb_shape em_watch_shape = SHAPE(em_watch_request, watch_rules);

static const struct lk__pb_rule authenticate_rules[] = {
	RULE(lk__etcd_authenticate, 1, LK__PB_BYTES, name),
	RULE(lk__etcd_authenticate, 2, LK__PB_BYTES, password),
};
const struct lk__pb_shape em_authenticate_shape = SHAPE(lk__etcd_authenticate, authenticate_rules);

static const struct lk__pb_rule alarm_rules[] = {
	RULE(em_alarm_request, 1, LK__PB_WORD, action),
	RULE(em_alarm_request, 2, LK__PB_NUMBER, member_id),
	RULE(em_alarm_request, 3, LK__PB_WORD, type),
};
const struct lk__pb_shape em_alarm_shape = SHAPE(em_alarm_request, alarm_rules);

bool em_read(const struct lk__pb_shape *shape, struct lk__bytes message, void *out)
{
	return lk__pb_read(shape, message.data, message.len, out);
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

void em_write_kv(struct lk__pb_writer *writer, uint32_t field, const struct em_store *store,
                 const struct em_record *record, bool keys_only)
{
	size_t begun = lk__pb_begin(writer, field);

	lk__pb_put_bytes(writer, 1, em_store_bytes(store, record->key));
	lk__pb_put_number(writer, 2, (uint64_t)record->create);
	lk__pb_put_number(writer, 3, (uint64_t)record->mod);
	lk__pb_put_number(writer, 4, (uint64_t)record->version);
	if (!keys_only)
		lk__pb_put_bytes(writer, 5, em_store_bytes(store, record->value));
	lk__pb_put_number(writer, 6, (uint64_t)record->lease);
	lk__pb_end(writer, begun);
}

void em_write_revision(struct lk__pb_writer *writer, int64_t revision)
{
	size_t begun = lk__pb_begin(writer, 1);

	lk__pb_put_number(writer, 3, (uint64_t)revision);
	lk__pb_end(writer, begun);
}

void em_write_header(const struct etcd_model *model, struct lk__pb_writer *writer, int member,
                     int64_t revision)
{
	size_t begun = lk__pb_begin(writer, 1);

	lk__pb_put_number(writer, 1, 0xc105e7);
	lk__pb_put_number(writer, 2, (uint64_t)member + 1);
	lk__pb_put_number(writer, 3, (uint64_t)revision);
	lk__pb_put_number(writer, 4, model->members[member].term);
	lk__pb_end(writer, begun);
}

/* One answer is written at a time. */
struct lk__pb_writer em_begin(void)
{
	static unsigned char answer[EM_ANSWER_MAX];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, answer, sizeof(answer));
	return writer;
}
