/* SPDX-License-Identifier: MIT
 * Losses of the server's memory, in virtual time: waiters in the grace, the marker, queries, and
 * answers that do not fit. */
#include "core/query.h"
#include "memory_fixture.h"

#include <string.h>

#define STALE "*1\r\n$5\r\nepoch\r\n"

/* ---- In the grace ------------------------------------------------------------------------------
 */

TEST_NOUNS(nothing_is_granted_until_the_grace_is_over)
{
	struct lk__op *waiter, *second;
	int64_t since_ns;

	start_with_grace(LEASE);
	forget_without_link();
	since_ns = w.now_ns;
	second = try(a);
	virt_settle(&w);
	assert_done(second, LK_EBUSY);
	ck_assert_str_eq(second->why.text, "the server may have forgotten a holder: nothing is "
	                                   "granted for 10.0 s");
	waiter = wait_for(a);
	ms_until_done(waiter);
	ck_assert_int_ge(w.now_ns, since_ns + GRACE * VIRT_MS);
	ck_assert_int_le(w.now_ns, since_ns + (GRACE + 500) * VIRT_MS);
	release(a);
	end();
}

TEST_NOUNS(time_that_a_call_waits_because_of_the_grace_is_counted)
{
	struct lk__op *waiter;

	start_with_grace(LEASE);
	forget_without_link();
	try(a);
	virt_settle(&w);
	ck_assert_int_eq(a->core.counters.grace_us, 0);
	waiter = wait_for(a);
	virt_pass(&w, 2000);
	virt_give_up(a, waiter, LK_ETIMEDOUT);
	virt_settle(&w);
	ck_assert_int_ge(a->core.counters.grace_us, 2000000);
	ck_assert_int_lt(a->core.counters.grace_us, 2010000);
	ms_until_done(wait_for(b));
	ck_assert_int_gt(b->core.counters.grace_us, 7900000);
	ck_assert_int_lt(b->core.counters.grace_us, 8010000);
	waiter = wait_for(a);
	virt_pass(&w, 1000);
	release(b);
	assert_done(waiter, LK_OK);
	ck_assert_int_lt(a->core.counters.grace_us, 2010000); /* the grace was over */
	release(a);
	end();
}

/* A waiter reads the new marker first, and then the message of the old memory. */
TEST_NOUNS(grant_that_was_sent_before_the_loss_is_taken_back)
{
	struct lk__wait_queue *other;
	struct lk__op *waiter, *second;

	start_with_grace(LEASE);
	hold(a);
	waiter = wait_for(b);
	leave(a);
	later(1);
	flush();
	other = open_handle(b, "x", LEASE, false);
	second = virt_waiter(b, other);
	second->owner = OWNER;
	second->permits = other->capacity;
	begin(b, second);
	step(b, LK__ASK);
	step(b, LK__EPOCH);
	ck_assert(virt_hear(b));
	assert_done(waiter, LK_OK);
	ck_assert_int_eq(state(b), LK_STATE_UNSURE);
	virt_settle(&w);
	ck_assert_int_eq(state(b), LK_STATE_HELD);
	ck_assert_int_eq(b->core.counters.reclaimed, 1);
	ck_assert_uint_eq(only_stored()->fence, waiter->fence);
	lk__core_drop(&b->core, w.now_ns, other->name, b);
	virt_give_up(b, second, LK_ECANCELED);
	release(b);
	end();
}

static const char *text_of_a_wait(int64_t ms)
{
	struct lk__op *waiter = call_of(a, OWNER);

	waiter->until_ns = w.now_ns + ms * VIRT_MS;
	wait_of(a, waiter);
	while (!waiter->done)
		virt_pass(&w, 10);
	assert_done(waiter, LK_ETIMEDOUT);
	return waiter->why.text;
}

TEST_NOUNS(wait_that_is_too_short_for_the_grace_says_so)
{
	static const char says_so[] = "not acquired in time: the server may have forgotten a "
				      "holder, and granted nothing until its grace was over";

	start_with_grace(LEASE);
	forget_without_link();
	ck_assert_str_eq(text_of_a_wait(GRACE / 2), says_so);
	ck_assert_str_eq(text_of_a_wait(GRACE / 4), says_so);
	later(GRACE);
	hold(b);
	ck_assert_str_eq(text_of_a_wait(GRACE), "not acquired in time");
	release(b);
	end();
}

/* A lock is handed over at once: its holder has taken it back in this memory. */
TEST_NOUNS(waiter_keeps_waiting_while_the_holder_takes_its_hold_back)
{
	struct lk__op *waiter;
	int64_t ms;

	start_with_grace(LEASE);
	hold(a);
	waiter = wait_for(b);
	flush();
	virt_pass(&w, 4000);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	assert_waits(waiter);
	virt_pass(&w, 100);
	release(a);
	ms = ms_until_done(waiter);
	if (noun == &virt_lock)
		ck_assert_int_le(ms, 10);
	else
		ck_assert_int_gt(ms, 3000);
	release(b);
	end();
}

/* It was told when the holder's lease would end, which is long after the grace.  But the hold ends
 * in the grace, and no leave may serve the queue then. */
TEST_NOUNS(waiter_that_met_a_holder_in_the_grace_is_served_at_its_end)
{
	struct lk__op *waiter;
	int64_t end_ns;

	start_with_grace(GRACE);
	hold(a);
	forget_without_link();
	end_ns = w.now_ns + GRACE * VIRT_MS;
	virt_pass(&w, 7000);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	waiter = wait_for(b);
	virt_pass(&w, 1000);
	assert_waits(waiter);
	take_away();
	ms_until_done(waiter);
	ck_assert_int_ge(w.now_ns, end_ns);
	ck_assert_int_le(w.now_ns, end_ns + 500 * VIRT_MS);
	virt_pass(&w, GRACE / 2);
	ck_assert_int_eq(state(a), LK_STATE_LOST);
	release_lost(a);
	release(b);
	end();
}

TEST_NOUNS(claim_of_a_grant_that_was_forgotten_asks_again)
{
	struct lk__op *waiter;

	start_with_grace(LEASE);
	hold(a);
	waiter = wait_for(b);
	virt_pass(&w, 2000); /* it is an old waiter */
	begin_release(a);
	step(a, LK__LEAVE);
	ck_assert(virt_peek(b).claim);
	flush();
	ck_assert(virt_hear(b));
	step(b, LK__RENEW);
	step(b, LK__EPOCH);
	step(b, LK__RENEW); /* the claim, in the new memory */
	step(b, LK__ASK);
	assert_waits(waiter);
	ms_until_done(waiter);
	release(b);
	end();
}

TEST(marker_is_asked_for_once_for_many_tickets)
{
	static const char *const names[] = {"x", "y", "z"};
	struct lk__op *ops[3];
	struct virt_call calls[3];

	start_with_grace(LEASE);
	flush();
	for (int i = 0; i < 3; i++) {
		struct lk__wait_queue *queue = open_handle(a, names[i], LEASE, false);
		ops[i] = virt_waiter(a, queue);
		ops[i]->owner = OWNER;
		begin(a, ops[i]);
	}
	for (int i = 0; i < 3; i++)
		calls[i] = reach(a, LK__ASK);
	for (int i = 0; i < 3; i++)
		virt_answer(a, &calls[i]);
	step(a, LK__EPOCH);
	for (int i = 0; i < 3; i++)
		calls[i] = reach(a, LK__ASK);
	assert_no_request(a);
	for (int i = 0; i < 3; i++)
		virt_answer(a, &calls[i]);
	ck_assert_int_eq(runs(LK__EPOCH), 1);
	virt_pass(&w, GRACE + 500);
	for (int i = 0; i < 3; i++) {
		assert_done(ops[i], LK_OK);
		lk__core_drop(&a->core, w.now_ns, ops[i]->queue->name, a);
	}
	ck_assert_int_eq(runs(LK__EPOCH), 1);
	end();
}

/* ---- The marker cannot be read -----------------------------------------------------------------
 */

TEST_NOUNS(doubt_lasts_until_the_marker_is_read_or_the_lease_ends)
{
	start_with_grace(LEASE);
	hold_in_doubt();
	for (int i = 0; i < 3; i++) {
		refuse(a, LK__EPOCH, i ? PERMANENT : RETRYABLE);
		ck_assert_int_eq(state(a), LK_STATE_UNSURE);
		assert_no_request(a);
		tick_when_due(a);
	}
	virt_settle(&w);
	ck_assert_int_eq(state(a), LK_STATE_HELD);

	flush();
	later(100);
	while (state(a) != LK_STATE_LOST) {
		struct virt_call call;
		tick_when_due(a);
		while (virt_take(a, &call))
			if (call.kind == LK__EPOCH) {
				virt_refuse(a, &call, RETRYABLE);
			} else {
				virt_execute(a, &call);
				virt_answer(a, &call);
			}
	}
	assert_lost(a, LK_LOST_EXPIRED);
	release_lost(a);
	end();
}

/* ---- Answers that do not fit -------------------------------------------------------------------
 */

TEST_NOUNS(renewal_that_is_answered_with_another_memory_is_malformed)
{
	struct virt_call call;

	start_with_grace(LEASE);
	hold(a);
	tick_when_due(a);
	call = reach(a, LK__RENEW);
	virt_reply(a, &call, STALE);
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	assert_no_request(a);
	tick_when_due(a);
	step(a, LK__RENEW);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	ck_assert_int_eq(runs(LK__EPOCH), 0);
	release(a);
	end();
}

/* Only servers of a quorum are young. */
TEST_NOUNS(young_single_server_is_malformed)
{
	struct virt_call call;
	struct lk__op *op;

	start(LEASE);
	op = acquire(a);
	call = reach(a, LK__ASK);
	virt_reply(a, &call, "*2\r\n$5\r\nyoung\r\n:5000\r\n");
	assert_done(op, LK_EUNKNOWN);
	virt_settle(&w);
	end();
}

TEST_NOUNS(marker_that_was_not_asked_for_is_malformed)
{
	static const char marker[] =
		"*5\r\n$5\r\nepoch\r\n$5\r\n1 a 1\r\n$1\r\n1\r\n$1\r\n2\r\n:0\r\n";
	struct virt_call call;
	struct lk__op *op;

	start_with_grace(LEASE);
	op = acquire(a);
	call = reach(a, LK__ASK);
	virt_reply(a, &call, marker);
	assert_done(op, LK_EUNKNOWN);
	virt_settle(&w);

	hold_in_doubt();
	call = take(a, LK__EPOCH);
	virt_reply(a, &call, "*1\r\n$4\r\ngone\r\n");
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	tick_when_due(a);
	call = take(a, LK__EPOCH);
	virt_reply(a, &call, STALE); /* a marker without its text */
	ck_assert_int_eq(state(a), LK_STATE_UNSURE);
	virt_pass(&w, 200);
	ck_assert_int_eq(state(a), LK_STATE_HELD);
	release(a);
	end();
}

/* ---- Queries -----------------------------------------------------------------------------------
 */

static struct lk__op *ask_query(struct lk__query *query)
{
	struct lk__op *op = virt_waiter(a, NULL);

	lk__core_query(&a->core, &a->session, w.now_ns, op, &query, 1);
	return op;
}

static struct lk__query *new_query(enum lk__request_kind kind, lk_kind of)
{
	struct lk__query *query = lk__query_new(kind, of, "s", 1);

	query->details.subject = "";
	query->details.capacity = 2;
	query->details.ttl_ms = VIRT_TTL_MS;
	return query;
}

/* virt_answer() would not read the reply of a query. */
static void answer_query(struct virt_call *call)
{
	const struct lk__answer done = {.kind = LK__DONE};

	lk__core_answer(&a->core, w.now_ns, call->request, &done);
	virt_call_fini(call);
}

TEST(query_for_another_memory_is_sent_again)
{
	static const struct {
		enum lk__request_kind kind;
		lk_kind of;
	} rows[] = {
		{LK__SIZE, LK_KIND_SEMAPHORE}, /* open and resize */
		{LK__BREAK, LK_KIND_LOCK},
		{LK__BREAK, LK_KIND_SEMAPHORE},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct lk__query *query;
		struct virt_call call;
		struct lk__op *op;

		start_with_grace(LEASE);
		/* Its queue makes the leave of a break compare the marker. */
		lua_store_text(w.store, "ZADD", virt_key("s", ":q"), "5",
		               rows[i].of == LK_KIND_LOCK ? "2:d:n1:2000:r" : "2:d:n1:2000:r:1",
		               NULL);
		if (rows[i].kind == LK__BREAK && rows[i].of == LK_KIND_SEMAPHORE)
			lua_store_text(w.store, "HSET", virt_key("s", ""), "kind", "2:semaphore",
			               "capacity", "2", "used", "0", "ttl", "60000", NULL);
		lua_store_text(w.store, "SET", "lk:epoch", "1 - 5", NULL);
		query = new_query(rows[i].kind, rows[i].of);
		op = ask_query(query);
		call = reach(a, rows[i].kind);
		ck_assert_msg(strstr(call.reply.data, "epoch"), "row %zu: %s", i, call.reply.data);
		virt_answer(a, &call);
		assert_waits(op);
		step(a, LK__EPOCH);
		call = take(a, rows[i].kind);
		answer_query(&call);
		assert_done(op, LK_OK);
		lk__query_free(&a->core, query);
		lua_store_text(w.store, "FLUSHALL", NULL);
		end();
	}
}

TEST(query_ends_with_the_reason_why_the_marker_cannot_be_read)
{
	struct lk__query *query;
	struct virt_call call;
	struct lk__op *op;

	start_with_grace(LEASE);
	flush();
	query = new_query(LK__SIZE, LK_KIND_SEMAPHORE);
	op = ask_query(query);
	call = reach(a, LK__SIZE);
	virt_answer(a, &call);
	refuse(a, LK__EPOCH, PERMANENT);
	assert_done(op, LK_EAUTH);
	assert_refused(op);
	lk__query_free(&a->core, query);
	assert_no_request(a);
	end();
}

TEST(query_for_another_memory_survives_the_link)
{
	struct lk__query *query;
	struct virt_call call;
	struct lk__op *op;

	start_with_grace(LEASE);
	flush();
	query = new_query(LK__SIZE, LK_KIND_SEMAPHORE);
	op = ask_query(query);
	call = reach(a, LK__SIZE);
	virt_answer(a, &call);
	virt_link_down(a, LK_ECONN);
	assert_waits(op); /* nothing was done for it */
	virt_link_up(a);
	call = take(a, LK__SIZE);
	answer_query(&call);
	assert_done(op, LK_OK);
	lk__query_free(&a->core, query);
	end();
}

/* Its caller has given up between the answer and the marker. */
TEST(query_of_no_caller_is_not_sent_again)
{
	struct lk__query *query;
	struct virt_call call;
	struct lk__op *op;

	start_with_grace(LEASE);
	flush();
	query = new_query(LK__SIZE, LK_KIND_SEMAPHORE);
	op = ask_query(query);
	call = reach(a, LK__SIZE);
	virt_answer(a, &call);
	virt_abandon(a, op);
	assert_done(op, LK_ECONN);
	lk__query_free(&a->core, query);
	step(a, LK__EPOCH);
	assert_no_request(a);
	end();
}

/* A client that is connected asks for the marker, which then begins anew. */
TEST_NOUNS(clock_that_is_set_back_does_not_lengthen_the_grace)
{
	struct lk__op *waiter;

	start_with_grace(LEASE);
	forget_without_link();
	waiter = acquire(a);
	virt_pass(&w, 1000);
	w.store_offset_us -= INT64_C(600000000);
	ck_assert_int_le(ms_until_done(waiter), 2 * GRACE + 2000);
	release(a);
	end();
}

TEST_NOUNS(marker_that_cannot_be_read_ends_the_waits)
{
	struct lk__op *waiter, *second;

	start_with_grace(LEASE);
	hold(b);
	waiter = wait_for(a);
	lua_store_text(w.store, "SET", "lk:epoch", "junk", NULL);
	second = acquire_of(a, 77);
	virt_pass(&w, 15000);
	assert_done(waiter, LK_EFOREIGN);
	assert_done(second, LK_EFOREIGN);
	ck_assert_ptr_nonnull(strstr(waiter->why.text, "lk:epoch"));
	lua_store_text(w.store, "DEL", "lk:epoch", NULL);
	release(b);
	end();
}
