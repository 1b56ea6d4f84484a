/* SPDX-License-Identifier: MIT
 * Shared by tests of semaphores: the state in the store, a hold that records its loss, and a wait
 * in a thread of its own. */
#include "permit_watch.h"

#include "handles.h"
#include "process.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

struct permit_losses permit_losses;

/* ---- The state in the store
 * ---------------------------------------------------------------------- */

long long permits_used(struct redis *redis, const char *name)
{
	const char *used = redis_text(redis, "HGET lk:{%s} used", name);

	return *used ? atoll(used) : -1;
}

long long permits_holds(struct redis *redis, const char *name)
{
	return redis_int(redis, "ZCARD lk:{%s}:h", name);
}

long long permits_queue(struct redis *redis, const char *name)
{
	return redis_int(redis, "ZCARD lk:{%s}:q", name);
}

/* The recorded number of used permits, the sum of the holds, holds without expiry, and the
 * capacity, in one script. */
#define SUM                                                                                        \
	"local all, sum, loose = redis.call('HGETALL', KEYS[1]), 0, 0 "                            \
	"for i = 1, #all, 2 do if string.sub(all[i], 1, 2) == '2:' then "                          \
	"sum = sum + tonumber(string.match(all[i + 1], '^%d+')) "                                  \
	"if not redis.call('ZSCORE', KEYS[2], all[i]) then loose = loose + 1 end end end "         \
	"return {sum, tonumber(redis.call('HGET', KEYS[1], 'used') or 0), loose, "                 \
	"tonumber(redis.call('HGET', KEYS[1], 'capacity') or 0)}"

void permits_add_up(struct redis *redis, const char *name)
{
	const char *answer = redis_text(redis, "EVAL %s 2 lk:{%s} lk:{%s}:h", SUM, name, name);
	long long sum, used, loose, capacity;

	ck_assert_int_eq(sscanf(answer, "%lld %lld %lld %lld", &sum, &used, &loose, &capacity), 4);
	ck_assert_msg(sum == used && !loose && used <= capacity,
	              "%lld used of %lld, the holds' sum is %lld, %lld holds without expiry", used,
	              capacity, sum, loose);
}

bool permits_at_rest(struct redis *redis, const char *name, long long capacity)
{
	return redis_int(redis, "EXISTS lk:{%s}:q lk:{%s}:h", name, name) == 0 &&
	       permits_used(redis, name) == 0 &&
	       redis_int(redis, "HGET lk:{%s} capacity", name) == capacity;
}

/* ---- A hold that records its loss
 * ---------------------------------------------------------------- */

static void note_loss(void *arg, lk_semaphore *semaphore, uint64_t hold, lk_lost_reason reason)
{
	ck_assert_ptr_eq(arg, &permit_losses);
	ck_assert_ptr_nonnull(semaphore);
	permit_losses.at_ms = now_ms();
	permit_losses.hold = hold;
	permit_losses.reason = reason;
	permit_losses.count++;
}

lk_semaphore *semaphore_watched(lk_client *client, const char *name, lk_semaphore_options options)
{
	options.on_lost = note_loss;
	options.on_lost_arg = &permit_losses;
	return semaphore_with(client, name, &options);
}

/* ---- A wait in a thread of its own ----------------------------------------------------------- */

static void *wait_in_thread(void *arg)
{
	static atomic_int served;
	struct permit_wait *wait = arg;
	int64_t start_ms = now_ms();

	wait->err =
		lk_semaphore_acquire(wait->semaphore, wait->permits, wait->wait_ms, &wait->hold);
	wait->took_ms = now_ms() - start_ms;
	if (!wait->err) {
		wait->order = served++;
		if (!wait->keep)
			OK(lk_semaphore_release(wait->semaphore, wait->hold));
	}
	wait->ended = true;
	return NULL;
}

void permit_wait_start(struct permit_wait *wait, lk_semaphore *semaphore, int64_t permits,
                       int64_t wait_ms, bool keep)
{
	*wait = (struct permit_wait){
		.semaphore = semaphore, .permits = permits, .wait_ms = wait_ms, .keep = keep};
	ck_assert(!pthread_create(&wait->thread, NULL, wait_in_thread, wait));
}

void permit_wait_queue(struct permit_wait *wait, struct redis *redis, const char *name,
                       lk_semaphore *semaphore, int64_t permits, bool keep)
{
	long long before = permits_queue(redis, name);

	permit_wait_start(wait, semaphore, permits, 15000, keep);
	ck_assert_msg(WITHIN(5000, permits_queue(redis, name) == before + 1),
	              "%lld in the queue, not %lld", permits_queue(redis, name), before + 1);
}

lk_err permit_wait_join(struct permit_wait *wait)
{
	ck_assert_msg(WITHIN(20000, wait->ended), "a wait does not end");
	pthread_join(wait->thread, NULL);
	return wait->err;
}
