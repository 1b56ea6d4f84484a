/* SPDX-License-Identifier: MIT
 * The object of the command line: a lock, permits of a semaphore, a turn at a rate, or a latch. */
#include "hold.h"

#include "say.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDERS_MAX 1000 /* limit of the search for one of ours */

struct hold_kind {
	lk_err (*open)(struct hold *hold, lk_client *client);
	bool (*nested)(struct hold *hold, const char *chain, char *message, size_t size);
	lk_err (*acquire)(struct hold *hold, int64_t wait_ms);
	lk_err (*cancel)(struct hold *hold);
	bool (*describe)(struct hold *hold, char *text, size_t size);
	bool (*explain)(struct hold *hold, char *text, size_t size); /* NULL = it has no holder */
	/* NULL if nothing is held */
	lk_err (*release)(struct hold *hold);
	lk_err (*extend)(struct hold *hold, int64_t lease_ms);
	lk_state (*state)(struct hold *hold);
	lk_err (*snapshot)(struct hold *hold, lk_hold *snapshot);
};

/* Shown to others beside host and pid: never the command's arguments, which may contain secrets. */
static const char *label_of(const struct options *options)
{
	const char *program = options->command ? options->command[0] : NULL;
	const char *slash = program ? strrchr(program, '/') : NULL;

	if (options->label || !program)
		return options->label;
	if (slash && slash[1])
		program = slash + 1;
	return strlen(program) <= LK_LABEL_MAX ? program : NULL;
}

/* Is the holder's id one of those of the commands that run this one?  Ids are unique: an expired
 * one in the environment of a daemon matches nothing. */
static bool chain_has(const char *chain, const char *id)
{
	size_t len = strlen(id);
	const char *at = chain;

	while (len && (at = strstr(at, id))) {
		if ((at == chain || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
		at += len;
	}
	return false;
}

/* ---- A lock --------------------------------------------------------------------------------- */

static void lock_on_lost(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason)
{
	struct hold *hold = arg;

	(void)lock;
	(void)fence;
	hold->on_lost(hold->on_lost_arg, reason);
}

static lk_err lock_open(struct hold *hold, lk_client *client)
{
	const struct options *options = hold->options;
	lk_lock_options lock = {0};

	lock.lease_ms = options->lease_ms;
	lock.fixed = options->fixed;
	lock.owner = LK_OWNER_HANDLE;
	lock.label = label_of(options);
	lock.on_lost = lock_on_lost;
	lock.on_lost_arg = hold;
	return lk_lock_open(client, options->name, 0, &lock, &hold->lock);
}

static bool lock_nested(struct hold *hold, const char *chain, char *message, size_t size)
{
	lk_lock_status status;

	if (lk_lock_query(hold->lock, &status) != LK_OK || !status.held ||
	    !chain_has(chain, status.holder.id))
		return false;
	snprintf(message, size, "held by the command that runs this one");
	return true;
}

static lk_err lock_acquire(struct hold *hold, int64_t wait_ms)
{
	return lk_lock_acquire(hold->lock, wait_ms, &hold->fence);
}

static lk_err lock_cancel(struct hold *hold)
{
	return lk_lock_cancel(hold->lock);
}

/* Append that nothing is granted, and with why, the reason. */
static void add_grace(const struct hold *hold, char *text, size_t size, int64_t grace_ms, bool why)
{
	size_t len = strlen(text);
	char grace[160], time[32];

	if (!grace_ms)
		return;
	text_grace(grace, sizeof(grace), grace_ms, hold->in_quorum);
	if (!why)
		snprintf(grace, sizeof(grace), "nothing is granted for %s",
		         text_seconds(time, grace_ms));
	snprintf(text + len, size - len, "%s%s", len ? ", " : "", grace);
}

static bool lock_look(struct hold *hold, char *text, size_t size, bool why)
{
	char party[1024], since[32], ahead[48] = "", holder[1100] = "";
	lk_lock_status status;

	if (lk_lock_query(hold->lock, &status) != LK_OK)
		return false;
	if (status.my_rank > 0)
		snprintf(ahead, sizeof(ahead), "%" PRId64 " ahead", status.my_rank);
	if (status.held)
		snprintf(holder, sizeof(holder), "held by %s%s%s",
		         text_party(party, sizeof(party), &status.holder),
		         status.held_ms < 0 ? "" : " for ",
		         status.held_ms < 0 ? "" : text_duration(since, status.held_ms));
	snprintf(text, size, "%s%s%s", ahead, *ahead && *holder ? ", " : "", holder);
	/* A holder is the better reason. */
	hold->grace_ms = status.held ? 0 : status.grace_ms;
	add_grace(hold, text, size, hold->grace_ms, why);
	return true;
}

static bool lock_describe(struct hold *hold, char *text, size_t size)
{
	return lock_look(hold, text, size, false);
}

static bool lock_explain(struct hold *hold, char *text, size_t size)
{
	return lock_look(hold, text, size, true);
}

static lk_err lock_release(struct hold *hold)
{
	return lk_lock_release(hold->lock);
}

static lk_err lock_extend(struct hold *hold, int64_t lease_ms)
{
	return lk_lock_extend(hold->lock, lease_ms);
}

static lk_state lock_state(struct hold *hold)
{
	return lk_lock_state(hold->lock);
}

static lk_err lock_snapshot(struct hold *hold, lk_hold *snapshot)
{
	return lk_lock_snapshot(hold->lock, snapshot);
}

static const struct hold_kind kind_lock = {
	.open = lock_open,
	.nested = lock_nested,
	.acquire = lock_acquire,
	.cancel = lock_cancel,
	.describe = lock_describe,
	.explain = lock_explain,
	.release = lock_release,
	.extend = lock_extend,
	.state = lock_state,
	.snapshot = lock_snapshot,
};

/* ---- Permits -------------------------------------------------------------------------------- */

static void permits_on_lost(void *arg, lk_semaphore *semaphore, uint64_t fence,
                            lk_lost_reason reason)
{
	struct hold *hold = arg;

	(void)semaphore;
	(void)fence;
	hold->on_lost(hold->on_lost_arg, reason);
}

static lk_err permits_open(struct hold *hold, lk_client *client)
{
	const struct options *options = hold->options;
	lk_semaphore_options semaphore = {0};
	lk_err err;

	semaphore.capacity = options->permits;
	semaphore.lease_ms = options->lease_ms + options->slack_ms;
	semaphore.ttl_ms = options->ttl_ms;
	semaphore.fixed = options->fixed || options->verb == VERB_RATE;
	semaphore.label = label_of(options);
	semaphore.on_lost = options->verb == VERB_RATE ? NULL : permits_on_lost;
	semaphore.on_lost_arg = hold;
	err = lk_semaphore_open(client, options->name, 0, &semaphore, &hold->semaphore);
	if (err != LK_EMISMATCH || !options->resize)
		return err;
	semaphore.capacity = 0;
	err = lk_semaphore_open(client, options->name, 0, &semaphore, &hold->semaphore);
	return err != LK_OK ? err : lk_semaphore_resize(hold->semaphore, options->permits);
}

static bool permits_nested(struct hold *hold, const char *chain, char *message, size_t size)
{
	const struct options *options = hold->options;
	lk_ticket *holders = calloc(HOLDERS_MAX, sizeof(*holders));
	size_t count = 0;
	int64_t ours = 0;

	if (holders && lk_semaphore_holders(hold->semaphore, HOLDERS_MAX, holders, &count) != LK_OK)
		count = 0;
	for (size_t i = 0; i < count; i++)
		if (chain_has(chain, holders[i].party.id))
			ours += holders[i].permits;
	free(holders);
	if (!ours || ours + options->units <= options->permits)
		return false;
	snprintf(message, size,
	         "the commands that run this one hold %" PRId64 " of its %" PRId64 " permits", ours,
	         options->permits);
	return true;
}

static lk_err permits_acquire(struct hold *hold, int64_t wait_ms)
{
	return lk_semaphore_acquire(hold->semaphore, hold->options->units, wait_ms, &hold->fence);
}

static lk_err permits_cancel(struct hold *hold)
{
	return lk_semaphore_cancel(hold->semaphore);
}

static bool permits_look(struct hold *hold, char *text, size_t size, bool why)
{
	lk_semaphore_status status;
	char ahead[48] = "";

	if (lk_semaphore_query(hold->semaphore, &status) != LK_OK)
		return false;
	if (status.my_rank > 0)
		snprintf(ahead, sizeof(ahead), "%" PRId64 " ahead, ", status.my_rank);
	snprintf(text, size, "%s%" PRId64 " of %" PRId64 " free", ahead,
	         status.available > 0 ? status.available : 0, status.capacity);
	hold->grace_ms = status.grace_ms;
	add_grace(hold, text, size, status.grace_ms, why);
	return true;
}

static bool permits_describe(struct hold *hold, char *text, size_t size)
{
	return permits_look(hold, text, size, false);
}

/* Name one holder and count the others. */
static bool permits_explain(struct hold *hold, char *text, size_t size)
{
	char party[1024], since[32], others[48] = "", held[1200] = "";
	lk_semaphore_status status;
	lk_ticket holder;
	size_t count = 0;

	if (lk_semaphore_query(hold->semaphore, &status) != LK_OK)
		return false;
	if (status.holders > 1)
		snprintf(others, sizeof(others), " and %" PRId64 " other%s", status.holders - 1,
		         status.holders == 2 ? "" : "s");
	if (lk_semaphore_holders(hold->semaphore, 1, &holder, &count) == LK_OK && count)
		snprintf(held, sizeof(held), ", held by %s%s%s%s",
		         text_party(party, sizeof(party), &holder.party),
		         holder.held_ms < 0 ? "" : " for ",
		         holder.held_ms < 0 ? "" : text_duration(since, holder.held_ms), others);
	snprintf(text, size, "%" PRId64 " of %" PRId64 " free%s",
	         status.available > 0 ? status.available : 0, status.capacity, held);
	add_grace(hold, text, size, status.grace_ms, true);
	return true;
}

static lk_err permits_release(struct hold *hold)
{
	return lk_semaphore_release(hold->semaphore, hold->fence);
}

static lk_err permits_extend(struct hold *hold, int64_t lease_ms)
{
	return lk_semaphore_extend(hold->semaphore, hold->fence, lease_ms);
}

static lk_state permits_state(struct hold *hold)
{
	return lk_semaphore_state(hold->semaphore, hold->fence);
}

static lk_err permits_snapshot(struct hold *hold, lk_hold *snapshot)
{
	return lk_semaphore_snapshot(hold->semaphore, hold->fence, snapshot);
}

static const struct hold_kind kind_permits = {
	.open = permits_open,
	.nested = permits_nested,
	.acquire = permits_acquire,
	.cancel = permits_cancel,
	.describe = permits_describe,
	.explain = permits_explain,
	.release = permits_release,
	.extend = permits_extend,
	.state = permits_state,
	.snapshot = permits_snapshot,
};

/* ---- A turn: permits that are never released ------------------------------------------------ */

static lk_err turn_acquire(struct hold *hold, int64_t wait_ms)
{
	return lk_semaphore_acquire(hold->semaphore, hold->options->units, wait_ms, NULL);
}

/* A turn has no holder. */
static bool turn_explain(struct hold *hold, char *text, size_t size)
{
	return permits_look(hold, text, size, true);
}

static const struct hold_kind kind_turn = {
	.open = permits_open,
	.nested = permits_nested, /* a sem of the same name may run it */
	.acquire = turn_acquire,
	.cancel = permits_cancel,
	.describe = permits_describe,
	.explain = turn_explain,
};

/* ---- A latch -------------------------------------------------------------------------------- */

static lk_err latch_open(struct hold *hold, lk_client *client)
{
	lk_latch_options latch = {0};

	latch.absent_is_open = hold->options->absent_is_open;
	return lk_latch_open(client, hold->options->name, 0, &latch, &hold->latch);
}

static lk_err latch_acquire(struct hold *hold, int64_t wait_ms)
{
	lk_err err = lk_latch_await(hold->latch, wait_ms);
	lk_latch_status status;

	if (err != LK_ETIMEDOUT)
		return err;
	/* The wait may have relied on an old state.  If the store does not respond now, that is
	 * another outcome. */
	switch (lk_latch_query(hold->latch, &status)) {
	case LK_ECONN:
	case LK_EUNKNOWN:
		return LK_ECONN;
	default:
		return LK_ETIMEDOUT;
	}
}

static lk_err latch_cancel(struct hold *hold)
{
	return lk_latch_cancel(hold->latch);
}

static bool latch_describe(struct hold *hold, char *text, size_t size)
{
	lk_latch_status status;

	if (lk_latch_query(hold->latch, &status) != LK_OK)
		return false;
	if (status.state == LK_LATCH_ABSENT)
		snprintf(text, size, "not set yet");
	else
		snprintf(text, size, "%" PRId64 " of %" PRId64 " remain", status.count,
		         status.initial);
	return true;
}

static const struct hold_kind kind_latch = {
	.open = latch_open,
	.acquire = latch_acquire,
	.cancel = latch_cancel,
	.describe = latch_describe,
};

/* ---- All of them ---------------------------------------------------------------------------- */

lk_err hold_open(struct hold *hold, lk_client *client)
{
	switch (hold->options->verb) {
	case VERB_SEM:
		hold->kind = &kind_permits;
		break;
	case VERB_RATE:
		hold->kind = &kind_turn;
		break;
	case VERB_LATCH_WAIT:
		hold->kind = &kind_latch;
		break;
	default:
		hold->kind = &kind_lock;
		break;
	}
	return hold->kind->open(hold, client);
}

bool hold_is_nested(struct hold *hold, char *message, size_t size)
{
	const char *chain = getenv("LATCHKEY_CHAIN");

	return hold->kind->nested && chain && *chain &&
	       hold->kind->nested(hold, chain, message, size);
}

lk_err hold_acquire(struct hold *hold, int64_t wait_ms)
{
	return hold->kind->acquire(hold, wait_ms);
}

void hold_cancel(struct hold *hold)
{
	hold->kind->cancel(hold);
}

bool hold_describe(struct hold *hold, char *text, size_t size)
{
	return hold->kind->describe(hold, text, size);
}

bool hold_explain(struct hold *hold, char *text, size_t size)
{
	*text = 0;
	return hold->kind->explain && hold->kind->explain(hold, text, size) && *text;
}

bool hold_lasts(const struct hold *hold)
{
	return hold->kind->release != NULL;
}

lk_err hold_release(struct hold *hold)
{
	return hold->kind->release(hold);
}

lk_err hold_extend(struct hold *hold, int64_t lease_ms)
{
	return hold->kind->extend(hold, lease_ms);
}

lk_state hold_state(struct hold *hold)
{
	return hold->kind->state(hold);
}

lk_hold hold_snapshot(struct hold *hold)
{
	lk_hold snapshot;

	return hold->kind->snapshot(hold, &snapshot) == LK_OK ? snapshot : (lk_hold){0};
}

uint64_t hold_fence(struct hold *hold)
{
	return hold->fence;
}

void hold_guard_key(struct hold *hold, char key[LK_GUARD_KEY_SIZE])
{
	if (!hold->lock || lk_lock_guard_key(hold->lock, key, LK_GUARD_KEY_SIZE) != LK_OK)
		key[0] = '\0';
}
