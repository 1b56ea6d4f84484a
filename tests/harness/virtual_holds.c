/* SPDX-License-Identifier: MIT
 * What locks and semaphores have in common in virtual time: see virtual_holds.h. */
#include "virtual_holds.h"

#include <stdio.h>
#include <string.h>

struct lk__wait_queue *virt_open(struct virt_client *client, const struct virt_noun *noun,
                                 const char *name, int64_t lease_ms, bool fixed)
{
	struct lk__wait_queue *queue = lk__wait_queue_new(lease_ms, fixed);

	queue->ttl_ms = VIRT_TTL_MS;
	return lk__wait_queue_open(&client->core, &client->session,
	                           lk__name_new(noun->kind, name, strlen(name)), queue);
}

const char *virt_key(const char *name, const char *suffix)
{
	static char keys[4][64]; /* the sequence number of the next call */
	static unsigned next;
	char *key = keys[next++ % 4];

	snprintf(key, sizeof(keys[0]), "lk:{%s}%s", name, suffix);
	return key;
}

/* ---- The keys ----------------------------------------------------------------------------- */

bool virt_parse_ticket(const char *text, struct virt_ticket *ticket)
{
	char client[LK__CLIENT_ID_SIZE], mode;
	long long lease_ms;
	unsigned permits = 0;

	memset(ticket, 0, sizeof(*ticket));
	if (sscanf(text, "1:%22[^:]:%11[^:]:%lld:%c:%u", client, ticket->nonce, &lease_ms, &mode,
	           &permits) < 4)
		return false;
	snprintf(ticket->text, sizeof(ticket->text), "%.*s", (int)strcspn(text, " "), text);
	ticket->client = client[0] - 'a';
	ticket->lease_ms = lease_ms;
	ticket->fixed = mode != 'r';
	ticket->final = mode == 'n';
	ticket->permits = permits;
	return true;
}

bool virt_next_pair(char **at, char **name, char **value)
{
	*name = strsep(at, "\n");
	*value = *at ? strsep(at, "\n") : NULL;
	return *name && **name && *value;
}

char *virt_read(struct virt *virt, const char *command, const char *key, const char *from,
                const char *to, const char *option)
{
	static char text[VIRT_TEXT_MAX];

	snprintf(text, sizeof(text), "%s",
	         lua_store_text(virt->store, command, key, from, to, option, NULL));
	return text;
}

void virt_look(struct virt *virt, const struct virt_noun *noun, const char *name,
               struct virt_view *view)
{
	char *at, *ticket, *arrival;

	view->there = false;
	view->capacity = view->used = 0;
	view->hold_count = view->queued = 0;
	noun->read(virt, name, view);
	at = virt_read(virt, "ZRANGE", virt_key(name, ":q"), "0", "-1", "WITHSCORES");
	while (virt_next_pair(&at, &ticket, &arrival))
		view->queued += view->queued < VIRT_VIEW_MAX &&
		                virt_parse_ticket(ticket, &view->queue[view->queued]);
}
