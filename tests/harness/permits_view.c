/* SPDX-License-Identifier: MIT
 * A semaphore of the virtual world, read from the store's keys, and changed from outside. */
#include "permits_world.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 32768

const char *permits_key(const char *name, const char *suffix)
{
	static char keys[4][64]; /* the sequence number of the next call */
	static unsigned next;
	char *key = keys[next++ % 4];

	snprintf(key, sizeof(keys[0]), "lk:{%s}%s", name, suffix);
	return key;
}

/* ---- From outside ------------------------------------------------------------------------- */

/* Run a script of the semaphore with at most four other arguments, NULL at the end. */
static const char *run(struct permits_world *world, const struct lk__script *script,
                       const char *name, const char *const *args)
{
	const char *argv[16] = {"EVAL",
	                        script->text,
	                        "4",
	                        permits_key(name, ""),
	                        permits_key(name, ":q"),
	                        "lk:fence",
	                        permits_key(name, ":h")};
	int argc = 7;

	while (*args)
		argv[argc++] = *args++;
	return lua_store_ask(world->store, argc, argv, NULL);
}

/* Serve the head of the queue, again as long as the reply asks for more. */
static void serve(struct permits_world *world, const char *name, const char *ticket,
                  const char *tell)
{
	const char *args[] = {ticket, "0", "lk:c:0:", tell, "21000", NULL};
	const char *answer;

	do {
		answer = run(world, &lk__script_semaphore_leave, name, args);
		args[0] = "";
	} while (!strncmp(answer, "left\n0\n1\n", 9) || !strncmp(answer, "left\n1\n1\n", 9));
}

const char *permits_set(struct permits_world *world, const char *name, const char *how,
                        int64_t capacity)
{
	char text[24], ttl[24];
	const char *args[] = {how, text, ttl, "lk:c:0:", "21000", NULL};
	const char *answer, *last;
	static char copy[200];

	snprintf(text, sizeof(text), "%lld", (long long)capacity);
	snprintf(ttl, sizeof(ttl), "%d", PERMITS_TTL_MS);
	answer = run(world, &lk__script_semaphore_set, name, args);
	snprintf(copy, sizeof(copy), "%s", answer);
	last = strrchr(copy, '\n');
	if (!strncmp(copy, "set\n", 4) && last && last[1] == '1')
		serve(world, name, "", "0");
	return copy;
}

void permits_resize(struct permits_world *world, const char *name, int64_t capacity)
{
	permits_set(world, name, "resize", capacity);
}

void permits_break(struct permits_world *world, const char *name, const char *ticket)
{
	serve(world, name, ticket, "1");
}

/* ---- The state in the store ------------------------------------------------------------------ */

/* 1:<client>:<nonce>:<lease>:<mode>:<permits> */
static bool parse_ticket(const char *text, struct permits_ticket *ticket)
{
	char client[LK__CLIENT_ID_SIZE], mode;
	long long lease_ms;
	unsigned permits;

	memset(ticket, 0, sizeof(*ticket));
	if (sscanf(text, "1:%22[^:]:%11[^:]:%lld:%c:%u", client, ticket->nonce, &lease_ms, &mode,
	           &permits) != 5)
		return false;
	snprintf(ticket->text, sizeof(ticket->text), "%s", text);
	ticket->client = client[0] - 'a';
	ticket->lease_ms = lease_ms;
	ticket->fixed = mode != 'r';
	ticket->final = mode == 'n';
	ticket->permits = permits;
	return true;
}

/* The next two lines of a reply; false at its end. */
static bool next_pair(char **at, char **name, char **value)
{
	*name = strsep(at, "\n");
	*value = *at ? strsep(at, "\n") : NULL;
	return *name && **name && *value;
}

static void add_hold(struct permits_view *view, const char *name, const char *value)
{
	struct permits_ticket *hold = &view->holds[view->hold_count];
	unsigned long long fence;

	if (view->hold_count == PERMITS_VIEW_MAX || !parse_ticket(name, hold))
		return;
	if (sscanf(value, "%u %llu", &hold->held, &fence) != 2)
		return;
	hold->fence = fence;
	hold->end_us = -1;
	view->hold_count++;
}

/* An expiry without a hold reads as a hold of no permits and fence 0: the keys disagree. */
static void add_end(struct permits_view *view, const char *name, const char *value)
{
	for (int i = 0; i < view->hold_count; i++) {
		if (!strcmp(view->holds[i].text, name)) {
			view->holds[i].end_us = strtoll(value, NULL, 10);
			return;
		}
	}
	if (view->hold_count < PERMITS_VIEW_MAX &&
	    parse_ticket(name, &view->holds[view->hold_count]))
		view->holds[view->hold_count++].end_us = strtoll(value, NULL, 10);
}

static void copy_answer(char *copy, const char *answer)
{
	snprintf(copy, TEXT_MAX, "%s", answer);
}

void permits_look(struct permits_world *world, const char *name, struct permits_view *view)
{
	static char text[TEXT_MAX];
	char *at = text, *field, *value;

	view->there = false;
	view->capacity = view->used = 0;
	view->hold_count = view->queued = 0;
	copy_answer(text, lua_store_text(world->store, "HGETALL", permits_key(name, ""), NULL));
	while (next_pair(&at, &field, &value)) {
		view->there = true;
		if (!strcmp(field, "capacity"))
			view->capacity = strtoll(value, NULL, 10);
		else if (!strcmp(field, "used"))
			view->used = strtoll(value, NULL, 10);
		else
			add_hold(view, field, value);
	}
	copy_answer(text, lua_store_text(world->store, "ZRANGE", permits_key(name, ":h"), "0", "-1",
	                                 "WITHSCORES", NULL));
	for (at = text; next_pair(&at, &field, &value);)
		add_end(view, field, value);
	copy_answer(text, lua_store_text(world->store, "ZRANGE", permits_key(name, ":q"), "0", "-1",
	                                 "WITHSCORES", NULL));
	for (at = text; next_pair(&at, &field, &value);) {
		struct permits_ticket *ticket = &view->queue[view->queued];
		view->queued += view->queued < PERMITS_VIEW_MAX && parse_ticket(field, ticket);
	}
}
