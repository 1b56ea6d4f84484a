/* SPDX-License-Identifier: MIT
 * The state of a name in the store, read from outside the scripts. */
#include "sim.h"

#include "lua_store_parts.h"

#include <stdlib.h>
#include <string.h>

static long long number_at(const char **at)
{
	char *end;
	long long number = strtoll(*at, &end, 10);

	*at = end;
	return number;
}

/* 1:cSS_LLLLL_aaaaaaaaaaaa:nonce:lease:mode[:permits] */
bool sim_ticket_parse(const char *text, struct sim_ticket *ticket)
{
	const char *at = text;

	memset(ticket, 0, sizeof(*ticket));
	if (strlen(text) < 40 || strlen(text) >= sizeof(ticket->text) ||
	    strncmp(text, "1:c", 3) != 0)
		return false;
	memcpy(ticket->text, text, strlen(text) + 1);
	at = text + 3;
	ticket->slot = (int)number_at(&at);
	at++;
	ticket->life = (int)number_at(&at);
	at = text + 2 + LK__CLIENT_ID_SIZE;
	memcpy(ticket->nonce, at, LK__NONCE_SIZE - 1);
	at += LK__NONCE_SIZE;
	ticket->lease_ms = number_at(&at);
	ticket->fixed = at[1] != 'r';
	at += 2;
	if (*at == ':') {
		at++;
		ticket->permits = (uint32_t)number_at(&at);
	}
	return ticket->slot >= 0 && ticket->slot < SIM_CLIENTS;
}

const struct sim_ticket *sim_find(const struct sim_ticket *tickets, int count, const char *text)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(tickets[i].text, text))
			return &tickets[i];
	return NULL;
}

/* Read thousands of times a second: directly from the store, without commands.  (Its keys are its
 * first member; sim_view_check() verifies that.) */
static const struct lua_key *key_of(const struct sim *sim, const char *name, enum lua_type type)
{
	const struct lua_keys *keys = &((const struct lua_server *)(const void *)sim->store)->keys;
	const struct lua_key *key = lua_keys_find(keys, (struct lua_word){name, strlen(name)});

	return key && key->type == type ? key : NULL;
}

void sim_view_check(struct sim *sim)
{
	const struct lua_key *key;

	lua_store_text(sim->store, "SET", "sim", "17", NULL);
	key = key_of(sim, "sim", LUA_STRING);
	if (!key || key->text_len != 2 || memcmp(key->text, "17", 2) != 0)
		abort();
	lua_store_text(sim->store, "DEL", "sim", NULL);
}

static int64_t end_of(const struct lua_key *key)
{
	return key->expires_ms < 0 ? INT64_MAX : key->expires_ms * 1000;
}

static void look_at_queue(struct sim *sim, const struct sim_name *name, struct sim_view *view)
{
	const struct lua_key *key = key_of(sim, name->queue, LUA_ZSET);

	view->queued = 0;
	for (size_t i = 0; key && i < key->count && view->queued < SIM_TICKETS; i++) {
		struct sim_ticket *wait = &view->queue[view->queued];
		if (!sim_ticket_parse(key->items[i].name, wait))
			continue;
		wait->arrival_us = (int64_t)key->items[i].score;
		view->queued++;
	}
}

/* <ticket> <fence> <current lease> <s|-> */
static void look_at_lock(struct sim *sim, const struct sim_name *name, struct sim_view *view)
{
	const struct lua_key *key = key_of(sim, name->main, LUA_STRING);
	struct sim_ticket *hold = &view->holds[0];
	const char *space = key ? strchr(key->text, ' ') : NULL;
	char ticket[LK__TICKET_MAX];
	char *at;

	view->there = false;
	view->hold_count = 0;
	if (!space)
		return;
	snprintf(ticket, sizeof(ticket), "%.*s", (int)(space - key->text), key->text);
	if (!sim_ticket_parse(ticket, hold))
		return;
	hold->fence = strtoull(space, &at, 10);
	hold->force_ms = strtoll(at, NULL, 10);
	hold->held = 1;
	hold->end_us = view->end_us = end_of(key);
	view->there = true;
	view->hold_count = 1;
}

static void add_hold(struct sim_view *view, const struct lua_item *item)
{
	struct sim_ticket *hold = &view->holds[view->hold_count];
	char *at;

	if (view->hold_count == SIM_TICKETS || !sim_ticket_parse(item->name, hold))
		return;
	hold->held = (uint32_t)strtoul(item->value, &at, 10);
	hold->fence = strtoull(at, &at, 10);
	hold->force_ms = strtoll(at, NULL, 10);
	hold->end_us = -1;
	view->hold_count++;
}

/* An expiry without a hold reads as a hold of no permits and fence 0: the keys disagree. */
static void add_end(struct sim_view *view, const struct lua_item *item)
{
	for (int i = 0; i < view->hold_count; i++) {
		if (!strcmp(view->holds[i].text, item->name)) {
			view->holds[i].end_us = (int64_t)item->score;
			return;
		}
	}
	if (view->hold_count < SIM_TICKETS &&
	    sim_ticket_parse(item->name, &view->holds[view->hold_count]))
		view->holds[view->hold_count++].end_us = (int64_t)item->score;
}

static int64_t field_of(const struct lua_key *key, const char *name)
{
	long index = lua_key_item(key, (struct lua_word){name, strlen(name)});

	return index < 0 ? 0 : strtoll(key->items[index].value, NULL, 10);
}

static void look_at_permits(struct sim *sim, const struct sim_name *name, struct sim_view *view)
{
	const struct lua_key *key = key_of(sim, name->main, LUA_HASH);

	view->there = key != NULL;
	view->capacity = key ? field_of(key, "capacity") : 0;
	view->used = key ? field_of(key, "used") : 0;
	view->hold_count = 0;
	for (size_t i = 0; key && i < key->count; i++)
		add_hold(view, &key->items[i]);
	key = key_of(sim, name->holds, LUA_ZSET);
	for (size_t i = 0; key && i < key->count; i++)
		add_end(view, &key->items[i]);
}

static void look_at_latch(struct sim *sim, const struct sim_name *name, struct sim_view *view)
{
	const struct lua_key *key = key_of(sim, name->main, LUA_HASH);

	view->there = key != NULL;
	view->generation = key ? (uint64_t)field_of(key, "gen") : 0;
	view->count = key ? field_of(key, "count") : 0;
	view->initial = key ? field_of(key, "initial") : 0;
	view->end_us = key ? end_of(key) : INT64_MAX;
	if (view->end_us != INT64_MAX)
		view->end_us += 1000; /* a key exists through the millisecond of its expiry */
}

void sim_look(struct sim *sim, struct sim_name *name, struct sim_view *view)
{
	if (name->kind == LK_KIND_LATCH) {
		look_at_latch(sim, name, view);
		return;
	}
	if (name->kind == LK_KIND_LOCK)
		look_at_lock(sim, name, view);
	else
		look_at_permits(sim, name, view);
	look_at_queue(sim, name, view);
}
