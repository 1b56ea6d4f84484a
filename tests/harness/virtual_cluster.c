/* SPDX-License-Identifier: MIT
 * One client of a Cluster in virtual time: see virtual_cluster.h. */
#include "virtual_cluster.h"

#include "base/slot.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_MAX 1000 /* of timers at one moment */

struct vc vc;

/* ---- The world ---------------------------------------------------------------------------- */

void vc_start(void)
{
	vc = (struct vc){.now_ns = 50000 * VC_MS, .fence = 1000};
	memset(vc.owner, LK__NO_OWNER, sizeof(vc.owner));
	ck_assert(lk__core_init(&vc.core, test_seed()) && lk__core_use_route(&vc.core));
	for (int i = 0; i < VC_LINKS; i++) {
		struct lk__session *link = &vc.links[i];
		lk__session_init(link, 1000 * VC_MS, 1000 * VC_MS);
		link->on_demand = true;
		link->grace_ms = VC_GRACE_MS;
		ck_assert(lk__core_add_session(&vc.core, link));
		if (i < VC_LINKS - 1)
			vc_link_up(i);
	}
}

void vc_end(void)
{
	ck_assert_msg(!vc.core.all_tickets, "left: tickets");
	ck_assert_msg(!vc.core.all_holds, "left: holds");
	ck_assert_msg(!vc.core.latches, "left: latches");
	for (int i = 0; i < VC_LINKS; i++)
		ck_assert_msg(!vc.links[i].users, "left: %u users of link %d", vc.links[i].users,
		              i);
	lk__core_fini(&vc.core);
	for (int i = 0; i < vc.op_count; i++) {
		free(vc.ops[i]->spare_ticket);
		free(vc.ops[i]->spare_hold);
		free(vc.ops[i]->spare_queue);
		free(vc.ops[i]->spare_step);
		free(vc.ops[i]);
	}
}

/* ---- Servers ------------------------------------------------------------------------------ */

static unsigned slot_of(const char *name)
{
	return lk__slot_of(name, strlen(name));
}

void vc_own(const char *name, int link)
{
	vc.owner[slot_of(name)] = (uint8_t)link;
	vc.core.route->owner[slot_of(name)] = (uint8_t)link;
}

const char *vc_twin(const char *name)
{
	static char twin[16];
	int i = 0;

	do
		snprintf(twin, sizeof(twin), "twin%d", i++);
	while (slot_of(twin) != slot_of(name));
	return twin;
}

void vc_give(const char *name, int link)
{
	vc.owner[slot_of(name)] = (uint8_t)link;
	lk__core_topology(&vc.core, vc.now_ns, vc.owner);
}

int64_t vc_store_us(void)
{
	return vc.now_ns / 1000;
}

void vc_memory(int link, const char *id)
{
	struct lk__epoch epoch = {.since_us = !strcmp(id, "m") ? 1 : vc_store_us(),
	                          .read_us = vc_store_us()};

	epoch.len = (uint8_t)snprintf(epoch.text, sizeof(epoch.text), "1 %s %lld", id,
	                              (long long)epoch.since_us);
	lk__core_memory(&vc.core, &vc.links[link], vc.now_ns, &epoch);
}

void vc_link_up(int link)
{
	if (!vc.links[link].epoch.len)
		vc_memory(link, "m");
	vc.links[link].memory_ns = vc.now_ns;
	lk__core_link_up(&vc.core, &vc.links[link], vc.now_ns);
}

void vc_link_down(int link)
{
	const struct lk__why why = {.err = LK_ECONN, .text = "the link is down"};

	lk__core_link_down(&vc.core, &vc.links[link], vc.now_ns, &why, 0);
}

/* ---- Calls -------------------------------------------------------------------------------- */

struct lk__wait_queue *vc_open(lk_kind kind, const char *name, bool fixed)
{
	struct lk__wait_queue *queue = lk__wait_queue_new(VC_LEASE_MS, fixed);
	char topic[64];

	queue->capacity = kind == LK_KIND_SEMAPHORE ? 3 : 0;
	queue->ttl_ms = 3600000;
	queue = lk__wait_queue_open(&vc.core, &vc.links[0], lk__name_new(kind, name, strlen(name)),
	                            queue);
	snprintf(topic, sizeof(topic), "lk:c:{%s}:me", name);
	lk__inbox_open(queue->name, lk__inbox_new(topic));
	if (kind == LK_KIND_LATCH) {
		snprintf(topic, sizeof(topic), "lk:l:{%s}", name);
		lk__latch_open(queue->name, lk__latch_new(topic));
	}
	return queue;
}

struct lk__op *vc_op(struct lk__wait_queue *queue, uint64_t owner)
{
	struct lk__op *op = calloc(1, sizeof(*op));

	ck_assert_int_lt(vc.op_count, VC_OPS);
	vc.ops[vc.op_count++] = op;
	op->queue = queue;
	op->owner = owner;
	op->handle = queue;
	op->reports_loss = true;
	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	op->spare_queue = malloc(sizeof(*op->spare_queue));
	return op;
}

struct lk__op *vc_acquire(struct lk__wait_queue *queue, uint64_t owner)
{
	struct lk__op *op = vc_op(queue, owner);

	lk__core_acquire(&vc.core, vc.now_ns, op);
	return op;
}

struct lk__op *vc_release(struct lk__wait_queue *queue, uint64_t owner)
{
	struct lk__op *op = vc_op(queue, owner);

	lk__core_release(&vc.core, vc.now_ns, op);
	return op;
}

struct lk__op *vc_acquire_permits(struct lk__wait_queue *queue, uint32_t permits)
{
	struct lk__op *op = vc_op(queue, 0);

	op->permits = permits;
	lk__core_acquire_permits(&vc.core, vc.now_ns, op);
	return op;
}

struct lk__op *vc_release_permits(struct lk__wait_queue *queue, uint64_t fence, uint32_t permits)
{
	struct lk__op *op = vc_op(queue, fence);

	op->permits = permits;
	lk__core_release_permits(&vc.core, vc.now_ns, op);
	return op;
}

struct lk__op *vc_await(struct lk__wait_queue *queue)
{
	struct lk__op *op = vc_op(queue, 0);

	lk__core_await(&vc.core, vc.now_ns, op);
	return op;
}

struct lk__op *vc_step(struct lk__wait_queue *queue)
{
	struct lk__op *op = vc_op(queue, 0);

	op->spare_step = calloc(1, sizeof(*op->spare_step));
	op->spare_step->n = 1;
	lk__core_step(&vc.core, vc.now_ns, op);
	return op;
}

void vc_give_up(struct lk__op *op)
{
	lk__core_give_up(&vc.core, vc.now_ns, op, LK_ECANCELED);
}

lk_state vc_state(const struct lk__wait_queue *queue, uint64_t owner)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, owner);

	return hold ? lk__hold_state(hold, vc.now_ns) : LK_STATE_NONE;
}

void vc_done(const struct lk__op *op, lk_err err)
{
	ck_assert_msg(op->done, "not done, expected %s", lk_err_name(err));
	ck_assert_str_eq(lk_err_name(op->why.err), lk_err_name(err));
}

void vc_waits(const struct lk__op *op)
{
	ck_assert_msg(!op->done, "done with %s", lk_err_name(op->why.err));
}

/* ---- Requests ----------------------------------------------------------------------------- */

static bool is_side_request(const struct lk__pending *request)
{
	return request->kind == LK__EPOCH || request->kind == LK__TOPOLOGY;
}

static void answer_side_request(struct lk__pending *request)
{
	const struct lk__session *link = vc.core.links[request->link];

	if (request->kind == LK__EPOCH)
		vc_answer(request, (struct lk__answer){.kind = LK__MEMORY, .epoch = link->epoch});
	else
		vc_answer(request,
		          (struct lk__answer){.kind = LK__FAILED, .err = LK_EAGAIN, .text = "no"});
}

static struct lk__pending *next(int link, enum lk__request_kind kind)
{
	struct lk__pending *request;

	while ((request = lk__core_next_request(&vc.core, &vc.links[link], vc.now_ns)) &&
	       request->kind != kind && is_side_request(request))
		answer_side_request(request);
	return request;
}

struct lk__pending *vc_take(int link, enum lk__request_kind kind)
{
	struct lk__pending *request = next(link, kind);

	ck_assert_msg(request != NULL, "no request over link %d, expected kind %d", link, kind);
	ck_assert_int_eq(request->kind, kind);
	return request;
}

void vc_idle(int link)
{
	const struct lk__pending *request = next(link, LK__PING);

	ck_assert_msg(!request, "a request over link %d, of kind %d", link,
	              request ? request->kind : -1);
}

struct lk__request vc_request(const struct lk__pending *request)
{
	struct lk__request value;

	lk__core_request(request, &value);
	return value;
}

void vc_answer(struct lk__pending *request, struct lk__answer answer)
{
	lk__core_answer(&vc.core, vc.now_ns, request, &answer);
}

uint64_t vc_granted(struct lk__pending *request)
{
	vc_answer(request, (struct lk__answer){.kind = LK__GRANTED,
	                                       .fence = ++vc.fence,
	                                       .store_us = vc_store_us()});
	return vc.fence;
}

void vc_queued(struct lk__pending *request)
{
	vc_answer(request, (struct lk__answer){.kind = LK__QUEUED,
	                                       .arrival = (uint64_t)vc_store_us(),
	                                       .left_ms = 9000});
}

void vc_busy(struct lk__pending *request)
{
	vc_answer(request, (struct lk__answer){.kind = LK__BUSY});
}

void vc_kept(struct lk__pending *request, int64_t waiting)
{
	const struct lk__ticket *ticket = request->ticket;

	vc_answer(request, (struct lk__answer){.kind = LK__KEPT,
	                                       .fence = ticket->fence ? ticket->fence : ++vc.fence,
	                                       .waiting = waiting,
	                                       .store_us = vc_store_us()});
}

void vc_gone(struct lk__pending *request)
{
	vc_answer(request, (struct lk__answer){.kind = LK__GONE});
}

void vc_left(struct lk__pending *request, bool mine, bool more)
{
	vc_answer(request, (struct lk__answer){.kind = LK__LEFT, .mine = mine, .more = more});
}

void vc_shown(struct lk__pending *request, lk_latch_state state, uint64_t generation)
{
	vc_answer(request, (struct lk__answer){.kind = LK__SHOWN,
	                                       .latch_state = state,
	                                       .fence = generation,
	                                       .next = generation + 1,
	                                       .left_ms = -1});
}

void vc_divided(struct lk__pending *request)
{
	vc_answer(request, (struct lk__answer){.kind = LK__FAILED,
	                                       .err = LK_EAGAIN,
	                                       .retryable = true,
	                                       .divided = true,
	                                       .text = "TRYAGAIN"});
}

void vc_moved(struct lk__pending *request, int link)
{
	const struct lk__request value = vc_request(request);

	lk__core_moved(&vc.core, vc.now_ns, request, lk__slot_of(value.name, value.name_len),
	               &vc.links[link]);
}

void vc_asked(struct lk__pending *request, int link)
{
	lk__core_asked(&vc.core, vc.now_ns, request, &vc.links[link]);
}

/* ---- Channels and messages ---------------------------------------------------------------- */

static void take_command(int link, const char *topic)
{
	bool subscribe = false;
	const struct lk__channel *channel = lk__channels_next(&vc.links[link].channels, &subscribe);

	ck_assert_msg(channel != NULL, "no command over link %d", link);
	ck_assert_str_eq(channel->topic, topic);
	ck_assert(subscribe);
}

void vc_subscribed(int link, const char *topic)
{
	take_command(link, topic);
	lk__channels_confirmed(&vc.links[link].channels, vc.now_ns, true, topic, strlen(topic));
}

void vc_refused(int link, const char *topic)
{
	take_command(link, topic);
	lk__channels_refused(&vc.links[link].channels, vc.now_ns,
	                     &(struct lk__why){.err = LK_EAUTH, .text = "NOPERM refused"});
}

void vc_dropped(int link, const char *topic)
{
	lk__channels_confirmed(&vc.links[link].channels, vc.now_ns, false, topic, strlen(topic));
}

bool vc_no_command(int link)
{
	return !lk__channels_ready(&vc.links[link].channels);
}

void vc_grant_message(int link, const struct lk__ticket *ticket)
{
	struct lk__message message = {
		.kind = LK__GRANT,
		.lease_ms = ticket->queue->lease_ms,
		.fixed = ticket->queue->fixed,
		.final = ticket->queue->final,
		.permits = ticket->queue->permits,
		.fence = ++vc.fence,
		.life_ms = ticket->queue->lease_ms,
		.store_us = vc_store_us(),
		.from = &vc.links[link],
	};

	memcpy(message.nonce, ticket->nonce, sizeof(message.nonce));
	lk__core_message(&vc.core, vc.now_ns, &message);
}

/* ---- Time --------------------------------------------------------------------------------- */

void vc_pass(int64_t ms)
{
	int64_t end_ns = vc.now_ns + ms * VC_MS;
	int runs = 0;

	for (;;) {
		int64_t due_ns;
		lk__core_tick(&vc.core, vc.now_ns);
		due_ns = lk__core_due(&vc.core);
		ck_assert_msg(due_ns > vc.now_ns || ++runs < RUNS_MAX, "a timer stays due");
		if (due_ns > end_ns && vc.now_ns == end_ns)
			return;
		if (due_ns > vc.now_ns) {
			vc.now_ns = due_ns < end_ns ? due_ns : end_ns;
			runs = 0;
		}
	}
}
