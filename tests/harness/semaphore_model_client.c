/* SPDX-License-Identifier: MIT
 * A client of the model of the semaphore's protocol: its tickets, and what each answer and each
 * message makes of them, after src/core/{ticket,answer}.c. */
#include "semaphore_model_step.h"

/* ---- A client: tickets -------------------------------------------------------------------- */

/* Of the two requests that a ticket may have under way, the one that ends it. */
static bool of_leaver(const struct semaphore_entry *entry)
{
	return entry->kind == LEAVE || (entry->kind == HAND && entry->flag);
}

bool semaphore_client_asked(const struct semaphore_client *client, int nonce, bool leaving)
{
	for (int i = 0; i < client->entries; i++)
		if (client->entry[i].nonce == nonce && of_leaver(&client->entry[i]) == leaving)
			return true;
	return false;
}

bool semaphore_client_at_rest(const struct semaphore_client *client)
{
	return !semaphore_client_asked(client, client->nonce, false);
}

/* What lk__ticket_pursue() does for its timer; sending is a step of its own. */
void semaphore_client_pursue(struct semaphore_client *client)
{
	client->armed = client->linked && client->due && semaphore_client_at_rest(client);
}

/* next_ns() for a hold. */
static void plan(const struct step *step, struct semaphore_client *client)
{
	client->due = step->bounds->kind == PERMITS_RENEWED || client->handing || client->shrinking;
}

static void send(struct step *step, struct semaphore_client *client, struct semaphore_entry entry)
{
	struct semaphore_entry *sent = &client->entry[client->entries];

	if (client->entries == MODEL_ENTRIES) {
		step->no_room = true;
		return;
	}
	client->entries++;
	*sent = entry;
	if (step->bounds->prompt)
		semaphore_server_execute(step, (int)(client - step->state->client), sent);
}

void semaphore_client_send(struct step *step, struct semaphore_client *client,
                           struct semaphore_entry entry)
{
	bool extends = entry.kind == RENEW && entry.flag;

	entry.nonce = client->nonce;
	send(step, client, entry);
	client->sent = extends ? step->bounds->extension : step->bounds->lease;
	client->due = client->armed = 0;
}

void semaphore_client_leave(struct step *step, struct semaphore_client *client,
                            const struct semaphore_leaver *leaver, bool release)
{
	struct semaphore_entry entry = {.kind = leaver->hand ? HAND : LEAVE,
	                                .nonce = leaver->nonce};

	entry.flag = leaver->hand || release;
	send(step, client, entry);
}

void semaphore_client_clear(struct semaphore_client *client)
{
	client->ticket = NOTHING;
	client->nonce = client->first = client->sent = client->valid = client->fence = 0;
	client->count = client->only_try = client->shrinking = 0;
	client->handing = client->known = client->due = client->armed = 0;
}

/* lk__ticket_leave(), lapse() when the wait is to go on, forget() when only the head is to be
 * served. */
void semaphore_client_end(struct step *step, struct semaphore_client *client, bool again, bool hand)
{
	struct semaphore_leaver leaver = {client->nonce, again, again && client->only_try, hand};
	bool release = client->ticket == HOLDING;

	if (client->leavers == MODEL_LEAVING) {
		step->no_room = true;
		return;
	}
	client->leaver[client->leavers++] = leaver;
	semaphore_client_clear(client);
	if (client->linked)
		semaphore_client_leave(step, client, &leaver, release);
}

static uint8_t new_nonce(struct step *step, int index)
{
	const struct semaphore_state *state = step->state;
	const struct semaphore_client *client = &state->client[index];
	unsigned known = 0;

	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == index)
			known |= 1u << state->hold[i].nonce;
	for (int i = 0; i < state->queued; i++)
		if (state->queue[i].client == index)
			known |= 1u << state->queue[i].nonce;
	for (int i = 0; i < client->leavers; i++)
		known |= 1u << client->leaver[i].nonce;
	for (int i = 0; i < client->entries; i++)
		known |= 1u << client->entry[i].nonce;
	for (int i = 0; i < client->late; i++)
		known |= 1u << client->later[i].nonce;
	for (int i = 0; i < client->notes; i++)
		known |= 1u << client->note[i].nonce;
	for (uint8_t nonce = 0; nonce < MODEL_NONCES; nonce++)
		if (!(known >> nonce & 1))
			return nonce;
	step->no_room = true;
	return 0;
}

void semaphore_client_ask(struct step *step, struct semaphore_client *client)
{
	semaphore_client_send(step, client,
	                      (struct semaphore_entry){.kind = ASK,
	                                               .flag = client->known,
	                                               .keep = client->only_try});
}

/* A new ticket; its first ask goes out with it. */
void semaphore_client_begin(struct step *step, int index, bool only_try)
{
	struct semaphore_client *client = &step->state->client[index];

	client->nonce = new_nonce(step, index);
	client->ticket = WAITING;
	client->only_try = only_try;
	client->first = step->bounds->lease;
	for (int i = 0; i < step->state->queued; i++)
		if (step->state->queue[i].client != index)
			step->state->queue[i].after |= (uint8_t)(1u << index);
	semaphore_client_ask(step, client);
}

static struct semaphore_hold *own_hold(struct step *step, const struct semaphore_client *client)
{
	struct semaphore_state *state = step->state;
	int index = (int)(client - state->client);

	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == index && state->hold[i].nonce == client->nonce)
			return &state->hold[i];
	return NULL;
}

/* Granted for good: forget(). */
static void use_up(struct step *step, struct semaphore_client *client, uint8_t fence)
{
	struct semaphore_hold *hold = own_hold(step, client);

	if (!hold || !hold->left || hold->fence != fence)
		step->state->wrong = "permits were taken that the store does not hold";
	else
		hold->taken = 1;
	if (step->rule == FORGET_LEAVES)
		semaphore_client_end(step, client, false, false);
	else if (client->handing)
		semaphore_client_end(step, client, false, true);
	else
		semaphore_client_clear(client);
}

/* lk__hold_make() */
static void take(struct step *step, struct semaphore_client *client, uint8_t valid, uint8_t fence)
{
	if (step->bounds->kind == PERMITS_RATE) {
		use_up(step, client, fence);
		return;
	}
	client->ticket = HOLDING;
	client->valid = valid;
	client->fence = fence;
	client->count = step->bounds->permits[client - step->state->client];
	client->first = 0;
	plan(step, client);
	semaphore_client_pursue(client);
}

static void prolong(struct step *step, struct semaphore_client *client, uint8_t valid)
{
	if (!client->valid && valid)
		step->state->wrong = "a lapsed hold is valid again";
	client->valid = valid;
}

/* ---- A client: answers -------------------------------------------------------------------- */

static void granted(struct step *step, struct semaphore_client *client,
                    const struct semaphore_entry *entry)
{
	uint8_t valid = client->sent;

	if (client->ticket == HOLDING) {
		if (entry->fence != client->fence) {
			semaphore_client_end(step, client, false, false);
			return;
		}
		if ((client->valid || step->rule == GRANTED_REVIVES) && client->valid < valid) {
			prolong(step, client, valid);
			plan(step, client);
		}
		semaphore_client_pursue(client);
	} else if (!valid) {
		semaphore_client_end(step, client, true, false);
	} else {
		client->handing = entry->more;
		take(step, client, valid, entry->fence);
	}
}

static void queued(struct step *step, struct semaphore_client *client, bool more)
{
	if (client->ticket == CLAIMING) {
		client->due = 1;
	} else if (client->ticket == WAITING) {
		if (step->rule == VALID_FROM_LAST_QUEUED)
			client->first = client->sent;
		client->known = client->due = 1;
		client->handing = more;
	}
	semaphore_client_pursue(client);
}

/* A try has left nothing behind; before it gives up it may serve the head a few times. */
static void busy(struct step *step, struct semaphore_client *client, bool more)
{
	if (more && semaphore_step_choose(step, 2)) {
		client->handing = client->due = 1;
		semaphore_client_pursue(client);
	} else {
		semaphore_client_clear(client);
	}
}

/* The wait is for more than there is since a resize. */
static void refused(struct step *step, struct semaphore_client *client)
{
	if (client->ticket != HOLDING) {
		semaphore_client_end(step, client, false, false);
		return;
	}
	client->handing = 0;
	plan(step, client);
	semaphore_client_pursue(client);
}

static void kept(struct step *step, struct semaphore_client *client,
                 const struct semaphore_entry *entry)
{
	bool awaited;

	if (client->ticket == CLAIMING && !client->sent) {
		semaphore_client_end(step, client, true, false);
	} else if (client->ticket == CLAIMING) {
		take(step, client, client->sent,
		     step->rule == FENCE_OF_MESSAGE ? client->fence : entry->fence);
	} else if (client->ticket == HOLDING) {
		/* Who extends may have given up waiting for the answer. */
		awaited = entry->flag && semaphore_step_choose(step, 2);
		if (client->valid && (awaited || client->valid < client->sent))
			prolong(step, client, client->sent);
		if (client->valid)
			plan(step, client);
		semaphore_client_pursue(client);
	}
}

static void gone(struct step *step, struct semaphore_client *client)
{
	if (client->ticket == HOLDING) {
		semaphore_client_end(step, client, false, false);
	} else if (client->ticket == CLAIMING) {
		client->ticket = WAITING;
		client->fence = 0;
		client->due = 1;
		semaphore_client_pursue(client);
	}
}

/* The head was served, or some permits were given back. */
static void handed(struct step *step, struct semaphore_client *client,
                   const struct semaphore_entry *entry)
{
	if (entry->kind == SHRINK && client->ticket == HOLDING) {
		if (!entry->mine) {
			semaphore_client_end(step, client, false, false);
			return;
		}
		client->shrinking = client->count < entry->keep;
	}
	if (client->ticket == HOLDING) {
		client->handing = entry->more;
		plan(step, client);
	} else if (client->ticket == WAITING) {
		client->handing = entry->more;
		client->due = 1;
	}
	semaphore_client_pursue(client);
}

/* A leave, or the serving after it, was confirmed. */
static void left(struct step *step, int index, const struct semaphore_entry *entry)
{
	struct semaphore_client *client = &step->state->client[index];
	struct semaphore_leaver leaver = {0};

	for (int i = 0; i < client->leavers; i++) {
		if (client->leaver[i].nonce != entry->nonce)
			continue;
		leaver = client->leaver[i];
		if (entry->more) {
			client->leaver[i].hand = 1;
			semaphore_client_leave(step, client, &client->leaver[i], false);
			return;
		}
		client->leaver[i] = client->leaver[--client->leavers];
		break;
	}
	if (leaver.again)
		semaphore_client_begin(step, index, leaver.only_try);
}

void semaphore_client_answer(struct step *step, int index)
{
	struct semaphore_client *client = &step->state->client[index];
	struct semaphore_entry entry = client->entry[0];

	client->entries--;
	for (int i = 0; i < client->entries; i++)
		client->entry[i] = client->entry[i + 1];
	if (of_leaver(&entry)) {
		left(step, index, &entry);
		return;
	}
	if (!client->ticket || entry.nonce != client->nonce)
		return; /* its ticket is on its way out */
	if (entry.answer == GRANTED)
		granted(step, client, &entry);
	else if (entry.answer == QUEUED)
		queued(step, client, entry.more);
	else if (entry.answer == BUSY)
		busy(step, client, entry.more);
	else if (entry.answer == LIMIT)
		refused(step, client);
	else if (entry.answer == KEPT)
		kept(step, client, &entry);
	else if (entry.answer == GONE)
		gone(step, client);
	else
		handed(step, client, &entry);
	client->sent = 0;
}

void semaphore_client_message(struct step *step, struct semaphore_client *client)
{
	struct semaphore_note note = client->note[0];

	client->notes--;
	for (int i = 0; i < client->notes; i++)
		client->note[i] = client->note[i + 1];
	if (note.nonce != client->nonce || client->ticket != WAITING)
		return;
	client->handing = 0;
	if (!note.claim && step->bounds->kind == PERMITS_RENEWED &&
	    client->first * 3 >= step->bounds->lease) {
		take(step, client, client->first, note.fence);
		return;
	}
	client->ticket = CLAIMING;
	if (step->rule == FENCE_OF_MESSAGE)
		client->fence = note.fence;
	client->due = 1;
	semaphore_client_pursue(client);
}
