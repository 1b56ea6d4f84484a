/* SPDX-License-Identifier: MIT
 * Dialling: a thread for each dial, so that a server that does not respond delays nothing else, not
 * even the dials of other links.  The same thread calls the program's log hook, which can therefore
 * delay only this link, which is down. */
#include "client.h"

#include "local/local.h"
#include "net/tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A connection without a peer yet. */
static struct lk__connection *new_connection(const struct lk_client *client)
{
	const struct lk__target *target = &client->target;
	struct lk__connection *connection = calloc(1, sizeof(*connection) + sizeof(target->text));

	if (!connection)
		return NULL;
	connection->ops = client->store->ops;
	connection->users = 1;
	connection->sent_end = &connection->sent;
	connection->text = target->service || target->cluster || target->quorum || target->etcd
	                           ? connection->place
	                           : target->text;
	return connection;
}

/* The peer may remain after an error, for the topology that it has. */
static lk_err try_peer(struct lk__link *link, const struct lk__target *target, int64_t deadline_ns,
                       struct lk__connection *connection, struct lk__why *why)
{
	struct lk__store *store = link->client->store;

	connection->peer = NULL;
	return store->ops->dial(store, link->index, target, deadline_ns,
	                        link->dialer.cancel.read_fd, &link->dialer.epoch, &connection->peer,
	                        why);
}

/* A server that sentinels name, or of a quorum. */
static lk_err dial_peer(struct lk__link *link, const struct lk__target *target, int64_t deadline_ns,
                        struct lk__connection *connection, struct lk__why *why)
{
	lk_err err = try_peer(link, target, deadline_ns, connection, why);

	if (!err && connection->peer->topology)
		err = lk__why_about(why, LK_EINVALID, target->text,
		                    "a node of a Cluster (write redis%s+cluster://%s)",
		                    target->tls ? "s" : "", target->text);
	if (err && connection->peer)
		connection->ops->close(connection->peer);
	return err;
}

static lk_err dial_plain(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                         struct lk__connection *connection, struct lk__why *why)
{
	lk_err err = try_peer(link, target, deadline_ns, connection, why);

	if (connection->peer && connection->peer->topology)
		err = lk__cluster_meet(link, target, deadline_ns, err, connection, why);
	if (!err && connection->peer->place)
		snprintf(connection->place, sizeof(target->text), "%s", connection->peer->place);
	return err;
}

/* Dial the master that the sentinels name, and again until deadline_ns while it is not there or not
 * the master. */
static lk_err dial_master(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                          struct lk__connection *connection, struct lk__why *why)
{
	const struct lk__epoch known = link->dialer.epoch;
	struct lk__place place;
	int64_t pause_ns = 0;
	lk_err err;

	do {
		link->dialer.epoch = known; /* not that of a server that was dialled in vain */
		err = lk__sentinels_choose(link, deadline_ns, target, &place, why);
		if (err)
			return err;
		err = dial_peer(link, target, deadline_ns, connection, why);
		if (!err && !lk__sentinels_disagree(link->client)) {
			memcpy(connection->place, target->text, sizeof(target->text));
			return LK_OK;
		}
		if (!err) {
			connection->ops->close(connection->peer);
			err = lk__why_about(why, LK_ECONN, target->text, "no longer the master");
		}
	} while (lk__sentinels_dial_again(link, err, deadline_ns, &pause_ns, why));
	return err;
}

static lk_err dial_member(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                          struct lk__connection *connection, struct lk__why *why)
{
	lk__quorum_aim(link, target);
	memcpy(connection->place, target->text, sizeof(target->text));
	return dial_peer(link, target, deadline_ns, connection, why);
}

lk_err lk__dial(struct lk__link *link, struct lk__connection **result, struct lk__why *why)
{
	struct lk_client *client = link->client;
	struct lk__target target = client->target;
	int64_t deadline_ns = lk__now_ns() + target.connect_timeout_ns;
	struct lk__connection *connection = new_connection(client);
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
	if (!err && target.cluster)
		err = lk__cluster_dial(link, &target, deadline_ns, connection, why);
	else if (!err && target.quorum)
		err = dial_member(link, &target, deadline_ns, connection, why);
	else if (!err && client->sentinels)
		err = dial_master(link, &target, deadline_ns, connection, why);
	else if (!err)
		err = dial_plain(link, &target, deadline_ns, connection, why);
	if (err) {
		free(connection);
		return err;
	}
	if (target.tls_unverified)
		lk__log(client, LK_LOG_WARN, "%s: the server is not verified (verify=none)",
		        target.text);
	if (connection->peer->warning)
		lk__log(client, LK_LOG_WARN, "%s", connection->peer->warning);
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
		lk__log(client, LK_LOG_INFO, "%s: connected", connection->text);
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
	dialer->place = link->place;
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

/* Apply the topology that the dial has found, if any.  _locked */
static void adopt(struct lk__link *link)
{
	struct lk__topology *topology = link->dialer.topology;

	link->dialer.topology = NULL;
	if (topology && link->client->is_cluster)
		lk__cluster_adopt(link->client, link, topology);
	free(topology);
}

struct lk__link *lk__dial_found(struct lk__link *link)
{
	if (link->dialer.topology && link->client->target.cluster)
		lk__cluster_begin(link->client);
	if (link->client->is_cluster)
		link->place = link->dialer.place;
	adopt(link);
	return link;
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
	if (connection && !lk__quorum_takes(link, &dialer->why)) {
		lk__connection_drop(connection);
		connection = NULL;
	}
	if (connection) {
		lk__link_up(lk__dial_found(link), connection);
	} else {
		dial_failed(link, &dialer->why);
		lk__core_link_unreached(&client->core, &link->session, lk__now_ns());
		adopt(link);
		lk__client_settle(client);
	}
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
