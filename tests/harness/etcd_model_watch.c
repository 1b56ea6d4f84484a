/* SPDX-License-Identifier: MIT
 * Watches of the model of etcd: see etcd_model.h.  A synced watch gets the events of a revision
 * when the member applies it; one that begins in the past waits for the member's loop. */
#include "etcd_model_parts.h"

#include <stdlib.h>

#define NAMES_MANY 1000 /* bytes a watch: most are of watches that are gone */

static const struct lk__bytes all_keys = {"", 1};

/* ---- Answers ----------------------------------------------------------------------------------
 */

static struct lk__bytes name_of(const struct etcd_model *model, struct em_span span)
{
	return (struct lk__bytes){EM_AT(model->names, unsigned char, span.at), span.len};
}

/* One that is cancelled by a compaction has no revision in its header. */
static void control(struct etcd_model *model, const struct em_stream *stream, int64_t id,
                    bool created, bool cancelled, int64_t compacted, const char *reason)
{
	struct lk__pb_writer writer = em_begin();

	em_write_header(model, &writer, stream->member,
	                compacted ? 0 : em_member_revision(model, stream->member));
	lk__pb_put_number(&writer, 2, (uint64_t)id);
	lk__pb_put_number(&writer, 3, created);
	lk__pb_put_number(&writer, 4, cancelled);
	lk__pb_put_number(&writer, 5, (uint64_t)compacted);
	if (reason)
		lk__pb_put_bytes(&writer, 6, lk__bytes_of(reason));
	em_answer_message(model, stream->connection, stream->id, &writer, false);
}

static void write_event(struct etcd_model *model, struct lk__pb_writer *writer,
                        const struct em_watcher *watcher, const struct em_record *record)
{
	const struct em_store *store = &model->store;
	size_t begun = lk__pb_begin(writer, 11);

	lk__pb_put_number(writer, 1, record->version ? LK__ETCD_EVENT_PUT : LK__ETCD_EVENT_DELETE);
	em_write_kv(writer, 2, store, record, false);
	if (watcher->prev_kv && record->previous) {
		const struct em_record *before =
			EM_AT(store->records, struct em_record, record->previous - 1);
		if (before->version)
			em_write_kv(writer, 3, store, before, false);
	}
	lk__pb_end(writer, begun);
}

/* Send the events from the watcher's next revision up to that one, if there are any. */
static void send_events(struct etcd_model *model, struct em_watcher *watcher, int64_t revision)
{
	const struct em_store *store = &model->store;
	const struct em_stream *stream = em_stream_find(model, watcher->stream);
	struct lk__pb_writer writer = em_begin();
	bool has_events = false;

	em_write_header(model, &writer, watcher->member, revision);
	lk__pb_put_number(&writer, 2, (uint64_t)watcher->id);
	for (size_t i = em_store_since(store, watcher->next_revision); i < store->records.count;
	     i++) {
		const struct em_record *record = EM_AT(store->records, struct em_record, i);
		if (record->mod > revision)
			break;
		if (!em_in_range(em_store_bytes(store, record->key), name_of(model, watcher->key),
		                 name_of(model, watcher->end)) ||
		    (record->version ? watcher->no_put : watcher->no_delete))
			continue;
		write_event(model, &writer, watcher, record);
		has_events = true;
	}
	if (revision >= watcher->next_revision)
		watcher->next_revision = revision + 1;
	if (has_events)
		em_answer_message(model, stream->connection, stream->id, &writer, false);
}

/* ---- Requests ---------------------------------------------------------------------------------
 */

static struct em_watcher *find(const struct etcd_model *model, uint64_t stream, int64_t id)
{
	EM_EACH(struct em_watcher, watcher, model->watchers)
	{
		if (watcher->stream == stream && watcher->id == id)
			return watcher;
	}
	return NULL;
}

static const char *reason_against(struct etcd_model *model, const struct em_stream *stream,
                                  const struct em_watch_create *create)
{
	if (model->setup.user && !stream->token[0])
		return "rpc error: code = InvalidArgument desc = etcdserver: user name is empty";
	if (model->setup.user && !em_token_is_valid(model, stream->token))
		return "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token";
	if (!em_permits(model, create->key, create->range_end))
		return "rpc error: code = PermissionDenied desc = etcdserver: permission denied";
	if (create->range_end.len && em_bytes_order(create->range_end, all_keys) != 0 &&
	    em_bytes_order(create->key, create->range_end) >= 0)
		return "mvcc: watcher range is empty";
	if (create->watch_id && find(model, stream->id, create->watch_id))
		return "mvcc: duplicate watch ID provided on the WatchStream";
	return NULL;
}

static struct em_span keep_name(struct etcd_model *model, struct lk__bytes name)
{
	size_t at = em_vec_append(&model->names, name.data, name.len);

	return (struct em_span){at, name.len};
}

static void create_watcher(struct etcd_model *model, struct em_stream *stream,
                           struct em_watch_create *create)
{
	struct em_watcher *watcher;
	int64_t applied = model->members[stream->member].applied_revision;
	const char *reason;

	if (!create->key.len)
		create->key = all_keys;
	reason = reason_against(model, stream, create);
	if (reason) {
		control(model, stream, -1, true, true, 0, reason);
		return;
	}
	while (!create->watch_id && find(model, stream->id, stream->next_watch_id))
		stream->next_watch_id++;
	watcher = em_vec_add(&model->watchers);
	watcher->stream = stream->id;
	watcher->member = stream->member;
	watcher->id = create->watch_id ? create->watch_id : stream->next_watch_id++;
	watcher->key = keep_name(model, create->key);
	watcher->end = keep_name(model, create->range_end);
	watcher->next_revision = create->start_revision ? create->start_revision : applied + 1;
	watcher->is_unsynced = watcher->next_revision <= applied;
	watcher->prev_kv = create->prev_kv;
	for (size_t i = 0; i < create->filters.len; i++) {
		watcher->no_put |= ((const char *)create->filters.data)[i] == LK__ETCD_EVENT_PUT;
		watcher->no_delete |=
			((const char *)create->filters.data)[i] == LK__ETCD_EVENT_DELETE;
	}
	control(model, stream, watcher->id, true, false, 0, NULL);
}

/* Keep the names of those alone that are left. */
static void forget_names(struct etcd_model *model)
{
	struct em_vec old = model->names;

	if (model->watchers.count && old.count < NAMES_MANY * model->watchers.count)
		return;
	model->names = (struct em_vec){.size = 1};
	EM_EACH(struct em_watcher, watcher, model->watchers)
	{
		const unsigned char *names = old.data;
		watcher->key.at =
			em_vec_append(&model->names, names + watcher->key.at, watcher->key.len);
		watcher->end.at =
			em_vec_append(&model->names, names + watcher->end.at, watcher->end.len);
	}
	free(old.data);
}

static void remove_watcher(struct etcd_model *model, const struct em_watcher *watcher)
{
	em_vec_remove(&model->watchers,
	              (size_t)(watcher - EM_AT(model->watchers, struct em_watcher, 0)));
	forget_names(model);
}

void em_watch_message(struct etcd_model *model, struct em_stream *stream, struct lk__bytes message)
{
	struct em_watch_request request;
	const struct em_watcher *watcher;

	if (!em_read(&em_watch_shape, message, &request)) {
		em_stream_end(model, stream->id, em_status_of(EM_EMALFORMED));
		return;
	}
	if (request.has_create) {
		create_watcher(model, stream, &request.create);
	} else if (request.has_cancel) {
		watcher = find(model, stream->id, request.cancel.watch_id);
		if (!watcher)
			return;
		remove_watcher(model, watcher);
		control(model, stream, request.cancel.watch_id, false, true, 0, NULL);
	}
}

void em_watch_forget(struct etcd_model *model, uint64_t stream)
{
	for (size_t i = model->watchers.count; i-- > 0;)
		if (EM_AT(model->watchers, struct em_watcher, i)->stream == stream)
			em_vec_remove(&model->watchers, i);
	forget_names(model);
}

/* ---- Events -----------------------------------------------------------------------------------
 */

void em_watch_notify(struct etcd_model *model, int member, int64_t revision)
{
	for (size_t i = 0; i < model->watchers.count; i++) {
		struct em_watcher *watcher = EM_AT(model->watchers, struct em_watcher, i);
		if (watcher->member == member && !watcher->is_unsynced &&
		    watcher->next_revision <= revision)
			send_events(model, watcher, revision);
	}
}

/* A turn of the member's loop. */
static void serve_unsynced(struct etcd_model *model, int member)
{
	int64_t applied = model->members[member].applied_revision;
	int64_t compacted = model->store.compacted;

	for (size_t i = 0; i < model->watchers.count; i++) {
		struct em_watcher *watcher = EM_AT(model->watchers, struct em_watcher, i);
		if (watcher->member != member || !watcher->is_unsynced)
			continue;
		if (watcher->next_revision < compacted) {
			const struct em_stream *stream = em_stream_find(model, watcher->stream);
			control(model, stream, watcher->id, false, true, compacted, NULL);
			remove_watcher(model, watcher);
			i--;
		} else {
			watcher->is_unsynced = false;
			send_events(model, watcher, applied);
		}
	}
}

void em_watch_step(struct etcd_model *model)
{
	for (int i = 0; i < model->setup.members; i++) {
		struct em_member *member = &model->members[i];
		int64_t late_ns = model->now_ns - member->watch_loop_ns;
		if (late_ns < 0)
			continue;
		member->watch_loop_ns += (late_ns / EM_WATCH_LOOP_NS + 1) * EM_WATCH_LOOP_NS;
		if (member->is_up && !member->is_stopped && late_ns % EM_WATCH_LOOP_NS == 0)
			serve_unsynced(model, i);
	}
}

int64_t em_watch_due(const struct etcd_model *model)
{
	int64_t due_ns = INT64_MAX;

	EM_EACH(struct em_watcher, watcher, model->watchers)
	{
		int64_t turn_ns = model->members[watcher->member].watch_loop_ns;
		if (!watcher->is_unsynced || model->members[watcher->member].is_stopped)
			continue;
		if (turn_ns <= model->now_ns)
			turn_ns += ((model->now_ns - turn_ns) / EM_WATCH_LOOP_NS + 1) *
			           EM_WATCH_LOOP_NS;
		due_ns = turn_ns < due_ns ? turn_ns : due_ns;
	}
	return due_ns;
}
