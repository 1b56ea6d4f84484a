/* SPDX-License-Identifier: MIT
 * The store in Redis: the wire format of a Cluster's topology.  CLUSTER SLOTS answers an array of
 * ranges: the first slot, the last slot, the master, its replicas.  A node is its host, its port,
 * its id since 4.0, and since 7.0 an array of metadata: pairs of a name and a value. */
#include "../base/text.h"
#include "../base/url.h"
#include "codec.h"

#include <string.h>

#define MASTER 2 /* the element of a range */

static const struct lk__resp *part_of(const struct lk__resp *resp, size_t index,
                                      enum lk__resp_type type)
{
	if (resp->type != LK__RESP_ARRAY || index >= resp->len ||
	    resp->elements[index]->type != type)
		return NULL;
	return resp->elements[index];
}

/* "" for none. */
static bool copy_host(const struct lk__resp *host, char out[LK_HOST_SIZE])
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-:%";

	out[0] = '\0';
	if (host->type == LK__RESP_NIL)
		return true;
	if (host->type != LK__RESP_STRING || host->len >= LK_HOST_SIZE ||
	    strspn(host->str, allowed) < host->len)
		return false;
	memcpy(out, host->str, host->len + 1);
	return true;
}

/* A node that prefers host names, and has not heard that of another one, names it "?". */
static bool find_host(const struct lk__resp *node, char out[LK_HOST_SIZE])
{
	const struct lk__resp *host = node->elements[0];
	const struct lk__resp *more = part_of(node, 3, LK__RESP_ARRAY);

	if (host->type != LK__RESP_STRING || strcmp(host->str, "?") != 0)
		return copy_host(host, out);
	for (size_t i = 0; more && i + 1 < more->len; i += 2) {
		const struct lk__resp *key = part_of(more, i, LK__RESP_STRING);
		const struct lk__resp *value = part_of(more, i + 1, LK__RESP_STRING);
		if (key && value && value->len && !strcmp(key->str, "ip"))
			return copy_host(value, out);
	}
	return false;
}

static bool read_node(const struct lk__resp *node, struct lk__cluster_node *out)
{
	const struct lk__resp *port = part_of(node, 1, LK__RESP_INTEGER);
	const struct lk__resp *id = part_of(node, 2, LK__RESP_STRING);

	if (!port || port->integer < 1 || port->integer > 65535 || !id ||
	    id->len != LK__NODE_ID_SIZE - 1 ||
	    strspn(id->str, "0123456789abcdef") != LK__NODE_ID_SIZE - 1 ||
	    !find_host(node, out->place.host))
		return false;
	out->place.port = (int)port->integer;
	memcpy(out->id, id->str, LK__NODE_ID_SIZE);
	return true;
}

/* The index of the node, which may be new; -1 = there are too many. */
static int index_of(struct lk__topology *topology, const struct lk__cluster_node *node)
{
	int i = 0;

	while (i < topology->count && strcmp(topology->nodes[i].id, node->id) != 0)
		i++;
	if (i == LK__NODES_MAX)
		return -1;
	if (i == topology->count)
		topology->nodes[topology->count++] = *node;
	return i;
}

bool lk__codec_topology(const struct lk__resp *resp, const char *what,
                        struct lk__topology *topology, struct lk__why *why)
{
	topology->count = 0;
	memset(topology->owner, LK__NO_OWNER, sizeof(topology->owner));
	for (size_t i = 0; resp->type == LK__RESP_ARRAY && i < resp->len; i++) {
		const struct lk__resp *range = resp->elements[i];
		const struct lk__resp *first = part_of(range, 0, LK__RESP_INTEGER);
		const struct lk__resp *last = part_of(range, 1, LK__RESP_INTEGER);
		const struct lk__resp *master = part_of(range, MASTER, LK__RESP_ARRAY);
		struct lk__cluster_node node;
		int index;
		if (!first || !last || !master || first->integer < 0 ||
		    first->integer > last->integer || last->integer >= LK__SLOTS ||
		    !read_node(master, &node)) {
			lk__why_about(why, LK_ESERVER, what,
			              "unexpected response to CLUSTER SLOTS");
			return false;
		}
		index = index_of(topology, &node);
		if (index < 0) {
			lk__why_about(why, LK_ELIMIT, what, "a Cluster of more than %d masters",
			              LK__NODES_MAX);
			return false;
		}
		memset(topology->owner + first->integer, index,
		       (size_t)(last->integer - first->integer + 1));
	}
	if (resp->type == LK__RESP_ARRAY)
		return true;
	lk__why_about(why, LK_ESERVER, what, "unexpected response to CLUSTER SLOTS");
	return false;
}

bool lk__codec_has_replica(const struct lk__resp *resp, const char *id,
                           const struct lk__place *place)
{
	struct lk__cluster_node node;

	for (size_t i = 0; resp->type == LK__RESP_ARRAY && i < resp->len; i++) {
		const struct lk__resp *range = resp->elements[i];
		for (size_t j = MASTER + 1; range->type == LK__RESP_ARRAY && j < range->len; j++) {
			const struct lk__resp *replica = part_of(range, j, LK__RESP_ARRAY);
			if (!replica || !read_node(replica, &node))
				continue;
			if (id ? !strcmp(id, node.id)
			       : node.place.port == place->port &&
			                    !strcmp(node.place.host, place->host))
				return true;
		}
	}
	return false;
}

bool lk__codec_replica(const struct lk__resp *resp, size_t range, size_t number,
                       struct lk__cluster_node *node)
{
	const struct lk__resp *of_range = part_of(resp, range, LK__RESP_ARRAY);
	const struct lk__resp *replica =
		of_range ? part_of(of_range, MASTER + number, LK__RESP_ARRAY) : NULL;

	return replica && read_node(replica, node);
}
