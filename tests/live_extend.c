/* SPDX-License-Identifier: MIT
 * An extended lease on a real server: no request shortens it. */
#include "harness/handles.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <latchkey.h>
#include <stdio.h>
#include <string.h>

#define KEY "lk:{a}"

struct scene {
	struct test_server server;
	struct redis *redis;
	lk_client *holder, *other;
	lk_lock *held, *wanted;
};

/* A hold of 2 s that was extended to 60 s, and another client. */
static void set_up(struct scene *scene, bool fixed)
{
	const lk_lock_options options = {.lease_ms = 2000, .fixed = fixed};

	server_start(&scene->server, NULL);
	scene->redis = redis_open(&scene->server);
	scene->holder = client_at(scene->server.url);
	scene->other = client_at(scene->server.url);
	scene->held = lock_with(scene->holder, "a", &options);
	scene->wanted = lock_with(scene->other, "a", &options);
	OK(lk_lock_acquire(scene->held, 0, NULL));
	OK(lk_lock_extend(scene->held, 60000));
	ck_assert_int_gt(redis_int(scene->redis, "PTTL %s", KEY), 55000);
}

static void tear_down(struct scene *scene)
{
	OK(lk_lock_release(scene->held));
	OK(lk_client_close(scene->holder));
	OK(lk_client_close(scene->other));
	redis_close(scene->redis);
	server_stop(&scene->server);
}

TEST(extended_lease_is_not_cut_by_a_try)
{
	struct scene scene;

	set_up(&scene, true);
	EXPECT(lk_lock_acquire(scene.wanted, 0, NULL), LK_EBUSY);
	ck_assert_int_gt(redis_int(scene.redis, "PTTL %s", KEY), 55000);
	ck_assert_int_gt(hold_of(scene.held).remaining_ms, 55000);
	tear_down(&scene);
}

TEST(extended_lease_is_not_cut_by_a_waiter)
{
	struct scene scene;

	set_up(&scene, false);
	EXPECT(lk_lock_acquire(scene.wanted, 50, NULL), LK_ETIMEDOUT);
	ck_assert_int_gt(redis_int(scene.redis, "PTTL %s", KEY), 55000);
	tear_down(&scene);
}

/* After a step back of the server's clock, a lease's end may be further away than any lease of this
 * hold.  The next request of a waiter shortens it to the lease in force. */
TEST(lease_end_beyond_its_length_is_cut_by_who_asks)
{
	struct scene scene;
	long long left;

	set_up(&scene, true);
	redis_do(scene.redis, "PEXPIRE %s 3600000", KEY);
	EXPECT(lk_lock_acquire(scene.wanted, 0, NULL), LK_EBUSY);
	left = redis_int(scene.redis, "PTTL %s", KEY);
	ck_assert_int_le(left, 60000);
	ck_assert_int_gt(left, 55000);
	redis_do(scene.redis, "PERSIST %s", KEY);
	EXPECT(lk_lock_acquire(scene.wanted, 0, NULL), LK_EBUSY);
	ck_assert_int_gt(redis_int(scene.redis, "PTTL %s", KEY), 55000);
	tear_down(&scene);
}

/* A late request from before an extension must not undo it. */
TEST(extension_to_less_does_not_shorten_what_the_store_keeps)
{
	struct scene scene;

	set_up(&scene, true);
	OK(lk_lock_extend(scene.held, 500));
	ck_assert_int_gt(redis_int(scene.redis, "PTTL %s", KEY), 55000);
	ck_assert_int_le(hold_of(scene.held).remaining_ms, 500);
	tear_down(&scene);
}
