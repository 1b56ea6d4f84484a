/* SPDX-License-Identifier: MIT
 * The rows of primitive.h: locks, semaphores and latches. */
#include "primitive.h"

#include "latch_watch.h"
#include "permit_watch.h"

#include <stdio.h>
#include <string.h>

/* ---- Of all with holds: by their nouns ------------------------------------------------------- */

/* The permits of a wait; a lock has no such size. */
static int64_t waiter_permits(struct claim *claim)
{
	return claim->exclusive ? CAPACITY : WAITER_PERMITS;
}

static lk_err open_noun(struct claim *claim, bool of_handle)
{
	const struct noun_options options = {.capacity = CAPACITY,
	                                     .lease_ms = claim->lease_ms,
	                                     .fixed = claim->fixed,
	                                     .any_thread = of_handle,
	                                     .losses = &claim->lost};

	return claim->primitive->noun->open(claim->client, claim->name, options, &claim->handle);
}

static lk_err wait_for_noun(struct claim *claim, int64_t wait_ms)
{
	return claim->primitive->noun->acquire(claim->handle, waiter_permits(claim), wait_ms,
	                                       &claim->fence);
}

static lk_err release_noun(struct claim *claim)
{
	return claim->primitive->noun->release(claim->handle, claim->fence);
}

static lk_err cancel_noun(struct claim *claim)
{
	return claim->primitive->noun->cancel(claim->handle);
}

static lk_err query_noun(struct claim *claim)
{
	lk_lock_status status;

	return claim->primitive->noun->query(claim->handle, &status);
}

static lk_state state_of_noun(struct claim *claim)
{
	return claim->primitive->noun->state(claim->handle, claim->fence);
}

/* Until the earlier end of its holds. */
static int64_t noun_remaining_ms(struct claim *claim)
{
	const struct noun *noun = claim->primitive->noun;
	int64_t first, other = noun_snapshot(noun, claim->handle, claim->fence).remaining_ms;
	lk_state state = state_of_noun(claim);

	if (state != LK_STATE_HELD && state != LK_STATE_UNSURE)
		return 0;
	first = claim->first ? noun_snapshot(noun, claim->handle, claim->first).remaining_ms
	                     : other;
	return first < other ? first : other;
}

static long long queue_of(const char *name)
{
	return redis_int(redis, "ZCARD lk:{%s}:q", name);
}

/* The call fails with err, and the error's text names the reason. */
#define REFUSED(call)                                                                              \
	do {                                                                                       \
		EXPECT(call, err);                                                                 \
		ck_assert_msg(strstr(lk_errmsg(), text) != NULL, "\"%s\" is not in %s", text,      \
		              lk_errmsg());                                                        \
	} while (0)

static void expect_refused_noun(struct claim *claim, lk_err err, const char *text)
{
	const struct noun *noun = claim->primitive->noun;
	uint64_t none = 77;

	REFUSED(noun->acquire(claim->handle, 1, 0, &none));
	REFUSED(noun->acquire(claim->handle, 1, 500, &none));
	REFUSED(noun->acquire(claim->handle, 1, LK_FOREVER, &none));
	ck_assert_uint_eq(none, 77);
}

#define BY_NOUN(row)                                                                               \
	.noun = &(row), .is_leased = true, .absent_err = LK_ELOST, .open = open_noun,              \
	.wait = wait_for_noun, .cancel = cancel_noun, .query = query_noun,                         \
	.remaining_ms = noun_remaining_ms, .state = state_of_noun, .waiting = queue_of

/* ---- Locks ----------------------------------------------------------------------------------- */

static bool lock_is_held(struct claim *claim)
{
	lk_hold hold = hold_of(claim->lock);
	char id[LK_HOLDER_ID_SIZE];
	const char *value = redis_text(redis, "GET lk:{%s}", claim->name), *fence;

	memcpy(id, hold.holder_id, sizeof(id));
	fence = strchr(value, ' ');
	return hold.count == 1 && strstr(value, id) && fence &&
	       strtoull(fence, NULL, 10) == claim->fence && hold.fence == claim->fence;
}

static bool lock_is_at_rest(const char *name)
{
	return noun_lock.at_rest(redis, name);
}

/* ---- Semaphores ------------------------------------------------------------------------------ */

/* All permits.  If none waits for them: a hold from which one was released, and another one. */
static lk_err hold_permits(struct claim *claim, int64_t wait_ms)
{
	lk_err err = lk_semaphore_acquire(claim->semaphore, CAPACITY, wait_ms, &claim->fence);

	claim->first = 0;
	if (err || wait_ms)
		return err;
	claim->first = claim->fence;
	err = lk_semaphore_release_some(claim->semaphore, claim->first, 1);
	return err ? err : lk_semaphore_acquire(claim->semaphore, 1, 0, &claim->fence);
}

/* Of two holds, the larger one in two parts: after the first one there is room for a waiter. */
static lk_err release_permits(struct claim *claim)
{
	lk_err err = lk_semaphore_release(claim->semaphore, claim->fence), part;

	if (!claim->first || (err && err != LK_ELOST))
		return err;
	part = lk_semaphore_release_some(claim->semaphore, claim->first, 1);
	ck_assert_int_eq(part, err);
	return lk_semaphore_release(claim->semaphore, claim->first);
}

static bool permits_are_held(struct claim *claim)
{
	long long used = 0;

	for (int i = 0; i < 2; i++) {
		char id[LK_HOLDER_ID_SIZE];
		uint64_t fence = i ? claim->first : claim->fence;
		lk_hold hold;
		if (!fence)
			continue;
		hold = hold_in(claim->semaphore, fence);
		memcpy(id, hold.holder_id, sizeof(id));
		if (!*id || !strstr(redis_text(redis, "ZRANGE lk:{%s}:h 0 -1", claim->name), id))
			return false;
		used += hold.count;
	}
	permits_add_up(redis, claim->name);
	return permits_used(redis, claim->name) == used &&
	       permits_holds(redis, claim->name) == (claim->first ? 2 : 1) &&
	       used == (claim->waits ? waiter_permits(claim) : CAPACITY);
}

static bool semaphore_is_at_rest(const char *name)
{
	return permits_at_rest(redis, name, CAPACITY);
}

static void expect_refused_semaphore(struct claim *claim, lk_err err, const char *text)
{
	expect_refused_noun(claim, err, text);
	REFUSED(lk_semaphore_resize(claim->semaphore, 9));
}

/* ---- Latches --------------------------------------------------------------------------------- */

#define STEPS 3
#define TTL_MS 60000 /* so that a counting latch may be evicted */

static lk_err open_latch(struct claim *claim, bool of_handle)
{
	const lk_latch_options options = {.counting_ttl_ms = TTL_MS};

	(void)of_handle;
	return lk_latch_open(claim->client, claim->name, 0, &options, &claim->latch);
}

static lk_err set_latch(struct claim *claim, int64_t wait_ms)
{
	lk_err err = lk_latch_set(claim->latch, STEPS, NULL);

	(void)wait_ms;
	if (err)
		return err;
	ck_assert_int_eq(latch_down(claim->latch, 1, "one"), STEPS - 1);
	claim->fence = latch_status(claim->latch).generation;
	return LK_OK;
}

static lk_err await_latch(struct claim *claim, int64_t wait_ms)
{
	return lk_latch_await(claim->latch, wait_ms);
}

/* The step that has counted does not count again. */
static lk_err open_by_steps(struct claim *claim)
{
	lk_latch_step step;
	lk_err err;

	if (claim->waits)
		return LK_OK;
	err = lk_latch_down(claim->latch, 1, "one", 0, &step);
	if (err)
		return err;
	ck_assert(!step.counted && step.remaining == STEPS - 1);
	err = lk_latch_down(claim->latch, STEPS - 1, NULL, 0, &step);
	ck_assert(err || (step.counted && step.remaining == 0));
	return err;
}

static lk_err cancel_await(struct claim *claim)
{
	return lk_latch_cancel(claim->latch);
}

static lk_err query_latch(struct claim *claim)
{
	lk_latch_status status;

	return lk_latch_query(claim->latch, &status);
}

/* It has no lease. */
static int64_t latch_remaining_ms(struct claim *claim)
{
	(void)claim;
	return INT64_MAX;
}

static lk_state state_of_latch(struct claim *claim)
{
	(void)claim;
	return LK_STATE_HELD;
}

static bool latch_counts(struct claim *claim)
{
	return redis_int(redis, "HGET lk:{%s} count", claim->name) == STEPS - 1 &&
	       redis_int(redis, "HGET lk:{%s} gen", claim->name) == (long long)claim->fence;
}

static long long subscribers(const char *name)
{
	const char *text = redis_text(redis, "PUBSUB NUMSUB lk:l:0:{%s}", name);

	return atoll(text + strcspn(text, "\n"));
}

/* Its waiters unsubscribe a little later. */
static bool latch_is_open(const char *name)
{
	return redis_int(redis, "HGET lk:{%s} count", name) <= 0;
}

static void expect_refused_latch(struct claim *claim, lk_err err, const char *text)
{
	REFUSED(lk_latch_set(claim->latch, 1, NULL));
	REFUSED(lk_latch_reset(claim->latch, 1, NULL));
	REFUSED(lk_latch_down(claim->latch, 1, NULL, 0, NULL));
	REFUSED(lk_latch_await(claim->latch, 0));
	REFUSED(lk_latch_await(claim->latch, 1000));
	REFUSED(query_latch(claim));
	REFUSED(lk_latch_remove(claim->latch));
}

/* ---- The rows -------------------------------------------------------------------------------- */

const struct primitive primitives[PRIMITIVES] = {
	{.name = "lock",
         BY_NOUN(noun_lock),
         .keys = {"lk:{lock}", "lk:{lock}:q", "lk:fence"},
         .hold_keys = 1,
         .hold = wait_for_noun,
         .release = release_noun,
         .is_held = lock_is_held,
         .is_at_rest = lock_is_at_rest,
         .expect_refused = expect_refused_noun},
	{.name = "semaphore",
         BY_NOUN(noun_semaphore),
         .keys = {"lk:{semaphore}", "lk:{semaphore}:h", "lk:{semaphore}:q", "lk:fence"},
         .hold_keys = 2,
         .hold = hold_permits,
         .release = release_permits,
         .is_held = permits_are_held,
         .is_at_rest = semaphore_is_at_rest,
         .expect_refused = expect_refused_semaphore},
	{.name = "latch",
         .is_leased = false,
         .absent_err = LK_EABSENT,
         .keys = {"lk:{latch}"},
         .hold_keys = 1,
         .open = open_latch,
         .hold = set_latch,
         .wait = await_latch,
         .release = open_by_steps,
         .cancel = cancel_await,
         .query = query_latch,
         .remaining_ms = latch_remaining_ms,
         .state = state_of_latch,
         .is_held = latch_counts,
         .waiting = subscribers,
         .is_at_rest = latch_is_open,
         .expect_refused = expect_refused_latch},
};
