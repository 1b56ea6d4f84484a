/* SPDX-License-Identifier: MIT
 * Nonces of tickets in etcd, which keeps something of each key until it is compacted: they are put
 * again, but never while a request could name the ticket that had one before. */
#include "harness/test.h"
#include "harness/virtual_etcd.h"

#include <stdio.h>
#include <string.h>

static const struct em_setup one = {.members = 1}, three = {.members = 3};

static const char *holds(int client)
{
	static char nonces[2][LK__NONCE_SIZE];
	static int turn;
	char *nonce = nonces[turn++ & 1];

	ve_holds(client);
	memcpy(nonce, ve.client[client].queue->ticket->nonce, LK__NONCE_SIZE);
	return nonce;
}

TEST(nonce_of_a_ticket_that_has_left_is_put_again)
{
	const char *first, *second;

	ve_start(&one, 1);
	first = holds(0);
	ve_releases(0);
	for (int i = 0; i < 20; i++) {
		second = holds(0);
		ck_assert_str_eq(first, second);
		first = second;
		ve_releases(0);
	}
	ve_end();
}

TEST(waiters_of_a_client_have_a_few_nonces)
{
	enum { ROUNDS = 20 };
	char seen[ROUNDS][LK__NONCE_SIZE];
	int count = 0;

	ve_start(&one, 2);
	holds(0);
	for (int round = 0; round < ROUNDS; round++) {
		int client = round & 1, i = 0;
		struct lk__op *op = ve_acquire(!client);
		const char *nonce;

		ve_pass(200);
		ve_releases(client);
		ve_done(op, LK_OK);
		nonce = ve.client[!client].queue->ticket->nonce;
		while (i < count && strcmp(seen[i], nonce) != 0)
			i++;
		if (i == count)
			memcpy(seen[count++], nonce, LK__NONCE_SIZE);
	}
	ve_releases(0);
	ck_assert_int_eq(count, 2);
	ve_end();
}

/* A leader that was stopped executes the leave when it goes on: the client has another ticket. */
TEST(leave_that_is_executed_late_ends_no_other_ticket)
{
	const char *first, *second;
	struct lk__op *release;

	ve_start(&three, 1);
	ve_join(0, 1);
	ve_pass(200);
	first = holds(0);
	em_stop(ve.model, 0, true);
	release = ve_release(0);
	ve_pass(200);
	ve_waits(release);
	ve_cut(0);
	ck_assert(em_elect(ve.model, 2));
	ve_join(0, 2);
	ve_pass(200);
	ve_done(release, LK_OK);
	second = holds(0);
	ck_assert_str_ne(first, second);
	em_stop(ve.model, 0, false);
	ve_pass(10000);
	ck_assert_int_eq(ve_tickets(), 1);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ve_end();
}

/* The leave was refused, and repeated by the core and later by the session. */
TEST(repeated_leave_ends_no_other_ticket)
{
	const char *first, *second;
	struct lk__op *release;

	ve_start(&one, 1);
	first = holds(0);
	em_fault(ve.model, EM_BAD_TOKEN, "/etcdserverpb.KV/Txn", 0);
	release = ve_release(0);
	ve_pass(500);
	ve_done(release, LK_OK);
	ck_assert_int_eq(ve_tickets(), 0);
	second = holds(0);
	ck_assert_str_ne(first, second);
	ve_pass(3000);
	ck_assert_int_eq(ve_tickets(), 1);
	ck_assert_int_eq(ve_state(0), LK_STATE_HELD);
	ve_releases(0);
	ve_end();
}
