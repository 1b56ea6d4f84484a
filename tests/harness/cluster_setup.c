/* SPDX-License-Identifier: MIT
 * A real Cluster: three masters with a replica each. */
#include "cluster_setup.h"

#include "cluster_slots.h"
#include "redis.h"
#include "test.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAILOVER_TRY_MS 6000 /* a server ends a coordinated one after 5 s */
#define ORDER_MS 20000
#define START_MS 60000 /* each step of it has a limit of its own */
#define PACE_MS 10
#define GREETING_MS 2000
#define JOIN_TIMEOUT_MS 1000 /* nodes greet each other at least twice in that time */

int cluster_setup_other(int node)
{
	return (node + CLUSTER_MASTERS) % CLUSTER_NODES; /* no replica changes its shard */
}

int cluster_setup_port(const struct cluster_setup *setup, int node)
{
	return setup->tls ? setup->nodes[node].tls_port : setup->nodes[node].port;
}

/* ---- What nodes believe ---------------------------------------------------------------------- */

/* Do all that run serve requests, and agree?  The view that they share. */
static bool agree_now(const struct cluster_setup *setup, struct cluster_view *shared)
{
	struct cluster_view view;
	bool first = true;

	for (int i = 0; i < CLUSTER_NODES; i++) {
		if (!cluster_setup_runs(setup, i))
			continue;
		cluster_setup_view(setup, i, &view);
		if (!view.ok || view.known != CLUSTER_NODES)
			return false;
		for (int other = 0; other < CLUSTER_NODES; other++)
			if (view.failed[other] && cluster_setup_runs(setup, other))
				return false;
		if (first)
			*shared = view;
		if (memcmp(view.owner, shared->owner, sizeof(view.owner)) != 0 ||
		    memcmp(view.master_of, shared->master_of, sizeof(view.master_of)) != 0)
			return false;
		first = false;
	}
	return !first;
}

/* The same, at a pace that leaves a busy machine to the nodes. */
static bool agree(const struct cluster_setup *setup, struct cluster_view *shared)
{
	bool agreed = agree_now(setup, shared);

	if (!agreed)
		nap_ms(PACE_MS);
	return agreed;
}

/* Wait for that. */
static void await_agreement(const struct cluster_setup *setup, struct cluster_view *shared)
{
	ck_assert_msg(WITHIN(CLUSTER_SETTLED_MS, agree(setup, shared)), "the nodes do not agree");
}

void cluster_setup_await_ok(const struct cluster_setup *setup)
{
	struct cluster_view view;

	await_agreement(setup, &view);
}

static long long info_of(const struct cluster_setup *setup, int node, const char *field)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	long long number = redis_info(redis, field);

	redis_close(redis);
	return number;
}

static bool has_link(const struct cluster_setup *setup, int node)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	bool has = strstr(redis_text(redis, "INFO replication"), "master_link_status:up") != NULL;

	redis_close(redis);
	return has;
}

void cluster_setup_await_sync(const struct cluster_setup *setup)
{
	for (int i = 0; i < CLUSTER_NODES; i++) {
		int master = cluster_setup_other(i);
		long long offset;
		if (!cluster_setup_runs(setup, i) || !cluster_setup_runs(setup, master) ||
		    cluster_setup_is_master(setup, i))
			continue;
		ck_assert(WITHIN(CLUSTER_SETTLED_MS, has_link(setup, i)));
		offset = info_of(setup, master, "master_repl_offset");
		ck_assert(WITHIN(CLUSTER_SETTLED_MS,
		                 info_of(setup, i, "slave_repl_offset") >= offset));
	}
}

/* Does each node name each other one to clients?  Replicas are named once they have data. */
static bool names_all(const struct cluster_setup *setup)
{
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		const char *slots = redis_text(redis, "CLUSTER SLOTS");
		bool all = true;
		for (int other = 0; other < CLUSTER_NODES; other++)
			all &= strstr(slots, setup->ids[other]) != NULL;
		redis_close(redis);
		if (!all)
			return false;
	}
	return true;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

/* As the parent of the nodes. */
static void obey(struct cluster_setup *setup, const char *act, int node)
{
	struct test_server *server = &setup->nodes[node];

	if (!strcmp(act, "kill")) {
		server_kill(server);
		setup->paused[node] = false;
	} else if (!strcmp(act, "restart")) {
		server_restart(server);
		setup->paused[node] = false;
	} else if (!strcmp(act, "pause")) {
		server_pause(server);
		setup->paused[node] = true;
	} else {
		server_resume(server);
		setup->paused[node] = false;
	}
}

/* Orders have numbers: a test that ended early may have left a reply. */
static void order(struct cluster_setup *setup, const char *act, int node)
{
	const char *line;
	int number;

	if (getpid() == setup->parent) {
		obey(setup, act, node);
		return;
	}
	number = ++setup->orders;
	ck_assert(line_write(setup->servant.in, "%d %s %d", number, act, node));
	do {
		line = line_read(setup->servant.out, ORDER_MS);
		ck_assert_msg(line != NULL, "the Cluster is gone");
	} while (atoi(line) != number);
}

static void let_elect(const struct cluster_setup *setup, int replica, bool may)
{
	struct redis *redis = redis_open(&setup->nodes[replica]);

	redis_do(redis, "CONFIG SET cluster-replica-no-failover %s",
	         may || setup->elections ? "no" : "yes");
	redis_close(redis);
}

/* A replica counts the votes of its last election for 4 node timeouts. */
static void await_new_votes(const struct cluster_setup *setup, int replica)
{
	int64_t kept_ms = 4 * (setup->node_timeout_ms > 1000 ? setup->node_timeout_ms : 1000);

	if (setup->elected_ms[replica])
		nap_ms(setup->elected_ms[replica] + kept_ms + 100 - now_ms());
}

/* If this node is a master, its replica may replace it from now on. */
static void let_replace(const struct cluster_setup *setup, int node)
{
	int replica = cluster_setup_other(node);

	if (!cluster_setup_runs(setup, node) || !cluster_setup_runs(setup, replica) ||
	    !cluster_setup_is_master(setup, node))
		return;
	await_new_votes(setup, replica);
	let_elect(setup, replica, true);
}

void cluster_setup_kill(struct cluster_setup *setup, int node)
{
	let_replace(setup, node);
	order(setup, "kill", node);
}

void cluster_setup_restart(struct cluster_setup *setup, int node)
{
	order(setup, "restart", node);
}

void cluster_setup_pause(struct cluster_setup *setup, int node)
{
	let_replace(setup, node);
	order(setup, "pause", node);
}

void cluster_setup_resume(struct cluster_setup *setup, int node)
{
	order(setup, "resume", node);
}

void cluster_setup_each(const struct cluster_setup *setup, const char *command)
{
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis;
		if (!cluster_setup_runs(setup, i))
			continue;
		redis = redis_open(&setup->nodes[i]);
		redis_do(redis, command);
		redis_close(redis);
	}
}

long long cluster_setup_requests(const struct cluster_setup *setup, int node)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	long long requests = redis_script_calls(redis);

	redis_close(redis);
	return requests;
}

/* ---- Failovers ------------------------------------------------------------------------------- */

static void note_promotion(struct cluster_setup *setup, int node, bool elected)
{
	setup->promoted[node] = true;
	if (elected)
		setup->elected_ms[node] = now_ms();
}

int cluster_setup_failover(struct cluster_setup *setup, int master, const char *how)
{
	int replica = cluster_setup_other(master);
	bool elected = strcmp(how, "TAKEOVER") != 0;
	int64_t end_ms = now_ms() + CLUSTER_SETTLED_MS;
	struct redis *redis;

	if (elected)
		await_new_votes(setup, replica);
	redis = redis_open(&setup->nodes[replica]);
	do {
		ck_assert_msg(now_ms() < end_ms, "no failover: %s",
		              redis_text(redis, "CLUSTER FAILOVER"));
		redis_text(redis, *how ? "CLUSTER FAILOVER %s" : "CLUSTER FAILOVER", how);
	} while (!WITHIN(FAILOVER_TRY_MS, cluster_setup_is_master(setup, replica)));
	redis_close(redis);
	note_promotion(setup, replica, elected);
	cluster_setup_await_ok(setup);
	return replica;
}

static bool is_replaced(const struct cluster_setup *setup, int master)
{
	struct cluster_view view;

	return cluster_setup_is_master(setup, cluster_setup_other(master)) && agree(setup, &view);
}

int cluster_setup_await_promotion(struct cluster_setup *setup, int master)
{
	ck_assert_msg(WITHIN(CLUSTER_SETTLED_MS, is_replaced(setup, master)),
	              "node %d has not replaced node %d", cluster_setup_other(master), master);
	note_promotion(setup, cluster_setup_other(master), true);
	return cluster_setup_other(master);
}

/* ---- Start and end --------------------------------------------------------------------------- */

static int first_owner(int slot)
{
	return slot * CLUSTER_MASTERS / CLUSTER_SLOTS;
}

static void start_nodes(struct cluster_setup *setup, const struct cluster_setup_options *options)
{
	const char *const usual[] = {"--repl-diskless-sync-delay",
	                             "0",
	                             "--repl-ping-replica-period",
	                             "1",
	                             "--cluster-allow-replica-migration",
	                             "no",
	                             "--cluster-replica-validity-factor",
	                             "0",
	                             "--cluster-replica-no-failover",
	                             options->elections ? "no" : "yes",
	                             "--cluster-node-timeout",
	                             setup->timeout_text,
	                             "--tls-cluster",
	                             "yes",
	                             "--tls-replication",
	                             "yes"};
	int count = 0, usual_count = options->tls ? 16 : 12;

	snprintf(setup->timeout_text, sizeof(setup->timeout_text), "%d", setup->node_timeout_ms);
	for (; count < usual_count; count++)
		setup->args[count] = usual[count];
	for (int i = 0; options->args && options->args[i]; i++) {
		ck_assert_int_lt(count, SERVER_ARGS_MAX - 2);
		setup->args[count++] = options->args[i];
	}
	for (int i = 0; i < CLUSTER_NODES; i++)
		server_start(&setup->nodes[i], &(struct server_options){.args = setup->args,
		                                                        .cluster = true,
		                                                        .tls = options->tls});
}

static void set_timeout(const struct cluster_setup *setup, int timeout_ms)
{
	char command[80];

	snprintf(command, sizeof(command), "CONFIG SET cluster-node-timeout %d", timeout_ms);
	cluster_setup_each(setup, command);
}

static bool all_know_all(const struct cluster_setup *setup)
{
	struct cluster_view view;

	for (int i = 0; i < CLUSTER_NODES; i++) {
		cluster_setup_view(setup, i, &view);
		if (view.known != CLUSTER_NODES)
			return false;
	}
	return true;
}

static void meet(const struct cluster_setup *setup, struct redis *const *redis)
{
	int64_t end_ms = now_ms() + CLUSTER_SETTLED_MS;

	do {
		ck_assert_msg(now_ms() < end_ms, "the nodes do not meet");
		for (int i = 0; i < CLUSTER_NODES; i++)
			for (int other = 0; other < i; other++)
				redis_do(redis[i], "CLUSTER MEET 127.0.0.1 %d %d",
				         cluster_setup_port(setup, other),
				         setup->nodes[other].bus_port);
		/* A node that is late forgets a greeting. */
	} while (!WITHIN(GREETING_MS, all_know_all(setup)));
}

/* What redis-cli --cluster create does, without its 10 s of waiting. */
static void join(struct cluster_setup *setup)
{
	struct redis *redis[CLUSTER_NODES];

	for (int i = 0; i < CLUSTER_NODES; i++) {
		redis[i] = redis_open(&setup->nodes[i]);
		snprintf(setup->ids[i], sizeof(setup->ids[i]), "%s",
		         redis_text(redis[i], "CLUSTER MYID"));
		redis_do(redis[i], "CLUSTER SET-CONFIG-EPOCH %d", i + 1);
	}
	for (int i = 0, first = 0; i < CLUSTER_MASTERS; i++) {
		int last = first;
		while (last + 1 < CLUSTER_SLOTS && first_owner(last + 1) == i)
			last++;
		redis_do(redis[i], "CLUSTER ADDSLOTSRANGE %d %d", first, last);
		first = last + 1;
	}
	meet(setup, redis);
	for (int i = CLUSTER_MASTERS; i < CLUSTER_NODES; i++)
		redis_do(redis[i], "CLUSTER REPLICATE %s", setup->ids[i - CLUSTER_MASTERS]);
	for (int i = 0; i < CLUSTER_NODES; i++)
		redis_close(redis[i]);
}

void cluster_setup_start(struct cluster_setup *setup, const struct cluster_setup_options *options)
{
	static const struct cluster_setup_options usual;

	if (!options)
		options = &usual;
	memset(setup, 0, sizeof(*setup));
	setup->parent = getpid();
	setup->tls = options->tls;
	setup->elections = options->elections;
	setup->node_timeout_ms =
		options->node_timeout_ms ? options->node_timeout_ms : CLUSTER_TIMEOUT_MS;
	start_nodes(setup, options);
	set_timeout(setup, JOIN_TIMEOUT_MS);
	join(setup);
	cluster_setup_await_ok(setup);
	cluster_setup_await_sync(setup);
	ck_assert(WITHIN(CLUSTER_SETTLED_MS, names_all(setup)));
	set_timeout(setup, setup->node_timeout_ms);
	snprintf(setup->url, sizeof(setup->url),
	         "redis%s+cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", setup->tls ? "s" : "",
	         cluster_setup_port(setup, 0), cluster_setup_port(setup, 1),
	         cluster_setup_port(setup, 2));
}

void cluster_setup_stop(struct cluster_setup *setup)
{
	for (int i = 0; i < CLUSTER_NODES; i++)
		server_stop(&setup->nodes[i]);
}

/* ---- Back to the first layout ---------------------------------------------------------------- */

/* At each master; a demotion may be on its way. */
static void flush(const struct cluster_setup *setup)
{
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		redis_text(redis, "FLUSHALL");
		redis_close(redis);
	}
}

static bool close_slots(const struct cluster_setup *setup)
{
	struct cluster_view view;
	bool changed = false;

	for (int i = 0; i < CLUSTER_NODES; i++) {
		cluster_setup_view(setup, i, &view);
		while (view.open_slot >= 0) {
			struct redis *redis = redis_open(&setup->nodes[i]);
			redis_text(redis, "CLUSTER SETSLOT %d STABLE", view.open_slot);
			redis_close(redis);
			cluster_setup_view(setup, i, &view);
			changed = true;
		}
	}
	return changed;
}

static bool wake_nodes(struct cluster_setup *setup)
{
	bool changed = false;

	for (int i = 0; i < CLUSTER_NODES; i++) {
		if (cluster_setup_runs(setup, i))
			continue;
		order(setup, setup->paused[i] ? "resume" : "restart", i);
		changed = true;
	}
	return changed;
}

/* One step towards the first layout; false if there is none to make. */
static bool restore(struct cluster_setup *setup)
{
	struct cluster_view view;
	bool changed = false;

	await_agreement(setup, &view);
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		int replica = cluster_setup_other(i);
		if (view.master_of[i] < 0)
			continue;
		if (!setup->promoted[replica])
			note_promotion(setup, replica, true);
		cluster_setup_failover(setup, replica, "TAKEOVER");
		changed = true;
	}
	if (changed) {
		flush(setup); /* one that was restarted has what it copied before */
		return true;
	}
	for (int slot = 0; slot < CLUSTER_SLOTS; slot++) {
		if (view.owner[slot] == first_owner(slot))
			continue;
		cluster_slot_open(setup, slot, first_owner(slot));
		cluster_slot_close(setup, slot, first_owner(slot));
		changed = true;
	}
	return changed;
}

void cluster_setup_reset(struct cluster_setup *setup)
{
	int64_t end_ms = now_ms() + CLUSTER_SETTLED_MS;
	bool changed = wake_nodes(setup);

	for (int i = 0; i < CLUSTER_NODES; i++)
		let_elect(setup, i, false);
	changed |= close_slots(setup);
	flush(setup);
	while (restore(setup)) {
		ck_assert_msg(now_ms() < end_ms, "the Cluster does not settle");
		changed = true;
	}
	if (changed) {
		cluster_setup_await_sync(setup);
		ck_assert(WITHIN(CLUSTER_SETTLED_MS, names_all(setup)));
		flush(setup);
	}
	memset(setup->promoted, 0, sizeof(setup->promoted));
	cluster_setup_each(setup, "SCRIPT FLUSH");
	cluster_setup_each(setup, "CONFIG RESETSTAT");
}

/* ---- One for all tests of a program ---------------------------------------------------------- */

static struct cluster_setup *shared; /* memory of the runner, the servant and the tests */
static const struct cluster_setup_options *shared_options;
static pid_t runner;

/* Start the Cluster, and obey until the runner has ended. */
static int serve(void *arg, int in, int out)
{
	static struct cluster_setup own; /* each fork() writes into it */
	char act[16];
	int number = 0, node;

	(void)arg;
	cluster_setup_start(&own, shared_options);
	*shared = own;
	while (line_write(out, "%d", number)) {
		const char *line;
		while (!(line = line_read(in, ORDER_MS)) && getppid() == runner)
			continue;
		if (!line || sscanf(line, "%d %15s %d", &number, act, &node) != 3)
			break;
		obey(&own, act, node);
		shared->nodes[node].pid = own.nodes[node].pid;
		shared->paused[node] = own.paused[node];
	}
	cluster_setup_stop(&own);
	return 0;
}

/* After the last test, when nothing may be asserted any more. */
static void end_shared(void)
{
	if (getpid() != runner)
		return;
	line_write(shared->servant.in, "stop");
	line_read(shared->servant.out, ORDER_MS);
	server_kill(&(struct test_server){.pid = shared->servant.pid});
}

static void start_shared(void)
{
	struct process servant;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	runner = getpid();
	process_start(&servant, serve, NULL);
	ck_assert_msg(line_read(servant.out, START_MS) != NULL, "no Cluster");
	shared->servant = servant; /* the start has cleared the rest */
	atexit(end_shared);
}

void cluster_setup_share(const struct cluster_setup_options *options)
{
	shared_options = options;
	test_before_all(start_shared);
}

struct cluster_setup *cluster_setup_shared(void)
{
	cluster_setup_reset(shared);
	return shared;
}
