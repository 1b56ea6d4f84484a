/* SPDX-License-Identifier: MIT
 * What may happen next in the model of the semaphore's protocol.  semaphore_model_client.c
 * has what answers make of tickets, semaphore_model_server.c the store's part. */
#include "semaphore_model_step.h"

int semaphore_step_choose(struct step *step, int ways)
{
	if (ways < 2)
		return 0;
	if (step->choices == STEP_CHOICES) {
		step->no_room = true;
		return 0;
	}
	step->ways[step->choices] = ways;
	if (step->choices >= step->known)
		step->chosen[step->choices] = 0;
	return step->chosen[step->choices++];
}

/* The same step with other choices; false when there are none. */
static bool choose_anew(struct step *step)
{
	for (step->known = step->choices; step->known; step->known--)
		if (++step->chosen[step->known - 1] < step->ways[step->known - 1])
			return true;
	return false;
}

/* ---- Links -------------------------------------------------------------------------------- */

/* The connections of a client are gone; of its requests the first few may be executed yet. */
static void disconnect(struct step *step, struct semaphore_client *client)
{
	int open = 0, kept_count;

	for (int i = 0; i < client->entries; i++)
		if (!client->entry[i].answer)
			client->entry[open++] = client->entry[i];
	kept_count = step->bounds->late - client->late;
	kept_count = semaphore_step_choose(step, (open < kept_count ? open : kept_count) + 1);
	for (int i = 0; i < kept_count; i++)
		client->later[client->late++] = client->entry[i];
	client->entries = client->notes = client->linked = 0;
	client->armed = client->sent = 0;
}

static void crash(struct step *step, struct semaphore_client *client)
{
	disconnect(step, client);
	semaphore_client_clear(client);
	client->leavers = client->alive = 0;
}

static void link_up(struct step *step, struct semaphore_client *client)
{
	client->linked = client->heard = 1;
	if (!client->ticket)
		return;
	if (step->bounds->kind == PERMITS_RENEWED || client->ticket != HOLDING ||
	    client->shrinking || (client->handing && step->rule != LINK_FORGETS_HAND))
		client->due = 1;
	semaphore_client_pursue(client);
}

/* ---- Steps -------------------------------------------------------------------------------- */

static void tick(struct step *step)
{
	semaphore_server_tick(step);
	for (int i = 0; i < step->bounds->clients; i++) {
		struct semaphore_client *client = &step->state->client[i];
		client->first -= client->first > 0;
		client->sent -= client->sent > 0;
		client->valid -= client->valid > 0;
	}
}

/* The first leaver whose leave is not under way, -1 if none. */
static int leaver_at_rest(const struct semaphore_client *client)
{
	for (int i = 0; i < client->leavers; i++)
		if (!semaphore_client_asked(client, client->leaver[i].nonce, true))
			return i;
	return -1;
}

/* The wait that was to go on after a leave does not. */
static bool end_again(struct semaphore_client *client)
{
	for (int i = 0; i < client->leavers; i++) {
		if (!client->leaver[i].again)
			continue;
		client->leaver[i].again = client->leaver[i].only_try = 0;
		return true;
	}
	return false;
}

static struct semaphore_entry *first_open(struct semaphore_client *client)
{
	for (int i = 0; i < client->entries; i++)
		if (!client->entry[i].answer)
			return &client->entry[i];
	return NULL;
}

static bool start(struct step *step, int index, bool only_try)
{
	struct semaphore_client *client = &step->state->client[index];

	for (int i = 0; i < client->leavers; i++)
		if (client->leaver[i].again)
			return false; /* it waits */
	if (client->ticket || !client->linked || client->leavers > step->bounds->overlap ||
	    (step->bounds->waits && client->begun == step->bounds->waits) ||
	    (only_try && !step->bounds->tries))
		return false;
	client->begun = (uint8_t)(client->begun + (step->bounds->waits > 0));
	semaphore_client_begin(step, index, only_try);
	return true;
}

/* What a ticket sends that it has planned. */
static bool send_planned(struct step *step, enum semaphore_step kind, int index)
{
	struct semaphore_client *client = &step->state->client[index];
	bool holds = client->ticket == HOLDING, waits = client->ticket == WAITING;
	bool plain = holds && !client->handing && !client->shrinking;
	struct semaphore_entry entry = {.kind = RENEW, .fence = client->fence};

	if (!client->armed)
		return false;
	if (kind == STEP_ASK && waits && !client->handing) {
		semaphore_client_ask(step, client);
		return true;
	}
	if (kind == STEP_HAND && (waits || holds) && client->handing)
		entry = (struct semaphore_entry){.kind = HAND};
	else if (kind == STEP_SHRINK && holds && !client->handing && client->shrinking)
		entry = (struct semaphore_entry){.kind = SHRINK, .keep = client->count};
	else if (kind == STEP_CLAIM && client->ticket == CLAIMING)
		entry.fence = 0;
	else if (kind != STEP_RENEW || !plain || step->bounds->kind != PERMITS_RENEWED)
		return false;
	semaphore_client_send(step, client, entry);
	return true;
}

/* What a caller does with its hold. */
static bool use_hold(struct step *step, enum semaphore_step kind, int index)
{
	struct semaphore_client *client = &step->state->client[index];

	if (client->ticket != HOLDING)
		return false;
	if (kind == STEP_RELEASE) { /* or a loss by time */
		semaphore_client_end(step, client, false, false);
		return true;
	}
	if (!client->valid)
		return false;
	if (kind == STEP_GIVE_SOME) {
		if (!step->bounds->shrinks || client->count < 2)
			return false;
		client->count--;
		client->shrinking = client->due = 1;
		semaphore_client_pursue(client);
		return true;
	}
	if (!client->linked || !semaphore_client_at_rest(client) || !step->bounds->extension ||
	    client->handing || client->shrinking)
		return false;
	semaphore_client_send(
		step, client,
		(struct semaphore_entry){.kind = RENEW, .fence = client->fence, .flag = 1});
	return true;
}

/* What a client does of itself.  False if it cannot now. */
static bool act(struct step *step, enum semaphore_step kind, int index)
{
	struct semaphore_client *client = &step->state->client[index];
	int leaver;

	switch (kind) {
	case STEP_START:
	case STEP_TRY:
		return start(step, index, kind == STEP_TRY);
	case STEP_ASK:
	case STEP_HAND:
	case STEP_CLAIM:
	case STEP_RENEW:
	case STEP_SHRINK:
		return send_planned(step, kind, index);
	case STEP_EXTEND:
	case STEP_GIVE_SOME:
	case STEP_RELEASE:
		return use_hold(step, kind, index);
	case STEP_CANCEL:
		if (!step->bounds->cancels)
			return false;
		if (end_again(client))
			return true;
		if (!client->ticket || client->ticket == HOLDING)
			return false;
		semaphore_client_end(step, client, false, false);
		return true;
	case STEP_LEAVE:
		leaver = leaver_at_rest(client);
		if (leaver < 0 || !client->linked)
			return false;
		semaphore_client_leave(step, client, &client->leaver[leaver], false);
		return true;
	case STEP_ANSWER:
		if (!client->entries || !client->entry[0].answer)
			return false;
		semaphore_client_answer(step, index);
		return true;
	case STEP_MESSAGE:
		if (!client->notes)
			return false;
		semaphore_client_message(step, client);
		return true;
	default:
		return false;
	}
}

/* What happens to a client.  False if it cannot now. */
static bool happen(struct step *step, enum semaphore_step kind, int index)
{
	struct semaphore_state *state = step->state;
	struct semaphore_client *client = &state->client[index];
	struct semaphore_entry late = client->later[0];
	int dead = 0;

	switch (kind) {
	case STEP_EXECUTE:
		if (!first_open(client))
			return false;
		semaphore_server_execute(step, index, first_open(client));
		return true;
	case STEP_EXECUTE_LATE:
	case STEP_FORGET_LATE:
		if (!client->late)
			return false;
		client->late--;
		for (int i = 0; i < client->late; i++)
			client->later[i] = client->later[i + 1];
		if (kind == STEP_EXECUTE_LATE)
			semaphore_server_execute(step, index, &late);
		return true;
	case STEP_DROP:
		if (!client->alive || !client->linked || !state->drops)
			return false;
		if (state->drops != MODEL_ANY)
			state->drops--;
		disconnect(step, client);
		return true;
	case STEP_LINK:
		if (!client->alive || client->linked)
			return false;
		link_up(step, client);
		return true;
	case STEP_UNHEARD: /* the server sees the end of a connection first, or last */
		if (!client->heard || (client->linked && !state->drops))
			return false;
		client->heard = 0;
		return true;
	case STEP_CRASH:
		for (int i = 0; i < step->bounds->clients; i++)
			dead += !state->client[i].alive;
		if (!client->alive || dead >= step->bounds->crashes)
			return false;
		crash(step, client);
		return true;
	default:
		return false;
	}
}

/* What happens to all. */
static bool pass(struct step *step, enum semaphore_step kind)
{
	const struct semaphore_bounds *bounds = step->bounds;
	struct semaphore_state *state = step->state;
	int by;

	if (kind == STEP_TICK) {
		tick(step);
	} else if (kind == STEP_QUEUE_ENDS) {
		if (!bounds->ends || !state->queued)
			return false;
		state->queued = 0;
	} else {
		if (!bounds->largest)
			return false;
		by = semaphore_step_choose(step, 2) ? 1 : -1;
		if (state->capacity + by < bounds->smallest ||
		    state->capacity + by > bounds->largest)
			return true; /* the other way is open, this one changes nothing */
		semaphore_server_resize(step, (uint8_t)(state->capacity + by));
	}
	return true;
}

/* In all the ways that it leaves open.  A step that cannot be leaves the state as it is. */
static void one(struct step *step, const struct semaphore_state *from, enum semaphore_step kind,
                int index)
{
	struct semaphore_state *state = step->state;

	step->known = 0;
	do {
		step->choices = 0;
		step->no_room = false;
		if (!(kind >= STEP_RESIZE ? pass(step, kind)
		                          : act(step, kind, index) || happen(step, kind, index)))
			return;
		if (state->used < state->ceiling)
			state->ceiling =
				state->used > state->capacity ? state->used : state->capacity;
		if (step->no_room)
			step->model->pruned++;
		else
			step->model->found(step->model, state, kind, index);
		*state = *from;
	} while (choose_anew(step));
}

void semaphore_model_steps(struct semaphore_model *model, const struct semaphore_state *state)
{
	struct semaphore_state copy = *state;
	struct step step = {
		.model = model, .state = &copy, .bounds = model->bounds, .rule = model->rule};

	for (int i = 0; i < model->bounds->clients; i++)
		for (int kind = STEP_START; kind < STEP_RESIZE; kind++)
			one(&step, state, (enum semaphore_step)kind, i);
	for (int kind = STEP_RESIZE; kind <= STEP_TICK; kind++)
		one(&step, state, (enum semaphore_step)kind, 0);
}

bool semaphore_step_counts(enum semaphore_step step)
{
	switch (step) {
	case STEP_START:
	case STEP_TRY:
	case STEP_RENEW:
	case STEP_EXTEND:
	case STEP_GIVE_SOME:
	case STEP_CANCEL:
	case STEP_DROP:
	case STEP_UNHEARD:
	case STEP_CRASH:
	case STEP_RESIZE:
	case STEP_QUEUE_ENDS:
		return false;
	default:
		return true;
	}
}
