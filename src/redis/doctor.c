/* SPDX-License-Identifier: MIT
 * lk_doctor() for Redis: is a server fit for locks?  It changes nothing, and reports a cure each
 * time. */
#include "doctor.h"

#include "../local/local.h"
#include "../net/secure.h"
#include "../base/os.h"
#include "../base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SIZE 1024
#define FIELD_SIZE LK__DOCTOR_FIELD
#define PINGS 11
#define MEDIAN 5 /* of them, in order */
#define LATENCY_WARN_NS (50 * LK__MS)
#define CERTIFICATE_WARN_DAYS 14

/* Those that need the server. */
static const struct {
	const char *name;
	bool of_tls, of_sentinel; /* only there */
} topics[] = {
	{"version", false, false},     {"latency", false, false}, {"eviction", false, false},
	{"persistence", false, false}, {"memory", false, false},  {"replicas", false, false},
	{"rights", false, false},      {"clock", false, false},   {"patterns", false, false},
	{"tls", true, false},          {"topology", false, true}, {"failover", false, true},
};
#define TOPIC_COUNT (sizeof(topics) / sizeof(topics[0]))

/* ---- Requests and findings ---------------------------------------------------------------- */

void lk__doctor_report(struct lk__doctor *doctor, lk_fitness fitness, const char *topic,
                       const char *cure, const char *fmt, ...)
{
	char text[TEXT_SIZE];
	lk_finding finding = {.fitness = fitness, .topic = topic, .text = text, .cure = cure};
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (doctor->node && lk__doctor_collect(doctor, &finding))
		return;
	if (fitness > doctor->worst)
		doctor->worst = fitness;
	if (doctor->fn)
		doctor->fn(doctor->arg, &finding);
}

struct lk__resp *lk__doctor_call(struct lk__doctor *doctor, int argc, const char *const *argv)
{
	int64_t deadline_ns = lk__now_ns() + doctor->target->command_timeout_ns;
	struct lk__resp *resp = NULL;

	if (!doctor->lost.err)
		lk__conn_call(doctor->conn, deadline_ns, -1, argc, argv, NULL, &resp,
		              &doctor->lost);
	return resp;
}

static void report_lost(struct lk__doctor *doctor, const char *topic)
{
	if (doctor->loss_reported) {
		lk__doctor_report(doctor, LK_FIT_WARN, topic, "",
		                  "cannot tell: the connection was lost");
		return;
	}
	doctor->loss_reported = true;
	lk__doctor_report(doctor, LK_UNFIT, topic,
	                  "find out why it does not respond; a holder must reach it every "
	                  "third of its lease",
	                  "stopped responding: %s", doctor->lost.text);
}

bool lk__doctor_usable(struct lk__doctor *doctor, const char *topic, const char *rule,
                       const struct lk__resp *resp)
{
	char words[FIELD_SIZE], cure[2 * FIELD_SIZE];

	if (!resp) {
		report_lost(doctor, topic);
		return false;
	}
	if (resp->type != LK__RESP_ERROR)
		return true;
	if (lk__resp_error(resp) == LK_EAUTH) {
		snprintf(cure, sizeof(cure), "ACL SETUSER %s %s", doctor->user, rule);
		lk__doctor_report(doctor, LK_FIT_WARN, topic, cure, "cannot tell: grant %s", rule);
		return false;
	}
	lk__escape(words, sizeof(words), resp->str, resp->len);
	lk__doctor_report(doctor, LK_FIT_WARN, topic,
	                  lk__resp_error(resp) == LK_EAGAIN ? "try again later" : "",
	                  "cannot tell: %s", words);
	return false;
}

void lk__doctor_info(const struct lk__doctor *doctor, const char *name, char value[FIELD_SIZE])
{
	size_t len = strlen(name);

	value[0] = '\0';
	if (!doctor->info || !doctor->info->str)
		return;
	for (const char *at = doctor->info->str; at; at = strchr(at, '\n')) {
		at += *at == '\n';
		if (!strncmp(at, name, len) && at[len] == ':') {
			at += len + 1;
			lk__escape(value, FIELD_SIZE, at, strcspn(at, "\r\n"));
			return;
		}
	}
}

int64_t lk__doctor_info_number(const struct lk__doctor *doctor, const char *name)
{
	char value[FIELD_SIZE];
	int64_t number;

	lk__doctor_info(doctor, name, value);
	return lk__parse_i64(value, strlen(value), 0, INT64_MAX, &number) ? number : 0;
}

static bool has_info(struct lk__doctor *doctor, const char *topic)
{
	return lk__doctor_usable(doctor, topic, "+info", doctor->info);
}

/* ---- One function a topic ----------------------------------------------------------------- */

static void check_version(struct lk__doctor *doctor)
{
	char version[FIELD_SIZE], valkey[FIELD_SIZE];
	int64_t number;
	size_t major_len, minor_len;
	int64_t major = 0, minor = 0;

	if (!has_info(doctor, "version"))
		return;
	lk__doctor_info(doctor, "redis_version", version);
	lk__doctor_info(doctor, "valkey_version", valkey);
	major_len = strcspn(version, ".");
	minor_len = version[major_len] ? strcspn(version + major_len + 1, ".") : 0;
	if (lk__parse_i64(version, major_len, 0, 1000000, &number))
		major = number;
	if (minor_len && lk__parse_i64(version + major_len + 1, minor_len, 0, 1000000, &number))
		minor = number;
	if (!version[0])
		lk__doctor_report(doctor, LK_FIT_WARN, "version", "",
		                  "cannot tell: INFO has no redis_version");
	else if (major < 5)
		lk__doctor_report(doctor, LK_UNFIT, "version", "install version 6.2 or newer",
		                  "Redis %s: scripts cannot read the time and then write", version);
	else if (major < 6 || (major == 6 && minor < 2))
		lk__doctor_report(doctor, LK_FIT_WARN, "version", "install version 6.2 or newer",
		                  "Redis %s is out of support", version);
	else if (valkey[0])
		lk__doctor_report(doctor, LK_FIT, "version", "", "Valkey %s", valkey);
	else
		lk__doctor_report(doctor, LK_FIT, "version", "", "Redis %s", version);
}

static int compare_i64(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static void check_latency(struct lk__doctor *doctor)
{
	const char *const argv[] = {"PING"};
	int64_t taken_ns[PINGS];

	for (int i = 0; i < PINGS; i++) {
		int64_t start_ns = lk__now_ns();
		struct lk__resp *resp = lk__doctor_call(doctor, 1, argv);
		bool usable = lk__doctor_usable(doctor, "latency", "+ping", resp);
		taken_ns[i] = lk__now_ns() - start_ns;
		lk__resp_free(resp);
		if (!usable)
			return;
	}
	qsort(taken_ns, PINGS, sizeof(taken_ns[0]), compare_i64);
	if (taken_ns[MEDIAN] > LATENCY_WARN_NS)
		lk__doctor_report(doctor, LK_FIT_WARN, "latency",
		                  "use a nearer or less busy server, or leases of many times that",
		                  "%.0f ms a round trip: each lock and each unlock takes that long",
		                  (double)taken_ns[MEDIAN] / 1e6);
	else
		lk__doctor_report(doctor, LK_FIT, "latency", "", "%.2f ms a round trip",
		                  (double)taken_ns[MEDIAN] / 1e6);
}

static void check_eviction(struct lk__doctor *doctor)
{
	char policy[FIELD_SIZE];
	int64_t limit;

	if (!has_info(doctor, "eviction"))
		return;
	limit = lk__doctor_info_number(doctor, "maxmemory");
	lk__doctor_info(doctor, "maxmemory_policy", policy);
	if (!policy[0])
		lk__doctor_report(doctor, LK_FIT_WARN, "eviction", "",
		                  "cannot tell: INFO has no maxmemory_policy");
	else if (strcmp(policy, "noeviction") != 0)
		lk__doctor_report(doctor, limit ? LK_UNFIT : LK_FIT_WARN, "eviction",
		                  "CONFIG SET maxmemory-policy noeviction",
		                  limit ? "%s at %lld bytes: a full server evicts locks"
		                        : "%s: it would evict locks if maxmemory (%lld) were set",
		                  policy, (long long)limit);
	else if (limit && lk__doctor_info_number(doctor, "used_memory") > limit)
		lk__doctor_report(doctor, LK_UNFIT, "eviction", "CONFIG SET maxmemory BYTES",
		                  "the server is full (%lld bytes): it refuses new locks",
		                  (long long)limit);
	else if (limit)
		lk__doctor_report(doctor, LK_FIT, "eviction", "",
		                  "no key is evicted; a full server (%lld bytes) refuses new "
		                  "locks and keeps those that are held",
		                  (long long)limit);
	else
		lk__doctor_report(doctor, LK_FIT, "eviction", "", "no key is evicted");
}

bool lk__doctor_config(struct lk__doctor *doctor, const char *topic, const char *name,
                       char value[FIELD_SIZE])
{
	const char *const argv[] = {"CONFIG", "GET", name};
	struct lk__resp *resp = lk__doctor_call(doctor, 3, argv);
	bool usable = lk__doctor_usable(doctor, topic, "+config|get", resp);

	value[0] = '\0';
	if (usable && resp->type == LK__RESP_ARRAY && resp->len == 2 && resp->elements[1]->str)
		lk__escape(value, FIELD_SIZE, resp->elements[1]->str, resp->elements[1]->len);
	lk__resp_free(resp);
	return usable;
}

static void check_persistence(struct lk__doctor *doctor)
{
	static const char cure[] = "CONFIG SET appendonly yes, and the same in redis.conf";
	const char *rest = doctor->target->grace_ms
	                           ? "; holders take locks and permits back in the grace, latches "
	                             "and rates are lost"
	                           : "";
	char value[FIELD_SIZE];

	if (!has_info(doctor, "persistence"))
		return;
	if (doctor->target->local) {
		lk__doctor_report(doctor, LK_FIT, "persistence", "",
		                  "none: locks end with the private server");
		return;
	}
	if (lk__doctor_info_number(doctor, "aof_enabled")) {
		lk__doctor_report(
			doctor, LK_FIT, "persistence", "",
			"append-only file: locks, latches and rates survive a restart; if the "
			"machine crashes, the last changes are lost unless appendfsync is always");
		return;
	}
	if (!lk__doctor_config(doctor, "persistence", "save", value))
		return;
	if (value[0])
		lk__doctor_report(
			doctor, LK_FIT_WARN, "persistence", cure,
			"snapshots only (save %s): a crash loses what changed since the last one"
			"%s",
			value, rest);
	else
		lk__doctor_report(doctor, LK_FIT_WARN, "persistence", cure,
		                  "nothing is saved: a restart loses everything%s", rest);
}

#define SILENT_S 2 /* a replica that runs confirms once a second */

/* How many replicas there are that can confirm a grant. */
static int count_online(const struct lk__doctor *doctor)
{
	char name[24], line[FIELD_SIZE];
	const char *lag;
	int online = 0, i = 0;

	do {
		snprintf(name, sizeof(name), "slave%d", i++);
		lk__doctor_info(doctor, name, line);
		lag = strstr(line, "lag=");
		online += strstr(line, "state=online") && lag && atoll(lag + 4) <= SILENT_S;
	} while (line[0]);
	return online;
}

static void judge_confirmers(struct lk__doctor *doctor)
{
	int online = count_online(doctor), needed = (int)doctor->target->replicas;
	long long all = (long long)lk__doctor_all_replicas(doctor);

	if (online < needed)
		lk__doctor_report(doctor, LK_UNFIT, "replicas",
		                  "start the replicas, or lower replicas= in the URL",
		                  "%d of %d replicas are in sync and respond: nothing can be "
		                  "acquired",
		                  online, needed);
	else if (needed >= all)
		lk__doctor_report(doctor, LK_FIT, "replicas", "",
		                  "all %d confirm each grant: a failover forgets no hold, and if "
		                  "one of them fails, nothing can be acquired",
		                  needed);
	else
		lk__doctor_report(doctor, LK_FIT, "replicas", "",
		                  "%d of %lld confirm each grant: a failover to another one "
		                  "forgets what that one had not received",
		                  needed, all);
}

static void check_replicas(struct lk__doctor *doctor)
{
	char role[FIELD_SIZE], host[FIELD_SIZE], cure[3 * FIELD_SIZE];
	long long replicas;

	if (!has_info(doctor, "replicas"))
		return;
	lk__doctor_info(doctor, "role", role);
	lk__doctor_info(doctor, "master_host", host);
	replicas = lk__doctor_info_number(doctor, "connected_slaves");
	if (!strcmp(role, "slave")) {
		snprintf(cure, sizeof(cure), "use its master: %s:%lld%s", host,
		         (long long)lk__doctor_info_number(doctor, "master_port"),
		         doctor->survey || doctor->node ? "" : ", or redis+sentinel://");
		lk__doctor_report(doctor, LK_UNFIT, "replicas", cure,
		                  "a replica: it refuses to write");
	} else if (strcmp(role, "master") != 0) {
		lk__doctor_report(doctor, LK_FIT_WARN, "replicas", "",
		                  "cannot tell: INFO has the role \"%s\"", role);
	} else if (doctor->target->replicas) {
		judge_confirmers(doctor);
	} else if (replicas && (doctor->survey || doctor->node) && doctor->target->grace_ms) {
		lk__doctor_report(
			doctor, LK_FIT, "replicas", "",
			"%lld: after a failover holders take locks and permits back in the grace; "
			"latches and rates lose what the new master had not received",
			replicas);
	} else if (replicas) {
		lk__doctor_report(doctor, LK_FIT_WARN, "replicas",
		                  "make the protected resource refuse smaller fences, or "
		                  "use replicas= in the URL",
		                  "%lld: a failover to one that lags loses the newest locks",
		                  replicas);
	} else {
		lk__doctor_report(doctor, LK_FIT, "replicas", "", "a master without replicas");
	}
}

static void check_patterns(struct lk__doctor *doctor)
{
	const char *const argv[] = {"PUBSUB", "NUMPAT"};
	struct lk__resp *resp = lk__doctor_call(doctor, 2, argv);

	if (lk__doctor_usable(doctor, "patterns", "+pubsub", resp)) {
		if (resp->type == LK__RESP_INTEGER && resp->integer == 0)
			lk__doctor_report(doctor, LK_FIT, "patterns", "",
			                  "no subscriptions by pattern");
		else
			lk__doctor_report(doctor, LK_FIT_WARN, "patterns",
			                  "end them: CLIENT LIST TYPE pubsub shows them by psub=",
			                  "%lld subscriptions by pattern: one that matches %s:c:* "
			                  "counts as a receiver, and dead waiters are not skipped",
			                  (long long)resp->integer, doctor->target->prefix);
	}
	lk__resp_free(resp);
}

static void check_tls(struct lk__doctor *doctor)
{
	static const char renew[] = "renew the server's certificate";
	struct lk__tls_facts facts;

	lk__tls_look(doctor->conn->socket.secure->tls, &facts);
	if (doctor->target->tls_unverified)
		lk__doctor_report(doctor, LK_UNFIT, "tls",
		                  "remove verify=none, and name the CA's file: ca=FILE",
		                  "%s, but the server is not verified: any machine on the way can "
		                  "read and change all",
		                  facts.version);
	else
		lk__doctor_report(doctor,
		                  facts.days_left < CERTIFICATE_WARN_DAYS ? LK_FIT_WARN : LK_FIT,
		                  "tls", facts.days_left < CERTIFICATE_WARN_DAYS ? renew : "",
		                  "%s, %s; the certificate is for %s and valid for %d more days",
		                  facts.version, facts.cipher, facts.name, facts.days_left);
}

/* ---- The whole ---------------------------------------------------------------------------- */

/* A URL of one server that leads to a sentinel: nothing else can be said of it. */
static bool is_sentinel(struct lk__doctor *doctor)
{
	const struct lk__socket *socket = &doctor->conn->socket;
	char mode[FIELD_SIZE], cure[3 * FIELD_SIZE];

	lk__doctor_info(doctor, "redis_mode", mode);
	if (!*mode)
		lk__doctor_info(doctor, "server_mode", mode); /* of Valkey */
	if (strcmp(mode, "sentinel") != 0)
		return false;
	snprintf(cure, sizeof(cure), "write redis%s+sentinel://%s/SERVICE",
	         socket->secure ? "s" : "", socket->text);
	lk__doctor_report(doctor, LK_UNFIT, "reachable", cure, "%s is a sentinel", socket->text);
	return true;
}

void lk__doctor_node_topics(struct lk__doctor *doctor, bool is_master)
{
	if (doctor->target->tls)
		check_tls(doctor);
	check_version(doctor);
	check_latency(doctor);
	check_eviction(doctor);
	if (doctor->target->quorum)
		check_patterns(doctor);
	else
		check_persistence(doctor);
	if (is_master)
		check_replicas(doctor);
}

static void examine_all(struct lk__doctor *doctor)
{
	lk__doctor_report(doctor, LK_FIT, "reachable", "", "%s answers", doctor->conn->socket.text);
	if (doctor->target->tls)
		check_tls(doctor);
	check_version(doctor);
	check_latency(doctor);
	check_eviction(doctor);
	check_persistence(doctor);
	lk__doctor_memory(doctor);
	check_replicas(doctor);
	if (doctor->survey) {
		lk__doctor_sentinels(doctor);
		lk__doctor_failover(doctor);
	}
	lk__doctor_clock(doctor);
	check_patterns(doctor);
	lk__doctor_rights(doctor);
}

static void report_unreachable(struct lk__doctor *doctor, const struct lk__why *why);

static void examine_cluster(struct lk__doctor *doctor)
{
	struct lk__why why;
	lk_err err = lk__doctor_cluster(doctor, &why);

	if (err == LK_ENOMEM || err == LK_ESYSTEM)
		doctor->lost = why;
	else if (err)
		report_unreachable(doctor, &why);
}

static void examine(struct lk__doctor *doctor)
{
	const char *const argv[] = {"INFO"};

	doctor->info = lk__doctor_call(doctor, 1, argv);
	if (!doctor->target->service && lk__doctor_is_cluster(doctor)) {
		lk__resp_free(doctor->info);
		doctor->info = NULL;
		examine_cluster(doctor);
		return;
	}
	if (!is_sentinel(doctor))
		examine_all(doctor);
	lk__resp_free(doctor->info);
	doctor->info = NULL;
}

static void report_unreachable(struct lk__doctor *doctor, const struct lk__why *why)
{
	const char *cure = "start the server, or correct the URL";

	if (why->err == LK_EAUTH)
		cure = doctor->target->tls ? "use a user, a password and a client certificate that "
		                             "the server accepts"
		                           : "use a user and a password that the server accepts";
	else if (why->err == LK_EINVALID)
		cure = "correct the URL, or the file that it names";
	else if (doctor->target->tls && why->err == LK_ESERVER)
		cure = "correct the URL, or the server's certificate";
	else if (why->err == LK_ESERVER)
		cure = "check that a Redis server listens there and has the URL's database";
	else if (why->err == LK_ENOSERVER)
		cure = "install redis-server or valkey-server";
	lk__doctor_report(doctor, LK_UNFIT, "reachable", cure, "%s", why->text);
	for (size_t i = 0; i < TOPIC_COUNT; i++)
		if ((!topics[i].of_tls || doctor->target->tls) &&
		    (!topics[i].of_sentinel || doctor->survey || doctor->cluster))
			lk__doctor_report(doctor, LK_FIT_WARN, topics[i].name, "",
			                  "cannot tell: the server was not reached");
	if (doctor->survey)
		lk__doctor_sentinels(doctor);
}

/* Let the target lead to the master that the sentinels name. */
static lk_err follow(struct lk__target *target, const lk_client_options *options,
                     struct lk__doctor *doctor, struct lk__why *why)
{
	struct lk__place place, named;
	lk_err err;
	char *host;

	doctor->survey = calloc(1, sizeof(*doctor->survey));
	if (!doctor->survey)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	lk__doctor_survey(doctor);
	err = lk__doctor_master(doctor, &named, why);
	if (err)
		return err;
	place = named;
	if (options && options->resolve &&
	    options->resolve(options->resolve_arg, named.host, named.port, place.host, &place.port))
		return lk__why_about(why, LK_ECONN, target->text, "the resolve function failed");
	host = strdup(place.host);
	if (!host)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	lk__target_aim(target, host, place.port);
	return LK_OK;
}

static lk_err reach(struct lk__target *target, const lk_client_options *options,
                    struct lk__doctor *doctor, struct lk__why *why)
{
	int64_t deadline_ns = lk__now_ns() + target->connect_timeout_ns;

	if (target->local) {
		char path[108];
		lk_err err = lk__local_ensure(path, deadline_ns, -1, why);
		if (err)
			return err;
		free(target->socket_path);
		target->socket_path = strdup(path);
		if (!target->socket_path)
			return lk__why_set(why, LK_ENOMEM, "out of memory");
	}
	if (target->service) {
		lk_err err = follow(target, options, doctor, why);
		if (err)
			return err;
		deadline_ns = lk__now_ns() + target->connect_timeout_ns;
	}
	return lk__conn_dial(target, &doctor->tls, deadline_ns, -1, &doctor->conn, NULL, why);
}

lk_err lk__doctor_examine(struct lk__target *target, const lk_client_options *options,
                          lk_finding_fn *fn, void *arg, lk_fitness *worst, struct lk__why *why)
{
	struct lk__doctor doctor = {.target = target, .fn = fn, .arg = arg, .worst = LK_FIT};
	lk_err err = LK_OK;

	snprintf(doctor.user, sizeof(doctor.user), "default");
	if (target->user)
		lk__escape(doctor.user, sizeof(doctor.user), target->user, strlen(target->user));
	if (options) {
		doctor.resolve = options->resolve;
		doctor.resolve_arg = options->resolve_arg;
	}
	if (!target->cluster && !target->quorum)
		err = reach(target, options, &doctor, why);
	if (!err && target->quorum) {
		err = lk__doctor_quorum(&doctor, why);
	} else if (!err) {
		(target->cluster ? examine_cluster : examine)(&doctor);
		*why = doctor.lost;
		err = doctor.lost.err;
	} else if (err != LK_ENOMEM && err != LK_ESYSTEM) {
		report_unreachable(&doctor, why);
	}
	lk__conn_close(doctor.conn);
	lk__tls_unload(&doctor.tls);
	free(doctor.survey);
	free(doctor.cluster);
	if (err == LK_ENOMEM || err == LK_ESYSTEM)
		return err;
	*worst = doctor.worst;
	return LK_OK;
}
