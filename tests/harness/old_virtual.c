/* SPDX-License-Identifier: MIT
 * Clients in virtual time: see virtual.h. */
#include "old_virtual.h"

#include <stdlib.h>
#include <string.h>

static int publish(void *arg, int id, const struct lk__message *message)
{
	struct old_virt *virt = arg;
	struct old_virt_client *client = &virt->clients[id];

	if (!client->subscribed)
		return 0;
	if (client->inbox_count == OLD_VIRT_INBOX)
		abort();
	client->inbox[client->inbox_count++] = *message;
	return 1;
}

void old_virt_set_time(struct old_virt *virt, int64_t now_ns)
{
	virt->now_ns = now_ns;
	virt->model.now_us = OLD_VIRT_EPOCH_US + now_ns / 1000;
	model_expire(&virt->model);
}

void old_virt_init(struct old_virt *virt, int clients, uint64_t seed)
{
	memset(virt, 0, sizeof(*virt));
	virt->model.publish = publish;
	virt->model.arg = virt;
	virt->client_count = clients;
	old_virt_set_time(virt, 1000 * OLD_VIRT_MS);
	for (int i = 0; i < clients; i++) {
		struct old_virt_client *client = &virt->clients[i];
		client->virt = virt;
		client->id = i;
		lk__session_init(&client->session, 1000000000, 1000000000);
		if (!lk__core_init(&client->core, seed * 100 + (uint64_t)i) ||
		    !lk__core_add_session(&client->core, &client->session))
			abort();
		old_virt_link_up(client);
	}
}

void old_virt_fini(struct old_virt *virt)
{
	for (int i = 0; i < virt->client_count; i++) {
		struct old_virt_client *client = &virt->clients[i];
		lk__core_fini(&client->core);
		for (int j = 0; j < client->waiter_count; j++) {
			free(client->waiters[j]->spare_ticket);
			free(client->waiters[j]->spare_hold);
			free(client->waiters[j]);
		}
	}
}

int64_t old_virt_now(const struct old_virt_client *client)
{
	return client->virt->now_ns;
}

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *old_virt_open(struct old_virt_client *client, const char *name,
                                     int64_t lease_ms, bool fixed)
{
	return lk__wait_queue_open(&client->core, &client->session,
	                           lk__name_new(LK_KIND_LOCK, name, strlen(name)),
	                           lk__wait_queue_new(lease_ms, fixed));
}

struct lk__op *old_virt_waiter(struct old_virt_client *client, struct lk__wait_queue *queue,
                               uint64_t owner)
{
	struct lk__op *waiter = calloc(1, sizeof(*waiter));

	waiter->queue = queue;
	waiter->handle = client;
	waiter->owner = owner;
	waiter->reports_loss = true;
	waiter->spare_ticket = malloc(sizeof(*waiter->spare_ticket));
	waiter->spare_hold = malloc(sizeof(*waiter->spare_hold));
	if (client->waiter_count == (int)(sizeof(client->waiters) / sizeof(*client->waiters)))
		abort();
	client->waiters[client->waiter_count++] = waiter;
	return waiter;
}

struct lk__op *old_virt_acquire(struct old_virt_client *client, struct lk__wait_queue *queue,
                                uint64_t owner)
{
	struct lk__op *waiter = old_virt_waiter(client, queue, owner);

	lk__core_acquire(&client->core, old_virt_now(client), waiter);
	return waiter;
}

struct lk__op *old_virt_try(struct old_virt_client *client, struct lk__wait_queue *queue,
                            uint64_t owner)
{
	struct lk__op *waiter = old_virt_waiter(client, queue, owner);

	waiter->only_try = true;
	lk__core_acquire(&client->core, old_virt_now(client), waiter);
	return waiter;
}

struct lk__op *old_virt_release(struct old_virt_client *client, struct lk__wait_queue *queue,
                                uint64_t owner)
{
	struct lk__op *waiter = old_virt_waiter(client, queue, owner);

	lk__core_release(&client->core, old_virt_now(client), waiter);
	return waiter;
}

struct lk__op *old_virt_extend(struct old_virt_client *client, struct lk__wait_queue *queue,
                               uint64_t owner, int64_t lease_ms)
{
	struct lk__op *waiter = old_virt_waiter(client, queue, owner);

	waiter->lease_ms = lease_ms;
	lk__core_extend(&client->core, old_virt_now(client), waiter);
	return waiter;
}

void old_virt_give_up(struct old_virt_client *client, struct lk__op *waiter, lk_err why)
{
	lk__core_give_up(&client->core, old_virt_now(client), waiter, why);
}

void old_virt_abandon(struct old_virt_client *client, struct lk__op *waiter)
{
	lk__core_abandon(&client->core, old_virt_now(client), waiter);
}

lk_state old_virt_state(const struct old_virt_client *client, const struct lk__wait_queue *queue,
                        uint64_t owner)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, owner);

	return hold ? lk__hold_state(hold, old_virt_now(client)) : LK_STATE_NONE;
}

uint64_t old_virt_fence(const struct lk__wait_queue *queue, uint64_t owner)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, owner);

	return hold ? hold->fence : 0;
}

/* ---- The network -------------------------------------------------------------------------- */

bool old_virt_take(struct old_virt_client *client, struct old_virt_call *call)
{
	struct lk__pending *request =
		lk__core_next_request(&client->core, &client->session, old_virt_now(client));
	const struct lk__ticket *ticket;

	memset(call, 0, sizeof(*call));
	if (!request)
		return false;
	ticket = request->ticket;
	call->request = request;
	/* Mirrors the bytes of redis/codec.c. */
	call->bytes = (struct model_request){
		.kind = request->kind,
		.name = (ticket->queue->name->bytes[0] - 'a') % MODEL_NAMES,
		.ticket = {.client = client->id,
	                   .lease_ms = ticket->queue->lease_ms,
	                   .fixed = ticket->queue->fixed},
		.wait = !ticket->is_try,
		.share = request->shares,
		.arrival = (int64_t)ticket->arrival,
		.lease_ms = request->lease_ms,
		.fence = request->claim ? 0 : ticket->fence,
		.last_fence = request->claim ? 0 : ticket->last_fence,
	};
	memcpy(call->bytes.ticket.nonce, ticket->nonce, LK__NONCE_SIZE);
	return true;
}

void old_virt_execute(struct old_virt_client *client, struct old_virt_call *call)
{
	model_run(&client->virt->model, &call->bytes, &call->answer);
}

void old_virt_answer(struct old_virt_client *client, const struct old_virt_call *call)
{
	lk__core_answer(&client->core, old_virt_now(client), call->request, &call->answer);
}

void old_virt_refuse(struct old_virt_client *client, const struct old_virt_call *call, lk_err err,
                     bool passes)
{
	struct lk__answer answer = {
		.kind = LK__FAILED, .err = err, .retryable = passes, .text = "refused"};

	lk__core_answer(&client->core, old_virt_now(client), call->request, &answer);
}

bool old_virt_hear(struct old_virt_client *client)
{
	struct lk__message message = client->inbox[0];

	if (!client->inbox_count)
		return false;
	client->inbox_count--;
	memmove(&client->inbox[0], &client->inbox[1],
	        sizeof(client->inbox[0]) * (size_t)client->inbox_count);
	lk__core_message(&client->core, old_virt_now(client), &message);
	return true;
}

void old_virt_forget(struct old_virt_client *client)
{
	client->inbox_count = 0;
}

void old_virt_link_down(struct old_virt_client *client, lk_err err)
{
	struct lk__why why = {.err = err, .text = "the link is down"};

	client->subscribed = false;
	old_virt_forget(client);
	lk__core_link_down(&client->core, &client->session, old_virt_now(client), &why, 0);
}

void old_virt_link_up(struct old_virt_client *client)
{
	client->subscribed = true;
	lk__core_link_up(&client->core, &client->session, old_virt_now(client));
}

/* ---- The network, whole
 * -------------------------------------------------------------------------- */

static void take_out(struct old_virt_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		;
	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
}

void old_virt_settle(struct old_virt *virt)
{
	struct old_virt_call call;
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < virt->client_count; i++) {
			struct old_virt_client *client = &virt->clients[i];
			lk__core_tick(&client->core, old_virt_now(client));
			while (old_virt_take(client, &call)) {
				old_virt_execute(client, &call);
				old_virt_answer(client, &call);
				busy = true;
			}
			while (old_virt_hear(client))
				busy = true;
		}
	}
	for (int i = 0; i < virt->client_count; i++)
		take_out(&virt->clients[i]);
}

void old_virt_pass(struct old_virt *virt, int64_t ms)
{
	int64_t end_ns = virt->now_ns + ms * OLD_VIRT_MS;

	for (;;) {
		int64_t next_ns = end_ns;
		old_virt_settle(virt);
		for (int i = 0; i < virt->client_count; i++) {
			int64_t due_ns = lk__core_due(&virt->clients[i].core);
			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		if (virt->now_ns >= end_ns)
			return;
		old_virt_set_time(virt, next_ns > virt->now_ns ? next_ns : virt->now_ns);
	}
}

bool old_virt_at_rest(const struct old_virt *virt)
{
	for (int i = 0; i < virt->client_count; i++)
		if (virt->clients[i].core.all_tickets || virt->clients[i].core.all_holds)
			return false;
	for (int i = 0; i < MODEL_NAMES; i++)
		if (virt->model.locks[i].held || virt->model.locks[i].queued)
			return false;
	return true;
}
