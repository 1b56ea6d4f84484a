/* SPDX-License-Identifier: MIT
 * Names in the store: their kinds, and their list. */
#include "base/text.h"
#include "quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"nothing", "lock", "semaphore", "latch"};
#define KINDS (sizeof(kinds) / sizeof(*kinds))

/* ---- Kinds -------------------------------------------------------------------------------- */

const char *lk_kind_name(lk_kind kind)
{
	return (size_t)kind < KINDS ? kinds[kind] : "unknown";
}

static lk_err ask_kind(struct lk_client *client, const char *name, size_t len, lk_kind *kind)
{
	struct lk__query *query;
	lk_err err;

	if (lk__client_is_quorum(client))
		return lk__quorum_kind(client, name, len, kind);
	query = lk__query_new(LK__KIND, LK_KIND_NONE, name, len);
	err = lk__ask(lk__client_route(client, name, len), query);
	if (!err)
		*kind = query->answer.noun;
	lk__query_free(&client->core, query);
	return err;
}

lk_err lk_client_name_kind(lk_client *client, const char *name, size_t name_len, lk_kind *kind)
{
	size_t len = lk__name_len(name, name_len);
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) || (err = lk__refuse_null(name, "name")) ||
	    (err = lk__refuse_null(kind, "kind")) ||
	    (err = lk__check_len("name", len, LK_NAME_MAX)))
		return err;
	if ((err = lk__client_enter(client)))
		return err;
	err = ask_kind(client, name, len, kind);
	lk__call_leave(client, NULL);
	return err;
}

/* ---- List --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
	const struct lk__listed_name *x = *(struct lk__listed_name *const *)a;
	const struct lk__listed_name *y = *(struct lk__listed_name *const *)b;
	int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);

	return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Append the names on one server. */
static lk_err ask_link(struct lk__link *link, struct lk__names *names)
{
	char cursor[sizeof(names->cursor)];
	lk_err err = LK_OK;

	snprintf(names->cursor, sizeof(names->cursor), "0");
	do {
		struct lk__query *query = lk__query_new(LK__LIST, LK_KIND_NONE, NULL, 0);
		memcpy(cursor, names->cursor, sizeof(cursor));
		if (query) {
			query->details.subject = cursor;
			query->into = names;
		}
		lk__call_reenter();
		err = lk__ask(link, query);
		lk__query_free(&link->client->core, query);
	} while (!err && strcmp(names->cursor, "0") != 0);
	return err;
}

static lk_err ask_names(struct lk_client *client, struct lk__names *names)
{
	lk_err err;

	if (lk__client_is_quorum(client))
		return lk__quorum_names(client, names);
	err = lk__cluster_learn(client);
	for (unsigned i = 0; i < client->link_count && !err; i++)
		if (lk__core_has_slots(&client->core, &client->links[i]->session))
			err = ask_link(client->links[i], names);
	return err;
}

lk_err lk_client_names(lk_client *client, lk_name_fn *fn, void *arg)
{
	struct lk__names names = {0};
	bool go_on = true;
	lk_err err = lk__refuse_null(client, "client");

	if (!err && !fn)
		err = lk__failf(LK_EINVALID, "fn: must not be NULL");
	if (err || (err = lk__client_enter(client)))
		return err;
	err = ask_names(client, &names);
	lk__call_leave(client, NULL);
	if (!err && names.count)
		qsort(names.list, names.count, sizeof(*names.list), compare);
	for (size_t i = 0; i < names.count; i++) {
		struct lk__listed_name *entry = names.list[i];
		if (!err && go_on && (i == 0 || compare(&names.list[i - 1], &names.list[i]) != 0))
			go_on = fn(arg, entry->bytes, entry->len);
	}
	for (size_t i = 0; i < names.count; i++)
		free(names.list[i]);
	free(names.list);
	return err;
}
