/* SPDX-License-Identifier: MIT
 * Topics "topology" and "failover" of lk_doctor(), for a service of Sentinel: which replicas could
 * replace the master, and what a failover does to locks. */
#include "doctor.h"

#include "../base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPOLOGY "topology"
#define FAILOVER "failover"
#define REPLICAS_MAX 16 /* shown; a longer list is cut */
#define SILENT_WARN_S 3 /* a replica reports its offset every second */
#define BEHIND_WARN (INT64_C(1) << 20)
#define ELECTION_MS 3000 /* from the agreement that the master is down until clients follow */
#define LIST_SIZE 600

/* ---- Topology ----------------------------------------------------------------------------- */

struct replica {
	char place[2 * LK__DOCTOR_FIELD]; /* escaped */
	char state[LK__DOCTOR_FIELD];     /* "online" if it receives what the master executes */
	int64_t behind;                   /* bytes that it has not confirmed */
	int64_t silent_s;                 /* since it last reported, -1 = not known */
};

struct topology {
	struct replica replicas[REPLICAS_MAX];
	int count;
};

/* Copy the value of "name=value," in a line of INFO. */
static void read_field(const char *line, const char *name, char value[LK__DOCTOR_FIELD])
{
	size_t len = strlen(name);

	value[0] = '\0';
	for (const char *at = line; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, name, len) != 0 || at[len] != '=')
			continue;
		at += len + 1;
		snprintf(value, LK__DOCTOR_FIELD, "%.*s", (int)strcspn(at, ","), at);
		return;
	}
}

static int64_t read_count(const char *line, const char *name, int64_t absent)
{
	char value[LK__DOCTOR_FIELD];
	int64_t number;

	read_field(line, name, value);
	return lk__parse_i64(value, strlen(value), 0, INT64_MAX, &number) ? number : absent;
}

static void read_info(const struct lk__doctor *doctor, struct topology *topology)
{
	int64_t offset = lk__doctor_info_number(doctor, "master_repl_offset");
	char name[16], line[LK__DOCTOR_FIELD], host[LK__DOCTOR_FIELD];

	for (int i = 0; i < REPLICAS_MAX; i++) {
		struct replica *replica = &topology->replicas[topology->count];
		snprintf(name, sizeof(name), "slave%d", i);
		lk__doctor_info(doctor, name, line);
		if (!line[0])
			continue;
		read_field(line, "ip", host);
		lk__place_write(replica->place, sizeof(replica->place), host,
		                (int)read_count(line, "port", 0));
		read_field(line, "state", replica->state);
		replica->behind = offset - read_count(line, "offset", offset);
		replica->silent_s = read_count(line, "lag", -1);
		topology->count++;
	}
}

/* ROLE of a master: its name, its offset, and an array of host, port and offset a replica.  It
 * shows only those that are online. */
static bool read_role(const struct lk__resp *resp, struct topology *topology)
{
	const struct lk__resp *list;

	if (resp->type != LK__RESP_ARRAY || resp->len != 3 || !resp->elements[0]->str ||
	    strcmp(resp->elements[0]->str, "master") != 0 ||
	    resp->elements[2]->type != LK__RESP_ARRAY)
		return false;
	list = resp->elements[2];
	for (size_t i = 0; i < list->len && topology->count < REPLICAS_MAX; i++) {
		const struct lk__resp *parts = list->elements[i];
		struct replica *replica = &topology->replicas[topology->count];
		char place[2 * LK__DOCTOR_FIELD];
		int64_t offset = resp->elements[1]->integer, theirs = 0;
		if (parts->type != LK__RESP_ARRAY || parts->len != 3 || !parts->elements[0]->str ||
		    !parts->elements[1]->str || !parts->elements[2]->str)
			return false;
		lk__place_write(place, sizeof(place), parts->elements[0]->str,
		                atoi(parts->elements[1]->str));
		lk__escape(replica->place, sizeof(replica->place), place, strlen(place));
		snprintf(replica->state, sizeof(replica->state), "online");
		if (lk__parse_i64(parts->elements[2]->str, parts->elements[2]->len, 0, INT64_MAX,
		                  &theirs))
			replica->behind = offset - theirs;
		replica->silent_s = -1;
		topology->count++;
	}
	return true;
}

static bool has_info(const struct lk__doctor *doctor)
{
	return doctor->info && doctor->info->type == LK__RESP_STRING;
}

/* Returns false when neither INFO nor ROLE says anything, which is reported. */
static bool read_topology(struct lk__doctor *doctor, struct topology *topology)
{
	const char *const argv[] = {"ROLE"};
	struct lk__resp *resp;
	char role[LK__DOCTOR_FIELD];
	bool known;

	if (has_info(doctor)) {
		lk__doctor_info(doctor, "role", role);
		read_info(doctor, topology);
		if (strcmp(role, "master") != 0)
			lk__doctor_report(doctor, LK_UNFIT, TOPOLOGY,
			                  "examine again, since a failover lasts for seconds; if "
			                  "it remains: SENTINEL RESET on the sentinels",
			                  "%s has the role \"%s\", but %s name it as the "
			                  "master",
			                  doctor->conn->socket.text, role,
			                  doctor->survey ? "sentinels" : "nodes");
		return !strcmp(role, "master");
	}
	resp = lk__doctor_call(doctor, 1, argv);
	known = resp && read_role(resp, topology);
	if (known)
		lk__doctor_report(
			doctor, LK_FIT_WARN, TOPOLOGY, "grant +info",
			"cannot tell how long replicas have been silent: INFO is refused");
	else
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY, "grant +info",
		                  "cannot tell: neither INFO nor ROLE shows the replicas");
	lk__resp_free(resp);
	return known;
}

static bool judge_replica(struct lk__doctor *doctor, const struct replica *replica)
{
	if (strcmp(replica->state, "online") != 0)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY,
		                  "wait; if it remains, read that server's log",
		                  "replica %s is not in sync: %s", replica->place, replica->state);
	else if (replica->silent_s >= SILENT_WARN_S)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY, "find out why it does not keep up",
		                  "replica %s has confirmed nothing for %lld s", replica->place,
		                  (long long)replica->silent_s);
	else if (replica->behind >= BEHIND_WARN)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY, "find out why it does not keep up",
		                  "replica %s lags by %lld bytes", replica->place,
		                  (long long)replica->behind);
	else
		return true;
	return false;
}

/* The most replicas that a sentinel knows, -1 = none says.  They never forget one. */
static int64_t known_replicas(const struct lk__survey *survey)
{
	int64_t most = -1;

	for (int i = 0; survey && i < survey->count; i++)
		if (!survey->sentinels[i].refusal.err && survey->sentinels[i].replicas > most)
			most = survey->sentinels[i].replicas;
	return most;
}

int64_t lk__doctor_all_replicas(const struct lk__doctor *doctor)
{
	int64_t all = lk__doctor_info_number(doctor, "connected_slaves");
	int64_t known = doctor->survey ? known_replicas(doctor->survey) : 0;

	return known > all ? known : all;
}

/* Do all replicas confirm each grant?  Then a master that is cut off from one grants no holds. */
static bool all_confirm(const struct lk__doctor *doctor)
{
	int64_t all = lk__doctor_all_replicas(doctor);

	return all > 0 && doctor->target->replicas >= all;
}

static void list_replicas(const struct topology *topology, char list[LIST_SIZE])
{
	size_t len = 0;

	list[0] = '\0';
	for (int i = 0; i < topology->count && len < LIST_SIZE; i++) {
		const struct replica *replica = &topology->replicas[i];
		char silent[40] = "";
		if (replica->silent_s >= 0)
			snprintf(silent, sizeof(silent), ", heard %lld s ago",
			         (long long)replica->silent_s);
		len += (size_t)snprintf(list + len, LIST_SIZE - len, "%s%s (%lld bytes behind%s)",
		                        i ? ", " : "", replica->place, (long long)replica->behind,
		                        silent);
	}
}

/* Of a node of a Cluster. */
static void report_replicas(struct lk__doctor *doctor, const struct topology *topology, bool fits,
                            const char *list)
{
	if (!topology->count)
		doctor->cluster->alone++;
	if (!topology->count)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY, "add a replica",
		                  "no replica: if it fails, nothing replaces it");
	else if (fits)
		lk__doctor_report(doctor, LK_FIT, TOPOLOGY, "", "%d replica%s: %s", topology->count,
		                  topology->count == 1 ? "" : "s", list);
}

void lk__doctor_topology(struct lk__doctor *doctor)
{
	struct topology topology = {.count = 0};
	int64_t known = known_replicas(doctor->survey);
	char list[LIST_SIZE];
	bool fits = true;

	if (!read_topology(doctor, &topology))
		return;
	for (int i = 0; i < topology.count; i++)
		fits = judge_replica(doctor, &topology.replicas[i]) && fits;
	if (known > topology.count)
		lk__doctor_report(
			doctor, LK_FIT_WARN, TOPOLOGY,
			"start the others; if they are gone for ever: SENTINEL RESET on "
			"the sentinels, one after the other",
			"the sentinels know %lld replicas, %d are connected to the master",
			(long long)known, topology.count);
	list_replicas(&topology, list);
	if (doctor->node) /* whose address is named anyway */
		report_replicas(doctor, &topology, fits, list);
	else if (!topology.count)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPOLOGY, "add a replica",
		                  "master %s has no replica: if it fails, nothing replaces it",
		                  doctor->conn->socket.text);
	else if (fits && known <= topology.count)
		lk__doctor_report(doctor, LK_FIT, TOPOLOGY, "", "master %s, %d replica%s: %s",
		                  doctor->conn->socket.text, topology.count,
		                  topology.count == 1 ? "" : "s", list);
}

/* ---- Two masters -------------------------------------------------------------------------- */

/* The shortest or the longest down-after-milliseconds of the sentinels, -1 = none says. */
static int64_t find_down_after(const struct lk__survey *survey, bool longest)
{
	int64_t found = -1;

	for (int i = 0; i < survey->count; i++) {
		int64_t ms = survey->sentinels[i].down_after_ms;
		if (survey->sentinels[i].refusal.err)
			continue;
		if (found < 0 || (longest ? ms > found : ms < found))
			found = ms;
	}
	return found;
}

/* A master that is cut off must refuse writes before its replica is promoted. */
static void report_unlimited(struct lk__doctor *doctor)
{
	int64_t down_after_ms = find_down_after(doctor->survey, false);
	long long lag_s = down_after_ms > 2000 ? (down_after_ms - 1) / 1000 : 1;
	int64_t all = lk__doctor_all_replicas(doctor);
	char cure[3 * LK__DOCTOR_FIELD];
	size_t len;

	len = (size_t)snprintf(cure, sizeof(cure),
	                       "on each server: CONFIG SET min-replicas-to-write 1 and "
	                       "min-replicas-max-lag %lld, and the same in redis.conf",
	                       down_after_ms < 0 ? 10LL : lag_s);
	if (all > 0)
		snprintf(cure + len, sizeof(cure) - len, "; or replicas=%lld in the URL",
		         (long long)all);
	lk__doctor_report(doctor, LK_FIT_WARN, FAILOVER, cure,
	                  "min-replicas-to-write is 0: a master that is cut off with some clients "
	                  "goes on granting while its replica is promoted");
}

/* Are there enough replicas for the limit? */
static void judge_count(struct lk__doctor *doctor, int64_t to_write)
{
	int64_t replicas = lk__doctor_info_number(doctor, "connected_slaves");
	int64_t good = lk__doctor_info_number(doctor, "min_slaves_good_slaves");

	if (has_info(doctor) && good < to_write)
		lk__doctor_report(doctor, LK_UNFIT, FAILOVER,
		                  "start the replicas, or lower min-replicas-to-write",
		                  "min-replicas-to-write is %lld, but %lld replicas are in sync: "
		                  "the master grants nothing",
		                  (long long)to_write, (long long)good);
	else if (has_info(doctor) && replicas <= to_write)
		lk__doctor_report(
			doctor, LK_FIT_WARN, FAILOVER, "add a replica",
			"min-replicas-to-write is %lld of %lld: if a server fails, nothing "
			"is granted until it is back",
			(long long)to_write, (long long)replicas);
}

void lk__doctor_min_replicas(struct lk__doctor *doctor)
{
	char value[LK__DOCTOR_FIELD];
	int64_t to_write;

	if (lk__doctor_config(doctor, FAILOVER, "min-replicas-to-write", value) &&
	    lk__parse_i64(value, strlen(value), 1, INT64_MAX, &to_write))
		judge_count(doctor, to_write);
}

/* Does the limit count before a replica is promoted? */
static void judge_lag(struct lk__doctor *doctor, int64_t to_write, int64_t lag_s)
{
	int64_t down_after_ms = find_down_after(doctor->survey, false);

	if (down_after_ms < 0)
		lk__doctor_report(doctor, LK_FIT_WARN, FAILOVER, "",
		                  "cannot tell if min-replicas-max-lag (%lld s) is below "
		                  "down-after-milliseconds, which no sentinel shows",
		                  (long long)lag_s);
	else if (lag_s >= (down_after_ms + 999) / 1000)
		lk__doctor_report(
			doctor, LK_FIT_WARN, FAILOVER,
			"CONFIG SET min-replicas-max-lag below it, on each server, or raise "
			"down-after-milliseconds",
			"min-replicas-max-lag is %lld s, down-after-milliseconds %lld: a "
			"master that is cut off may grant after its replica is promoted",
			(long long)lag_s, (long long)down_after_ms);
	else
		lk__doctor_report(doctor, LK_FIT, FAILOVER, "",
		                  "a master that is cut off refuses locks after %lld s "
		                  "(min-replicas-to-write %lld), before its replica is promoted",
		                  (long long)lag_s, (long long)to_write);
}

/* The limits do not matter. */
static void report_confirmed(struct lk__doctor *doctor)
{
	lk__doctor_report(
		doctor, LK_FIT, FAILOVER, "",
		"all %lld replicas confirm each grant: a master that is cut off from one grants no "
		"locks and permits that count (latches and rates go on there until it is replaced)",
		(long long)lk__doctor_all_replicas(doctor));
}

static void check_limits(struct lk__doctor *doctor)
{
	char write_text[LK__DOCTOR_FIELD], lag_text[LK__DOCTOR_FIELD], good[LK__DOCTOR_FIELD];
	int64_t to_write = 0, lag_s = 0;

	lk__doctor_info(doctor, "min_slaves_good_slaves", good);
	/* INFO has this field only if both limits are set, so CONFIG need not be allowed. */
	if (all_confirm(doctor))
		report_confirmed(doctor);
	if (has_info(doctor) && !good[0]) {
		if (!all_confirm(doctor))
			report_unlimited(doctor);
		return;
	}
	if (!lk__doctor_config(doctor, FAILOVER, "min-replicas-to-write", write_text) ||
	    !lk__doctor_config(doctor, FAILOVER, "min-replicas-max-lag", lag_text))
		return;
	lk__parse_i64(write_text, strlen(write_text), 0, INT64_MAX, &to_write);
	lk__parse_i64(lag_text, strlen(lag_text), 0, INT64_MAX, &lag_s);
	if (to_write && lag_s)
		judge_count(doctor, to_write);
	if (all_confirm(doctor))
		return;
	if (to_write && lag_s)
		judge_lag(doctor, to_write, lag_s);
	else
		report_unlimited(doctor);
}

/* ---- Times -------------------------------------------------------------------------------- */

static bool judge_grace(struct lk__doctor *doctor, int64_t covered_ms)
{
	if (covered_ms >= LK_LEASE_DEFAULT_MS)
		return true;
	lk__doctor_report(
		doctor, covered_ms <= 0 ? LK_UNFIT : LK_FIT_WARN, FAILOVER,
		"remove grace= from the URL (13 s), or make it 3 s longer than each lease",
		covered_ms <= 0 ? "a grace of %lld ms covers no lease: clients may use an old "
				  "master for 3 s"
				: "a grace of %lld ms covers leases that are 3 s shorter, not the "
				  "default of 10 s",
		(long long)doctor->target->grace_ms);
	return false;
}

/* Holds outlive the crash of a master if their clients reach the new one before the lease ends.  A
 * third of it may be over, since holders renew after a third. */
static void judge_outage(struct lk__doctor *doctor, int64_t covered_ms, int64_t down_after_ms)
{
	int64_t left_ms = covered_ms * 2 / 3, outage_ms = down_after_ms + ELECTION_MS;
	int64_t wanted_ms = (left_ms - ELECTION_MS) / 1000 * 1000;
	char cure[3 * LK__DOCTOR_FIELD];

	if (wanted_ms > 0)
		snprintf(cure, sizeof(cure),
		         "on every sentinel: SENTINEL SET %s down-after-milliseconds %lld; or "
		         "longer "
		         "leases and a longer grace",
		         doctor->service, (long long)wanted_ms);
	else
		snprintf(cure, sizeof(cure), "longer leases and a longer grace");
	if (outage_ms > left_ms)
		lk__doctor_report(
			doctor, LK_FIT_WARN, FAILOVER, cure,
			"if the master crashes, it is replaced after about %lld s "
			"(down-after-milliseconds %lld): leases of %lld.%lld s, the longest "
			"that the grace covers, may end before",
			(long long)(outage_ms + 999) / 1000, (long long)down_after_ms,
			(long long)covered_ms / 1000, (long long)covered_ms % 1000 / 100);
	else
		lk__doctor_report(doctor, LK_FIT, FAILOVER, "",
		                  "if the master crashes, it is replaced after about %lld s "
		                  "(down-after-milliseconds %lld), and holders with leases of "
		                  "%lld.%lld s keep their holds; the grace covers no longer leases",
		                  (long long)(outage_ms + 999) / 1000, (long long)down_after_ms,
		                  (long long)covered_ms / 1000, (long long)covered_ms % 1000 / 100);
}

static void check_times(struct lk__doctor *doctor)
{
	int64_t down_after_ms = find_down_after(doctor->survey, true);
	int64_t covered_ms = doctor->target->grace_ms - LK__FOLLOW_MS;

	if (!doctor->target->grace_ms) {
		lk__doctor_report(
			doctor, LK_UNFIT, FAILOVER, "remove grace=0 from the URL",
			all_confirm(doctor)
				? "no grace: a master that restarts with older data "
				  "grants what others hold"
				: "no grace: a replica that lags grants what others hold");
		return;
	}
	if (!judge_grace(doctor, covered_ms))
		return;
	if (down_after_ms < 0)
		lk__doctor_report(doctor, LK_FIT_WARN, FAILOVER,
		                  "let a sentinel show it: see topic sentinels",
		                  "cannot tell if leases outlast a failover: no sentinel shows "
		                  "down-after-milliseconds");
	else
		judge_outage(doctor, covered_ms, down_after_ms);
}

void lk__doctor_failover(struct lk__doctor *doctor)
{
	lk__doctor_topology(doctor);
	check_limits(doctor);
	check_times(doctor);
}
