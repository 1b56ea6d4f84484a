/* SPDX-License-Identifier: MIT
 * The server to which a client is connected. */
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
}

lk_err lk_client_server(lk_client *client, lk_server *server)
{
	const struct lk__connection *connection;
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(server, "server")) || (err = lk__client_enter(client)))
		return err;
	/* The store has one server. */
	connection = client->links[0]->connection;
	if (connection)
		describe(client, connection->text, server);
	else
		err = lk__failf(LK_ECONN, "%s: not connected", client->target.text);
	lk__call_leave(client, NULL);
	return err;
}
