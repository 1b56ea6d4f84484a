/* SPDX-License-Identifier: MIT
 * Queries: requests that a call sends once. */
#include "client.h"

void lk__ask_detached(struct lk__link *link, struct lk__query *query)
{
	if (query)
		lk__core_ask_detached(&link->client->core, &link->session, query);
}

struct lk__query *lk__handle_query(const struct lk__handle *handle, enum lk__request_kind kind)
{
	return lk__query_new(kind, (lk_kind)handle->kind, handle->name->bytes, handle->name->len);
}

lk_err lk__ask_all(struct lk__link *link, struct lk__query *const *queries, size_t count)
{
	struct lk_client *client = link->client;
	struct lk__call call = {0};

	if (!lk__park_init(&call.park))
		return lk__failf(LK_ENOMEM, "out of memory");
	lk__core_query(&client->core, &link->session, lk__call_entered_ns(), &call.op, queries,
	               count);
	lk__call_await(client, &call);
	lk__park_fini(&call.park);
	return lk__fail(&call.op.why);
}

lk_err lk__ask(struct lk__link *link, struct lk__query *query)
{
	if (!query)
		return lk__failf(LK_ENOMEM, "out of memory");
	return lk__ask_all(link, &query, 1);
}

bool lk__ask_is_late(const struct lk_client *client)
{
	return lk__now_ns() - lk__call_entered_ns() >= client->target.command_timeout_ns;
}

lk_err lk__malformed_answer(const struct lk_client *client)
{
	return lk__failf(LK_EUNKNOWN, "%s: unexpected response to a script", client->core.server);
}
