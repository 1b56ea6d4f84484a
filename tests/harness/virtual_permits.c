/* SPDX-License-Identifier: MIT
 * Calls on a semaphore in virtual time: see virtual_etcd.h. */
#include "test.h"
#include "virtual_etcd.h"

#include <stdlib.h>
#include <string.h>

struct lk__wait_queue *ve_open_permits(int client, uint32_t capacity, int64_t lease_ms, bool fixed)
{
	struct lk__core *core = &ve.client[client].core;
	struct lk__wait_queue *queue = lk__wait_queue_open(
		core, core->links[0], lk__name_new(LK_KIND_SEMAPHORE, "name", 4),
		lk__wait_queue_new(lease_ms, fixed));

	queue->capacity = capacity;
	queue->ttl_ms = LK_TTL_DEFAULT_MS;
	return queue;
}

struct lk__op *ve_acquire_permits(int client, struct lk__wait_queue *queue, uint32_t permits,
                                  bool tries)
{
	struct lk__op *op = ve_new_op(client, queue);

	op->only_try = tries;
	op->permits = permits;
	op->spare_ticket = malloc(sizeof(*op->spare_ticket));
	op->spare_hold = malloc(sizeof(*op->spare_hold));
	op->spare_queue = malloc(sizeof(*op->spare_queue));
	lk__core_acquire_permits(&ve.client[client].core, ve.now_ns, op);
	return op;
}

struct lk__op *ve_release_permits(int client, struct lk__wait_queue *queue, uint64_t hold,
                                  uint32_t permits)
{
	struct lk__op *op = ve_new_op(client, queue);

	op->owner = hold;
	op->permits = permits;
	lk__core_release_permits(&ve.client[client].core, ve.now_ns, op);
	return op;
}

struct lk__op *ve_extend_permits(int client, struct lk__wait_queue *queue, uint64_t hold,
                                 int64_t lease_ms)
{
	struct lk__op *op = ve_new_op(client, queue);

	op->owner = hold;
	op->lease_ms = lease_ms;
	lk__core_extend(&ve.client[client].core, ve.now_ns, op);
	return op;
}

int64_t ve_permits(int client)
{
	const struct lk__hold *hold = ve.client[client].core.all_holds;
	int64_t sum = 0;

	for (; hold; hold = hold->next)
		if (hold->name->kind == LK_KIND_SEMAPHORE && lk__hold_left_ns(hold, ve.now_ns))
			sum += hold->count;
	return sum;
}

static void count_key(void *arg, const struct lk__etcd_kv *kv)
{
	static const char prefix[] = "lk/S/name/";

	if (kv->key.len > sizeof(prefix) - 1 &&
	    memcmp(kv->key.data, prefix, sizeof(prefix) - 1) == 0)
		++*(int *)arg;
}

int ve_permit_tickets(void)
{
	int count = 0;

	em_each_key(ve.model, count_key, &count);
	return count;
}
