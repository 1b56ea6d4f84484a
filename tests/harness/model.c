/* SPDX-License-Identifier: MIT
 * The store's scripts in C: see model.h.  Each function names the script that it follows. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#define DEAD_MAX 32
#define CLAIM_MS 3000

static bool same(const struct model_ticket *a, const struct model_ticket *b)
{
	return a->client == b->client && !strcmp(a->nonce, b->nonce) &&
	       a->lease_ms == b->lease_ms && a->fixed == b->fixed;
}

static int64_t now_ms(const struct model *model)
{
	return model->now_us / 1000;
}

static void expire(struct model *model, struct model_lock *lock)
{
	if (lock->held && now_ms(model) > lock->ends_ms)
		lock->held = false;
	if (lock->queued && now_ms(model) > lock->queue_ends_ms)
		lock->queued = 0;
}

void model_expire(struct model *model)
{
	for (int i = 0; i < MODEL_NAMES; i++)
		expire(model, &model->locks[i]);
}

void model_flush(struct model *model)
{
	for (int i = 0; i < MODEL_NAMES; i++) {
		model->locks[i].held = false;
		model->locks[i].queued = 0;
	}
	model->fence = 0;
}

/* ---- The queue ---------------------------------------------------------------------------- */

static int find(const struct model_lock *lock, const struct model_ticket *ticket)
{
	for (int i = 0; i < lock->queued; i++)
		if (same(&lock->queue[i].ticket, ticket))
			return i;
	return -1;
}

static void dequeue(struct model_lock *lock, int index)
{
	if (index < 0)
		return;
	lock->queued--;
	memmove(&lock->queue[index], &lock->queue[index + 1],
	        sizeof(lock->queue[0]) * (size_t)(lock->queued - index));
}

/* Members of equal score are ordered by their text: any fixed order will do. */
static bool before(const struct model_waiter *a, const struct model_waiter *b)
{
	if (a->arrival != b->arrival)
		return a->arrival < b->arrival;
	return strcmp(a->ticket.nonce, b->ticket.nonce) < 0;
}

static void enqueue(struct model_lock *lock, const struct model_ticket *ticket, int64_t arrival)
{
	struct model_waiter waiter = {*ticket, arrival};
	int at = lock->queued;

	if (lock->queued == MODEL_QUEUE)
		abort();
	while (at > 0 && before(&waiter, &lock->queue[at - 1])) {
		lock->queue[at] = lock->queue[at - 1];
		at--;
	}
	lock->queue[at] = waiter;
	lock->queued++;
}

static void set_holder(struct model *model, int name, const struct model_ticket *ticket,
                       uint64_t fence, bool share, int64_t life_ms)
{
	struct model_lock *lock = &model->locks[name];

	lock->held = true;
	lock->owner = *ticket;
	lock->fence = fence;
	lock->share = share;
	lock->lease_ms = ticket->lease_ms;
	lock->ends_ms = now_ms(model) + life_ms;
	model->fence = fence;
}

/* ---- The scripts -------------------------------------------------------------------------- */

static int publish(struct model *model, const struct model_ticket *to, struct lk__message *message)
{
	memcpy(message->nonce, to->nonce, LK__NONCE_SIZE);
	message->lease_ms = to->lease_ms;
	message->fixed = to->fixed;
	return model->publish(model->arg, to->client, message);
}

static uint64_t next_fence(const struct model *model, uint64_t last)
{
	uint64_t now = (uint64_t)model->now_us;

	return last + 1 > now ? last + 1 : now;
}

static void queue_ask(struct model *model, const struct model_request *request,
                      struct lk__answer *answer)
{
	struct model_lock *lock = &model->locks[request->name];
	int64_t arrival = request->arrival, tail;
	int at = find(lock, &request->ticket);
	struct lk__message wanted = {.kind = LK__WANTED};

	if (at < 0) {
		if (!arrival) {
			tail = lock->queued ? lock->queue[lock->queued - 1].arrival : 0;
			arrival = tail + 1 > model->now_us ? tail + 1 : model->now_us;
		}
		enqueue(lock, &request->ticket, arrival);
		if (lock->held && lock->share && lock->queued == 1)
			publish(model, &lock->owner, &wanted);
		at = find(lock, &request->ticket);
	}
	lock->queue_ends_ms = now_ms(model) + LK__QUEUE_LIFE_MS;
	answer->kind = LK__QUEUED;
	answer->arrival = (uint64_t)lock->queue[at].arrival;
	answer->rank = at;
}

/* lock_ask.lua */
static void ask(struct model *model, const struct model_request *request, struct lk__answer *answer)
{
	struct model_lock *lock = &model->locks[request->name];

	answer->store_us = model->now_us;
	if (lock->held && same(&lock->owner, &request->ticket)) {
		if (lock->ends_ms < now_ms(model) + request->ticket.lease_ms)
			lock->ends_ms = now_ms(model) + request->ticket.lease_ms;
		answer->kind = LK__GRANTED;
		answer->fence = lock->fence;
		answer->waiting = lock->queued;
		return;
	}
	if (!lock->held && (!lock->queued || same(&lock->queue[0].ticket, &request->ticket))) {
		set_holder(model, request->name, &request->ticket, next_fence(model, model->fence),
		           request->share, request->ticket.lease_ms);
		dequeue(lock, find(lock, &request->ticket));
		answer->kind = LK__GRANTED;
		answer->fence = lock->fence;
		answer->waiting = lock->queued;
		return;
	}
	answer->free = !lock->held;
	if (lock->held) {
		answer->left_ms = lock->ends_ms - now_ms(model);
		if (answer->left_ms > lock->lease_ms) {
			answer->left_ms = lock->lease_ms;
			lock->ends_ms = now_ms(model) + answer->left_ms;
		}
	}
	if (request->wait)
		queue_ask(model, request, answer);
	else
		answer->kind = LK__BUSY;
}

/* True if the message was delivered. */
static bool serve_head(struct model *model, int name, uint64_t fence)
{
	struct model_lock *lock = &model->locks[name];
	struct model_waiter head = lock->queue[0];
	int64_t claim_ms =
		CLAIM_MS < head.ticket.lease_ms / 2 ? CLAIM_MS : head.ticket.lease_ms / 2;
	int64_t age = model->now_us - head.arrival;
	bool old = age < 0 || age > claim_ms * 1000;
	struct lk__message grant = {
		.kind = LK__GRANT,
		.fence = fence,
		.life_ms = old ? claim_ms : head.ticket.lease_ms,
		.claim = old,
		.waiting = lock->queued - 1,
		.store_us = model->now_us,
	};
	struct lk__message again = {.kind = LK__REASK, .in_ms = grant.life_ms};
	int told = publish(model, &head.ticket, &grant);

	dequeue(lock, 0);
	if (!told)
		return false;
	set_holder(model, name, &head.ticket, fence, false, grant.life_ms);
	if (old && lock->queued)
		publish(model, &lock->queue[0].ticket, &again);
	return true;
}

/* lock_leave.lua; ticket NULL: only grant the lock to the head of the queue. */
static void leave(struct model *model, int name, const struct model_ticket *ticket,
                  uint64_t last_fence, bool by_force, struct lk__answer *answer)
{
	struct model_lock *lock = &model->locks[name];
	struct lk__message broken = {.kind = LK__BROKEN};
	uint64_t fence;

	answer->kind = LK__LEFT;
	if (ticket)
		dequeue(lock, find(lock, ticket));
	answer->mine = ticket && lock->held && same(&lock->owner, ticket);
	if (lock->held && !answer->mine)
		return;
	if (answer->mine) {
		lock->held = false;
		if (by_force)
			publish(model, &lock->owner, &broken);
		if (last_fence > model->fence)
			model->fence = last_fence;
	}
	fence = next_fence(model, model->fence);
	for (int i = 0; i < DEAD_MAX; i++) {
		if (!lock->queued) {
			answer->free = true;
			return;
		}
		if (serve_head(model, name, fence))
			return;
	}
	answer->more = true;
}

/* lock_renew.lua */
static void renew(struct model *model, const struct model_request *request,
                  struct lk__answer *answer)
{
	struct model_lock *lock = &model->locks[request->name];

	if (!lock->held || !same(&lock->owner, &request->ticket) ||
	    (request->fence && request->fence != lock->fence)) {
		answer->kind = LK__GONE;
		return;
	}
	/* Never shortened; lease_ms is the current length. */
	if (lock->ends_ms < now_ms(model) + request->lease_ms) {
		lock->ends_ms = now_ms(model) + request->lease_ms;
		lock->lease_ms = request->lease_ms;
	} else if (lock->lease_ms < request->lease_ms) {
		lock->lease_ms = request->lease_ms;
	}
	lock->share = request->share;
	if (request->last_fence > model->fence)
		model->fence = request->last_fence;
	answer->kind = LK__KEPT;
	answer->fence = lock->fence;
	answer->store_us = model->now_us;
	answer->waiting = lock->queued;
}

void model_run(struct model *model, const struct model_request *request, struct lk__answer *answer)
{
	memset(answer, 0, sizeof(*answer));
	model_expire(model);
	model->runs[request->kind]++;
	switch (request->kind) {
	case LK__ASK:
		ask(model, request, answer);
		break;
	case LK__LEAVE:
		leave(model, request->name, &request->ticket, request->last_fence, false, answer);
		break;
	case LK__HAND:
		leave(model, request->name, NULL, 0, false, answer);
		break;
	case LK__RENEW:
		renew(model, request, answer);
		break;
	default: /* not a kind of locks */
		break;
	}
}

void model_break(struct model *model, int name)
{
	struct model_lock *lock = &model->locks[name];
	struct model_ticket owner = lock->owner;
	struct lk__answer answer = {0};

	model_expire(model);
	if (!lock->held)
		return;
	leave(model, name, &owner, 0, true, &answer);
}
