/* SPDX-License-Identifier: MIT
 * The nodes of a Cluster: a link each, dialled when a name needs it.  A dial, a redirect and a
 * subscription that moved bring news of the owners of slots; the core moves the names.
 *
 * A node that cannot be reached may have been replaced.  So the thread that dials it in vain asks
 * the others, one after the other, each for a part of the time: one that hangs costs little. */
#include "client.h"

#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPT_MIN_NS (250 * LK__MS)
#define ATTEMPT_MAX_NS (1000 * LK__MS) /* while others are left */

/* ---- Dialling ----------------------------------------------------------------------------- */

struct places {
	int count;
	struct lk__place list[LK__NODES_MAX + LK__SEEDS_MAX];
};

static bool is_same(const struct lk__place *a, const struct lk__place *b)
{
	return a->port == b->port && !strcmp(a->host, b->host);
}

static void add_place(struct places *places, const struct lk__place *place)
{
	for (int i = 0; i < places->count; i++)
		if (is_same(&places->list[i], place))
			return;
	if (place->host[0] && places->count < LK__NODES_MAX + LK__SEEDS_MAX)
		places->list[places->count++] = *place;
}

static void add_seeds(struct places *places, const struct lk__target *target)
{
	for (int i = 0; i < target->seed_count; i++) {
		struct lk__place place = {.port = target->seeds[i].port};
		snprintf(place.host, sizeof(place.host), "%s", target->seeds[i].host);
		add_place(places, &place);
	}
}

/* The node of a plain URL. */
static void add_place_of(struct places *places, const struct lk__target *target)
{
	struct lk__place place = {.port = target->port};

	if (target->seed_count || !target->host)
		return;
	snprintf(place.host, sizeof(place.host), "%s", target->host);
	add_place(places, &place);
}

static void add_masters(struct places *places, const struct lk__topology *topology)
{
	for (int i = 0; topology && i < topology->count; i++)
		add_place(places, &topology->nodes[i].place);
}

/* Every node that the client knows.  Without the mutex. */
static void add_links(struct places *places, struct lk_client *client)
{
	pthread_mutex_lock(&client->mutex);
	for (unsigned i = 0; i < client->link_count; i++)
		add_place(places, &client->links[i]->place);
	lk__client_unlock(client);
}

/* Make the copy of the target lead to the node; borrows *place, which the program may translate. */
static lk_err aim(const struct lk_client *client, struct lk__target *target,
                  struct lk__place *place, struct lk__why *why)
{
	struct lk__place named = *place;
	char text[LK__PLACE_SIZE];

	lk__place_write(text, sizeof(text), named.host, named.port);
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
	if (client->resolve && (client->resolve(client->resolve_arg, named.host, named.port,
	                                        place->host, &place->port) != 0 ||
	                        !memchr(place->host, 0, sizeof(place->host)) || !place->host[0] ||
	                        place->port < 1 || place->port > 65535))
		return lk__why_about(why, LK_ECONN, target->text,
		                     "the resolve function has no address for it");
	target->host = place->host;
	target->port = place->port;
	return LK_OK;
}

/* The end of the next of so many attempts. */
static int64_t attempt_ns(int64_t deadline_ns, int left)
{
	int64_t now_ns = lk__now_ns(), part_ns = (deadline_ns - now_ns) / (left > 0 ? left : 1);

	if (left <= 1)
		return deadline_ns;
	if (part_ns < ATTEMPT_MIN_NS)
		part_ns = ATTEMPT_MIN_NS;
	if (part_ns > ATTEMPT_MAX_NS)
		part_ns = ATTEMPT_MAX_NS;
	return now_ns + part_ns < deadline_ns ? now_ns + part_ns : deadline_ns;
}

static void keep_topology(struct lk__dialer *dialer, struct lk__topology *topology)
{
	free(dialer->topology);
	dialer->topology = topology;
}

/* The peer is a node of a Cluster, at that place. */
static void take_peer(struct lk__link *link, const struct lk__place *place,
                      struct lk__connection *connection, const struct lk__target *target)
{
	struct lk__peer *peer = connection->peer;
	struct lk__dialer *dialer = &link->dialer;

	memcpy(connection->place, target->text, sizeof(target->text));
	connection->text = connection->place;
	keep_topology(dialer, peer->topology);
	peer->topology = NULL;
	dialer->place = *place;
	if (dialer->topology && peer->node >= 0)
		dialer->place = dialer->topology->nodes[peer->node].place;
	if (!dialer->place.host[0])
		dialer->place = *place;
}

/* The dial has failed; the node may have named the masters all the same. */
static void keep_named(struct lk__link *link, struct lk__connection *connection)
{
	if (!connection->peer)
		return;
	keep_topology(&link->dialer, connection->peer->topology);
	connection->peer->topology = NULL;
	connection->ops->close(connection->peer);
	connection->peer = NULL;
}

lk_err lk__cluster_meet(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                        lk_err err, struct lk__connection *connection, struct lk__why *why)
{
	struct lk_client *client = link->client;
	struct lk__place place = {.port = target->port};

	if (client->target.lazy || link->session.up_ns || !target->host) {
		connection->ops->close(connection->peer);
		if (!target->host)
			return lk__why_about(why, LK_EINVALID, target->text,
			                     "a node of a Cluster (write redis+cluster:// with its "
			                     "host and port)");
		return lk__why_about(why, LK_EINVALID, target->text,
		                     "a node of a Cluster (write redis%s+cluster://%s)",
		                     target->tls ? "s" : "", target->text);
	}
	client->target.cluster = target->cluster = true; /* it has no other thread yet */
	if (!err) {
		snprintf(place.host, sizeof(place.host), "%s", target->host);
		take_peer(link, &place, connection, target);
		return LK_OK;
	}
	keep_named(link, connection);
	return lk__cluster_dial(link, target, deadline_ns, connection, why);
}

/* Dial one node.  *place is where it was found. */
static lk_err dial_node(struct lk__link *link, struct lk__target *target, struct lk__place *place,
                        int64_t deadline_ns, struct lk__connection *connection, struct lk__why *why)
{
	struct lk__store *store = link->client->store;
	struct lk__dialer *dialer = &link->dialer;
	struct lk__place at = *place;
	lk_err err = aim(link->client, target, &at, why);

	connection->peer = NULL;
	if (!err)
		err = store->ops->dial(store, link->index, target, deadline_ns,
		                       dialer->cancel.read_fd, &dialer->epoch, &connection->peer,
		                       why);
	if (!err)
		take_peer(link, place, connection, target);
	else
		keep_named(link, connection);
	return err;
}

/* Ask the nodes for the topology until one answers. */
static bool look(struct lk__link *link, struct lk__target *target, const struct places *places,
                 int64_t deadline_ns)
{
	struct lk__store *store = link->client->store;
	struct lk__topology *topology = malloc(sizeof(*topology));
	struct lk__why why;

	for (int i = 0; topology && i < places->count && lk__now_ns() < deadline_ns; i++) {
		struct lk__place place = places->list[i];
		if (aim(link->client, target, &place, &why) ||
		    store->ops->look(store, link->index, target,
		                     attempt_ns(deadline_ns, places->count - i),
		                     link->dialer.cancel.read_fd, topology, &why))
			continue;
		keep_topology(&link->dialer, topology);
		return true;
	}
	free(topology);
	return false;
}

/* The first dial: of any node in the list. */
static lk_err dial_any(struct lk__link *link, struct lk__target *target,
                       const struct places *places, int64_t deadline_ns,
                       struct lk__connection *connection, struct lk__why *why)
{
	lk_err err = lk__why_about(why, LK_ECONN, target->text, "no node answers");

	for (int i = 0; i < places->count; i++) {
		struct lk__place place = places->list[i];
		int64_t until_ns = attempt_ns(deadline_ns, places->count - i);
		err = dial_node(link, target, &place, until_ns, connection, why);
		if (!err || (err != LK_ECONN && err != LK_EAUTH) ||
		    (i > 0 && lk__now_ns() >= deadline_ns))
			return err;
	}
	return err;
}

/* By seeds.  One may be a replica, or down: it can still name the masters. */
static lk_err dial_seeds(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                         struct lk__connection *connection, struct lk__why *why)
{
	struct places seeds = {0}, masters = {0};
	lk_err err;

	add_seeds(&seeds, target);
	add_place_of(&seeds, &link->client->target);
	add_links(&seeds, link->client);
	err = dial_any(link, target, &seeds, deadline_ns, connection, why);
	if (err != LK_ECONN || (!link->dialer.topology && !look(link, target, &seeds, deadline_ns)))
		return err;
	add_masters(&masters, link->dialer.topology);
	return masters.count ? dial_any(link, target, &masters, deadline_ns, connection, why) : err;
}

lk_err lk__cluster_dial(struct lk__link *link, struct lk__target *target, int64_t deadline_ns,
                        struct lk__connection *connection, struct lk__why *why)
{
	struct lk__place place = link->dialer.place;
	struct places others = {0};
	lk_err err;

	if (!place.host[0])
		return dial_seeds(link, target, deadline_ns, connection, why);
	err = dial_node(link, target, &place, deadline_ns - (deadline_ns - lk__now_ns()) / 2,
	                connection, why);
	if (!err)
		return LK_OK;
	/* Another node knows whether this one has been replaced. */
	add_links(&others, link->client);
	add_seeds(&others, target);
	add_place_of(&others, &link->client->target);
	if (!link->dialer.topology)
		look(link, target, &others, deadline_ns);
	return err;
}

/* ---- Topology ----------------------------------------------------------------------------- */

struct lk__inbox *lk__cluster_inbox(const struct lk_client *client, const char *name, size_t len)
{
	char topic[LK__TOPIC_MAX];

	client->store->ops->inbox(client->store, name, len, topic);
	return lk__inbox_new(topic);
}

bool lk__cluster_begin(struct lk_client *client)
{
	if (client->is_cluster)
		return true;
	if (!lk__core_use_route(&client->core))
		return false;
	client->is_cluster = true;
	for (unsigned i = 0; i < client->link_count; i++)
		client->links[i]->session.on_demand = true;
	return true;
}

/* No name needs it, and no node has its place. */
static bool is_spare(const struct lk__link *link, const struct lk__topology *topology)
{
	for (int i = 0; topology && i < topology->count; i++)
		if (is_same(&topology->nodes[i].place, &link->place))
			return false;
	return topology && !link->session.users && !link->session.send_queue && !link->connection &&
	       !link->dialer.running && link->place.host[0];
}

/* The link to the node at that place: a known one, one without a place, a spare one, or a new one.
 * NULL: out of memory, or too many. */
static struct lk__link *find_link(struct lk_client *client, const struct lk__place *place,
                                  const struct lk__topology *topology)
{
	struct lk__link *link = NULL;

	for (unsigned i = 0; i < client->link_count; i++)
		if (is_same(&client->links[i]->place, place))
			return client->links[i];
	for (unsigned i = 0; i < client->link_count && !link; i++)
		if (is_spare(client->links[i], topology))
			link = client->links[i];
	if (!link && (link = lk__client_add_link(client))) {
		link->session.on_demand = true;
		lk__why_about(&link->session.why, LK_ECONN, client->target.text,
		              "not connected yet");
		lk__session_report_loss(&link->session);
	}
	if (link)
		link->place = *place;
	return link;
}

static void cut(struct lk__link *link, const char *reason)
{
	struct lk__why why;

	lk__why_about(&why, LK_ECONN, link->connection->text, "%s", reason);
	lk__link_broken(link, link->connection, &why);
}

void lk__cluster_adopt(struct lk_client *client, const struct lk__link *from,
                       struct lk__topology *topology)
{
	uint8_t links[LK__NODES_MAX], *owner = topology->owner;
	bool has_slots[LK__NODES_MAX] = {false};

	for (int i = 0; i < topology->count; i++) {
		struct lk__link *link;
		if (!topology->nodes[i].place.host[0])
			memcpy(topology->nodes[i].place.host, from->place.host,
			       sizeof(from->place.host));
		link = find_link(client, &topology->nodes[i].place, topology);
		links[i] = link ? (uint8_t)link->index : LK__NO_OWNER;
	}
	for (int slot = 0; slot < LK__SLOTS; slot++) {
		if (owner[slot] >= topology->count)
			owner[slot] = client->core.route->owner[slot]; /* unknown now: as before */
		else
			owner[slot] = links[owner[slot]];
		if (owner[slot] != LK__NO_OWNER)
			has_slots[owner[slot]] = true;
	}
	lk__core_topology(&client->core, lk__now_ns(), owner);
	/* Requests in flight to a node without slots would wait for nothing. */
	for (unsigned i = 0; i < client->link_count; i++)
		if (client->links[i]->connection && !has_slots[i])
			cut(client->links[i], "has no slots any more");
}

void lk__cluster_refresh(struct lk_client *client)
{
	struct lk__session *from;
	struct lk__topology *topology = lk__core_take_topology(&client->core, &from);

	if (topology)
		lk__cluster_adopt(client, (struct lk__link *)from, topology);
	free(topology);
}

/* Any with slots, rather one that is up. */
static struct lk__link *find_source(struct lk_client *client)
{
	struct lk__link *found = client->links[0];

	for (unsigned i = client->link_count; i-- > 0;)
		if (lk__core_has_slots(&client->core, &client->links[i]->session) &&
		    (lk__session_is_up(&client->links[i]->session) ||
		     !lk__session_is_up(&found->session)))
			found = client->links[i];
	return found;
}

lk_err lk__cluster_learn(struct lk_client *client)
{
	struct lk__query *query;
	lk_err err;

	if (!client->is_cluster)
		return LK_OK;
	query = lk__query_new(LK__TOPOLOGY, LK_KIND_NONE, NULL, 0);
	if (query && !(query->into = malloc(sizeof(struct lk__topology)))) {
		lk__query_free(&client->core, query);
		query = NULL;
	}
	err = lk__ask(find_source(client), query); /* the reader applies the answer */
	lk__query_free(&client->core, query);
	lk__call_reenter();
	return err;
}

void lk__cluster_redirect(struct lk__link *link, struct lk__pending *pending, bool is_asked,
                          const char *text)
{
	struct lk_client *client = link->client;
	struct lk__core *core = &client->core;
	int64_t now_ns = lk__now_ns();
	struct lk__link *to = NULL;
	struct lk__redirect redirect;

	if (client->is_cluster && lk__redirect_parse(text, &redirect)) {
		if (!redirect.place.host[0])
			memcpy(redirect.place.host, link->place.host, sizeof(link->place.host));
		to = find_link(client, &redirect.place, NULL);
	}
	if (!to && pending) {
		const struct lk__answer refused = {.kind = LK__FAILED,
		                                   .err = LK_EAGAIN,
		                                   .retryable = true,
		                                   .text = "redirected to an unknown server"};
		lk__core_answer(core, now_ns, pending, &refused);
	} else if (to && !pending) {
		lk__core_slot_moved(core, now_ns, redirect.slot, &to->session);
		lk__topology_ask(core, &link->session);
	} else if (to && is_asked && pending->kind == LK__EPOCH) {
		cut(link, "the slot of its marker migrates"); /* a dial chooses another one */
	} else if (to && is_asked) {
		lk__core_asked(core, now_ns, pending, &to->session);
	} else if (to) {
		lk__core_moved(core, now_ns, pending, redirect.slot, &to->session);
	}
	lk__wake_notify(&client->loop.wake); /* the link may have to be dialled */
}
