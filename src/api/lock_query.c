/* SPDX-License-Identifier: MIT
 * Querying locks (holder, waiters) and breaking them. */
#include "show.h"

#include <stdlib.h>
#include <string.h>

#define BREAK_TRIES 8

/* ---- Query -------------------------------------------------------------------------------- */

static lk_err query(struct lk_lock *lock, lk_lock_status *status)
{
	const struct lk__entry *holder;
	struct lk__listing *listing;
	lk_party *party = &status->holder;
	lk_err err = lk__show(&lock->handle, 1, 0, NULL, &listing);

	if (err)
		return err;
	memset(status, 0, sizeof(*status));
	status->held = listing->held > 0;
	status->queue_len = listing->waiting;
	status->my_rank = listing->rank;
	status->grace_ms = lk__grace_ms(&lock->handle, listing);
	if (status->held) {
		holder = &listing->entries[0];
		lk__party_init(party, holder);
		status->fence = holder->fence;
		status->held_ms = lk__held_ms(listing, holder);
		status->lease_left_ms = holder->left_ms > 0 ? holder->left_ms : 0;
	}
	free(listing);
	return status->held ? lk__party_describe(&lock->handle, &party, 1) : LK_OK;
}

lk_err lk_lock_query(lk_lock *lock, lk_lock_status *result)
{
	lk_lock_status status;
	lk_err err;

	if ((err = lk__refuse_null(lock, "lock")) || (err = lk__refuse_null(result, "status")) ||
	    (err = lk__handle_enter(&lock->handle)))
		return err;
	err = query(lock, &status);
	lk__call_leave(lock->handle.client, &lock->handle);
	if (!err)
		*result = status;
	return err;
}

lk_err lk_lock_waiters(lk_lock *lock, size_t max, lk_party *waiters, size_t *count)
{
	lk_party *parties[LK__SHOWN_MAX];
	struct lk__listing *listing;
	size_t found = 0;
	lk_err err = lk__refuse_null(lock, "lock");

	if (!err && max)
		err = lk__refuse_null(waiters, "waiters");
	if (max > LK__SHOWN_MAX)
		max = LK__SHOWN_MAX;
	if (err || (err = lk__refuse_null(count, "count")) ||
	    (err = lk__handle_enter(&lock->handle)))
		return err;
	err = lk__show(&lock->handle, 1, max, NULL, &listing);
	if (!err) {
		for (size_t i = listing->held; i < listing->count && found < max; i++) {
			lk__party_init(&waiters[found], &listing->entries[i]);
			parties[found] = &waiters[found];
			found++;
		}
		free(listing);
		err = lk__party_describe(&lock->handle, parties, found);
	}
	lk__call_leave(lock->handle.client, &lock->handle);
	if (!err)
		*count = found;
	return err;
}

/* ---- Break -------------------------------------------------------------------------------- */

static lk_err break_hold(struct lk_lock *lock, const char *if_holder)
{
	for (int i = 0; i < BREAK_TRIES; i++) {
		struct lk__listing *listing;
		const struct lk__entry *holder;
		bool broke = false;
		lk_err err = lk__show(&lock->handle, 1, 0, NULL, &listing);

		if (err)
			return err;
		holder = &listing->entries[0];
		if (!listing->held)
			err = lk__failf(LK_EABSENT, "not held");
		else if (if_holder && strcmp(if_holder, holder->party))
			err = lk__failf(LK_EMISMATCH, "held by %s", holder->party);
		else
			err = lk__break(&lock->handle, holder->id, &broke);
		free(listing);
		if (err || broke)
			return err;
	}
	return lk__failf(LK_EMISMATCH, "holder changed %d times while it was being broken",
	                 BREAK_TRIES);
}

lk_err lk_lock_break(lk_lock *lock, const char *if_holder)
{
	lk_err err = lk__refuse_null(lock, "lock");

	if (err || (err = lk__handle_enter(&lock->handle)))
		return err;
	err = break_hold(lock, if_holder);
	lk__call_leave(lock->handle.client, &lock->handle);
	return err;
}
