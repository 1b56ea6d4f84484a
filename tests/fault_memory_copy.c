/* SPDX-License-Identifier: MIT
 * A server that comes back with an older memory (G6, G8, G14, G15 of the fault list), or with none
 * (G1, G7, G12, G13): within the grace no client gets anything by what the memory has of earlier
 * holders. */
#include "harness/grace.h"
#include "harness/permit_watch.h"
#include "harness/watch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static lk_counters counters_of(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters;
}

static lk_lock *lock_in_store(const struct waiter *waiter)
{
	char id[LK_HOLDER_ID_SIZE];
	memcpy(id, hold_of(waiter->lock).holder_id, sizeof(id));
	return *id && strstr(redis_text(redis, "GET lk:{a}"), id) ? waiter->lock : NULL;
}

/* Save the present memory, which the server will load at its restart. */
static void remember(void)
{
	redis_do(redis, "SAVE");
}

static lk_client *client_behind(const struct proxy *before, int64_t command_timeout_ms)
{
	char more[60];

	snprintf(more, sizeof(more), "&command_timeout=%lld", (long long)command_timeout_ms);
	return client_at(grace_url(before->port, GRACE_MS, more));
}

/* Nothing of that client reaches the server from now on. */
static void shut_off(struct proxy *before)
{
	proxy_refuse(before, true);
	proxy_cut(before, PROXY_COMMANDS, false);
	proxy_cut(before, PROXY_MESSAGES, false);
}

/* The server grants the next request and executes it, but no response arrives. */
static void mute(struct proxy *before)
{
	const struct proxy_fault drop = {.drop = true};

	for (int link = 0; link < PROXY_LINKS; link++)
		proxy_set(before, (enum proxy_link)link, PROXY_TO_CLIENT, &drop);
}

/* The way is whole again when the server is back: whoever connects loses nothing of the grace. */
static void heal_and_restart(struct proxy *before)
{
	server_kill(&server);
	proxy_heal(before);
	fault_restart();
}

/* ---- G6: an older holder ------------------------------------------------------------------ */

/* A replica with an older memory is promoted.  It shows an earlier holder: the later one, whose
 * fence is larger, reclaims the lock. */
TEST_LIMIT(g6_later_holder_takes_its_lock_from_an_earlier_one, 40)
{
	struct test_server replica;
	struct redis *to_replica;
	lk_client *first, *second, *third;
	lk_lock *old, *held;
	struct waiter waiter;
	uint64_t fence;

	grace_set_up(NULL);
	server_start(&replica, NULL);
	to_replica = redis_open(&replica);
	first = grace_client();
	second = grace_client();
	third = grace_client();
	old = lock_leased(first, "a", 5 * LEASE_MS);
	OK(lk_lock_acquire(old, 0, NULL));
	redis_do(to_replica, "REPLICAOF 127.0.0.1 %lld", (long long)server.port);
	ck_assert(WITHIN(10000, redis_int(to_replica, "EXISTS lk:{a}") == 1));
	redis_do(to_replica, "REPLICAOF 127.0.0.1 1"); /* hears nothing more */
	OK(lk_lock_release(old));
	held = hold_watched(second, "a", LEASE_MS);
	fence = hold_of(held).fence;
	server_kill(&server);
	redis_do(to_replica, "REPLICAOF NO ONE");
	redis_do(to_replica, "CONFIG SET port %lld", (long long)server.port);
	redis = to_replica;
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(first)));
	waiter_start(&waiter, lock_of_handle(third, "a", LEASE_MS), 15000, false);
	ck_assert(WITHIN(LEASE_MS, counters_of(second).reclaimed == 1));
	stays_held(held, GRACE_MS + 500);
	ck_assert(!waiter.ended);
	ck_assert_uint_eq(hold_of(held).fence, fence);
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(second)));
	OK(lk_lock_release(held));
	OK(waiter_join(&waiter));
	ck_assert_uint_gt(waiter.fence, fence);
	OK(lk_client_close(first));
	OK(lk_client_close(second));
	OK(lk_client_close(third));
	server_stop(&replica);
}

/* A client that holds by its own clock does not take it from a later holder. */
TEST_LIMIT(g6_earlier_holder_does_not_take_its_lock_from_a_later_one, 40)
{
	struct proxy far;
	lk_client *first, *second;
	lk_lock *old, *held;
	char value[200];

	grace_set_up(NULL);
	proxy_start(&far, &server);
	first = client_behind(&far, 2000);
	second = grace_client();
	old = hold_watched(first, "a", 4 * LEASE_MS);
	shut_off(&far);
	/* An operator ends it by hand, and another client gets the lock. */
	redis_do(redis, "DEL lk:{a}");
	held = lock_leased(second, "a", LEASE_MS);
	OK(lk_lock_acquire(held, 0, NULL));
	fault_restart();
	ck_assert(WITHIN(LEASE_MS, counters_of(second).reclaimed == 1));
	snprintf(value, sizeof(value), "%s", redis_text(redis, "GET lk:{a}"));
	proxy_heal(&far);
	ck_assert(WITHIN(BACK_MS, losses.count == 1));
	ck_assert_int_eq(losses.reason, LK_LOST_TAKEN);
	ck_assert_str_eq(redis_text(redis, "GET lk:{a}"), value);
	ck_assert(lk_lock_is_mine(held));
	EXPECT(lk_lock_release(old), LK_ELOST);
	OK(lk_lock_release(held));
	OK(lk_client_close(first));
	OK(lk_client_close(second));
}

/* ---- G7, G8: hand-offs in the grace ------------------------------------------------------- */

/* What was reclaimed is known: its release serves the next waiter at once, and so does that one's
 * release. */
TEST_LIMIT(g7_reclaimed_lock_is_handed_off_in_the_grace, 40)
{
	struct waiter waits[2];
	lk_client *client;
	lk_lock *held;

	grace_set_up(NULL);
	client = grace_client();
	held = hold_watched(client, "a", LEASE_MS);
	for (int i = 0; i < 2; i++) {
		waiter_start(&waits[i], lock_of_handle(grace_client(), "a", LEASE_MS), 15000,
		             i == 0);
		ck_assert(WITHIN(BACK_MS, redis_int(redis, "ZCARD lk:{a}:q") == i + 1));
	}
	fault_restart();
	ck_assert(WITHIN(LEASE_MS, counters_of(client).reclaimed == 1));
	ck_assert(WITHIN(BACK_MS, redis_int(redis, "ZCARD lk:{a}:q") == 2));
	ck_assert(!waits[0].ended && !waits[1].ended);
	OK(lk_lock_release(held));
	for (int i = 0; i < 2; i++)
		ck_assert(WITHIN(GRACE_MS, waits[0].ended || waits[1].ended));
	ck_assert_int_gt(grace_left_ms(), 0);
	if (waits[0].ended)
		OK(lk_lock_release(waits[0].lock));
	for (int i = 0; i < 2; i++)
		OK(waiter_join(&waits[i]));
	ck_assert_int_gt(grace_left_ms(), 0);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} lk:{a}:q"), 0);
	OK(lk_client_close(client));
}

/* Free permits may be those of a holder that has not reclaimed them yet. */
TEST_LIMIT(g8_permits_are_not_granted_in_the_grace, 40)
{
	struct permit_wait waiter;
	lk_client *client;
	lk_semaphore *semaphore;
	uint64_t hold;

	grace_set_up(NULL);
	client = grace_client();
	semaphore = semaphore_of(client, "a", 2, LEASE_MS);
	hold = permits_of(semaphore, 2, 0);
	permit_wait_queue(&waiter, redis, "a", semaphore_of(grace_client(), "a", 2, LEASE_MS), 1,
	                  false);
	fault_restart();
	ck_assert(WITHIN(LEASE_MS, counters_of(client).reclaimed == 1));
	ck_assert(WITHIN(BACK_MS, permits_queue(redis, "a") == 1));
	OK(lk_semaphore_release(semaphore, hold));
	ck_assert_int_eq(permits_used(redis, "a"), 0);
	OK(lk_semaphore_resize(semaphore, 3)); /* serves the queue, too */
	for (;;) {
		bool ended = waiter.ended;
		if (grace_left_ms() <= 0)
			break;
		ck_assert(!ended);
		nap_ms(2);
	}
	OK(permit_wait_join(&waiter));
	ck_assert(permits_at_rest(redis, "a", 3));
	OK(lk_client_close(client));
}

/* All permits are in use, and the older memory has others in use that were released since. */
TEST_LIMIT(g8_released_permits_of_a_copy_make_room, 40)
{
	lk_client *first, *second, *third;
	lk_semaphore *old, *held, *small;
	uint64_t gone, large, one;

	grace_set_up(NULL);
	first = grace_client();
	second = grace_client();
	third = grace_client();
	old = semaphore_of(first, "a", 4, 4 * LEASE_MS);
	gone = permits_of(old, 3, 0);
	remember();
	OK(lk_semaphore_release(old, gone));
	held = semaphore_watched(second, "a",
	                         (lk_semaphore_options){.capacity = 4, .lease_ms = LEASE_MS});
	large = permits_of(held, 3, 0);
	small = semaphore_of(third, "a", 4, LEASE_MS);
	one = permits_of(small, 1, 0);
	fault_restart();
	ck_assert(WITHIN(LEASE_MS, counters_of(second).reclaimed == 1));
	ck_assert(WITHIN(LEASE_MS, counters_of(third).reclaimed == 1));
	permits_add_up(redis, "a");
	ck_assert_int_eq(permits_used(redis, "a"), 4);
	ck_assert_int_gt(hold_in(held, large).remaining_ms, 0);
	ck_assert_int_gt(hold_in(small, one).remaining_ms, 0);
	ck_assert_int_eq(permit_losses.count, 0);
	OK(lk_semaphore_release(held, large));
	OK(lk_semaphore_release(small, one));
	OK(lk_client_close(first));
	OK(lk_client_close(second));
	OK(lk_client_close(third));
}

/* The older memory has a smaller capacity: of two holds that fitted into the larger one, the second
 * to be reclaimed is lost. */
TEST_LIMIT(g8_reclaim_does_not_exceed_the_capacity, 40)
{
	static const lk_semaphore_options options = {.capacity = 4, .lease_ms = LEASE_MS};
	lk_semaphore *semaphore;
	uint64_t holds[2];
	lk_client *client;

	grace_set_up(NULL);
	client = grace_client();
	semaphore = semaphore_watched(client, "a", options);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 0)));
	remember();
	OK(lk_semaphore_resize(semaphore, 6));
	for (int i = 0; i < 2; i++)
		holds[i] = permits_of(semaphore, 3, 0);
	fault_restart();
	ck_assert(WITHIN(LEASE_MS, permit_losses.count == 1));
	ck_assert_int_eq(permit_losses.reason, LK_LOST_TAKEN);
	ck_assert(WITHIN(LEASE_MS, counters_of(client).reclaimed == 1));
	permits_add_up(redis, "a");
	ck_assert_int_eq(permits_used(redis, "a"), 3);
	ck_assert_int_eq((lk_semaphore_release(semaphore, holds[0]) == LK_OK) +
	                         (lk_semaphore_release(semaphore, holds[1]) == LK_OK),
	                 1);
	OK(lk_client_close(client));
}

/* ---- G13: a client that is stopped meanwhile ---------------------------------------------- */

/* Hold a lock; when the test asks, report how many losses there were, and the last reason. */
static int hold_in_process(void *arg, int in, int out)
{
	const int64_t *lease_ms = arg;
	lk_lock *lock = hold_watched(grace_client(), "a", *lease_ms);
	char byte;

	if (!line_write(out, "%llu", (unsigned long long)hold_of(lock).fence) ||
	    read(in, &byte, 1) != 1)
		return 1;
	if (!WITHIN(5000, losses.count == 1))
		return line_write(out, "no loss"), 1;
	line_write(out, "%s, %s", lk_lost_reason_name(losses.reason),
	           lk_err_name(lk_lock_release(lock)));
	return 0;
}

static void stopped_through_the_grace(int64_t lease_ms, lk_lost_reason reason)
{
	struct process holder;
	lk_client *client;
	lk_lock *lock;
	char expected[100];
	unsigned long long fence;

	grace_set_up(NULL);
	process_start(&holder, hold_in_process, &lease_ms);
	fence = strtoull(line_read(holder.out, 10000), NULL, 10);
	process_pause(&holder);
	fault_restart();
	client = grace_client();
	lock = lock_leased(client, "a", 10000);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EBUSY);
	OK(lk_lock_acquire(lock, GRACE_MS + LATE_MS, NULL));
	ck_assert_int_le(grace_left_ms(), 0);
	ck_assert_uint_gt(hold_of(lock).fence, fence);
	process_continue(&holder);
	ck_assert(write(holder.in, "!", 1) == 1);
	snprintf(expected, sizeof(expected), "%s, %s", lk_lost_reason_name(reason),
	         lk_err_name(LK_ELOST));
	ck_assert_str_eq(line_read(holder.out, 10000), expected);
	ck_assert(process_succeeded(&holder, 10000));
	ck_assert(lk_lock_is_mine(lock));
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(client)));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST_LIMIT(g13_client_stopped_through_the_grace_learns_of_its_loss, 40)
{
	stopped_through_the_grace(LEASE_MS, LK_LOST_EXPIRED);
}

/* Its lease is longer than the grace, which does not cover it: it holds by its own clock, but its
 * reclaim is too late. */
TEST_LIMIT(g13_late_reclaim_takes_nothing, 40)
{
	stopped_through_the_grace(20000, LK_LOST_TAKEN);
}

/* ---- G12: a long lease -------------------------------------------------------------------- */

static void note_line(void *arg, lk_log_level level, const char *line)
{
	atomic_int *lines = arg;

	if (level == LK_LOG_WARN && strstr(line, "is longer than the grace of 2.5 s"))
		++*lines;
}

/* The log says it once for a client. */
TEST(g12_lease_longer_than_the_grace_is_logged)
{
	static atomic_int lines;
	const lk_client_options options = {.log = note_line, .log_arg = &lines};
	lk_client *client;
	lk_lock *lock;

	grace_set_up(NULL);
	client = client_with(grace_url(server.port, GRACE_MS, ""), &options);
	lock = lock_leased(client, "a", GRACE_MS);
	OK(lk_lock_acquire(lock, 0, NULL));
	OK(lk_lock_release(lock));
	nap_ms(100);
	ck_assert_int_eq(lines, 0);
	for (int i = 0; i < 2; i++) {
		lock = lock_leased(client, i ? "c" : "b", GRACE_MS + 1);
		OK(lk_lock_acquire(lock, 0, NULL));
		OK(lk_lock_release(lock));
		ck_assert(WITHIN(2000, lines == 1));
	}
	OK(lk_client_close(client));
	ck_assert_int_eq(lines, 1);
}

/* ---- G14: a late leave -------------------------------------------------------------------- */

/* The lost memory executed the leave of the first holder, and granted to the second one.  The older
 * memory shows the first one as the holder: its leave, sent again, must not serve the third. */
TEST_LIMIT(g14_late_leave_of_an_earlier_holder_serves_nobody, 40)
{
	struct proxy far[2];
	struct waiter second, third;
	lk_client *clients[2], *late;
	lk_lock *old;

	grace_set_up(NULL);
	for (int i = 0; i < 2; i++)
		proxy_start(&far[i], &server);
	clients[0] = client_behind(&far[0], 300);
	clients[1] = client_behind(&far[1], 2000);
	old = lock_leased(clients[0], "a", 10 * LEASE_MS);
	OK(lk_lock_acquire(old, 0, NULL));
	remember();
	waiter_start(&second, lock_of_handle(clients[1], "a", 2 * LEASE_MS), 15000, true);
	ck_assert(WITHIN(BACK_MS, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	mute(&far[0]);
	EXPECT(lk_lock_release(old), LK_EUNKNOWN);
	OK(waiter_join(&second));
	ck_assert_ptr_eq(lock_in_store(&second), second.lock);
	shut_off(&far[0]);
	shut_off(&far[1]);
	fault_restart();
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(clients[0])));
	late = grace_client();
	waiter_start(&third, lock_of_handle(late, "a", LEASE_MS), 15000, false);
	ck_assert(WITHIN(BACK_MS, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	proxy_heal(&far[0]);
	ck_assert(WITHIN(BACK_MS, redis_int(redis, "EXISTS lk:{a}") == 0));
	proxy_heal(&far[1]);
	ck_assert(WITHIN(BACK_MS, lock_in_store(&second)));
	ck_assert_int_gt(grace_left_ms(), 0);
	ck_assert(!third.ended);
	ck_assert(WITHIN(BACK_MS, counters_of(clients[1]).reclaimed == 1));
	OK(lk_lock_release(second.lock));
	OK(waiter_join(&third));
	ck_assert_uint_gt(third.fence, second.fence);
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
	OK(lk_client_close(late));
}

/* ---- G15: a grant of the old memory ------------------------------------------------------- */

/* The old memory granted, and the response was lost: the client waits for the end of the grace as
 * all others do, since that memory may have granted to another client later. */
TEST_OF(g15_unheard_grant_of_the_old_memory_waits_for_the_end, LEASED, 40)
{
	struct proxy far;
	struct claims waits;
	lk_client *client;

	grace_set_up(NULL);
	proxy_start(&far, &server);
	client = client_behind(&far, 20000);
	claims_open(&waits, set, client, 8 * LEASE_MS);
	mute(&far);
	claims_start(&waits, 15000, true);
	ck_assert(WITHIN(BACK_MS, redis_int(redis, "EXISTS lk:{lock} lk:{semaphore}:h") == 2));
	remember();
	heal_and_restart(&far);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{lock} lk:{semaphore}:h"), 2);
	grace_sit_out(&waits);
	claims_join(&waits, LK_OK);
	ck_assert(claims_waiting(set, 0));
	claims_expect_stored(&waits);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* The old memory made a short grant, which must be claimed.  The claim in the grace finds nothing,
 * and the client waits as all others do. */
TEST_OF(g15_claim_of_a_grant_of_the_old_memory_waits_for_the_end, LEASED, 40)
{
	struct proxy far;
	struct claims held, waits;
	lk_client *client, *holder;

	grace_set_up(NULL);
	proxy_start(&far, &server);
	holder = grace_client();
	client = client_behind(&far, 20000);
	claims_hold(&held, set, holder, 20000);
	claims_queue(&waits, set, client, 12000, true);
	nap_ms(3100); /* the grant to an old ticket must be claimed */
	proxy_set(&far, PROXY_COMMANDS, PROXY_TO_SERVER, &(struct proxy_fault){.drop = true});
	claims_release(&held);
	OK(lk_client_close(holder));
	ck_assert(WITHIN(BACK_MS, claims_waiting(set, 0)));
	remember();
	ck_assert(!claims_any_ended(&waits));
	heal_and_restart(&far);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{lock} lk:{semaphore}:h"), 2);
	grace_sit_out(&waits);
	claims_join(&waits, LK_OK);
	ck_assert(claims_waiting(set, 0));
	claims_expect_stored(&waits);
	claims_release(&waits);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* ---- Fixed leases, and releases without a link -------------------------------------------- */

/* A fixed lease is reclaimed, and ends when it would have ended. */
TEST_OF(g1_fixed_lease_ends_when_it_would_have_ended, LEASED, 40)
{
	struct claims held, waits;
	lk_client *client;

	grace_set_up(NULL);
	client = grace_client();
	claims_init(&held, set, client, GRACE_MS + 1000);
	EACH (claim, &held) {
		claim->fixed = true;
		OK(claim->primitive->open(claim, false));
		OK(claim->primitive->hold(claim, 0));
	}
	claims_queue(&waits, set, grace_client(), LEASE_MS, false);
	nap_ms(500);
	fault_restart();
	ck_assert(WITHIN(LEASE_MS, counters_of(client).reclaimed == 3));
	claims_expect_stored(&held);
	ck_assert_int_le(redis_int(redis, "PTTL lk:{lock}"), GRACE_MS + 600);
	grace_sit_out(&waits);
	claims_expect_expiry(&held);
	claims_join(&waits, LK_OK);
	claims_release_lost(&held);
	OK(lk_client_close(client));
}

static void *release_all(void *held)
{
	claims_release(held);
	return NULL;
}

/* They are released before anything can be granted to another client. */
TEST_OF(g1_release_without_a_link_over_the_loss_is_no_loss, LEASED, 40)
{
	struct proxy far;
	struct claims held;
	lk_client *client;
	pthread_t thread;

	grace_set_up(NULL);
	proxy_start(&far, &server);
	client = client_behind(&far, 8000);
	claims_open(&held, set, client, LEASE_MS);
	EACH (claim, &held)
		OK(claim->primitive->hold(claim, 0));
	shut_off(&far);
	claims_expect_unsure(&held);
	fault_restart();
	ck_assert(!pthread_create(&thread, NULL, release_all, &held));
	nap_ms(200);
	proxy_heal(&far);
	pthread_join(thread, NULL);
	EACH (claim, &held)
		ck_assert_int_eq(claim->lost.count, 0);
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{lock} lk:{semaphore}:h"), 0);
	OK(lk_client_close(client));
}
