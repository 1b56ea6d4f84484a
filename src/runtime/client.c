/* SPDX-License-Identifier: MIT
 * Clients: opened and closed. */
#include "client.h"

#include "net/fork.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOMENT_NS (200 * LK__MS)

/* ---- Routes and the log ------------------------------------------------------------------- */

struct lk__link *lk__client_route(const struct lk_client *client, const char *name, size_t len)
{
	if (client->core.route)
		return (struct lk__link *)lk__core_route(&client->core, name, len);
	return client->links[client->store->ops->route(client->store, name, len)];
}

void lk__log(struct lk_client *client, lk_log_level level, const char *fmt, ...)
{
	char line[400];
	va_list args;

	if (!client->log.fn || level > client->log.level)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	client->log.fn(client->log.arg, level, line);
}

/* ---- Open --------------------------------------------------------------------------------- */

/* A link without descriptors yet.  NULL when out of memory. */
static struct lk__link *new_link(struct lk_client *client)
{
	struct lk__link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->client = client;
	link->index = client->link_count;
	link->reader.wake = link->listener.wake = link->dialer.cancel = (struct lk__wake){-1, -1};
	link->dialer.starts_local = true;
	if (client->target.quorum)
		lk__quorum_place(link);
	lk__session_init(&link->session, client->target.connect_timeout_ns,
	                 client->target.command_timeout_ns);
	link->session.name = link->name;
	link->session.lazy = client->target.lazy;
	link->session.fences = client->store->fences;
	link->session.grace_ms = client->target.grace_ms;
	lk__session_need_replicas(&link->session, client->target.replicas);
	return link;
}

static void fini_link(struct lk__link *link)
{
	lk__wake_fini(&link->reader.wake);
	lk__wake_fini(&link->listener.wake);
	lk__wake_fini(&link->dialer.cancel);
	free(link->dialer.topology);
	free(link->name);
	free(link);
}

struct lk__link *lk__client_add_link(struct lk_client *client)
{
	struct lk__link *link;

	if (client->link_count == LK__NODES_MAX || !(link = new_link(client)))
		return NULL;
	/* The session comes last: the core keeps it. */
	if (!lk__wake_init(&link->reader.wake) || !lk__wake_init(&link->listener.wake) ||
	    !lk__wake_init(&link->dialer.cancel) ||
	    !lk__core_add_session(&client->core, &link->session)) {
		fini_link(link);
		return NULL;
	}
	client->links[client->link_count++] = link;
	return link;
}

static bool init_links(struct lk_client *client)
{
	if (client->target.quorum && !lk__quorum_begin(client))
		return false;
	while (client->link_count < client->store->links)
		if (!lk__client_add_link(client))
			return false;
	return !client->target.cluster || lk__cluster_begin(client);
}

/* False, with a reason of its own or none. */
static bool init_parts(struct lk_client *client, const lk_client_options *options,
                       struct lk__why *why)
{
	const struct lk__store_ops *ops;
	unsigned char id[16];
	uint64_t seed;

	if (!lk__random(id, sizeof(id)) || !lk__random(&seed, sizeof(seed)) || !lk__fork_watch())
		return false;
	lk__id128(client->id, id);
	ops = lk__store_of(&client->target, why);
	client->store = ops ? ops->create(&client->target, client->id) : NULL;
	if (!client->store)
		return false;
	lk__identity_init(&client->identity);
	if (!lk__core_init(&client->core, seed))
		return false;
	client->core.command_timeout_ns = client->target.command_timeout_ns;
	client->core.server = client->target.text;
	return init_links(client) && lk__loop_init(client) &&
	       (!client->target.service || lk__sentinels_init(client, options));
}

static void free_client(struct lk_client *client)
{
	if (client->sentinels)
		lk__sentinels_fini(client);
	for (unsigned i = 0; i < client->link_count; i++)
		lk__connection_drop(client->links[i]->connection);
	if (client->core.names.buckets)
		lk__core_fini(&client->core);
	for (unsigned i = 0; i < client->link_count; i++)
		fini_link(client->links[i]);
	lk__loop_fini(client);
	pthread_mutex_destroy(&client->mutex);
	pthread_cond_destroy(&client->callbacks.work);
	pthread_cond_destroy(&client->quiet_cond);
	if (client->store)
		client->store->ops->destroy(client->store);
	lk__target_fini(&client->target);
	free(client->topology);
	free(client->identity.label);
	free(client);
}

static bool init_locks(struct lk_client *client)
{
	if (pthread_mutex_init(&client->mutex, NULL) != 0)
		return false;
	if (lk__cond_init(&client->callbacks.work)) {
		if (lk__cond_init(&client->quiet_cond))
			return true;
		pthread_cond_destroy(&client->callbacks.work);
	}
	pthread_mutex_destroy(&client->mutex);
	return false;
}

static struct lk_client *new_client(const lk_client_options *options)
{
	struct lk_client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	if (!init_locks(client)) {
		free(client);
		return NULL;
	}
	client->loop.timer_fd = -1;
	client->loop.wake = client->poller.wake = (struct lk__wake){-1, -1};
	client->log.level = LK_LOG_WARN;
	client->fork_generation = lk__fork_generation();
	if (options) {
		client->resolve = options->resolve;
		client->resolve_arg = options->resolve_arg;
		client->log.fn = options->log;
		client->log.arg = options->log_arg;
		if (options->log_level)
			client->log.level = options->log_level;
	}
	return client;
}

static bool start_loop(struct lk_client *client, struct lk__why *why)
{
	if (lk__loop_start(client))
		return true;
	lk__why_set(why, LK_ESYSTEM, "cannot start a thread");
	return false;
}

/* There is no link to lose. */
static void expect_no_loss(struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		lk__session_report_loss(&client->links[i]->session);
}

/* The background thread dials when a call needs the store. */
static bool open_lazily(struct lk_client *client, struct lk__why *why)
{
	expect_no_loss(client);
	for (unsigned i = 0; i < client->link_count; i++) {
		char text[LK__PLACE_SIZE];
		lk__why_about(&client->links[i]->session.why, LK_ECONN,
		              lk__link_text(client->links[i], text), "not connected yet");
	}
	return start_loop(client, why);
}

/* Dial the store's only server in the calling thread, then start the background thread. */
static bool open_link(struct lk_client *client, struct lk__why *why)
{
	struct lk__connection *connection;

	lk__session_dial(&client->links[0]->session);
	if (lk__dial(client->links[0], &connection, why))
		return false;
	pthread_mutex_lock(&client->mutex);
	lk__link_up(lk__dial_found(client->links[0]), connection);
	lk__client_unlock(client);
	return start_loop(client, why);
}

/* The open has failed.  The thread that logs may have begun. */
static void stop_threads(struct lk_client *client)
{
	lk__loop_stop(client);
	lk__callbacks_stop(client);
}

static bool is_any_up(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		if (client->links[i]->connection)
			return true;
	return false;
}

/* The first reason why a dial failed, if one of each link did.  False while one may still
 * succeed. */
static bool have_all_failed(const struct lk_client *client, struct lk__why *why)
{
	for (unsigned i = client->link_count; i-- > 0;) {
		if (!client->links[i]->session.why.text[0])
			return false;
		*why = client->links[i]->session.why;
	}
	return true;
}

/* Make the background thread dial all servers, and wait for the first that responds.  The other
 * dials end by themselves, within one connect timeout. */
static bool open_links(struct lk_client *client, struct lk__why *why)
{
	bool up;

	expect_no_loss(client);
	if (!start_loop(client, why))
		return false;
	pthread_mutex_lock(&client->mutex);
	while (!(up = is_any_up(client)) && !have_all_failed(client, why))
		lk__client_wait_quiet(client, -1);
	lk__client_unlock(client);
	if (!up)
		stop_threads(client);
	return up;
}

/* Make the background thread dial the servers of a quorum, and wait until a majority votes, or all
 * belong to a new one. */
static bool open_quorum(struct lk_client *client, struct lk__why *why)
{
	int64_t deadline_ns = lk__now_ns() + client->target.connect_timeout_ns;
	lk_err err;

	expect_no_loss(client);
	if (!start_loop(client, why))
		return false;
	pthread_mutex_lock(&client->mutex);
	err = lk__quorum_await(client, deadline_ns, true, why);
	lk__client_unlock(client);
	if (err)
		stop_threads(client);
	return !err;
}

static bool open_connections(struct lk_client *client, struct lk__why *why)
{
	if (client->target.lazy && !client->quorum_begins_ms)
		return open_lazily(client, why);
	if (lk__client_is_quorum(client))
		return open_quorum(client, why);
	return client->link_count == 1 ? open_link(client, why) : open_links(client, why);
}

/* begins_ms: of a quorum to be made, the longest lease; 0 = open as usual. */
static lk_err open_client(const char *url, const lk_client_options *options, int64_t begins_ms,
                          lk_client **result)
{
	struct lk_client *client = new_client(options);
	struct lk__why why = {0};

	if (!client)
		return lk__failf(LK_ENOMEM, "out of memory");
	if (lk__target_parse(url, options, &client->target, &why)) {
		free_client(client);
		return lk__fail(&why);
	}
	if (begins_ms && !client->target.quorum) {
		free_client(client);
		return lk__failf(LK_EINVALID,
		                 "url: must begin with redis+quorum: or rediss+quorum:");
	}
	client->quorum_begins_ms = begins_ms;
	if (options && options->label && !(client->identity.label = strdup(options->label))) {
		lk__why_set(&why, LK_ENOMEM, "out of memory");
	} else if (!init_parts(client, options, &why)) {
		if (!why.err)
			lk__why_set(&why, LK_ESYSTEM,
			            "cannot set up a client: out of descriptors or memory");
	} else if (open_connections(client, &why)) {
		lk__registry_add(client);
		*result = client;
		return LK_OK;
	}
	free_client(client);
	return lk__fail(&why);
}

lk_err lk_client_open(const char *url, const lk_client_options *options, lk_client **result)
{
	int before;
	lk_err err = lk__refuse_null(result, "client");

	if (err)
		return err;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	err = open_client(url, options, 0, result);
	pthread_setcancelstate(before, NULL);
	return err;
}

lk_err lk_quorum_begin(const char *url, const lk_client_options *options, int64_t longest_lease_ms)
{
	struct lk_client *client;
	int before;
	lk_err err;

	if (!longest_lease_ms)
		longest_lease_ms = LK__LONGEST_MS;
	/* Where all servers have forgotten their set, the next one has the default: no lease may be
	 * longer than that. */
	if ((err = lk__check_range("longest_lease_ms", longest_lease_ms, LK_LEASE_MIN_MS,
	                           LK__LONGEST_MS)))
		return err;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	err = open_client(url, options, longest_lease_ms, &client);
	pthread_setcancelstate(before, NULL);
	return err ? err : lk_client_close(client);
}

const char *lk_client_id(const lk_client *client)
{
	return client ? client->id : "";
}

lk_err lk_client_counters(lk_client *client, lk_counters *counters)
{
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(counters, "counters")))
		return err;
	if (client->fork_generation != lk__fork_generation())
		return lk__failf(LK_EFORKED, "this client belongs to the parent process");
	pthread_mutex_lock(&client->mutex);
	*counters = client->core.counters;
	lk__client_unlock(client);
	return LK_OK;
}

/* ---- Close -------------------------------------------------------------------------------- */

/* No request is in flight, and none is queued that could be sent. */
static bool is_link_quiet(const struct lk__link *link)
{
	return !link->connection || (!link->connection->sent && !link->session.send_queue);
}

static bool is_quiet(const struct lk_client *client)
{
	bool quiet = !client->calls_inside && !lk__core_busy(&client->core);

	for (unsigned i = 0; i < client->link_count && quiet; i++)
		quiet = is_link_quiet(client->links[i]);
	return quiet;
}

/* May a hold, a waiting ticket or a latch's step be left in the store? */
static bool is_unconfirmed(const struct lk_client *client, int64_t began_ns)
{
	return lk__core_unconfirmed(&client->core, began_ns) || lk__core_stepping(&client->core);
}

/* The end of the drain for a close that began at began_ns.  Removing the client's details and
 * repeating leaves of lost holds are worth a moment at most, and only with a connection: the store
 * expires both. */
static int64_t drain_until_ns(const struct lk_client *client, int64_t began_ns, int64_t drain_ns)
{
	int64_t until_ns = began_ns + client->target.command_timeout_ns;
	int64_t moment_ns = is_any_up(client) ? drain_ns + MOMENT_NS : drain_ns;

	return is_unconfirmed(client, began_ns) || until_ns < moment_ns ? until_ns : moment_ns;
}

/* Wait until calls have returned and requests are confirmed: read a single link here, unless it is
 * the background thread that reads. */
static void drain(struct lk_client *client, int64_t began_ns)
{
	bool is_single = client->link_count == 1 && !lk__client_loop_reads(client);
	struct lk__link *only = is_single ? client->links[0] : NULL;
	const int64_t drain_ns = lk__now_ns();

	while (!is_quiet(client)) {
		int64_t deadline_ns = drain_until_ns(client, began_ns, drain_ns);
		int64_t now_ns = lk__now_ns();

		if (now_ns >= deadline_ns && !client->calls_inside)
			break;
		lk__client_flush(client);
		if (is_quiet(client))
			break;
		if (only && now_ns < deadline_ns && lk__reader_is_free(only)) {
			lk__reader_read(only, only->connection, NULL, deadline_ns);
			continue;
		}
		lk__reader_pass(client);
		lk__client_wait_quiet(client,
		                      deadline_ns > now_ns ? deadline_ns - now_ns : 100 * LK__MS);
	}
}

/* End all waits with LK_ECLOSED, also one in a callback, which must return before its thread is
 * joined.  Losses not yet reported are dropped. */
static void end_calls(struct lk_client *client)
{
	struct lk__hold *hold;

	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
	lk__core_close(&client->core, lk__now_ns());
	lk__client_settle(client);
	lk__client_wake_calls(client, NULL);
	lk__client_flush(client);
	lk__wake_notify(&client->loop.wake);
}

static lk_err close_client(struct lk_client *client)
{
	int64_t began_ns = lk__now_ns();
	bool left, steps_left;

	pthread_mutex_lock(&client->mutex);
	if (lk__callbacks_is_me(client)) {
		lk__client_unlock(client);
		return lk__failf(LK_EDEADLOCK, "a callback of the client cannot close it");
	}
	end_calls(client);
	lk__client_unlock(client);
	lk__callbacks_stop(client);
	lk__registry_remove(client);

	pthread_mutex_lock(&client->mutex);
	lk__client_forget(client);
	drain(client, began_ns);
	left = client->core.leave_given_up || lk__core_unconfirmed(&client->core, began_ns);
	steps_left = lk__core_stepping(&client->core);
	lk__client_unlock(client);

	lk__loop_stop(client);
	while (client->handles)
		lk__handle_free(client->handles);
	free_client(client);
	if (left)
		return lk__failf(
			LK_EUNKNOWN,
			"closed, but a release is not confirmed: it expires with its lease");
	if (steps_left)
		return lk__failf(LK_EUNKNOWN,
		                 "closed, but a latch's step is not confirmed: it may have been "
		                 "counted");
	return LK_OK;
}

lk_err lk_client_close(lk_client *client)
{
	int before;
	lk_err err;

	if (!client)
		return LK_OK;
	if (client->fork_generation != lk__fork_generation())
		return lk__failf(LK_EFORKED, "this client belongs to the parent process");
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	err = close_client(client);
	pthread_setcancelstate(before, NULL);
	return err;
}
