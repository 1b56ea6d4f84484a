/* SPDX-License-Identifier: MIT
 * One form for all states that mean the same: fences by rank, nonces by first appearance, clients
 * that may be exchanged in the order of their bytes.  A number of waits without limit has finitely
 * many states that way. */
#include "lock_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_BYTES 24

/* ---- Numbers ------------------------------------------------------------------------------ */

/* Every fence that the state knows. */
static size_t fences_of(struct lock_state *state, const struct lock_bounds *bounds,
                        uint8_t **fences)
{
	size_t count = 0;

	fences[count++] = &state->fence;
	fences[count++] = &state->last;
	fences[count++] = &state->seen;
	for (int i = 0; i < bounds->clients; i++) {
		struct model_client *client = &state->client[i];
		fences[count++] = &client->fence;
		for (int j = 0; j < client->entries; j++)
			fences[count++] = &client->entry[j].fence;
		for (int j = 0; j < client->late; j++)
			fences[count++] = &client->later[j].fence;
		for (int j = 0; j < client->notes; j++)
			fences[count++] = &client->note[j].fence;
	}
	return count;
}

static void number_fences(struct lock_state *state, const struct lock_bounds *bounds)
{
	uint8_t *fences[3 + MODEL_CLIENTS * (1 + MODEL_ENTRIES + MODEL_LATE + MODEL_NOTES)];
	uint8_t ranks[MODEL_FENCES * 2] = {0};
	size_t count = fences_of(state, bounds, fences);
	uint8_t lowest = UINT8_MAX, highest = 0;

	/* Only what may yet become a hold, or be compared with one, has to be in order with the
	 * rest: the last one is above all others anyway, and who has been seen matters to what is
	 * below. */
	state->last = 0;
	for (size_t i = 0; i < count; i++) {
		if (fences[i] != &state->seen && *fences[i] && *fences[i] < lowest)
			lowest = *fences[i];
		if (*fences[i] > highest)
			highest = *fences[i];
	}
	if (state->seen < lowest)
		state->seen = 0;
	state->last = lowest == UINT8_MAX ? 0 : highest;
	for (size_t i = 0; i < count; i++)
		ranks[*fences[i]] = 1;
	ranks[0] = 0; /* stays none */
	for (size_t i = 1; i < sizeof(ranks); i++)
		ranks[i] = (uint8_t)(ranks[i] + ranks[i - 1]);
	for (size_t i = 0; i < count; i++)
		*fences[i] = *fences[i] ? ranks[*fences[i]] : 0;
	if (state->last >= MODEL_FENCES)
		abort();
}

static void rename_nonce(uint8_t *names, uint8_t *nonce)
{
	if (names[*nonce] == MODEL_NONCES)
		names[*nonce] = names[MODEL_NONCES]++;
	*nonce = names[*nonce];
}

static void number_nonces(struct lock_state *state, int index)
{
	struct model_client *client = &state->client[index];
	uint8_t names[MODEL_NONCES + 1]; /* the last one: how many */

	memset(names, MODEL_NONCES, MODEL_NONCES);
	names[MODEL_NONCES] = 0;
	if (client->ticket)
		rename_nonce(names, &client->nonce);
	for (int i = 0; i < client->leavers; i++)
		rename_nonce(names, &client->leaver[i].nonce);
	for (int i = 0; i < client->entries; i++)
		rename_nonce(names, &client->entry[i].nonce);
	for (int i = 0; i < client->late; i++)
		rename_nonce(names, &client->later[i].nonce);
	for (int i = 0; i < client->notes; i++)
		rename_nonce(names, &client->note[i].nonce);
	if (state->held && state->owner.client == index)
		rename_nonce(names, &state->owner.nonce);
	for (int i = 0; i < state->queued; i++)
		if (state->queue[i].client == index)
			rename_nonce(names, &state->queue[i].nonce);
}

/* What will have no effect any more: answers and messages for tickets that are gone, the moment of
 * a request that makes no hold. */
static void forget(struct model_client *client, const struct lock_bounds *bounds,
                   enum lock_rule rule)
{
	int notes = 0, entries = 0;
	bool sent_counts = false;

	for (int i = 0; i < client->entries; i++) {
		struct model_entry *entry = &client->entry[i];
		bool mine = client->ticket && client->nonce == entry->nonce;
		if (entry->kind != LEAVE && entry->answer && !mine)
			continue;
		if (mine && (entry->kind == ASK || entry->kind == RENEW) && entry->answer != GONE &&
		    (rule == VALID_FROM_LAST_QUEUED ||
		     (entry->answer != QUEUED && entry->answer != QUEUED_FREE)))
			sent_counts = true;
		client->entry[entries++] = *entry;
	}
	client->entries = (uint8_t)entries;
	for (int i = 0; i < client->notes; i++) {
		struct model_note note = client->note[i];
		if (!client->ticket || client->ticket == HOLDING || client->nonce != note.nonce)
			continue;
		if (rule != VALID_FROM_LAST_QUEUED) /* else it may become worth more again */
			note.claim |= client->first * 3 < bounds->lease;
		if (note.claim && rule != FENCE_OF_MESSAGE)
			note.fence = 0;
		client->note[notes++] = note;
	}
	client->notes = (uint8_t)notes;
	if (!sent_counts)
		client->sent = 0;
}

void lock_state_number(struct lock_state *state, const struct lock_bounds *bounds,
                       enum lock_rule rule)
{
	for (int i = 0; i < bounds->clients; i++)
		forget(&state->client[i], bounds, rule);
	number_fences(state, bounds);
	for (int i = 0; i < bounds->clients; i++)
		number_nonces(state, i);
}

/* ---- Bits --------------------------------------------------------------------------------- */

struct bits {
	uint8_t *bytes;
	unsigned at, end;
	bool in;
};

/* One field, either way. */
static void field(struct bits *bits, uint8_t *value, unsigned width)
{
	uint8_t *bytes = bits->bytes + bits->at / 8;
	unsigned shift = bits->at % 8;

	bits->at += width;
	if (bits->at + 8 > bits->end || (!bits->in && *value >> width))
		abort();
	if (bits->in) {
		*value = (uint8_t)((bytes[0] | (unsigned)bytes[1] << 8) >> shift &
		                   ((1u << width) - 1));
	} else {
		bytes[0] |= (uint8_t)(*value << shift);
		bytes[1] |= (uint8_t)((unsigned)*value << shift >> 8);
	}
}

static void entry_fields(struct bits *bits, struct model_entry *entry)
{
	field(bits, &entry->kind, 2);
	field(bits, &entry->nonce, 2);
	field(bits, &entry->answer, 3);
	field(bits, &entry->fence, 4);
	field(bits, &entry->flag, 1);
}

static void ticket_fields(struct bits *bits, struct model_client *client)
{
	field(bits, &client->ticket, 2);
	if (!client->ticket)
		return;
	field(bits, &client->nonce, 2);
	field(bits, &client->first, 3);
	field(bits, &client->sent, 3);
	field(bits, &client->valid, 3);
	field(bits, &client->fence, 4);
	field(bits, &client->handing, 1);
	field(bits, &client->known, 1);
	field(bits, &client->due, 1);
	field(bits, &client->armed, 1);
}

static void client_fields(struct bits *bits, struct model_client *client)
{
	field(bits, &client->alive, 1);
	field(bits, &client->linked, 1);
	field(bits, &client->heard, 1);
	field(bits, &client->begun, 2);
	ticket_fields(bits, client);
	field(bits, &client->leavers, 2);
	for (int i = 0; i < client->leavers; i++) {
		field(bits, &client->leaver[i].nonce, 2);
		field(bits, &client->leaver[i].again, 1);
	}
	field(bits, &client->entries, 3);
	for (int i = 0; i < client->entries; i++)
		entry_fields(bits, &client->entry[i]);
	field(bits, &client->late, 2);
	for (int i = 0; i < client->late; i++)
		entry_fields(bits, &client->later[i]);
	field(bits, &client->notes, 2);
	for (int i = 0; i < client->notes; i++) {
		field(bits, &client->note[i].nonce, 2);
		field(bits, &client->note[i].fence, 4);
		field(bits, &client->note[i].claim, 1);
	}
}

static void store_fields(struct bits *bits, struct lock_state *state)
{
	field(bits, &state->held, 1);
	if (state->held) {
		field(bits, &state->owner.client, 2);
		field(bits, &state->owner.nonce, 2);
		field(bits, &state->fence, 4);
		field(bits, &state->left, 3);
	}
	field(bits, &state->last, 4);
	field(bits, &state->seen, 4);
	field(bits, &state->drops, 3);
	field(bits, &state->queued, 3);
	for (int i = 0; i < state->queued; i++) {
		field(bits, &state->queue[i].client, 2);
		field(bits, &state->queue[i].nonce, 2);
	}
}

/* ---- Clients in order --------------------------------------------------------------------- */

struct packed {
	uint8_t bytes[CLIENT_BYTES + 1 + MODEL_QUEUE]; /* its own, then where the store knows it */
	unsigned size;
};

static void pack_client(const struct lock_state *state, int index, struct packed *packed)
{
	struct model_client client = state->client[index];
	struct bits bits = {.bytes = packed->bytes, .end = CLIENT_BYTES * 8};

	memset(packed, 0, sizeof(*packed));
	client_fields(&bits, &client);
	packed->size = (bits.at + 7) / 8;
	packed->bytes[CLIENT_BYTES] = state->held && state->owner.client == index;
	for (int i = 0; i < state->queued; i++)
		packed->bytes[CLIENT_BYTES + 1 + i] = state->queue[i].client == index;
}

void lock_state_pack(const struct lock_state *state, const struct lock_bounds *bounds,
                     uint8_t *bytes)
{
	struct lock_state copy = {.client = {{0}}};
	struct bits bits = {.bytes = bytes, .end = MODEL_WIDTH * 8};
	uint8_t order[MODEL_CLIENTS] = {0}, place[MODEL_CLIENTS] = {0};
	struct packed clients[MODEL_CLIENTS];
	unsigned size;

	for (uint8_t i = 0; i < bounds->clients; i++) {
		int at = i;
		pack_client(state, i, &clients[i]);
		while (bounds->alike && at > 0 &&
		       memcmp(clients[i].bytes, clients[order[at - 1]].bytes,
		              sizeof(clients[i].bytes)) < 0) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
	for (uint8_t i = 0; i < bounds->clients; i++)
		place[order[i]] = i;
	memcpy(&copy.held, &state->held, sizeof(copy) - offsetof(struct lock_state, held));
	copy.owner.client = place[copy.owner.client];
	for (int i = 0; i < copy.queued; i++)
		copy.queue[i].client = place[copy.queue[i].client];
	memset(bytes, 0, MODEL_WIDTH);
	store_fields(&bits, &copy);
	size = (bits.at + 7) / 8;
	for (int i = 0; i < bounds->clients; i++) {
		const struct packed *client = &clients[order[i]];
		if (size + client->size > MODEL_WIDTH)
			abort();
		memcpy(bytes + size, client->bytes, client->size);
		size += client->size;
	}
}

void lock_state_unpack(const uint8_t *bytes, const struct lock_bounds *bounds,
                       struct lock_state *state)
{
	uint8_t copy[MODEL_WIDTH];
	struct bits bits = {.bytes = copy, .end = MODEL_WIDTH * 8, .in = true};

	memcpy(copy, bytes, sizeof(copy));
	memset(state, 0, sizeof(*state));
	store_fields(&bits, state);
	for (int i = 0; i < bounds->clients; i++) {
		bits.at = (bits.at + 7) / 8 * 8;
		client_fields(&bits, &state->client[i]);
	}
}

/* ---- For people --------------------------------------------------------------------------- */

const char *lock_step_name(enum lock_step step)
{
	static const char *const names[] = {"begins a wait, asks",
	                                    "asks",
	                                    "sends a hand",
	                                    "claims",
	                                    "renews",
	                                    "extends",
	                                    "releases or has lost",
	                                    "cancels",
	                                    "sends a leave",
	                                    "is executed by the store",
	                                    "is executed late",
	                                    "will not be executed any more",
	                                    "reads an answer",
	                                    "reads a message",
	                                    "drops its connections",
	                                    "links up",
	                                    "is heard no more",
	                                    "crashes",
	                                    "(a tick)"};

	return names[step];
}

static void print_entries(const char *title, const struct model_entry *entries, int count)
{
	static const char *const kinds[] = {"ask", "hand", "leave", "renew"};
	static const char *const answers[] = {"",      "=granted", "=queued", "=queued-free",
	                                      "=kept", "=gone",    "=left"};

	for (int i = 0; i < count; i++)
		printf(" %s%s%d%s/%d%s", title, kinds[entries[i].kind], entries[i].nonce,
		       answers[entries[i].answer], entries[i].fence, entries[i].flag ? "+" : "");
}

void lock_state_print(const struct lock_state *state, const struct lock_bounds *bounds)
{
	static const char *const tickets[] = {"-", "waiting", "claiming", "holding"};

	if (state->held)
		printf("      lock %c%d fence %d, %d left;", 'A' + state->owner.client,
		       state->owner.nonce, state->fence, state->left);
	else
		printf("      lock free;");
	for (int i = 0; i < state->queued; i++)
		printf(" %c%d", 'A' + state->queue[i].client, state->queue[i].nonce);
	printf("\n");
	for (int i = 0; i < bounds->clients; i++) {
		const struct model_client *client = &state->client[i];
		printf("      %c%s%s%s %s%d first %d sent %d valid %d fence %d%s%s;", 'A' + i,
		       client->alive ? "" : " dead", client->linked ? "" : " unlinked",
		       client->heard ? "" : " unheard", tickets[client->ticket], client->nonce,
		       client->first, client->sent, client->valid, client->fence,
		       client->handing ? " handing" : "", client->armed ? " armed" : "");
		for (int j = 0; j < client->leavers; j++)
			printf(" leaving%d%s", client->leaver[j].nonce,
			       client->leaver[j].again ? "+" : "");
		print_entries("", client->entry, client->entries);
		print_entries("late:", client->later, client->late);
		for (int j = 0; j < client->notes; j++)
			printf(" message%d/%d%s", client->note[j].nonce, client->note[j].fence,
			       client->note[j].claim ? "c" : "");
		printf("\n");
	}
}
