/* SPDX-License-Identifier: MIT
 * The store of etcd is changed by others, is full, or forgets log-ins (E12, E16, E18, E20 and E21
 * of the fault list). */
#include "harness/etcd_fault.h"
#include "harness/rivals.h"

#include <stdio.h>
#include <string.h>

#define LEASE_MS 4000
#define LONG_LEASE_MS 60000

static lk_client *clients[3];
static lk_lock *locks[3];
static struct etcd_waiter waiters[3]; /* the first one is not used */

/* The first client holds the lock, and the others wait for it, in this order. */
static void queue(const char *name, int64_t lease_ms)
{
	for (int i = 0; i < 3; i++) {
		clients[i] = etcd_client(ETCD_ALL);
		locks[i] = etcd_lock(clients[i], name, lease_ms);
	}
	OK(lk_lock_acquire(locks[0], ETCD_SOON_MS, NULL));
	for (int i = 1; i < 3; i++) {
		etcd_waiter_start(&waiters[i], locks[i], LK_FOREVER);
		ck_assert(WITHIN(ETCD_SOON_MS, etcd_tickets(0, name) == i + 1));
	}
}

static void serve(int i, uint64_t *fence)
{
	OK(etcd_waiter_join(&waiters[i]));
	ck_assert_uint_gt(waiters[i].fence, *fence);
	*fence = waiters[i].fence;
}

static void end(void)
{
	for (int i = 0; i < 3; i++)
		OK(lk_client_close(clients[i]));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
	etcd_stop(&etcd);
}

/* ---- E12: by hand --------------------------------------------------------------------------- */

TEST_LIMIT(e12_mailbox_that_was_deleted_delays_and_loses_nothing, 120)
{
	uint64_t fence;

	etcd_fault_set_up();
	queue("a", LONG_LEASE_MS);
	fence = hold_of(locks[0]).fence;
	for (int i = 1; i < 3; i++) {
		int64_t left_ms = now_ms();
		etcd_delete(0, "lk/c/");
		OK(lk_lock_release(locks[i - 1]));
		serve(i, &fence);
		ck_assert_int_le(now_ms() - left_ms, 6000); /* not its next look, after 10 s */
	}
	OK(lk_lock_release(locks[2]));
	end();
}

TEST_LIMIT(e12_ticket_of_a_waiter_that_was_deleted_is_put_again, 120)
{
	char prefix[100];
	uint64_t fence;

	etcd_fault_set_up();
	queue("a", LONG_LEASE_MS);
	fence = hold_of(locks[0]).fence;
	snprintf(prefix, sizeof(prefix), "lk/L/a/%s", lk_client_id(clients[1]));
	etcd_delete(0, prefix);
	OK(lk_lock_release(locks[0]));
	serve(2, &fence);
	OK(lk_lock_release(locks[2]));
	serve(1, &fence);
	OK(lk_lock_release(locks[1]));
	end();
}

/* Those of the holder and of all waiters, one after the other. */
TEST_LIMIT(e12_leases_that_were_revoked_are_a_loss_and_waiters_go_on, 120)
{
	uint64_t fence;
	lk_err err;

	etcd_fault_set_up();
	queue("a", LEASE_MS);
	fence = hold_of(locks[0]).fence;
	etcd_revoke_all();
	ck_assert(WITHIN(ETCD_SOON_MS, lk_lock_state(locks[0]) == LK_STATE_LOST));
	ck_assert(WITHIN(ETCD_SOON_MS, losses.count > 0));
	EXPECT(lk_lock_release(locks[0]), LK_ELOST);
	ck_assert(WITHIN(ETCD_SOON_MS, waiters[1].ended || waiters[2].ended));
	for (int i = waiters[1].ended ? 1 : 2, n = 0; n < 2; i = 3 - i, n++) {
		OK(etcd_waiter_join(&waiters[i]));
		ck_assert_uint_gt(waiters[i].fence, fence);
		/* Lost, if it had the lock while leases were being revoked, its own after that. */
		err = lk_lock_release(locks[i]);
		ck_assert_msg(!err || err == LK_ELOST, "%s", lk_err_name(err));
	}
	ck_assert_uint_ne(waiters[1].fence, waiters[2].fence);
	for (int i = 1; i < 3; i++) {
		OK(lk_lock_acquire(locks[i], ETCD_SOON_MS, NULL));
		OK(lk_lock_release(locks[i]));
	}
	end();
}

/* ---- E16: compactions ----------------------------------------------------------------------- */

TEST_LIMIT(e16_compactions_cost_no_wait, 120)
{
	struct rivals rivals;
	uint64_t fence;
	int64_t end_ms;

	etcd_fault_set_up();
	queue("a", LONG_LEASE_MS);
	fence = hold_of(locks[0]).fence;
	rivals_start(&rivals, &noun_lock, etcd_url_of(ETCD_ALL, false, "?command_timeout=1000"),
	             3000);
	/* The waiters begin to watch those before them after a second. */
	for (end_ms = now_ms() + 2000; now_ms() < end_ms;)
		etcd_compact(0);
	rivals_go_on(&rivals, ETCD_SOON_MS);
	rivals_stop(&rivals);
	for (int i = 1; i < 3; i++) {
		OK(lk_lock_release(locks[i - 1]));
		serve(i, &fence);
	}
	OK(lk_lock_release(locks[2]));
	end();
}

/* ---- E18: no space -------------------------------------------------------------------------- */

static void fill(void)
{
	ck_assert(!shell("head -c 1000000 /dev/zero | tr '\\0' x >%s/value", etcd.dir));
	for (int i = 0; i < 20; i++)
		if (strstr(etcd_ctl(&etcd, "put fill/%d <%s/value 2>&1 || true", i, etcd.dir),
		           "database space exceeded"))
			return;
	ck_abort_msg("the store is not full");
}

static void make_room(void)
{
	etcd_delete(0, "fill/");
	etcd_compact(0);
	for (int i = 0; i < etcd.count; i++)
		etcd_ctl(&etcd, "--endpoints=http://127.0.0.1:%d defrag", etcd.nodes[i].port);
	etcd_ctl(&etcd, "alarm disarm");
}

/* What happened, what still works, and the cure. */
static void says_full(void)
{
	ck_assert_msg(strstr(lk_errmsg(),
	                     "database space exceeded (nothing new is acquired or extended; holds "
	                     "are renewed and released; etcdctl compact, defrag, then alarm "
	                     "disarm)"),
	              "%s", lk_errmsg());
}

TEST_LIMIT(e18_full_store_refuses_grants_but_renews_and_releases, 180)
{
	lk_lock_status status;
	lk_lock *other;
	uint64_t fence;

	etcd.args[0] = "--quota-backend-bytes";
	etcd.args[1] = "4194304";
	etcd_fault_set_up();
	queue("a", LEASE_MS);
	fence = hold_of(locks[0]).fence;
	OK(lk_lock_release(locks[0]));
	serve(1, &fence); /* its letter names the next one */
	fill();
	other = etcd_lock(clients[1], "b", LEASE_MS);
	for (int64_t wait_ms = 0; wait_ms <= 1500; wait_ms += 1500) {
		EXPECT(lk_lock_acquire(other, wait_ms, NULL), LK_ESERVER);
		says_full();
	}
	EXPECT(lk_lock_extend(locks[1], 20 * LEASE_MS), LK_ESERVER);
	says_full();
	OK(lk_lock_extend(locks[1], LEASE_MS));
	OK(lk_lock_query(locks[1], &status));
	ck_assert_uint_eq(status.fence, hold_of(locks[1]).fence);
	stays_held(locks[1], LEASE_MS + 500);
	OK(lk_lock_release(locks[1]));
	serve(2, &fence);
	/* There is no room for a letter to the holder, either: its next renewal shows it. */
	OK(lk_lock_break(locks[0], NULL));
	ck_assert(WITHIN(ETCD_SOON_MS, losses.count == 1));
	EXPECT(lk_lock_release(locks[2]), LK_ELOST);
	make_room();
	OK(lk_lock_acquire(other, ETCD_SOON_MS, NULL));
	OK(lk_lock_release(other));
	ck_assert_int_eq(losses.count, 1);
	end();
}

/* ---- E20 and E21: users --------------------------------------------------------------------- */

/* Start nodes with passwords, which are checked quickly: there are many log-ins, and a machine may
 * be loaded.  Looks at the store are root's. */
static void protect(void)
{
	etcd.args[0] = "--bcrypt-cost";
	etcd.args[1] = "4";
	etcd_fault_set_up();
	etcd_ctl(&etcd, "user add root:secret");
	etcd_ctl(&etcd, "user grant-role root root");
	etcd_ctl(&etcd, "auth enable");
	etcd_login = "root:secret@";
}

TEST_LIMIT(e20_expired_tokens_cost_no_hold_and_no_wait, 120)
{
	uint64_t fence;
	int64_t left_ms;

	etcd.args[2] = "--auth-token-ttl";
	etcd.args[3] = "1";
	protect();
	queue("a", LEASE_MS);
	fence = hold_of(locks[0]).fence;
	stays_held(locks[0], LEASE_MS);
	for (int i = 1; i < 3; i++) {
		left_ms = now_ms();
		OK(lk_lock_release(locks[i - 1]));
		serve(i, &fence);
		ck_assert_int_le(now_ms() - left_ms, 6000);
	}
	OK(lk_lock_release(locks[2]));
	end();
}

#define AS_ROOT "--user root:secret "

TEST_LIMIT(e21_right_that_is_missing_is_an_error_and_a_lost_one_a_loss, 120)
{
	lk_client *client;
	lk_lock *lock;
	int64_t revoked_ms;

	protect();
	etcd_ctl(&etcd, AS_ROOT "user add app:secret");
	etcd_ctl(&etcd, AS_ROOT "role add app");
	etcd_ctl(&etcd, AS_ROOT "user grant-role app app");
	etcd_ctl(&etcd, AS_ROOT "role grant-permission app --prefix=true readwrite lk/L/");
	etcd_login = "app:secret@";
	client = etcd_client(ETCD_ALL);
	etcd_login = "root:secret@";
	lock = etcd_lock(client, "a", LEASE_MS);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EAUTH);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "permission denied"));
	etcd_ctl(&etcd, AS_ROOT "role grant-permission app --prefix=true readwrite lk/");
	ck_assert(WITHIN(ETCD_SOON_MS, !lk_lock_acquire(lock, ETCD_SOON_MS, NULL)));
	revoked_ms = now_ms();
	etcd_ctl(&etcd, AS_ROOT "role revoke-permission app --prefix=true lk/");
	ck_assert(WITHIN(ETCD_SOON_MS, losses.count == 1));
	ck_assert_int_le(losses.at_ms - revoked_ms, LEASE_MS + 4000);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EAUTH);
	etcd_ctl(&etcd, AS_ROOT "role grant-permission app --prefix=true readwrite lk/");
	/* What was sent before may still be refused. */
	ck_assert(WITHIN(ETCD_SOON_MS, !lk_lock_acquire(lock, ETCD_SOON_MS, NULL)));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	ck_assert(WITHIN(ETCD_SOON_MS, etcd_is_clear(0)));
	etcd_stop(&etcd);
}
