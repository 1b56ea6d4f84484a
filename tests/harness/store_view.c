/* SPDX-License-Identifier: MIT
 * Read the state of a name from its keys, without commands: the model and the simulator do this
 * thousands of times a second. */
#include "store_view.h"

#include "lua_store_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* 2:client:nonce:lease:mode[:permits], or q1:client:nonce:lease:mode:priority:epoch */
static bool parse(const char *text, struct store_ticket *ticket)
{
	size_t len = strlen(text), version = text[0] == 'q' ? 3 : 2;
	const char *at;
	char *end;

	memset(ticket, 0, sizeof(*ticket));
	if (len < 40 || len >= sizeof(ticket->text) ||
	    memcmp(text, version == 3 ? "q1:" : "2:", version) != 0)
		return false;
	memcpy(ticket->text, text, len);
	at = ticket->text + version + LK__CLIENT_ID_SIZE;
	memcpy(ticket->nonce, at, LK__NONCE_SIZE - 1);
	ticket->lease_ms = strtoll(at + LK__NONCE_SIZE, &end, 10);
	ticket->fixed = end[1] != 'r';
	ticket->final = end[1] == 'n';
	if (version == 3)
		ticket->arrival_us = strtoll(end + 3, NULL, 10);
	else if (end[2] == ':')
		ticket->permits = (uint32_t)strtoul(end + 3, NULL, 10);
	return true;
}

static const struct store_ticket *find(const struct store_ticket *tickets, int count,
                                       const char *text)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(tickets[i].text, text))
			return &tickets[i];
	return NULL;
}

const struct store_ticket *store_hold(const struct store_view *view, const char *ticket)
{
	return find(view->holds, view->hold_count, ticket);
}

const struct store_ticket *store_wait(const struct store_view *view, const char *ticket)
{
	return find(view->queue, view->queued, ticket);
}

bool store_is_same(const char *one, const char *other)
{
	if (one[0] == 'q' && other[0] == 'q')
		return !strncmp(one, other, 3 + LK__CLIENT_ID_SIZE + LK__NONCE_SIZE);
	return !strcmp(one, other);
}

static const struct lua_key *key_of(const struct lua_store *store, const char *name,
                                    enum lua_type type)
{
	const struct lua_key *key =
		lua_keys_find(lua_store_keys(store), (struct lua_word){name, strlen(name)});

	return key && key->type == type ? key : NULL;
}

static int64_t end_of(const struct lua_key *key)
{
	return key->expires_ms < 0 ? INT64_MAX : key->expires_ms * 1000;
}

static void look_at_queue(const struct lua_store *store, const struct store_keys *keys,
                          struct store_view *view)
{
	const struct lua_key *key = key_of(store, keys->queue, LUA_ZSET);

	view->queued = 0;
	for (size_t i = 0; key && i < key->count && view->queued < STORE_TICKETS; i++) {
		struct store_ticket *wait = &view->queue[view->queued];
		if (!parse(key->items[i].name, wait))
			continue;
		wait->arrival_us = (int64_t)key->items[i].score;
		view->queued++;
	}
}

/* A hash of "<id> <since>", with any blanks before it; 0 for an empty one. */
static uint64_t mark_of(const char *text)
{
	uint64_t sum = UINT64_C(14695981039346656037);

	text += strspn(text, " ");
	if (!*text)
		return 0;
	for (; *text; text++)
		sum = (sum ^ (uint8_t)*text) * UINT64_C(1099511628211);
	return sum | 1;
}

uint64_t store_mark(const char *marker)
{
	return mark_of(marker + strcspn(marker, " "));
}

/* <ticket> <fence> <current lease> <s|-> [<mark>] */
static void look_at_lock(const struct lua_store *store, const struct store_keys *keys,
                         struct store_view *view)
{
	const struct lua_key *key = key_of(store, keys->main, LUA_STRING);
	struct store_ticket *hold = &view->holds[0];
	const char *space = key ? strchr(key->text, ' ') : NULL;
	char ticket[LK__TICKET_MAX];
	char *at;

	view->there = false;
	view->hold_count = 0;
	if (!space)
		return;
	snprintf(ticket, sizeof(ticket), "%.*s", (int)(space - key->text), key->text);
	if (!parse(ticket, hold))
		return;
	hold->fence = strtoull(space, &at, 10);
	hold->force_ms = strtoll(at, NULL, 10);
	hold->held = 1;
	hold->end_us = view->end_us = end_of(key);
	view->there = true;
	view->hold_count = 1;
}

/* <permits> <fence> <current lease> [<mark>] */
static void add_hold(struct store_view *view, const struct lua_item *item)
{
	struct store_ticket *hold = &view->holds[view->hold_count];
	char *at;

	if (view->hold_count == STORE_TICKETS || !parse(item->name, hold))
		return;
	hold->held = (uint32_t)strtoul(item->value, &at, 10);
	hold->fence = strtoull(at, &at, 10);
	hold->force_ms = strtoll(at, &at, 10);
	hold->mark = mark_of(at);
	hold->end_us = -1;
	view->hold_count++;
}

/* An expiry without a hold reads as a hold of no permits and fence 0: the keys disagree. */
static void add_end(struct store_view *view, const struct lua_item *item)
{
	for (int i = 0; i < view->hold_count; i++) {
		if (!strcmp(view->holds[i].text, item->name)) {
			view->holds[i].end_us = (int64_t)item->score;
			return;
		}
	}
	if (view->hold_count < STORE_TICKETS && parse(item->name, &view->holds[view->hold_count]))
		view->holds[view->hold_count++].end_us = (int64_t)item->score;
}

static int64_t field_of(const struct lua_key *key, const char *name)
{
	long index = lua_key_item(key, (struct lua_word){name, strlen(name)});

	return index < 0 ? 0 : strtoll(key->items[index].value, NULL, 10);
}

static void look_at_permits(const struct lua_store *store, const struct store_keys *keys,
                            struct store_view *view)
{
	const struct lua_key *key = key_of(store, keys->main, LUA_HASH);

	view->there = key != NULL;
	view->capacity = key ? field_of(key, "capacity") : 0;
	view->used = key ? field_of(key, "used") : 0;
	view->hold_count = 0;
	for (size_t i = 0; key && i < key->count; i++)
		add_hold(view, &key->items[i]);
	key = key_of(store, keys->holds, LUA_ZSET);
	for (size_t i = 0; key && i < key->count; i++)
		add_end(view, &key->items[i]);
}

static void look_at_latch(const struct lua_store *store, const struct store_keys *keys,
                          struct store_view *view)
{
	const struct lua_key *key = key_of(store, keys->main, LUA_HASH);

	view->there = key != NULL;
	view->generation = key ? (uint64_t)field_of(key, "gen") : 0;
	view->count = key ? field_of(key, "count") : 0;
	view->initial = key ? field_of(key, "initial") : 0;
	view->end_us = key ? end_of(key) : INT64_MAX;
	if (view->end_us != INT64_MAX)
		view->end_us += 1000; /* a key exists through the millisecond of its expiry */
}

void store_look(const struct lua_store *store, const struct store_keys *keys,
                struct store_view *view)
{
	if (keys->kind == LK_KIND_LATCH) {
		look_at_latch(store, keys, view);
		return;
	}
	if (keys->kind == LK_KIND_LOCK)
		look_at_lock(store, keys, view);
	else
		look_at_permits(store, keys, view);
	look_at_queue(store, keys, view);
}

const char *store_marker(const struct lua_store *store, const char *key)
{
	const struct lua_key *marker = key_of(store, key, LUA_STRING);

	return marker ? marker->text : "";
}
