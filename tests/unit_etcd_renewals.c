/* SPDX-License-Identifier: MIT
 * Renewals, claims and extensions on etcd: several of them share a round of the lease, and what is
 * confirmed is the ticket's as well as the lease's. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include <stdio.h>

#define HOLDS 100 /* a transaction of etcd has 128 operations at most, and each needs two */

static const struct em_setup one = {.members = 1};

/* A client may believe in a letter about a ticket that has ended, and was put anew. */
TEST(ticket_that_waits_cannot_be_claimed)
{
	struct lk__ticket_id id;
	struct lk__answer answer;
	struct lk__op *op;
	struct lk__request claim = {.kind = LK__RENEW,
	                            .noun = LK_KIND_LOCK,
	                            .name = "name",
	                            .name_len = 4,
	                            .lease_ms = VE_LEASE_MS};

	ve_start(&one, 2);
	ve_holds(0);
	op = ve_acquire(1);
	ve_pass(200);
	ve_waits(op);
	id = lk__ticket_id(ve.client[1].core.all_tickets);
	claim.ticket = id;
	ck_assert(lk__etcd_session_request(&ve.client[1].session, ve.now_ns, &claim));
	ck_assert(lk__etcd_session_answer(&ve.client[1].session, &answer));
	ck_assert_int_eq(answer.kind, LK__GONE);
	ve_releases(0);
	ve_done(op, LK_OK);
	ve_releases(1);
	ve_end();
}

/* Tickets with one time to live are renewed together.  What was sent for another one was sent too
 * early. */
TEST(extension_counts_from_its_own_request)
{
	struct lk__wait_queue *name, *other;
	struct lk__op *op;
	int64_t began_ns;

	ve_start(&one, 1);
	ve_holds(0);
	name = ve.client[0].queue;
	other = ve_open(0, "other", VE_LEASE_MS, false);
	ve_acquire_of(0, other, false);
	ve_settle();
	em_stop(ve.model, 0, true);
	ve.client[0].queue = other;
	ve_extend(0, VE_LEASE_MS);
	ve.client[0].queue = name;
	ve_pass(30);
	began_ns = ve.now_ns;
	op = ve_extend(0, VE_LEASE_MS);
	ve_settle();
	em_stop(ve.model, 0, false);
	ve_pass(10);
	ve_done(op, LK_OK);
	ck_assert_int_ge(name->hold->ticket->valid_until_ns,
	                 began_ns + VE_LEASE_MS * VE_MS - lk__margin_ns(VE_LEASE_MS));
	ve_release_of(0, other);
	ve_releases(0);
	ve_end();
}

/* They are read in two rounds, one after the other. */
TEST(holds_that_no_round_can_read_together_are_all_renewed)
{
	struct lk__wait_queue *queues[HOLDS];
	struct lk__op *op;
	char name[16];
	int rounds;

	ve_start(&one, 1);
	for (int i = 0; i < HOLDS; i++) {
		snprintf(name, sizeof(name), "n%d", i);
		queues[i] = ve_open(0, name, VE_LEASE_MS, false);
		op = ve_acquire_of(0, queues[i], false);
		ve_settle();
		ve_done(op, LK_OK);
	}
	rounds = ve.calls[LK__ETCD_CALL_KEEP_ALIVE];
	for (int lease = 0; lease < 4; lease++) {
		ve_pass(VE_LEASE_MS);
		for (int i = 0; i < HOLDS; i++)
			ck_assert_int_eq(lk__hold_state(queues[i]->hold, ve.now_ns), LK_STATE_HELD);
	}
	/* Two rounds each third of the lease; and those of the mailbox's lease. */
	ck_assert_int_le(ve.calls[LK__ETCD_CALL_KEEP_ALIVE] - rounds, 4 * 3 * 2 + 12);
	for (int i = 0; i < HOLDS; i++)
		ve_release_of(0, queues[i]);
	ve_pass(100);
	ve_end();
}
