/* SPDX-License-Identifier: MIT
 * A call that waits: what it brings along, how long it sleeps, how it ends. */
#include "client.h"

#include <stdlib.h>

void lk__wait_begin(struct lk__link *link, int64_t now_ns)
{
	if (!link->session.users)
		lk__session_wakes(&link->session, now_ns);
}

void lk__sleeper_init(struct lk__sleeper *sleeper, struct lk__handle *handle)
{
	*sleeper = (struct lk__sleeper){
		.waiter =
			{
				.session = &handle->link->session,
				.place = handle->place,
				.handle = handle,
				.max_hold_ms = handle->max_hold_ms,
				.tell_loss = handle->tell_loss,
			},
	};
	lk__park_init(&sleeper->park);
}

bool lk__sleeper_provide(struct lk__sleeper *sleeper)
{
	struct lk__op *waiter = &sleeper->waiter;
	bool whole;

	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	whole = waiter->spare_ticket && waiter->spare_hold;
	if (waiter->permits) {
		waiter->spare_place = malloc(sizeof(*waiter->spare_place));
		whole = whole && waiter->spare_place;
	}
	if (!whole)
		lk__why_set(&waiter->why, LK_ENOMEM, "out of memory");
	return whole;
}

int64_t lk__wait_until_ns(const struct lk_client *client, int64_t now_ns, int64_t wait_ms)
{
	if (wait_ms == 0)
		return now_ns + client->target.command_timeout_ns;
	if (wait_ms == LK_FOREVER || wait_ms > (INT64_MAX - now_ns) / LK__MS / 2)
		return LK__NEVER;
	return now_ns + wait_ms * LK__MS;
}

void lk__sleeper_await(struct lk_client *client, struct lk__sleeper *sleeper, int64_t until_ns)
{
	struct lk__op *waiter = &sleeper->waiter;

	if (waiter->where == LK__IN_PLACE || waiter->where == LK__IN_LATCH)
		lk__wire_wait(client, sleeper, until_ns);
	if (sleeper->gone)
		return;
	if (!waiter->done && !waiter->only_try) {
		lk__core_give_up(&client->core, lk__now_ns(), waiter, LK_ETIMEDOUT);
		until_ns = lk__now_ns() + client->target.command_timeout_ns;
	}
	if (!waiter->done)
		lk__wire_wait(client, sleeper, until_ns);
	if (sleeper->gone)
		return;
	if (!waiter->done)
		lk__core_abandon(&client->core, lk__now_ns(), waiter);
	if (client->core.done) /* else whoever leaves the call sees to the rest */
		lk__wire_settle(client);
}

void lk__sleeper_leave(struct lk__handle *handle, const struct lk__sleeper *sleeper)
{
	if (sleeper->gone)
		lk__client_left();
	else
		lk__handle_leave(handle);
}

lk_err lk__sleeper_finish(struct lk__sleeper *sleeper)
{
	lk__park_fini(&sleeper->park);
	free(sleeper->waiter.spare_ticket);
	free(sleeper->waiter.spare_hold);
	free(sleeper->waiter.spare_place);
	free(sleeper->waiter.spare_step);
	return lk__fail(&sleeper->waiter.why);
}
