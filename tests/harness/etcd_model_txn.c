/* SPDX-License-Identifier: MIT
 * Txn of the model of etcd: see etcd_model.h.  A Txn inside of a Txn is not known here. */
#include "etcd_model_parts.h"

#include <string.h>

static const struct lk__bytes all = {"", 1};

/* ---- Checks of the request --------------------------------------------------------------------
 */

static enum em_error check_op(const struct em_op *op)
{
	if (op->has_range)
		return em_check_range(&op->range);
	if (op->has_put)
		return em_check_put(&op->put);
	return op->has_del ? em_check_delete(&op->del) : EM_OK;
}

/* Does a Put of one operation meet a Put or Delete of another one?  etcd takes the end "\0" for a
 * key here, so a deletion of all keys from one on meets none. */
static bool meets(const struct em_op *one, const struct em_op *other)
{
	if (one->has_put && other->has_put)
		return lk__bytes_equal(one->put.key, other->put.key);
	if (one->has_put && other->has_del && em_bytes_order(other->del.range_end, all) != 0)
		return em_in_range(one->put.key, other->del.key, other->del.range_end);
	return one->has_del && other->has_put && meets(other, one);
}

static bool has_duplicate(struct lk__pb_list ops)
{
	struct em_op one, other;

	while (lk__pb_next(&ops, &one)) {
		struct lk__pb_list rest = ops;
		while (lk__pb_next(&rest, &other))
			if (meets(&one, &other))
				return true;
	}
	return false;
}

static enum em_error check_ops(struct lk__pb_list ops)
{
	struct em_op op;

	while (lk__pb_next(&ops, &op)) {
		enum em_error error = check_op(&op);
		if (error)
			return error;
	}
	return EM_OK;
}

static enum em_error check(const struct em_txn *txn)
{
	struct lk__pb_list compares = txn->compares;
	struct em_compare compare;
	enum em_error error;

	if (txn->compares.count > EM_OPS_MAX || txn->success.count > EM_OPS_MAX ||
	    txn->failure.count > EM_OPS_MAX)
		return EM_ETOO_MANY_OPS;
	while (lk__pb_next(&compares, &compare))
		if (!compare.key.len)
			return EM_EEMPTY_KEY;
	error = check_ops(txn->success);
	if (!error)
		error = check_ops(txn->failure);
	if (!error && (has_duplicate(txn->success) || has_duplicate(txn->failure)))
		error = EM_EDUPLICATE_KEY;
	return error;
}

static bool has_put(struct lk__pb_list ops)
{
	struct em_op op;

	while (lk__pb_next(&ops, &op))
		if (op.has_put)
			return true;
	return false;
}

/* Are all of them reads, and, if need be, such as the member answers by itself? */
static bool only_reads(struct lk__pb_list ops, bool serializable)
{
	struct em_op op;

	while (lk__pb_next(&ops, &op))
		if (!op.has_range || (serializable && !op.range.serializable))
			return false;
	return true;
}

enum em_error em_txn_check(struct lk__bytes message)
{
	struct em_txn txn;

	return em_read(&em_txn_shape, message, &txn) ? check(&txn) : EM_EMALFORMED;
}

enum em_needs em_txn_needs(struct lk__bytes message)
{
	struct em_txn txn;

	if (!em_read(&em_txn_shape, message, &txn))
		return EM_NEEDS_NOTHING;
	if (!only_reads(txn.success, false) || !only_reads(txn.failure, false))
		return EM_NEEDS_WRITE;
	if (only_reads(txn.success, true) && only_reads(txn.failure, true))
		return EM_NEEDS_NOTHING;
	return EM_NEEDS_READ;
}

/* ---- Compares ---------------------------------------------------------------------------------
 */

static int64_t number_of(const struct em_record *record, uint32_t target)
{
	switch (target) {
	case LK__ETCD_VERSION:
		return record->version;
	case LK__ETCD_CREATE:
		return record->create;
	case LK__ETCD_MOD:
		return record->mod;
	default:
		return record->lease;
	}
}

static bool is_true(const struct em_store *store, const struct em_compare *compare,
                    const struct em_record *record)
{
	int order;

	if (compare->target == LK__ETCD_VALUE) {
		order = em_bytes_order(em_store_bytes(store, record->value), compare->value);
	} else {
		int64_t number = number_of(record, compare->target);
		order = (number > compare->numbers[compare->target]) -
		        (number < compare->numbers[compare->target]);
	}
	switch (compare->result) {
	case LK__ETCD_EQUAL:
		return order == 0;
	case LK__ETCD_GREATER:
		return order > 0;
	case LK__ETCD_LESS:
		return order < 0;
	default:
		return order != 0;
	}
}

/* Without any key, a compare is with one that has all numbers 0, but no value. */
static bool is_met(struct em_store *store, const struct em_compare *compare, int64_t latest)
{
	const struct em_record none = {0};
	size_t count;

	if (compare->target > LK__ETCD_LEASE)
		return true;
	count = em_store_scan(store, compare->key, compare->range_end, latest);
	if (!count)
		return compare->target != LK__ETCD_VALUE && is_true(store, compare, &none);
	for (size_t i = 0; i < count; i++)
		if (!is_true(store, compare, em_store_found(store, i)))
			return false;
	return true;
}

/* ---- Operations -------------------------------------------------------------------------------
 */

static bool is_permitted(const struct etcd_model *model, struct lk__pb_list ops)
{
	struct em_op op;

	while (lk__pb_next(&ops, &op)) {
		if ((op.has_range && !em_permits(model, op.range.key, op.range.range_end)) ||
		    (op.has_put && !em_permits(model, op.put.key, (struct lk__bytes){0})) ||
		    (op.has_del && !em_permits(model, op.del.key, op.del.range_end)))
			return false;
	}
	return true;
}

/* Before 3.6, all Puts are looked at first.  Their keys come before their leases, other than for a
 * Put by itself. */
static enum em_error can_do(const struct etcd_model *model, struct lk__pb_list ops, int64_t latest)
{
	struct lk__pb_list again = ops;
	bool puts_first = !strncmp(model->setup.version, "3.4.", 4) ||
	                  !strncmp(model->setup.version, "3.5.", 4);
	struct em_op op;
	enum em_error error = EM_OK;

	while (!error && lk__pb_next(&ops, &op))
		if (op.has_put)
			error = em_can_put(model, &op.put, true);
		else if (op.has_range && !puts_first)
			error = em_can_range(model, &op.range, latest);
	while (!error && puts_first && lk__pb_next(&again, &op))
		if (op.has_range)
			error = em_can_range(model, &op.range, latest);
	return error;
}

static void do_op(struct etcd_model *model, const struct em_op *op, int64_t latest,
                  struct lk__pb_writer *writer)
{
	struct em_store *store = &model->store;
	size_t begun = lk__pb_begin(writer, 3), part;

	latest += store->has_changed;
	part = lk__pb_begin(writer, op->has_range ? 1 : op->has_put ? 2 : 3);
	if (op->has_range) {
		em_write_revision(writer, latest);
		em_do_range(model, &op->range, latest, writer);
	} else if (op->has_put) {
		em_write_revision(writer, store->revision + 1);
		em_do_put(model, &op->put, writer);
	} else {
		em_store_scan(store, op->del.key, op->del.range_end, latest);
		em_write_revision(writer,
		                  store->revision + (store->found.count || store->has_changed));
		em_do_delete(model, &op->del, writer);
	}
	lk__pb_end(writer, part);
	lk__pb_end(writer, begun);
}

/* The header has the revision after all operations, so it comes last; a reader does not care. */
enum em_error em_serve_txn(struct etcd_model *model, int member, struct lk__bytes message,
                           struct lk__pb_writer *writer)
{
	struct em_txn txn;
	struct em_compare compare;
	struct em_op op;
	struct lk__pb_list ops;
	int64_t latest = model->store.revision;
	bool succeeds = true;
	enum em_error error;

	if (!em_read(&em_txn_shape, message, &txn))
		return EM_EMALFORMED;
	error = check(&txn);
	if (error)
		return error;
	if (em_txn_needs(message) == EM_NEEDS_NOTHING)
		latest = em_member_revision(model, member);
	if (!is_permitted(model, txn.success) || !is_permitted(model, txn.failure))
		return EM_EDENIED;
	if (model->is_full && (has_put(txn.success) || has_put(txn.failure)))
		return EM_ENOSPACE;
	while (succeeds && lk__pb_next(&txn.compares, &compare)) {
		if (!em_permits(model, compare.key, compare.range_end))
			return EM_EDENIED;
		succeeds = is_met(&model->store, &compare, latest);
	}
	ops = succeeds ? txn.success : txn.failure;
	error = can_do(model, ops, latest);
	if (error)
		return error;
	lk__pb_put_number(writer, 2, succeeds);
	while (lk__pb_next(&ops, &op))
		if (op.has_range || op.has_put || op.has_del)
			do_op(model, &op, latest, writer);
	em_write_header(model, writer, member, latest + model->store.has_changed);
	return EM_OK;
}
