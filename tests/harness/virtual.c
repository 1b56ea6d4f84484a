/* SPDX-License-Identifier: MIT
 * Clients in virtual time: see virtual.h. */
#include "virtual.h"

#include <stdlib.h>
#include <string.h>

static int publish(void *arg, int id, const struct lk__message *message)
{
	struct virt *virt = arg;
	struct virt_client *client = &virt->clients[id];

	if (!client->subscribed)
		return 0;
	if (client->inbox_count == VIRT_INBOX)
		abort();
	client->inbox[client->inbox_count++] = *message;
	return 1;
}

void virt_set_time(struct virt *virt, int64_t now_ns)
{
	virt->now_ns = now_ns;
	virt->model.now_us = VIRT_EPOCH_US + now_ns / 1000;
	model_expire(&virt->model);
}

void virt_init(struct virt *virt, int clients, uint64_t seed)
{
	memset(virt, 0, sizeof(*virt));
	virt->model.publish = publish;
	virt->model.arg = virt;
	virt->client_count = clients;
	virt_set_time(virt, 1000 * VIRT_MS);
	for (int i = 0; i < clients; i++) {
		struct virt_client *client = &virt->clients[i];
		client->virt = virt;
		client->id = i;
		lk__session_init(&client->session, 1000000000, 1000000000);
		if (!lk__core_init(&client->core, seed * 100 + (uint64_t)i) ||
		    !lk__core_add_session(&client->core, &client->session))
			abort();
		virt_link_up(client);
	}
}

void virt_fini(struct virt *virt)
{
	for (int i = 0; i < virt->client_count; i++) {
		struct virt_client *client = &virt->clients[i];
		lk__core_fini(&client->core);
		for (int j = 0; j < client->waiter_count; j++) {
			free(client->waiters[j]->spare_ticket);
			free(client->waiters[j]->spare_hold);
			free(client->waiters[j]);
		}
	}
}

int64_t virt_now(const struct virt_client *client)
{
	return client->virt->now_ns;
}

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *virt_open(struct virt_client *client, const char *name, int64_t lease_ms,
                                 bool fixed)
{
	return lk__wait_queue_open(&client->core, &client->session,
	                           lk__name_new(LK_KIND_LOCK, name, strlen(name)),
	                           lk__wait_queue_new(lease_ms, fixed));
}

struct lk__op *virt_waiter(struct virt_client *client, struct lk__wait_queue *queue, uint64_t owner)
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

struct lk__op *virt_acquire(struct virt_client *client, struct lk__wait_queue *queue,
                            uint64_t owner)
{
	struct lk__op *waiter = virt_waiter(client, queue, owner);

	lk__core_acquire(&client->core, virt_now(client), waiter);
	return waiter;
}

struct lk__op *virt_try(struct virt_client *client, struct lk__wait_queue *queue, uint64_t owner)
{
	struct lk__op *waiter = virt_waiter(client, queue, owner);

	waiter->only_try = true;
	lk__core_acquire(&client->core, virt_now(client), waiter);
	return waiter;
}

struct lk__op *virt_release(struct virt_client *client, struct lk__wait_queue *queue,
                            uint64_t owner)
{
	struct lk__op *waiter = virt_waiter(client, queue, owner);

	lk__core_release(&client->core, virt_now(client), waiter);
	return waiter;
}

struct lk__op *virt_extend(struct virt_client *client, struct lk__wait_queue *queue, uint64_t owner,
                           int64_t lease_ms)
{
	struct lk__op *waiter = virt_waiter(client, queue, owner);

	waiter->lease_ms = lease_ms;
	lk__core_extend(&client->core, virt_now(client), waiter);
	return waiter;
}

void virt_give_up(struct virt_client *client, struct lk__op *waiter, lk_err why)
{
	lk__core_give_up(&client->core, virt_now(client), waiter, why);
}

void virt_abandon(struct virt_client *client, struct lk__op *waiter)
{
	lk__core_abandon(&client->core, virt_now(client), waiter);
}

lk_state virt_state(const struct virt_client *client, const struct lk__wait_queue *queue,
                    uint64_t owner)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, owner);

	return hold ? lk__hold_state(hold, virt_now(client)) : LK_STATE_NONE;
}

uint64_t virt_fence(const struct lk__wait_queue *queue, uint64_t owner)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, owner);

	return hold ? hold->fence : 0;
}

/* ---- The network -------------------------------------------------------------------------- */

bool virt_take(struct virt_client *client, struct virt_call *call)
{
	struct lk__pending *request =
		lk__core_next_request(&client->core, &client->session, virt_now(client));
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

void virt_execute(struct virt_client *client, struct virt_call *call)
{
	model_run(&client->virt->model, &call->bytes, &call->answer);
}

void virt_answer(struct virt_client *client, const struct virt_call *call)
{
	lk__core_answer(&client->core, virt_now(client), call->request, &call->answer);
}

void virt_refuse(struct virt_client *client, const struct virt_call *call, lk_err err, bool passes)
{
	struct lk__answer answer = {
		.kind = LK__FAILED, .err = err, .retryable = passes, .text = "refused"};

	lk__core_answer(&client->core, virt_now(client), call->request, &answer);
}

bool virt_hear(struct virt_client *client)
{
	struct lk__message message = client->inbox[0];

	if (!client->inbox_count)
		return false;
	client->inbox_count--;
	memmove(&client->inbox[0], &client->inbox[1],
	        sizeof(client->inbox[0]) * (size_t)client->inbox_count);
	lk__core_message(&client->core, virt_now(client), &message);
	return true;
}

void virt_forget(struct virt_client *client)
{
	client->inbox_count = 0;
}

void virt_link_down(struct virt_client *client, lk_err err)
{
	struct lk__why why = {.err = err, .text = "the link is down"};

	client->subscribed = false;
	virt_forget(client);
	lk__core_link_down(&client->core, &client->session, virt_now(client), &why, 0);
}

void virt_link_up(struct virt_client *client)
{
	client->subscribed = true;
	lk__core_link_up(&client->core, &client->session, virt_now(client));
}

/* ---- The network, whole
 * -------------------------------------------------------------------------- */

static void take_out(struct virt_client *client)
{
	struct lk__hold *hold;

	while (lk__core_next_done(&client->core))
		;
	while ((hold = lk__core_next_lost(&client->core)))
		lk__core_loss_reported(hold);
}

void virt_settle(struct virt *virt)
{
	struct virt_call call;
	bool busy = true;

	while (busy) {
		busy = false;
		for (int i = 0; i < virt->client_count; i++) {
			struct virt_client *client = &virt->clients[i];
			lk__core_tick(&client->core, virt_now(client));
			while (virt_take(client, &call)) {
				virt_execute(client, &call);
				virt_answer(client, &call);
				busy = true;
			}
			while (virt_hear(client))
				busy = true;
		}
	}
	for (int i = 0; i < virt->client_count; i++)
		take_out(&virt->clients[i]);
}

void virt_pass(struct virt *virt, int64_t ms)
{
	int64_t end_ns = virt->now_ns + ms * VIRT_MS;

	for (;;) {
		int64_t next_ns = end_ns;
		virt_settle(virt);
		for (int i = 0; i < virt->client_count; i++) {
			int64_t due_ns = lk__core_due(&virt->clients[i].core);
			if (due_ns < next_ns)
				next_ns = due_ns;
		}
		if (virt->now_ns >= end_ns)
			return;
		virt_set_time(virt, next_ns > virt->now_ns ? next_ns : virt->now_ns);
	}
}

bool virt_at_rest(const struct virt *virt)
{
	for (int i = 0; i < virt->client_count; i++)
		if (virt->clients[i].core.all_tickets || virt->clients[i].core.all_holds)
			return false;
	for (int i = 0; i < MODEL_NAMES; i++)
		if (virt->model.locks[i].held || virt->model.locks[i].queued)
			return false;
	return true;
}
