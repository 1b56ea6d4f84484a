/* SPDX-License-Identifier: MIT
 * Shared by the tests of locks and semaphores in virtual time: four clients a, b, c and d with one
 * handle each on the name "s", and steps that tests would otherwise repeat.  All of it is static,
 * so its names are short.
 *
 * A test begins with start(): of a lock, unless it is a TEST_NOUNS(), which runs for every noun.
 * There a semaphore has two permits, and a call takes both: it excludes the others as a lock does.
 * start_permits() begins a test of semaphores alone. */
#ifndef VIRTUAL_FIXTURE_H
#define VIRTUAL_FIXTURE_H

#include "query.h"
#include "store_view.h"
#include "virtual.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define FIXTURE __attribute__((unused)) static
#define VIRT_TTL_MS 3600000 /* how long the keys of an idle semaphore are kept */
#define OWNER 2             /* the thread that calls, if the test does not say another one */

/* Error replies: the store may execute the same request later; it never will. */
#define RETRYABLE "LOADING refused"
#define PERMANENT "NOPERM refused"

/* What differs from noun to noun. */
struct virt_noun {
	lk_kind kind;
	void (*acquire)(struct lk__core *core, int64_t now_ns, struct lk__op *op);
	void (*release)(struct lk__core *core, int64_t now_ns, struct lk__op *op);
};

FIXTURE const struct virt_noun virt_lock = {
	LK_KIND_LOCK,
	lk__core_acquire,
	lk__core_release,
};
FIXTURE const struct virt_noun virt_semaphore = {
	LK_KIND_SEMAPHORE,
	lk__core_acquire_permits,
	lk__core_release_permits,
};

FIXTURE struct virt w;
FIXTURE struct virt_client *const a = &w.clients[0];
FIXTURE struct virt_client *const b = &w.clients[1];
FIXTURE struct virt_client *const c = &w.clients[2];
FIXTURE struct virt_client *const d = &w.clients[3];
FIXTURE const struct virt_noun *noun = &virt_lock; /* of the running test */
FIXTURE const struct virt_noun *noun_of_start = &virt_lock;
FIXTURE struct store_view view;

/* A test for each noun: states_a_fact:lock, states_a_fact:semaphore. */
#define TEST_NOUNS(fact)                                                                           \
	static void fact(void);                                                                    \
	TEST_ROW(fact##_lock, #fact ":lock", 20, true)                                             \
	{                                                                                          \
		fact();                                                                            \
	}                                                                                          \
	TEST_ROW(fact##_semaphore, #fact ":semaphore", 20, true)                                   \
	{                                                                                          \
		noun_of_start = &virt_semaphore;                                                   \
		fact();                                                                            \
		noun_of_start = &virt_lock;                                                        \
	}                                                                                          \
	static void fact(void)

/* ---- Beginning and end -------------------------------------------------------------------- */

/* Another handle of the client, on the same name or another one. */
FIXTURE struct lk__wait_queue *open_handle(struct virt_client *client, const char *name,
                                           int64_t lease_ms, bool fixed)
{
	struct lk__wait_queue *queue = lk__wait_queue_new(lease_ms, fixed);

	queue->ttl_ms = VIRT_TTL_MS;
	if (noun == &virt_semaphore)
		queue->capacity = a->queue ? a->queue->capacity : 2;
	return lk__wait_queue_open(&client->core, &client->session,
	                           lk__name_new(noun->kind, name, strlen(name)), queue);
}

FIXTURE void start_of(const struct virt_noun *of, int64_t lease_ms, bool fixed)
{
	noun = of;
	virt_init(&w, 4, test_seed());
	for (int i = 0; i < 4; i++)
		w.clients[i].queue = open_handle(&w.clients[i], "s", lease_ms, fixed);
}

FIXTURE void start(int64_t lease_ms)
{
	start_of(noun_of_start, lease_ms, false);
}

FIXTURE void start_fixed(int64_t lease_ms)
{
	start_of(noun_of_start, lease_ms, true);
}

FIXTURE void start_permits_with(uint32_t capacity, int64_t lease_ms, bool fixed)
{
	start_of(&virt_semaphore, lease_ms, fixed);
	for (int i = 0; i < 4; i++)
		w.clients[i].queue->capacity = capacity;
	query_size(w.store, "s", false, capacity, VIRT_TTL_MS);
}

FIXTURE void start_permits(uint32_t capacity, int64_t lease_ms)
{
	start_permits_with(capacity, lease_ms, false);
}

FIXTURE void start_fixed_permits(uint32_t capacity, int64_t lease_ms)
{
	start_permits_with(capacity, lease_ms, true);
}

/* The name's key with that suffix: "", ":q" for the queue, ":h" for the ends of a semaphore. */
FIXTURE const char *virt_key(const char *name, const char *suffix)
{
	static char keys[4][64]; /* valid until the fourth call after this */
	static unsigned next;
	char *key = keys[next++ % 4];

	snprintf(key, sizeof(keys[0]), "lk:{%s}%s", name, suffix);
	return key;
}

FIXTURE void look(void)
{
	const struct store_keys keys = {noun->kind, virt_key("s", ""), virt_key("s", ":q"),
	                                virt_key("s", ":h")};

	store_look(w.store, &keys, &view);
	if (noun == &virt_lock)
		view.used = view.hold_count;
}

/* Assert that nothing is left: neither in a state machine nor, except the fence, in the store. */
FIXTURE void end(void)
{
	virt_settle(&w);
	look();
	ck_assert_msg(!view.queued, "left: %d wait", view.queued);
	/* Permits of expired holds stay until the next script. */
	query_break(w.store, noun->kind, "s", "");
	look();
	ck_assert_msg(!view.used && !view.hold_count, "left: used %lld, %d holds",
	              (long long)view.used, view.hold_count);
	for (int i = 0; i < w.client_count; i++) {
		ck_assert_msg(!w.clients[i].core.all_tickets, "left: tickets");
		ck_assert_msg(!w.clients[i].core.all_holds, "left: holds");
		ck_assert_msg(!w.clients[i].core.latches, "left: waits for a latch, or steps");
	}
	virt_fini(&w);
}

/* ---- What calls have come to -------------------------------------------------------------- */

FIXTURE void assert_done(const struct lk__op *waiter, lk_err err)
{
	ck_assert_msg(waiter->done, "not done, expected %s", lk_err_name(err));
	ck_assert_str_eq(lk_err_name(waiter->why.err), lk_err_name(err));
}

/* Its text quotes the store's refusal. */
FIXTURE void assert_refused(const struct lk__op *waiter)
{
	ck_assert_msg(strstr(waiter->why.text, "refused") != NULL, "%s", waiter->why.text);
}

FIXTURE void assert_waits(const struct lk__op *waiter)
{
	ck_assert_msg(!waiter->done, "done with %s", lk_err_name(waiter->why.err));
}

/* The client's only hold, NULL if it has none. */
FIXTURE struct lk__hold *held(const struct virt_client *client)
{
	struct lk__hold *hold = client->queue->name->holds;

	ck_assert_msg(!hold || !hold->next_of_name, "more than one hold");
	return hold;
}

FIXTURE lk_state state_of(const struct virt_client *client, uint64_t owner)
{
	const struct lk__hold *hold = lk__core_hold(client->queue->name, owner);

	return hold ? lk__hold_state(hold, w.now_ns) : LK_STATE_NONE;
}

FIXTURE lk_state state(const struct virt_client *client)
{
	return held(client) ? lk__hold_state(held(client), w.now_ns) : LK_STATE_NONE;
}

/* How long the client's only hold is valid. */
FIXTURE int64_t left_ns(const struct virt_client *client)
{
	return lk__hold_left_ns(held(client), w.now_ns);
}

/* Permits in a hold, 0 if it is not held. */
FIXTURE uint32_t permits_of(const struct virt_client *client, uint64_t fence)
{
	const struct lk__hold *hold = lk__core_hold(client->queue->name, fence);

	return hold ? hold->count : 0;
}

/* The one unreported loss; it stays pending until lk__core_loss_reported(). */
FIXTURE struct lk__hold *next_loss(struct virt_client *client, lk_lost_reason reason)
{
	struct lk__hold *lost = lk__core_next_lost(&client->core);

	ck_assert_msg(lost != NULL, "no loss to report, expected %s", lk_lost_reason_name(reason));
	ck_assert_str_eq(lk_lost_reason_name(lost->lost), lk_lost_reason_name(reason));
	ck_assert_ptr_null(lk__core_next_lost(&client->core));
	return lost;
}

/* The same; it is reported. */
FIXTURE void assert_lost(struct virt_client *client, lk_lost_reason reason)
{
	lk__core_loss_reported(next_loss(client, reason));
}

/* ---- Calls -------------------------------------------------------------------------------- */

/* A call of that owner; for permits, of all of them.  A hold's owner is a thread; of permits, their
 * fence. */
FIXTURE struct lk__op *call_of(struct virt_client *client, uint64_t owner)
{
	struct lk__op *op = virt_waiter(client, client->queue);

	op->owner = owner;
	op->permits = client->queue->capacity;
	return op;
}

FIXTURE struct lk__op *begin(struct virt_client *client, struct lk__op *op)
{
	noun->acquire(&client->core, w.now_ns, op);
	return op;
}

FIXTURE struct lk__op *acquire_of(struct virt_client *client, uint64_t owner)
{
	return begin(client, call_of(client, owner));
}

FIXTURE struct lk__op *acquire(struct virt_client *client)
{
	return acquire_of(client, OWNER);
}

FIXTURE struct lk__op *try_of(struct virt_client *client, uint64_t owner)
{
	struct lk__op *op = call_of(client, owner);

	op->only_try = true;
	return begin(client, op);
}

FIXTURE struct lk__op *try(struct virt_client *client)
{
	return try_of(client, OWNER);
}

/* Release so many permits of a hold, 0 = all of it. */
FIXTURE struct lk__op *begin_release_some(struct virt_client *client, uint64_t owner,
                                          uint32_t permits)
{
	struct lk__op *op = call_of(client, owner);

	op->permits = permits;
	noun->release(&client->core, w.now_ns, op);
	return op;
}

FIXTURE struct lk__op *begin_release_of(struct virt_client *client, uint64_t owner)
{
	return begin_release_some(client, owner, 0);
}

/* The client's only hold. */
FIXTURE struct lk__op *begin_release(struct virt_client *client)
{
	ck_assert_msg(held(client) != NULL, "nothing is held");
	return begin_release_of(client, held(client)->owner);
}

FIXTURE struct lk__op *extend_of(struct virt_client *client, uint64_t owner, int64_t lease_ms)
{
	struct lk__op *op = call_of(client, owner);

	op->lease_ms = lease_ms;
	lk__core_extend(&client->core, w.now_ns, op);
	return op;
}

FIXTURE struct lk__op *extend(struct virt_client *client, int64_t lease_ms)
{
	ck_assert_msg(held(client) != NULL, "nothing is held");
	return extend_of(client, held(client)->owner, lease_ms);
}

/* ---- Calls with all that follows: everything pending is delivered. ------------------------- */

FIXTURE uint64_t hold_of(struct virt_client *client, struct lk__op *waiter)
{
	begin(client, waiter);
	virt_settle(&w);
	assert_done(waiter, LK_OK);
	return waiter->fence;
}

/* Acquire; the hold's fence. */
FIXTURE uint64_t hold(struct virt_client *client)
{
	return hold_of(client, call_of(client, OWNER));
}

FIXTURE void release_of(struct virt_client *client, uint64_t owner)
{
	struct lk__op *op = begin_release_of(client, owner);

	virt_settle(&w);
	assert_done(op, LK_OK);
}

FIXTURE void release(struct virt_client *client)
{
	struct lk__op *op = begin_release(client);

	virt_settle(&w);
	assert_done(op, LK_OK);
}

/* Acknowledge a loss. */
FIXTURE void release_lost_of(struct virt_client *client, uint64_t owner)
{
	assert_done(begin_release_of(client, owner), LK_ELOST);
	virt_settle(&w);
}

FIXTURE void release_lost(struct virt_client *client)
{
	assert_done(begin_release(client), LK_ELOST);
	virt_settle(&w);
}

/* ---- Time --------------------------------------------------------------------------------- */

/* Let time pass and assert that nothing happens. */
FIXTURE void later(int64_t ms)
{
	virt_set_time(&w, w.now_ns + ms * VIRT_MS);
}

FIXTURE void tick(struct virt_client *client)
{
	lk__core_tick(&client->core, w.now_ns);
}

/* Wait until the client's next timer is due, and run it. */
FIXTURE void tick_when_due(struct virt_client *client)
{
	ck_assert_int_ne(lk__core_due(&client->core), LK__NEVER);
	virt_set_time(&w, lk__core_due(&client->core));
	tick(client);
}

/* Enqueue a waiter and deliver the reply; a moment later than the previous one. */
FIXTURE struct lk__op *wait_of(struct virt_client *client, struct lk__op *waiter)
{
	later(1);
	begin(client, waiter);
	virt_settle(&w);
	assert_waits(waiter);
	return waiter;
}

FIXTURE struct lk__op *wait_for(struct virt_client *client)
{
	return wait_of(client, call_of(client, OWNER));
}

/* Let time pass until the waiter has what it waits for: that many ms. */
FIXTURE int64_t ms_until_done(const struct lk__op *waiter)
{
	int64_t begin_ns = w.now_ns;

	while (!waiter->done && w.now_ns - begin_ns < 60000 * VIRT_MS)
		virt_pass(&w, 10);
	assert_done(waiter, LK_OK);
	return (w.now_ns - begin_ns) / VIRT_MS;
}

/* The client's process is stopped: it does nothing, but counts as a receiver of messages. */
FIXTURE void stop(struct virt_client *client)
{
	client->session.state = LK__SESSION_DOWN;
}

/* It is killed, without notice to the other side. */
FIXTURE void kill_client(struct virt_client *client)
{
	stop(client);
	client->subscribed = false;
}

/* Nothing of a killed client is expected to end. */
FIXTURE void bury(struct virt_client *client)
{
	lk__core_fini(&client->core);
	lk__core_init(&client->core, 1);
}

/* ---- So many permits ---------------------------------------------------------------------- */

FIXTURE struct lk__op *permits_call(struct virt_client *client, uint32_t permits)
{
	struct lk__op *op = call_of(client, 0);

	op->permits = permits;
	return op;
}

FIXTURE struct lk__op *acquire_some(struct virt_client *client, uint32_t permits)
{
	return begin(client, permits_call(client, permits));
}

FIXTURE struct lk__op *try_some(struct virt_client *client, uint32_t permits)
{
	struct lk__op *op = permits_call(client, permits);

	op->only_try = true;
	return begin(client, op);
}

/* Forget the permits: they cannot be released. */
FIXTURE struct lk__op *forget_some(struct virt_client *client, uint32_t permits)
{
	struct lk__op *op = permits_call(client, permits);

	op->forget = true;
	return begin(client, op);
}

FIXTURE void resize(uint32_t capacity)
{
	query_size(w.store, "s", true, capacity, VIRT_TTL_MS);
}

FIXTURE uint64_t hold_some(struct virt_client *client, uint32_t permits)
{
	uint64_t fence = hold_of(client, permits_call(client, permits));

	ck_assert_uint_eq(permits_of(client, fence), permits);
	return fence;
}

FIXTURE struct lk__op *wait_for_some(struct virt_client *client, uint32_t permits)
{
	return wait_of(client, permits_call(client, permits));
}

/* ---- The network, step by step ------------------------------------------------------------ */

/* Take the next request; assert its kind. */
FIXTURE struct virt_call take(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call;

	ck_assert_msg(virt_take(client, &call), "there is no request");
	ck_assert_int_eq(call.kind, kind);
	return call;
}

/* The same; it is sent and executed. */
FIXTURE struct virt_call reach(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call = take(client, kind);

	virt_execute(client, &call);
	return call;
}

/* The same; the reply is delivered. */
FIXTURE void step(struct virt_client *client, enum lk__request_kind kind)
{
	struct virt_call call = reach(client, kind);

	virt_answer(client, &call);
}

/* The request is executed, and its response is lost with the link; or it is not executed. */
FIXTURE void lose(struct virt_client *client, struct virt_call *call)
{
	virt_call_fini(call);
	virt_link_down(client, LK_EUNKNOWN);
}

/* Answer the next request with an error. */
FIXTURE void refuse(struct virt_client *client, enum lk__request_kind kind, const char *error)
{
	struct virt_call call = take(client, kind);

	virt_refuse(client, &call, error);
}

FIXTURE void assert_no_request(struct virt_client *client)
{
	struct virt_call call;

	ck_assert_msg(!virt_take(client, &call), "a request of kind %d", call.kind);
}

/* Release the client's only hold in the store; messages to the next holder are in flight. */
FIXTURE void leave(struct virt_client *client)
{
	begin_release(client);
	step(client, LK__LEAVE);
}

/* Deliver a message that was not published, or that was delivered before. */
FIXTURE void hear(struct virt_client *client, struct lk__message message)
{
	lk__core_message(&client->core, w.now_ns, &message);
}

/* ---- The store ---------------------------------------------------------------------------- */

/* Permits held, by the store's own counter, which must be the sum of its holds; 1 of a lock. */
FIXTURE int64_t used(void)
{
	int64_t sum = 0;

	look();
	for (int i = 0; i < view.hold_count; i++)
		sum += view.holds[i].held;
	ck_assert_int_eq(view.used, sum);
	return sum;
}

FIXTURE int queued(void)
{
	look();
	return view.queued;
}

/* The only hold in the store. */
FIXTURE const struct store_ticket *only_stored(void)
{
	look();
	ck_assert_int_eq(view.hold_count, 1);
	return &view.holds[0];
}

FIXTURE void break_hold(void)
{
	query_break(w.store, noun->kind, "s", only_stored()->text);
}

/* Another program deletes what is held; the server's memory stays the same. */
FIXTURE void take_away(void)
{
	lua_store_text(w.store, "DEL", virt_key("s", ""), virt_key("s", ":h"), NULL);
}

/* The server loses its memory; the next marker is another one. */
FIXTURE void flush(void)
{
	lua_store_text(w.store, "FLUSHALL", NULL);
}

#endif
