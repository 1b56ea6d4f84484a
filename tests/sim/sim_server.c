/* SPDX-License-Identifier: MIT
 * The server: its clock, its memory, its outages, its refusals. */
#include "sim.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

/* The store's keys, and the record of each name at that time. */
struct sim_image {
	struct lua_store_image *keys;
	struct lua_store_image *names[SIM_NAMES]; /* in a Cluster, each of its own store */
	struct sim_count counts[SIM_NAMES];
};

int64_t sim_server_us(const struct sim *sim)
{
	return SIM_EPOCH_US + sim->store_offset_us + sim->now_ns / 1000;
}

/* ---- Life --------------------------------------------------------------------------------- */

void sim_name_init(const struct sim *sim, struct sim_name *name, int index)
{
	static const lk_kind kinds[SIM_NAMES] = {
		LK_KIND_LOCK,      LK_KIND_LOCK,      LK_KIND_LOCK,  LK_KIND_SEMAPHORE,
		LK_KIND_SEMAPHORE, LK_KIND_SEMAPHORE, LK_KIND_LATCH, LK_KIND_LATCH};
	static const char texts[SIM_NAMES][8] = {"lock0", "lock1", "lock2", "pool3",
	                                         "pool4", "rate5", "gate6", "gate7"};

	name->index = index;
	name->kind = kinds[index];
	name->rate = index == 5;
	name->made_era = -1;
	name->idle_since_ns = name->busy_since_ns = name->absent_ns = sim->now_ns;
	name->opened_ns = name->open_ns = name->removed_ns = name->forced_ns = -1;
	memcpy(name->text, texts[index], sizeof(texts[index]));
	snprintf(name->main, sizeof(name->main), "lk:{%.7s}", texts[index]);
	snprintf(name->queue, sizeof(name->queue), "lk:{%.7s}:q", texts[index]);
	snprintf(name->holds, sizeof(name->holds), "lk:{%.7s}:h", texts[index]);
	snprintf(name->memory, sizeof(name->memory), "lk:{%.7s}:s", texts[index]);
	snprintf(name->topic, sizeof(name->topic), sim->plan->etcd ? "lk/D%.7s" : "lk:l:0:{%.7s}",
	         texts[index]);
}

struct lua_store *sim_server_store(struct sim *sim)
{
	const struct sim_bug *bug = sim->plan->bug;
	struct lua_store *store = lua_store_new(sim_network_publish, sim);

	if (bug)
		lua_store_alter(store, bug->script, bug->from, bug->to);
	return store;
}

void sim_server_init(struct sim *sim)
{
	sim->store = sim_server_store(sim);
	query_grace(sim->plan->grace_ms);
	for (int i = 0; i < SIM_NAMES; i++)
		sim_name_init(sim, &sim->names[i], i);
	sim_server_load(sim);
	sim->runs = sim->replids = 1000;
	sim->standby = (struct lua_store_process){.run = 1, .replid = 1};
	*lua_store_process(sim->store) = (struct lua_store_process){.run = 2, .replid = 2};
	sim->since_us = INT64_MAX;
	if (sim->plan->sentinels)
		sim_service_init(sim);
	if (sim->plan->cluster)
		sim_cluster_init(sim);
	if (sim->plan->quorum)
		sim_quorum_init(sim);
	if (sim->plan->etcd)
		sim_etcd_init(sim);
}

static void free_image(struct sim *sim, int image)
{
	if (!sim->images[image])
		return;
	if (sim->images[image]->keys)
		lua_store_image_free(sim->images[image]->keys);
	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->images[image]->names[i])
			lua_store_image_free(sim->images[image]->names[i]);
	free(sim->images[image]);
	sim->images[image] = NULL;
}

void sim_server_fini(struct sim *sim)
{
	for (int i = 0; i < SIM_FAULTS + SIM_PLACES; i++)
		free_image(sim, i);
	sim_service_fini(sim);
	if (sim->plan->etcd)
		sim_etcd_fini(sim);
	if (sim->plan->cluster)
		sim_cluster_fini(sim);
	else if (sim->plan->quorum)
		sim_quorum_fini(sim);
	else
		lua_store_free(sim->store);
}

/* A client that connects loads the scripts. */
void sim_server_load(struct sim *sim)
{
	if (sim->scripts_loaded || sim->plan->quorum)
		return;
	sim->scripts_loaded = true;
	lua_store_load_scripts(sim->store);
}

void sim_server_forget(struct sim *sim)
{
	if (sim->plan->cluster) {
		sim_cluster_load(sim, true);
		return;
	}
	sim->scripts_loaded = false;
	lua_store_text(sim->store, "SCRIPT", "FLUSH", NULL);
}

/* ---- Requests ----------------------------------------------------------------------------- */

/* A full server refuses requests that begin something, and none that end something. */
bool sim_server_refuses(const struct sim *sim, int slot, int kind)
{
	if (sim->now_ns >= sim->sick_until_ns || (sim->sick_to_some && slot % 2))
		return false;
	if (kind == LK__CONFIRM && sim->sick[1] == 'M')
		return false;
	return sim->sick[1] != 'O' || kind == LK__ASK || kind == LK__EPOCH || kind == SIM_QUESTION;
}

static void note_refused(struct sim_client *client, int place)
{
	sim_disturb(client->sim->plan->quorum ? &client->lanes[place].refused_ns
	                                      : &client->disturbed_ns,
	            client->sim->now_ns);
}

void sim_server_run(struct sim *sim, struct sim_call *call)
{
	call->reply.len = 0;
	if (sim->plan->quorum) {
		if (!sim_quorum_is_up(sim, call->place))
			return; /* nothing waits for the reply */
		sim_quorum_select(sim, call->place);
		sim_quorum_load(sim, call->place);
	} else if (!sim->plan->cluster && call->place != sim->service.place) {
		sim_service_run(sim, call);
		return;
	}
	if (sim_server_refuses(sim, call->slot, call->kind)) {
		size_t len = strlen(sim->sick);
		free(call->reply.data);
		call->reply.data = malloc(len);
		if (!call->reply.data)
			abort();
		memcpy(call->reply.data, sim->sick, len);
		call->reply.len = call->reply.cap = len;
		sim->tally.leaves_refused += call->kind == LK__LEAVE;
		note_refused(&sim->clients[call->slot], call->place);
		return;
	}
	if (sim->plan->cluster) {
		sim_cluster_run(sim, call);
		return;
	}
	if (call->name < 0) {
		lua_store_run(sim->store, call->bytes.data, call->bytes.len, &call->reply);
		sim_server_mark(sim);
		return;
	}
	sim->tally.scripts++;
	sim_check_before(sim, call->name);
	lua_store_run(sim->store, call->bytes.data, call->bytes.len, &call->reply);
	sim->service.writes += lua_store_wrote(sim->store);
	sim_check_after(sim, call->name, call);
}

/* ---- Its memory's marker ------------------------------------------------------------------ */

void sim_server_mark(struct sim *sim)
{
	const char *marker, *since;
	int64_t since_us;

	if (sim->plan->cluster) {
		sim_cluster_mark(sim);
		return;
	}
	if (sim->plan->quorum) {
		sim_quorum_mark(sim, sim->quorum.runs_at);
		return;
	}
	marker = lua_store_text(sim->store, "GET", "lk:epoch", NULL);
	since = strrchr(marker, ' ');
	since_us = since ? strtoll(since, NULL, 10) : INT64_MAX;
	if (since_us != sim->since_us)
		sim->marked_ns = sim->now_ns;
	sim->since_us = since_us;
}

bool sim_server_in_grace(const struct sim *sim)
{
	int64_t grace_ms = sim->plan->quorum ? SIM_LONGEST_MS : sim->plan->grace_ms;

	return sim->since_us > sim_server_us(sim) - grace_ms * 1000;
}

/* After its file was read, a server may know the history that it continues. */
void sim_server_begin(struct sim *sim, struct sim_random *random)
{
	struct lua_store_process *process = lua_store_process(sim->store);
	uint64_t replid = process->replid;

	lua_store_restart(sim->store);
	process->run = ++sim->runs;
	process->replid = ++sim->replids;
	process->replid2 = sim_percent(random, 20) ? replid : 0;
}

/* The former server will be the replica, as the same process or as a new one. */
void sim_server_promote(struct sim *sim, struct sim_random *random)
{
	struct lua_store_process *process = lua_store_process(sim->store), old = *process;

	*process = sim->standby;
	process->replid = ++sim->replids;
	process->replid2 = sim_percent(random, 80) ? old.replid : 0; /* it may be forgotten */
	process->was_replica = true;
	if (sim_percent(random, 50))
		old = (struct lua_store_process){.run = ++sim->runs,
		                                 .began_us = sim_server_us(sim)};
	sim->standby = old;
}

/* ---- Ends of its memory ------------------------------------------------------------------- */

/* What the old process had not read is lost with it. */
static void drop_late(struct sim *sim, int place)
{
	struct sim_call **at = &sim->late;

	while (*at) {
		struct sim_call *call = *at;
		if (call->place != place) {
			at = &call->next;
			continue;
		}
		*at = call->next;
		sim_call_free(call);
	}
}

void sim_server_hang_up(struct sim *sim, int place)
{
	drop_late(sim, place);
	for (struct sim_link *link = sim->links; link; link = link->next) {
		struct sim_client *client = link->client;
		if (!link->there || link->place != place)
			continue;
		link->there = false;
		link->topics = 0;
		if (!link->here)
			continue;
		link->reset_ns = sim->now_ns + sim_delay(client);
		sim_disturb(sim_disturbed(client, place), sim->now_ns);
		client->dirty = true;
	}
}

void sim_server_restart(struct sim *sim, int64_t away_ns)
{
	sim_disturb(&sim->disturbed_ns, sim->now_ns + away_ns);
	sim->up_ns = sim->now_ns + away_ns;
	sim->sick_until_ns = 0;
	sim_server_forget(sim);
	sim_server_hang_up(sim, sim->service.place);
}

void sim_server_uncounted(struct sim *sim)
{
	uint64_t counter = strtoull(lua_store_text(sim->store, "GET", "lk:fence", NULL), NULL, 10);

	/* The counter has all that the store issued, or the clock is past it. */
	if (counter >= sim->fence_max || (uint64_t)sim_server_us(sim) > sim->fence_max)
		return;
	for (int i = 0; i < SIM_NAMES; i++) {
		sim->names[i].regime++;
		sim->names[i].fence_max = sim->names[i].store_max = 0;
	}
}

void sim_server_forced(struct sim *sim, int name, bool covered)
{
	if (name < 0)
		sim_server_uncounted(sim);
	sim_server_mark(sim);
	for (int i = 0; i < SIM_NAMES; i++)
		if (name < 0 || name == i)
			sim_check_forced(sim, i, covered);
}

/* Of a quorum, the image is that of the member of its fault. */
void sim_server_save(struct sim *sim, int image)
{
	struct sim_image *saved = calloc(1, sizeof(*saved));

	if (!saved)
		abort();
	free_image(sim, image);
	if (sim->plan->quorum)
		sim_quorum_select(sim, sim_quorum_place(sim, &sim->plan->faults[image]));
	if (!sim->plan->cluster)
		saved->keys = lua_store_save(sim->store);
	for (int i = 0; sim->plan->cluster && i < SIM_NAMES; i++)
		saved->names[i] = lua_store_save(sim->cluster.slots[i].store);
	for (int i = 0; i < SIM_NAMES; i++)
		saved->counts[i] = sim->names[i].count;
	sim->images[image] = saved;
}

void sim_server_move_image(struct sim *sim, int from, int image)
{
	free_image(sim, image);
	sim->images[image] = sim->images[from];
	sim->images[from] = NULL;
}

void sim_server_restore_name(struct sim *sim, int image, int index)
{
	struct sim_name *name = &sim->names[index];
	struct lk__keys keys;
	struct lk__space space;
	uint64_t counter;

	lk__space_init(&space, "lk", 0, "operator_AAAAAAAAAAAAA");
	lk__space_divide(&space);
	lk__space_keys(&space, name->text, strlen(name->text), &keys);
	sim_cluster_select(sim, index);
	lua_store_text(sim->store, "FLUSHALL", NULL);
	if (sim->images[image]) {
		lua_store_load(sim->store, sim->images[image]->names[index]);
		name->count = sim->images[image]->counts[index];
	}
	counter = strtoull(lua_store_text(sim->store, "GET", keys.fence, NULL), NULL, 10);
	if (counter < name->fence_max && (uint64_t)sim_server_us(sim) <= name->fence_max) {
		name->regime++;
		name->fence_max = name->store_max = 0;
	}
	sim_check_forced(sim, index, true);
}

void sim_server_restore(struct sim *sim, int image, bool covered)
{
	const struct lua_store_process process = *lua_store_process(sim->store);

	lua_store_text(sim->store, "FLUSHALL", NULL);
	*lua_store_process(sim->store) = process;
	if (sim->images[image]) {
		lua_store_load(sim->store, sim->images[image]->keys);
		for (int i = 0; i < SIM_NAMES; i++)
			sim->names[i].count = sim->images[image]->counts[i];
		free_image(sim, image);
	}
	sim_server_forced(sim, -1, covered);
}

void sim_server_reload(struct sim *sim, int image)
{
	lua_store_text(sim->store, "FLUSHALL", NULL);
	if (sim->images[image])
		lua_store_load(sim->store, sim->images[image]->keys);
	free_image(sim, image);
}
