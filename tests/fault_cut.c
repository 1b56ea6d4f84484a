/* SPDX-License-Identifier: MIT
 * N4 of the fault list: a link is cut after each byte of each answer, request and message.
 * Whatever happens, there is one hold or none, and nothing is left.  Lanes, each with its own
 * proxy, client and lock, share the bytes among them, since after each cut a client pauses before
 * it reconnects. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"
#include "harness/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LANES (TSAN ? 16 : 32)
#define BYTES_MAX 1000 /* no exchange here is longer */

struct lane {
	int number;
	char name[16];
	struct proxy proxy;
	struct redis *redis;
	lk_client *far, *near; /* through the proxy, and directly */
	lk_lock *lock, *other; /* of far, of near */
	enum proxy_link link;
	enum proxy_way way;
	bool (*step)(struct lane *lane, int k);
	int end; /* the first k that cut nothing */
	pthread_t thread;
};

static struct test_server server;
static struct lane lanes[LANES];
static const struct proxy_fault none;

/* Cut the lane's link after k bytes of the next transfer; even k by RST, odd k by FIN. */
static int64_t arm(struct lane *lane, int k)
{
	struct proxy_fault cut = {.cut_after = k ? k : -1, .cut_gently = k % 2};
	int64_t cuts = proxy_count(&lane->proxy).cuts;

	proxy_set(&lane->proxy, lane->link, lane->way, &cut);
	return cuts; /* the cut may have happened by now */
}

/* Disarm it; returns whether the cut has happened. */
static bool disarm(struct lane *lane, int64_t cuts_before)
{
	proxy_set(&lane->proxy, lane->link, lane->way, &none);
	return proxy_count(&lane->proxy).cuts > cuts_before;
}

static bool is_free(struct lane *lane)
{
	return redis_int(lane->redis, "EXISTS lk:{%s} lk:{%s}:q", lane->name, lane->name) == 0;
}

static bool one_waits(struct lane *lane)
{
	return redis_int(lane->redis, "ZCARD lk:{%s}:q", lane->name) == 1;
}

/* Exactly this hold, in the store and in the client. */
static void expect_one_hold(struct lane *lane)
{
	const char *value = redis_text(lane->redis, "GET lk:{%s}", lane->name);
	char id[LK_HOLDER_ID_SIZE];

	memcpy(id, hold_of(lane->lock).holder_id, LK_HOLDER_ID_SIZE);
	ck_assert(lk_lock_is_mine(lane->lock));
	ck_assert_uint_eq(hold_of(lane->lock).count, 1);
	ck_assert_msg(strstr(value, id) != NULL, "%s holds, not %s", value, id);
	ck_assert_int_eq(redis_int(lane->redis, "ZCARD lk:{%s}:q", lane->name), 0);
}

static void release_all(struct lane *lane)
{
	OK(lk_lock_release(lane->lock));
	ck_assert(is_free(lane));
}

static bool acquire_step(struct lane *lane, int k)
{
	int64_t cuts = arm(lane, k);
	bool cut;

	OK(lk_lock_acquire(lane->lock, 10000, NULL)); /* enough time for another try */
	cut = disarm(lane, cuts);
	expect_one_hold(lane);
	release_all(lane);
	return cut;
}

static bool release_step(struct lane *lane, int k)
{
	int64_t cuts;
	bool cut;
	lk_err err;

	OK(lk_lock_acquire(lane->lock, 10000, NULL));
	expect_one_hold(lane);
	nap_ms(5); /* the introduction on a new link is over */
	cuts = arm(lane, k);
	err = lk_lock_release(lane->lock);
	cut = disarm(lane, cuts);
	ck_assert_msg(err == LK_OK || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err), lk_errmsg());
	/* The caller does not hold it any more; the store agrees once the link is up. */
	ck_assert(!lk_lock_is_mine(lane->lock));
	EXPECT(lk_lock_release(lane->lock), LK_ENOTOWNER);
	ck_assert(WITHIN(2500, is_free(lane)));
	return cut;
}

static bool queue_step(struct lane *lane, int k)
{
	struct waiter waiter;
	int64_t cuts;
	bool cut;

	OK(lk_lock_acquire(lane->other, 1000, NULL));
	cuts = arm(lane, k);
	waiter_start(&waiter, lane->lock, 10000, true);
	ck_assert(WITHIN(5000, one_waits(lane)));
	cut = WITHIN(300, proxy_count(&lane->proxy).cuts > cuts);
	disarm(lane, cuts);
	OK(lk_lock_release(lane->other));
	OK(waiter_join(&waiter));
	expect_one_hold(lane);
	release_all(lane);
	return cut;
}

static bool grant_step(struct lane *lane, int k)
{
	struct waiter waiter;
	int64_t cuts;
	bool cut;

	OK(lk_lock_acquire(lane->other, 1000, NULL));
	waiter_start(&waiter, lane->lock, 10000, true);
	ck_assert(WITHIN(5000, one_waits(lane)));
	cuts = arm(lane, k);
	OK(lk_lock_release(lane->other));
	OK(waiter_join(&waiter)); /* by message, or by asking again on new links */
	cut = disarm(lane, cuts);
	expect_one_hold(lane);
	release_all(lane);
	return cut;
}

/* The link may still be down when a step begins: then no request would be sent. */
static bool reachable(struct lane *lane)
{
	lk_lock_status status;

	return lk_lock_query(lane->lock, &status) == LK_OK;
}

static void *lane_thread(void *arg)
{
	struct lane *lane = arg;
	int k = lane->number;

	OK(lk_lock_acquire(lane->lock, 5000, NULL));
	OK(lk_lock_release(lane->lock));
	nap_ms(100); /* the client has introduced itself */
	while (lane->step(lane, k)) {
		k += LANES;
		ck_assert_int_lt(k, BYTES_MAX);
		ck_assert(WITHIN(5000, reachable(lane)));
	}
	lane->end = k;
	return NULL;
}

/* Cut the link at each byte that a step transfers, which are at least that many. */
static void cut_everywhere(bool (*step)(struct lane *lane, int k), enum proxy_link link,
                           enum proxy_way way, int least)
{
	int cuts = BYTES_MAX;

	server_start(&server, NULL);
	for (int i = 0; i < LANES; i++) {
		lanes[i] = (struct lane){.number = i, .link = link, .way = way, .step = step};
		snprintf(lanes[i].name, sizeof(lanes[i].name), "a%d", i);
		proxy_start(&lanes[i].proxy, &server);
	}
	for (int i = 0; i < LANES; i++) {
		const lk_client_options options = {.command_timeout_ms = 1500};
		lanes[i].redis = redis_open(&server);
		lanes[i].far = client_with(lanes[i].proxy.url, &options);
		lanes[i].near = client_at(server.url);
		lanes[i].lock = lock_of_handle(lanes[i].far, lanes[i].name, 5000);
		lanes[i].other = lock_of_handle(lanes[i].near, lanes[i].name, 5000);
		pthread_create(&lanes[i].thread, NULL, lane_thread, &lanes[i]);
	}
	for (int i = 0; i < LANES; i++) {
		pthread_join(lanes[i].thread, NULL);
		cuts = lanes[i].end < cuts ? lanes[i].end : cuts;
	}
	printf("%d cuts\n", cuts);
	ck_assert_int_ge(cuts, least);
	for (int i = 0; i < LANES; i++) {
		OK(lk_client_close(lanes[i].far));
		OK(lk_client_close(lanes[i].near));
	}
	/* Only the fence counter is left. */
	ck_assert_int_eq(redis_int(lanes[0].redis, "DBSIZE"), 1);
}

TEST_LIMIT(n4_answer_to_an_acquire_cut_at_every_byte, 120)
{
	cut_everywhere(acquire_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 40);
}

TEST_LIMIT(n4_request_to_acquire_cut_at_every_byte, 120)
{
	cut_everywhere(acquire_step, PROXY_COMMANDS, PROXY_TO_SERVER, 100);
}

TEST_LIMIT(n4_answer_to_a_release_cut_at_every_byte, 120)
{
	cut_everywhere(release_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 16);
}

TEST_LIMIT(n4_request_to_release_cut_at_every_byte, 120)
{
	cut_everywhere(release_step, PROXY_COMMANDS, PROXY_TO_SERVER, 100);
}

TEST_LIMIT(n4_answer_that_one_is_queued_cut_at_every_byte, 120)
{
	cut_everywhere(queue_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 30);
}

TEST_LIMIT(n4_message_of_a_grant_cut_at_every_byte, 120)
{
	cut_everywhere(grant_step, PROXY_MESSAGES, PROXY_TO_CLIENT, 80);
}
