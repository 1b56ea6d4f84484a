/* SPDX-License-Identifier: MIT
 * lk_doctor() for a quorum: each server is examined as a single one, and what is the same at
 * several is reported once.  Topic "quorum": do these servers form one, and which of them vote? */
#include "doctor.h"

#include "../base/os.h"
#include "../base/text.h"
#include "../net/tls.h"
#include "codec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPIC "quorum"
#define US_PER_S INT64_C(1000000)
#define DISTANCE_MAX_US (5 * US_PER_S) /* of the clocks, see docs/quorum.md */

/* What one server says. */
struct member {
	const struct lk__doctor_node *node;
	bool is_reached;
	struct lk__target target; /* a copy that leads to it */
	struct lk__tls_shared tls;
	struct lk__conn *conn; /* until it is examined */
	struct lk__why why;    /* that there is none */
	pthread_t thread;
	bool is_dialled; /* by the thread */
	bool refuses_info, is_replica;
	char run_id[LK__DOCTOR_FIELD]; /* "" = unknown */
	struct lk__epoch epoch;        /* no text: no marker */
	int64_t young_ms;
	int64_t ahead_us, error_us; /* its clock minus ours */
};

struct members {
	struct lk__doctor *doctor;
	struct member list[LK__MEMBERS_MAX];
	int count, majority, reached;
};

/* ---- One server ----------------------------------------------------------------------------- */

/* Its clock, compared with CLOCK_BOOTTIME of this machine. */
static int64_t read_clock(struct lk__doctor *doctor, struct member *member)
{
	const char *const argv[] = {"TIME"};
	int64_t sent_ns = lk__now_ns(), received_ns, us = 0;
	struct lk__resp *resp = lk__doctor_call(doctor, 1, argv);

	received_ns = lk__now_ns();
	if (lk__doctor_usable(doctor, TOPIC, "+time", resp) && lk__doctor_time(resp, &us)) {
		member->error_us = (received_ns - sent_ns) / 2000;
		member->ahead_us = us - sent_ns / 1000 - member->error_us;
	}
	lk__resp_free(resp);
	return us;
}

static void read_marker(struct lk__doctor *doctor, struct member *member)
{
	struct lk__epoch *epoch = &member->epoch;
	struct lk__space space;
	const char *argv[] = {"GET", space.epoch};
	int64_t now_us = read_clock(doctor, member);
	struct lk__resp *resp;
	long long since_us;

	lk__space_init(&space, doctor->target->prefix, doctor->target->db, "");
	resp = lk__doctor_call(doctor, 2, argv);
	if (lk__doctor_usable(doctor, TOPIC, "+get", resp) && resp->type == LK__RESP_STRING &&
	    resp->len < sizeof(epoch->text)) {
		memcpy(epoch->text, resp->str, resp->len + 1);
		epoch->len = (uint8_t)resp->len;
		lk__codec_set(epoch);
		if (sscanf(epoch->text, "1 %*s %lld", &since_us) == 1)
			epoch->since_us = since_us;
	}
	lk__resp_free(resp);
	if (epoch->set[0] && epoch->since_us && now_us)
		member->young_ms =
			(epoch->since_us + epoch->longest_ms * 1000 - now_us + 999) / 1000;
	if (member->young_ms < 0)
		member->young_ms = 0;
}

static void check_replicas(struct lk__doctor *doctor, struct member *member)
{
	long long replicas = lk__doctor_info_number(doctor, "connected_slaves");
	char role[LK__DOCTOR_FIELD];

	lk__doctor_info(doctor, "role", role);
	member->is_replica = !strcmp(role, "slave");
	if (member->is_replica)
		lk__doctor_report(doctor, LK_UNFIT, "replicas", "use its master, or another server",
		                  "a replica: it refuses to write");
	else if (replicas)
		lk__doctor_report(
			doctor, LK_FIT_WARN, "replicas", "no automatic failover of members",
			"%lld: a replica that is promoted has lost memory, and does not vote for "
			"the longest lease; the old master must not be reached meanwhile",
			replicas);
	else if (role[0])
		lk__doctor_report(doctor, LK_FIT, "replicas", "", "a master without replicas");
}

static void examine(struct lk__doctor *doctor, struct member *member)
{
	const char *const argv[] = {"INFO"};

	doctor->info = lk__doctor_call(doctor, 1, argv);
	member->refuses_info = doctor->info && doctor->info->type == LK__RESP_ERROR;
	lk__doctor_info(doctor, "run_id", member->run_id);
	lk__doctor_node_topics(doctor, false);
	lk__doctor_report(doctor, LK_FIT, "persistence", "",
	                  "not needed: a server that was restarted does not vote until the longest "
	                  "lease is over, whatever it has saved");
	check_replicas(doctor, member);
	read_marker(doctor, member);
	lk__doctor_clock(doctor);
	lk__doctor_rights(doctor);
	lk__resp_free(doctor->info);
	doctor->info = NULL;
}

static void dial(struct member *member)
{
	int64_t deadline_ns = lk__now_ns() + member->target.connect_timeout_ns;

	lk__conn_dial(&member->target, &member->tls, deadline_ns, -1, &member->conn, NULL,
	              &member->why);
}

static void *dial_thread(void *arg)
{
	dial(arg);
	lk__tls_end_thread();
	return NULL;
}

/* At once: several that do not answer take no longer than one. */
static void dial_all(struct members *members)
{
	for (int i = 0; i < members->count; i++) {
		struct member *member = &members->list[i];
		member->is_dialled =
			lk__thread_start(&member->thread, "lk-dial", dial_thread, member);
		if (!member->is_dialled)
			dial(member);
	}
	for (int i = 0; i < members->count; i++)
		if (members->list[i].is_dialled)
			pthread_join(members->list[i].thread, NULL);
}

/* A minority may be down. */
static void report_unreached(const struct members *members, const struct lk__why *why, int down)
{
	bool is_right = why->err == LK_EAUTH;

	lk__doctor_report(members->doctor,
	                  down > members->count - members->majority ? LK_UNFIT : LK_FIT_WARN,
	                  is_right ? "rights" : "reachable",
	                  is_right ? "use a user and a password that each server accepts"
	                           : "start the server, or let clients reach it",
	                  "%s", why->text);
}

static void examine_each(struct members *members)
{
	struct lk__doctor *doctor = members->doctor;
	struct lk__target *target = doctor->target;
	int down = 0;

	dial_all(members);
	for (int i = 0; i < members->count; i++) {
		struct member *member = &members->list[i];
		doctor->node = NULL;
		if (!member->conn) {
			report_unreached(members, &member->why, ++down);
		} else {
			doctor->node = &doctor->cluster->nodes[i];
			doctor->target = &member->target;
			doctor->conn = member->conn;
			member->is_reached = true;
			members->reached++;
			examine(doctor, member);
			lk__doctor_hang_up(doctor);
			doctor->target = target;
		}
		lk__tls_unload(&member->tls);
	}
	doctor->node = NULL;
	if (!down)
		lk__doctor_report(doctor, LK_FIT, "reachable", "",
		                  "a quorum of %d servers, which "
		                  "all answer",
		                  members->count);
	lk__doctor_report_collected(doctor, "servers", members->reached);
}

/* ---- All of them ---------------------------------------------------------------------------- */

/* How many servers have the same set as this one? */
static int count_set(const struct members *members, const struct member *like)
{
	int count = 0;

	for (int i = 0; i < members->count; i++)
		count += like->epoch.set[0] && !strcmp(members->list[i].epoch.set, like->epoch.set);
	return count;
}

/* A member of the set that most servers have, NULL if none has one. */
static const struct member *find_set(const struct members *members)
{
	const struct member *found = NULL;

	for (int i = 0; i < members->count; i++)
		if (members->list[i].epoch.set[0] &&
		    (!found || count_set(members, &members->list[i]) > count_set(members, found)))
			found = &members->list[i];
	return found;
}

/* The longest lease as seconds, which need not be whole. */
static const char *longest(const struct member *member, char text[LK__SECONDS_SIZE])
{
	return lk__seconds(text, member->epoch.longest_ms);
}

static bool is_earlier(const struct lk__epoch *a, const struct lk__epoch *b)
{
	return a->since_us < b->since_us ||
	       (a->since_us == b->since_us && strcmp(a->text, b->text) < 0);
}

/* The server that has the same place in the set, and had it before; NULL = none.  See members.c. */
static const struct member *find_place(const struct members *members, const struct member *member)
{
	const struct lk__epoch *own = &member->epoch;

	for (int i = 0; i < members->count && own->set_place; i++) {
		const struct lk__epoch *other = &members->list[i].epoch;
		if (other->set_place == own->set_place && !strcmp(other->set, own->set) &&
		    is_earlier(other, own))
			return &members->list[i];
	}
	return NULL;
}

/* Is its marker that of the memory of an earlier run, which was saved?  The next client finds that,
 * and writes another one. */
static bool has_restarted(const struct member *member)
{
	const size_t len = strlen(member->run_id);

	return len && strncmp(member->epoch.text + 2, member->run_id, len) != 0;
}

/* Does that server vote?  Report why not. */
static bool judge_member(const struct members *members, const struct member *member,
                         const struct member *first)
{
	const struct member *twin = find_place(members, member);
	struct lk__doctor *doctor = members->doctor;
	char seconds[LK__SECONDS_SIZE];

	if (!member->is_reached)
		return false;
	if (member->refuses_info)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "grant +info at each server",
		                  "%s refuses INFO, without which a restart with an older file is "
		                  "not noticed: it does not vote for this user",
		                  member->node->text);
	else if (member->is_replica)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "use its master, or another server",
		                  "%s is a replica: it does not vote", member->node->text);
	else if (!member->epoch.set[0])
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, "",
		                  "%s has lost its memory, or is new: the next client marks it, "
		                  "not latchkey doctor, and from then on it does not vote for %s s",
		                  member->node->text, longest(first, seconds));
	else if (strcmp(member->epoch.set, first->epoch.set) != 0)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "correct the URL",
		                  "%s belongs to another quorum (%s, not %s)", member->node->text,
		                  member->epoch.set, first->epoch.set);
	else if (twin)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "let all clients list the same servers",
		                  "%s has the place of %s, number %d of %d: clients whose lists "
		                  "have only one of them can hold a lock at the same time",
		                  member->node->text, twin->node->text, member->epoch.set_place,
		                  member->epoch.set_servers);
	else if (has_restarted(member))
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, "",
		                  "%s was restarted: the next client finds that, not latchkey "
		                  "doctor, and from then on it does not vote for %s s",
		                  member->node->text, longest(first, seconds));
	else if (member->young_ms)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, "wait",
		                  "%s has lost its memory: it votes again in %s s",
		                  member->node->text, lk__seconds(seconds, member->young_ms));
	else
		return true;
	return false;
}

static void judge_set(const struct members *members)
{
	const struct member *first = find_set(members);
	struct lk__doctor *doctor = members->doctor;
	char seconds[LK__SECONDS_SIZE];
	int votes = 0;

	if (!first) {
		lk__doctor_report(doctor,
		                  members->reached < members->count ? LK_UNFIT : LK_FIT_WARN, TOPIC,
		                  "latchkey quorum init",
		                  "no quorum yet: the first client that reaches all %d servers "
		                  "makes it, and then nothing is granted for 60 s",
		                  members->count);
		return;
	}
	if (first->epoch.set_servers != members->count) {
		lk__doctor_report(
			doctor, LK_UNFIT, TOPIC, "write all its servers into the URL",
			"a quorum of %d servers, but the URL has %d: no client can open it",
			first->epoch.set_servers, members->count);
		return;
	}
	for (int i = 0; i < members->count; i++)
		votes += judge_member(members, &members->list[i], first);
	if (votes < members->majority)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "",
		                  "%d of %d servers vote, %d are needed: nothing can be acquired",
		                  votes, members->count, members->majority);
	else
		lk__doctor_report(doctor, LK_FIT, TOPIC, "",
		                  "set %s: %d of %d servers vote, %d are needed; no lease is "
		                  "longer than %s s",
		                  first->epoch.set, votes, members->count, members->majority,
		                  longest(first, seconds));
}

/* A quorum of one is made as any other, and bears no failure. */
static void judge_count(const struct members *members)
{
	if (members->count == 1)
		lk__doctor_report(members->doctor, LK_FIT_WARN, TOPIC, "use three servers, or five",
		                  "one server, which is for tests: while it is down, or has lost "
		                  "its memory, nothing is granted");
}

static void judge_twins(const struct members *members)
{
	for (int i = 0; i < members->count; i++)
		for (int j = 0; j < i; j++) {
			const struct member *a = &members->list[j], *b = &members->list[i];
			if (!a->run_id[0] || strcmp(a->run_id, b->run_id) != 0)
				continue;
			lk__doctor_report(members->doctor, LK_UNFIT, TOPIC, "correct the URL",
			                  "%s and %s are the same server", a->node->text,
			                  b->node->text);
		}
}

/* Priorities and fences come from the clocks of the servers. */
static void judge_clocks(const struct members *members)
{
	const struct member *least = NULL, *most = NULL, *set = find_set(members);
	int64_t between_us, error_us, max_us = DISTANCE_MAX_US;

	for (int i = 0; i < members->count; i++) {
		const struct member *member = &members->list[i];
		if (!member->is_reached || !member->ahead_us)
			continue;
		if (!least || member->ahead_us < least->ahead_us)
			least = member;
		if (!most || member->ahead_us > most->ahead_us)
			most = member;
	}
	if (!least || least == most)
		return;
	if (set && set->epoch.longest_ms * 250 < max_us)
		max_us = set->epoch.longest_ms * 250;
	between_us = most->ahead_us - least->ahead_us;
	error_us = most->error_us + least->error_us;
	if (between_us - error_us > max_us)
		lk__doctor_report(
			members->doctor, LK_UNFIT, TOPIC,
			"set the clocks of all servers right (NTP)",
			"the clock of %s is %.1f s ahead of that of %s: if a server loses "
			"its memory, fences may go back",
			most->node->text, (double)between_us / 1e6, least->node->text);
	else
		lk__doctor_report(members->doctor, LK_FIT, TOPIC, "",
		                  "the clocks of the servers are equal, within %.3f s",
		                  (double)(between_us + error_us) / 1e6);
}

static void add_nodes(struct members *members)
{
	struct lk__doctor *doctor = members->doctor;
	const struct lk__target *target = doctor->target;

	for (int i = 0; i < target->member_count; i++) {
		struct lk__doctor_node *node = &doctor->cluster->nodes[i];
		struct member *member = &members->list[i];
		char text[LK__PLACE_SIZE];
		node->place.port = target->members[i].port;
		snprintf(node->place.host, sizeof(node->place.host), "%s", target->members[i].host);
		lk__place_write(text, sizeof(text), node->place.host, node->place.port);
		lk__escape(node->text, sizeof(node->text), text, strlen(text));
		member->node = node;
		member->target = *target;
		lk__target_aim(&member->target, node->place.host, node->place.port);
	}
	members->count = target->member_count;
	members->majority = members->count / 2 + 1;
}

lk_err lk__doctor_quorum(struct lk__doctor *doctor, struct lk__why *why)
{
	struct members *members = calloc(1, sizeof(*members));

	doctor->cluster = calloc(1, sizeof(*doctor->cluster)); /* for its nodes and findings */
	if (!members || !doctor->cluster) {
		free(members);
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	}
	members->doctor = doctor;
	add_nodes(members);
	judge_count(members);
	examine_each(members);
	if (members->reached) {
		judge_set(members);
		judge_twins(members);
		judge_clocks(members);
	} else {
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "", "no server was reached");
	}
	free(members);
	return LK_OK;
}
