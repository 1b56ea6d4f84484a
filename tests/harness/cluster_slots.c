/* SPDX-License-Identifier: MIT
 * Slots of a real Cluster that move from one master to another. */
#include "cluster_slots.h"

#include "redis.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 8 /* keys of one MIGRATE */
#define MIGRATE_MS 5000
#define REDIRECTIONS 8

int cluster_slot_of(const struct cluster_setup *setup, const char *key)
{
	struct redis *redis = redis_open(&setup->nodes[0]);
	int slot = (int)redis_int(redis, "CLUSTER KEYSLOT %s", key);

	redis_close(redis);
	return slot;
}

int cluster_slot_owner(const struct cluster_setup *setup, const char *key)
{
	return cluster_setup_owner(setup, cluster_slot_of(setup, key));
}

/* The owner, as the target of a migration knows it: all others may be late. */
static int source_of(const struct cluster_setup *setup, int slot, int to)
{
	struct cluster_view view;

	cluster_setup_view(setup, to, &view);
	ck_assert_int_ge(view.owner[slot], 0);
	return view.owner[slot];
}

static void set_slot(const struct cluster_setup *setup, int node, int slot, const char *state,
                     int other)
{
	struct redis *redis = redis_open(&setup->nodes[node]);

	redis_do(redis, "CLUSTER SETSLOT %d %s %s", slot, state, setup->ids[other]);
	redis_close(redis);
}

void cluster_slot_open(const struct cluster_setup *setup, int slot, int to)
{
	int from = source_of(setup, slot, to);

	set_slot(setup, to, slot, "IMPORTING", from);
	set_slot(setup, from, slot, "MIGRATING", to);
}

/* Up to BATCH keys of the slot that this node has: keys without spaces. */
static int migrate(const struct cluster_setup *setup, int slot, int from, int to, int max)
{
	char keys[BATCH][128], format[80] = "MIGRATE 127.0.0.1 %d %s 0 %d KEYS";
	struct redis *redis = redis_open(&setup->nodes[from]);
	const char *at =
		redis_text(redis, "CLUSTER GETKEYSINSLOT %d %d", slot, max < BATCH ? max : BATCH);
	int count = 0;

	for (; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		size_t len = strcspn(at, "\n");
		ck_assert_uint_lt(len, sizeof(keys[0]));
		memcpy(keys[count], at, len);
		keys[count++][len] = 0;
		strncat(format, " %s", sizeof(format) - strlen(format) - 1);
	}
	if (count)
		redis_do(redis, format, cluster_setup_port(setup, to), "", MIGRATE_MS, keys[0],
		         keys[1], keys[2], keys[3], keys[4], keys[5], keys[6], keys[7]);
	redis_close(redis);
	return count;
}

int cluster_slot_move_keys(const struct cluster_setup *setup, int slot, int to, int max)
{
	int from = source_of(setup, slot, to), moved = 0, batch;

	while (moved < max && (batch = migrate(setup, slot, from, to, max - moved)))
		moved += batch;
	return moved;
}

void cluster_slot_move_key(const struct cluster_setup *setup, const char *key, int to)
{
	int from = source_of(setup, cluster_slot_of(setup, key), to);
	struct redis *redis = redis_open(&setup->nodes[from]);

	ck_assert_str_eq(redis_text(redis, "MIGRATE 127.0.0.1 %d %s 0 %d",
	                            cluster_setup_port(setup, to), key, MIGRATE_MS),
	                 "OK");
	redis_close(redis);
}

void cluster_slot_close(const struct cluster_setup *setup, int slot, int to)
{
	int from = source_of(setup, slot, to);

	/* The target first: in between, both send clients to it. */
	set_slot(setup, to, slot, "NODE", to);
	set_slot(setup, from, slot, "NODE", to);
	for (int i = 0; i < CLUSTER_NODES; i++)
		if (i != to && i != from && cluster_setup_runs(setup, i) &&
		    cluster_setup_is_master(setup, i))
			set_slot(setup, i, slot, "NODE", to);
	ck_assert(WITHIN(CLUSTER_SETTLED_MS, cluster_setup_owner(setup, slot) == to));
}

static void run_at(const struct cluster_setup *setup, const int *nodes, const char *command)
{
	for (int i = 0; i < 2; i++) {
		struct redis *redis = redis_open(&setup->nodes[nodes[i]]);
		redis_do(redis, command);
		redis_close(redis);
	}
}

static bool has_keys(const struct cluster_setup *setup, int node, int slot)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	bool has = redis_int(redis, "CLUSTER COUNTKEYSINSLOT %d", slot) > 0;

	redis_close(redis);
	return has;
}

void cluster_slot_undo(const struct cluster_setup *setup, int slot, int to)
{
	const int ends[] = {to, source_of(setup, slot, to)};
	char stable[40];
	bool moved;

	snprintf(stable, sizeof(stable), "CLUSTER SETSLOT %d STABLE", slot);
	run_at(setup, ends, "CLIENT PAUSE 5000 WRITE");
	moved = has_keys(setup, to, slot);
	if (!moved)
		run_at(setup, ends, stable);
	run_at(setup, ends, "CLIENT UNPAUSE");
	if (!moved)
		return;
	/* No key of a slot that migrates can return before the slot. */
	cluster_slot_move_keys(setup, slot, to, CLUSTER_ALL_KEYS);
	cluster_slot_close(setup, slot, to);
	cluster_slot_move(setup, slot, ends[1]);
}

void cluster_slot_move(const struct cluster_setup *setup, int slot, int to)
{
	cluster_slot_open(setup, slot, to);
	cluster_slot_move_keys(setup, slot, to, CLUSTER_ALL_KEYS);
	cluster_slot_close(setup, slot, to);
}

int cluster_slot_redirection(const struct cluster_setup *setup, const char *reply)
{
	const char *colon;

	if (strncmp(reply, "-MOVED ", 7) != 0 && strncmp(reply, "-ASK ", 5) != 0)
		return -1;
	colon = strchr(reply, ':');
	for (int i = 0; colon && i < CLUSTER_NODES; i++)
		if (atoi(colon + 1) == cluster_setup_port(setup, i) ||
		    atoi(colon + 1) == setup->nodes[i].port)
			return i;
	return -1;
}

const char *cluster_read(const struct cluster_setup *setup, const char *command, const char *key)
{
	static char *copy;
	int node = 0;
	bool asks = false;

	while (!cluster_setup_runs(setup, node))
		node++;
	for (int i = 0; i < REDIRECTIONS; i++) {
		struct redis *redis = redis_open(&setup->nodes[node]);
		const char *reply;
		if (asks)
			redis_do(redis, "ASKING");
		reply = redis_text(redis, "%s %s", command, key);
		asks = !strncmp(reply, "-ASK ", 5);
		free(copy);
		copy = strdup(reply);
		redis_close(redis);
		node = cluster_slot_redirection(setup, copy);
		if (node < 0)
			return copy;
	}
	ck_abort_msg("%s %s: %s", command, key, copy);
	return NULL;
}
