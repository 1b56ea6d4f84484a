/* SPDX-License-Identifier: MIT
 * A real server that is a member of a quorum: what it answers to the store's own requests, and that
 * clients of a single server refuse it. */
#include "harness/handles.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/store_link.h"
#include "harness/test.h"

#include <latchkey.h>
#include <stdio.h>
#include <string.h>

#define SET "set-_9 1/1 60000"
#define JOINED "1 0123456789abcdef 5 [" SET "]"

static struct test_server server;
static struct redis *redis;

static void begin(void)
{
	server_start(&server, NULL);
	redis = redis_open(&server);
}

static void finish(void)
{
	redis_close(redis);
	server_stop(&server);
}

static struct lk__request leg_request(enum lk__request_kind kind, uint64_t priority)
{
	struct lk__request request = link_request(kind, "a");

	request.quorum = true;
	request.ticket.priority = priority;
	return request;
}

/* Let it be a member of a new set. */
static void join(struct store_link *link)
{
	struct lk__answer answer = link_answer(
		link, (struct lk__request){.kind = LK__EPOCH, .set = SET, .set_is_new = true},
		NULL);

	ck_assert_int_eq(answer.kind, LK__MEMORY);
	ck_assert_str_eq(answer.epoch.set, "set-_9");
	ck_assert_uint_eq(answer.epoch.set_servers, 1);
	ck_assert_int_eq(answer.epoch.longest_ms, 60000);
	link->epoch = answer.epoch;
}

/* The next message about a ticket, past the one that tested the link. */
static struct lk__message next_message(struct store_link *link)
{
	struct lk__event event = {0};

	do
		lk__redis_store.discard(link_next_event(link, &event));
	while (event.kind != LK__EVENT_MESSAGE);
	return event.message;
}

TEST(member_grants_by_priority_and_serves_behind_a_yield)
{
	struct store_link link;
	struct lk__request request = leg_request(LK__ASK, 2000);
	struct lk__answer answer;
	struct lk__message message;
	uint64_t fence;

	begin();
	link = link_to_member(server.port);
	link_dial_ok(&link);
	ck_assert_str_eq(link.epoch.set, "");
	join(&link);
	ck_assert_int_eq(link.epoch.since_us, 0);
	answer = link_answer(&link, request, NULL);
	ck_assert_int_eq(answer.kind, LK__GRANTED);
	ck_assert_uint_eq(answer.last, answer.fence);
	fence = answer.fence;
	request = leg_request(LK__RENEW, 2000);
	request.fence = fence;
	request.last_fence = fence + 600000000; /* ten minutes ahead of the clock */
	answer = link_answer(&link, request, NULL);
	ck_assert_int_eq(answer.kind, LK__KEPT);
	ck_assert_uint_eq(answer.last, fence + 600000000);
	/* An older ticket. */
	request = leg_request(LK__ASK, 1000);
	request.ticket.nonce[0] = 'N';
	ck_assert_int_eq(link_answer(&link, request, NULL).kind, LK__QUEUED);
	message = next_message(&link);
	ck_assert_int_eq(message.kind, LK__WANTED);
	ck_assert_uint_eq(message.priority, 2000);
	answer = link_answer(&link, leg_request(LK__YIELD, 2000), NULL);
	ck_assert_int_eq(answer.kind, LK__LEFT);
	ck_assert(answer.mine);
	message = next_message(&link);
	ck_assert_int_eq(message.kind, LK__GRANT);
	ck_assert_uint_eq(message.priority, 1000);
	ck_assert_uint_eq(message.fence, fence + 600000001);
	ck_assert_int_eq(redis_int(redis, "ZCARD lk:{a}:q"), 1);
	request.kind = LK__LEAVE;
	ck_assert(link_answer(&link, request, NULL).mine);
	ck_assert(link_answer(&link, leg_request(LK__LEAVE, 2000), NULL).mine);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	link_end(&link);
	finish();
}

TEST(member_that_has_other_keys_is_young)
{
	struct store_link link;
	struct lk__answer answer;

	begin();
	redis_do(redis, "SET other 1");
	link = link_to_member(server.port);
	link_dial_ok(&link);
	join(&link);
	answer = link_answer(&link, leg_request(LK__ASK, 2000), NULL);
	ck_assert_int_eq(answer.kind, LK__YOUNG);
	ck_assert_int_gt(answer.grace_ms, 0);
	ck_assert_int_le(answer.grace_ms, 60000);
	ck_assert_int_eq(link_answer(&link, leg_request(LK__HAND, 0), NULL).kind, LK__YOUNG);
	link_end(&link);
	finish();
}

/* Nothing else shows that it has restarted with an older file. */
TEST(member_that_refuses_info_is_not_used)
{
	struct store_link link;

	begin();
	redis_do(redis, "ACL SETUSER default -info");
	link = link_to_member(server.port);
	ck_assert_int_eq(link_dial(&link), LK_EAUTH);
	ck_assert_ptr_nonnull(strstr(link.why.text, "(+info)"));
	link_end(&link);
	finish();
}

TEST(client_of_a_single_server_refuses_a_member)
{
	lk_client *client;

	begin();
	redis_do(redis, "SET lk:epoch %s", JOINED);
	EXPECT(lk_client_open(server.url, NULL, &client), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "member of a quorum: use redis+quorum://"));
	ck_assert_str_eq(redis_text(redis, "GET lk:epoch"), JOINED);
	finish();
}

TEST(server_that_becomes_a_member_ends_waits_and_leaves_holds_alone)
{
	lk_client *client;
	lk_lock *held, *wanted;
	uint64_t fence;

	begin();
	client = client_at(server.url);
	held = lock_leased(client, "a", 3000);
	wanted = lock_named(client, "b");
	OK(lk_lock_acquire(held, 0, &fence));
	redis_do(redis, "SET lk:epoch %s", JOINED);
	EXPECT(lk_lock_acquire(wanted, 10000, NULL), LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "member of a quorum: use redis+quorum://"));
	OK(lk_lock_release(held));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{b}"), 0);
	OK(lk_client_close(client));
	finish();
}
