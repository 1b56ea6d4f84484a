/* SPDX-License-Identifier: MIT
 * A server that comes back different (S3, S4, S20 of the fault list): with the memory of an hour
 * ago, after its leases have ended, or with other commands than before. */
#include "harness/latch_watch.h"
#include "harness/permit_watch.h"
#include "harness/primitive.h"
#include "harness/watch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Save the present memory, which the server will load at each restart from now on. */
static void remember(void)
{
	redis_do(redis, "SAVE");
}

/* ---- S3: an old memory -------------------------------------------------------------------- */

TEST_LIMIT(s3_lock_of_an_old_memory_is_a_loss_and_its_queue_drains, 40)
{
	struct waiter waiter;
	lk_client *first, *second;
	lk_lock *old, *held;
	uint64_t fence;
	char ticket[200];

	fault_set_up(NULL);
	first = client_at(server.url);
	second = client_at(server.url);
	old = lock_leased(first, "a", 1000);
	OK(lk_lock_acquire(old, 0, NULL));
	/* In the old memory the first holds, and the second waits, in a thread that ends. */
	waiter_start(&waiter, lock_of_handle(second, "a", 1000), 5000, false);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	snprintf(ticket, sizeof(ticket), "%s", redis_text(redis, "ZRANGE lk:{a}:q 0 0"));
	remember();
	OK(lk_lock_release(old));
	OK(waiter_join(&waiter));
	/* Now a client that the old memory does not contain holds it, and another one waits. */
	held = hold_watched(second, "a", 1000);
	fence = hold_of(held).fence;
	waiter_start(&waiter, lock_of_handle(client_at(server.url), "a", 1000), 15000, false);
	ck_assert(WITHIN(2000, redis_int(redis, "ZCARD lk:{a}:q") == 1));
	fault_restart();
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "GET lk:{a}"), lk_client_id(first)));
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "ZRANGE lk:{a}:q 0 -1"), ticket));
	ck_assert(WITHIN(2000, losses.count == 1));
	ck_assert(losses.reason == LK_LOST_TAKEN || losses.reason == LK_LOST_EXPIRED);
	ck_assert_uint_eq(losses.fence, fence);
	ck_assert_int_eq(lk_lock_state(old), LK_STATE_NONE); /* it is not revived either */
	EXPECT(lk_lock_release(held), LK_ELOST);
	/* The old hold ends with its lease, the old ticket with the lease of its grant. */
	OK(waiter_join(&waiter));
	ck_assert_int_le(waiter.took_ms, 1000 + 1000 + 2500);
	ck_assert_uint_gt(waiter.fence, fence);
	ck_assert(WITHIN(1500, redis_int(redis, "EXISTS lk:{a} lk:{a}:q") == 0));
	ck_assert_int_eq(losses.count, 1);
	OK(lk_client_close(first));
	OK(lk_client_close(second));
}

TEST_LIMIT(s3_permits_of_an_old_memory_come_back, 40)
{
	lk_semaphore *old, *held;
	lk_client *first, *second;
	uint64_t gone, stays, later, all = 0;

	fault_set_up(NULL);
	first = client_at(server.url);
	second = client_at(server.url);
	old = semaphore_of(first, "a", 6, 1500);
	held = semaphore_watched(second, "a",
	                         (lk_semaphore_options){.capacity = 6, .lease_ms = 1500});
	gone = permits_of(old, 3, 0);
	stays = permits_of(held, 2, 0);
	remember();
	OK(lk_semaphore_release(old, gone));
	OK(lk_semaphore_release_some(held, stays, 1));
	later = permits_of(held, 5, 0);
	fault_restart();
	permits_add_up(redis, "a");
	ck_assert_int_eq(permits_used(redis, "a"), 5); /* 3 stale, and 2 of which 1 is kept */
	ck_assert(WITHIN(2500, permit_losses.count == 1));
	ck_assert_uint_eq(permit_losses.hold, later);
	EXPECT(lk_semaphore_release(held, later), LK_ELOST);
	/* Remembered permits that are still held stay; those without a holder end with their
	 * lease. */
	ck_assert_int_eq(hold_in(held, stays).count, 1);
	ck_assert(WITHIN(BACK_MS, lk_semaphore_acquire(old, 4, 1000, &all) == LK_OK));
	ck_assert_uint_gt(all, later);
	permits_add_up(redis, "a");
	ck_assert_int_gt(hold_in(held, stays).remaining_ms, 0);
	OK(lk_semaphore_release(held, stays));
	OK(lk_semaphore_release(old, all));
	ck_assert(permits_at_rest(redis, "a", 6));
	ck_assert_int_eq(permit_losses.count, 1);
	OK(lk_client_close(first));
	OK(lk_client_close(second));
}

/* Whether the step counted, once the connection is up again. */
static bool counts(lk_latch *latch, const char *name, int64_t remaining)
{
	lk_latch_step step = {.remaining = -1};

	ck_assert(WITHIN(BACK_MS, lk_latch_down(latch, 1, name, 0, &step) == LK_OK));
	ck_assert_int_eq(step.remaining, remaining);
	return step.counted;
}

TEST_LIMIT(s3_latch_of_an_old_memory_counts_from_there, 40)
{
	struct awaiter awaiters[2];
	lk_client *client, *other;
	lk_latch *latch, *theirs;
	uint64_t generation;

	fault_set_up(NULL);
	client = client_at(server.url);
	other = client_at(server.url);
	latch = latch_named(client, "a");
	theirs = latch_named(other, "a");
	OK(lk_latch_set(latch, 3, NULL));
	generation = latch_status(latch).generation;
	ck_assert(counts(latch, "one", 2));
	awaiter_start(&awaiters[0], theirs, 15000);
	remember();
	/* It opens, and the waiter is released; the old memory does not contain this. */
	ck_assert_int_eq(latch_down(latch, 2, "two"), 0);
	OK(awaiter_join(&awaiters[0]));
	fault_restart();
	ck_assert(!counts(latch, "one", 2)); /* it remembers this one */
	ck_assert_uint_eq(latch_status(latch).generation, generation);
	awaiter_start(&awaiters[1], theirs, 15000);
	ck_assert(counts(latch, "two", 1));
	ck_assert(!awaiters[1].ended);
	ck_assert(counts(latch, NULL, 0));
	OK(awaiter_join(&awaiters[1]));
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

/* ---- S4: it was down for longer than a lease ---------------------------------------------- */

/* End it by SIGTERM, as an init system does: it saves its memory and exits. */
static void shut_down(void)
{
	redis_do(redis, "CONFIG SET save %s", "3600 1");
	ck_assert(!kill(server.pid, SIGTERM));
	ck_assert(WITHIN(10000, proc_state(server.pid) == 'Z'));
}

TEST_OF(s4_clean_restart_after_the_leases_have_ended, EVERY, 40)
{
	struct claims held, waits;
	lk_client *client;

	fault_set_up(NULL);
	client = client_at(server.url);
	claims_hold(&held, set, client, 700);
	claims_queue(&waits, set & ~LEASED, client, 700, false);
	shut_down();
	/* Each loss is reported when its lease ends, neither later nor earlier. */
	claims_expect_expiry(&held);
	nap_ms(50);
	fault_restart();
	/* What has expired was not loaded, except the fences. */
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:{lock}"), 0);
	ck_assert_int_ge(redis_int(redis, "GET lk:fence"), (long long)held.of[0].fence);
	claims_release_lost(&held);
	held.set = set & LEASED;
	claims_hold_again(&held);
	/* A latch has no lease: it keeps its count, and the waiter still waits. */
	held.set = set & ~LEASED;
	claims_expect_still_waiting(&waits, 1);
	claims_expect_held(&held);
	claims_release(&held);
	claims_join(&waits, LK_OK);
	ck_assert(claims_at_rest(set));
	OK(lk_client_close(client));
}

/* ---- S20: a server with other commands ---------------------------------------------------- */

/* The number of connections with that name in that database. */
static int connections_called(const char *name, int db)
{
	char word[64], db_word[16];
	const char *at = redis_text(redis, "CLIENT LIST");
	int count = 0;

	snprintf(word, sizeof(word), " name=%s ", name);
	snprintf(db_word, sizeof(db_word), " db=%d ", db);
	while ((at = strstr(at, word))) {
		const char *found = strstr(at, db_word);
		count += found && found < strchrnul(at, '\n');
		at++;
	}
	return count;
}

/* The library does not carry facts from one server over to the next: it sends or checks what it
 * needs on each connection. */
TEST_LIMIT(s20_nothing_learned_of_one_server_is_believed_of_the_next, 40)
{
	/* Without the command that names connections, as in old servers. */
	static const char *const less[] = {"--rename-command", "CLIENT", "none", NULL};
	lk_client_options options = {.client_name = "app"};
	char url[100];
	lk_client *client;
	lk_lock *lock;
	uint64_t fence = 0, last = 0;
	lk_err err;

	fault_set_up(NULL);
	snprintf(url, sizeof(url), "%s&db=3", server.url);
	client = client_with(url, &options);
	lock = lock_leased(client, "a", 800);
	for (int i = 0; i < 4; i++) {
		bool is_less = i % 2;
		ck_assert(WITHIN(BACK_MS, lk_lock_acquire(lock, 1000, &fence) == LK_OK));
		ck_assert_uint_gt(fence, last);
		last = fence;
		redis_do(redis, "SELECT 3");
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a}"), 1);
		if (!is_less)
			ck_assert_int_eq(connections_called("app", 3), 2);
		/* The scripts were present at once, though no client had loaded them. */
		ck_assert_int_ge(redis_calls(redis, "eval"), 1);
		if (i < 3) {
			server.args[1] = is_less ? NULL : less[0];
			server.args[2] = is_less ? NULL : less[1];
			server.args[3] = is_less ? NULL : less[2];
			server.args[4] = NULL;
			fault_restart();
			ck_assert_int_eq(
				!strncmp(redis_text(redis, "CLIENT GETNAME"), "-ERR unknown", 12),
				!is_less);
			err = lk_lock_release(lock);
			ck_assert(err == LK_ELOST || err == LK_EUNKNOWN);
		}
	}
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}
