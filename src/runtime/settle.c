/* SPDX-License-Identifier: MIT
 * Duties of a thread after an event, and before it releases the mutex, sleeps or leaves: perform
 * wakes, send requests, choose a reader. */
#include "client.h"

void lk__client_unlock(struct lk_client *client)
{
	lk__wakes_unlock(&client->wakes, &client->mutex);
}

void lk__client_wait_quiet(struct lk_client *client, int64_t ns)
{
	lk__poller_to_loop(client); /* the thread does not poll */
	lk__wakes_now(&client->wakes);
	lk__cond_wait(&client->quiet_cond, &client->mutex, ns);
}

/* Is a channel command to be sent?  Only the loop writes there. */
static bool has_topics(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		if (client->links[i]->connection &&
		    lk__channels_ready(&client->links[i]->session.channels))
			return true;
	return false;
}

void lk__client_settle(struct lk_client *client)
{
	int64_t due_ns = lk__loop_due(client);
	struct lk__op *op;

	lk__sentinels_vouch(client);
	while ((op = lk__core_next_done(&client->core)))
		op->on_done(op, op->on_done_arg);
	if (client->core.lost)
		pthread_cond_signal(&client->callbacks.work);
	lk__news_wake(client);
	if (client->core.closing || client->quorum_waiters)
		pthread_cond_broadcast(&client->quiet_cond);
	if (has_topics(client))
		lk__wake_notify(&client->loop.wake);
	/* The timer is only moved to an earlier time here: the loop sets it again when it has
	 * fired. */
	if (due_ns < client->loop.armed_ns) {
		lk__loop_arm(client, due_ns);
		if (!client->loop.timed)
			lk__wake_notify(&client->loop.wake);
	}
}

void lk__client_wake_calls(struct lk_client *client, const void *handle)
{
	struct lk__call *call;

	for (call = client->calls; call; call = call->next)
		if (!handle || call->op.handle == handle)
			lk__call_wake(client, call);
}

void lk__client_finish(struct lk_client *client)
{
	lk__client_flush(client);
	lk__reader_pass(client);
}
