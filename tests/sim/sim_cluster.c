/* SPDX-License-Identifier: MIT
 * The nodes of a Cluster.  A node answers as Redis does: it runs what it has all keys for, and
 * redirects the rest.  While a slot moves, its keys go one by one.  Nodes learn of a change one
 * after the other.  A failover promotes the replica, in the same place of the three. */
#include "sim.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

#define NEWS_NS (800 * SIM_MS)     /* until the last node knows of a change */
#define DETECTED_NS (2 * SIM_S)    /* until a dead master is replaced, at least */
#define ELECTED_NS (1500 * SIM_MS) /* ... and the longest one after that */
#define AWAY_NS (5 * SIM_S)        /* how long it is away after that */

void sim_cluster_init(struct sim *sim)
{
	struct sim_cluster *cluster = &sim->cluster;

	cluster->random = sim_random_of(sim->plan->seed, 12, 0);
	for (int i = 0; i < SIM_NODES; i++) {
		struct sim_node *node = &cluster->nodes[i];
		node->memory = sim_server_store(sim);
		node->since_us = INT64_MAX;
		*lua_store_process(node->memory) = (struct lua_store_process){
			.run = 20 + (uint64_t)i, .replid = 20 + (uint64_t)i};
	}
	for (int i = 0; i < SIM_SHARDS; i++)
		cluster->shards[i] = (struct sim_shard){.master = i, .up_ns = LK__NEVER};
	lua_store_free(sim->store);
	for (int i = 0; i < SIM_NAMES; i++) {
		struct sim_slot *slot = &cluster->slots[i];
		char text[sizeof(sim->names[i].text)];

		slot->store = sim_server_store(sim);
		slot->number = lk__slot_of(sim->names[i].text, strlen(sim->names[i].text));
		slot->shard = i % SIM_SHARDS;
		slot->target = -1;
		slot->next_ns = LK__NEVER;
		memcpy(text, sim->names[i].text, sizeof(text));
		snprintf(sim->names[i].topic, sizeof(sim->names[i].topic), "lk:l:{%s}", text);
	}
	sim_cluster_select(sim, 0);
	sim->scripts_loaded = false;
	sim_cluster_load(sim, false);
}

void sim_cluster_fini(struct sim *sim)
{
	for (int i = 0; i < SIM_NODES; i++)
		lua_store_free(sim->cluster.nodes[i].memory);
	for (int i = 0; i < SIM_NAMES; i++)
		lua_store_free(sim->cluster.slots[i].store);
	query_cluster(NULL);
}

void sim_cluster_set_time(struct sim *sim)
{
	for (int i = 0; i < SIM_NODES; i++)
		lua_store_set_time(sim->cluster.nodes[i].memory, sim_server_us(sim));
	for (int i = 0; i < SIM_NAMES; i++)
		lua_store_set_time(sim->cluster.slots[i].store, sim_server_us(sim));
}

static void load(struct lua_store *store, bool forget)
{
	if (forget)
		lua_store_text(store, "SCRIPT", "FLUSH", NULL);
	else
		lua_store_load_scripts(store);
}

void sim_cluster_load(struct sim *sim, bool forget)
{
	if (!forget && sim->scripts_loaded)
		return;
	sim->scripts_loaded = !forget;
	for (int i = 0; i < SIM_NODES; i++)
		load(sim->cluster.nodes[i].memory, forget);
	for (int i = 0; i < SIM_NAMES; i++)
		load(sim->cluster.slots[i].store, forget);
}

int sim_cluster_owner(const struct sim *sim, int name)
{
	return sim->cluster.shards[sim->cluster.slots[name].shard].master;
}

void sim_cluster_select(struct sim *sim, int name)
{
	const struct sim_node *node = &sim->cluster.nodes[sim_cluster_owner(sim, name)];

	sim->cluster.name = name;
	sim->store = sim->cluster.slots[name].store;
	sim->since_us = node->since_us;
	sim->marked_ns = node->marked_ns;
	query_cluster(node->memory);
}

struct lua_store *sim_memory(const struct sim *sim)
{
	if (!sim->plan->cluster)
		return sim->store;
	return sim->cluster.nodes[sim->cluster.runs_at].memory;
}

bool sim_script_in_grace(const struct sim *sim)
{
	int64_t since_us = sim->cluster.nodes[sim->cluster.runs_at].since_us;

	if (!sim->plan->cluster)
		return sim_server_in_grace(sim);
	return since_us > sim_server_us(sim) - sim->plan->grace_ms * 1000;
}

void sim_cluster_mark(struct sim *sim)
{
	for (int i = 0; i < SIM_NODES; i++) {
		struct sim_node *node = &sim->cluster.nodes[i];
		const char *marker = lua_store_text(node->memory, "GET", "lk:epoch", NULL);
		const char *since = strrchr(marker, ' ');
		int64_t since_us = since ? strtoll(since, NULL, 10) : INT64_MAX;
		if (since_us != node->since_us)
			node->marked_ns = sim->now_ns;
		node->since_us = since_us;
	}
	sim_cluster_select(sim, sim->cluster.name);
}

bool sim_cluster_is_usable(const struct sim *sim, int name)
{
	const struct sim_slot *slot = &sim->cluster.slots[name];

	return slot->target < 0 && sim->cluster.shards[slot->shard].up_ns == LK__NEVER;
}

/* ---- What a node knows ---------------------------------------------------------------------- */

/* The owner of a slot, as the node believes. */
static int believed(const struct sim *sim, int node, int name)
{
	const struct sim_slot *slot = &sim->cluster.slots[name];
	int owner = sim_cluster_owner(sim, name);

	if (node != owner && node != slot->before && slot->told_ns[node] > sim->now_ns)
		return slot->before;
	return owner;
}

struct lk__topology *sim_cluster_topology(const struct sim *sim, int node)
{
	struct lk__topology *topology = calloc(1, sizeof(*topology));

	if (!topology)
		abort();
	/* With the replicas, which own nothing here: an index is a place. */
	topology->count = SIM_NODES;
	for (int i = 0; i < SIM_NODES; i++) {
		struct lk__cluster_node *at = &topology->nodes[i];
		snprintf(at->place.host, sizeof(at->place.host), "node%d", i);
		at->place.port = 7000 + i;
	}
	for (int i = 0; i < LK__SLOTS; i++)
		topology->owner[i] =
			(uint8_t)sim->cluster.shards[i * SIM_SHARDS / LK__SLOTS].master;
	for (int i = 0; i < SIM_NAMES; i++)
		topology->owner[sim->cluster.slots[i].number] = (uint8_t)believed(sim, node, i);
	return topology;
}

/* From now on the slot has another owner than before; the others learn of it. */
static void change_owner(struct sim *sim, struct sim_slot *slot, int before)
{
	slot->before = before;
	for (int i = 0; i < SIM_NODES; i++)
		slot->told_ns[i] = sim->now_ns + sim_within(&sim->cluster.random, NEWS_NS);
	sim_disturb(&sim->disturbed_ns, sim->now_ns + NEWS_NS);
}

/* ---- Requests ----------------------------------------------------------------------------- */

static void reply(struct sim_call *call, const char *text)
{
	free(call->reply.data);
	call->reply.data = strdup(text);
	if (!call->reply.data)
		abort();
	call->reply.len = strlen(text);
	call->reply.cap = call->reply.len + 1;
}

static void redirect(struct sim_call *call, const char *how, unsigned slot, int node)
{
	char text[80];

	snprintf(text, sizeof(text), "-%s %u node%d:%d\r\n", how, slot, node, 7000 + node);
	reply(call, text);
}

/* The next word of a command, NULL at the end. */
static const char *word(const char **at, const char *end, size_t *len)
{
	const char *text;
	char *after;

	if (*at >= end || **at != '$')
		return NULL;
	*len = strtoul(*at + 1, &after, 10);
	text = after + 2;
	*at = text + *len + 2;
	return text;
}

static int key_of(const char *text, size_t len)
{
	if (!strncmp(text, "lk:fence", 8))
		return 4;
	if (text[len - 1] == '}')
		return 0;
	return text[len - 1] == 'q' ? 1 : text[len - 1] == 'h' ? 2 : 3;
}

struct keys {
	int count, here, there; /* at the source, at the target */
	uint32_t all;
};

/* The keys that the command declares. */
static void find_keys(const struct sim_slot *slot, const struct sim_call *call, struct keys *keys)
{
	const char *at = memchr(call->bytes.data, '$', call->bytes.len), *text;
	const char *end = call->bytes.data + call->bytes.len;
	size_t len;

	*keys = (struct keys){0};
	word(&at, end, &len);
	word(&at, end, &len);
	text = word(&at, end, &len);
	keys->count = text ? atoi(text) : 0;
	for (int i = 0; i < keys->count && (text = word(&at, end, &len)); i++) {
		char name[96];
		int key = key_of(text, len);
		snprintf(name, sizeof(name), "%.*s", (int)len, text);
		keys->all |= 1u << key;
		if (!strcmp(lua_store_text(slot->store, "EXISTS", name, NULL), "0"))
			continue;
		if (slot->moved >> key & 1)
			keys->there++;
		else
			keys->here++;
	}
}

static void execute(struct sim *sim, struct sim_call *call)
{
	sim->tally.scripts++;
	sim->cluster.runs_at = call->place;
	sim_check_before(sim, call->name);
	lua_store_run(sim->store, call->bytes.data, call->bytes.len, &call->reply);
	sim_check_after(sim, call->name, call);
}

/* At the source of a slot that moves. */
static void run_at_source(struct sim *sim, struct sim_slot *slot, struct sim_call *call)
{
	int target = sim->cluster.shards[slot->target].master;
	static char place[48];
	struct keys keys;

	find_keys(slot, call, &keys);
	if (keys.here == keys.count) {
		snprintf(place, sizeof(place), "%u node%d:%d", slot->number, target, 7000 + target);
		lua_store_set_migrating(slot->store, place);
		execute(sim, call);
		lua_store_set_migrating(slot->store, NULL);
	} else if (keys.here) {
		sim->tally.divided++;
		reply(call, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
	} else {
		sim->tally.asked++;
		redirect(call, "ASK", slot->number, target);
	}
}

static void run_at_target(struct sim *sim, struct sim_slot *slot, struct sim_call *call)
{
	struct keys keys;

	find_keys(slot, call, &keys);
	if (keys.count > 1 && keys.there < keys.count) {
		sim->tally.divided++;
		reply(call, "-TRYAGAIN Multiple keys request during rehashing of slot\r\n");
		return;
	}
	slot->moved |= keys.all;
	execute(sim, call);
}

static void run_name(struct sim *sim, struct sim_call *call)
{
	struct sim_slot *slot = &sim->cluster.slots[call->name];
	int owner = sim_cluster_owner(sim, call->name);
	int target = slot->target < 0 ? -1 : sim->cluster.shards[slot->target].master;

	sim_cluster_select(sim, call->name);
	if (call->place == owner && target >= 0) {
		run_at_source(sim, slot, call);
	} else if (call->place == owner) {
		execute(sim, call);
	} else if (call->place == target && call->asking) {
		run_at_target(sim, slot, call);
	} else {
		sim->tally.moved++;
		redirect(call, "MOVED", slot->number, believed(sim, call->place, call->name));
	}
}

void sim_cluster_run(struct sim *sim, struct sim_call *call)
{
	struct sim_node *node = &sim->cluster.nodes[call->place];
	int shard = call->place % SIM_SHARDS;

	if (node->down_ns > sim->now_ns)
		return; /* nothing waits for the reply */
	if (call->name >= 0) {
		run_name(sim, call);
	} else if (call->kind == LK__TOPOLOGY) {
		call->topology = sim_cluster_topology(sim, call->place);
		reply(call, "+OK\r\n");
	} else if (call->kind == LK__EPOCH && sim->cluster.shards[shard].master != call->place) {
		sim->tally.moved++;
		redirect(call, "MOVED", (unsigned)(shard * LK__SLOTS / SIM_SHARDS + 1),
		         sim->cluster.shards[shard].master);
	} else {
		lua_store_run(node->memory, call->bytes.data, call->bytes.len, &call->reply);
		sim_cluster_mark(sim);
	}
}

void sim_cluster_order(struct sim *sim, struct sim_link *link, struct sim_item *item)
{
	int name = item->topic % SIM_NAMES, owner;

	if (item->kind != SIM_SUBSCRIBED)
		return; /* a PING has no topic */
	owner = believed(sim, link->place, name);
	if (owner == link->place)
		return;
	item->kind = SIM_MOVED;
	item->len = (size_t)snprintf(item->text, sizeof(item->text), "%u node%d:%d",
	                             sim->cluster.slots[name].number, owner, 7000 + owner);
}

/* ---- Moves of slots ------------------------------------------------------------------------- */

/* The node ends the subscriptions to the slot's channels. */
static void unsubscribe(struct sim *sim, int name, int place)
{
	for (struct sim_link *link = sim->links; link; link = link->next)
		for (int topic = name; topic < 2 * SIM_NAMES; topic += SIM_NAMES) {
			if (!link->there || link->place != place || !(link->topics >> topic & 1))
				continue;
			link->topics &= ~(1u << topic);
			sim_network_unsubscribed(link, topic);
		}
}

static bool in_grace(const struct sim *sim, int shard)
{
	const struct sim_node *node = &sim->cluster.nodes[sim->cluster.shards[shard].master];

	return sim->cluster.shards[shard].up_ns != LK__NEVER || node->since_us == INT64_MAX ||
	       node->since_us > sim_server_us(sim) - (sim->plan->grace_ms + 500) * 1000;
}

static void begin_move(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int name = (int)sim_draw(random, SIM_NAMES);
	struct sim_slot *slot = &sim->cluster.slots[name];
	int target = (slot->shard + 1 + (int)sim_draw(random, SIM_SHARDS - 1)) % SIM_SHARDS;

	/* A grace would not follow the slot. */
	if (slot->target >= 0 || in_grace(sim, slot->shard) ||
	    sim->cluster.shards[target].up_ns != LK__NEVER)
		return;
	sim->tally.faults[fault->kind]++;
	slot->target = target;
	slot->moved = 0;
	slot->returns = sim_percent(random, 20);
	slot->gap_ns = sim_within(random, fault->length_ns / 4);
	slot->next_ns = sim->now_ns + slot->gap_ns;
	slot->end_ns = sim->now_ns + fault->length_ns;
	sim_disturb(&sim->disturbed_ns, slot->end_ns);
	sim_trace(sim, NULL, "the slot of %s begins to move to master %d", sim->names[name].text,
	          target);
}

static void end_move(struct sim *sim, int name)
{
	struct sim_slot *slot = &sim->cluster.slots[name];
	int before = sim_cluster_owner(sim, name);

	slot->next_ns = LK__NEVER;
	slot->moved = 0;
	sim_disturb(&sim->disturbed_ns, sim->now_ns);
	if (!slot->returns) {
		slot->shard = slot->target;
		change_owner(sim, slot, before);
		unsubscribe(sim, name, before);
	}
	slot->target = -1;
	sim_trace(sim, NULL, "the slot of %s is at node %d", sim->names[name].text,
	          sim_cluster_owner(sim, name));
}

static void note_key(void *arg, const char *key, size_t len, const char *type, int64_t expires_ms)
{
	uint32_t *keys = arg;

	(void)type;
	(void)expires_ms;
	*keys |= 1u << key_of(key, len);
}

static void move_on(struct sim *sim, int name)
{
	struct sim_slot *slot = &sim->cluster.slots[name];
	uint32_t keys = 0, left;

	lua_store_each_key(slot->store, note_key, &keys);
	left = keys & ~slot->moved;
	if (left) {
		unsigned key = (unsigned)sim_draw(&sim->cluster.random, SIM_SLOT_KEYS);
		while (!(left >> key & 1))
			key = (key + 1) % SIM_SLOT_KEYS;
		slot->moved |= 1u << key;
		slot->next_ns = sim->now_ns + slot->gap_ns;
	} else if (sim->now_ns < slot->end_ns) {
		slot->next_ns = slot->end_ns;
	} else {
		end_move(sim, name);
	}
	sim_disturb(&sim->disturbed_ns, sim->now_ns);
	if (slot->target >= 0)
		sim_disturb(&sim->disturbed_ns, slot->next_ns);
}

/* ---- Failovers ------------------------------------------------------------------------------ */

static void promote(struct sim *sim, int index, bool is_planned)
{
	struct sim_shard *shard = &sim->cluster.shards[index];
	int old = shard->master, place = (old + SIM_SHARDS) % SIM_NODES;
	struct lua_store_process *process = lua_store_process(sim->cluster.nodes[place].memory);

	process->replid2 = lua_store_process(sim->cluster.nodes[old].memory)->replid;
	process->replid = ++sim->replids;
	process->was_replica = true;
	shard->master = place;
	shard->up_ns = LK__NEVER;
	for (int i = 0; i < SIM_NAMES; i++) {
		if (sim->cluster.slots[i].shard != index)
			continue;
		change_owner(sim, &sim->cluster.slots[i], old);
		if (is_planned)
			sim->names[i].forced_ns = sim->now_ns; /* a grace begins, and no more */
	}
	sim_cluster_select(sim, sim->cluster.name);
	sim_trace(sim, NULL, "node %d is the master", place);
}

static void stop(struct sim *sim, int place, int64_t wake_ns)
{
	sim->cluster.nodes[place].stopped_ns = wake_ns;
	for (struct sim_link *link = sim->links; link; link = link->next) {
		if (link->place != place)
			continue;
		for (int way = 0; way < SIM_WAYS; way++)
			sim_disturb(&link->stalled_ns[way], wake_ns);
		link->client->dirty = true;
	}
}

static void fail(struct sim *sim, const struct sim_fault *fault, int index,
                 struct sim_random *random)
{
	struct sim_shard *shard = &sim->cluster.shards[index];
	struct sim_node *node = &sim->cluster.nodes[shard->master];

	shard->up_ns = sim->now_ns + DETECTED_NS + sim_within(random, ELECTED_NS);
	sim_disturb(&sim->disturbed_ns, shard->up_ns);
	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->cluster.slots[i].shard == index)
			sim_server_restore_name(sim, (int)(fault - sim->plan->faults), i);
	if (fault->kind == SIM_NODE_STOP) {
		stop(sim, shard->master, shard->up_ns + sim_within(random, AWAY_NS));
		return;
	}
	node->down_ns = shard->up_ns + sim_within(random, AWAY_NS);
	sim_server_hang_up(sim, shard->master);
	lua_store_restart(node->memory);
	*lua_store_process(node->memory) =
		(struct lua_store_process){.run = ++sim->runs, .began_us = sim_server_us(sim)};
}

void sim_cluster_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int index = (int)sim_draw(random, SIM_SHARDS), other;

	if (fault->kind == SIM_SLOT_MOVE) {
		begin_move(sim, fault, random);
		return;
	}
	other = (sim->cluster.shards[index].master + SIM_SHARDS) % SIM_NODES;
	if (sim->cluster.shards[index].up_ns != LK__NEVER ||
	    sim->cluster.nodes[other].down_ns > sim->now_ns ||
	    sim->cluster.nodes[other].stopped_ns > sim->now_ns)
		return;
	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->cluster.slots[i].target >= 0 &&
		    (sim->cluster.slots[i].shard == index || sim->cluster.slots[i].target == index))
			return;
	sim->tally.faults[fault->kind]++;
	if (fault->kind == SIM_TAKEOVER)
		promote(sim, index, true);
	else
		fail(sim, fault, index, random);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

int64_t sim_cluster_due(const struct sim *sim)
{
	int64_t due_ns = LK__NEVER;

	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->cluster.slots[i].next_ns < due_ns)
			due_ns = sim->cluster.slots[i].next_ns;
	for (int i = 0; i < SIM_SHARDS; i++)
		if (sim->cluster.shards[i].up_ns < due_ns)
			due_ns = sim->cluster.shards[i].up_ns;
	return due_ns;
}

void sim_cluster_happen(struct sim *sim)
{
	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->cluster.slots[i].next_ns <= sim->now_ns)
			move_on(sim, i);
	for (int i = 0; i < SIM_SHARDS; i++)
		if (sim->cluster.shards[i].up_ns <= sim->now_ns)
			promote(sim, i, false);
}

void sim_cluster_heal(struct sim *sim)
{
	for (int i = 0; i < SIM_NAMES; i++)
		if (sim->cluster.slots[i].target >= 0)
			end_move(sim, i);
	for (int i = 0; i < SIM_SHARDS; i++)
		if (sim->cluster.shards[i].up_ns != LK__NEVER)
			promote(sim, i, false);
	for (int i = 0; i < SIM_NODES; i++)
		sim->cluster.nodes[i].down_ns = sim->cluster.nodes[i].stopped_ns = 0;
}
