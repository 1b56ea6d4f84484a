/* SPDX-License-Identifier: MIT
 * Queries about a semaphore, and changes to it without a hold. */
#include "semaphore_query.h"

#include "show.h"

#include <stdlib.h>
#include <string.h>

lk_err lk__permits_size(struct lk__handle *handle, bool must_exist, int64_t capacity,
                        int64_t *result)
{
	struct lk_client *client = handle->client;
	struct lk__query *query = lk__handle_query(handle, LK__SIZE);
	const struct lk__answer *answer;
	bool was_held, more = false;
	lk_err err;

	if (query) {
		query->details.must_exist = must_exist;
		query->details.capacity = capacity;
		query->details.ttl_ms = handle->queue->ttl_ms;
	}
	if (!(err = lk__ask(lk__handle_link(handle), query))) {
		answer = &query->answer;
		more = answer->kind == LK__SIZED && answer->more;
		if (answer->kind == LK__ABSENT)
			err = lk__failf(LK_EABSENT, "no such semaphore");
		else if (answer->kind == LK__MISMATCH)
			err = lk__failf(LK_EMISMATCH, "capacity: is %lld, not %lld",
			                (long long)answer->capacity, (long long)capacity);
		else if (answer->kind == LK__SIZED)
			*result = answer->capacity;
		else
			err = lk__malformed_answer(client);
	}
	lk__query_free(&client->core, query);
	if (more) /* if this fails, the next client serves the rest */
		lk__break(handle, "", &was_held);
	return err;
}

/* ---- Queries ------------------------------------------------------------------------------ */

lk_err lk__permits_query(struct lk__handle *handle, lk_semaphore_status *status)
{
	struct lk__listing *listing;
	lk_err err = lk__show(handle, 0, 0, NULL, &listing);

	if (err)
		return err;
	memset(status, 0, sizeof(*status));
	status->capacity = listing->capacity;
	status->available = listing->capacity - listing->used;
	status->holders = listing->holders;
	status->queue_len = listing->waiting;
	status->my_rank = listing->rank;
	status->ttl_ms = listing->ttl_ms;
	status->grace_ms = lk__grace_ms(handle, listing);
	free(listing);
	return LK_OK;
}

lk_err lk__permits_list(struct lk__handle *handle, bool holders, size_t max, lk_ticket *list,
                        size_t *count)
{
	lk_party *parties[LK__SHOWN_MAX];
	struct lk__listing *listing;
	size_t found;
	lk_err err;

	if (max > LK__SHOWN_MAX)
		max = LK__SHOWN_MAX;
	if ((err = lk__show(handle, holders ? max : 0, holders ? 0 : max, NULL, &listing)))
		return err;
	for (found = 0; found < listing->count; found++) {
		const struct lk__entry *entry = &listing->entries[found];
		lk_ticket *permits = &list[found];

		memset(permits, 0, sizeof(*permits));
		lk__party_init(&permits->party, entry);
		permits->permits = entry->permits;
		permits->fence = entry->fence;
		permits->lease_left_ms = entry->left_ms;
		permits->held_ms = holders ? lk__held_ms(listing, entry) : 0;
		parties[found] = &permits->party;
	}
	free(listing);
	err = lk__party_describe(handle, parties, found);
	if (!err)
		*count = found;
	return err;
}

/* ---- Break -------------------------------------------------------------------------------- */

lk_err lk__permits_break(struct lk__handle *handle, const char *if_holder)
{
	struct lk__listing *listing;
	bool broke = false;
	lk_err err = lk__show(handle, 2, 0, if_holder, &listing);

	if (err)
		return err;
	if (!listing->holders)
		err = lk__failf(LK_EABSENT, "not held");
	else if (!if_holder && listing->held > 1)
		err = lk__failf(LK_EMISMATCH, "%lld holders: give the id of one",
		                (long long)listing->holders);
	else if (!listing->held)
		err = lk__failf(LK_EMISMATCH, "no such holder");
	else
		err = lk__break(handle, listing->entries[0].id, &broke);
	free(listing);
	if (!err && !broke)
		return lk__failf(LK_EMISMATCH, "the holder released while it was being broken");
	return err;
}
