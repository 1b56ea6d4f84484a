/* SPDX-License-Identifier: MIT
 * Looking at locks and breaking them: who holds, who waits. */
#include "party.h"
#include "question.h"
#include "scripts.h"

#include <stdio.h>
#include <string.h>

#define WAITERS_MAX 1000
#define BREAK_TRIES 8

/* ---- Query -------------------------------------------------------------------------------- */

/* The ticket of this client that waits for the lock, "" if none. */
static void my_ticket(const struct lk_lock *lock, char text[LK__TICKET_MAX])
{
	const struct lk__place *place = lock->handle.name->places;

	text[0] = '\0';
	for (; place; place = place->next)
		if (place->ticket && place->ticket->state == LK__WAITING) {
			struct lk__ticket_id id = lk__ticket_id(place->ticket);
			lk__ticket_text(&lock->handle.client->space, &id, text);
		}
}

/* Run lock_show; on LK_OK *resp is an array of 6 or more of the right types. */
static lk_err show(struct lk_lock *lock, size_t waiters, struct lk__resp **resp)
{
	const struct lk__name *name = lock->handle.name;
	char ticket[LK__TICKET_MAX], count[24];
	struct lk__keys keys;
	const char *args[4] = {keys.main, keys.queue, ticket, count};
	lk_err err;

	lk__space_keys(&lock->handle.client->space, name->bytes, name->len, &keys);
	my_ticket(lock, ticket);
	snprintf(count, sizeof(count), "%zu", waiters);
	if ((err = lk__question_script(lock->handle.client, &lk__script_lock_show, 4, args, resp)))
		return err;
	if (lk__resp_is(*resp, "ssisii"))
		return LK_OK;
	return lk__question_odd(lock->handle.client, *resp);
}

static lk_err query(struct lk_lock *lock, lk_lock_status *status)
{
	struct lk__resp *resp;
	lk_party *holder = &status->holder;
	int64_t fence, now_us;
	lk_err err = show(lock, 0, &resp);

	if (err)
		return err;
	memset(status, 0, sizeof(*status));
	status->held = lk__party_id(resp->elements[0], &status->holder);
	status->queue_len = resp->elements[4]->integer;
	status->my_rank = resp->elements[5]->integer;
	if (status->held) {
		fence = lk__resp_number(resp->elements[1]);
		now_us = lk__resp_number(resp->elements[3]);
		status->fence = (uint64_t)fence;
		/* A fence is the microsecond of its grant, or a little more. */
		status->held_ms = now_us > fence ? (now_us - fence) / 1000 : 0;
		status->lease_left_ms =
			resp->elements[2]->integer > 0 ? resp->elements[2]->integer : 0;
	}
	lk__resp_free(resp);
	return status->held ? lk__party_describe(&lock->handle, &holder, 1) : LK_OK;
}

lk_err lk_lock_query(lk_lock *lock, lk_lock_status *result)
{
	lk_lock_status status;
	lk_err err;

	if ((err = lk__refuse_null(lock, "lock")) || (err = lk__refuse_null(result, "status")) ||
	    (err = lk__handle_enter(&lock->handle)))
		return err;
	err = query(lock, &status);
	lk__handle_leave(&lock->handle);
	if (!err)
		*result = status;
	return err;
}

lk_err lk_lock_waiters(lk_lock *lock, size_t max, lk_party *waiters, size_t *count)
{
	lk_party *parties[WAITERS_MAX];
	struct lk__resp *resp;
	size_t found = 0;
	lk_err err = lk__refuse_null(lock, "lock");

	if (!err && max)
		err = lk__refuse_null(waiters, "waiters");
	if (max > WAITERS_MAX)
		max = WAITERS_MAX;
	if (err || (err = lk__refuse_null(count, "count")) ||
	    (err = lk__handle_enter(&lock->handle)))
		return err;
	err = show(lock, max, &resp);
	if (!err) {
		for (size_t i = 6; i < resp->len && found < max; i++) {
			parties[found] = &waiters[found];
			found += lk__party_id(resp->elements[i], parties[found]);
		}
		lk__resp_free(resp);
		err = lk__party_describe(&lock->handle, parties, found);
	}
	lk__handle_leave(&lock->handle);
	if (!err)
		*count = found;
	return err;
}

/* ---- Break -------------------------------------------------------------------------------- */

/* End that ticket's hold.  *broke tells whether it was the holder's still. */
static lk_err end_hold(struct lk_lock *lock, const char *ticket, bool *broke)
{
	const struct lk__space *space = &lock->handle.client->space;
	const struct lk__name *name = lock->handle.name;
	struct lk__keys keys;
	const char *args[7] = {keys.main, keys.queue,      keys.fence, ticket,
	                       "0",       space->channels, "1"};
	struct lk__answer answer = {0};
	struct lk__why why = {0};
	*broke = false;

	lk__space_keys(space, name->bytes, name->len, &keys);
	do {
		struct lk__resp *resp;
		lk_err err = lk__question_script(lock->handle.client, &lk__script_lock_leave, 7,
		                                 args, &resp);
		if (err)
			return *broke ? LK_OK : err;
		lk__codec_answer(resp, lock->handle.client->target.text, &answer, &why);
		lk__resp_free(resp);
		if (answer.kind != LK__LEFT)
			return lk__fail(&why);
		*broke = *broke || answer.mine;
		args[3] = "";
	} while (answer.more);
	return LK_OK;
}

static lk_err break_hold(struct lk_lock *lock, const char *if_holder)
{
	for (int i = 0; i < BREAK_TRIES; i++) {
		struct lk__resp *resp;
		lk_party holder;
		bool broke = false;
		lk_err err = show(lock, 0, &resp);

		if (err)
			return err;
		if (!lk__party_id(resp->elements[0], &holder))
			err = lk__failf(LK_ENOTHELD, "nobody holds it");
		else if (if_holder && strcmp(if_holder, holder.id))
			err = lk__failf(LK_EMISMATCH, "held by %s", holder.id);
		else
			err = end_hold(lock, resp->elements[0]->str, &broke);
		lk__resp_free(resp);
		if (err || broke)
			return err;
	}
	return lk__failf(LK_EMISMATCH, "its holder changed %d times meanwhile", BREAK_TRIES);
}

lk_err lk_lock_break(lk_lock *lock, const char *if_holder)
{
	lk_err err = lk__refuse_null(lock, "lock");

	if (err || (err = lk__handle_enter(&lock->handle)))
		return err;
	err = break_hold(lock, if_holder);
	lk__handle_leave(&lock->handle);
	return err;
}
