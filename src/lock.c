/* SPDX-License-Identifier: MIT
 * The lock's public calls: a thin shell that starts an event in the state machine, sleeps and tells
 * the result. */
#include "client.h"

#include "fork.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

#define PING_MIN_NS (100 * LK__MS)

static uint64_t owner_of(const struct lk_lock *lock)
{
	/* Even numbers are threads, odd ones handles. */
	return lock->handle_owns ? lock->serial * 2 + 1 : lk__thread_serial() * 2;
}

/* ---- Open and close ----------------------------------------------------------------------- */

static lk_err check_options(const char *name, size_t len, const lk_lock_options *options)
{
	if (!name || len < 1 || len > LK_NAME_MAX)
		return lk__failf(LK_EINVALID, "name: 1 to %d bytes, not %zu", LK_NAME_MAX, len);
	if (options->lease_ms &&
	    (options->lease_ms < LK_LEASE_MIN_MS || options->lease_ms > LK_LEASE_MAX_MS))
		return lk__failf(LK_EINVALID, "lease_ms: %d to %d, not %lld", LK_LEASE_MIN_MS,
		                 LK_LEASE_MAX_MS, (long long)options->lease_ms);
	if (options->max_hold_ms < 0 || options->max_hold_ms > INT64_C(1000) * LK_LEASE_MAX_MS)
		return lk__failf(LK_EINVALID, "max_hold_ms: 0 to %lld, not %lld",
		                 1000LL * LK_LEASE_MAX_MS, (long long)options->max_hold_ms);
	if (options->owner != LK_OWNER_THREAD && options->owner != LK_OWNER_HANDLE)
		return lk__failf(LK_EINVALID, "owner: %d is none", (int)options->owner);
	if (options->label && strlen(options->label) > LK_LABEL_MAX)
		return lk__failf(LK_EINVALID, "label: longer than %d bytes", LK_LABEL_MAX);
	for (size_t i = 0; i < sizeof(options->reserved) / sizeof(*options->reserved); i++)
		if (options->reserved[i])
			return lk__failf(LK_EINVALID, "reserved[%zu] is not 0: start from {0}", i);
	return LK_OK;
}

/* _locked */
static void adopt(struct lk_client *client, struct lk_lock *lock, struct lk__name *name,
                  struct lk__place *place)
{
	lock->place = lk__place_open(&client->core, name, place);
	lock->serial = ++client->handle_serial;
	lock->next = client->locks;
	if (lock->next)
		lock->next->prev = lock;
	client->locks = lock;
	if (lock->place->lease_ms * LK__MS / 3 < client->ping_ns)
		client->ping_ns = lock->place->lease_ms * LK__MS / 3;
	if (client->ping_ns < PING_MIN_NS)
		client->ping_ns = PING_MIN_NS;
	if (lock->label)
		client->introduce_ns = 0;
}

lk_err lk_lock_open(lk_client *client, const char *text, const lk_lock_options *options,
                    lk_lock **result)
{
	static const lk_lock_options defaults;
	struct lk__place *place = NULL;
	struct lk__name *name = NULL;
	struct lk_lock *lock;
	size_t len;
	lk_err err;

	if (!options)
		options = &defaults;
	len = options->name_len || !text ? options->name_len : strlen(text);
	if ((err = check_options(text, len, options)))
		return err;
	lock = calloc(1, sizeof(*lock));
	name = lk__name_new(text, len);
	place = lk__place_new(options->lease_ms ? options->lease_ms : LK_LEASE_DEFAULT_MS,
	                      options->fixed);
	if (!lock || !name || !place ||
	    (options->label && !(lock->label = strdup(options->label)))) {
		err = lk__failf(LK_ENOMEM, "out of memory");
		goto undo;
	}
	lock->client = client;
	lock->max_hold_ms = options->max_hold_ms;
	lock->on_lost = options->on_lost;
	lock->on_lost_arg = options->on_lost_arg;
	lock->handle_owns = options->owner == LK_OWNER_HANDLE;
	if ((err = lk__client_enter(client)))
		goto undo;
	if (lock->on_lost && !lk__notify_start(client)) {
		lk__client_leave(client);
		err = lk__failf(LK_ESYSTEM, "cannot start a thread for callbacks");
		goto undo;
	}
	adopt(client, lock, name, place);
	lk__client_leave(client);
	*result = lock;
	return LK_OK;
undo:
	free(place);
	free(name);
	if (lock)
		free(lock->label);
	free(lock);
	return err;
}

void lk__lock_free(struct lk_lock *lock)
{
	struct lk_client *client = lock->client;

	if (lock->prev)
		lock->prev->next = lock->next;
	else
		client->locks = lock->next;
	if (lock->next)
		lock->next->prev = lock->prev;
	lk__place_close(&client->core, lock->place);
	free(lock->label);
	free(lock);
}

lk_err lk_lock_close(lk_lock *lock)
{
	struct lk_client *client;
	lk_err err;

	if (!lock)
		return LK_OK;
	client = lock->client;
	if ((err = lk__client_enter(client)))
		return err;
	if (lk__notify_is_me(client)) {
		lk__client_leave(client);
		return lk__failf(LK_EDEADLOCK, "a callback cannot close a lock of its client");
	}
	lock->closing = true;
	while (lock->calls_inside || client->telling == lock) {
		lk__core_cancel(&client->core, lk__now_ns(), lock->place, lock, LK_ECANCELED);
		lk__wire_settle(client);
		lk__wire_poke(client, lock);
		lk__cond_wait(&client->quiet_cond, &client->mutex, -1);
	}
	lk__core_drop(&client->core, lk__now_ns(), lock->place->name, lock);
	lk__lock_free(lock);
	lk__wire_flush(client);
	lk__wake_notify(&client->loop_wake);
	lk__client_leave(client);
	return LK_OK;
}

/* ---- Calls that wait ---------------------------------------------------------------------- */

/* What an acquire may need is allocated before the mutex is taken, what is left freed after. */
static bool init_sleeper(struct lk__sleeper *sleeper, struct lk_lock *lock)
{
	*sleeper = (struct lk__sleeper){
		.waiter =
			{
				.place = lock->place,
				.handle = lock,
				.owner = owner_of(lock),
				.max_hold_ms = lock->max_hold_ms,
				.tell_loss = lock->on_lost != NULL,
			},
	};
	return lk__cond_init(&sleeper->cond);
}

static lk_err finish(struct lk__sleeper *sleeper)
{
	pthread_cond_destroy(&sleeper->cond);
	free(sleeper->waiter.spare_ticket);
	free(sleeper->waiter.spare_hold);
	return lk__fail(&sleeper->waiter.why);
}

/* The wait's own time, then one command timeout for its end to be confirmed. */
static void await(struct lk_client *client, struct lk__sleeper *sleeper, int64_t until_ns)
{
	struct lk__waiter *waiter = &sleeper->waiter;

	if (waiter->where == LK__IN_PLACE)
		lk__wire_wait(client, sleeper, until_ns);
	if (!waiter->done && !waiter->only_try) {
		lk__core_give_up(&client->core, lk__now_ns(), waiter, LK_ETIMEDOUT);
		until_ns = lk__now_ns() + client->target.command_timeout_ns;
	}
	if (!waiter->done)
		lk__wire_wait(client, sleeper, until_ns);
	if (!waiter->done)
		lk__core_abandon(&client->core, lk__now_ns(), waiter);
	lk__wire_settle(client); /* nothing refers to the waiter any more */
}

lk_err lk_lock_acquire(lk_lock *lock, int64_t wait_ms)
{
	struct lk_client *client = lock->client;
	struct lk__sleeper sleeper;
	struct lk__hold *hold;
	int64_t now_ns = lk__now_ns(), until_ns;
	lk_err err;

	if (wait_ms < LK_FOREVER)
		return lk__failf(LK_EINVALID, "wait_ms: -1 or more, not %lld", (long long)wait_ms);
	if ((err = lk__lock_enter(lock)))
		return err;
	/* Re-entry needs nothing. */
	hold = lk__core_hold(lock->place->name, owner_of(lock));
	if (hold && lk__hold_left_ns(hold, now_ns) && hold->count < LK__COUNT_MAX) {
		hold->count++;
		lk__lock_leave(lock);
		return LK_OK;
	}
	pthread_mutex_unlock(&client->mutex);
	init_sleeper(&sleeper, lock);
	sleeper.waiter.only_try = wait_ms == 0;
	sleeper.waiter.spare_ticket = malloc(sizeof(struct lk__ticket));
	sleeper.waiter.spare_hold = malloc(sizeof(struct lk__hold));
	if (wait_ms == 0)
		until_ns = now_ns + client->target.command_timeout_ns;
	else if (wait_ms == LK_FOREVER || wait_ms > (INT64_MAX - now_ns) / LK__MS / 2)
		until_ns = LK__NEVER;
	else
		until_ns = now_ns + wait_ms * LK__MS;
	pthread_mutex_lock(&client->mutex);
	if (!sleeper.waiter.spare_ticket || !sleeper.waiter.spare_hold) {
		lk__why_set(&sleeper.waiter.why, LK_ENOMEM, "out of memory");
	} else {
		/* An idle client's silence is no sign of a dead connection. */
		if (client->pair && !client->core.all_tickets)
			client->pair->heard_ns = now_ns;
		lk__core_acquire(&client->core, now_ns, &sleeper.waiter);
		if (client->core.all_tickets)
			lk__client_introduce(client, now_ns);
		await(client, &sleeper, until_ns);
	}
	lk__lock_leave(lock);
	return finish(&sleeper);
}

lk_err lk_lock_release(lk_lock *lock)
{
	struct lk_client *client = lock->client;
	struct lk__sleeper sleeper;
	lk_err err;

	if ((err = lk__lock_enter(lock)))
		return err;
	init_sleeper(&sleeper, lock);
	lk__core_release(&client->core, lk__now_ns(), &sleeper.waiter);
	await(client, &sleeper, 0);
	lk__lock_leave(lock);
	return finish(&sleeper);
}

lk_err lk_lock_extend(lk_lock *lock, int64_t lease_ms)
{
	struct lk_client *client = lock->client;
	struct lk__sleeper sleeper;
	lk_err err;

	if (lease_ms < LK_LEASE_MIN_MS || lease_ms > LK_LEASE_MAX_MS)
		return lk__failf(LK_EINVALID, "lease_ms: %d to %d, not %lld", LK_LEASE_MIN_MS,
		                 LK_LEASE_MAX_MS, (long long)lease_ms);
	if ((err = lk__lock_enter(lock)))
		return err;
	init_sleeper(&sleeper, lock);
	sleeper.waiter.lease_ms = lease_ms;
	lk__core_extend(&client->core, lk__now_ns(), &sleeper.waiter);
	await(client, &sleeper, 0);
	lk__lock_leave(lock);
	return finish(&sleeper);
}

lk_err lk_lock_cancel(lk_lock *lock)
{
	struct lk_client *client = lock->client;
	lk_err err = lk__lock_enter(lock);

	if (err)
		return err;
	lk__core_cancel(&client->core, lk__now_ns(), lock->place, lock, LK_ECANCELED);
	lk__wire_settle(client);
	lk__wire_poke(client, lock);
	lk__lock_leave(lock);
	return LK_OK;
}

/* ---- The caller's own hold ---------------------------------------------------------------- */

/* The caller's hold with the mutex taken, or NULL with nothing taken. */
static struct lk__hold *look(struct lk_lock *lock)
{
	struct lk__hold *hold;

	if (lock->client->fork_generation != lk__fork_generation())
		return NULL;
	pthread_mutex_lock(&lock->client->mutex);
	hold = lk__core_hold(lock->place->name, owner_of(lock));
	if (!hold)
		pthread_mutex_unlock(&lock->client->mutex);
	return hold;
}

uint32_t lk_lock_hold_count(lk_lock *lock)
{
	const struct lk__hold *hold = look(lock);
	uint32_t count;

	if (!hold)
		return 0;
	count = hold->count;
	pthread_mutex_unlock(&lock->client->mutex);
	return count;
}

uint64_t lk_lock_fence(lk_lock *lock)
{
	const struct lk__hold *hold = look(lock);
	uint64_t fence;

	if (!hold)
		return 0;
	fence = hold->fence;
	pthread_mutex_unlock(&lock->client->mutex);
	return fence;
}

lk_state lk_lock_state(lk_lock *lock)
{
	const struct lk__hold *hold = look(lock);
	lk_state state;

	if (!hold)
		return LK_STATE_NONE;
	state = lk__hold_state(&lock->client->core, hold, lk__now_ns());
	pthread_mutex_unlock(&lock->client->mutex);
	return state;
}

int64_t lk_lock_remaining_ms(lk_lock *lock)
{
	const struct lk__hold *hold = look(lock);
	int64_t left_ns;

	if (!hold)
		return 0;
	left_ns = lk__hold_left_ns(hold, lk__now_ns());
	pthread_mutex_unlock(&lock->client->mutex);
	return left_ns / LK__MS;
}

bool lk_lock_is_mine(lk_lock *lock)
{
	lk_state state = lk_lock_state(lock);

	return state == LK_STATE_HELD || state == LK_STATE_UNSURE;
}

void lk_lock_holder_id(lk_lock *lock, char id[LK_HOLDER_ID_SIZE])
{
	const struct lk__hold *hold = look(lock);

	id[0] = '\0';
	if (!hold)
		return;
	if (hold->ticket) {
		memcpy(id, lock->client->space.client_id, LK__CLIENT_ID_SIZE - 1);
		id[LK__CLIENT_ID_SIZE - 1] = ':';
		memcpy(id + LK__CLIENT_ID_SIZE, hold->ticket->nonce, LK__NONCE_SIZE);
	}
	pthread_mutex_unlock(&lock->client->mutex);
}
