/* SPDX-License-Identifier: MIT
 * Inside a public call: how a thread enters, waits for the end of its op, and leaves.
 *
 * A blocking call is an op and a park.  Its thread sends, reads, listens and ticks for all until
 * its op is done, and parks when there is nothing to do.  It wakes at its op's deadline and ticks
 * itself, so that its end depends on no other thread.  The thread that completes the op of a parked
 * thread also does that call's exit bookkeeping: the sleeper returns to its program without
 * reacquiring the client's mutex, which would cause a thundering herd. */
#include "client.h"

#include "net/fork.h"

#include <stdlib.h>

static _Thread_local int cancel_state;   /* of the thread before it entered */
static _Thread_local int64_t entered_ns; /* when the thread's call began */

/* ---- In and out --------------------------------------------------------------------------- */

void lk__call_reenter(void)
{
	entered_ns = lk__now_ns();
}

int64_t lk__call_entered_ns(void)
{
	return entered_ns;
}

lk_err lk__client_enter(struct lk_client *client)
{
	if (client->fork_generation != lk__fork_generation())
		return lk__failf(LK_EFORKED,
		                 "this client belongs to the parent process, open another");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
	lk__call_reenter();
	pthread_mutex_lock(&client->mutex);
	if (client->core.closing) {
		lk__client_unlock(client);
		pthread_setcancelstate(cancel_state, NULL);
		return lk__failf(LK_ECLOSED, "the client is closed");
	}
	client->calls_inside++;
	return LK_OK;
}

lk_err lk__handle_enter(struct lk__handle *handle)
{
	lk_err err = lk__client_enter(handle->client);

	if (err)
		return err;
	if (handle->closing) {
		lk__call_leave(handle->client, NULL);
		return lk__failf(LK_ECLOSED, "the handle is closed");
	}
	handle->calls_inside++;
	return LK_OK;
}

/* Count a call as left; a close may wait for that.  _locked */
static void count_out(struct lk_client *client, struct lk__handle *handle)
{
	bool is_last = handle && !--handle->calls_inside;

	client->calls_inside--;
	if (client->core.closing || (is_last && handle->closing))
		pthread_cond_broadcast(&client->quiet_cond);
}

void lk__call_leave(struct lk_client *client, struct lk__handle *handle)
{
	count_out(client, handle);
	lk__client_unlock(client);
	pthread_setcancelstate(cancel_state, NULL);
}

/* ---- Wakes -------------------------------------------------------------------------------- */

void lk__call_wake(struct lk_client *client, struct lk__call *call)
{
	struct lk__link *link = call->link;

	if (link && call->reading)
		lk__wake_notify(&link->reader.wake);
	if (link && call == link->listener.call)
		lk__wake_notify(&link->listener.wake);
	if (call == client->poller.call)
		lk__poller_wake(client);
	if (call->parked)
		lk__park_wake(&call->park, &client->wakes);
	call->parked = false;
}

static void list(struct lk_client *client, struct lk__call *call)
{
	call->prev = NULL;
	call->next = client->calls;
	if (call->next)
		call->next->prev = call;
	client->calls = call;
	call->listed = true;
}

static void unlist(struct lk_client *client, struct lk__call *call)
{
	call->listed = false;
	if (call->prev)
		call->prev->next = call->next;
	else
		client->calls = call->next;
	if (call->next)
		call->next->prev = call->prev;
}

/* The op is done, but its call continues. */
static void wake_done(struct lk__op *op, void *client)
{
	lk__call_wake(client, (struct lk__call *)op);
}

/* The op is done, and with it its call: do the exit bookkeeping for a parked thread.  The call must
 * not be used afterwards. */
static void dismiss_done(struct lk__op *op, void *arg)
{
	struct lk__call *call = (struct lk__call *)op;
	struct lk_client *client = arg;

	if (!call->parked || !lk__park_claim(&call->park)) {
		lk__call_wake(client, call);
		return;
	}
	unlist(client, call);
	count_out(client, op->handle);
	lk__park_dismiss(&call->park, &client->wakes);
}

/* ---- Waiting ------------------------------------------------------------------------------ */

/* It was woken to read: another one may be, unless it does. */
static void decline_reading(const struct lk__call *call)
{
	if (call->link && call->link->reader.next == call)
		call->link->reader.next = NULL;
}

/* Send, read, listen and tick until the op is done or there is nothing to do.  True when the thread
 * must park.  Releases the mutex meanwhile.  _locked */
static bool has_to_park(struct lk_client *client, struct lk__call *call)
{
	struct lk__op *op = &call->op;

	while (!op->done) {
		struct lk__link *link;
		int64_t now_ns;

		lk__client_flush(client);
		now_ns = lk__now_ns();
		decline_reading(call);
		link = call->link = lk__op_link(op);
		if (op->done)
			break;
		if (op->timer.due_ns <= now_ns) {
			lk__core_tick(&client->core, now_ns);
			continue;
		}
		if (link && lk__reader_is_mine(link, call)) {
			lk__reader_read(link, link->connection, call, op->timer.due_ns);
			continue;
		}
		lk__reader_pass(client);
		if (link ? !lk__messages_listen(link, call, now_ns, op->timer.due_ns)
		         : !lk__poller_wait(client, call, now_ns))
			return true;
	}
	return false;
}

/* Sleep until a wake or the op's deadline.  Entered with the mutex, returns without it.  True: the
 * op is done, and the call was left by the waking thread. */
static bool park(struct lk_client *client, struct lk__call *call)
{
	int64_t due_ns = call->op.timer.due_ns, now_ns = lk__now_ns(), ns = -1;

	if (due_ns != LK__NEVER)
		ns = due_ns > now_ns ? due_ns - now_ns : 0;
	call->parked = true;
	lk__park_prepare(&call->park);
	lk__client_unlock(client);
	return lk__park_sleep(&call->park, ns);
}

/* The op is done, and its thread has the mutex: send queued requests, and choose another reader.
 * Releases the mutex meanwhile.  _locked */
static void end_wait(struct lk_client *client, struct lk__call *call)
{
	if (call->listed)
		unlist(client, call);
	decline_reading(call);
	if (client->core.done)
		lk__client_settle(client); /* let the next owner start before we write */
	lk__client_finish(client);
}

void lk__call_await(struct lk_client *client, struct lk__call *call)
{
	call->op.on_done = wake_done;
	call->op.on_done_arg = client;
	if (!call->op.done)
		list(client, call);
	while (has_to_park(client, call)) {
		park(client, call); /* it is never dismissed */
		pthread_mutex_lock(&client->mutex);
		call->parked = false;
	}
	end_wait(client, call);
}

/* Wait until the op is done, and leave the call.  Entered with the mutex, returns without it. */
static void finish(struct lk_client *client, struct lk__call *call)
{
	if (!call->op.done)
		list(client, call);
	while (has_to_park(client, call)) {
		if (park(client, call)) {
			pthread_setcancelstate(cancel_state, NULL);
			return;
		}
		pthread_mutex_lock(&client->mutex);
		call->parked = false;
	}
	end_wait(client, call);
	lk__call_leave(client, call->op.handle);
}

/* ---- Running ------------------------------------------------------------------------------ */

void lk__call_init(struct lk__call *call, struct lk__handle *handle)
{
	*call = (struct lk__call){
		.op =
			{
				.on_done = dismiss_done,
				.on_done_arg = handle->client,
				.queue = handle->queue,
				.handle = handle,
				.max_hold_ms = handle->max_hold_ms,
				.reports_loss = handle->reports_loss,
			},
	};
	lk__park_init(&call->park);
}

void lk__call_limit(struct lk__call *call, int64_t now_ns, int64_t wait_ms)
{
	struct lk__op *op = &call->op;

	op->only_try = wait_ms == 0;
	if (wait_ms == LK_FOREVER || wait_ms > (INT64_MAX - now_ns) / LK__MS / 2)
		op->until_ns = LK__NEVER;
	else
		op->until_ns = now_ns + wait_ms * LK__MS;
}

void lk__call_provide(struct lk__call *call)
{
	struct lk__op *op = &call->op;
	const struct lk__handle *handle = op->handle;
	const struct lk__quorum *quorum = handle->client->core.quorum; /* constant */
	bool whole;

	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	whole = op->spare_ticket && op->spare_hold;
	if (op->permits) {
		op->spare_queue = malloc(sizeof(*op->spare_queue));
		whole = whole && op->spare_queue;
	}
	if (quorum) {
		op->spare_legs = lk__legs_new(quorum->servers);
		whole = whole && op->spare_legs;
	}
	op->done = !whole;
	if (!whole)
		lk__why_set(&op->why, LK_ENOMEM, "out of memory");
}

/* A request follows on that link: the silence of an idle link was no sign of a dead connection.
 * _locked */
static void end_idling(struct lk__link *link, int64_t now_ns)
{
	if (!link->session.users)
		lk__session_wakes(&link->session, now_ns);
}

static void end_idling_for(const struct lk__handle *handle, int64_t now_ns)
{
	const struct lk_client *client = handle->client;

	if (!lk__client_is_quorum(client))
		end_idling(lk__handle_link(handle), now_ns);
	for (unsigned i = 0; lk__client_is_quorum(client) && i < client->link_count; i++)
		end_idling(client->links[i], now_ns);
}

lk_err lk__call_run(struct lk__call *call, int64_t now_ns, lk__call_fn *begin)
{
	struct lk__op *op = &call->op;
	const struct lk__handle *handle = op->handle;
	struct lk_client *client = handle->client;

	if (!op->done) {
		end_idling_for(handle, now_ns);
		begin(&client->core, now_ns, op);
		if (op->acquires)
			lk__client_introduce(client, now_ns);
	}
	finish(client, call);
	lk__park_fini(&call->park);
	free(op->spare_ticket);
	free(op->spare_hold);
	free(op->spare_queue);
	free(op->spare_step);
	lk__legs_free(op->spare_legs);
	return lk__fail(&op->why);
}
