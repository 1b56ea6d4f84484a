/* SPDX-License-Identifier: MIT
 * Servers of a quorum that refuse requests, lose links or legs, or answer for another epoch, in
 * virtual time: harness/virtual_quorum.h. */
#include "harness/test.h"
#include "harness/virtual_quorum.h"

#include <stdio.h>
#include <string.h>

/* ---- Refusals ----------------------------------------------------------------------------- */

static void end_hold(int client)
{
	vq_release(client);
	vq_settle();
	vq_end();
}

static void refuse_link(int client, int server)
{
	struct lk__session *session = &vq.client[client].links[server].session;

	lk__why_set(&session->why, LK_EAUTH, "wrong password");
	lk__core_link_refused(&vq.client[client].core, session, vq.now_ns);
}

/* Two servers refuse the client for a while; then another one refuses a request. */
TEST(links_that_are_accepted_again_serve_the_wait)
{
	struct lk__op *op;

	vq_start(5, 1);
	for (int i = 0; i < 5; i++)
		vq_down(i);
	op = vq_acquire(0);
	for (int i = 0; i < 2; i++)
		refuse_link(0, i);
	vq_waits(op);
	for (int i = 0; i < 5; i++)
		vq_up(i);
	for (int i = 0; i < 5; i++)
		vq_join(0, i);
	vq_refuse(0, 2, "NOPERM not you");
	vq_waits(op);
	vq_settle();
	vq_done(op, LK_OK);
	end_hold(0);
}

/* No waiting mends that. */
TEST(wait_of_a_lazy_client_ends_when_a_majority_refuses_its_links)
{
	struct lk__op *op;

	vq_start(3, 1);
	for (int i = 0; i < 3; i++)
		vq_down(i);
	op = vq_acquire(0);
	refuse_link(0, 0);
	vq_waits(op);
	refuse_link(0, 1);
	vq_done(op, LK_EAUTH);
	ck_assert_str_eq(op->why.text, "0 of 3 servers vote, 2 are needed: server 1, server 2: "
	                               "wrong password; server 3: the link is down");
	vq_end();
}

/* It may be accepted again, so the refusal ends with the link. */
TEST(refusal_does_not_outlast_the_link_that_it_came_by)
{
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	vq_refuse(0, 0, "NOPERM not you");
	vq_cut(0, 0, false);
	vq_refuse(0, 1, "NOPERM not you");
	vq_waits(op);
	vq_join(0, 0);
	vq_settle();
	vq_done(op, LK_OK);
	end_hold(0);
}

TEST(try_that_is_refused_for_now_ends_with_that_error)
{
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_try(0);
	for (int i = 0; i < 3; i++)
		vq_refuse(0, i, "LOADING not yet");
	for (int i = 0; i < 3; i++)
		vq_cut(0, i, false);
	for (int i = 0; i < 3; i++)
		vq_join(0, i);
	for (int i = 0; i < 3; i++)
		vq_refuse(0, i, "LOADING not yet");
	vq_set_time(vq.now_ns + (VQ_TIMEOUT_MS + 1) * VQ_MS);
	vq_settle();
	vq_done(op, LK_EAGAIN);
	vq_end();
}

TEST(mark_that_is_refused_is_made_later)
{
	vq_start_unmarked(3, 1);
	for (int i = 0; i < 3; i++)
		vq_join(0, i);
	for (int i = 0; i < 3; i++)
		if (vq_send(0, i))
			vq_refuse(0, i, "MISCONF not now");
	vq_pass(5000);
	ck_assert(lk__quorum_is_ready(&vq.client[0].core));
	vq_end();
}

/* So many leaves are repeated already: this one must not count as confirmed. */
TEST(refused_leaves_of_a_release_are_repeated)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	vq.client[0].core.unconfirmed = LK__UNCONFIRMED_MAX;
	op = vq_release(0);
	for (int i = 0; i < 2; i++)
		vq_refuse(0, i, "LOADING not yet");
	vq_waits(op);
	vq_pass(500);
	vq_done(op, LK_OK);
	vq.client[0].core.unconfirmed -= LK__UNCONFIRMED_MAX;
	vq_end();
}

TEST(close_confirms_no_release)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	op = vq_release(0);
	for (int i = 0; i < 2; i++)
		vq_refuse(0, i, "LOADING not yet");
	for (int i = 0; i < 3; i++)
		vq_cut(0, i, false);
	lk__core_close(&vq.client[0].core, vq.now_ns);
	vq_settle();
	vq_waits(op);
	for (int i = 0; i < 3; i++)
		vq_join(0, i);
	vq_pass(500);
	vq_done(op, LK_OK);
	vq_end();
}

/* ---- Extensions --------------------------------------------------------------------------- */

TEST(extension_is_sent_again_after_its_link_was_lost_before_it)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(2);
	vq_acquire(0);
	vq_settle();
	op = vq_extend(0, 9000);
	vq_cut(0, 0, false);
	vq_join(0, 0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(2);
	end_hold(0);
}

TEST(extension_of_a_leg_that_was_lost_is_sent_again)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_acquire(0);
	vq_settle();
	for (int i = 0; i < 2; i++)
		lua_store_text(vq.server[i].store, "DEL", "lk:{name}", NULL);
	op = vq_extend(0, 9000);
	/* The second leg is lost when the first one is back. */
	ck_assert(vq_send(0, 2) && vq_execute(0, 2) && vq_reply(0, 2));
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++) {
			vq_send(0, i);
			if (vq_execute(0, i))
				vq_reply(0, i);
		}
	}
	vq_settle();
	vq_done(op, LK_OK);
	end_hold(0);
}

/* The hold has no other legs, so without that server it cannot be extended. */
static void extends_after_a_refusal(bool fixed)
{
	struct lk__wait_queue *queue;
	struct lk__op *op;

	vq_start(3, 1);
	queue = vq_open(0, "other", VQ_LEASE_MS, fixed);
	vq_down(2);
	vq_acquire_of(0, queue, 1);
	vq_settle();
	op = vq_op(0, queue);
	op->owner = 1;
	op->lease_ms = 9000;
	lk__core_extend(&vq.client[0].core, vq.now_ns, op);
	vq_refuse(0, 0, "LOADING Redis is loading the dataset in memory");
	vq_pass(500);
	vq_done(op, LK_OK);
	vq_up(2);
	vq_release_of(0, queue, 1);
	vq_settle();
	vq_pass(15000);
	vq_end();
}

/* The call has ended meanwhile: a fixed lease is not renewed for it. */
TEST(extension_that_has_ended_is_not_repeated)
{
	struct lk__wait_queue *queue;
	struct lk__op *op;
	int renewals;

	vq_start(3, 1);
	queue = vq_open(0, "other", VQ_LEASE_MS, true);
	vq_acquire_of(0, queue, 1);
	vq_settle();
	op = vq_op(0, queue);
	op->owner = 1;
	op->lease_ms = 9000;
	lk__core_extend(&vq.client[0].core, vq.now_ns, op);
	vq_refuse(0, 0, "LOADING Redis is loading the dataset in memory");
	vq_settle();
	vq_done(op, LK_OK);
	renewals = vq.runs[LK__RENEW];
	vq_pass(2000);
	ck_assert_int_eq(vq.runs[LK__RENEW], renewals);
	vq_release_of(0, queue, 1);
	vq_settle();
	vq_pass(15000);
	vq_end();
}

TEST(extension_is_sent_again_after_a_server_refused_it_for_now)
{
	extends_after_a_refusal(false);
}

TEST(extension_of_a_fixed_lease_is_sent_again_after_a_refusal_for_now)
{
	extends_after_a_refusal(true);
}

/* ---- Messages ----------------------------------------------------------------------------- */

TEST(break_of_another_epoch_leaves_the_answer_to_the_ask)
{
	struct lk__message broken = {.kind = LK__BROKEN, .lease_ms = VQ_LEASE_MS};
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(2);
	op = vq_acquire(0);
	vq_leg(0, 0)->epoch = 1;
	ck_assert(vq_send(0, 0) && vq_execute(0, 0));
	broken.from = &vq.client[0].links[0].session;
	memcpy(broken.nonce, vq_leg(0, 0)->nonce, sizeof(broken.nonce));
	lk__core_message(&vq.client[0].core, vq.now_ns, &broken);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(2);
	end_hold(0);
}

/* Another program sends it: a leg that was never asked would be freed with its hold. */
TEST(message_for_a_leg_that_was_never_asked_is_ignored)
{
	struct lk__message forged = {.kind = LK__WANTED, .lease_ms = VQ_LEASE_MS};
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	vq_done(op, LK_OK);
	forged.from = &vq.client[0].links[2].session;
	memcpy(forged.nonce, vq_leg(0, 2)->nonce, sizeof(forged.nonce));
	vq_set_time(vq.now_ns + VQ_LEASE_MS * VQ_MS);
	lk__core_message(&vq.client[0].core, vq.now_ns, &forged);
	ck_assert(lk__ticket_find_at(&vq.client[0].core, forged.nonce, forged.from));
	vq_settle();
	ck_assert_int_eq(vq_state(0), LK_STATE_LOST);
	vq_release(0);
	vq_settle();
	vq_end();
}

/* The leg has left, and serves the queue: it must not come back to yield. */
TEST(grant_of_another_epoch_is_nothing_to_a_leg_that_has_left)
{
	struct lk__message late = {
		.kind = LK__GRANT, .lease_ms = VQ_LEASE_MS, .life_ms = VQ_LEASE_MS, .epoch = 5};
	struct lk__op *op;

	vq_start(3, 2);
	vq_acquire(0);
	vq_settle();
	op = vq_acquire(1);
	vq_settle();
	late.from = &vq.client[0].links[0].session;
	memcpy(late.nonce, vq_leg(0, 0)->nonce, sizeof(late.nonce));
	lua_store_text(vq.server[0].store, "DEL", "lk:epoch", NULL);
	vq_release(0);
	for (int i = 0; i < 3; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	ck_assert_int_eq(lk__ticket_find_at(&vq.client[0].core, late.nonce, late.from)->state,
	                 LK__SERVING);
	lk__core_message(&vq.client[0].core, vq.now_ns, &late);
	vq_settle();
	vq_done(op, LK_OK);
	vq_release(1);
	vq_pass(VQ_LONGEST_MS + LK__QUEUE_LIFE_MS);
	vq_end();
}

/* The leg is unknown to its server, as far as the client knows, when the hold expires. */
TEST(message_for_an_unasked_leg_of_a_hold_that_expires)
{
	struct lk__message late = {.kind = LK__WANTED, .lease_ms = VQ_LEASE_MS};
	struct lk__op *op;

	vq_start(3, 1);
	op = vq_acquire(0);
	vq_refuse(0, 2, "LOADING not yet");
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	vq_done(op, LK_OK);
	late.from = &vq.client[0].links[2].session;
	memcpy(late.nonce, vq_leg(0, 2)->nonce, sizeof(late.nonce));
	vq_set_time(vq.now_ns + VQ_LEASE_MS * VQ_MS);
	lk__core_message(&vq.client[0].core, vq.now_ns, &late);
	ck_assert(lk__ticket_find_at(&vq.client[0].core, late.nonce, late.from));
	vq_settle();
	vq_release(0);
	vq_end();
}

/* ---- Tries -------------------------------------------------------------------------------- */

TEST(server_that_was_busy_grants_to_a_try_after_a_new_link)
{
	static const char other[] = "q1:bclient_AAAAAAAAAAAAAA:AAAAAAAAAAA:3000:r:1:0 9 3000 -";
	struct lk__op *op;

	vq_start(3, 1);
	for (int i = 0; i < 2; i++)
		lua_store_text(vq.server[i].store, "SET", "lk:{name}", other, "PX", "1000", NULL);
	op = vq_try(0);
	ck_assert(vq_send(0, 0) && vq_execute(0, 0) && vq_reply(0, 0));
	vq_cut(0, 0, false);
	lua_store_text(vq.server[0].store, "DEL", "lk:{name}", NULL);
	vq_join(0, 0);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	vq_waits(op);
	vq_settle();
	vq_done(op, LK_OK);
	lua_store_text(vq.server[1].store, "DEL", "lk:{name}", NULL);
	end_hold(0);
}

/* ---- Counters ----------------------------------------------------------------------------- */

TEST(release_counts_no_loss_for_a_leg_that_was_not_granted)
{
	struct lk__op *op;

	vq_start(3, 1);
	lua_store_text(vq.server[2].store, "SET", "lk:{name}",
	               "q1:bclient_AAAAAAAAAAAAAA:AAAAAAAAAAA:3000:r:1:0 9 3000 -", "PX", "1000",
	               NULL);
	vq_acquire(0);
	vq_settle();
	op = vq_release(0);
	vq_settle();
	vq_done(op, LK_OK);
	ck_assert_int_eq(vq.client[0].core.counters.lost[0], 0);
	lua_store_text(vq.server[2].store, "DEL", "lk:{name}", NULL);
	vq_end();
}

/* ---- Commits ------------------------------------------------------------------------------ */

static void set_counter(int server, const char *fence)
{
	char class[16];

	snprintf(class, sizeof(class), "%d", lk__slot_of("name", 4) % LK__CLASSES);
	lua_store_text(vq.server[server].store, "HSET", "lk:fences", class, fence, NULL);
}

static void raise_counter(int server, int64_t ahead_us)
{
	char fence[24];

	snprintf(fence, sizeof(fence), "%lld", (long long)(vq_store_us(server) + ahead_us));
	set_counter(server, fence);
}

/* The server with the smallest fence is lost before it can be raised. */
TEST(fence_is_committed_where_servers_are_left)
{
	struct lk__op *op;

	vq_start(3, 1);
	raise_counter(1, 1000000);
	raise_counter(2, 2000000);
	op = vq_acquire(0);
	for (int i = 0; i < 3; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	vq_waits(op);
	vq_down(0);
	vq_settle();
	vq_done(op, LK_OK);
	vq_up(0);
	end_hold(0);
}

TEST(commit_to_a_damaged_counter_is_not_repeated_at_once)
{
	struct lk__op *op;

	vq_start(3, 1);
	vq_down(2);
	raise_counter(1, 1000000);
	op = vq_acquire(0);
	for (int i = 0; i < 2; i++)
		ck_assert(vq_send(0, i) && vq_execute(0, i) && vq_reply(0, i));
	set_counter(0, "damaged");
	vq_pass(500);
	ck_assert_int_le(vq.runs[LK__RENEW], 8);
	vq_waits(op);
	set_counter(0, "1");
	vq_pass(1000);
	vq_done(op, LK_OK);
	vq_up(2);
	end_hold(0);
}
