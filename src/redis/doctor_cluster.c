/* SPDX-License-Identifier: MIT
 * lk_doctor() for a Cluster: every node is examined, and what is the same at several nodes is
 * reported once.  Topics "topology" and "failover" are about all of them.  Managed services refuse
 * CONFIG, INFO and CLUSTER NODES; then the rest is examined. */
#include "doctor.h"

#include "../base/os.h"
#include "../base/slot.h"
#include "../base/text.h"
#include "codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPOLOGY "topology"
#define FAILOVER "failover"
#define PROMOTION_MS 2000 /* from the node timeout until clients follow */

/* ---- Findings of several nodes -------------------------------------------------------------- */

struct finding {
	lk_fitness fitness;
	int count; /* of nodes */
	char topic[32], cure[2 * LK__DOCTOR_FIELD], text[512];
	char nodes[LK__DOCTOR_FIELD]; /* the first ones of them */
};

bool lk__doctor_collect(struct lk__doctor *doctor, const lk_finding *finding)
{
	struct lk__doctor_cluster *cluster = doctor->cluster;
	struct finding *all = cluster->findings, *found = NULL;
	size_t len;

	for (int i = 0; i < cluster->finding_count && !found; i++)
		if (all[i].fitness == finding->fitness && !strcmp(all[i].topic, finding->topic) &&
		    !strncmp(all[i].text, finding->text, sizeof(all[i].text) - 1))
			found = &all[i];
	if (!found) {
		all = realloc(all, (size_t)(cluster->finding_count + 1) * sizeof(*all));
		if (!all)
			return false;
		cluster->findings = all;
		found = &all[cluster->finding_count++];
		memset(found, 0, sizeof(*found));
		found->fitness = finding->fitness;
		snprintf(found->topic, sizeof(found->topic), "%s", finding->topic);
		snprintf(found->cure, sizeof(found->cure), "%s", finding->cure);
		snprintf(found->text, sizeof(found->text), "%s", finding->text);
	}
	found->count++;
	len = strlen(found->nodes);
	snprintf(found->nodes + len, sizeof(found->nodes) - len, "%s%s", len ? ", " : "",
	         doctor->node->text);
	return true;
}

void lk__doctor_report_collected(struct lk__doctor *doctor, const char *kind, int nodes)
{
	struct lk__doctor_cluster *cluster = doctor->cluster;

	doctor->node = NULL;
	for (int i = 0; i < cluster->finding_count; i++) {
		struct finding *found = (struct finding *)cluster->findings + i;
		if (found->count == nodes && nodes > 1)
			lk__doctor_report(doctor, found->fitness, found->topic, found->cure,
			                  "all %d %s: %s", nodes, kind, found->text);
		else
			lk__doctor_report(doctor, found->fitness, found->topic, found->cure,
			                  "%s: %s", found->nodes, found->text);
	}
	free(cluster->findings);
	cluster->findings = NULL;
	cluster->finding_count = 0;
}

/* ---- The nodes ------------------------------------------------------------------------------ */

static void add_node(struct lk__doctor_cluster *cluster, const struct lk__target *target,
                     const struct lk__cluster_node *found, unsigned first, bool is_replica)
{
	struct lk__doctor_node *node = &cluster->nodes[cluster->count];
	char text[LK__PLACE_SIZE];

	for (int i = 0; i < cluster->count; i++)
		if (!strcmp(cluster->nodes[i].id, found->id))
			return;
	if (cluster->count == LK__DOCTOR_NODES)
		return;
	node->place = found->place;
	if (!node->place.host[0])
		snprintf(node->place.host, sizeof(node->place.host), "%s", target->host);
	memcpy(node->id, found->id, sizeof(node->id));
	node->is_replica = is_replica;
	node->slot = first;
	lk__place_write(text, sizeof(text), node->place.host, node->place.port);
	lk__escape(node->text, sizeof(node->text), text, strlen(text));
	cluster->count++;
	if (!is_replica)
		cluster->masters++;
}

static void count_slots(struct lk__doctor_cluster *cluster, const struct lk__topology *topology)
{
	cluster->uncovered = 0;
	for (int slot = LK__SLOTS; slot-- > 0;)
		if (topology->owner[slot] == LK__NO_OWNER) {
			cluster->uncovered++;
			cluster->first_uncovered = slot;
		}
}

/* The masters first, then their replicas. */
static lk_err read_nodes(struct lk__doctor *doctor, const struct lk__resp *resp,
                         struct lk__why *why)
{
	struct lk__topology *topology = malloc(sizeof(*topology));
	const char *text = doctor->conn->socket.text;
	struct lk__cluster_node replica;

	if (!topology)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	if (!lk__codec_topology(resp, text, topology, why)) {
		free(topology);
		return why->err;
	}
	for (int i = 0; i < topology->count; i++) {
		unsigned slot = LK__SLOTS;
		lk__slots_first(topology->owner, (uint8_t)i, topology->nodes[i].id, &slot, 1);
		add_node(doctor->cluster, doctor->target, &topology->nodes[i], slot, false);
	}
	for (size_t i = 0; i < resp->len; i++)
		for (size_t j = 1; lk__codec_replica(resp, i, j, &replica); j++)
			add_node(doctor->cluster, doctor->target, &replica, 0, true);
	count_slots(doctor->cluster, topology);
	free(topology);
	return LK_OK;
}

/* Ask the connection's node for the others. */
static lk_err ask_nodes(struct lk__doctor *doctor, struct lk__why *why)
{
	const char *argv[] = {"CLUSTER", "SLOTS"};
	const char *text = doctor->conn->socket.text;
	struct lk__resp *resp = lk__doctor_call(doctor, 2, argv);
	lk_err err;

	if (!resp) {
		*why = doctor->lost;
		return why->err;
	}
	if (resp->type == LK__RESP_ERROR && strstr(resp->str, "cluster support disabled"))
		err = lk__why_about(why, LK_EINVALID, text, "not in a Cluster");
	else if (resp->type == LK__RESP_ERROR)
		err = lk__resp_why(resp, text, why);
	else
		err = read_nodes(doctor, resp, why);
	doctor->cluster->slots_refused |= err == LK_EAUTH;
	lk__resp_free(resp);
	if (!err && !doctor->cluster->masters)
		err = lk__why_about(why, LK_ECONN, text, "no node of the Cluster has slots");
	return err;
}

/* Let the target lead there; the program may translate the place.  node: NULL for a seed. */
static lk_err dial(struct lk__doctor *doctor, const char *host, int port, struct lk__why *why)
{
	int64_t deadline_ns = lk__now_ns() + doctor->target->connect_timeout_ns;
	struct lk__place place = {.port = port};
	char *copy;

	snprintf(place.host, sizeof(place.host), "%s", host);
	if (doctor->resolve &&
	    doctor->resolve(doctor->resolve_arg, host, port, place.host, &place.port))
		return lk__why_about(why, LK_ECONN, host, "the resolve function failed");
	copy = strdup(place.host);
	if (!copy)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	free(doctor->target->host);
	lk__target_aim(doctor->target, copy, place.port);
	return lk__conn_dial(doctor->target, &doctor->tls, deadline_ns, -1, &doctor->conn, NULL,
	                     why);
}

void lk__doctor_hang_up(struct lk__doctor *doctor)
{
	lk__conn_close(doctor->conn);
	lk__tls_unload(&doctor->tls); /* each node has to show its certificate */
	doctor->conn = NULL;
	doctor->lost = (struct lk__why){0};
	doctor->loss_reported = false;
}

static lk_err find_nodes(struct lk__doctor *doctor, struct lk__why *why)
{
	const struct lk__target *target = doctor->target;
	char host[LK_HOST_SIZE];
	lk_err err = LK_ECONN;

	if (!target->seed_count) { /* by a plain URL */
		err = ask_nodes(doctor, why);
		lk__doctor_hang_up(doctor);
		return err;
	}
	for (int i = 0; i < target->seed_count; i++) {
		snprintf(host, sizeof(host), "%s", target->seeds[i].host);
		err = dial(doctor, host, target->seeds[i].port, why);
		if (!err)
			err = ask_nodes(doctor, why);
		lk__doctor_hang_up(doctor);
		if (!err || err == LK_ENOMEM || err == LK_ESYSTEM)
			return err;
		if (i + 1 < target->seed_count)
			lk__doctor_report(doctor, LK_FIT_WARN, "reachable",
			                  "start that node, or remove it from the URL", "%s",
			                  why->text);
	}
	return err;
}

/* ---- One node ------------------------------------------------------------------------------- */

/* A slot that is left half moved: "[slot->-id]" or "[slot-<-id]" in its own line. */
static void look_for_open_slot(struct lk__doctor *doctor)
{
	const char *argv[] = {"CLUSTER", "NODES"};
	struct lk__resp *resp = lk__doctor_call(doctor, 2, argv);
	const char *line, *end, *at;

	if (resp && resp->type == LK__RESP_ERROR && lk__resp_error(resp) == LK_EAUTH) {
		doctor->cluster->nodes_refused = true;
	} else if (lk__doctor_usable(doctor, TOPOLOGY, "+cluster|nodes", resp) && resp->str) {
		line = strstr(resp->str, "myself");
		end = line ? strchr(line, '\n') : NULL;
		at = line ? strstr(line, "[") : NULL;
		if (at && (!end || at < end))
			lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY,
			                  "if no move is running: redis-cli --cluster fix",
			                  "slot %d is half moved (%s): a new acquisition there may "
			                  "have to wait; holds are kept",
			                  atoi(at + 1),
			                  strstr(at, "->-") ? "migrating" : "importing");
	}
	lk__resp_free(resp);
}

static void read_settings(struct lk__doctor *doctor)
{
	struct lk__doctor_cluster *cluster = doctor->cluster;
	char value[LK__DOCTOR_FIELD];
	int64_t ms;

	if (!lk__doctor_config(doctor, FAILOVER, "cluster-node-timeout", value))
		return;
	if (lk__parse_i64(value, strlen(value), 1, INT64_MAX, &ms) && ms > cluster->timeout_ms)
		cluster->timeout_ms = ms;
	if (lk__doctor_config(doctor, FAILOVER, "cluster-require-full-coverage", value) &&
	    !strcmp(value, "yes"))
		cluster->is_coverage_required = true;
}

static void examine_node(struct lk__doctor *doctor)
{
	const char *const argv[] = {"INFO"};
	bool is_master = !doctor->node->is_replica;

	doctor->info = lk__doctor_call(doctor, 1, argv);
	lk__doctor_node_topics(doctor, is_master);
	if (is_master) {
		lk__doctor_memory(doctor);
		lk__doctor_topology(doctor);
		look_for_open_slot(doctor);
		lk__doctor_min_replicas(doctor);
		lk__doctor_clock(doctor);
	}
	read_settings(doctor);
	lk__doctor_rights(doctor);
	lk__resp_free(doctor->info);
	doctor->info = NULL;
}

/* Returns how many of them there are. */
static int examine_kind(struct lk__doctor *doctor, bool is_replica)
{
	struct lk__doctor_cluster *cluster = doctor->cluster;
	struct lk__why why;
	int count = 0;

	for (int i = 0; i < cluster->count; i++) {
		struct lk__doctor_node *node = &cluster->nodes[i];
		if (node->is_replica != is_replica)
			continue;
		count++;
		doctor->node = NULL;
		if (dial(doctor, node->place.host, node->place.port, &why)) {
			lk__doctor_report(
				doctor, is_replica && why.err != LK_EAUTH ? LK_FIT_WARN : LK_UNFIT,
				why.err == LK_EAUTH ? "rights" : "reachable",
				why.err == LK_EAUTH
					? "ACL SETUSER at each node: users are not replicated"
					: "start the node, or let clients reach it",
				"%s %s", is_replica ? "replica" : "master", why.text);
		} else {
			doctor->node = node;
			examine_node(doctor);
		}
		lk__doctor_hang_up(doctor);
	}
	return count;
}

/* ---- All nodes ------------------------------------------------------------------------------ */

static void judge_slots(struct lk__doctor *doctor)
{
	const struct lk__doctor_cluster *cluster = doctor->cluster;

	if (cluster->uncovered)
		lk__doctor_report(doctor, LK_UNFIT, TOPOLOGY,
		                  "redis-cli --cluster fix, or start the masters that are down",
		                  "%d slots have no master (the first: %d): their names cannot be "
		                  "used",
		                  cluster->uncovered, cluster->first_uncovered);
	if (cluster->nodes_refused)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY, "",
		                  "cannot tell if a slot is half moved: grant +cluster|nodes");
	if (!cluster->uncovered)
		lk__doctor_report(doctor, LK_FIT, TOPOLOGY, "", "%d masters have all slots",
		                  cluster->masters);
}

/* Holds outlive the crash of a master if their clients reach the new one before the lease ends.  A
 * third of it may be over, since holders renew after a third. */
static void judge_times(struct lk__doctor *doctor)
{
	int64_t grace_ms = doctor->target->grace_ms, timeout_ms = doctor->cluster->timeout_ms;
	int64_t outage_ms = timeout_ms + PROMOTION_MS;
	const char *some = doctor->cluster->alone ? " that has a replica" : "";

	if (!grace_ms)
		lk__doctor_report(doctor, LK_UNFIT, FAILOVER, "remove grace=0 from the URL",
		                  "no grace: a replica that lags grants what others hold");
	else if (grace_ms < LK_LEASE_DEFAULT_MS)
		lk__doctor_report(doctor, LK_FIT_WARN, FAILOVER,
		                  "remove grace= from the URL (10 s), or make it as long as each "
		                  "lease",
		                  "a grace of %lld ms does not cover the default lease of 10 s",
		                  (long long)grace_ms);
	else if (doctor->cluster->alone == doctor->cluster->masters)
		lk__doctor_report(doctor, LK_FIT, FAILOVER, "",
		                  "no master has a replica: holders keep their holds if it is back "
		                  "before their leases end, within the grace");
	else if (!timeout_ms)
		lk__doctor_report(doctor, LK_FIT_WARN, FAILOVER, "",
		                  "cannot tell if leases outlast a failover: no node shows "
		                  "cluster-node-timeout");
	else if (outage_ms > grace_ms * 2 / 3)
		lk__doctor_report(
			doctor, LK_FIT_WARN, FAILOVER,
			"on each node: CONFIG SET cluster-node-timeout 4000, and the same in "
			"redis.conf; or longer leases and a longer grace",
			"if a master%s crashes, it is replaced after about %lld s "
			"(cluster-node-timeout %lld): leases of %lld s, the longest that the "
			"grace covers, may end before",
			some, (long long)(outage_ms + 999) / 1000, (long long)timeout_ms,
			(long long)grace_ms / 1000);
	else
		lk__doctor_report(doctor, LK_FIT, FAILOVER, "",
		                  "if a master%s crashes, it is replaced after about %lld s "
		                  "(cluster-node-timeout %lld), and holders with leases of %lld s "
		                  "keep their holds; the grace covers no longer leases",
		                  some, (long long)(outage_ms + 999) / 1000, (long long)timeout_ms,
		                  (long long)grace_ms / 1000);
}

static void judge_coverage(struct lk__doctor *doctor)
{
	if (doctor->cluster->is_coverage_required)
		lk__doctor_report(doctor, LK_FIT_WARN, FAILOVER,
		                  "on each node: CONFIG SET cluster-require-full-coverage no, and "
		                  "the same in redis.conf",
		                  "cluster-require-full-coverage is yes: while one slot has no "
		                  "master, no name can be used");
}

static void examine_all(struct lk__doctor *doctor)
{
	int masters, replicas;

	lk__doctor_report(doctor, LK_FIT, "reachable", "",
	                  "a Cluster of %d masters and %d replicas", doctor->cluster->masters,
	                  doctor->cluster->count - doctor->cluster->masters);
	masters = examine_kind(doctor, false);
	lk__doctor_report_collected(doctor, "masters", masters);
	replicas = examine_kind(doctor, true);
	lk__doctor_report_collected(doctor, "replicas", replicas);
	judge_slots(doctor);
	judge_times(doctor);
	judge_coverage(doctor);
}

/* Without INFO, CLUSTER SLOTS may say it. */
bool lk__doctor_is_cluster(struct lk__doctor *doctor)
{
	const char *const argv[] = {"CLUSTER", "SLOTS"};
	struct lk__resp *resp;
	bool found;

	if (doctor->target->local || doctor->target->db)
		return false;
	if (doctor->info && doctor->info->type == LK__RESP_STRING)
		return lk__doctor_info_number(doctor, "cluster_enabled") == 1;
	resp = lk__doctor_call(doctor, 2, argv);
	found = resp && resp->type == LK__RESP_ARRAY;
	lk__resp_free(resp);
	return found;
}

/* Nothing else can be found out: clients need that right first. */
static void report_refused_slots(struct lk__doctor *doctor)
{
	char cure[2 * LK__DOCTOR_FIELD];

	snprintf(cure, sizeof(cure), "ACL SETUSER %s +cluster|slots, at each node", doctor->user);
	lk__doctor_report(doctor, LK_UNFIT, "rights", cure,
	                  "this user lacks a right that is needed first: +cluster|slots");
}

lk_err lk__doctor_cluster(struct lk__doctor *doctor, struct lk__why *why)
{
	lk_err err;

	doctor->cluster = calloc(1, sizeof(*doctor->cluster));
	if (!doctor->cluster)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	err = find_nodes(doctor, why);
	if (!err)
		examine_all(doctor);
	if (err != LK_EAUTH || !doctor->cluster->slots_refused)
		return err;
	report_refused_slots(doctor);
	return LK_OK;
}
