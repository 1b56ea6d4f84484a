/* SPDX-License-Identifier: MIT
 * Answers of etcd that come after something else has changed what they mean, in virtual time. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"
#include "etcd/session_parts.h"

#include <stdio.h>
#include <string.h>

static const struct em_setup one = {.members = 1}, five = {.members = 5};

static struct lk__etcd_lease *lease_of(int client, int64_t ttl_s)
{
	struct lk__etcd_lease *lease = ve.client[client].session.leases;

	while (lease && lease->ttl_s != ttl_s)
		lease = lease->next;
	ck_assert(lease);
	return lease;
}

/* The ticket was put under a lease that has ended since: it is gone, and another client holds. */
static void lease_ends_before_the_answer(bool again)
{
	struct lk__wait_queue *other, *third;
	struct lk__op *op, *op3 = NULL;

	ve_start(&one, 2);
	other = ve_open(0, "other", VE_LEASE_MS, false);
	third = ve_open(0, "third", VE_LEASE_MS, false);
	op = ve_acquire_of(0, other, false);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_hold_back();
	op = ve_acquire(0);
	ve_pass(10);
	ck_assert_int_eq(ve_tickets(), 1);
	ve_revoke(lease_of(0, VE_LEASE_MS / 1000)->id);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_pass(2500); /* the keep-alive shows it */
	ck_assert_int_ne(lease_of(0, VE_LEASE_MS / 1000)->state, LK__LEASE_LIVE);
	if (again) {
		op3 = ve_acquire_of(0, third, false);
		ve_pass(100);
		ck_assert_int_eq(lease_of(0, VE_LEASE_MS / 1000)->state, LK__LEASE_LIVE);
	}
	ve_holds(1);
	ve_let_go();
	ve_pass(100);
	ve_waits(op);
	ck_assert_int_eq(ve_state(1), LK_STATE_HELD);
	ve_releases(1);
	ve_pass(2000);
	ve_done(op, LK_OK);
	ve_releases(0);
	if (op3) {
		ve_done(op3, LK_OK);
		ve_release_of(0, third);
	}
	ve_release_of(0, other);
	ve_pass(1000);
	ve_end();
}

TEST(grant_under_a_lease_that_has_ended_does_not_count)
{
	lease_ends_before_the_answer(false);
}

TEST(grant_under_a_lease_that_was_granted_again_does_not_count)
{
	lease_ends_before_the_answer(true);
}

/* The lease of an extension that failed has little time left when another one needs it. */
TEST(extension_takes_no_lease_of_an_earlier_one)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	em_fault(ve.model, EM_BAD_TOKEN, "/etcdserverpb.KV/Txn", 0);
	op = ve_extend(0, 20000);
	ve_pass(200);
	ck_assert_int_eq(op->why.err, LK_EAUTH);
	ve_pass(18500);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	em_fault(ve.model, EM_CUT_AFTER, "/etcdserverpb.KV/Txn", 0);
	op = ve_extend(0, 20000);
	ve_pass(10);
	ck_assert(!ve.client[0].connection);
	op = ve_acquire(1);
	ve_pass(2500);
	if (op->done)
		ck_assert_int_eq(ve_tickets(), 2);
}

static void note_key(void *arg, const struct lk__etcd_kv *kv)
{
	struct lk__etcd_kv *found = arg;

	if (kv->key.len > 10 && memcmp(kv->key.data, "lk/L/name/", 10) == 0)
		*found = *kv;
}

/* A hold is broken before its client knows that it has it. */
TEST(break_before_the_answer_counts)
{
	char mailbox[64], letter[64], key[128];
	struct lk__etcd_kv kv = {0};
	struct lk__op *op;

	ve_start(&one, 2);
	ve_holds(0);
	ve_releases(0);
	ve_hold_back();
	op = ve_acquire(0);
	ve_pass(10);
	em_each_key(ve.model, note_key, &kv);
	ck_assert_int_gt(kv.create_revision, 0);
	snprintf(key, sizeof(key), "%.*s", (int)kv.key.len, (const char *)kv.key.data);
	snprintf(mailbox, sizeof(mailbox), "lk/c/%s", ve.client[0].id);
	snprintf(letter, sizeof(letter), "1 b %s %lld", key + strlen(key) - (LK__NONCE_SIZE - 1),
	         (long long)kv.create_revision);
	ve_delete(key);
	ve_put(mailbox, letter);
	ve_pass(10);
	ve_holds(1);
	ve_let_go();
	ve_pass(200);
	ve_waits(op);
	ve_releases(1);
	ve_pass(200);
	ve_done(op, LK_OK);
	ve_releases(0);
	ve_end();
}

/* Rights are taken away for two minutes. */
TEST(refused_leave_is_repeated_by_one)
{
	int chores = 0;

	ve_start(&one, 1);
	ve_holds(0);
	em_deny(ve.model, "lk/L/");
	ve_release(0);
	ve_pass(120000);
	for (struct lk__etcd_job *chore = ve.client[0].session.chores; chore; chore = chore->next)
		chores++;
	ck_assert_int_le(chores, 1);
	em_deny(ve.model, NULL);
	ve_pass(10000);
	ve_end();
}

/* The user may write the mailbox, and not read it. */
TEST(mailbox_that_may_not_be_watched_is_an_error)
{
	struct lk__op *op;

	ve_start(&one, 1);
	ve_hold_back(); /* the answer to the set-up */
	op = ve_acquire(0);
	ve_pass(10);
	em_deny(ve.model, "lk/c/");
	ve_let_go();
	ve_pass(1000);
	ve_done(op, LK_EAUTH);
	ck_assert_ptr_nonnull(strstr(op->why.text, "permission denied"));
	em_deny(ve.model, NULL);
	ve_holds(0);
	ve_releases(0);
	ve_end();
}

/* Each has a lease of its own. */
TEST(refused_set_up_leaves_nothing)
{
	int leases = 0;

	ve_start(&one, 1);
	ve.client[0].queue = ve_open(0, "name", VE_LEASE_MS, true);
	em_deny(ve.model, "lk/");
	for (int i = 0; i < 10; i++) {
		struct lk__op *op = ve_acquire(0);
		ve_pass(500);
		ve_done(op, LK_EAUTH);
	}
	for (struct lk__etcd_lease *lease = ve.client[0].session.leases; lease; lease = lease->next)
		leases += lease != ve.client[0].session.home;
	ck_assert_int_eq(leases, 0);
	ve_end();
}

/* The client itself ends what a restored store has of it. */
TEST(restored_store_ends_a_fixed_hold)
{
	struct lk__op *op;

	ve_start(&one, 2);
	ve.client[0].queue = ve_open(0, "name", 60000, true);
	ve_holds(0);
	op = ve_acquire(1);
	ve_pass(1000);
	ve_waits(op);
	ve.client[0].session.revision += 1000;
	ve_pass(10000);
	ve_done(op, LK_OK);
	ck_assert_int_eq(ve_state(0), LK_STATE_LOST);
	ve_release(0);
	ve_releases(1);
	ve_end();
}

/* Another program deletes it; the client has not heard of that. */
static void delete_mailbox(int client)
{
	static const struct em_metadata plain;
	uint64_t connection = em_connect(ve.model, 0);
	char bytes[256], key[64];
	struct lk__pb_writer writer;

	snprintf(key, sizeof(key), "lk/c/%s", ve.client[client].id);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_delete(&writer, &(struct lk__etcd_delete){.key = lk__bytes_of(key)});
	em_call(ve.model, connection, "/etcdserverpb.KV/DeleteRange", &plain,
	        (struct lk__bytes){writer.data, writer.len});
}

/* Two leaders are stopped, one after the other: the first has the client's ask, the second its next
 * set-up.  They go on in the other order, when a third one leads and the caller has given up. */
TEST(ask_after_a_set_up_that_is_executed_late_puts_no_ticket)
{
	struct lk__op *op;

	ve_start(&five, 1);
	ck_assert(em_elect(ve.model, 1));
	ve_pass(200);
	ve_holds(0);
	ve_releases(0);
	em_stop(ve.model, 1, true);
	op = ve_acquire(0);
	ve_pass(100);
	ve_waits(op);
	ck_assert(em_elect(ve.model, 2));
	ve_pass(200);
	delete_mailbox(0);
	em_stop(ve.model, 2, true);
	ve_pass(100);
	ck_assert_int_eq(ve.client[0].session.state, LK__ETCD_POSTING);
	ve_cut(0);
	ck_assert(em_elect(ve.model, 0));
	ve_pass(200);
	ve_join(0, 0);
	ve_give_up(0, op, LK_ETIMEDOUT);
	ve_pass(1000);
	ve_done(op, LK_ETIMEDOUT);
	em_stop(ve.model, 2, false);
	ve_pass(100);
	em_stop(ve.model, 1, false);
	ve_pass(100);
	ck_assert_int_eq(ve_tickets(), 0);
	ve_holds(0);
	ve_releases(0);
	ve_end();
}
