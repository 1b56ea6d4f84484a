/* SPDX-License-Identifier: MIT
 * Making a client's pair of connections to a node of a Cluster.  A node executes what concerns its
 * own slots only, and it must be a master. */
#include "cluster.h"

#include "../base/slot.h"
#include "connect.h"
#include "sentinel.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#define BASES_MAX 4 /* slots that may have the marker: moving one at a time is usual */

enum { MYID, SLOTS, REPLIES };

/* The host that was dialled; a socket leads to this machine. */
static void set_host(struct lk__member *node, const struct lk__target *target)
{
	snprintf(node->host, sizeof(node->host), "%s", target->host ? target->host : "127.0.0.1");
}

void lk__cluster_fill(const struct lk__member *node, struct lk__topology *topology)
{
	for (int i = 0; i < topology->count; i++)
		if (!topology->nodes[i].place.host[0])
			memcpy(topology->nodes[i].place.host, node->host, sizeof(node->host));
}

int lk__cluster_find(const struct lk__topology *topology, const char *id)
{
	for (int i = 0; i < topology->count; i++)
		if (!strcmp(topology->nodes[i].id, id))
			return i;
	return -1;
}

static void set_base(struct lk__member *node, const struct lk__space *space, unsigned slot)
{
	node->base = slot;
	lk__space_marker(space, slot, node->id, node->marker);
}

void lk__cluster_rebase(struct lk__member *node, const struct lk__space *space,
                        const struct lk__topology *topology)
{
	int index = lk__cluster_find(topology, node->id);
	unsigned first;

	if (index >= 0 && lk__slots_first(topology->owner, (uint8_t)index, node->id, &first, 1) > 0)
		set_base(node, space, first);
}

/* ---- The topology ------------------------------------------------------------------------- */

/* The reply to CLUSTER SLOTS. */
static lk_err read_slots(struct lk__conn *conn, const struct lk__resp *resp,
                         const struct lk__member *node, int64_t deadline_ns, int cancel_fd,
                         struct lk__topology *topology, struct lk__why *why)
{
	const char *text = conn->socket.text;

	if (resp->type == LK__RESP_ERROR && strstr(resp->str, "cluster support disabled"))
		return lk__why_about(why, LK_EINVALID, text,
		                     "not in a Cluster (for a single server write redis%s://%s)",
		                     conn->socket.secure ? "s" : "", text);
	if (resp->type == LK__RESP_ERROR) {
		lk__resp_why(resp, text, why);
		why->err = lk__resp_refusal(resp);
		return lk__sentinel_blame(conn, deadline_ns, cancel_fd, why);
	}
	if (!lk__codec_topology(resp, text, topology, why)) {
		topology->count = 0;
		return why->err;
	}
	lk__cluster_fill(node, topology);
	return LK_OK;
}

/* The address that was dialled, as nodes write it. */
static void dialled(const struct lk__target *target, const struct lk__address *address,
                    struct lk__place *place)
{
	*place = (struct lk__place){.port = target->port};
	if (!target->host || getnameinfo((const struct sockaddr *)&address->addr, address->len,
	                                 place->host, sizeof(place->host), NULL, 0, NI_NUMERICHOST))
		place->host[0] = '\0';
}

static bool is_at(const struct lk__place *place, const char *host, int port)
{
	return place->port == port && !strcmp(place->host, host);
}

/* Which master is it?  Without the right to CLUSTER MYID, the one at the place that was dialled. */
static lk_err find_self(const struct lk__conn *conn, struct lk__resp *resps[REPLIES],
                        const struct lk__place *place, const struct lk__topology *topology,
                        struct lk__member *node, int *index, struct lk__why *why)
{
	const struct lk__resp *id = resps[MYID];
	const bool is_known = id->type == LK__RESP_STRING && id->len == LK__NODE_ID_SIZE - 1;
	bool is_replica;

	*index = -1;
	if (is_known)
		*index = lk__cluster_find(topology, id->str);
	for (int i = 0; i < topology->count && !is_known && *index < 0; i++)
		if (is_at(&topology->nodes[i].place, node->host, place->port) ||
		    is_at(&topology->nodes[i].place, place->host, place->port))
			*index = i;
	if (*index >= 0) {
		memcpy(node->id, topology->nodes[*index].id, sizeof(node->id));
		return LK_OK;
	}
	is_replica = lk__codec_has_replica(resps[SLOTS], is_known ? id->str : NULL, place);
	if (!is_known && !is_replica && topology->count)
		return lk__why_about(
			why, LK_EAUTH, conn->socket.text,
			"not among the nodes of its Cluster by its address (that needs "
			"the right to CLUSTER MYID)");
	return lk__why_about(why, LK_ECONN, conn->socket.text,
	                     is_replica ? "is a replica" : "has no slots");
}

/* Ask the node for its id, and for the topology. */
static lk_err ask(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                  struct lk__resp *resps[REPLIES], struct lk__why *why)
{
	const char *myid[] = {"CLUSTER", "MYID"}, *slots[] = {"CLUSTER", "SLOTS"};
	struct lk__buf buf = {0};
	lk_err err;

	if (lk__resp_command(&buf, 2, myid, NULL) && lk__resp_command(&buf, 2, slots, NULL))
		err = lk__conn_pipeline(conn, deadline_ns, cancel_fd, &buf, REPLIES, resps, why);
	else
		err = lk__why_set(why, LK_ENOMEM, "out of memory");
	lk__buf_fini(&buf);
	return err == LK_EUNKNOWN ? why->err = LK_ECONN : err;
}

static lk_err learn(struct lk__conn *conn, const struct lk__place *place, int64_t deadline_ns,
                    int cancel_fd, struct lk__member *node, struct lk__topology *topology,
                    int *index, struct lk__why *why)
{
	struct lk__resp *resps[REPLIES];
	lk_err err = ask(conn, deadline_ns, cancel_fd, resps, why);

	if (err)
		return err;
	err = read_slots(conn, resps[SLOTS], node, deadline_ns, cancel_fd, topology, why);
	if (!err && index)
		err = find_self(conn, resps, place, topology, node, index, why);
	for (int i = 0; i < REPLIES; i++)
		lk__resp_free(resps[i]);
	return err;
}

lk_err lk__cluster_look(const struct lk__target *target, struct lk__tls_shared *tls,
                        int64_t deadline_ns, int cancel_fd, struct lk__topology *topology,
                        struct lk__why *why)
{
	struct lk__conn *conn;
	struct lk__member node;
	lk_err err = lk__conn_dial(target, tls, deadline_ns, cancel_fd, &conn, NULL, why);

	topology->count = 0;
	if (err)
		return err;
	set_host(&node, target);
	err = learn(conn, NULL, deadline_ns, cancel_fd, &node, topology, NULL, why);
	lk__conn_close(conn);
	return err;
}

/* ---- Connections -------------------------------------------------------------------------- */

/* Markers of a node's memory that are in its slots, from the first one on. */
struct markers {
	int count;
	const char *list[BASES_MAX];
	struct lk__resp *resps[BASES_MAX]; /* which have their texts */
};

/* Read the markers of these slots.  The first slot may be new here, or the marker may have left
 * with its slot: then another one shows that this memory is whole. */
static lk_err read_markers(struct lk__conn *conn, const struct lk__space *space, const char *node,
                           const unsigned *slots, int count, int64_t deadline_ns, int cancel_fd,
                           struct markers *markers, struct lk__why *why)
{
	struct lk__buf buf = {0};
	bool ok = true;
	lk_err err;

	*markers = (struct markers){0};
	for (int i = 0; i < count; i++) {
		char key[LK__MARKER_MAX];
		const char *get[] = {"GET", key};
		lk__space_marker(space, slots[i], node, key);
		ok = ok && lk__resp_command(&buf, 2, get, NULL);
	}
	err = ok ? lk__conn_pipeline(conn, deadline_ns, cancel_fd, &buf, (size_t)count,
	                             markers->resps, why)
	         : lk__why_set(why, LK_ENOMEM, "out of memory");
	lk__buf_fini(&buf);
	for (int i = 0; i < count && !err; i++)
		if (markers->resps[i]->type == LK__RESP_STRING &&
		    markers->resps[i]->len < LK__EPOCH_SIZE)
			markers->list[markers->count++] = markers->resps[i]->str;
	return err == LK_EUNKNOWN ? why->err = LK_ECONN : err;
}

/* Write a copy of the marker in that slot, for clients that come when its own slot has moved.  It
 * may be refused, since this one migrates. */
static lk_err copy_marker(struct lk__conn *conn, const struct lk__space *space, const char *node,
                          unsigned slot, int64_t deadline_ns, int cancel_fd,
                          const struct lk__epoch *epoch, struct lk__why *why)
{
	char key[LK__MARKER_MAX];
	const struct lk__request ask = {.kind = LK__EPOCH, .epoch = epoch, .marker = key};
	struct lk__buf buf = {0};
	struct lk__resp *resp = NULL;
	lk_err err;

	lk__space_marker(space, slot, node, key);
	if (lk__codec_request(&buf, space, &ask))
		err = lk__conn_pipeline(conn, deadline_ns, cancel_fd, &buf, 1, &resp, why);
	else
		err = lk__why_set(why, LK_ENOMEM, "out of memory");
	lk__buf_fini(&buf);
	lk__resp_free(resp);
	return err == LK_EUNKNOWN ? why->err = LK_ECONN : err;
}

/* Test the connections in the first slot that does not migrate. */
static lk_err try_slots(struct lk__conn *conns[2], const struct lk__space *space,
                        const unsigned *slots, int count, int64_t deadline_ns, int cancel_fd,
                        struct lk__epoch *epoch, struct lk__member *node,
                        const struct markers *markers, struct lk__why *why)
{
	struct lk__trial trial = {
		.marker = node->marker, .vouchers = markers->list, .voucher_count = markers->count};
	bool is_refused = true;
	lk_err err = LK_OK;

	for (int i = 0; i < count && is_refused; i++) {
		set_base(node, space, slots[i]);
		lk__space_slot_channel(space, slots[i], trial.channel);
		lk__space_client_key(space, space->client_id, slots[i], trial.key);
		err = lk__connect_subscribe(conns[LK__MESSAGES], space, trial.channel, deadline_ns,
		                            cancel_fd, why);
		if (err)
			return err;
		err = lk__connect_probe(conns[LK__RESPONSES], conns[LK__MESSAGES], space, &trial,
		                        deadline_ns, cancel_fd, epoch, &is_refused, why);
		if (!err && !is_refused && i + 1 < count)
			err = copy_marker(conns[LK__RESPONSES], space, node->id, slots[i + 1],
			                  deadline_ns, cancel_fd, epoch, why);
	}
	memcpy(node->channel, trial.channel, sizeof(node->channel));
	return err;
}

static lk_err try_out(struct lk__conn *conns[2], const struct lk__space *space, int64_t deadline_ns,
                      int cancel_fd, struct lk__epoch *epoch, struct lk__member *node,
                      const struct lk__topology *topology, int index, struct lk__why *why)
{
	unsigned slots[BASES_MAX];
	const int count =
		lk__slots_first(topology->owner, (uint8_t)index, node->id, slots, BASES_MAX);
	struct markers markers;
	lk_err err = read_markers(conns[LK__RESPONSES], space, node->id, slots, count, deadline_ns,
	                          cancel_fd, &markers, why);

	if (err)
		return err;
	err = try_slots(conns, space, slots, count, deadline_ns, cancel_fd, epoch, node, &markers,
	                why);
	for (int i = 0; i < count; i++)
		lk__resp_free(markers.resps[i]);
	return err;
}

lk_err lk__cluster_connect(const struct lk__target *target, struct lk__tls_shared *tls,
                           const struct lk__space *space, int64_t deadline_ns, int cancel_fd,
                           struct lk__epoch *epoch, struct lk__conn *conns[2],
                           struct lk__member *node, struct lk__topology *topology,
                           struct lk__why *why)
{
	struct lk__address address;
	struct lk__place place;
	int index;
	lk_err err = lk__conn_dial(target, tls, deadline_ns, cancel_fd, &conns[LK__RESPONSES],
	                           &address, why);

	topology->count = 0;
	if (err)
		return err;
	conns[LK__MESSAGES] = NULL;
	set_host(node, target);
	dialled(target, &address, &place);
	err = learn(conns[LK__RESPONSES], &place, deadline_ns, cancel_fd, node, topology, &index,
	            why);
	if (!err)
		err = lk__conn_dial_address(target, tls, &address, deadline_ns, cancel_fd,
		                            &conns[LK__MESSAGES], why);
	if (!err)
		err = try_out(conns, space, deadline_ns, cancel_fd, epoch, node, topology, index,
		              why);
	if (err)
		for (int side = 0; side < 2; side++) {
			lk__conn_close(conns[side]);
			conns[side] = NULL;
		}
	return err;
}
