/* SPDX-License-Identifier: MIT
 * The store of the model of the lock protocol: src/redis/scripts/lock_*.lua, step by step. */
#include "lock_step.h"

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

int lock_server_find(const struct lock_state *state, int client, int nonce)
{
	for (int i = 0; i < state->queued; i++)
		if (same(&state->queue[i], client, nonce))
			return i;
	return -1;
}

static void queue_remove(struct lock_state *state, int at)
{
	if (at < 0)
		return;
	state->queued--;
	for (int i = at; i < state->queued; i++)
		state->queue[i] = state->queue[i + 1];
	state->queue[state->queued] = (struct model_ref){0, 0};
}

static void queue_add(struct step *step, int client, int nonce, bool known)
{
	struct lock_state *state = step->state;
	int at = state->queued;

	if (at == MODEL_QUEUE) {
		step->no_room = true;
		return;
	}
	/* Its stamp of old says where: that is anywhere. */
	if (known)
		at = choose(step, state->queued + 1);
	for (int i = state->queued++; i > at; i--)
		state->queue[i] = state->queue[i - 1];
	state->queue[at] = (struct model_ref){(uint8_t)client, (uint8_t)nonce};
}

static void set_owner(struct lock_state *state, int client, int nonce, uint8_t left)
{
	state->held = 1;
	state->owner = (struct model_ref){(uint8_t)client, (uint8_t)nonce};
	state->fence = ++state->last;
	state->left = left;
}

void lock_server_free(struct lock_state *state)
{
	state->held = state->fence = state->left = 0;
	state->owner = (struct model_ref){0, 0};
}

/* PEXPIRE */
static void set_end(struct step *step, uint8_t ticks)
{
	if (ticks > step->state->left || step->rule != STORE_NEVER_SHORTENS)
		step->state->left = ticks;
}

static void ask(struct step *step, int client, struct model_entry *entry)
{
	struct lock_state *state = step->state;
	int place = lock_server_find(state, client, entry->nonce);

	if (state->held && same(&state->owner, client, entry->nonce)) {
		set_end(step, step->bounds->lease);
		entry->answer = GRANTED;
		entry->fence = state->fence;
	} else if (!state->held && (!state->queued || place == 0)) {
		set_owner(state, client, entry->nonce, step->bounds->lease);
		queue_remove(state, place);
		entry->answer = GRANTED;
		entry->fence = state->fence;
	} else {
		if (state->held && step->rule == ASK_CUTS_EXTENSION)
			state->left = least(state->left, step->bounds->lease);
		if (place < 0)
			queue_add(step, client, entry->nonce, entry->flag);
		entry->answer = state->held ? QUEUED : QUEUED_FREE;
	}
}

/* Serve the head; those whom nobody can tell are skipped. */
static void serve(struct step *step)
{
	struct lock_state *state = step->state;

	while (state->queued) {
		struct model_ref head = state->queue[0];
		struct model_client *client = &state->client[head.client];
		bool old;
		queue_remove(state, 0);
		if (!client->heard)
			continue;
		old = choose(step, 2);
		set_owner(state, head.client, head.nonce,
		          old ? step->bounds->claim_life : step->bounds->lease);
		if (!client->alive || !client->linked)
			return; /* nobody there, only a connection that still looks alive */
		if (client->notes == step->bounds->notes)
			step->no_room = true;
		else
			client->note[client->notes++] =
				(struct model_note){head.nonce, state->fence, old};
		return;
	}
}

static void leave(struct step *step, int client, const struct model_entry *entry)
{
	struct lock_state *state = step->state;

	if (entry->kind == LEAVE && !(step->rule == RELEASE_STAYS_QUEUED && entry->flag))
		queue_remove(state, lock_server_find(state, client, entry->nonce));
	if (state->held && entry->kind == LEAVE && same(&state->owner, client, entry->nonce))
		lock_server_free(state);
	if (!state->held || (entry->kind == HAND && step->rule == HAND_UNCHECKED))
		serve(step);
}

static void renew(struct step *step, int client, struct model_entry *entry)
{
	struct lock_state *state = step->state;

	if (!state->held || !same(&state->owner, client, entry->nonce) ||
	    (entry->fence && entry->fence != state->fence)) {
		entry->answer = GONE;
		entry->fence = 0;
		return;
	}
	set_end(step, entry->flag ? step->bounds->extension : step->bounds->lease);
	entry->answer = KEPT;
	entry->fence = state->fence;
}

void lock_server_execute(struct step *step, int client, struct model_entry *entry)
{
	entry->answer = LEFT;
	if (entry->kind == ASK)
		ask(step, client, entry);
	else if (entry->kind == RENEW)
		renew(step, client, entry);
	else
		leave(step, client, entry);
	if (entry->kind != RENEW)
		entry->flag = 0;
}
