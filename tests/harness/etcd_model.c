/* SPDX-License-Identifier: MIT
 * Clients of the model of etcd, their calls and streams, and faults of these: see etcd_model.h. */
#include "etcd_model_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The world --------------------------------------------------------------------------------
 */

uint64_t em_random(struct etcd_model *model, uint64_t limit)
{
	/* splitmix64 */
	uint64_t bits = model->random += UINT64_C(0x9e3779b97f4a7c15);

	bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
	return limit ? (bits ^ bits >> 31) % limit : 0;
}

void em_seed(struct etcd_model *model, uint64_t seed)
{
	model->random = seed;
}

struct etcd_model *em_new(const struct em_setup *setup, uint64_t seed, int64_t now_ns)
{
	struct etcd_model *model = calloc(1, sizeof(*model));

	if (!model)
		abort();
	model->setup = *setup;
	if (!model->setup.members)
		model->setup.members = 1;
	if (!model->setup.version)
		model->setup.version = "3.5.35";
	if (!model->setup.election_ms)
		model->setup.election_ms = 1000;
	if (!model->setup.token_ttl_ms)
		model->setup.token_ttl_ms = 300000;
	model->now_ns = now_ns;
	model->random = seed;
	model->term = 2;
	model->index = 1;
	em_store_init(&model->store);
	model->leases.size = sizeof(struct em_lease);
	model->connections.size = sizeof(struct em_connection);
	model->streams.size = sizeof(struct em_stream);
	model->watchers.size = sizeof(struct em_watcher);
	model->requests.size = sizeof(struct em_request);
	model->plans.size = sizeof(struct em_plan);
	model->answers.size = sizeof(struct em_answer);
	model->names.size = 1;
	model->last_lease = (int64_t)em_random(model, INT64_MAX / 2) + 1;
	for (int i = 0; i < model->setup.members; i++) {
		struct em_member *member = &model->members[i];
		*member = (struct em_member){
			.is_up = true, .term = 2, .applied_index = 1, .applied_revision = 1};
		member->lease_loop_ns =
			now_ns + (int64_t)em_random(model, (uint64_t)EM_LEASE_LOOP_NS) + 1;
		member->watch_loop_ns =
			now_ns + (int64_t)em_random(model, (uint64_t)EM_WATCH_LOOP_NS) + 1;
	}
	model->members[0].is_primary = true;
	return model;
}

static void copy_bytes(void **data, size_t len)
{
	void *copied;

	if (!*data)
		return;
	copied = malloc(len + 1);
	if (!copied)
		abort();
	memcpy(copied, *data, len);
	*data = copied;
}

struct etcd_model *em_copy(const struct etcd_model *model)
{
	struct etcd_model *copy = malloc(sizeof(*copy));

	if (!copy)
		abort();
	*copy = *model;
	copy->last_taken = NULL;
	em_store_copy(&copy->store);
	em_vec_copy(&copy->leases);
	em_vec_copy(&copy->connections);
	em_vec_copy(&copy->streams);
	em_vec_copy(&copy->watchers);
	em_vec_copy(&copy->requests);
	em_vec_copy(&copy->plans);
	em_vec_copy(&copy->answers);
	em_vec_copy(&copy->names);
	EM_EACH(struct em_request, request, copy->requests)
	{
		copy_bytes(&request->message, request->len);
	}
	for (size_t i = copy->taken; i < copy->answers.count; i++) {
		struct em_answer *answer = EM_AT(copy->answers, struct em_answer, i);
		copy_bytes(&answer->message, answer->output.message.len);
		answer->output.message.data = answer->message;
	}
	return copy;
}

void em_free(struct etcd_model *model)
{
	for (size_t i = model->taken; i < model->answers.count; i++)
		free(EM_AT(model->answers, struct em_answer, i)->message);
	EM_EACH(struct em_request, request, model->requests)
	{
		free(request->message);
	}
	em_store_fini(&model->store);
	free(model->leases.data);
	free(model->connections.data);
	free(model->streams.data);
	free(model->watchers.data);
	free(model->requests.data);
	free(model->plans.data);
	free(model->answers.data);
	free(model->names.data);
	free(model->last_taken);
	free(model);
}

int64_t em_revision(const struct etcd_model *model)
{
	return model->store.revision;
}

void em_each_key_at(const struct etcd_model *model, int64_t revision, em_key_fn *fn, void *arg)
{
	const struct em_store *store = &model->store;

	EM_EACH(size_t, last, store->keys)
	{
		const struct em_record *record = em_store_as_of(
			store, EM_AT(store->records, struct em_record, *last), revision);
		struct lk__etcd_kv kv;
		if (!record)
			continue;
		kv = (struct lk__etcd_kv){em_store_bytes(store, record->key),
		                          em_store_bytes(store, record->value),
		                          record->create,
		                          record->mod,
		                          record->version,
		                          record->lease};
		fn(arg, &kv);
	}
}

void em_each_key(const struct etcd_model *model, em_key_fn *fn, void *arg)
{
	em_each_key_at(model, INT64_MAX, fn, arg);
}

int64_t em_compacted(const struct etcd_model *model)
{
	return model->store.compacted;
}

/* ---- Answers ----------------------------------------------------------------------------------
 */

static struct em_answer *add_answer(struct etcd_model *model, uint64_t connection, uint64_t call)
{
	struct em_answer *answer = em_vec_add(&model->answers);

	answer->output.connection = connection;
	answer->output.call = call;
	answer->output.text = "";
	return answer;
}

void em_answer_message(struct etcd_model *model, uint64_t connection, uint64_t call,
                       const struct lk__pb_writer *writer, bool ends)
{
	struct em_answer *answer = add_answer(model, connection, call);

	if (writer->is_full)
		abort();
	answer->message = malloc(writer->len + 1);
	if (!answer->message)
		abort();
	memcpy(answer->message, writer->data, writer->len);
	answer->output.has_message = true;
	answer->output.message = (struct lk__bytes){answer->message, writer->len};
	answer->output.has_ended = ends;
}

void em_answer_status(struct etcd_model *model, uint64_t connection, uint64_t call,
                      struct em_status status)
{
	struct em_answer *answer = add_answer(model, connection, call);

	answer->output.has_ended = true;
	answer->output.status = status.status;
	answer->output.text = status.text;
}

bool em_take(struct etcd_model *model, struct em_output *output)
{
	struct em_answer *answer;

	free(model->last_taken);
	model->last_taken = NULL;
	if (model->taken == model->answers.count) {
		model->taken = model->answers.count = 0;
		return false;
	}
	answer = EM_AT(model->answers, struct em_answer, model->taken++);
	*output = answer->output;
	model->last_taken = answer->message;
	return true;
}

/* ---- Connections ------------------------------------------------------------------------------
 */

static struct em_connection *find_connection(const struct etcd_model *model, uint64_t id)
{
	EM_EACH(struct em_connection, connection, model->connections)
	{
		if (connection->id == id)
			return connection;
	}
	return NULL;
}

uint64_t em_connect(struct etcd_model *model, int member)
{
	struct em_connection *connection;

	if (!model->members[member].is_up)
		return 0;
	connection = em_vec_add(&model->connections);
	connection->id = ++model->last_id;
	connection->member = member;
	return connection->id;
}

/* Answers that were not taken are lost. */
static void drop_answers(struct etcd_model *model, uint64_t connection, uint64_t call)
{
	for (size_t i = model->answers.count; i-- > model->taken;) {
		struct em_answer *answer = EM_AT(model->answers, struct em_answer, i);
		if (call ? answer->output.call != call : answer->output.connection != connection)
			continue;
		free(answer->message);
		em_vec_remove(&model->answers, i);
	}
}

/* A request that was sent may be executed without its caller. */
static void leave_requests(struct etcd_model *model, uint64_t connection, uint64_t call)
{
	EM_EACH(struct em_request, request, model->requests)
	{
		if (call ? request->call == call : request->connection == connection)
			request->has_ended = true;
	}
}

static void drop_streams(struct etcd_model *model, uint64_t connection, uint64_t call)
{
	for (size_t i = model->streams.count; i-- > 0;) {
		const struct em_stream *stream = EM_AT(model->streams, struct em_stream, i);
		if (call ? stream->id != call : stream->connection != connection)
			continue;
		em_watch_forget(model, stream->id);
		em_vec_remove(&model->streams, i);
	}
}

void em_disconnect(struct etcd_model *model, uint64_t id)
{
	struct em_connection *connection = find_connection(model, id);

	if (!connection)
		return;
	em_vec_remove(&model->connections,
	              (size_t)(connection - EM_AT(model->connections, struct em_connection, 0)));
	drop_streams(model, id, 0);
	leave_requests(model, id, 0);
	drop_answers(model, id, 0);
}

void em_close_connection(struct etcd_model *model, uint64_t id)
{
	if (!find_connection(model, id))
		return;
	em_disconnect(model, id);
	add_answer(model, id, 0)->output.has_ended = true;
}

/* ---- Streams ----------------------------------------------------------------------------------
 */

struct em_stream *em_stream_find(const struct etcd_model *model, uint64_t id)
{
	EM_EACH(struct em_stream, stream, model->streams)
	{
		if (stream->id == id)
			return stream;
	}
	return NULL;
}

void em_stream_end(struct etcd_model *model, uint64_t id, struct em_status status)
{
	const struct em_stream *stream = em_stream_find(model, id);
	uint64_t connection = stream ? stream->connection : 0;

	if (!stream)
		return;
	drop_streams(model, 0, id);
	leave_requests(model, 0, id);
	em_answer_status(model, connection, id, status);
}

void em_cancel(struct etcd_model *model, uint64_t call)
{
	drop_streams(model, 0, call);
	leave_requests(model, 0, call);
	drop_answers(model, 0, call);
}

/* ---- Faults of calls --------------------------------------------------------------------------
 */

void em_fault(struct etcd_model *model, enum em_fault fault, const char *path, int skip)
{
	*(struct em_plan *)em_vec_add(&model->plans) = (struct em_plan){fault, path, skip};
}

int em_faults_left(const struct etcd_model *model)
{
	return (int)model->plans.count;
}

/* What is to happen to this call; false = nothing.  All plans see it, and the first one that is due
 * is used up. */
static bool take_fault(struct etcd_model *model, const char *path, enum em_fault *fault)
{
	size_t found = SIZE_MAX;

	for (size_t i = 0; i < model->plans.count; i++) {
		struct em_plan *plan = EM_AT(model->plans, struct em_plan, i);
		if (plan->path && strcmp(plan->path, path) != 0)
			continue;
		if (plan->skip)
			plan->skip--;
		else if (found == SIZE_MAX)
			found = i;
	}
	if (found == SIZE_MAX)
		return false;
	*fault = EM_AT(model->plans, struct em_plan, found)->fault;
	em_vec_remove(&model->plans, found);
	return true;
}

static void refuse(struct etcd_model *model, const struct em_request *request, enum em_error error)
{
	if (request->method && request->method->is_stream)
		em_stream_end(model, request->call, em_status_of(error));
	else
		em_answer_status(model, request->connection, request->call, em_status_of(error));
}

/* True: the request goes on. */
static bool survives_fault(struct etcd_model *model, struct em_request *request,
                           enum em_fault fault)
{
	switch (fault) {
	case EM_LOSE_REQUEST:
		return false;
	case EM_CUT_BEFORE:
		em_close_connection(model, request->connection);
		return false;
	case EM_TIME_OUT:
		refuse(model, request, EM_ETIMEOUT);
		return false;
	case EM_TOO_MANY:
		refuse(model, request, EM_ETOO_MANY);
		return false;
	case EM_NO_LEADER:
		refuse(model, request, EM_ENO_LEADER);
		return false;
	case EM_CHANGED:
		refuse(model, request, EM_ECHANGED);
		return false;
	case EM_BAD_TOKEN:
		refuse(model, request, EM_ETOKEN);
		return false;
	default:
		request->loses_answer = fault == EM_LOSE_ANSWER;
		request->cuts = fault == EM_CUT_AFTER;
		request->times_out = fault == EM_TIME_OUT_DONE;
		return true;
	}
}

/* ---- Calls ------------------------------------------------------------------------------------
 */

enum em_error em_check_rights(struct etcd_model *model, const struct em_request *request)
{
	enum em_rights rights;

	if (request->has_leader && model->members[request->member].leader < 0)
		return EM_ENO_LEADER;
	if (request->len > EM_REQUEST_MAX)
		return EM_ETOO_LARGE;
	rights = model->setup.is_3_4 ? request->method->rights_3_4 : request->method->rights;
	if (!model->setup.user || rights == EM_ANY_TOKEN)
		return EM_OK;
	if (!request->token[0])
		return rights == EM_USER ? EM_EUSER_EMPTY : EM_OK;
	return em_token_is_valid(model, request->token) ? EM_OK : EM_ETOKEN;
}

static void submit(struct etcd_model *model, struct em_request *request, struct lk__bytes message,
                   const char *path)
{
	enum em_fault fault;

	if (take_fault(model, path, &fault) && !survives_fault(model, request, fault))
		return;
	if (request->method)
		em_request_add(model, request, message);
	else
		refuse(model, request, EM_EUNKNOWN);
}

static void set_token(char token[32], const struct em_metadata *metadata)
{
	snprintf(token, 32, "%s", metadata && metadata->token ? metadata->token : "");
}

uint64_t em_call(struct etcd_model *model, uint64_t connection_id, const char *path,
                 const struct em_metadata *metadata, struct lk__bytes message)
{
	const struct em_connection *connection = find_connection(model, connection_id);
	struct em_request request = {.call = ++model->last_id, .connection = connection_id};

	if (!connection)
		return request.call;
	request.member = connection->member;
	request.method = em_method_find(path);
	request.has_leader = metadata && metadata->has_leader;
	set_token(request.token, metadata);
	submit(model, &request, message, path);
	return request.call;
}

uint64_t em_open(struct etcd_model *model, uint64_t connection_id, const char *path,
                 const struct em_metadata *metadata)
{
	const struct em_connection *connection = find_connection(model, connection_id);
	const struct em_method *method = em_method_find(path);
	uint64_t id = ++model->last_id;
	struct em_stream *stream;

	if (!connection)
		return id;
	stream = em_vec_add(&model->streams);
	stream->id = id;
	stream->connection = connection_id;
	stream->member = connection->member;
	stream->is_watch = method && !method->serve;
	stream->has_leader = metadata && metadata->has_leader;
	set_token(stream->token, metadata);
	if (!method || !method->is_stream)
		em_stream_end(model, id, em_status_of(EM_EUNKNOWN));
	else if (stream->has_leader && model->members[stream->member].leader < 0 &&
	         !model->members[stream->member].is_stopped)
		em_stream_end(model, id, em_status_of(EM_ENO_LEADER));
	return id;
}

void em_send(struct etcd_model *model, uint64_t id, struct lk__bytes message)
{
	static const char *const paths[] = {"/etcdserverpb.Lease/LeaseKeepAlive",
	                                    "/etcdserverpb.Watch/Watch"};
	struct em_stream *stream = em_stream_find(model, id);
	struct em_request request = {.call = id};

	if (!stream)
		return;
	request.connection = stream->connection;
	request.member = stream->member;
	request.method = em_method_find(paths[stream->is_watch]);
	memcpy(request.token, stream->token, sizeof(request.token));
	submit(model, &request, message, paths[stream->is_watch]);
}
