/* SPDX-License-Identifier: MIT
 * What may happen next in the model of the lock protocol.  The clients' part follows
 * src/core/{ticket,answer,call}.c, lock_server.c has the store's. */
#include "lock_step.h"

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

/* ---- A client: tickets -------------------------------------------------------------------- */

static bool under_way(const struct model_client *client, int nonce, bool leaving)
{
	for (int i = 0; i < client->entries; i++)
		if (client->entry[i].nonce == nonce && (client->entry[i].kind == LEAVE) == leaving)
			return true;
	return false;
}

static bool at_rest(const struct model_client *client)
{
	return !under_way(client, client->nonce, false);
}

/* What lk__ticket_pursue() does for its timer; sending is a step of its own. */
static void pursue(struct model_client *client)
{
	client->armed = client->linked && client->due && at_rest(client);
}

static bool send(struct step *step, struct model_client *client, struct model_entry entry)
{
	if (client->entries == MODEL_ENTRIES) {
		step->no_room = true;
		return false;
	}
	client->entry[client->entries++] = entry;
	return true;
}

static void send_main(struct step *step, struct model_client *client, enum model_kind kind,
                      uint8_t fence, bool flag)
{
	struct model_entry entry = {(uint8_t)kind, client->nonce, UNANSWERED, fence, flag};

	if (send(step, client, entry)) {
		client->sent =
			kind == RENEW && flag ? step->bounds->extension : step->bounds->lease;
		client->due = client->armed = 0;
	}
}

static void clear_ticket(struct model_client *client)
{
	client->ticket = NOTHING;
	client->nonce = client->first = client->sent = client->valid = client->fence = 0;
	client->handing = client->known = client->due = client->armed = 0;
}

/* lk__ticket_leave(), and lapse() when the wait is to go on. */
static void end_ticket(struct step *step, struct model_client *client, bool again)
{
	bool release = client->ticket == HOLDING;
	uint8_t nonce = client->nonce;

	if (client->leavers == MODEL_LEAVING) {
		step->no_room = true;
		return;
	}
	client->leaver[client->leavers++] = (struct model_leaver){nonce, again};
	clear_ticket(client);
	if (client->linked)
		send(step, client, (struct model_entry){LEAVE, nonce, UNANSWERED, 0, release});
}

static bool nonce_known(const struct lock_state *state, int index, int nonce)
{
	const struct model_client *client = &state->client[index];
	bool known = (state->held && same(&state->owner, index, nonce)) ||
	             lock_server_find(state, index, nonce) >= 0;

	for (int i = 0; i < client->leavers; i++)
		known |= client->leaver[i].nonce == nonce;
	for (int i = 0; i < client->entries; i++)
		known |= client->entry[i].nonce == nonce;
	for (int i = 0; i < client->late; i++)
		known |= client->later[i].nonce == nonce;
	for (int i = 0; i < client->notes; i++)
		known |= client->note[i].nonce == nonce;
	return known;
}

/* A new ticket; its first ask goes out with it. */
static void begin(struct step *step, int index)
{
	struct model_client *client = &step->state->client[index];
	uint8_t nonce = 0;

	while (nonce < MODEL_NONCES && nonce_known(step->state, index, nonce))
		nonce++;
	if (nonce == MODEL_NONCES) {
		step->no_room = true;
		return;
	}
	client->ticket = WAITING;
	client->nonce = nonce;
	client->first = step->bounds->lease;
	send_main(step, client, ASK, 0, false);
}

/* lk__hold_make() */
static void take(struct step *step, struct model_client *client, uint8_t valid, uint8_t fence)
{
	client->ticket = HOLDING;
	client->valid = valid;
	client->fence = fence;
	client->first = 0;
	client->due = 1;
	if (fence <= step->state->seen)
		step->state->wrong = "a hold's fence is not above an earlier hold's";
	step->state->seen = fence;
	pursue(client);
}

static void prolong(struct step *step, struct model_client *client, uint8_t valid)
{
	if (!client->valid && valid)
		step->state->wrong = "a lapsed hold is valid again";
	client->valid = valid;
	client->due = 1;
}

/* ---- A client: answers and messages ------------------------------------------------------- */

static void granted(struct step *step, struct model_client *client, uint8_t fence)
{
	uint8_t valid = client->sent;

	if (client->ticket == HOLDING) {
		if (fence != client->fence) {
			end_ticket(step, client, false);
			return;
		}
		if ((client->valid || step->rule == GRANTED_REVIVES) && client->valid < valid)
			prolong(step, client, valid);
		pursue(client);
	} else if (!valid && step->rule != LATE_ANSWER_HOLDS) {
		end_ticket(step, client, true);
	} else {
		/* Without the check the hold is good until a timer has run. */
		take(step, client, valid ? valid : 1, fence);
	}
}

static void queued(struct step *step, struct model_client *client, bool free)
{
	if (client->ticket == CLAIMING) {
		client->due = 1;
	} else if (client->ticket == WAITING) {
		if (step->rule == VALID_FROM_LAST_QUEUED)
			client->first = client->sent;
		client->known = client->due = 1;
		client->handing = free;
	}
	pursue(client);
}

static void kept(struct step *step, struct model_client *client, uint8_t fence)
{
	if (client->ticket == CLAIMING) {
		if (!client->sent && step->rule != LATE_ANSWER_HOLDS)
			end_ticket(step, client, true);
		else
			take(step, client, client->sent ? client->sent : 1,
			     step->rule == FENCE_OF_MESSAGE ? client->fence : fence);
	} else if (client->ticket == HOLDING) {
		if (client->valid)
			prolong(step, client, client->sent);
		pursue(client);
	}
}

static void gone(struct step *step, struct model_client *client)
{
	if (client->ticket == HOLDING) {
		end_ticket(step, client, false);
	} else if (client->ticket == CLAIMING) {
		client->ticket = WAITING;
		client->fence = 0;
		client->due = 1;
		pursue(client);
	}
}

static void handed(struct step *step, struct model_client *client)
{
	if (client->ticket == WAITING) {
		client->handing = 0;
		client->due = 1;
	} else if (step->rule == HAND_FORGETS_TIMER) {
		return;
	}
	pursue(client);
}

/* A leave was confirmed. */
static void left(struct step *step, int index, int nonce)
{
	struct model_client *client = &step->state->client[index];
	bool again = false;

	for (int i = 0; i < client->leavers; i++) {
		if (client->leaver[i].nonce != nonce)
			continue;
		again = client->leaver[i].again;
		client->leaver[i] = client->leaver[--client->leavers];
		break;
	}
	if (again)
		begin(step, index);
}

static void read_answer(struct step *step, int index)
{
	struct model_client *client = &step->state->client[index];
	struct model_entry entry = client->entry[0];

	client->entries--;
	for (int i = 0; i < client->entries; i++)
		client->entry[i] = client->entry[i + 1];
	if (entry.kind == LEAVE) {
		left(step, index, entry.nonce);
		return;
	}
	if (!client->ticket || entry.nonce != client->nonce)
		return; /* its ticket is on its way out */
	if (entry.answer == GRANTED)
		granted(step, client, entry.fence);
	else if (entry.answer == QUEUED || entry.answer == QUEUED_FREE)
		queued(step, client, entry.answer == QUEUED_FREE);
	else if (entry.answer == KEPT)
		kept(step, client, entry.fence);
	else if (entry.answer == GONE)
		gone(step, client);
	else
		handed(step, client);
	client->sent = 0;
}

static void read_message(struct step *step, struct model_client *client)
{
	struct model_note note = client->note[0];

	client->notes--;
	for (int i = 0; i < client->notes; i++)
		client->note[i] = client->note[i + 1];
	if (note.nonce != client->nonce || client->ticket != WAITING)
		return;
	client->handing = 0;
	if (!note.claim && client->first * 3 >= step->bounds->lease) {
		take(step, client, client->first, note.fence);
		return;
	}
	client->ticket = CLAIMING;
	if (step->rule == FENCE_OF_MESSAGE)
		client->fence = note.fence;
	client->due = 1;
	pursue(client);
}

/* ---- Steps -------------------------------------------------------------------------------- */

/* The connections of a client are gone; of its requests the first few may be executed yet. */
static void disconnect(struct step *step, struct model_client *client)
{
	int open = 0, kept_count;

	for (int i = 0; i < client->entries; i++)
		if (!client->entry[i].answer)
			client->entry[open++] = client->entry[i];
	kept_count = step->bounds->late - client->late;
	kept_count = choose(step, (open < kept_count ? open : kept_count) + 1);
	for (int i = 0; i < kept_count; i++)
		client->later[client->late++] = client->entry[i];
	client->entries = client->notes = client->linked = 0;
	client->armed = client->sent = 0;
}

static void crash(struct step *step, struct model_client *client)
{
	disconnect(step, client);
	clear_ticket(client);
	client->leavers = client->alive = 0;
}

static void link_up(struct model_client *client)
{
	client->linked = client->heard = 1;
	if (client->ticket) {
		client->due = 1;
		pursue(client);
	}
}

static void tick(struct lock_state *state, const struct lock_bounds *bounds)
{
	if (state->held && !--state->left)
		lock_server_free(state);
	for (int i = 0; i < bounds->clients; i++) {
		struct model_client *client = &state->client[i];
		client->first -= client->first > 0;
		client->sent -= client->sent > 0;
		client->valid -= client->valid > 0;
	}
}

/* The first leaver whose leave is not under way, -1 if none. */
static int leaver_at_rest(const struct model_client *client)
{
	for (int i = 0; i < client->leavers; i++)
		if (!under_way(client, client->leaver[i].nonce, true))
			return i;
	return -1;
}

/* The wait that was to go on after a leave does not. */
static bool end_again(struct model_client *client)
{
	for (int i = 0; i < client->leavers; i++) {
		if (!client->leaver[i].again)
			continue;
		client->leaver[i].again = 0;
		return true;
	}
	return false;
}

static struct model_entry *first_open(struct model_client *client)
{
	for (int i = 0; i < client->entries; i++)
		if (!client->entry[i].answer)
			return &client->entry[i];
	return NULL;
}

static bool may_begin(const struct step *step, const struct model_client *client)
{
	for (int i = 0; i < client->leavers; i++)
		if (client->leaver[i].again)
			return false; /* its place has a ticket */
	return !client->ticket && client->linked && client->leavers <= step->bounds->overlap &&
	       (!step->bounds->waits || client->begun < step->bounds->waits);
}

/* What a client does of itself.  False if it cannot now. */
static bool act(struct step *step, enum lock_step kind, int index)
{
	struct model_client *client = &step->state->client[index];
	bool waits = client->ticket == WAITING;
	int leaver;

	switch (kind) {
	case STEP_START:
		if (!may_begin(step, client))
			return false;
		if (step->bounds->waits)
			client->begun++;
		begin(step, index);
		return true;
	case STEP_ASK:
	case STEP_HAND:
		if (!waits || !client->armed || client->handing != (kind == STEP_HAND))
			return false;
		send_main(step, client, kind == STEP_HAND ? HAND : ASK, 0,
		          kind == STEP_ASK && client->known);
		return true;
	case STEP_CLAIM:
		if (client->ticket != CLAIMING || !client->armed)
			return false;
		send_main(step, client, RENEW, 0, false);
		return true;
	case STEP_RENEW:
		if (client->ticket != HOLDING || !client->armed)
			return false;
		/* A shorter lease may come true without an answer. */
		if (step->rule != RENEWAL_SHORTENS)
			client->valid = least(client->valid, step->bounds->lease);
		send_main(step, client, RENEW, client->fence, false);
		return true;
	case STEP_EXTEND:
		if (client->ticket != HOLDING || !client->valid || !client->linked ||
		    !at_rest(client) || !step->bounds->extension)
			return false;
		client->valid = least(client->valid, step->bounds->extension);
		send_main(step, client, RENEW, client->fence, true);
		return true;
	case STEP_RELEASE: /* or a loss by time */
	case STEP_CANCEL:
		if (kind == STEP_CANCEL && !step->bounds->cancels)
			return false;
		if (kind == STEP_CANCEL && end_again(client))
			return true;
		if (!client->ticket || (kind == STEP_RELEASE) != (client->ticket == HOLDING))
			return false;
		end_ticket(step, client, false);
		return true;
	case STEP_LEAVE:
		leaver = leaver_at_rest(client);
		if (leaver < 0 || !client->linked)
			return false;
		return send(step, client,
		            (struct model_entry){LEAVE, client->leaver[leaver].nonce, UNANSWERED, 0,
		                                 0});
	case STEP_ANSWER:
		if (!client->entries || !client->entry[0].answer)
			return false;
		read_answer(step, index);
		return true;
	case STEP_MESSAGE:
		if (!client->notes)
			return false;
		read_message(step, client);
		return true;
	default:
		return false;
	}
}

/* What happens to a client.  False if it cannot now. */
static bool happen(struct step *step, enum lock_step kind, int index)
{
	struct lock_state *state = step->state;
	struct model_client *client = &state->client[index];
	struct model_entry late = client->later[0];
	int dead = 0;

	switch (kind) {
	case STEP_EXECUTE:
		if (!first_open(client))
			return false;
		lock_server_execute(step, index, first_open(client));
		return true;
	case STEP_EXECUTE_LATE:
	case STEP_FORGET_LATE:
		if (!client->late)
			return false;
		client->late--;
		for (int i = 0; i < client->late; i++)
			client->later[i] = client->later[i + 1];
		if (kind == STEP_EXECUTE_LATE)
			lock_server_execute(step, index, &late);
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
		link_up(client);
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

static void one(struct lock_model *model, const struct lock_state *from, enum lock_step kind,
                int index)
{
	struct step step = {.model = model, .bounds = model->bounds, .rule = model->rule};
	struct lock_state state;

	do {
		bool can = true;
		state = *from;
		step.state = &state;
		step.choices = 1;
		step.no_room = false;
		if (kind == STEP_TICK)
			tick(&state, model->bounds);
		else
			can = act(&step, kind, index) || happen(&step, kind, index);
		if (can && step.no_room)
			model->pruned++;
		else if (can)
			model->found(model, &state, kind, index);
	} while (++step.choice < step.choices);
}

void lock_model_steps(struct lock_model *model, const struct lock_state *state)
{
	for (int i = 0; i < model->bounds->clients; i++)
		for (int kind = STEP_START; kind < STEP_TICK; kind++)
			one(model, state, (enum lock_step)kind, i);
	one(model, state, STEP_TICK, 0);
}
