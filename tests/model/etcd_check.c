/* SPDX-License-Identifier: MIT
 * The promises of a lock on etcd, in every state and at its end. */
#include "etcd.h"

#include <stdio.h>
#include <string.h>

#define SERVED_MS 30000 /* after the last fault: two leases, two elections, a look */
#define EXPIRED_MS 40000
#define STEP_MS 500

struct queue {
	const struct model_etcd *etcd;
	int64_t first;
	char key[100];
	int count;
};

static void look(void *arg, const struct lk__etcd_kv *kv)
{
	struct queue *queue = arg;

	if (kv->key.len < 5 || memcmp(kv->key.data, "lk/L/", 5) != 0)
		return;
	queue->count++;
	if (queue->first && queue->first < kv->create_revision)
		return;
	queue->first = kv->create_revision;
	snprintf(queue->key, sizeof(queue->key), "%.*s", (int)kv->key.len,
	         (const char *)kv->key.data);
}

static struct queue queue_of(const struct model_etcd *etcd)
{
	struct queue queue = {.etcd = etcd};

	em_each_key(etcd->model, look, &queue);
	return queue;
}

/* The hold's ticket is the first of the queue. */
static const char *backed(const struct queue *queue, const struct etcd_client *client,
                          const struct lk__hold *hold)
{
	char key[100];

	snprintf(key, sizeof(key), "lk/L/%s/%s%s", MODEL_NAME, client->id, hold->ticket->nonce);
	return strcmp(key, queue->key) != 0 ? promise_validity(false, 0, 0) : NULL;
}

static const char *check_client(const struct model_etcd *etcd, struct etcd_client *client,
                                const struct queue *queue)
{
	int64_t now_ns = etcd->world->now_ns;
	const struct lk__hold *hold;
	const char *wrong;

	if ((wrong = promise_broken(PROMISE_PROGRESS, promise_progress(&client->core))) ||
	    (wrong = promise_broken(PROMISE_STATE, promise_state(&client->core))))
		return wrong;
	for (hold = client->core.all_holds; hold; hold = hold->next) {
		if ((wrong = promise_broken(PROMISE_LOSS,
		                            promise_loss(&client->core, hold, &client->told))))
			return wrong;
		if (hold->lost)
			continue;
		if ((wrong = promise_broken(PROMISE_REVIVAL,
		                            promise_revival(hold, now_ns, &client->lapsed))))
			return wrong;
		if (lk__hold_left_ns(hold, now_ns) && !etcd_is_broken(etcd, hold) &&
		    (wrong = promise_broken(PROMISE_VALIDITY, backed(queue, client, hold))))
			return wrong;
	}
	return NULL;
}

const char *etcd_wrong(struct model_world *world)
{
	struct model_etcd *etcd = world->etcd;
	struct queue queue = queue_of(etcd);
	const char *wrong = world->wrong;
	int64_t used = 0;

	for (int i = 0; i < ETCD_CLIENTS && !wrong; i++) {
		struct etcd_client *client = &etcd->clients[i];
		const struct lk__hold *hold = etcd_hold(client);
		used += hold && !hold->lost && lk__hold_left_ns(hold, world->now_ns) &&
		        !etcd_is_broken(etcd, hold);
		if (client->alive)
			wrong = check_client(etcd, client, &queue);
	}
	return wrong ? wrong : promise_broken(PROMISE_EXCLUSION, promise_exclusion(used));
}

/* ---- The end ------------------------------------------------------------------------------ */

bool etcd_quiet(const struct model_world *world)
{
	for (int i = 0; i < ETCD_CLIENTS; i++) {
		const struct etcd_client *client = &world->etcd->clients[i];
		if (client->alive && (client->in.count || client->end.out.count))
			return false;
	}
	return true;
}

static bool is_at_rest(const struct model_etcd *etcd)
{
	for (int i = 0; i < ETCD_CLIENTS; i++)
		if (etcd->clients[i].alive &&
		    (etcd->clients[i].waiter || etcd_hold(&etcd->clients[i])))
			return false;
	return true;
}

/* Let time pass, and holders release. */
static const char *run(struct model_etcd *etcd)
{
	for (int i = 0; i < ETCD_CLIENTS; i++) {
		struct etcd_client *client = &etcd->clients[i];
		if (client->alive && !client->waiter && etcd_hold(client))
			etcd_call_of(etcd, i, DO_RELEASE);
	}
	etcd_deliver(etcd);
	etcd_pass(etcd, STEP_MS * ETCD_MS);
	etcd_mend(etcd);
	return etcd_wrong(etcd->world);
}

static const char *left_over(const struct model_etcd *etcd)
{
	struct queue queue = queue_of(etcd);
	const char *wrong;

	if (queue.count)
		return "a ticket is left in the store";
	for (int i = 0; i < ETCD_CLIENTS; i++) {
		const struct etcd_client *client = &etcd->clients[i];
		if (!client->alive)
			continue;
		wrong = promise_rest(&client->core);
		if (!wrong && (client->session.tickets.count || client->session.chores ||
		               client->session.jobs))
			wrong = "a ticket or a job is left in a session";
		if (wrong)
			return wrong;
	}
	return NULL;
}

const char *etcd_finish(struct model_world *world, int64_t *longest)
{
	struct model_etcd *etcd = world->etcd;
	int64_t begun_ns = world->now_ns, due_ns = begun_ns + SERVED_MS * ETCD_MS;
	const char *wrong = NULL;

	world->free_run = true;
	etcd_mend(etcd);
	while (!is_at_rest(etcd)) {
		if ((wrong = run(etcd)) ||
		    (wrong = promise_broken(PROMISE_WAKE_UP,
		                            promise_wake_up(due_ns, world->now_ns))))
			return wrong;
	}
	if ((world->now_ns - begun_ns) / ETCD_MS > *longest)
		*longest = (world->now_ns - begun_ns) / ETCD_MS;
	for (int64_t ms = 0; ms < EXPIRED_MS; ms += STEP_MS)
		if ((wrong = run(etcd)))
			return wrong;
	return promise_broken(PROMISE_REST, left_over(etcd));
}

void etcd_print(const struct model_world *world)
{
	const struct model_etcd *etcd = world->etcd;
	struct queue queue = queue_of(etcd);

	printf("         %.1f s, leader %d, %d tickets, first %s",
	       (double)world->now_ns / 1e9 - 999, em_leader(etcd->model), queue.count, queue.key);
	for (int i = 0; i < ETCD_CLIENTS; i++) {
		const struct etcd_client *client = &etcd->clients[i];
		const struct lk__hold *hold = etcd_hold(client);
		printf("; %c:%s%s%s out %d in %d", 'A' + i, client->alive ? "" : " dead",
		       client->waiter ? " waits" : "",
		       hold ? lk__hold_left_ns(hold, world->now_ns) ? " holds" : " has lost" : "",
		       client->end.out.count, client->in.count);
	}
	printf("\n");
}
