/* SPDX-License-Identifier: MIT
 * Range, Put, DeleteRange and Compact of the model of etcd: see etcd_model.h.  Checks of a request
 * come first, in the order of the server; then what the store refuses; then it is done. */
#include "etcd_model_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Range ------------------------------------------------------------------------------------
 */

enum em_error em_check_range(const struct lk__etcd_range *range)
{
	if (!range->key.len)
		return EM_EEMPTY_KEY;
	if (range->order > LK__ETCD_DESCENDING || range->by > LK__ETCD_BY_VALUE)
		return EM_ESORT;
	return EM_OK;
}

enum em_error em_can_range(const struct etcd_model *model, const struct lk__etcd_range *range,
                           int64_t latest)
{
	if (!em_permits(model, range->key, range->range_end))
		return EM_EDENIED;
	if (range->revision > latest)
		return EM_EFUTURE;
	if (range->revision > 0 && range->revision < model->store.compacted)
		return EM_ECOMPACTED;
	return EM_OK;
}

static int order_of(const struct em_store *store, enum lk__etcd_by by, const struct em_record *one,
                    const struct em_record *other)
{
	switch (by) {
	case LK__ETCD_BY_VERSION:
		return (one->version > other->version) - (one->version < other->version);
	case LK__ETCD_BY_CREATE:
		return (one->create > other->create) - (one->create < other->create);
	case LK__ETCD_BY_MOD:
		return (one->mod > other->mod) - (one->mod < other->mod);
	case LK__ETCD_BY_VALUE:
		return em_bytes_order(em_store_bytes(store, one->value),
		                      em_store_bytes(store, other->value));
	default:
		return em_bytes_order(em_store_bytes(store, one->key),
		                      em_store_bytes(store, other->key));
	}
}

/* What was found is ordered by key.  Equal ones stay in that order. */
static void sort_found(struct em_store *store, enum lk__etcd_by by, enum lk__etcd_order order)
{
	size_t *found = store->found.data;

	if (order == LK__ETCD_UNSORTED && by != LK__ETCD_BY_KEY)
		order = LK__ETCD_ASCENDING;
	if (order == LK__ETCD_UNSORTED)
		return;
	for (size_t i = 1; i < store->found.count; i++) {
		size_t moved = found[i], at = i;
		for (; at; at--) {
			int it = order_of(store, by, EM_AT(store->records, struct em_record, moved),
			                  em_store_found(store, at - 1));
			if (order == LK__ETCD_DESCENDING ? it <= 0 : it >= 0)
				break;
			found[at] = found[at - 1];
		}
		found[at] = moved;
	}
}

/* The answer without its header. */
void em_do_range(struct etcd_model *model, const struct lk__etcd_range *range, int64_t latest,
                 struct lk__pb_writer *writer)
{
	struct em_store *store = &model->store;
	size_t count = em_store_scan(store, range->key, range->range_end,
	                             range->revision > 0 ? range->revision : latest);
	size_t shown =
		range->limit > 0 && (size_t)range->limit < count ? (size_t)range->limit : count;

	if (!range->count_only) {
		/* Without an order, etcd takes no more by key than the limit and one, then sorts.
		 */
		if (range->order == LK__ETCD_UNSORTED && shown < count)
			store->found.count = shown + 1;
		sort_found(store, range->by, range->order);
		for (size_t i = 0; i < shown; i++)
			em_write_kv(writer, 2, store, em_store_found(store, i), range->keys_only);
		lk__pb_put_number(writer, 3, shown < count);
	}
	lk__pb_put_number(writer, 4, count);
}

enum em_error em_serve_range(struct etcd_model *model, int member, struct lk__bytes message,
                             struct lk__pb_writer *writer)
{
	struct lk__etcd_range range;
	int64_t latest;
	enum em_error error;

	if (!em_read(&em_range_shape, message, &range))
		return EM_EMALFORMED;
	error = em_check_range(&range);
	if (error)
		return error;
	latest = range.serializable ? em_member_revision(model, member) : model->store.revision;
	error = em_can_range(model, &range, latest);
	if (error)
		return error;
	em_write_header(model, writer, member, latest);
	em_do_range(model, &range, latest, writer);
	return EM_OK;
}

/* ---- Put --------------------------------------------------------------------------------------
 */

enum em_error em_check_put(const struct lk__etcd_put *put)
{
	if (!put->key.len)
		return EM_EEMPTY_KEY;
	if (put->ignore_value && put->value.len)
		return EM_EVALUE_PROVIDED;
	if (put->ignore_lease && put->lease)
		return EM_ELEASE_PROVIDED;
	return EM_OK;
}

enum em_error em_can_put(const struct etcd_model *model, const struct lk__etcd_put *put,
                         bool key_first)
{
	bool lacks_key = (put->ignore_value || put->ignore_lease) &&
	                 !em_store_find(&model->store, put->key, model->store.revision);

	if (!em_permits(model, put->key, (struct lk__bytes){0}))
		return EM_EDENIED;
	if (lacks_key && key_first)
		return EM_EKEY_NOT_FOUND;
	if (put->lease && !em_lease_live(model, put->lease))
		return EM_ELEASE_NOT_FOUND;
	return lacks_key ? EM_EKEY_NOT_FOUND : EM_OK;
}

/* The answer without its header. */
void em_do_put(struct etcd_model *model, const struct lk__etcd_put *put,
               struct lk__pb_writer *writer)
{
	struct em_store *store = &model->store;
	const struct em_record *found =
		em_store_find(store, put->key, em_store_read_revision(store));
	struct em_record before = found ? *found : (struct em_record){0}, *record;

	if (!found && (put->ignore_value || put->ignore_lease)) {
		/* A deletion from a key on, in the same Txn, was not seen by its check. */
		fputs("etcd model: all members of etcd would panic, now and at each start\n",
		      stderr);
		abort();
	}
	if (found && put->prev_kv)
		em_write_kv(writer, 2, store, found, false);
	record = em_store_put(store, put->key, put->value, put->lease);
	if (put->ignore_value)
		record->value = before.value;
	if (put->ignore_lease)
		record->lease = before.lease;
}

enum em_error em_serve_put(struct etcd_model *model, int member, struct lk__bytes message,
                           struct lk__pb_writer *writer)
{
	struct lk__etcd_put put;
	enum em_error error;

	if (!em_read(&em_put_shape, message, &put))
		return EM_EMALFORMED;
	error = em_check_put(&put);
	if (!error && model->is_full)
		error = EM_ENOSPACE;
	if (!error)
		error = em_can_put(model, &put, false);
	if (error)
		return error;
	em_write_header(model, writer, member, model->store.revision + 1);
	em_do_put(model, &put, writer);
	return EM_OK;
}

/* ---- DeleteRange ------------------------------------------------------------------------------
 */

enum em_error em_check_delete(const struct lk__etcd_delete *del)
{
	return del->key.len ? EM_OK : EM_EEMPTY_KEY;
}

/* The answer without its header. */
void em_do_delete(struct etcd_model *model, const struct lk__etcd_delete *del,
                  struct lk__pb_writer *writer)
{
	struct em_store *store = &model->store;
	size_t count =
		em_store_scan(store, del->key, del->range_end, em_store_read_revision(store));

	lk__pb_put_number(writer, 2, count);
	for (size_t i = 0; i < count; i++) {
		if (del->prev_kv)
			em_write_kv(writer, 3, store, em_store_found(store, i), false);
		em_store_delete(store, em_store_found(store, i));
	}
}

enum em_error em_serve_delete(struct etcd_model *model, int member, struct lk__bytes message,
                              struct lk__pb_writer *writer)
{
	struct lk__etcd_delete del;
	enum em_error error;
	size_t count;

	if (!em_read(&em_delete_shape, message, &del))
		return EM_EMALFORMED;
	error = em_check_delete(&del);
	if (error)
		return error;
	if (!em_permits(model, del.key, del.range_end))
		return EM_EDENIED;
	count = em_store_scan(&model->store, del.key, del.range_end, model->store.revision);
	em_write_header(model, writer, member, model->store.revision + (count != 0));
	em_do_delete(model, &del, writer);
	return EM_OK;
}

/* ---- Compact ----------------------------------------------------------------------------------
 */

enum em_error em_serve_compact(struct etcd_model *model, int member, struct lk__bytes message,
                               struct lk__pb_writer *writer)
{
	struct em_store *store = &model->store;
	struct em_number revision;

	if (!em_read(&em_number_shape, message, &revision))
		return EM_EMALFORMED;
	/* Later versions want root's token. */
	if (model->setup.user && !model->setup.is_3_4 && strcmp(model->setup.user, "root") != 0)
		return EM_EDENIED;
	if (revision.value <= store->compacted)
		return EM_ECOMPACTED;
	if (revision.value > store->revision)
		return EM_EFUTURE;
	em_write_header(model, writer, member, store->revision);
	em_store_compact(store, revision.value);
	return EM_OK;
}
