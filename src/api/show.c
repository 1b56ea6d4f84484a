/* SPDX-License-Identifier: MIT
 * Who holds and who waits, for locks and semaphores. */
#include "show.h"

#include <stdlib.h>
#include <string.h>

/* The waiting ticket of this client that came first, NULL if none waits. */
static const struct lk__ticket *my_ticket(const struct lk__handle *handle)
{
	const struct lk__ticket *first = NULL;

	for (const struct lk__place *place = handle->name->places; place; place = place->next) {
		const struct lk__ticket *ticket = place->ticket;
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
	struct lk__question *question = lk__handle_question(handle, LK__SHOW);
	size_t room = holders + waiters;
	struct lk__listing *listing =
		calloc(1, sizeof(*listing) + room * sizeof(listing->entries[0]));
	lk_err err;

	if (question && listing) {
		listing->room = room;
		question->details.holders = holders;
		question->details.waiters = waiters;
		question->details.only = only;
		question->into = listing;
		if (mine)
			question->ticket = lk__ticket_id(mine);
	}
	err = lk__ask(handle->link, listing ? question : NULL);
	if (!err && question->answer.kind == LK__ABSENT)
		err = lk__failf(LK_EABSENT, "there is no such semaphore");
	lk__question_free(&client->core, question);
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

lk_err lk__party_describe(struct lk__handle *handle, lk_party *const *parties, size_t count)
{
	struct lk__core *core = &handle->client->core;
	struct lk__question **questions = calloc(count ? count : 1, sizeof(struct lk__question *));
	lk_err err = LK_OK;
	size_t made = 0;

	while (questions && made < count &&
	       (questions[made] = lk__handle_question(handle, LK__DESCRIBE))) {
		questions[made]->details.subject = parties[made]->id;
		questions[made]->into = parties[made];
		made++;
	}
	err = questions && made == count ? lk__ask_all(handle->link, questions, count)
	                                 : lk__failf(LK_ENOMEM, "out of memory");
	while (made)
		lk__question_free(core, questions[--made]);
	free(questions);
	return err;
}

int64_t lk__held_ms(const struct lk__listing *listing, const struct lk__entry *entry)
{
	int64_t granted_us = (int64_t)entry->fence;

	/* A fence is the microsecond of its grant, or a little more. */
	return listing->store_us > granted_us ? (listing->store_us - granted_us) / 1000 : 0;
}

lk_err lk__break(struct lk__handle *handle, const char *id, bool *was_held)
{
	bool more = true;
	lk_err err = LK_OK;

	*was_held = false;
	while (!err && more) {
		struct lk__question *question = lk__handle_question(handle, LK__BREAK);
		if (question)
			question->details.subject = id;
		if (!(err = lk__ask(handle->link, question))) {
			*was_held = *was_held || question->answer.mine;
			more = question->answer.more;
			id = "";
		}
		lk__question_free(&handle->client->core, question);
	}
	return *was_held ? LK_OK : err;
}
