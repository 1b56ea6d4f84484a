/* SPDX-License-Identifier: MIT
 * Dialling: a thread for each dial, so that a server that does not respond delays nothing else, not
 * even the dials of other links.  The same thread calls the program's log hook, which can therefore
 * delay only this link, which is down. */
#include "client.h"

#include "local/local.h"
#include "net/tls.h"

#include <stdio.h>
#include <stdlib.h>

lk_err lk__dial(struct lk__link *link, struct lk__connection **result, struct lk__why *why)
{
	struct lk_client *client = link->client;
	struct lk__target target = client->target;
	int64_t deadline_ns = lk__now_ns() + target.connect_timeout_ns;
	struct lk__connection *connection = calloc(1, sizeof(*connection));
	lk_err err = LK_OK;

	if (!connection)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	if (target.local) {
		if (link->dialer.starts_local)
			err = lk__local_ensure(client->local_path, deadline_ns,
			                       link->dialer.cancel.read_fd, why);
		link->dialer.epoch.unheld_pid = lk__local_unheld();
		target.socket_path = client->local_path;
		snprintf(target.text, sizeof(target.text), "local:");
	}
	if (!err)
		err = client->store->ops->dial(client->store, link->index, &target, deadline_ns,
		                               link->dialer.cancel.read_fd, &link->dialer.epoch,
		                               &connection->peer, why);
	if (err) {
		free(connection);
		return err;
	}
	if (target.tls_unverified)
		lk__log(client, LK_LOG_WARN, "%s: the server is not verified (verify=none)",
		        target.text);
	connection->ops = client->store->ops;
	connection->users = 1;
	connection->sent_end = &connection->sent;
	*result = connection;
	return LK_OK;
}

static void *run(void *arg)
{
	struct lk__link *link = arg;
	struct lk_client *client = link->client;
	struct lk__connection *connection = NULL;
	struct lk__why why = {0};
	lk_err err;

	if (link->dialer.lost.err)
		lk__log(client, LK_LOG_WARN, "connection lost: %s", link->dialer.lost.text);
	err = lk__dial(link, &connection, &why);
	if (err)
		lk__log(client, LK_LOG_WARN, "cannot connect: %s", why.text);
	else
		lk__log(client, LK_LOG_INFO, "%s: connected", client->target.text);
	pthread_mutex_lock(&client->mutex);
	link->dialer.up = connection;
	link->dialer.why = why;
	link->dialer.why.err = err;
	link->dialer.done = true;
	lk__wake_notify(&client->loop.wake);
	lk__client_unlock(client);
	if (client->target.tls)
		lk__tls_end_thread();
	return NULL;
}

static void dial_failed(struct lk__link *link, const struct lk__why *why)
{
	lk__session_dial_failed(&link->session, lk__now_ns(), why,
	                        lk__core_random(&link->client->core));
}

void lk__dial_start(struct lk__link *link)
{
	struct lk_client *client = link->client;
	struct lk__dialer *dialer = &link->dialer;
	struct lk__why why;

	dialer->epoch = link->session.epoch;
	dialer->lost.err = LK_OK;
	if (lk__session_report_loss(&link->session))
		dialer->lost = link->session.why;
	/* An idle client must not restart a server that was stopped. */
	dialer->starts_local = lk__core_busy(&client->core) || client->core.queries;
	dialer->running = true;
	if (!lk__thread_start(&dialer->thread, "lk-connect", run, link)) {
		dialer->running = false;
		lk__why_set(&why, LK_ESYSTEM, "cannot start a thread");
		dial_failed(link, &why);
		pthread_cond_broadcast(&client->quiet_cond);
	}
}

void lk__dial_take(struct lk__link *link)
{
	struct lk_client *client = link->client;
	struct lk__dialer *dialer = &link->dialer;
	struct lk__connection *connection = dialer->up;

	if (!dialer->running || !dialer->done)
		return;
	lk__client_unlock(client);
	pthread_join(dialer->thread, NULL);
	pthread_mutex_lock(&client->mutex);
	dialer->running = dialer->done = false;
	dialer->up = NULL;
	if (connection)
		lk__link_up(link, connection);
	else
		dial_failed(link, &dialer->why);
	pthread_cond_broadcast(&client->quiet_cond); /* an open may wait for the first link */
}

void lk__dial_stop(struct lk__link *link)
{
	struct lk__dialer *dialer = &link->dialer;

	if (dialer->running) {
		lk__wake_notify(&dialer->cancel);
		pthread_join(dialer->thread, NULL);
	}
	lk__connection_drop(dialer->up);
	dialer->running = false;
	dialer->up = NULL;
}
