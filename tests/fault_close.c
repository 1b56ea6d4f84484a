/* SPDX-License-Identifier: MIT
 * lk_client_close() when the server does not answer: it waits for confirmation of what the store
 * may still keep, and for nothing else. */
#include "harness/primitive.h"
#include "harness/watch.h"

/* A command timeout of 4 s, so that a slow machine's "quick" is still less. */
#define COMMAND_TIMEOUT_MS 4000
#define QUICK_MS 2000

static const lk_client_options options = {.command_timeout_ms = COMMAND_TIMEOUT_MS};
static const struct proxy_fault stall = {.stall = true};

/* A client through the proxy. */
static lk_client *set_up(void)
{
	fault_set_up_proxy();
	return client_with(proxy.url, &options);
}

static void expect_quick_close(lk_client *client)
{
	int64_t start_ms = now_ms();

	OK(lk_client_close(client));
	ck_assert_int_le(now_ms() - start_ms, QUICK_MS);
}

static void expect_unknown_close(lk_client *client)
{
	int64_t start_ms = now_ms();

	EXPECT(lk_client_close(client), LK_EUNKNOWN);
	ck_assert_int_ge(now_ms() - start_ms, COMMAND_TIMEOUT_MS - 50);
	ck_assert_int_le(now_ms() - start_ms, COMMAND_TIMEOUT_MS + 2000);
}

/* ---- Lost holds need no confirmation ------------------------------------------------------- */

TEST_OF(c26_close_after_a_loss_does_not_wait_for_a_killed_server, EVERY, 20)
{
	lk_client *client = set_up();
	struct claims held;

	claims_hold(&held, set, client, 500);
	server_kill(&server);
	claims_expect_expiry(&held);
	expect_quick_close(client);
}

TEST_OF(c26_close_after_a_loss_does_not_wait_for_a_silent_server, EVERY, 20)
{
	lk_client *client = set_up();
	struct claims held;

	claims_hold(&held, set, client, 500);
	/* The connection looks alive: its renewal is not overdue when the lease ends. */
	proxy_set_all(&proxy, &stall);
	claims_expect_expiry(&held);
	expect_quick_close(client);
	ck_assert_int_gt(proxy_count(&proxy).held[PROXY_COMMANDS][PROXY_TO_SERVER], 0);
}

TEST(c26_close_after_a_break_does_not_wait_for_a_silent_server)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	lk_lock *lock = lock_named(other, "a");

	hold_watched(client, "a", 30000);
	proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_SERVER, &stall);
	OK(lk_lock_break(lock, NULL));
	ck_assert(WITHIN(10000, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_BROKEN);
	expect_quick_close(client);
	OK(lk_client_close(other));
}

TEST_OF(c26_close_after_a_flush_does_not_wait_for_a_killed_server, EVERY, 20)
{
	lk_client *client = set_up();
	struct claims held;

	claims_hold(&held, set, client, 1000);
	redis_do(redis, "FLUSHALL");
	claims_expect_lost(&held, LK_LOST_TAKEN, now_ms() + 1000);
	server_kill(&server);
	expect_quick_close(client);
}

TEST_OF(c26_close_that_finds_the_store_silent_and_holds_nothing_is_quick, EVERY, 20)
{
	lk_client *client = set_up();
	struct claims held;

	claims_hold(&held, set, client, 0);
	claims_release(&held);
	proxy_set_all(&proxy, &stall);
	expect_quick_close(client);
}

/* ---- What the store may still keep needs it -------------------------------------------------- */

TEST(c26_close_with_a_valid_hold_is_unknown_when_the_server_is_gone)
{
	lk_client *client = set_up();

	hold_watched(client, "a", 60000);
	server_kill(&server);
	expect_unknown_close(client);
}

/* Its owner has no hold any more; the store keeps it until the lease ends. */
TEST(c26_close_after_a_maximum_hold_is_unknown_when_the_server_is_silent)
{
	const lk_lock_options brief = {.lease_ms = 60000, .max_hold_ms = 500};
	lk_client *client = set_up();
	lk_lock *lock = lock_with(client, "a", &brief);

	OK(lk_lock_acquire(lock, 0, NULL));
	proxy_set_all(&proxy, &stall);
	ck_assert(WITHIN(5000, lk_lock_state(lock) == LK_STATE_LOST));
	expect_unknown_close(client);
}

TEST(c26_close_after_an_unconfirmed_wait_is_unknown)
{
	lk_client *client = set_up(), *other = client_at(server.url);
	struct waiter waiter = {0};

	OK(lk_lock_acquire(lock_named(other, "a"), 0, NULL));
	waiter_start(&waiter, lock_of_handle(client, "a", 0), 1000, false);
	ck_assert(WITHIN(5000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	proxy_set_all(&proxy, &stall);
	ck_assert_int_eq(waiter_join(&waiter), LK_EUNKNOWN);
	/* The ticket is still queued, and may be granted. */
	EXPECT(lk_client_close(client), LK_EUNKNOWN);
	ck_assert_int_eq(redis_int(redis, "ZCARD lk:{a}:q"), 1);
	OK(lk_client_close(other));
}
