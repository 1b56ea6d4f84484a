/* SPDX-License-Identifier: MIT
 * One form for all states that mean the same: fences and nonces by first appearance, holds in
 * order, clients that may be exchanged in the order of their bytes.  A number of waits without
 * limit has finitely many states that way. */
#include "semaphore_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT_BYTES 32

void semaphore_state_first(struct semaphore_state *state, const struct semaphore_bounds *bounds)
{
	memset(state, 0, sizeof(*state));
	state->drops = bounds->drops;
	state->capacity = state->ceiling = bounds->capacity;
	for (int i = 0; i < bounds->clients; i++)
		state->client[i].alive = state->client[i].linked = state->client[i].heard = 1;
}

/* ---- What has no effect any more ---------------------------------------------------------- */

/* Answers and messages for tickets that are gone, the moment of a request that makes no hold. */
static void forget(struct semaphore_client *client, const struct semaphore_bounds *bounds,
                   enum semaphore_rule rule)
{
	int notes = 0, entries = 0;
	bool sent_counts = false;

	for (int i = 0; i < client->entries; i++) {
		struct semaphore_entry *entry = &client->entry[i];
		bool mine = client->ticket && client->nonce == entry->nonce;
		bool leaving = entry->kind == LEAVE || (entry->kind == HAND && entry->flag);
		if (!leaving && entry->answer && !mine)
			continue;
		if (mine && (entry->kind == ASK || entry->kind == RENEW) && entry->answer != GONE &&
		    entry->answer != BUSY && entry->answer != LIMIT &&
		    (rule == VALID_FROM_LAST_QUEUED || entry->answer != QUEUED))
			sent_counts = true;
		client->entry[entries++] = *entry;
	}
	client->entries = (uint8_t)entries;
	for (int i = 0; i < client->notes; i++) {
		struct semaphore_note note = client->note[i];
		if (!client->ticket || client->ticket == HOLDING || client->nonce != note.nonce)
			continue;
		note.claim |= bounds->kind != PERMITS_RENEWED;
		if (rule != VALID_FROM_LAST_QUEUED) /* else it may become worth more again */
			note.claim |= client->first * 3 < bounds->lease;
		if (note.claim && rule != FENCE_OF_MESSAGE)
			note.fence = 0;
		client->note[notes++] = note;
	}
	client->notes = (uint8_t)notes;
	if (!sent_counts)
		client->sent = 0;
	if (bounds->kind != PERMITS_RENEWED && rule != VALID_FROM_LAST_QUEUED)
		client->first = 0; /* what came by message is claimed in any case */
}

static bool is_known(const struct semaphore_state *state, const struct semaphore_hold *hold)
{
	const struct semaphore_client *client = &state->client[hold->client];
	bool known = client->ticket && client->nonce == hold->nonce;

	for (int i = 0; i < client->leavers; i++)
		known |= client->leaver[i].nonce == hold->nonce;
	for (int i = 0; i < client->entries; i++)
		known |= client->entry[i].nonce == hold->nonce;
	for (int i = 0; i < client->late; i++)
		known |= client->later[i].nonce == hold->nonce;
	for (int i = 0; i < state->queued; i++)
		known |= state->queue[i].client == hold->client &&
		         state->queue[i].nonce == hold->nonce;
	return known;
}

/* Whose turn has come, or who does not wait, overtakes nobody. */
static void forget_order(struct semaphore_state *state, const struct semaphore_bounds *bounds)
{
	for (int i = 0; i < bounds->clients; i++) {
		uint8_t ticket = state->client[i].ticket;
		for (int j = 0; j < state->queued && ticket != WAITING && ticket != CLAIMING; j++)
			state->queue[j].after &= (uint8_t) ~(1u << i);
	}
	for (int i = 0; i < state->holds; i++) {
		struct semaphore_hold *hold = &state->hold[i];
		if (hold->client == MODEL_NOBODY || is_known(state, hold))
			continue;
		hold->client = MODEL_NOBODY;
		hold->nonce = hold->fence = 0;
	}
	for (int i = 0; i < state->past; i++)
		state->before[i] = (struct semaphore_hold){.permits = state->before[i].permits,
		                                           .age = state->before[i].age};
}

/* ---- Numbers ------------------------------------------------------------------------------ */

/* Of a client: the last place says how many names were given. */
struct names {
	uint8_t nonce[MODEL_NONCES + 1], fence[MODEL_FENCES + 1];
};

static void rename_nonce(struct names *names, uint8_t *nonce)
{
	if (names->nonce[*nonce] == MODEL_NONCES)
		names->nonce[*nonce] = names->nonce[MODEL_NONCES]++;
	*nonce = names->nonce[*nonce];
}

static void rename_fence(struct names *names, uint8_t *fence)
{
	if (!*fence)
		return;
	if (!names->fence[*fence])
		names->fence[*fence] = ++names->fence[MODEL_FENCES];
	*fence = names->fence[*fence];
}

static void rename_entries(struct names *names, struct semaphore_entry *entries, int count)
{
	for (int i = 0; i < count; i++) {
		rename_nonce(names, &entries[i].nonce);
		rename_fence(names, &entries[i].fence);
	}
}

static void rename_all(struct semaphore_state *state, int index)
{
	struct semaphore_client *client = &state->client[index];
	struct names names = {{0}, {0}};

	memset(names.nonce, MODEL_NONCES, MODEL_NONCES);
	if (client->ticket)
		rename_nonce(&names, &client->nonce);
	rename_fence(&names, &client->fence);
	for (int i = 0; i < client->leavers; i++)
		rename_nonce(&names, &client->leaver[i].nonce);
	rename_entries(&names, client->entry, client->entries);
	rename_entries(&names, client->later, client->late);
	for (int i = 0; i < client->notes; i++) {
		rename_nonce(&names, &client->note[i].nonce);
		rename_fence(&names, &client->note[i].fence);
	}
	for (int i = 0; i < state->queued; i++)
		if (state->queue[i].client == index)
			rename_nonce(&names, &state->queue[i].nonce);
	for (int i = 0; i < state->holds; i++) {
		if (state->hold[i].client != index)
			continue;
		rename_nonce(&names, &state->hold[i].nonce);
		rename_fence(&names, &state->hold[i].fence);
	}
}

static unsigned order_of(const struct semaphore_hold *hold)
{
	return (unsigned)hold->client << 24 | (unsigned)hold->nonce << 20 |
	       (unsigned)hold->left << 16 | (unsigned)hold->permits << 12 |
	       (unsigned)hold->age << 8 | (unsigned)hold->taken << 4 | hold->fence;
}

static void sort_holds(struct semaphore_hold *holds, int count)
{
	for (int i = 1; i < count; i++) {
		struct semaphore_hold hold = holds[i];
		int at = i;
		for (; at > 0 && order_of(&hold) < order_of(&holds[at - 1]); at--)
			holds[at] = holds[at - 1];
		holds[at] = hold;
	}
}

void semaphore_state_number(struct semaphore_state *state, const struct semaphore_bounds *bounds,
                            enum semaphore_rule rule)
{
	for (int i = 0; i < bounds->clients; i++)
		forget(&state->client[i], bounds, rule);
	forget_order(state, bounds);
	for (int i = 0; i < bounds->clients; i++)
		rename_all(state, i);
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

static void entry_fields(struct bits *bits, struct semaphore_entry *entry)
{
	field(bits, &entry->kind, 3);
	field(bits, &entry->nonce, 2);
	field(bits, &entry->answer, 3);
	field(bits, &entry->fence, 3);
	field(bits, &entry->flag, 1);
	field(bits, &entry->keep, 2);
	field(bits, &entry->more, 1);
	field(bits, &entry->mine, 1);
}

static void ticket_fields(struct bits *bits, struct semaphore_client *client)
{
	field(bits, &client->ticket, 2);
	if (!client->ticket)
		return;
	field(bits, &client->nonce, 2);
	field(bits, &client->first, 3);
	field(bits, &client->sent, 3);
	field(bits, &client->valid, 3);
	field(bits, &client->fence, 3);
	field(bits, &client->count, 2);
	field(bits, &client->only_try, 1);
	field(bits, &client->shrinking, 1);
	field(bits, &client->handing, 1);
	field(bits, &client->known, 1);
	field(bits, &client->due, 1);
	field(bits, &client->armed, 1);
}

static void client_fields(struct bits *bits, struct semaphore_client *client)
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
		field(bits, &client->leaver[i].only_try, 1);
		field(bits, &client->leaver[i].hand, 1);
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
		field(bits, &client->note[i].fence, 3);
		field(bits, &client->note[i].claim, 1);
	}
}

static void store_fields(struct bits *bits, struct semaphore_state *state)
{
	field(bits, &state->capacity, 3);
	field(bits, &state->ceiling, 3);
	field(bits, &state->used, 4);
	field(bits, &state->drops, 3);
	field(bits, &state->holds, 3);
	for (int i = 0; i < state->holds; i++) {
		field(bits, &state->hold[i].client, 2);
		field(bits, &state->hold[i].nonce, 2);
		field(bits, &state->hold[i].permits, 2);
		field(bits, &state->hold[i].fence, 3);
		field(bits, &state->hold[i].left, 3);
		field(bits, &state->hold[i].age, 3);
		field(bits, &state->hold[i].taken, 1);
	}
	field(bits, &state->past, 2);
	for (int i = 0; i < state->past; i++) {
		field(bits, &state->before[i].permits, 2);
		field(bits, &state->before[i].age, 3);
	}
	field(bits, &state->queued, 3);
	for (int i = 0; i < state->queued; i++) {
		field(bits, &state->queue[i].client, 2);
		field(bits, &state->queue[i].nonce, 2);
		field(bits, &state->queue[i].after, 3);
	}
}

/* ---- Clients in order --------------------------------------------------------------------- */

struct packed {
	/* Its own, then what the store knows of it. */
	uint8_t bytes[CLIENT_BYTES + MODEL_QUEUE + MODEL_HOLDS];
	unsigned size;
};

static void pack_client(const struct semaphore_state *state, int index, struct packed *packed)
{
	struct semaphore_client client = state->client[index];
	struct bits bits = {.bytes = packed->bytes, .end = CLIENT_BYTES * 8};
	uint8_t *known = packed->bytes + CLIENT_BYTES;

	memset(packed, 0, sizeof(*packed));
	client_fields(&bits, &client);
	packed->size = (bits.at + 7) / 8;
	for (int i = 0; i < state->queued; i++)
		*known++ = state->queue[i].client == index ? state->queue[i].nonce + 1 : 0;
	for (int i = 0; i < state->holds; i++)
		if (state->hold[i].client == index)
			*known++ = (uint8_t)(state->hold[i].left << 4 | state->hold[i].permits);
}

/* The clients as they are told apart in the bytes: place[i] is the one of client i. */
static void sort_clients(const struct semaphore_state *state, const struct semaphore_bounds *bounds,
                         struct packed *clients, uint8_t *order, uint8_t *place)
{
	for (uint8_t i = 0; i < bounds->clients; i++) {
		int at = i;
		pack_client(state, i, &clients[i]);
		while (bounds->alike && at > 0 &&
		       bounds->permits[i] == bounds->permits[order[at - 1]] &&
		       memcmp(clients[i].bytes, clients[order[at - 1]].bytes,
		              sizeof(clients[i].bytes)) < 0) {
			order[at] = order[at - 1];
			at--;
		}
		order[at] = i;
	}
	for (uint8_t i = 0; i < bounds->clients; i++)
		place[order[i]] = i;
	place[MODEL_NOBODY] = MODEL_NOBODY;
}

void semaphore_state_pack(const struct semaphore_state *state,
                          const struct semaphore_bounds *bounds, uint8_t *bytes)
{
	struct semaphore_state copy = {.client = {{0}}};
	struct bits bits = {.bytes = bytes, .end = MODEL_WIDTH * 8};
	uint8_t order[MODEL_CLIENTS] = {0}, place[MODEL_CLIENTS + 1] = {0};
	struct packed clients[MODEL_CLIENTS];
	size_t store = offsetof(struct semaphore_state, capacity);
	unsigned size;

	sort_clients(state, bounds, clients, order, place);
	memcpy((uint8_t *)&copy + store, (const uint8_t *)state + store, sizeof(copy) - store);
	for (int i = 0; i < copy.holds; i++)
		copy.hold[i].client = place[copy.hold[i].client];
	for (int i = 0; i < copy.queued; i++) {
		uint8_t after = copy.queue[i].after;
		copy.queue[i].client = place[copy.queue[i].client];
		copy.queue[i].after = 0;
		for (int j = 0; j < bounds->clients; j++)
			copy.queue[i].after |= (uint8_t)((after >> j & 1) << place[j]);
	}
	sort_holds(copy.hold, copy.holds);
	sort_holds(copy.before, copy.past);
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

void semaphore_state_unpack(const uint8_t *bytes, const struct semaphore_bounds *bounds,
                            struct semaphore_state *state)
{
	uint8_t copy[MODEL_WIDTH + 1] = {0};
	struct bits bits = {.bytes = copy, .end = (MODEL_WIDTH + 1) * 8, .in = true};

	memcpy(copy, bytes, MODEL_WIDTH);
	memset(state, 0, sizeof(*state));
	store_fields(&bits, state);
	for (int i = 0; i < bounds->clients; i++) {
		bits.at = (bits.at + 7) / 8 * 8;
		client_fields(&bits, &state->client[i]);
	}
}

/* ---- For people --------------------------------------------------------------------------- */

const char *semaphore_step_name(enum semaphore_step step)
{
	static const char *const names[] = {"begins a wait, asks",
	                                    "tries",
	                                    "asks",
	                                    "sends a hand",
	                                    "claims",
	                                    "renews",
	                                    "extends",
	                                    "gives back a permit",
	                                    "tells what it keeps",
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
	                                    "(a resize)",
	                                    "(the queue ends)",
	                                    "(a tick)"};

	return names[step];
}

static void print_entries(const char *title, const struct semaphore_entry *entries, int count)
{
	static const char *const kinds[] = {"ask", "hand", "leave", "renew", "shrink"};
	static const char *const answers[] = {"",       "=granted", "=queued", "=busy",
	                                      "=limit", "=kept",    "=gone",   "=left"};

	for (int i = 0; i < count; i++)
		printf(" %s%s%d%s/%d%s%s", title, kinds[entries[i].kind], entries[i].nonce,
		       answers[entries[i].answer],
		       entries[i].kind == SHRINK ? entries[i].keep : entries[i].fence,
		       entries[i].flag ? "+" : "", entries[i].more ? " more" : "");
}

static void print_client(const struct semaphore_client *client)
{
	static const char *const tickets[] = {"-", "waiting", "claiming", "holding"};

	printf("%s%s%s %s%d first %d sent %d valid %d permits %d fence %d%s%s%s;",
	       client->alive ? "" : " dead", client->linked ? "" : " unlinked",
	       client->heard ? "" : " unheard", tickets[client->ticket], client->nonce,
	       client->first, client->sent, client->valid, client->count, client->fence,
	       client->handing ? " handing" : "", client->shrinking ? " shrinking" : "",
	       client->armed ? " armed" : "");
	for (int i = 0; i < client->leavers; i++)
		printf(" leaving%d%s", client->leaver[i].nonce, client->leaver[i].again ? "+" : "");
	print_entries("", client->entry, client->entries);
	print_entries("late:", client->later, client->late);
	for (int i = 0; i < client->notes; i++)
		printf(" message%d/%d%s", client->note[i].nonce, client->note[i].fence,
		       client->note[i].claim ? "c" : "");
	printf("\n");
}

void semaphore_state_print(const struct semaphore_state *state,
                           const struct semaphore_bounds *bounds)
{
	printf("      used %d of %d:", state->used, state->capacity);
	for (int i = 0; i < state->holds; i++)
		printf(" %c%d has %d (fence %d, %d left)", "ABC?"[state->hold[i].client],
		       state -> hold[i].nonce, state->hold[i].permits, state->hold[i].fence,
		       state->hold[i].left);
	printf("; queue:");
	for (int i = 0; i < state->queued; i++)
		printf(" %c%d", "ABC"[state->queue[i].client], state -> queue[i].nonce);
	printf("\n");
	for (int i = 0; i < bounds->clients; i++) {
		printf("      %c", "ABC"[i]);
		print_client(&state->client[i]);
	}
}
