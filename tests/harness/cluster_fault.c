/* SPDX-License-Identifier: MIT
 * Faults of a Cluster: see cluster_fault.h. */
#include "cluster_fault.h"

#include "base/slot.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REDIRECTIONS 8

struct cluster_setup *cluster;
char cluster_url[240];
int cluster_grace_ms = 4000;

/* ---- A look at all nodes --------------------------------------------------------------------- */

static char *text_of(const char *bytes, size_t len, size_t *reply_len)
{
	char *text = malloc(len + 1);

	ck_assert_ptr_nonnull(text);
	memcpy(text, bytes, len);
	text[len] = 0;
	*reply_len = len;
	return text;
}

/* PUBSUB NUMSUB of a latch's channel: it is a sharded one here. */
static char *count_subscribers(const char *channel, size_t *reply_len)
{
	char reply[200];
	long long count = 0;
	const char *name = strchr(channel, '{');

	ck_assert_ptr_nonnull(name);
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *own;
		const char *text;
		if (!cluster_setup_runs(cluster, i))
			continue;
		own = redis_open(&cluster->nodes[i]);
		text = redis_text(own, "PUBSUB SHARDNUMSUB lk:l:%b", name, strcspn(name, "\r"));
		count += atoll(text + strcspn(text, "\n"));
		redis_close(own);
	}
	return text_of(reply,
	               (size_t)snprintf(reply, sizeof(reply), "*2\r\n$1\r\nc\r\n:%lld\r\n", count),
	               reply_len);
}

static char *run_at(int node, bool asks, const char *bytes, size_t len, size_t *reply_len)
{
	struct redis *own = redis_open(&cluster->nodes[node]);
	char *raw, *reply;

	if (asks)
		redis_do(own, "ASKING");
	raw = redis_raw(own, bytes, len, reply_len);
	reply = text_of(raw, *reply_len, reply_len);
	free(raw);
	redis_close(own);
	return reply;
}

static char *run_anywhere(const char *bytes, size_t len, size_t *reply_len)
{
	const char *channel = memmem(bytes, len, "\r\nlk:l:0:", 9);
	char *reply = NULL;
	bool asks = false;
	int node = 0;

	if (channel && memmem(bytes, len, "\r\nNUMSUB\r\n", 10))
		return count_subscribers(channel, reply_len);
	while (!cluster_setup_runs(cluster, node))
		node++;
	for (int i = 0; i < REDIRECTIONS && node >= 0; i++) {
		free(reply);
		reply = run_at(node, asks, bytes, len, reply_len);
		asks = !strncmp(reply, "-ASK ", 5);
		node = cluster_slot_redirection(cluster, reply);
		if (node >= 0 && !cluster_setup_runs(cluster, node))
			break;
	}
	return reply;
}

struct redis *cluster_look(void)
{
	return redis_open_in_process(run_anywhere);
}

/* ---- The grace ------------------------------------------------------------------------------- */

static int next_master(int after)
{
	do
		after++;
	while (after < CLUSTER_NODES &&
	       (!cluster_setup_runs(cluster, after) || !cluster_setup_is_master(cluster, after)));
	return after;
}

/* The marker of that master's memory, "" = none.  Valid until the next command. */
static const char *marker_at(struct redis *own, int master, char key[100])
{
	struct cluster_view view;
	char tag[LK__TAG_SIZE];
	unsigned slot;

	cluster_setup_view(cluster, master, &view);
	ck_assert_int_eq(lk__slots_first((const uint8_t *)view.owner, (uint8_t)master,
	                                 cluster->ids[master], &slot, 1),
	                 1);
	lk__slot_tag(slot, tag);
	snprintf(key, 100, "lk:epoch:{%s}:%s", tag, cluster->ids[master]);
	return redis_text(own, "GET %s", key);
}

/* Replace it, with all copies of it in other slots. */
static void set_markers(struct redis *own, int master, const char *marker)
{
	char keys[2000];

	snprintf(keys, sizeof(keys), "%s",
	         redis_text(own, "KEYS lk:epoch:*:%s", cluster->ids[master]));
	for (char *key = keys, *end; *key; key = end) {
		end = key + strcspn(key, "\n");
		if (*end)
			*end++ = '\0';
		redis_do(own, "SET %s %s", key, marker);
	}
}

void cluster_pass_grace(void)
{
	static const char *const names[] = {"k0", "k1",
	                                    "k2"}; /* of each master in the first layout */
	lk_client *client = client_at(cluster_url);
	lk_lock_status status;

	for (int i = 0; i < 3; i++)
		OK(lk_lock_query(lock_named(client, names[i]), &status));
	OK(lk_client_close(client));
	for (int i = next_master(-1); i < CLUSTER_NODES; i = next_master(i)) {
		struct redis *own = redis_open(&cluster->nodes[i]);
		char key[100], id[100], marker[120];
		ck_assert_int_eq(sscanf(marker_at(own, i, key), "1 %99s", id), 1);
		snprintf(marker, sizeof(marker), "1 %s 1", id);
		set_markers(own, i, marker);
		redis_close(own);
	}
}

int64_t cluster_grace_left_ms(int master)
{
	struct redis *own = redis_open(&cluster->nodes[master]);
	char key[100];
	const char *since = strrchr(marker_at(own, master, key), ' ');
	int64_t since_us = since ? strtoll(since, NULL, 10) : 0;
	long long seconds, us;

	ck_assert_int_eq(sscanf(redis_text(own, "TIME"), "%lld %lld", &seconds, &us), 2);
	redis_close(own);
	return cluster_grace_ms - (seconds * 1000000 + us - since_us) / 1000;
}

/* ---- Set up ---------------------------------------------------------------------------------- */

int cluster_slot_of_name(const char *name)
{
	return (int)lk__slot_of(name, strlen(name));
}

void cluster_fault_set_up(int master)
{
	static const char *const names[] = {
		"lock",           "semaphore",          "latch", "free lock", "free semaphore",
		"lock of rivals", "semaphore of rivals"};

	cluster = cluster_setup_shared();
	for (size_t i = 0; master >= 0 && i < sizeof(names) / sizeof(names[0]); i++) {
		int slot = cluster_slot_of_name(names[i]);
		if (cluster_setup_owner(cluster, slot) != master)
			cluster_slot_move(cluster, slot, master);
	}
	if (!redis)
		redis = cluster_look();
	snprintf(cluster_url, sizeof(cluster_url), "%s?grace=%d", cluster->url, cluster_grace_ms);
	cluster_pass_grace();
}

/* ---- What nodes have answered ---------------------------------------------------------------- */

long long cluster_errors_at(int node, const char *error)
{
	struct redis *own = redis_open(&cluster->nodes[node]);
	char field[60];
	const char *at;
	long long count;

	snprintf(field, sizeof(field), "errorstat_%s:count=", error);
	at = strstr(redis_text(own, "INFO errorstats"), field);
	count = at ? atoll(at + strlen(field)) : 0;
	redis_close(own);
	return count;
}

long long cluster_errors(const char *error)
{
	long long count = 0;

	for (int i = 0; i < CLUSTER_NODES; i++)
		if (cluster_setup_runs(cluster, i))
			count += cluster_errors_at(i, error);
	return count;
}

long long cluster_clients_at(int node)
{
	struct redis *own = redis_open(&cluster->nodes[node]);
	const char *list = redis_text(own, "CLIENT LIST");
	long long count = 0;

	for (const char *at = list; (at = strstr(at, "name=latchkey")); at++)
		count++;
	redis_close(own);
	return count;
}

long long cluster_subscriptions_at(int node, const char *name)
{
	struct redis *own = redis_open(&cluster->nodes[node]);
	const char *list = redis_text(own, "PUBSUB SHARDCHANNELS *:{%s}*", name);
	long long count = *list != 0;

	for (; (list = strchr(list, '\n')); list++)
		count++;
	redis_close(own);
	return count;
}

/* ---- Slots that move ------------------------------------------------------------------------- */

static bool moves(const struct cluster_move *move, int row)
{
	return move->set & 1u << row;
}

void cluster_move_open(struct cluster_move *move, unsigned set)
{
	move->set = set;
	for (int i = 0; i < PRIMITIVES; i++) {
		if (!moves(move, i))
			continue;
		move->slot[i] = cluster_slot_of_name(primitives[i].name);
		move->from[i] = cluster_setup_owner(cluster, move->slot[i]);
		ck_assert_int_ge(move->from[i], 0);
		move->to[i] = (move->from[i] + 1) % CLUSTER_MASTERS;
		cluster_slot_open(cluster, move->slot[i], move->to[i]);
	}
}

void cluster_move_holds(const struct cluster_move *move)
{
	for (int i = 0; i < PRIMITIVES; i++)
		for (int key = 0; moves(move, i) && key < primitives[i].hold_keys; key++)
			cluster_slot_move_key(cluster, primitives[i].keys[key], move->to[i]);
}

void cluster_move_keys(const struct cluster_move *move)
{
	for (int i = 0; i < PRIMITIVES; i++)
		if (moves(move, i))
			cluster_slot_move_keys(cluster, move->slot[i], move->to[i],
			                       CLUSTER_ALL_KEYS);
}

void cluster_move_close(const struct cluster_move *move)
{
	cluster_move_keys(move);
	for (int i = 0; i < PRIMITIVES; i++)
		if (moves(move, i))
			cluster_slot_close(cluster, move->slot[i], move->to[i]);
}

long long cluster_move_errors(const struct cluster_move *move, const char *error, bool before)
{
	bool counted[CLUSTER_NODES] = {false};
	long long count = 0;

	for (int i = 0; i < PRIMITIVES; i++) {
		int node = before ? move->from[i] : move->to[i];
		if (!moves(move, i))
			continue;
		if (!counted[node])
			count += cluster_errors_at(node, error);
		counted[node] = true;
	}
	return count;
}
