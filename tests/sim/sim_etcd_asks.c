/* SPDX-License-Identifier: MIT
 * Clients of etcd that set, reset and remove latches and resize semaphores; and, at the end of a
 * run, an operator who opens all latches. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define TXN_MAX 8192

/* ---- Clients ------------------------------------------------------------------------------ */

void sim_etcd_ask(struct sim_caller *caller, enum lk__request_kind kind,
                  const struct lk__details *details)
{
	struct sim_client *client = caller->client;
	const struct sim_name *name = &client->sim->names[caller->name];

	caller->query = lk__query_new(kind, name->kind, name->text, strlen(name->text));
	if (!caller->query)
		abort();
	caller->query->details = *details;
	sim_caller_begin(caller, SIM_ASKING);
	sim_trace(client->sim, client, "thread %d asks %d of %s, %lld", caller->index, (int)kind,
	          name->text,
	          (long long)(name->kind == LK_KIND_LATCH ? details->count : details->capacity));
	lk__core_query(&client->core, caller->queue->name->session, sim_local(client),
	               &caller->waiter, &caller->query, 1);
}

void sim_etcd_asked(struct sim_caller *caller, lk_err err)
{
	const struct sim_client *client = caller->client;
	const struct promise_causes causes = {
		.success = true,
		.silence = true,
		.unsent = true,
		.refusal = !sim_is_fine(client, client->sim->now_ns - caller->began_ns),
		.close = client->closed,
	};

	sim_keep_result(caller, &causes, err);
	lk__query_free(&caller->client->core, caller->query);
	caller->query = NULL;
	if (client->sim->names[caller->name].kind == LK_KIND_LATCH) {
		sim_latch_answered(caller, true);
		return;
	}
	caller->doing = SIM_IDLE;
	sim_caller_plan(caller, client->sim->plan->idle_ns);
}

void sim_etcd_command(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	struct sim_client *client = &sim->clients[fault->target];
	struct sim_caller *caller = client->callers;
	struct lk__details details = {
		.must_exist = true,
		.capacity = 1 + (int64_t)sim_draw(random, 2 * sim->plan->capacity),
		.ttl_ms = SIM_TTL_MS};
	uint64_t chance = sim_draw(random, 1u << 20);
	int pool = SIM_LOCKS + (int)sim_draw(random, 2), gate = SIM_RATE + 1 + (int)(chance & 1);

	while (caller < client->callers + sim->plan->threads && caller->doing != SIM_IDLE)
		caller++;
	if (!client->alive || client->closed || caller == client->callers + sim->plan->threads)
		return;
	sim->tally.faults[fault->kind]++;
	caller->name = fault->kind == SIM_RESIZE ? pool : gate;
	caller->queue = client->queues[caller->name][0];
	caller->owner = 0;
	caller->depth = 0;
	if (fault->kind == SIM_RESET)
		details = sim_latch_any_set(chance / 12);
	sim_etcd_ask(caller,
	             fault->kind == SIM_RESIZE ? LK__SIZE
	             : chance / 2 % 6          ? LK__SET
	                                       : LK__REMOVE,
	             &details);
	client->dirty = true;
	sim_client_settle(client);
}

/* ---- The operator ------------------------------------------------------------------------- */

/* A latch that is complete keeps its generation: its key only says so. */
static void open_latch(struct sim *sim, const struct sim_name *name)
{
	const struct sim_etcd_latch *latch = &sim->etcd.latches[name->index];
	const struct lk__etcd_queue queue = {.kind = LK__ETCD_LATCH,
	                                     .prefix = "lk",
	                                     .client = "c99_00001_aaaaaaaaaaaa",
	                                     .name = name->text,
	                                     .name_len = strlen(name->text)};
	struct lk__etcd_latch_value value = {.is_open = true};
	struct lk__etcd_latch_recipe recipe;
	char bytes[TXN_MAX];
	struct lk__pb_writer writer;

	if (latch->is_there && !name->view.count)
		value.generation = latch->value.generation;
	lk__etcd_latch_put(&recipe, &queue, &value, 0, latch->is_there ? latch->mod : 0,
	                   em_revision(sim->etcd.model));
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_txn(&writer, &recipe.txn);
	if (writer.is_full)
		abort();
	sim_trace(sim, NULL, "an operator opens %s", name->text);
	sim_etcd_operate(sim, "/etcdserverpb.KV/Txn", (struct lk__bytes){writer.data, writer.len});
}

void sim_etcd_open_all(struct sim *sim)
{
	if (!sim->ending || sim->now_ns < sim->etcd.opened_all_ns + SIM_S)
		return;
	sim->etcd.opened_all_ns = sim->now_ns;
	for (int i = SIM_RATE + 1; i < SIM_NAMES; i++)
		if (!sim->etcd.latches[i].is_there || !sim->etcd.latches[i].value.is_open)
			open_latch(sim, &sim->names[i]);
}
