/* SPDX-License-Identifier: MIT
 * N4 of the fault list, for permits: a link is cut after each byte of each answer, request and
 * message.  Whatever happens, no permit is granted twice, and none is missing.  Lanes, each with
 * its own proxy, client and semaphore, share the bytes among them, since after each cut a client
 * pauses before it reconnects. */
#include "harness/handles.h"
#include "harness/permit_watch.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define LANES (TSAN ? 16 : 32)
#define BYTES_MAX 1000 /* no exchange here is longer */
#define CAPACITY 4
#define RATE_MS 1000

struct lane {
	int number;
	char name[16];
	struct proxy proxy;
	struct redis *redis;
	lk_client *far, *near;                  /* through the proxy, and directly */
	lk_semaphore *semaphore, *fixed, *rate; /* of far */
	lk_semaphore *other;                    /* of near */
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

static bool at_rest(struct lane *lane)
{
	return permits_at_rest(lane->redis, lane->name, CAPACITY);
}

/* Exactly this hold with that many permits, in the store and in the client. */
static void expect_one_hold(struct lane *lane, lk_semaphore *semaphore, uint64_t hold,
                            int64_t permits)
{
	const char *value = redis_text(lane->redis, "ZRANGE lk:{%s}:h 0 -1", lane->name);
	char id[LK_HOLDER_ID_SIZE];

	memcpy(id, hold_in(semaphore, hold).holder_id, LK_HOLDER_ID_SIZE);
	ck_assert_int_gt(hold_in(semaphore, hold).remaining_ms, 0);
	ck_assert_int_eq(hold_in(semaphore, hold).count, permits);
	ck_assert_msg(strstr(value, id) != NULL, "%s holds, not %s", value, id);
	ck_assert_int_eq(permits_holds(lane->redis, lane->name), 1);
	ck_assert_int_eq(permits_queue(lane->redis, lane->name), 0);
	ck_assert_int_eq(permits_used(lane->redis, lane->name), permits);
	permits_add_up(lane->redis, lane->name);
}

static void release_all(struct lane *lane, lk_semaphore *semaphore, uint64_t hold)
{
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert(at_rest(lane));
}

static bool acquire_step(struct lane *lane, int k)
{
	int64_t cuts = arm(lane, k);
	/* Enough time for another try, and room for another grant. */
	uint64_t hold = permits_of(lane->semaphore, 2, 10000);
	bool cut = disarm(lane, cuts);

	expect_one_hold(lane, lane->semaphore, hold, 2);
	release_all(lane, lane->semaphore, hold);
	return cut;
}

static bool release_step(struct lane *lane, int k)
{
	uint64_t hold = permits_of(lane->semaphore, 3, 10000);
	int64_t cuts;
	bool cut;
	lk_err err;

	nap_ms(5); /* the introduction on a new link is over */
	cuts = arm(lane, k);
	err = lk_semaphore_release(lane->semaphore, hold);
	cut = disarm(lane, cuts);
	ck_assert_msg(err == LK_OK || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err), lk_errmsg());
	/* The caller does not hold it any more; the store agrees once the link is up. */
	EXPECT(lk_semaphore_release(lane->semaphore, hold), LK_ENOTOWNER);
	ck_assert(WITHIN(2500, at_rest(lane)));
	return cut;
}

/* Two at once, so that the unconfirmed part has grown when it is sent again. */
static bool shrink_step(struct lane *lane, int k)
{
	uint64_t hold = permits_of(lane->semaphore, 4, 10000);
	int64_t cuts;
	bool cut;

	nap_ms(5);
	cuts = arm(lane, k);
	for (int i = 0; i < 2; i++) {
		lk_err err = lk_semaphore_release_some(lane->semaphore, hold, 1);
		ck_assert_msg(err == LK_OK || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err),
		              lk_errmsg());
		ck_assert_int_eq(hold_in(lane->semaphore, hold).count, 3 - i);
	}
	cut = disarm(lane, cuts);
	ck_assert(WITHIN(2500, permits_used(lane->redis, lane->name) == 2));
	expect_one_hold(lane, lane->semaphore, hold, 2);
	release_all(lane, lane->semaphore, hold);
	return cut;
}

static bool queue_step(struct lane *lane, int k)
{
	struct permit_wait wait;
	uint64_t held = permits_of(lane->other, 2, 1000);
	int64_t cuts = arm(lane, k);
	bool cut;

	permit_wait_queue(&wait, lane->redis, lane->name, lane->semaphore, 3, true);
	cut = WITHIN(300, proxy_count(&lane->proxy).cuts > cuts);
	disarm(lane, cuts);
	OK(lk_semaphore_release(lane->other, held));
	OK(permit_wait_join(&wait));
	expect_one_hold(lane, lane->semaphore, wait.hold, 3);
	release_all(lane, lane->semaphore, wait.hold);
	return cut;
}

/* A wait that is granted in full by message; or, with a fixed lease, must be claimed. */
static bool serve_step(struct lane *lane, int k, lk_semaphore *semaphore)
{
	struct permit_wait wait;
	uint64_t held = permits_of(lane->other, 2, 1000);
	int64_t cuts;
	bool cut;

	permit_wait_queue(&wait, lane->redis, lane->name, semaphore, 3, true);
	nap_ms(5); /* "queued" has arrived */
	cuts = arm(lane, k);
	OK(lk_semaphore_release(lane->other, held));
	OK(permit_wait_join(&wait)); /* or by a repeated ask on new links */
	cut = disarm(lane, cuts);
	expect_one_hold(lane, semaphore, wait.hold, 3);
	release_all(lane, semaphore, wait.hold);
	return cut;
}

static bool grant_step(struct lane *lane, int k)
{
	return serve_step(lane, k, lane->semaphore);
}

static bool claim_step(struct lane *lane, int k)
{
	return serve_step(lane, k, lane->fixed);
}

/* Permits that cannot be released are granted once, even if the answer is lost. */
static bool rate_step(struct lane *lane, int k)
{
	lk_semaphore_status status;
	int64_t cuts = arm(lane, k);
	bool cut;

	OK(lk_semaphore_acquire(lane->rate, 2, 10000, NULL));
	cut = disarm(lane, cuts);
	ck_assert_int_eq(permits_used(lane->redis, lane->name), 2);
	ck_assert_int_eq(permits_holds(lane->redis, lane->name), 1);
	permits_add_up(lane->redis, lane->name);
	ck_assert(WITHIN(RATE_MS + 500,
	                 lk_semaphore_query(lane->other, &status) == LK_OK && !status.holders));
	ck_assert_int_eq(status.available, CAPACITY);
	return cut;
}

/* The link may still be down when a step begins: then no request would be sent. */
static bool reachable(struct lane *lane)
{
	lk_semaphore_status status;

	return lk_semaphore_query(lane->semaphore, &status) == LK_OK;
}

static void *lane_thread(void *arg)
{
	struct lane *lane = arg;
	int k = lane->number;

	release_all(lane, lane->semaphore, permits_of(lane->semaphore, 1, 5000));
	nap_ms(100); /* the client has introduced itself */
	while (lane->step(lane, k)) {
		k += LANES;
		ck_assert_int_lt(k, BYTES_MAX);
		ck_assert(WITHIN(5000, reachable(lane)));
	}
	lane->end = k;
	return NULL;
}

static void open_lane(struct lane *lane)
{
	const lk_client_options options = {.command_timeout_ms = 1500};
	const lk_semaphore_options fixed = {.capacity = CAPACITY, .lease_ms = 8000, .fixed = true};
	const lk_semaphore_options rate = {
		.capacity = CAPACITY, .lease_ms = RATE_MS, .fixed = true};

	lane->redis = redis_open(&server);
	lane->far = client_with(lane->proxy.url, &options);
	lane->near = client_at(server.url);
	lane->semaphore = semaphore_of(lane->far, lane->name, CAPACITY, 5000);
	lane->fixed = semaphore_with(lane->far, lane->name, &fixed);
	lane->rate = semaphore_with(lane->far, lane->name, &rate);
	lane->other = semaphore_of(lane->near, lane->name, CAPACITY, 5000);
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
		open_lane(&lanes[i]);
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
	/* Only the fence counter and the semaphores are left. */
	if (step != rate_step)
		ck_assert_int_eq(redis_int(lanes[0].redis, "DBSIZE"), 1 + LANES);
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

TEST_LIMIT(n4_answers_to_partial_releases_cut_at_every_byte, 120)
{
	cut_everywhere(shrink_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 32);
}

TEST_LIMIT(n4_requests_of_partial_releases_cut_at_every_byte, 120)
{
	cut_everywhere(shrink_step, PROXY_COMMANDS, PROXY_TO_SERVER, 200);
}

TEST_LIMIT(n4_answer_that_one_is_queued_cut_at_every_byte, 120)
{
	cut_everywhere(queue_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 30);
}

TEST_LIMIT(n4_message_of_a_grant_cut_at_every_byte, 120)
{
	cut_everywhere(grant_step, PROXY_MESSAGES, PROXY_TO_CLIENT, 80);
}

TEST_LIMIT(n4_answer_to_a_claim_cut_at_every_byte, 120)
{
	cut_everywhere(claim_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 30);
}

TEST_LIMIT(n4_request_to_claim_cut_at_every_byte, 120)
{
	cut_everywhere(claim_step, PROXY_COMMANDS, PROXY_TO_SERVER, 100);
}

TEST_LIMIT(n4_answer_to_a_grant_of_a_rate_cut_at_every_byte, 120)
{
	cut_everywhere(rate_step, PROXY_COMMANDS, PROXY_TO_CLIENT, 40);
}
