/* SPDX-License-Identifier: MIT
 * The store of the model of the semaphore's protocol: src/redis/scripts/semaphore_*.lua, step by
 * step.
 *
 * Where a run has no limit, each script takes out all leases that are over before it looks at
 * permits; they are then taken out at their tick, which nobody can tell from it. */
#include "semaphore_model_step.h"

/* A script under way. */
struct script {
	struct step *step;
	struct semaphore_state *state;
	const struct semaphore_bounds *bounds;
	bool more;
};

static uint8_t most(uint8_t a, uint8_t b)
{
	return a > b ? a : b;
}

/* ---- The queue ---------------------------------------------------------------------------- */

static int place_in_queue(const struct semaphore_state *state, int client, int nonce)
{
	for (int i = 0; i < state->queued; i++)
		if (state->queue[i].client == client && state->queue[i].nonce == nonce)
			return i;
	return -1;
}

static void queue_remove(struct semaphore_state *state, int at)
{
	if (at < 0)
		return;
	state->queued--;
	for (int i = at; i < state->queued; i++)
		state->queue[i] = state->queue[i + 1];
	state->queue[state->queued] = (struct semaphore_wait){0, 0, 0};
}

/* It waits with that ticket now. */
static bool waits(const struct semaphore_state *state, int client, int nonce)
{
	const struct semaphore_client *who = &state->client[client];

	return (who->ticket == WAITING || who->ticket == CLAIMING) && who->nonce == nonce;
}

static void queue_add(struct step *step, int client, int nonce, bool known)
{
	struct semaphore_state *state = step->state;
	int at = state->queued, first = 0;

	if (at == MODEL_QUEUE) {
		step->no_room = true;
		return;
	}
	/* Its stamp of old says where.  That is anywhere behind those who had one when it began. */
	for (int i = 0; waits(state, client, nonce) && i < state->queued; i++)
		if (state->queue[i].after >> client & 1)
			first = i + 1;
	if (known)
		at = first + semaphore_step_choose(step, state->queued - first + 1);
	for (int i = state->queued++; i > at; i--)
		state->queue[i] = state->queue[i - 1];
	state->queue[at] = (struct semaphore_wait){(uint8_t)client, (uint8_t)nonce, 0};
}

/* ---- Holds -------------------------------------------------------------------------------- */

static struct semaphore_hold *hold_of(struct semaphore_state *state, int client, int nonce)
{
	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == client && state->hold[i].nonce == nonce)
			return &state->hold[i];
	return NULL;
}

/* drop() in the scripts.  What a rate has given out counts for a window nevertheless. */
static void drop(struct step *step, struct semaphore_hold *hold)
{
	struct semaphore_state *state = step->state;

	if (hold->taken && hold->age < step->bounds->lease) {
		if (state->past == MODEL_PAST)
			step->no_room = true;
		else
			state->before[state->past++] = *hold;
	}
	state->used = (uint8_t)(state->used - hold->permits);
	*hold = state->hold[--state->holds];
	state->hold[state->holds] = (struct semaphore_hold){0};
}

/* Which of them ended first is open. */
static void reclaim(struct script *script)
{
	struct semaphore_state *state = script->state;
	int over[MODEL_HOLDS], count = 0;

	for (int i = 0; i < state->holds; i++)
		if (!state->hold[i].left)
			over[count++] = i;
	if (!count || !script->bounds->run)
		return;
	drop(script->step, &state->hold[over[semaphore_step_choose(script->step, count)]]);
	script->more = true;
}

static uint8_t new_fence(struct step *step, int client)
{
	const struct semaphore_state *state = step->state;
	const struct semaphore_client *who = &state->client[client];
	unsigned known = 1 | 1u << who->fence;

	for (int i = 0; i < who->entries; i++)
		known |= 1u << who->entry[i].fence;
	for (int i = 0; i < who->late; i++)
		known |= 1u << who->later[i].fence;
	for (int i = 0; i < who->notes; i++)
		known |= 1u << who->note[i].fence;
	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == client)
			known |= 1u << state->hold[i].fence;
	for (uint8_t fence = 1; fence < MODEL_FENCES; fence++)
		if (!(known >> fence & 1))
			return fence;
	step->no_room = true;
	return 0;
}

/* HSET and ZADD: a hold that this ticket still has is written over. */
static uint8_t grant(struct step *step, int client, int nonce, uint8_t life)
{
	struct semaphore_state *state = step->state;
	struct semaphore_hold *hold = hold_of(state, client, nonce);
	uint8_t permits = step->bounds->permits[client];

	queue_remove(state, place_in_queue(state, client, nonce));
	for (int i = 0; waits(state, client, nonce) && i < state->queued; i++)
		if (state->queue[i].client != client && state->queue[i].after >> client & 1)
			state->wrong = "a wait was granted before one that stood in the queue "
				       "when it began";
	if (!hold && state->holds == MODEL_HOLDS) {
		step->no_room = true;
		return 0;
	}
	if (!hold)
		hold = &state->hold[state->holds++];
	*hold = (struct semaphore_hold){.client = (uint8_t)client,
	                                .nonce = (uint8_t)nonce,
	                                .permits = permits,
	                                .fence = new_fence(step, client),
	                                .left = life};
	state->used = (uint8_t)(state->used + permits);
	return hold->fence;
}

/* ---- Serving ------------------------------------------------------------------------------ */

/* The grant to the head of the queue, to be told; those whom nobody can tell are skipped. */
static void serve_head(struct step *step, struct semaphore_wait head)
{
	struct semaphore_client *client = &step->state->client[head.client];
	bool old, lost;
	uint8_t fence;

	if (!client->heard) {
		queue_remove(step->state, 0);
		return;
	}
	old = semaphore_step_choose(step, 2);
	fence = grant(step, head.client, head.nonce,
	              old ? step->bounds->claim_life : step->bounds->lease);
	if (!client->alive || !client->linked)
		return; /* nobody there, only a connection that still looks alive */
	lost = client->notes == step->bounds->notes ||
	       (step->bounds->loses && semaphore_step_choose(step, 2));
	if (!lost)
		client->note[client->notes++] = (struct semaphore_note){head.nonce, fence, old};
}

/* Up to the ticket of that client, -1 = none: its turn has come, and it is told by the answer. */
static void serve(struct script *script, int own, int own_nonce)
{
	struct semaphore_state *state = script->state;

	for (int i = 0; !script->bounds->run || i < script->bounds->run; i++) {
		struct semaphore_wait head = state->queue[0];
		uint8_t permits = script->bounds->permits[head.client];
		if (!state->queued || (head.client == own && head.nonce == own_nonce))
			return;
		if (permits > state->capacity) {
			queue_remove(state, 0); /* told to ask, and answered then */
		} else if (state->used + permits > state->capacity &&
		           script->step->rule != HAND_UNFITTED) {
			/* tell_head(): it may be dead, or not have asked for too long. */
			if (!semaphore_step_choose(script->step, 2))
				return;
			queue_remove(state, 0);
		} else {
			serve_head(script->step, head);
		}
	}
	script->more = true;
}

/* ---- Scripts ------------------------------------------------------------------------------ */

static void ask(struct script *script, int client, struct semaphore_entry *entry)
{
	struct semaphore_state *state = script->state;
	struct semaphore_hold *hold = hold_of(state, client, entry->nonce);
	uint8_t permits = script->bounds->permits[client];
	enum semaphore_rule rule = script->step->rule;
	bool first;

	entry->answer = GRANTED;
	if (hold && hold->left) {
		hold->left = most(hold->left, script->bounds->lease);
		entry->fence = hold->fence;
		return;
	}
	if (hold && rule != ASK_KEEPS_OWN)
		drop(script->step, hold);
	reclaim(script);
	if (permits > state->capacity) {
		queue_remove(state, place_in_queue(state, client, entry->nonce));
		serve(script, -1, 0);
		entry->answer = LIMIT;
		return;
	}
	serve(script, client, entry->nonce);
	first = !state->queued || place_in_queue(state, client, entry->nonce) == 0;
	if ((first || rule == ASK_PASSES_QUEUE) && state->used + permits <= state->capacity) {
		entry->fence = grant(script->step, client, entry->nonce, script->bounds->lease);
		serve(script, -1, 0);
	} else if (entry->keep) {
		entry->answer = BUSY;
	} else {
		if (place_in_queue(state, client, entry->nonce) < 0)
			queue_add(script->step, client, entry->nonce, entry->flag);
		entry->answer = QUEUED;
	}
}

/* A release of all, of some, or of nothing. */
static void leave(struct script *script, int client, struct semaphore_entry *entry)
{
	struct semaphore_state *state = script->state;
	struct semaphore_hold *hold = NULL;

	if (entry->kind == LEAVE && !(script->step->rule == RELEASE_STAYS_QUEUED && entry->flag))
		queue_remove(state, place_in_queue(state, client, entry->nonce));
	if (entry->kind != HAND)
		hold = hold_of(state, client, entry->nonce);
	entry->mine = hold && hold->left;
	if (hold && hold->left && entry->kind == SHRINK) {
		if (entry->keep < hold->permits || script->step->rule == SHRINK_SETS) {
			state->used = (uint8_t)(state->used - hold->permits + entry->keep);
			hold->permits = entry->keep;
		}
	} else if (hold) {
		drop(script->step, hold);
	}
	reclaim(script);
	serve(script, -1, 0);
	entry->answer = LEFT;
}

/* Another rule: whoever renews has it. */
static struct semaphore_hold *revive(struct step *step, int client,
                                     const struct semaphore_entry *entry)
{
	struct semaphore_state *state = step->state;

	if (state->holds == MODEL_HOLDS) {
		step->no_room = true;
		return NULL;
	}
	state->used = (uint8_t)(state->used + step->bounds->permits[client]);
	state->hold[state->holds] = (struct semaphore_hold){
		.client = (uint8_t)client,
		.nonce = entry->nonce,
		.permits = step->bounds->permits[client],
		.fence = entry->fence ? entry->fence : new_fence(step, client)};
	return &state->hold[state->holds++];
}

static void renew(struct script *script, int client, struct semaphore_entry *entry)
{
	struct step *step = script->step;
	struct semaphore_hold *hold = hold_of(script->state, client, entry->nonce);

	if (!hold && step->rule == RENEWAL_REVIVES)
		hold = revive(step, client, entry);
	if (!hold || (entry->fence && entry->fence != hold->fence) ||
	    (!hold->left && step->rule != RENEWAL_UNENDED && step->rule != RENEWAL_REVIVES)) {
		entry->answer = GONE;
		entry->fence = 0;
		return;
	}
	hold->left = most(hold->left, entry->flag ? step->bounds->extension : step->bounds->lease);
	entry->answer = KEPT;
	entry->fence = hold->fence;
}

void semaphore_server_execute(struct step *step, int client, struct semaphore_entry *entry)
{
	struct script script = {.step = step, .state = step->state, .bounds = step->bounds};

	if (entry->kind == ASK)
		ask(&script, client, entry);
	else if (entry->kind == RENEW)
		renew(&script, client, entry);
	else
		leave(&script, client, entry);
	entry->more = script.more;
	if (entry->kind == ASK || entry->kind == LEAVE)
		entry->flag = entry->keep = 0;
}

void semaphore_server_resize(struct step *step, uint8_t capacity)
{
	struct semaphore_state *state = step->state;
	struct script script = {.step = step, .state = state, .bounds = step->bounds};

	state->capacity = capacity;
	reclaim(&script);
	state->ceiling = state->used < state->ceiling ? state->used : state->ceiling;
	state->ceiling = most(state->ceiling, capacity);
	serve(&script, -1, 0);
}

void semaphore_server_tick(struct step *step)
{
	struct semaphore_state *state = step->state;
	bool rate = step->bounds->kind == PERMITS_RATE;

	for (int i = state->past - 1; i >= 0; i--)
		if (++state->before[i].age >= step->bounds->lease)
			state->before[i] = state->before[--state->past];
	for (int i = state->holds - 1; i >= 0; i--) {
		struct semaphore_hold *hold = &state->hold[i];
		hold->age = (uint8_t)(hold->age + (rate && hold->age < step->bounds->lease));
		hold->left -= hold->left > 0;
		if (!hold->left && !step->bounds->run)
			drop(step, hold);
	}
}
