/* SPDX-License-Identifier: MIT
 * The server to which a client is connected, and in a Cluster the one that has a name. */
#include "base/text.h"
#include "runtime/client.h"

#include <stdio.h>
#include <string.h>

/* Take "SERVICE at ADDRESS" apart, or an address alone.  _locked */
static void describe(const struct lk_client *client, const char *text, lk_server *server)
{
	const char *service = client->target.text;
	size_t len = strlen(service);

	memset(server, 0, sizeof(*server));
	if (client->target.service) {
		snprintf(server->service, sizeof(server->service), "%s", service);
		if (!strncmp(text, service, len) && !strncmp(text + len, " at ", 4))
			text += len + 4;
	}
	snprintf(server->address, sizeof(server->address), "%s", text);
	server->in_cluster = client->is_cluster;
}

/* All servers, as the URL names them.  _locked */
static lk_err describe_quorum(const struct lk_client *client, lk_server *server)
{
	char text[LK__PLACE_SIZE];
	struct lk__why why;

	if (!lk__quorum_is_ready(&client->core)) {
		lk__quorum_explain(&client->core, &why);
		return lk__failf(LK_ECONN, "%s", why.text);
	}
	memset(server, 0, sizeof(*server));
	server->in_quorum = true;
	for (unsigned i = 0; i < client->link_count; i++) {
		size_t len = strlen(server->address);
		snprintf(server->address + len, sizeof(server->address) - len, "%s%s", i ? "," : "",
		         lk__link_text(client->links[i], text));
	}
	return LK_OK;
}

/* _locked */
static lk_err describe_link(const struct lk_client *client, const struct lk__link *link,
                            lk_server *server)
{
	if (lk__client_is_quorum(client))
		return describe_quorum(client, server);
	if (!link->connection && client->is_cluster)
		return lk__failf(LK_ECONN, "%s:%d: not connected", link->place.host,
		                 link->place.port);
	if (!link->connection)
		return lk__failf(LK_ECONN, "%s: not connected", client->target.text);
	describe(client, link->connection->text, server);
	return LK_OK;
}

lk_err lk_client_server(lk_client *client, lk_server *server)
{
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(server, "server")) || (err = lk__client_enter(client)))
		return err;
	if (client->is_cluster)
		err = lk__failf(LK_EINVALID, "client: a Cluster has several servers (see "
		                             "lk_client_name_server())");
	else
		err = describe_link(client, client->links[0], server);
	lk__call_leave(client, NULL);
	return err;
}

lk_err lk_client_name_server(lk_client *client, const char *name, size_t name_len,
                             lk_server *server)
{
	size_t len = lk__name_len(name, name_len);
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) || (err = lk__refuse_null(name, "name")) ||
	    (err = lk__refuse_null(server, "server")) ||
	    (err = lk__check_len("name", len, LK_NAME_MAX)) || (err = lk__client_enter(client)))
		return err;
	err = describe_link(client, lk__client_route(client, name, len), server);
	lk__call_leave(client, NULL);
	return err;
}
