/* SPDX-License-Identifier: MIT
 * What must hold in every state of the model of the semaphore's protocol. */
#include "semaphore_model.h"

#include <stddef.h>

static const struct semaphore_hold *hold_of(const struct semaphore_state *state, int client,
                                            int nonce)
{
	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == client && state->hold[i].nonce == nonce)
			return &state->hold[i];
	return NULL;
}

static bool is_valid(const struct semaphore_client *client)
{
	return client->ticket == HOLDING && client->valid;
}

bool semaphore_client_waits(const struct semaphore_client *client)
{
	bool again = false;

	for (int i = 0; i < client->leavers; i++)
		again |= client->leaver[i].again;
	return again || client->ticket == WAITING || client->ticket == CLAIMING;
}

/* A request of its ticket is under way, other than the one that ends it. */
static bool is_asking(const struct semaphore_client *client)
{
	for (int i = 0; i < client->entries; i++)
		if (client->entry[i].kind != LEAVE && client->entry[i].nonce == client->nonce)
			return true;
	return false;
}

/* Linked, nothing under way for its ticket: then the next thing to do has its time. */
static bool forgot(const struct semaphore_bounds *bounds, const struct semaphore_client *client)
{
	if (!client->linked || !client->ticket || client->armed)
		return false;
	if (client->ticket == HOLDING && !client->valid)
		return false; /* it ends by itself */
	if (client->ticket == HOLDING && bounds->kind != PERMITS_RENEWED && !client->handing &&
	    !client->shrinking)
		return false; /* so does this one, later */
	return !is_asking(client);
}

/* All its tickets ended with the store's word for it, but the store knows one. */
static bool left_something(const struct semaphore_state *state, int index)
{
	const struct semaphore_client *client = &state->client[index];

	if (!client->alive || client->ticket || client->leavers || client->entries)
		return false;
	for (int i = 0; i < state->queued; i++)
		if (state->queue[i].client == index)
			return true;
	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == index && state->hold[i].left && !state->hold[i].taken)
			return true;
	return false;
}

/* The store's sum, and the promise: no more in valid holds than there are, or than were held when
 * the capacity became less. */
static const char *wrong_permits(const struct semaphore_state *state,
                                 const struct semaphore_bounds *bounds, enum semaphore_rule rule)
{
	int valid = 0, held = 0, window = 0;

	for (int i = 0; i < bounds->clients; i++)
		valid += is_valid(&state->client[i]) ? state->client[i].count : 0;
	if (valid > state->ceiling)
		return "more permits in valid holds than there are";
	for (int i = 0; i < state->holds; i++) {
		const struct semaphore_hold *hold = &state->hold[i];
		held += hold->permits;
		if (hold->age < bounds->lease && (hold->left || hold->taken))
			window += hold->permits;
	}
	for (int i = 0; i < state->past; i++)
		window += state->before[i].permits;
	if (bounds->kind == PERMITS_RATE && window > state->capacity)
		return "more permits were granted in a window than there are";
	if (held != state->used)
		return "the store's sum is not what its holds have";
	/* Only the real rules have to keep what is stronger than the promise. */
	if (rule == RULES_ALL && held > state->ceiling)
		return "the store has granted more permits than there are";
	return NULL;
}

/* A valid hold as its client and the store know it. */
static const char *wrong_hold(const struct semaphore_state *state, enum semaphore_rule rule,
                              int index)
{
	const struct semaphore_client *client = &state->client[index];
	const struct semaphore_hold *hold = hold_of(state, index, client->nonce);

	if (!is_valid(client))
		return NULL;
	if (hold && hold->left && hold->fence != client->fence)
		return "a valid hold has another fence than the store gave it";
	if (rule == RULES_ALL && (!hold || hold->left < client->valid))
		return "a valid hold that the store does not know";
	if (rule == RULES_ALL && hold->permits < client->count)
		return "a valid hold has fewer permits in the store";
	if (hold && !client->shrinking && !is_asking(client) && hold->permits > client->count)
		return "permits that were given back are held again";
	return NULL;
}

const char *semaphore_state_wrong(const struct semaphore_state *state,
                                  const struct semaphore_bounds *bounds, enum semaphore_rule rule)
{
	const char *wrong = wrong_permits(state, bounds, rule);
	/* What is executed late comes after the store's word, and lasts for one lease. */
	bool may_be_late =
		bounds->late && (bounds->drops == MODEL_ANY || state->drops < bounds->drops);

	if (!wrong)
		wrong = state->wrong;
	for (int i = 0; i < bounds->clients && !wrong; i++) {
		wrong = wrong_hold(state, rule, i);
		if (forgot(bounds, &state->client[i]))
			wrong = "a ticket with nothing under way and nothing planned";
		if (!may_be_late && left_something(state, i))
			wrong = "an ended ticket is left in the store";
	}
	return wrong;
}
