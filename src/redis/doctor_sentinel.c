/* SPDX-License-Identifier: MIT
 * Topic "sentinels" of lk_doctor(): are there enough of them, do they agree, and do they name what
 * a client can verify?  Managed services refuse some of the commands; then the rest is examined. */
#include "doctor.h"

#include "../base/os.h"
#include "../base/text.h"
#include "sentinel.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define TOPIC "sentinels"
#define SENTINELS_WANTED 3
#define PLACE_TEXT 400 /* a place, escaped */

/* ---- Survey ------------------------------------------------------------------------------- */

/* A number of SENTINEL MASTER, an array of names and values. */
static bool read_number(const struct lk__resp *resp, const char *name, int64_t *number)
{
	for (size_t i = 0; resp->type == LK__RESP_ARRAY && i + 1 < resp->len; i += 2) {
		const struct lk__resp *key = resp->elements[i], *value = resp->elements[i + 1];
		if (key->str && value->str && !strcmp(key->str, name))
			return lk__parse_i64(value->str, value->len, 0, INT64_MAX, number);
	}
	return false;
}

static void read_master(struct lk__surveyed *said, const struct lk__resp *resp)
{
	if (resp->type == LK__RESP_ERROR)
		lk__why_set(&said->refusal, lk__resp_error(resp), "%s", resp->str);
	else if (read_number(resp, "quorum", &said->quorum) &&
	         read_number(resp, "num-other-sentinels", &said->others) &&
	         read_number(resp, "num-slaves", &said->replicas) &&
	         read_number(resp, "down-after-milliseconds", &said->down_after_ms))
		said->refusal.err = LK_OK;
	else
		lk__why_set(&said->refusal, LK_ESERVER, "unexpected response to SENTINEL MASTER");
}

/* The names in the response to SENTINEL MASTERS. */
static void read_services(struct lk__surveyed *said, const struct lk__resp *resp)
{
	char list[sizeof(said->services)] = "";
	size_t len = 0;

	for (size_t i = 0; resp->type == LK__RESP_ARRAY && i < resp->len; i++) {
		const struct lk__resp *facts = resp->elements[i];
		if (facts->type != LK__RESP_ARRAY || facts->len < 2 || !facts->elements[0]->str ||
		    !facts->elements[1]->str || strcmp(facts->elements[0]->str, "name") != 0)
			continue;
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", len ? ", " : "",
		                        facts->elements[1]->str);
		if (len >= sizeof(list))
			len = sizeof(list) - 1;
	}
	lk__escape(said->services, sizeof(said->services), list, len);
}

/* What is lost here is found lost by the question that follows. */
static void ask_facts(const struct lk__doctor *doctor, struct lk__sentinel_conn *conn,
                      int64_t deadline_ns, struct lk__surveyed *said)
{
	const char *master[] = {"SENTINEL", "MASTER", doctor->target->service};
	const char *quorum[] = {"SENTINEL", "CKQUORUM", doctor->target->service};
	const char *services[] = {"SENTINEL", "MASTERS"};
	struct lk__resp *resp;

	if (lk__sentinel_call(conn, deadline_ns, 3, master, &resp, &said->refusal) != LK_OK)
		return;
	read_master(said, resp);
	lk__resp_free(resp);
	if (said->refusal.err && strstr(said->refusal.text, "No such master")) {
		if (lk__sentinel_call(conn, deadline_ns, 2, services, &resp, NULL) != LK_OK)
			return;
		read_services(said, resp);
		lk__resp_free(resp);
	}
	if (lk__sentinel_call(conn, deadline_ns, 3, quorum, &resp, NULL) != LK_OK)
		return;
	if (resp->type == LK__RESP_ERROR && !strncmp(resp->str, "NOQUORUM", 8))
		lk__why_set(&said->too_few, LK_ESERVER, "%s", resp->str);
	lk__resp_free(resp);
}

static lk_err converse(const struct lk__doctor *doctor, unsigned index, struct lk__surveyed *said)
{
	int64_t deadline_ns = lk__now_ns() + doctor->target->command_timeout_ns;
	struct lk__sentinel_conn *conn = NULL;
	struct lk__report report = {.kind = LK__REPORT_NONE};
	lk_err err = lk__sentinel_open(doctor->target, index, deadline_ns, -1, &conn, &said->why);

	if (err)
		return err;
	ask_facts(doctor, conn, deadline_ns, said);
	err = lk__sentinel_ask(conn, deadline_ns, -1, &said->why);
	if (!err)
		err = lk__sentinel_next(conn, deadline_ns, -1, &report, &said->why);
	lk__sentinel_close(conn);
	if (err)
		return err;
	if (report.kind == LK__REPORT_NONE)
		return lk__why_about(&said->why, LK_ECONN, said->text, "no response in time");
	said->knows = report.kind != LK__REPORT_UNAWARE;
	said->place = report.place;
	return LK_OK;
}

static bool names(const struct lk__surveyed *said, const struct lk__place *place)
{
	return said->is_reached && said->knows && said->place.port == place->port &&
	       !strcmp(said->place.host, place->host);
}

static void find_leader(struct lk__survey *survey)
{
	int most = 0;

	survey->leader = -1;
	for (int i = 0; i < survey->count; i++) {
		int votes = 0;
		for (int other = 0; other < survey->count; other++)
			votes += names(&survey->sentinels[other], &survey->sentinels[i].place);
		if (survey->sentinels[i].knows && votes > most) {
			most = votes;
			survey->leader = i;
		}
	}
	for (int i = 0; i < survey->count; i++)
		survey->is_disagreed =
			survey->is_disagreed ||
			(survey->sentinels[i].knows &&
		         !names(&survey->sentinels[i], &survey->sentinels[survey->leader].place));
}

void lk__doctor_survey(struct lk__doctor *doctor)
{
	const struct lk__target *target = doctor->target;
	struct lk__survey *survey = doctor->survey;

	lk__escape(doctor->service, sizeof(doctor->service), target->service,
	           strlen(target->service));
	survey->count = target->sentinel_count;
	for (int i = 0; i < survey->count; i++) {
		struct lk__surveyed *said = &survey->sentinels[i];
		char text[LK__PLACE_SIZE];
		lk__place_write(text, sizeof(text), target->sentinels[i].host,
		                target->sentinels[i].port);
		lk__escape(said->text, sizeof(said->text), text, strlen(text));
		said->refusal.err = LK_ECONN;
		said->is_reached = converse(doctor, (unsigned)i, said) == LK_OK;
	}
	find_leader(survey);
}

lk_err lk__doctor_master(const struct lk__doctor *doctor, struct lk__place *place,
                         struct lk__why *why)
{
	const struct lk__survey *survey = doctor->survey;

	if (survey->leader >= 0) {
		*place = survey->sentinels[survey->leader].place;
		return LK_OK;
	}
	for (int i = 0; i < survey->count; i++)
		if (survey->sentinels[i].is_reached)
			return lk__why_about(why, LK_EINVALID, doctor->service,
			                     "sentinel %s knows no such service",
			                     survey->sentinels[i].text);
	*why = survey->sentinels[survey->count - 1].why;
	return why->err;
}

/* ---- Findings ----------------------------------------------------------------------------- */

static void write_place(char out[PLACE_TEXT], const struct lk__place *place)
{
	char text[LK__PLACE_SIZE];

	lk__place_write(text, sizeof(text), place->host, place->port);
	lk__escape(out, PLACE_TEXT, text, strlen(text));
}

static void report_silent(struct lk__doctor *doctor, const struct lk__surveyed *said)
{
	const char *cure = "start it, or correct the URL";

	if (!said->is_reached && said->why.err == LK_EAUTH)
		cure = "sentinel_user and sentinel_password_file in the URL, and on the sentinel "
		       "+sentinel|get-master-addr-by-name +subscribe +unsubscribe &+switch-master";
	else if (!said->is_reached && said->why.err != LK_ECONN)
		cure = "correct the URL, or the sentinel's certificate";
	if (!said->is_reached)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, cure, "%s", said->why.text);
	else
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC,
		                  "let it monitor the service (SENTINEL MONITOR), or correct the "
		                  "URL",
		                  "sentinel %s knows no such service%s%s", said->text,
		                  said->services[0] ? ", but " : "", said->services);
}

static void report_disagreed(struct lk__doctor *doctor, const struct lk__survey *survey)
{
	const struct lk__surveyed *leader = &survey->sentinels[survey->leader];
	char theirs[PLACE_TEXT], other[PLACE_TEXT];

	write_place(theirs, &leader->place);
	for (int i = 0; i < survey->count; i++) {
		const struct lk__surveyed *said = &survey->sentinels[i];
		if (!said->knows || names(said, &leader->place))
			continue;
		write_place(other, &said->place);
		lk__doctor_report(doctor, LK_UNFIT, TOPIC,
		                  "examine again, since a failover lasts for seconds; if it "
		                  "remains, let that sentinel monitor the same service",
		                  "they do not agree: %s names %s, %s names %s", leader->text,
		                  theirs, said->text, other);
	}
}

/* One sentinel decides alone; of two, the loss of either prevents a decision. */
static void judge_count(struct lk__doctor *doctor, const struct lk__surveyed *said, bool *fits)
{
	int64_t count = said->others + 1;

	if (count < SENTINELS_WANTED)
		lk__doctor_report(doctor, count == 1 ? LK_UNFIT : LK_FIT_WARN, TOPIC,
		                  "run at least 3, each on a machine of its own",
		                  count == 1 ? "only %lld: cut off from a working master, it makes "
		                               "a second one"
		                             : "only %lld: if one fails, the master is not "
		                               "replaced",
		                  (long long)count);
	else if (doctor->survey->count < SENTINELS_WANTED)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, "name at least 3 in the URL",
		                  "the URL names %d of %lld: clients ask only these",
		                  doctor->survey->count, (long long)count);
	else
		return;
	*fits = false;
}

static void judge_quorum(struct lk__doctor *doctor, const struct lk__surveyed *said, bool *fits)
{
	char cure[3 * LK__DOCTOR_FIELD];
	long long count = said->others + 1, majority = count / 2 + 1;

	snprintf(cure, sizeof(cure), "on every sentinel: SENTINEL SET %s quorum %lld",
	         doctor->service, majority);
	if (said->quorum > count)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, cure,
		                  "the quorum is %lld of %lld: the master is never replaced",
		                  (long long)said->quorum, count);
	else if (said->quorum < 2 && count > 1)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, cure,
		                  "the quorum is %lld of %lld: one sentinel that does not reach a "
		                  "working master begins a failover",
		                  (long long)said->quorum, count);
	else
		return;
	*fits = false;
}

/* The sentinel that knows of the most others, NULL = none says. */
static const struct lk__surveyed *find_facts(struct lk__doctor *doctor, bool *fits)
{
	const struct lk__survey *survey = doctor->survey;
	const struct lk__surveyed *first = NULL;
	bool differs = false;

	for (int i = 0; i < survey->count; i++) {
		const struct lk__surveyed *said = &survey->sentinels[i];
		if (!said->is_reached || !said->knows || said->refusal.err)
			continue;
		differs = differs || (first && (first->others != said->others ||
		                                first->quorum != said->quorum ||
		                                first->down_after_ms != said->down_after_ms));
		if (!first || said->others > first->others)
			first = said;
	}
	if (differs)
		lk__doctor_report(doctor, LK_FIT_WARN, TOPIC,
		                  "compare SENTINEL MASTER of each: num-other-sentinels, quorum, "
		                  "down-after-milliseconds",
		                  "they differ in their settings, or have not found each other");
	*fits = *fits && !differs;
	return first;
}

static void report_unknown(struct lk__doctor *doctor)
{
	const struct lk__surveyed *said = &doctor->survey->sentinels[doctor->survey->leader];
	const char *user = doctor->target->sentinel_user;
	char cure[4 * LK__DOCTOR_FIELD] = "", name[LK__DOCTOR_FIELD];

	lk__escape(name, sizeof(name), user ? user : "default", strlen(user ? user : "default"));
	if (said->refusal.err == LK_EAUTH)
		snprintf(cure, sizeof(cure),
		         "on the sentinels: ACL SETUSER %s +sentinel|master +sentinel|ckquorum",
		         name);
	lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, cure,
	                  "cannot tell how many there are, and their quorum: %s: %s", said->text,
	                  said->refusal.text);
}

static bool is_address(const char *host)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

/* A certificate rarely has the addresses of servers, which sentinels name by default. */
static void judge_names(struct lk__doctor *doctor, bool *fits)
{
	static const char cure[] =
		"in each sentinel's configuration: sentinel resolve-hostnames yes, sentinel "
		"announce-hostnames yes; and replica-announce-ip NAME for each server";
	const struct lk__target *target = doctor->target;
	const char *host = doctor->survey->sentinels[doctor->survey->leader].place.host;

	if (target->host)
		host = target->host; /* the program may have translated it */
	if (!target->tls || target->tls_unverified || target->tls_server_name || !is_address(host))
		return;
	*fits = false;
	lk__doctor_report(doctor, LK_FIT_WARN, TOPIC, cure,
	                  "they name the address %s: the certificate of each server must have its "
	                  "own address",
	                  host);
}

void lk__doctor_sentinels(struct lk__doctor *doctor)
{
	const struct lk__survey *survey = doctor->survey;
	const struct lk__surveyed *facts;
	char place[PLACE_TEXT];
	bool fits = true;

	for (int i = 0; i < survey->count; i++) {
		const struct lk__surveyed *said = &survey->sentinels[i];
		if (said->is_reached && said->knows)
			continue;
		report_silent(doctor, said);
		fits = false;
	}
	if (survey->leader < 0) {
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "", "none of %d names a master",
		                  survey->count);
		return;
	}
	if (survey->is_disagreed)
		report_disagreed(doctor, survey);
	fits = fits && !survey->is_disagreed;
	facts = find_facts(doctor, &fits);
	if (facts) {
		judge_count(doctor, facts, &fits);
		judge_quorum(doctor, facts, &fits);
	} else {
		report_unknown(doctor);
	}
	if (facts && facts->too_few.err)
		lk__doctor_report(doctor, LK_UNFIT, TOPIC, "start the others",
		                  "the master would not be replaced: %s", facts->too_few.text);
	fits = fits && !(facts && facts->too_few.err);
	judge_names(doctor, &fits);
	write_place(place, &survey->sentinels[survey->leader].place);
	if (fits && facts)
		lk__doctor_report(doctor, LK_FIT, TOPIC, "",
		                  "%lld, quorum %lld, and all %d of the URL name %s",
		                  (long long)facts->others + 1, (long long)facts->quorum,
		                  survey->count, place);
}
