/* SPDX-License-Identifier: MIT
 * Topic "memory" of lk_doctor(): the marker of the server's memory, the grace, and what would let a
 * loss go unnoticed. */
#include "doctor.h"

#include "../base/text.h"
#include "codec.h"

#include <stdio.h>
#include <string.h>

#define TOPIC "memory"

/* The parts of a marker, "1 <id> <since us>". */
struct marker {
	char id[LK__EPOCH_SIZE];
	int64_t since_us;
};

static bool parse(const struct lk__resp *resp, struct marker *marker)
{
	long long since_us;

	if (resp->type != LK__RESP_STRING || resp->len >= LK__EPOCH_SIZE ||
	    sscanf(resp->str, "1 %119[0-9a-f+-] %lld", marker->id, &since_us) != 2)
		return false;
	marker->since_us = since_us;
	return since_us >= 0;
}

/* The time on the server's clock, 0 after a failure, which is reported. */
static int64_t read_clock(struct lk__doctor *doctor)
{
	const char *const argv[] = {"TIME"};
	struct lk__resp *resp = lk__doctor_call(doctor, 1, argv);
	int64_t us = 0;

	if (lk__doctor_usable(doctor, TOPIC, "+time", resp))
		lk__doctor_time(resp, &us);
	lk__resp_free(resp);
	return us;
}

static void judge_age(struct lk__doctor *doctor, const struct marker *marker)
{
	int64_t grace_ms = doctor->target->grace_ms, now_us = read_clock(doctor);
	int64_t left_ms = (marker->since_us + grace_ms * 1000 - now_us) / 1000;
	char seconds[LK__SECONDS_SIZE];

	if (!now_us)
		return;
	if (left_ms > 0)
		lk__doctor_report(
			doctor, LK_FIT_WARN, TOPIC,
			"wait; if nothing can be held: latchkey grace end",
			"in its grace (id %.8s): nothing is granted for %s s, because the "
			"server may have forgotten a holder",
			marker->id, lk__seconds(seconds, left_ms));
	else
		lk__doctor_report(
			doctor, LK_FIT, TOPIC, "",
			"whole for %lld s (id %.8s); after a loss nothing is granted for "
			"%s s, and holders take back what they hold; a longer lease is "
			"covered only if its holder reaches the server in that time",
			marker->since_us ? (long long)((now_us - marker->since_us) / 1000000) : 0,
			marker->id, lk__seconds(seconds, grace_ms));
}

/* Does the server belong to a quorum? */
static bool is_member(const struct lk__resp *resp, struct lk__epoch *epoch)
{
	if (resp->type != LK__RESP_STRING || resp->len >= sizeof(epoch->text))
		return false;
	memcpy(epoch->text, resp->str, resp->len + 1);
	lk__codec_set(epoch);
	return epoch->set[0] != '\0';
}

static void judge_marker(struct lk__doctor *doctor, const char *key, const struct lk__resp *resp)
{
	const int64_t grace_ms = doctor->target->grace_ms;
	char seconds[LK__SECONDS_SIZE];
	char run_id[LK__DOCTOR_FIELD], text[2 * LK__DOCTOR_FIELD];
	struct marker marker;
	struct lk__epoch epoch;

	lk__doctor_info(doctor, "run_id", run_id);
	if (is_member(resp, &epoch)) {
		lk__doctor_report(doctor, LK_UNFIT, "quorum",
		                  "write redis+quorum:// with all its servers",
		                  "a member of a quorum of %d servers: a client of this server "
		                  "alone is refused",
		                  epoch.set_servers);
	} else if (!grace_ms) {
		lk__doctor_report(
			doctor, LK_FIT_WARN, TOPIC, "remove grace=0, which is meant for tests",
			"no grace: a server that has lost its memory grants at once what others "
			"still hold");
	} else if (resp->type == LK__RESP_NIL) {
		lk__doctor_report(
			doctor, LK_FIT, TOPIC, "",
			"no client has connected yet; after a loss nothing is granted for "
			"%s s",
			lk__seconds(seconds, grace_ms));
	} else if (!parse(resp, &marker)) {
		snprintf(text, sizeof(text), "delete the key %s, or use another prefix", key);
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, text,
		                  "%s is not a marker of this protocol: no client can connect",
		                  key);
	} else if (*run_id && strcmp(marker.id, "-") != 0 &&
	           strncmp(marker.id, run_id, strlen(run_id)) != 0) {
		lk__doctor_report(
			doctor, LK_FIT_WARN, TOPIC, "",
			"of an earlier run of this server, or of another one: the next client "
			"finds the loss, and a grace of %s s",
			lk__seconds(seconds, grace_ms));
	} else {
		judge_age(doctor, &marker);
	}
}

static void check_marker(struct lk__doctor *doctor)
{
	struct lk__space space;
	char key[LK__MARKER_MAX];
	const char *argv[] = {"GET", key};
	struct lk__resp *resp;

	lk__space_init(&space, doctor->target->prefix, doctor->target->db, "");
	snprintf(key, sizeof(key), "%s", space.epoch);
	if (doctor->node)
		lk__space_marker(&space, doctor->node->slot, doctor->node->id, key);
	resp = lk__doctor_call(doctor, 2, argv);
	if ((resp && resp->type == LK__RESP_ERROR && !strncmp(resp->str, "WRONGTYPE", 9)) ||
	    lk__doctor_usable(doctor, TOPIC, "+get", resp))
		judge_marker(doctor, key, resp);
	lk__resp_free(resp);
}

/* Without INFO, clients see a loss only if the marker is missing. */
static void check_info(struct lk__doctor *doctor)
{
	char cure[2 * LK__DOCTOR_FIELD];

	if (!doctor->info || doctor->info->type != LK__RESP_ERROR)
		return;
	snprintf(cure, sizeof(cure), "ACL SETUSER %s +info", doctor->user);
	lk__doctor_report(
		doctor, LK_FIT_WARN, TOPIC, cure,
		"cannot tell: grant +info; without it clients do not notice a server that "
		"has lost a part of its memory");
}

/* When the backlog is freed, a master gets another replication id although nothing was lost, and
 * the sign of a promotion disappears. */
static void check_backlog(struct lk__doctor *doctor)
{
	int64_t grace_ms = doctor->target->grace_ms, ttl_s;
	char value[LK__DOCTOR_FIELD];

	if (!lk__doctor_config(doctor, TOPIC, "repl-backlog-ttl", value))
		return;
	if (lk__parse_i64(value, strlen(value), 1, INT64_MAX / 1000, &ttl_s) &&
	    ttl_s * 1000 <= grace_ms)
		lk__doctor_report(
			doctor, LK_UNFIT, TOPIC, "CONFIG SET repl-backlog-ttl 3600",
			"repl-backlog-ttl is %lld s, not more than the grace: clients may miss "
			"that a replica became the master",
			(long long)ttl_s);
}

void lk__doctor_memory(struct lk__doctor *doctor)
{
	if (doctor->target->grace_ms)
		check_info(doctor);
	check_marker(doctor);
	if (doctor->target->grace_ms)
		check_backlog(doctor);
}
