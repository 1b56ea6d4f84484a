/* SPDX-License-Identifier: MIT
 * Latches in virtual time: calls, the store's key, and changes from outside. */
#include "virtual_latch.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

struct lk__wait_queue *virt_open_latch(struct virt_client *client, const char *name)
{
	struct lk__wait_queue *queue;
	char topic[LK__TOPIC_MAX];

	queue = lk__wait_queue_open(&client->core, &client->session,
	                            lk__name_new(LK_KIND_LATCH, name, strlen(name)),
	                            lk__wait_queue_new(10000, false));
	lk__space_topic(&client->space, name, strlen(name), topic);
	lk__latch_open(queue->name, lk__latch_new(topic));
	return queue;
}

struct lk__op *virt_await(struct virt_client *client, bool only_try, bool absent_is_open)
{
	struct lk__op *waiter = virt_waiter(client, client->queue);

	waiter->only_try = only_try;
	waiter->absent_is_open = absent_is_open;
	lk__core_await(&client->core, virt_now(client), waiter);
	return waiter;
}

struct lk__op *virt_down(struct virt_client *client, uint32_t n, const char *name)
{
	struct lk__op *waiter = virt_waiter(client, client->queue);

	waiter->spare_step = calloc(1, sizeof(*waiter->spare_step));
	waiter->spare_step->n = n;
	if (name) {
		waiter->spare_step->len = (uint16_t)strlen(name);
		memcpy(waiter->spare_step->name, name, strlen(name));
	}
	lk__core_step(&client->core, virt_now(client), waiter);
	return waiter;
}

void virt_set_latch(struct virt_client *client, int64_t count, int64_t open_ttl_ms,
                    int64_t counting_ttl_ms)
{
	const struct lk__details details = {
		.anew = true,
		.count = count,
		.open_ttl_ms = open_ttl_ms,
		.counting_ttl_ms = counting_ttl_ms,
	};

	if (query_run(client->virt->store, LK__SET, LK_KIND_LATCH, client->queue->name->bytes,
	              &details)
	            .kind != LK__MADE)
		abort();
}

void virt_remove_latch(struct virt_client *client)
{
	if (query_run(client->virt->store, LK__REMOVE, LK_KIND_LATCH, client->queue->name->bytes,
	              &(struct lk__details){0})
	            .kind != LK__DONE)
		abort();
}

int64_t virt_latch_count(const struct virt_client *client)
{
	const struct lk__name *name = client->queue->name;
	struct lk__keys keys;
	const char *text;

	lk__space_keys(&client->space, name->bytes, name->len, &keys);
	text = lua_store_text(client->virt->store, "HGET", keys.main, "count", NULL);
	return *text ? strtoll(text, NULL, 10) : -1;
}
