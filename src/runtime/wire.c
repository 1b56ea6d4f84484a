/* SPDX-License-Identifier: MIT
 * Calls that wait, and whom an event wakes. */
#include "client.h"

#include <string.h>

/* ---- Waking ------------------------------------------------------------------------------- */

void lk__wire_wake(struct lk_client *client, struct lk__sleeper *sleeper)
{
	struct lk__link *link = lk__op_link(&sleeper->waiter);

	if (sleeper->reading)
		lk__wake_notify(&link->reader.wake);
	if (sleeper == link->listener.sleeper)
		lk__wake_notify(&link->listener.wake);
	if (sleeper->parked)
		lk__park_wake(&sleeper->park, &client->wakes);
	sleeper->parked = false;
}

static void unlist(struct lk_client *client, struct lk__sleeper *sleeper)
{
	sleeper->listed = false;
	if (sleeper->prev)
		sleeper->prev->next = sleeper->next;
	else
		client->sleepers = sleeper->next;
	if (sleeper->next)
		sleeper->next->prev = sleeper->prev;
}

/* Its wait is done.  Who sleeps need not come for the mutex, which all who are woken with it would
 * want, too: we leave the call in its place. */
static void let_go(struct lk_client *client, struct lk__sleeper *sleeper)
{
	struct lk__handle *handle = sleeper->waiter.handle;

	if (!sleeper->parked || !lk__park_claim(&sleeper->park)) {
		lk__wire_wake(client, sleeper);
		return;
	}
	unlist(client, sleeper);
	client->calls_inside--;
	if (!--handle->calls_inside && handle->closing)
		pthread_cond_broadcast(&client->quiet_cond);
	lk__park_dismiss(&sleeper->park, &client->wakes);
}

void lk__client_unlock(struct lk_client *client)
{
	lk__wakes_unlock(&client->wakes, &client->mutex);
}

void lk__client_wait_quiet(struct lk_client *client, int64_t ns)
{
	lk__wakes_now(&client->wakes);
	lk__cond_wait(&client->quiet_cond, &client->mutex, ns);
}

/* A command of topics is to be sent: the loop alone writes there. */
static bool has_topics(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		if (client->links[i].connection &&
		    lk__channels_ready(&client->links[i].session.channels))
			return true;
	return false;
}

void lk__wire_settle(struct lk_client *client)
{
	struct lk__op *waiter;
	int64_t due_ns = lk__loop_due(client);

	while ((waiter = lk__core_next_done(&client->core))) {
		if (waiter->resumes)
			lk__wire_wake(client, (struct lk__sleeper *)waiter);
		else
			let_go(client, (struct lk__sleeper *)waiter);
	}
	if (client->core.lost)
		pthread_cond_signal(&client->callbacks.work);
	if (client->core.closing)
		pthread_cond_broadcast(&client->quiet_cond);
	if (has_topics(client))
		lk__wake_notify(&client->loop.wake);
	/* The timer is only ever moved forward: the loop sets it anew when it has fired. */
	if (due_ns < client->loop.armed_ns) {
		lk__loop_arm(client, due_ns);
		if (!client->loop.timed)
			lk__wake_notify(&client->loop.wake);
	}
}

void lk__wire_poke(struct lk_client *client, const void *handle)
{
	struct lk__sleeper *sleeper;

	for (sleeper = client->sleepers; sleeper; sleeper = sleeper->next)
		if (!handle || sleeper->waiter.handle == handle)
			lk__wire_wake(client, sleeper);
}

/* ---- Waiting ------------------------------------------------------------------------------ */

void lk__wire_finish(struct lk_client *client)
{
	lk__wire_flush(client);
	lk__reader_pass(client);
}

void lk__wire_wait(struct lk_client *client, struct lk__sleeper *sleeper, int64_t deadline_ns)
{
	const bool in_place = sleeper->waiter.where == LK__IN_PLACE;
	struct lk__link *link = lk__op_link(&sleeper->waiter);
	int64_t now_ns;

	sleeper->next = client->sleepers;
	sleeper->prev = NULL;
	if (sleeper->next)
		sleeper->next->prev = sleeper;
	client->sleepers = sleeper;
	sleeper->listed = true;
	while (!sleeper->waiter.done) {
		lk__wire_flush(client);
		now_ns = lk__now_ns();
		if (link->reader.next == sleeper)
			link->reader.next = NULL;
		if (sleeper->waiter.done || deadline_ns <= now_ns)
			break;
		if (in_place && sleeper->waiter.where == LK__FOR_LEAVE)
			break; /* cancelled: its caller sets another limit */
		if (lk__reader_is_mine(link, sleeper)) {
			lk__reader_read(link, link->connection, sleeper, deadline_ns);
			continue;
		}
		lk__reader_pass(client);
		if (!lk__messages_listen(link, sleeper, now_ns, deadline_ns)) {
			sleeper->parked = true;
			sleeper->gone = !lk__park_wait(
				&sleeper->park, &client->mutex, &client->wakes,
				deadline_ns == LK__NEVER ? -1 : deadline_ns - now_ns);
			if (sleeper->gone)
				return;
			sleeper->parked = false;
		}
	}
	unlist(client, sleeper);
	if (link->reader.next == sleeper)
		link->reader.next = NULL;
	lk__wire_finish(client);
}
