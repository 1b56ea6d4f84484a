/* SPDX-License-Identifier: MIT
 * Holders and waiters of locks and semaphores. */
#include "show.h"

#include "quorum.h"

#include <stdlib.h>
#include <string.h>

/* The first waiting ticket of this client, NULL if none. */
static const struct lk__ticket *my_ticket(const struct lk__handle *handle)
{
	const struct lk__ticket *first = NULL;

	for (const struct lk__wait_queue *queue = handle->name->queues; queue;
	     queue = queue->next) {
		const struct lk__ticket *ticket = queue->ticket;
		if (ticket && ticket->state == LK__WAITING &&
		    (!first || ticket->arrival < first->arrival))
			first = ticket;
	}
	return first;
}

lk_err lk__show(struct lk__handle *handle, size_t holders, size_t waiters, const char *only,
                struct lk__listing **result)
{
	struct lk_client *client = handle->client;
	const struct lk__ticket *mine = my_ticket(handle);
	size_t room = holders + waiters;
	struct lk__listing *listing;
	struct lk__query *query;
	lk_err err;

	if (lk__client_is_quorum(client))
		return lk__quorum_show(handle, waiters, result);
	query = lk__handle_query(handle, LK__SHOW);
	listing = calloc(1, sizeof(*listing) + room * sizeof(listing->entries[0]));
	if (query && listing) {
		listing->room = room;
		query->details.holders = holders;
		query->details.waiters = waiters;
		query->details.only = only;
		query->into = listing;
		if (mine)
			query->ticket = lk__ticket_id(mine);
	}
	err = lk__ask(lk__handle_link(handle), listing ? query : NULL);
	if (!err && query->answer.kind == LK__ABSENT)
		err = lk__failf(LK_EABSENT, "no such semaphore");
	lk__query_free(&client->core, query);
	if (err)
		free(listing);
	else
		*result = listing;
	return err;
}

void lk__party_init(lk_party *party, const struct lk__entry *entry)
{
	memset(party, 0, sizeof(*party));
	memcpy(party->id, entry->party, sizeof(party->id));
}

/* Each server of a quorum has the details of the clients that use it. */
static struct lk__link *details_link(const struct lk__handle *handle)
{
	struct lk__link *link = NULL;

	if (lk__client_is_quorum(handle->client))
		link = lk__quorum_link(handle->client);
	return link ? link : lk__handle_link(handle);
}

lk_err lk__party_describe(struct lk__handle *handle, lk_party *const *parties, size_t count)
{
	struct lk__core *core = &handle->client->core;
	struct lk__query **queries = calloc(count ? count : 1, sizeof(struct lk__query *));
	struct lk__link *link = details_link(handle);
	lk_err err = LK_OK;
	size_t made = 0;

	while (queries && made < count &&
	       (queries[made] = lk__handle_query(handle, LK__DESCRIBE))) {
		queries[made]->details.subject = parties[made]->id;
		queries[made]->into = parties[made];
		made++;
	}
	err = queries && made == count ? lk__ask_all(link, queries, count)
	                               : lk__failf(LK_ENOMEM, "out of memory");
	if ((err == LK_ECONN || err == LK_EUNKNOWN) &&
	    (lk__ask_is_late(handle->client) || lk__client_is_quorum(handle->client)))
		err = LK_OK;
	while (made)
		lk__query_free(core, queries[--made]);
	free(queries);
	return err;
}

int64_t lk__held_ms(const struct lk__listing *listing, const struct lk__entry *entry)
{
	int64_t granted_us = (int64_t)entry->fence;

	if (listing->has_no_clock)
		return -1;
	/* A fence is the microsecond of its grant, or slightly more. */
	return listing->store_us > granted_us ? (listing->store_us - granted_us) / 1000 : 0;
}

int64_t lk__grace_ms(const struct lk__handle *handle, const struct lk__listing *listing)
{
	if (lk__client_is_quorum(handle->client))
		return lk__quorum_grace_ms(handle->client, listing->store_us);
	return lk__grace_left_ms(&lk__handle_link(handle)->session.epoch, listing->store_us,
	                         handle->client->target.grace_ms);
}

lk_err lk__break(struct lk__handle *handle, const char *id, bool *was_held)
{
	bool more = true;
	lk_err err = LK_OK;

	if (lk__client_is_quorum(handle->client))
		return lk__quorum_break(handle, id, was_held);
	*was_held = false;
	while (!err && more) {
		struct lk__query *query = lk__handle_query(handle, LK__BREAK);
		if (query)
			query->details.subject = id;
		if (!(err = lk__ask(lk__handle_link(handle), query))) {
			*was_held = *was_held || query->answer.mine;
			more = query->answer.more;
			id = "";
		}
		lk__query_free(&handle->client->core, query);
	}
	return *was_held ? LK_OK : err;
}
