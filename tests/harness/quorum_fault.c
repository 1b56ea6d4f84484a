/* SPDX-License-Identifier: MIT
 * What a test of a fault of a quorum has: servers, proxies, clients. */
#include "quorum_fault.h"

#include <stdio.h>
#include <string.h>

#define CLOCKS_DIFFER_MS 200

struct quorum_setup quorum;
struct proxy quorum_proxies[QUORUM_SERVERS];
char quorum_far_url[120];

void quorum_fault_add_proxies(void)
{
	const struct proxy *proxies = quorum_proxies;

	for (int i = 0; i < QUORUM_SERVERS; i++)
		proxy_start(&quorum_proxies[i], &quorum.servers[i]);
	snprintf(quorum_far_url, sizeof(quorum_far_url),
	         "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", proxies[0].port,
	         proxies[1].port, proxies[2].port);
}

void quorum_fault_set_up(int64_t longest_ms)
{
	quorum_setup_begin(&quorum, longest_ms);
	quorum_fault_add_proxies();
}

lk_client *quorum_client(bool far, int64_t command_timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = command_timeout_ms};

	return client_with(far ? quorum_far_url : quorum.url, &options);
}

long long quorum_ask_server(int member, const char *command)
{
	struct redis *own = redis_open(&quorum.servers[member]);
	long long reply = redis_int(own, command);

	redis_close(own);
	return reply;
}

bool quorum_has_leg(int member)
{
	return quorum_ask_server(member, "EXISTS lk:{a}") == 1;
}

bool quorum_has_queue(int member)
{
	return quorum_ask_server(member, "EXISTS lk:{a}:q") == 1;
}

void quorum_await_legs(void)
{
	for (int i = 0; i < QUORUM_SERVERS; i++)
		ck_assert(WITHIN(BACK_MS, quorum_has_leg(i)));
}

bool quorum_is_clear(void)
{
	for (int i = 0; i < QUORUM_SERVERS; i++)
		if (quorum.servers[i].pid && (quorum_has_leg(i) || quorum_has_queue(i)))
			return false;
	return true;
}

static int64_t queue_of(lk_lock *lock)
{
	lk_lock_status status = {0};

	return lk_lock_query(lock, &status) ? -1 : status.queue_len;
}

void quorum_await_queue(lk_lock *lock, int64_t waiters)
{
	ck_assert(WITHIN(BACK_MS, queue_of(lock) == waiters));
}

void quorum_expect_soon(int64_t began_ms)
{
	ck_assert_int_lt(now_ms() - began_ms, QUORUM_SOON_MS);
}

void quorum_hold_and_wait(struct quorum_scene *scene, int64_t lease_ms, int64_t wait_ms)
{
	for (int i = 0; i < 3; i++)
		scene->clients[i] = quorum_client(false, QUORUM_SLOW_MS);
	scene->lock = hold_watched(scene->clients[0], "a", lease_ms);
	quorum_await_legs();
	for (int i = 0; i < 2; i++) {
		waiter_start(&scene->waiters[i],
		             lock_of_handle(scene->clients[i + 1], "a", lease_ms), wait_ms, true);
		quorum_await_queue(scene->lock, i + 1);
		/* The queue has the order of the servers' time, as the clients know it. */
		nap_ms(CLOCKS_DIFFER_MS);
	}
}

void quorum_serve_waiters(struct quorum_scene *scene)
{
	uint64_t fence = hold_of(scene->lock).fence;
	int64_t began_ms = now_ms();

	OK(lk_lock_release(scene->lock));
	for (int i = 0; i < 2; i++) {
		struct waiter *waiter = &scene->waiters[i];
		ck_assert_int_eq(waiter_join(waiter), LK_OK);
		ck_assert_uint_gt(waiter->fence, fence);
		fence = waiter->fence;
		OK(lk_lock_release(waiter->lock));
	}
	quorum_expect_soon(began_ms);
}

void quorum_close_all(struct quorum_scene *scene)
{
	for (int i = 0; i < 3; i++)
		OK(lk_client_close(scene->clients[i]));
}
