/* SPDX-License-Identifier: MIT
 * What the store knows of a semaphore, and what is done to it from outside a hold. */
#include "permits.h"

#include "party.h"
#include "question.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 1000
#define HEAD 8 /* what semaphore_show answers before its lists */
#define PER_HOLD 4

static lk_err absent(void)
{
	return lk__failf(LK_EABSENT, "there is no such semaphore");
}

/* Run semaphore_leave for a ticket, "" = none, until there is no more to do.  *mine tells whether
 * it was a holder's. */
static lk_err leave(struct lk__handle *handle, const char *ticket, bool *mine)
{
	struct lk_client *client = handle->client;
	struct lk__keys keys;
	char patience[24];
	const char *args[9] = {
		keys.main, keys.queue, keys.fence, keys.holds, ticket, "0", client->space.channels,
		"1",       patience};
	struct lk__answer answer = {0};
	struct lk__why why = {0};

	*mine = false;
	lk__space_keys(&client->space, handle->name->bytes, handle->name->len, &keys);
	snprintf(patience, sizeof(patience), "%d", LK__HEAD_PATIENCE_MS);
	do {
		struct lk__resp *resp;
		lk_err err =
			lk__question_script(client, &lk__script_semaphore_leave, 9, args, &resp);

		if (err)
			return *mine ? LK_OK : err;
		lk__codec_answer(resp, client->target.text, &answer, &why);
		lk__resp_free(resp);
		if (answer.kind != LK__LEFT)
			return lk__fail(&why);
		*mine = *mine || answer.mine;
		args[4] = "";
	} while (answer.more);
	return LK_OK;
}

lk_err lk__permits_set(struct lk__handle *handle, const char *how, int64_t capacity,
                       int64_t *result)
{
	struct lk_client *client = handle->client;
	struct lk__keys keys;
	char wanted[24], ttl[24], patience[24];
	const char *args[9] = {keys.main, keys.queue, keys.fence, keys.holds,
	                       how,       wanted,     ttl,        client->space.channels,
	                       patience};
	struct lk__answer answer;
	struct lk__resp *resp;
	struct lk__why why;
	int64_t has;
	bool mine;
	lk_err err;

	lk__space_keys(&client->space, handle->name->bytes, handle->name->len, &keys);
	snprintf(wanted, sizeof(wanted), "%lld", (long long)capacity);
	snprintf(ttl, sizeof(ttl), "%lld", (long long)handle->place->ttl_ms);
	snprintf(patience, sizeof(patience), "%d", LK__HEAD_PATIENCE_MS);
	if ((err = lk__question_script(client, &lk__script_semaphore_set, 9, args, &resp)))
		return err;
	has = resp->type == LK__RESP_ARRAY && resp->len > 1 ? lk__resp_number(resp->elements[1])
	                                                    : 0;
	if (lk__resp_says(resp, "absent")) {
		err = absent();
	} else if (lk__resp_says(resp, "mismatch")) {
		err = lk__failf(LK_EMISMATCH, "its capacity is %lld, not %lld", (long long)has,
		                (long long)capacity);
	} else if (lk__resp_says(resp, "fence")) {
		lk__codec_answer(resp, client->target.text, &answer, &why);
		err = lk__fail(&why);
	} else if (!lk__resp_says(resp, "set") || !lk__resp_is(resp, "ssi")) {
		return lk__question_odd(client, resp);
	} else {
		*result = has;
		if (resp->elements[2]->integer)
			leave(handle, "", &mine); /* the rest is served by whoever comes next */
	}
	lk__resp_free(resp);
	return err;
}

/* ---- Looking ------------------------------------------------------------------------------ */

/* A ticket of this client that waits, the first to have come; "" if none. */
static void my_ticket(const struct lk__handle *handle, char text[LK__TICKET_MAX])
{
	const struct lk__ticket *first = NULL;

	text[0] = '\0';
	for (const struct lk__place *place = handle->name->places; place; place = place->next) {
		const struct lk__ticket *ticket = place->ticket;
		if (ticket && ticket->state == LK__WAITING &&
		    (!first || ticket->arrival < first->arrival))
			first = ticket;
	}
	if (first) {
		struct lk__ticket_id id = lk__ticket_id(first);
		lk__ticket_text(&handle->client->space, &id, text);
	}
}

/* Run semaphore_show; on LK_OK *resp begins with HEAD elements, and *holds follow: the first ones,
 * or with an id that one alone. */
static lk_err show(struct lk__handle *handle, const char *only, size_t holders, size_t waiters,
                   struct lk__resp **resp, size_t *holds)
{
	struct lk_client *client = handle->client;
	struct lk__keys keys;
	char ticket[LK__TICKET_MAX], holder_count[24], waiter_count[24];
	const char *args[8] = {keys.main, keys.queue,   keys.fence,   keys.holds,
	                       ticket,    holder_count, waiter_count, only};
	lk_err err;

	lk__space_keys(&client->space, handle->name->bytes, handle->name->len, &keys);
	my_ticket(handle, ticket);
	snprintf(holder_count, sizeof(holder_count), "%zu", holders);
	snprintf(waiter_count, sizeof(waiter_count), "%zu", waiters);
	if ((err = lk__question_script(client, &lk__script_semaphore_show, only ? 8 : 7, args,
	                               resp)))
		return err;
	if (lk__resp_says(*resp, "absent")) {
		lk__resp_free(*resp);
		return absent();
	}
	if (!lk__resp_is(*resp, "ssiiiisi") || (*resp)->elements[7]->integer < 0 ||
	    (uint64_t)(*resp)->elements[7]->integer > ((*resp)->len - HEAD) / PER_HOLD)
		return lk__question_odd(client, *resp);
	*holds = (size_t)(*resp)->elements[7]->integer;
	return LK_OK;
}

lk_err lk__permits_query(struct lk__handle *handle, lk_semaphore_status *status)
{
	struct lk__resp *resp;
	size_t holds = 0;
	lk_err err = show(handle, NULL, 0, 0, &resp, &holds);

	if (err)
		return err;
	memset(status, 0, sizeof(*status));
	status->capacity = lk__resp_number(resp->elements[0]);
	status->available = status->capacity - lk__resp_number(resp->elements[1]);
	status->holders = resp->elements[2]->integer;
	status->queue_len = resp->elements[3]->integer;
	status->my_rank = resp->elements[4]->integer;
	status->ttl_ms = resp->elements[5]->integer;
	lk__resp_free(resp);
	return LK_OK;
}

static bool read_hold(struct lk__resp *const *parts, int64_t now_us, lk_permits *permits)
{
	memset(permits, 0, sizeof(*permits));
	if (!lk__party_id(parts[0], &permits->party))
		return false;
	permits->permits = lk__resp_number(parts[1]);
	permits->fence = (uint64_t)lk__resp_number(parts[2]);
	permits->lease_left_ms = lk__resp_number(parts[3]);
	/* A fence is the microsecond of its grant, or a little more. */
	if (now_us > (int64_t)permits->fence)
		permits->held_ms = (now_us - (int64_t)permits->fence) / 1000;
	return true;
}

static bool read_waiter(const struct lk__resp *part, lk_permits *permits)
{
	const char *last;

	memset(permits, 0, sizeof(*permits));
	if (!lk__party_id(part, &permits->party))
		return false;
	last = strrchr(part->str, ':'); /* its last word is what it wants */
	permits->permits = last ? strtoll(last + 1, NULL, 10) : 0;
	return true;
}

lk_err lk__permits_list(struct lk__handle *handle, bool holders, size_t max, lk_permits *list,
                        size_t *count)
{
	lk_party *parties[LIST_MAX];
	struct lk__resp *resp;
	size_t found = 0, holds = 0;
	int64_t now_us;
	lk_err err;

	if (max > LIST_MAX)
		max = LIST_MAX;
	if ((err = show(handle, NULL, holders ? max : 0, holders ? 0 : max, &resp, &holds)))
		return err;
	now_us = lk__resp_number(resp->elements[6]);
	for (size_t i = 0; holders && i < holds && found < max; i++)
		found += read_hold(resp->elements + HEAD + i * PER_HOLD, now_us, &list[found]);
	for (size_t i = HEAD; !holders && i < resp->len && found < max; i++)
		found += read_waiter(resp->elements[i], &list[found]);
	lk__resp_free(resp);
	for (size_t i = 0; i < found; i++)
		parties[i] = &list[i].party;
	err = lk__party_describe(handle, parties, found);
	if (!err)
		*count = found;
	return err;
}

/* ---- Break -------------------------------------------------------------------------------- */

lk_err lk__permits_break(struct lk__handle *handle, const char *if_holder)
{
	struct lk__resp *resp;
	bool broke = false;
	size_t holds = 0;
	lk_err err = show(handle, if_holder, 2, 0, &resp, &holds);

	if (err)
		return err == LK_EABSENT ? lk__failf(LK_ENOTHELD, "nobody holds any") : err;
	if (!resp->elements[2]->integer)
		err = lk__failf(LK_ENOTHELD, "nobody holds any");
	else if (!if_holder && holds > 1)
		err = lk__failf(LK_EMISMATCH, "%lld hold some: say which",
		                (long long)resp->elements[2]->integer);
	else if (!holds || resp->elements[HEAD]->type != LK__RESP_STRING)
		err = lk__failf(LK_EMISMATCH, "no such holder");
	else
		err = leave(handle, resp->elements[HEAD]->str, &broke);
	lk__resp_free(resp);
	if (!err && !broke)
		return lk__failf(LK_EMISMATCH, "the holder has released meanwhile");
	return err;
}
