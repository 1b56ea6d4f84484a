/* SPDX-License-Identifier: MIT
 * What the methods of the model of etcd need, and requests until they have an answer: see
 * etcd_model.h. */
#include "etcd_model_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- Methods ----------------------------------------------------------------------------------
 */

static enum em_needs nothing(struct lk__bytes message)
{
	(void)message;
	return EM_NEEDS_NOTHING;
}

static enum em_needs a_read(struct lk__bytes message)
{
	(void)message;
	return EM_NEEDS_READ;
}

static enum em_needs a_write(struct lk__bytes message)
{
	(void)message;
	return EM_NEEDS_WRITE;
}

static enum em_needs a_lessor(struct lk__bytes message)
{
	(void)message;
	return EM_NEEDS_LESSOR;
}

static enum em_needs range_needs(struct lk__bytes message)
{
	struct lk__etcd_range range;

	return em_read(&em_range_shape, message, &range) && range.serializable ? EM_NEEDS_NOTHING
	                                                                       : EM_NEEDS_READ;
}

/* A field that 3.4 does not know, and that clients set. */
static enum em_needs members_need(struct lk__bytes message)
{
	struct em_flag flag;

	return em_read(&em_flag_shape, message, &flag) && flag.value ? EM_NEEDS_READ
	                                                             : EM_NEEDS_NOTHING;
}

static enum em_error range_check(struct lk__bytes message)
{
	struct lk__etcd_range range;

	return em_read(&em_range_shape, message, &range) ? em_check_range(&range) : EM_EMALFORMED;
}

static enum em_error put_check(struct lk__bytes message)
{
	struct lk__etcd_put put;

	return em_read(&em_put_shape, message, &put) ? em_check_put(&put) : EM_EMALFORMED;
}

static enum em_error delete_check(struct lk__bytes message)
{
	struct lk__etcd_delete del;

	return em_read(&em_delete_shape, message, &del) ? em_check_delete(&del) : EM_EMALFORMED;
}

#define KV "/etcdserverpb.KV/"
#define LEASE "/etcdserverpb.Lease/"
#define SERVER "/etcdserverpb.Maintenance/"

/* A Watch answers by itself what its token allows; see etcd_model_watch.c. */
static const struct em_method methods[] = {
	{KV "Range", false, EM_USER, EM_USER, range_check, range_needs, em_serve_range},
	{KV "Put", false, EM_USER, EM_USER, put_check, a_write, em_serve_put},
	{KV "DeleteRange", false, EM_USER, EM_USER, delete_check, a_write, em_serve_delete},
	{KV "Txn", false, EM_USER, EM_USER, em_txn_check, em_txn_needs, em_serve_txn},
	{KV "Compact", false, EM_USER, EM_VALID_TOKEN, NULL, a_write, em_serve_compact},
	{LEASE "LeaseGrant", false, EM_USER, EM_VALID_TOKEN, NULL, a_write, em_serve_grant},
	{LEASE "LeaseRevoke", false, EM_USER, EM_VALID_TOKEN, NULL, a_write, em_serve_revoke},
	{LEASE "LeaseTimeToLive", false, EM_USER, EM_ANY_TOKEN, NULL, a_read,
         em_serve_time_to_live},
	{LEASE "LeaseKeepAlive", true, EM_USER, EM_ANY_TOKEN, NULL, a_lessor, em_serve_keep_alive},
	{"/etcdserverpb.Watch/Watch", true, EM_ANY_TOKEN, EM_ANY_TOKEN, NULL, nothing, NULL},
	{SERVER "Status", false, EM_USER, EM_ANY_TOKEN, NULL, nothing, em_serve_status},
	{SERVER "Alarm", false, EM_USER, EM_VALID_TOKEN, NULL, a_write, em_serve_alarm},
	{"/etcdserverpb.Cluster/MemberList", false, EM_USER, EM_ANY_TOKEN, NULL, members_need,
         em_serve_members},
	{"/etcdserverpb.Auth/Authenticate", false, EM_ANY_TOKEN, EM_VALID_TOKEN, NULL, a_write,
         em_serve_authenticate},
};

const struct em_method *em_method_find(const char *path)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		if (!strcmp(methods[i].path, path))
			return &methods[i];
	return NULL;
}

/* ---- Errors -----------------------------------------------------------------------------------
 */

struct em_status em_status_of(enum em_error error)
{
	static const struct em_status statuses[EM_ERRORS] = {
		[EM_OK] = {0, ""},
		[EM_EEMPTY_KEY] = {3, "etcdserver: key is not provided"},
		[EM_EKEY_NOT_FOUND] = {3, "etcdserver: key not found"},
		[EM_EVALUE_PROVIDED] = {3, "etcdserver: value is provided"},
		[EM_ELEASE_PROVIDED] = {3, "etcdserver: lease is provided"},
		[EM_ETOO_MANY_OPS] = {3, "etcdserver: too many operations in txn request"},
		[EM_EDUPLICATE_KEY] = {3, "etcdserver: duplicate key given in txn request"},
		[EM_ESORT] = {3, "etcdserver: invalid sort option"},
		[EM_ECOMPACTED] = {11, "etcdserver: mvcc: required revision has been compacted"},
		[EM_EFUTURE] = {11, "etcdserver: mvcc: required revision is a future revision"},
		[EM_ENOSPACE] = {8, "etcdserver: mvcc: database space exceeded"},
		[EM_ELEASE_NOT_FOUND] = {5, "etcdserver: requested lease not found"},
		[EM_ELEASE_EXISTS] = {9, "etcdserver: lease already exists"},
		[EM_ETTL] = {11, "etcdserver: too large lease TTL"},
		[EM_ENOT_PRIMARY] = {2, "not a primary lessor"},
		[EM_ETOO_LARGE] = {3, "etcdserver: request is too large"},
		[EM_ETOO_MANY] = {8, "etcdserver: too many requests"},
		[EM_EUSER_EMPTY] = {3, "etcdserver: user name is empty"},
		[EM_EAUTH_FAILED] =
			{3, "etcdserver: authentication failed, invalid user ID or password"},
		[EM_EAUTH_DISABLED] = {9, "etcdserver: authentication is not enabled"},
		[EM_EDENIED] = {7, "etcdserver: permission denied"},
		[EM_ETOKEN] = {16, "etcdserver: invalid auth token"},
		[EM_ENO_LEADER] = {14, "etcdserver: no leader"},
		[EM_ECHANGED] = {14, "etcdserver: leader changed"},
		[EM_ETIMEOUT] = {14, "etcdserver: request timed out"},
		[EM_ETIMEOUT_LEADER] = {14, "etcdserver: request timed out, possibly due to "
	                                    "previous leader failure"},
		[EM_EDEADLINE] = {4, "context deadline exceeded"},
		[EM_EDEADLINE_OLD] = {2, "context deadline exceeded"},
		[EM_EMALFORMED] = {13, "grpc: error unmarshalling request"},
		[EM_EUNKNOWN] = {12, "unknown method"},
	};

	return statuses[error];
}

/* ---- When a request can be served ---------------------------------------------------------------
 */

static bool is_served(const struct etcd_model *model, int member)
{
	return em_is_in_touch(model, member) && !model->members[member].is_lagging;
}

/* A read that waits may end with the member's leader. */
static enum em_error can_read(struct etcd_model *model, struct em_request *request)
{
	const struct em_member *member = &model->members[request->member];

	if (member->term != request->term) {
		request->term = member->term;
		if (em_random(model, 2))
			return EM_ECHANGED;
	}
	return is_served(model, request->member) ? EM_OK : EM_WAITS;
}

/* A write was forwarded to a leader that does not take it up at once. */
static enum em_error can_write_at(struct etcd_model *model, struct em_request *request, int holder)
{
	const struct em_member *leader = &model->members[holder];

	request->was_cut |= leader->is_cut;
	request->is_lost |= !leader->is_up || (request->was_cut && holder != request->member);
	if (request->is_lost || !em_is_in_touch(model, holder))
		return EM_WAITS;
	/* Another leader has overwritten what this one had. */
	request->is_lost = request->was_cut && leader->term != request->term;
	if (request->is_lost || !is_served(model, request->member))
		return EM_WAITS;
	return EM_OK;
}

static enum em_error can_write(struct etcd_model *model, struct em_request *request)
{
	const struct em_member *member = &model->members[request->member];

	if (request->holder)
		return can_write_at(model, request, request->holder - 1);
	if (is_served(model, request->member))
		return EM_OK;
	if (member->leader >= 0) {
		request->holder = member->leader + 1;
		request->term = member->term;
		request->is_lost = member->is_cut && member->leader != request->member;
	}
	return EM_WAITS;
}

/* A member that takes itself for the leader renews by itself.  Newer ones (from 3.4.34, 3.5.16 and
 * 3.6.0 on) ask the others first if their disk stands still, and only then; 3.4.31 and 3.5.13
 * always asked.  What is forwarded to it, it does not check; a frozen disk does not keep members
 * from talking; and a dead leader is noticed at once. */
static enum em_error can_renew(struct etcd_model *model, struct em_request *request)
{
	const struct em_member *member = &model->members[request->member], *leader;

	if (!request->holder || !model->members[request->holder - 1].is_primary)
		request->holder = member->leader + 1;
	if (!request->holder)
		return EM_WAITS;
	model->lessor = request->holder - 1;
	leader = &model->members[model->lessor];
	if (leader == member)
		return model->setup.is_3_4 || !member->is_frozen ||
		                       em_is_in_touch(model, request->member)
		               ? EM_OK
		               : EM_WAITS;
	return leader->is_up && !leader->is_stopped && !leader->is_cut && !member->is_cut
	               ? EM_OK
	               : EM_WAITS;
}

static enum em_error arrive(struct etcd_model *model, struct em_request *request)
{
	enum em_error error;

	request->has_arrived = true;
	request->sent_ns = model->now_ns;
	request->term = model->members[request->member].term;
	error = request->method->check
	                ? request->method->check((struct lk__bytes){request->message, request->len})
	                : EM_OK;
	return error ? error : em_check_rights(model, request);
}

static enum em_error can_serve(struct etcd_model *model, struct em_request *request,
                               enum em_needs needs)
{
	enum em_error error = request->has_arrived ? EM_OK : arrive(model, request);

	if (error)
		return error;
	switch (needs) {
	case EM_NEEDS_READ:
		return can_read(model, request);
	case EM_NEEDS_WRITE:
		return can_write(model, request);
	case EM_NEEDS_LESSOR:
		return can_renew(model, request);
	default:
		return EM_OK;
	}
}

static enum em_error time_out(const struct etcd_model *model, const struct em_request *request,
                              enum em_needs needs)
{
	const struct em_member *member = &model->members[request->member];

	if (needs == EM_NEEDS_READ)
		return EM_ETIMEOUT;
	if (needs == EM_NEEDS_WRITE) {
		if (!request->holder)
			return model->setup.is_3_4 ? EM_EDEADLINE_OLD : EM_EDEADLINE;
		return member->term != request->term ? EM_ETIMEOUT_LEADER : EM_ETIMEOUT;
	}
	if (!request->holder)
		return EM_ENO_LEADER;
	return request->holder == request->member + 1 ? EM_ENOT_PRIMARY : EM_ETIMEOUT;
}

/* ---- Requests ---------------------------------------------------------------------------------
 */

/* Give the caller of an executed request its answer, or not. */
static void answer(struct etcd_model *model, const struct em_request *request, enum em_error error,
                   const struct lk__pb_writer *writer)
{
	if (request->has_ended || request->loses_answer)
		return;
	if (request->cuts) {
		em_close_connection(model, request->connection);
		return;
	}
	if (request->times_out)
		error = EM_ETIMEOUT;
	if (!error && request->method->serve)
		em_answer_message(model, request->connection, request->call, writer,
		                  !request->method->is_stream);
	else if (error && request->method->is_stream)
		em_stream_end(model, request->call, em_status_of(error));
	else if (error)
		em_answer_status(model, request->connection, request->call, em_status_of(error));
}

/* A request without an answer.  True: it is over. */
static bool wait_on(struct etcd_model *model, struct em_request *request, enum em_needs needs)
{
	struct em_request copy;

	if (request->has_ended)
		return needs != EM_NEEDS_WRITE || request->is_lost || !request->holder;
	if (model->now_ns < request->sent_ns + EM_TIMEOUT_NS)
		return false;
	copy = *request;
	request->has_ended = true;
	answer(model, &copy, time_out(model, &copy, needs), NULL);
	/* A write that was forwarded may still be executed. */
	return needs != EM_NEEDS_WRITE || copy.is_lost || !copy.holder || em_random(model, 2);
}

/* Events of a write go to other streams: they come before its answer, or after it. */
static void commit(struct etcd_model *model, const struct em_request *request,
                   const struct lk__pb_writer *writer)
{
	struct lk__pb_writer kept = *writer;

	if (em_random(model, 2)) {
		answer(model, request, EM_OK, writer);
		em_committed(model);
		return;
	}
	kept.data = malloc(writer->len + 1);
	if (!kept.data)
		abort();
	memcpy(kept.data, writer->data, writer->len);
	em_committed(model);
	answer(model, request, EM_OK, &kept);
	free(kept.data);
}

static enum em_error serve(struct etcd_model *model, const struct em_request *request,
                           struct lk__pb_writer *writer)
{
	struct lk__bytes message = {request->message, request->len};
	struct em_stream *stream;

	if (request->method->serve)
		return request->method->serve(model, request->member, message, writer);
	stream = em_stream_find(model, request->call);
	if (stream)
		em_watch_message(model, stream, message);
	return EM_OK;
}

/* Serve a request.  True: it is over, though its answer may be an error. */
static bool try_one(struct etcd_model *model, struct em_request *request)
{
	struct lk__pb_writer writer = em_begin();
	enum em_needs needs =
		request->method->needs((struct lk__bytes){request->message, request->len});
	enum em_error error = can_serve(model, request, needs);
	struct em_request copy;

	if (!error)
		error = serve(model, request, &writer);
	if (error == EM_WAITS)
		return wait_on(model, request, needs);
	copy = *request; /* an answer may end its connection */
	if (!error && needs == EM_NEEDS_WRITE)
		commit(model, &copy, &writer);
	else
		answer(model, &copy, error, &writer);
	return true;
}

/* An earlier message to the same stream has no answer yet. */
static bool is_behind(const struct etcd_model *model, size_t index)
{
	const struct em_request *request = EM_AT(model->requests, struct em_request, index);

	for (size_t i = 0; request->method->is_stream && i < index; i++)
		if (EM_AT(model->requests, struct em_request, i)->call == request->call)
			return true;
	return false;
}

/* An answer may end a connection, and so remove requests: look for this one again. */
static void remove_request(struct etcd_model *model, const void *message)
{
	for (size_t i = 0; i < model->requests.count; i++) {
		struct em_request *request = EM_AT(model->requests, struct em_request, i);
		if (request->message != message)
			continue;
		free(request->message);
		em_vec_remove(&model->requests, i);
		return;
	}
}

void em_requests_try(struct etcd_model *model)
{
	for (size_t i = 0; i < model->requests.count;) {
		struct em_request *request = EM_AT(model->requests, struct em_request, i);
		const void *message = request->message;
		if (model->members[request->member].is_stopped || is_behind(model, i) ||
		    !try_one(model, request)) {
			i++;
		} else {
			remove_request(model, message);
			i = 0;
		}
	}
}

int64_t em_requests_due(const struct etcd_model *model)
{
	int64_t due_ns = INT64_MAX;

	EM_EACH(struct em_request, request, model->requests)
	{
		if (!request->has_ended && !model->members[request->member].is_stopped &&
		    request->sent_ns + EM_TIMEOUT_NS < due_ns)
			due_ns = request->sent_ns + EM_TIMEOUT_NS;
	}
	return due_ns;
}

void em_request_add(struct etcd_model *model, const struct em_request *request,
                    struct lk__bytes message)
{
	struct em_request *added = em_vec_add(&model->requests);

	*added = *request;
	added->message = malloc(message.len + 1);
	if (!added->message)
		abort();
	if (message.len)
		memcpy(added->message, message.data, message.len);
	added->len = message.len;
	em_requests_try(model);
}
