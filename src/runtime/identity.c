/* SPDX-License-Identifier: MIT
 * The details of this client (host, user, program, pid, labels), published to each server where it
 * holds or waits. */
#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIFE_MS 60000
#define EACH_NS (20000 * LK__MS)
#define LABELS_MAX 64 /* limit of published labels of handles */

void lk__identity_init(struct lk__identity *identity)
{
	/* Looked up once, here: a user directory may be slow. */
	lk__host_name(identity->host, sizeof(identity->host));
	lk__user_name(identity->user, sizeof(identity->user));
	lk__program_name(identity->program, sizeof(identity->program));
}

/* A query that publishes a label, of the client or of a name. */
static struct lk__query *introduction(const struct lk__name *name, const char *label)
{
	struct lk__query *query =
		lk__query_new(LK__INTRODUCE, name ? (lk_kind)name->kind : LK_KIND_NONE,
	                      name ? name->bytes : NULL, name ? name->len : 0);

	if (!query)
		return NULL;
	query->details.life_ms = LIFE_MS;
	if (label)
		query->details.label = query->label = strdup(label);
	return query;
}

static void add_identity(struct lk__query *query, const struct lk__identity *identity)
{
	query->details.host = identity->host;
	query->details.user = identity->user;
	query->details.program = identity->program;
	query->details.pid = getpid();
}

/* Does the client hold the name, or wait for it? */
static bool is_used(const struct lk__name *name)
{
	for (const struct lk__wait_queue *queue = name->queues; queue; queue = queue->next)
		if (queue->ticket)
			return true;
	return false;
}

/* In a Cluster the details are where the name is, beside its holders. */
static void introduce_names(struct lk__link *link)
{
	const struct lk__identity *identity = &link->client->identity;
	struct lk__handle *handle = link->client->handles;
	struct lk__query *query;
	int names = 0;

	for (; handle && names < LABELS_MAX; handle = handle->next) {
		if (lk__handle_link(handle) != link || !is_used(handle->name))
			continue;
		names++;
		handle->introduced = true;
		if ((query = introduction(handle->name, identity->label)))
			add_identity(query, identity);
		lk__ask_detached(link, query);
		if (handle->label)
			lk__ask_detached(link, introduction(handle->name, handle->label));
	}
}

/* Does the slot have the details because of another handle, too? */
static bool is_needed(const struct lk__handle *gone)
{
	const struct lk__handle *handle = gone->client->handles;

	for (; handle; handle = handle->next)
		if (handle != gone && handle->introduced &&
		    handle->name->inbox->slot == gone->name->inbox->slot)
			return true;
	return false;
}

void lk__handle_forget(struct lk__handle *handle)
{
	struct lk__link *link = lk__handle_link(handle);

	if (!handle->introduced)
		return;
	if (link->connection && !is_needed(handle))
		lk__ask_detached(link, lk__query_new(LK__FORGET, LK_KIND_NONE, handle->name->bytes,
		                                     handle->name->len));
	handle->introduced = false;
}

static void introduce(struct lk__link *link, int64_t now_ns)
{
	const struct lk__identity *identity = &link->client->identity;
	struct lk__query *query;
	struct lk__handle *handle;
	int labels = 0;

	link->introduce_ns = now_ns + EACH_NS;
	if (link->client->is_cluster) {
		introduce_names(link);
		return;
	}
	if ((query = introduction(NULL, identity->label)))
		add_identity(query, identity);
	lk__ask_detached(link, query);
	for (handle = link->client->handles; handle && labels < LABELS_MAX; handle = handle->next) {
		if (!handle->label ||
		    (lk__handle_link(handle) != link && !lk__client_is_quorum(link->client)))
			continue;
		labels++;
		lk__ask_detached(link, introduction(handle->name, handle->label));
	}
}

void lk__client_introduce(struct lk_client *client, int64_t now_ns)
{
	if (!client->core.all_tickets)
		return;
	for (unsigned i = 0; i < client->link_count; i++) {
		struct lk__link *link = client->links[i];
		if (link->session.users && link->connection && now_ns >= link->introduce_ns)
			introduce(link, now_ns);
	}
}

void lk__client_forget(struct lk_client *client)
{
	for (struct lk__handle *handle = client->handles; handle; handle = handle->next)
		lk__handle_forget(handle);
	if (client->is_cluster)
		return;
	for (unsigned i = 0; i < client->link_count; i++)
		if (client->links[i]->introduce_ns)
			lk__ask_detached(client->links[i],
			                 lk__query_new(LK__FORGET, LK_KIND_NONE, NULL, 0));
}
