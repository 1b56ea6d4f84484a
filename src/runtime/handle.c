/* SPDX-License-Identifier: MIT
 * The common part of all handles: open, close, cancel, look. */
#include "client.h"

#include "base/text.h"
#include "core/latch.h"
#include "net/fork.h"

#include <stdlib.h>
#include <string.h>

#define RESERVED 8

lk_err lk__check_range(const char *what, int64_t value, int64_t least, int64_t most)
{
	if (value >= least && value <= most)
		return LK_OK;
	return lk__failf(LK_EINVALID, "%s: must be %lld to %lld, not %lld", what, (long long)least,
	                 (long long)most, (long long)value);
}

lk_err lk__check_len(const char *what, size_t len, int most)
{
	if (len >= 1 && len <= (size_t)most)
		return LK_OK;
	return lk__failf(LK_EINVALID, "%s: must be 1 to %d bytes, not %zu", what, most, len);
}

lk_err lk__check_wait(int64_t wait_ms)
{
	if (wait_ms >= LK_FOREVER)
		return LK_OK;
	return lk__failf(LK_EINVALID, "wait_ms: must be -1 or more, not %lld", (long long)wait_ms);
}

/* ---- Open --------------------------------------------------------------------------------- */

static lk_err check(const struct lk__handle_plan *plan, size_t len)
{
	lk_err err;

	if ((err = lk__check_len("name", plan->name ? len : 0, LK_NAME_MAX)))
		return err;
	if (plan->lease_ms &&
	    (err = lk__check_range("lease_ms", plan->lease_ms, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS)))
		return err;
	if ((err = lk__check_range("max_hold_ms", plan->max_hold_ms, 0,
	                           INT64_C(1000) * LK_LEASE_MAX_MS)))
		return err;
	if (plan->label && strlen(plan->label) > LK_LABEL_MAX)
		return lk__failf(LK_EINVALID, "label: longer than %d bytes", LK_LABEL_MAX);
	for (int i = 0; i < RESERVED; i++)
		if (plan->reserved[i])
			return lk__failf(LK_EINVALID, "reserved[%d]: must be 0, start from {0}", i);
	return LK_OK;
}

/* The link is for the handle's name.  _locked */
static void prepare(struct lk__link *link, const struct lk__handle *handle)
{
	lk__session_mind_lease(&link->session, handle->queue->lease_ms);
	if (handle->label || link->client->is_cluster)
		link->introduce_ns = 0;
}

/* _locked */
static void adopt(struct lk_client *client, struct lk__handle *handle, struct lk__name *name,
                  struct lk__wait_queue *queue, struct lk__inbox *inbox)
{
	struct lk__link *link = lk__client_route(client, name->bytes, name->len);

	handle->queue = lk__wait_queue_open(&client->core, &link->session, name, queue);
	handle->name = handle->queue->name;
	lk__inbox_open(handle->name, inbox);
	link = lk__handle_link(handle);
	handle->serial = ++client->handle_serial;
	handle->next = client->handles;
	if (handle->next)
		handle->next->prev = handle;
	client->handles = handle;
	for (unsigned i = 0; i < client->link_count; i++)
		if (client->links[i] == link || lk__client_is_quorum(client))
			prepare(client->links[i], handle);
}

static lk_err refuse_kind(const struct lk_client *client, uint8_t kind)
{
	const char *const *refusals = client->store->refusals;

	if (!refusals || !refusals[kind])
		return LK_OK;
	return lk__failf(LK_EUNSUPPORTED, "%s", refusals[kind]);
}

lk_err lk__quorum_check_lease(const struct lk_client *client, int64_t lease_ms)
{
	int64_t longest_ms = lk__client_is_quorum(client) ? client->core.quorum->longest_ms : 0;

	if (!longest_ms || lease_ms <= longest_ms)
		return LK_OK;
	return lk__failf(LK_EINVALID,
	                 "lease_ms: must be at most %lld, the quorum's longest lease, not %lld",
	                 (long long)longest_ms, (long long)lease_ms);
}

/* The default lease of a handle, which no quorum refuses.  _locked */
static int64_t default_lease_ms(const struct lk_client *client)
{
	int64_t longest_ms = lk__client_is_quorum(client) ? client->core.quorum->longest_ms : 0;

	return longest_ms && longest_ms < LK_LEASE_DEFAULT_MS ? longest_ms : LK_LEASE_DEFAULT_MS;
}

/* A lease that is not renewed ends by the client's clock: the store may keep it for longer. */
static int64_t rounded_lease_ms(const struct lk__store *store, int64_t lease_ms)
{
	int64_t step_ms = store->lease_step_ms;

	if (lease_ms < store->least_lease_ms)
		return store->least_lease_ms;
	return step_ms ? (lease_ms + step_ms - 1) / step_ms * step_ms : lease_ms;
}

lk_err lk__handle_open(struct lk_client *client, struct lk__handle *handle,
                       const struct lk__handle_plan *plan)
{
	size_t len = lk__name_len(plan->name, plan->name_len);
	struct lk__wait_queue *queue;
	struct lk__name *name;
	struct lk__inbox *inbox = NULL;
	lk_err err = check(plan, len);

	if (err || (err = refuse_kind(client, plan->kind)))
		return err;
	name = lk__name_new((lk_kind)plan->kind, plan->name, len);
	queue = lk__wait_queue_new(plan->lease_ms, plan->fixed);
	if (name && client->is_cluster && !(inbox = lk__cluster_inbox(client, name->bytes, len))) {
		err = lk__failf(LK_ENOMEM, "out of memory");
		goto undo;
	}
	if (!name || !queue || (plan->label && !(handle->label = strdup(plan->label)))) {
		err = lk__failf(LK_ENOMEM, "out of memory");
		goto undo;
	}
	queue->capacity = plan->capacity;
	queue->ttl_ms = plan->ttl_ms;
	handle->client = client;
	handle->kind = plan->kind;
	handle->max_hold_ms = plan->max_hold_ms;
	handle->reports_loss = plan->reports_loss;
	if ((err = lk__client_enter(client)))
		goto undo;
	if (!plan->lease_ms) {
		queue->lease_ms = default_lease_ms(client);
		queue->by_default = true;
	}
	if (!plan->fixed)
		queue->lease_ms = rounded_lease_ms(client->store, queue->lease_ms);
	if ((err = lk__quorum_check_lease(client, queue->lease_ms))) {
		lk__call_leave(client, NULL);
		goto undo;
	}
	if (handle->reports_loss && !lk__callbacks_start(client)) {
		lk__call_leave(client, NULL);
		err = lk__failf(LK_ESYSTEM, "cannot start a thread for callbacks");
		goto undo;
	}
	adopt(client, handle, name, queue, inbox);
	/* A turn of a rate, which has no holder, looks like permits with a fixed lease. */
	if (plan->kind != LK_KIND_LATCH && !(plan->kind == LK_KIND_SEMAPHORE && plan->fixed))
		lk__news_lease(client, handle->queue->lease_ms);
	if (plan->latch)
		lk__latch_open(handle->name, plan->latch);
	return LK_OK;
undo:
	free(inbox);
	free(queue);
	free(name);
	free(handle->label);
	return err;
}

/* ---- Close -------------------------------------------------------------------------------- */

void lk__handle_free(struct lk__handle *handle)
{
	struct lk_client *client = handle->client;

	if (handle->prev)
		handle->prev->next = handle->next;
	else
		client->handles = handle->next;
	if (handle->next)
		handle->next->prev = handle->prev;
	lk__wait_queue_close(&client->core, handle->queue);
	free(handle->label);
	free(handle); /* the first member of its kind */
}

/* _locked */
static void cancel(struct lk__handle *handle)
{
	struct lk_client *client = handle->client;

	lk__core_cancel(&client->core, lk__now_ns(), handle->name, handle, LK_ECANCELED);
	lk__client_settle(client);
	lk__client_wake_calls(client, handle);
}

lk_err lk__handle_close(struct lk__handle *handle)
{
	struct lk_client *client;
	lk_err err;

	if (!handle)
		return LK_OK;
	client = handle->client;
	if ((err = lk__client_enter(client)))
		return err;
	if (lk__callbacks_is_me(client)) {
		lk__call_leave(client, NULL);
		return lk__failf(LK_EDEADLOCK, "a callback cannot close a handle of its client");
	}
	handle->closing = true;
	while (handle->calls_inside || client->callbacks.reported == handle) {
		cancel(handle);
		if (handle->calls_inside || client->callbacks.reported == handle)
			lk__client_wait_quiet(client, -1);
	}
	lk__core_drop(&client->core, lk__now_ns(), handle->name, handle);
	lk__handle_forget(handle);
	lk__handle_free(handle);
	lk__client_flush(client);
	lk__wake_notify(&client->loop.wake);
	lk__call_leave(client, NULL);
	return LK_OK;
}

lk_err lk__handle_cancel(struct lk__handle *handle)
{
	lk_err err = lk__handle_enter(handle);

	if (err)
		return err;
	cancel(handle);
	lk__client_finish(handle->client);
	lk__call_leave(handle->client, handle);
	return LK_OK;
}

/* ---- Outside of calls --------------------------------------------------------------------- */

/* Lock the mutex.  False, without locking, in a child process. */
static bool look(const struct lk__handle *handle)
{
	if (handle->client->fork_generation != lk__fork_generation())
		return false;
	pthread_mutex_lock(&handle->client->mutex);
	return true;
}

/* _locked */
static const struct lk__hold *hold_through(const struct lk__handle *handle, uint64_t owner,
                                           const void *through)
{
	const struct lk__hold *hold = lk__core_hold(handle->name, owner);

	return hold && (!through || hold->handle == through) ? hold : NULL;
}

/* The id by which others see a hold of the client.  _locked */
static void hold_id(const struct lk__handle *handle, const struct lk__hold *hold,
                    char id[LK_HOLDER_ID_SIZE])
{
	memcpy(id, handle->client->id, LK__CLIENT_ID_SIZE - 1);
	id[LK__CLIENT_ID_SIZE - 1] = ':';
	memcpy(id + LK__CLIENT_ID_SIZE, hold->ticket->nonce, LK__NONCE_SIZE);
	if (hold->name->session->fences) /* a nonce is used again there, see take_nonce() */
		lk__mark(id + LK__CLIENT_ID_SIZE + LK__NONCE_SIZE - 1,
		         hold->fence / hold->name->session->fences);
}

lk_err lk__handle_snapshot(const struct lk__handle *handle, uint64_t owner, const void *through,
                           lk_hold *snapshot)
{
	const struct lk__hold *hold;

	if (!look(handle))
		return lk__failf(LK_EFORKED, "this client belongs to the parent process");
	*snapshot = (lk_hold){.state = LK_STATE_NONE};
	hold = hold_through(handle, owner, through);
	if (hold) {
		lk__hold_snapshot(hold, lk__now_ns(), snapshot);
		if (!snapshot->lost)
			hold_id(handle, hold, snapshot->holder_id);
	}
	lk__client_unlock(handle->client);
	return LK_OK;
}

lk_state lk__handle_state(const struct lk__handle *handle, uint64_t owner, const void *through)
{
	lk_state state = LK_STATE_NONE;
	const struct lk__hold *hold;

	if (!look(handle))
		return state;
	hold = hold_through(handle, owner, through);
	if (hold)
		state = lk__hold_state(hold, lk__now_ns());
	lk__client_unlock(handle->client);
	return state;
}
