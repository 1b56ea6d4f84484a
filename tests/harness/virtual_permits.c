/* SPDX-License-Identifier: MIT
 * Semaphores in virtual time: calls, the store's keys, and changes from outside. */
#include "virtual.h"

#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Callers ------------------------------------------------------------------------------ */

struct lk__wait_queue *virt_open_semaphore(struct virt_client *client, const char *name,
                                           uint32_t capacity, int64_t lease_ms, bool fixed)
{
	struct lk__wait_queue *queue = lk__wait_queue_new(lease_ms, fixed);

	queue->capacity = capacity;
	queue->ttl_ms = PERMITS_TTL_MS;
	return lk__wait_queue_open(&client->core, &client->session,
	                           lk__name_new(LK_KIND_SEMAPHORE, name, strlen(name)), queue);
}

struct lk__op *virt_permits_waiter(struct virt_client *client, struct lk__wait_queue *queue,
                                   uint32_t permits)
{
	struct lk__op *waiter = virt_waiter(client, queue);

	waiter->permits = permits;
	return waiter;
}

static struct lk__op *acquire(struct virt_client *client, struct lk__op *waiter)
{
	lk__core_acquire_permits(&client->core, virt_now(client), waiter);
	return waiter;
}

struct lk__op *virt_acquire_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                    uint32_t permits)
{
	return acquire(client, virt_permits_waiter(client, queue, permits));
}

struct lk__op *virt_try_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                uint32_t permits)
{
	struct lk__op *waiter = virt_permits_waiter(client, queue, permits);

	waiter->only_try = true;
	return acquire(client, waiter);
}

struct lk__op *virt_forget_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                   uint32_t permits)
{
	struct lk__op *waiter = virt_permits_waiter(client, queue, permits);

	waiter->forget = true;
	return acquire(client, waiter);
}

struct lk__op *virt_release_some(struct virt_client *client, struct lk__wait_queue *queue,
                                 uint64_t hold, uint32_t permits)
{
	struct lk__op *waiter = virt_permits_waiter(client, queue, permits);

	waiter->owner = hold;
	lk__core_release_permits(&client->core, virt_now(client), waiter);
	return waiter;
}

struct lk__op *virt_release_permits(struct virt_client *client, struct lk__wait_queue *queue,
                                    uint64_t hold)
{
	return virt_release_some(client, queue, hold, 0);
}

struct lk__op *virt_extend_hold(struct virt_client *client, struct lk__wait_queue *queue,
                                uint64_t hold, int64_t lease_ms)
{
	struct lk__op *waiter = virt_permits_waiter(client, queue, 0);

	waiter->owner = hold;
	waiter->lease_ms = lease_ms;
	lk__core_extend(&client->core, virt_now(client), waiter);
	return waiter;
}

lk_state virt_hold_state(const struct virt_client *client, const struct lk__wait_queue *queue,
                         uint64_t fence)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, fence);

	return hold ? lk__hold_state(hold, virt_now(client)) : LK_STATE_NONE;
}

uint32_t virt_hold_permits(const struct lk__wait_queue *queue, uint64_t fence)
{
	const struct lk__hold *hold = lk__core_hold(queue->name, fence);

	return hold ? hold->count : 0;
}

#define TEXT_MAX 32768

const char *virt_key(const char *name, const char *suffix)
{
	static char keys[4][64]; /* the sequence number of the next call */
	static unsigned next;
	char *key = keys[next++ % 4];

	snprintf(key, sizeof(keys[0]), "lk:{%s}%s", name, suffix);
	return key;
}

/* ---- From outside ------------------------------------------------------------------------- */

/* Run a script of the semaphore with at most four other arguments, NULL at the end. */
static const char *run(struct virt *virt, const struct lk__script *script, const char *name,
                       const char *const *args)
{
	const char *argv[16] = {
		"EVAL",     script->text,        "4", virt_key(name, ""), virt_key(name, ":q"),
		"lk:fence", virt_key(name, ":h")};
	int argc = 7;

	while (*args)
		argv[argc++] = *args++;
	return lua_store_ask(virt->store, argc, argv, NULL);
}

/* Serve the head of the queue, again as long as the reply asks for more. */
static void serve(struct virt *virt, const char *name, const char *ticket, const char *tell)
{
	const char *args[] = {ticket, "0", "lk:c:0:", tell, "21000", NULL};
	const char *answer;

	do {
		answer = run(virt, &lk__script_semaphore_leave, name, args);
		args[0] = "";
	} while (!strncmp(answer, "left\n0\n1\n", 9) || !strncmp(answer, "left\n1\n1\n", 9));
}

const char *permits_set(struct virt *virt, const char *name, const char *how, int64_t capacity)
{
	char text[24], ttl[24];
	const char *args[] = {how, text, ttl, "lk:c:0:", "21000", NULL};
	const char *answer, *last;
	static char copy[200];

	snprintf(text, sizeof(text), "%lld", (long long)capacity);
	snprintf(ttl, sizeof(ttl), "%d", PERMITS_TTL_MS);
	answer = run(virt, &lk__script_semaphore_set, name, args);
	snprintf(copy, sizeof(copy), "%s", answer);
	last = strrchr(copy, '\n');
	if (!strncmp(copy, "set\n", 4) && last && last[1] == '1')
		serve(virt, name, "", "0");
	return copy;
}

void permits_resize(struct virt *virt, const char *name, int64_t capacity)
{
	permits_set(virt, name, "resize", capacity);
}

void permits_break(struct virt *virt, const char *name, const char *ticket)
{
	serve(virt, name, ticket, "1");
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

void permits_look(struct virt *virt, const char *name, struct permits_view *view)
{
	static char text[TEXT_MAX];
	char *at = text, *field, *value;

	view->there = false;
	view->capacity = view->used = 0;
	view->hold_count = view->queued = 0;
	copy_answer(text, lua_store_text(virt->store, "HGETALL", virt_key(name, ""), NULL));
	while (next_pair(&at, &field, &value)) {
		view->there = true;
		if (!strcmp(field, "capacity"))
			view->capacity = strtoll(value, NULL, 10);
		else if (!strcmp(field, "used"))
			view->used = strtoll(value, NULL, 10);
		else
			add_hold(view, field, value);
	}
	copy_answer(text, lua_store_text(virt->store, "ZRANGE", virt_key(name, ":h"), "0", "-1",
	                                 "WITHSCORES", NULL));
	for (at = text; next_pair(&at, &field, &value);)
		add_end(view, field, value);
	copy_answer(text, lua_store_text(virt->store, "ZRANGE", virt_key(name, ":q"), "0", "-1",
	                                 "WITHSCORES", NULL));
	for (at = text; next_pair(&at, &field, &value);) {
		struct permits_ticket *ticket = &view->queue[view->queued];
		view->queued += view->queued < PERMITS_VIEW_MAX && parse_ticket(field, ticket);
	}
}

bool virt_nothing_left(struct virt *virt, const char *name)
{
	struct permits_view view;

	for (int i = 0; i < virt->client_count; i++)
		if (virt->clients[i].core.all_tickets || virt->clients[i].core.all_holds)
			return false;
	permits_look(virt, name, &view);
	return !view.used && !view.hold_count && !view.queued;
}
