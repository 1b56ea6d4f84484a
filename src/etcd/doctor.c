/* SPDX-License-Identifier: MIT
 * lk_doctor() for etcd: are these members fit for locks?  It leaves nothing in the store, and
 * reports a cure each time. */
#include "doctor.h"

#include "../base/os.h"
#include "../base/text.h"
#include "../net/secure.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SIZE 1024
#define MS INT64_C(1000000)
#define READS 11
#define MEDIAN 5 /* of them, in order */
#define LATENCY_WARN_NS (50 * MS)
#define CERTIFICATE_WARN_DAYS 14

/* ---- Calls and findings --------------------------------------------------------------------- */

void lk__etcd_report(struct lk__etcd_exam *exam, lk_fitness fitness, const char *topic,
                     const char *cure, const char *fmt, ...)
{
	char text[TEXT_SIZE];
	lk_finding finding = {.fitness = fitness, .topic = topic, .text = text, .cure = cure};
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (fitness > exam->worst)
		exam->worst = fitness;
	if (exam->fn)
		exam->fn(exam->arg, &finding);
}

static lk_err ask(struct lk__etcd_exam *exam, struct lk__etcd_peer *peer, const char *path,
                  struct lk__bytes message, struct lk__h2_event *event, struct lk__why *why)
{
	return lk__etcd_await(peer, path, message, lk__now_ns() + exam->target->command_timeout_ns,
	                      -1, event, why);
}

bool lk__etcd_examine(struct lk__etcd_exam *exam, const char *path,
                      const struct lk__pb_writer *message, struct lk__h2_event *event,
                      struct lk__etcd_verdict *verdict)
{
	const struct lk__bytes bytes = {message ? message->data : NULL, message ? message->len : 0};
	struct lk__why why;

	*verdict = (struct lk__etcd_verdict){LK__ETCD_AMBIGUOUS, false};
	if (exam->is_lost || (message && message->is_full))
		return false;
	exam->is_lost = ask(exam, exam->peer, path, bytes, event, &why) != LK_OK;
	if (exam->is_lost)
		return false;
	*verdict = lk__etcd_judge(event);
	return true;
}

/* ---- Members -------------------------------------------------------------------------------- */

static bool has(struct lk__bytes text, const char *word)
{
	return memmem(text.data, text.len, word, strlen(word));
}

static void read_status(struct lk__etcd_examined *member, const struct lk__h2_event *event)
{
	struct lk__etcd_status_answer status;
	struct lk__bytes error;

	if (!lk__pb_read(&lk__etcd_status_shape, event->message.data, event->message.len,
	                 &status)) {
		lk__why_about(&member->why, LK_ESERVER, member->text, "malformed answer");
		return;
	}
	member->is_known = true;
	lk__escape(member->version, sizeof(member->version), status.version.data,
	           status.version.len);
	member->cluster_id = status.header.cluster_id;
	member->id = status.header.member_id;
	member->leader = status.leader;
	member->revision = status.header.revision;
	member->size = status.db_size;
	member->quota = status.db_size_quota;
	member->is_learner = status.is_learner;
	while (lk__pb_next(&status.errors, &error)) {
		member->is_full |= has(error, "NOSPACE");
		member->is_corrupt |= has(error, "CORRUPT");
	}
}

static void reach(struct lk__etcd_exam *exam, struct lk__etcd_examined *member,
                  const struct lk__endpoint *seed)
{
	int64_t deadline_ns = lk__now_ns() + exam->target->connect_timeout_ns;
	struct lk__target target = *exam->target;
	char place[LK__PLACE_SIZE];
	struct lk__h2_event event;

	lk__place_write(place, sizeof(place), seed->host, seed->port);
	lk__escape(member->text, sizeof(member->text), place, strlen(place));
	target.tls_protocol = "h2";
	lk__target_aim(&target, seed->host, seed->port);
	if (lk__etcd_reach(&exam->etcd, &target, deadline_ns, &member->peer, &member->why))
		return;
	if (ask(exam, member->peer, "/etcdserverpb.Maintenance/Status", (struct lk__bytes){0},
	        &event, &member->why))
		return;
	if (lk__etcd_judge(&event).meaning)
		lk__why_about(&member->why, LK_EAUTH, member->text, "%s", event.text);
	else
		read_status(member, &event);
}

static void choose(struct lk__etcd_exam *exam)
{
	for (int i = 0; i < exam->count && !exam->peer; i++) {
		const struct lk__etcd_examined *member = &exam->members[i];
		if (member->is_known && member->leader && !member->is_learner) {
			exam->peer = member->peer;
			exam->revision = member->revision;
		}
	}
}

const char *lk__etcd_doctor_user(const struct lk__etcd_exam *exam)
{
	const struct lk__target *target = exam->target;

	if (target->user)
		return target->tls ? "use a user, a password and a client certificate that the "
		                     "members accept"
		                   : "use a user and a password that the members accept";
	return target->tls ? "name a user and a password (etcds://USER:PASSWORD@HOST), or a "
	                     "client certificate (cert=FILE&key=FILE), that the members accept"
	                   : "name a user and a password (etcd://USER:PASSWORD@HOST), or use "
	                     "etcds:// with a client certificate";
}

static const char *cure_of(const struct lk__etcd_exam *exam, const struct lk__why *why)
{
	if (strstr(why->text, "authentication is not enabled"))
		return "leave user and password out of the URL, or etcdctl auth enable";
	if (why->err == LK_EAUTH)
		return lk__etcd_doctor_user(exam);
	if (why->err == LK_EINVALID)
		return "correct the URL, or the file that it names";
	if (exam->target->tls && why->err == LK_ESERVER)
		return "correct the URL, or the member's certificate";
	if (why->err == LK_ESERVER)
		return "check that an etcd 3 listens there for clients";
	return "start the member, or correct the URL";
}

struct lk__bytes lk__etcd_doctor_key(const struct lk__etcd_exam *exam, char key[LK__ETCD_OWN_MAX])
{
	snprintf(key, LK__ETCD_OWN_MAX, "%s/L/", exam->target->prefix);
	return lk__bytes_of(key);
}

static void check_reachable(struct lk__etcd_exam *exam)
{
	int known = 0;

	for (int i = 0; i < exam->count; i++)
		known += exam->members[i].is_known;
	for (int i = 0; i < exam->count; i++) {
		const struct lk__etcd_examined *member = &exam->members[i];
		if (member->is_known)
			lk__etcd_report(exam, LK_FIT, "reachable", "", "%s answers", member->text);
		else
			lk__etcd_report(exam, known ? LK_FIT_WARN : LK_UNFIT, "reachable",
			                cure_of(exam, &member->why), "%s", member->why.text);
	}
}

static void check_version(struct lk__etcd_exam *exam)
{
	for (int i = 0; i < exam->count; i++) {
		const struct lk__etcd_examined *member = &exam->members[i];
		if (!member->is_known)
			continue;
		if (lk__etcd_is_old(member->version))
			lk__etcd_report(
				exam, LK_UNFIT, "version",
				"install 3.5.13 or later (of 3.4: 3.4.31 or later)",
				"%s: etcd %s may end a renewed lease early after its leader "
				"stood still: two may hold a lock",
				member->text, member->version);
		else
			lk__etcd_report(exam, LK_FIT, "version", "", "%s: etcd %s", member->text,
			                member->version);
	}
}

static void check_leader(struct lk__etcd_exam *exam)
{
	const struct lk__etcd_examined *first = NULL;
	const char *leader = "a member that the URL does not name";

	for (int i = 0; i < exam->count; i++) {
		const struct lk__etcd_examined *member = &exam->members[i];
		if (!member->is_known)
			continue;
		if (!first)
			first = member;
		if (member->cluster_id != first->cluster_id)
			lk__etcd_report(exam, LK_UNFIT, "leader", "name members of one cluster",
			                "%s and %s are of different clusters: locks on one do not "
			                "exclude those on the other",
			                first->text, member->text);
		if (member->is_learner)
			lk__etcd_report(exam, LK_FIT_WARN, "leader",
			                "promote it, or leave it out of the URL",
			                "%s is a learner: it serves no locks", member->text);
		else if (!member->leader)
			lk__etcd_report(exam, exam->peer ? LK_FIT_WARN : LK_UNFIT, "leader",
			                "start a majority of the members, and let them reach each "
			                "other",
			                "%s has no leader: nothing can be acquired there",
			                member->text);
		if (member->leader == member->id)
			leader = member->text;
	}
	if (exam->peer)
		lk__etcd_report(exam, LK_FIT, "leader", "", "%s leads", leader);
}

static void check_members(struct lk__etcd_exam *exam)
{
	struct lk__etcd_member_list_answer list;
	struct lk__etcd_verdict verdict;
	struct lk__etcd_member member;
	struct lk__h2_event event;
	int voters = 0;

	if (!lk__etcd_examine(exam, "/etcdserverpb.Cluster/MemberList", NULL, &event, &verdict) ||
	    verdict.meaning ||
	    !lk__pb_read(&lk__etcd_member_list_shape, event.message.data, event.message.len,
	                 &list)) {
		lk__etcd_report(exam, LK_FIT_WARN, "members", "", "cannot tell: no list");
		return;
	}
	while (lk__pb_next(&list.members, &member))
		voters += !member.is_learner;
	if (voters < 3)
		lk__etcd_report(exam, LK_FIT_WARN, "members", "run three or five members",
		                "%d: if one fails, nothing can be acquired", voters);
	else if (exam->count < voters)
		lk__etcd_report(exam, LK_FIT_WARN, "members", "name all of them in the URL",
		                "%d, of which the URL names %d", voters, exam->count);
	else
		lk__etcd_report(exam, LK_FIT, "members", "", "%d: %d may fail", voters,
		                (voters - 1) / 2);
}

static int compare_i64(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

static void check_latency(struct lk__etcd_exam *exam)
{
	char key[LK__ETCD_OWN_MAX], bytes[LK__ETCD_OWN_MAX + 64];
	const struct lk__etcd_range range = {.key = lk__etcd_doctor_key(exam, key),
	                                     .count_only = true};
	struct lk__etcd_verdict verdict;
	struct lk__h2_event event;
	struct lk__pb_writer writer;
	int64_t taken_ns[READS];

	for (int i = 0; i < READS; i++) {
		int64_t start_ns = lk__now_ns();
		lk__pb_writer_init(&writer, bytes, sizeof(bytes));
		lk__etcd_put_range(&writer, &range);
		if (!lk__etcd_examine(exam, "/etcdserverpb.KV/Range", &writer, &event, &verdict)) {
			lk__etcd_report(exam, LK_FIT_WARN, "latency", "",
			                "cannot tell: the connection was lost");
			return;
		}
		taken_ns[i] = lk__now_ns() - start_ns;
	}
	qsort(taken_ns, READS, sizeof(taken_ns[0]), compare_i64);
	lk__etcd_report(exam, taken_ns[MEDIAN] > LATENCY_WARN_NS ? LK_FIT_WARN : LK_FIT, "latency",
	                taken_ns[MEDIAN] > LATENCY_WARN_NS
	                        ? "use nearer or less busy members, or leases of many times that"
	                        : "",
	                "%.2f ms a read that the leader confirms",
	                (double)taken_ns[MEDIAN] / (double)MS);
}

static void check_certificate(struct lk__etcd_exam *exam, const struct lk__etcd_examined *member)
{
	struct lk__tls_facts facts;
	bool is_late;

	lk__tls_look(member->peer->socket.secure->tls, &facts);
	is_late = facts.days_left < CERTIFICATE_WARN_DAYS;
	lk__etcd_report(exam, is_late ? LK_FIT_WARN : LK_FIT, "tls",
	                is_late ? "renew the member's certificate" : "",
	                "%s: %s, %s; the certificate is for %s and valid for %d more days",
	                member->text, facts.version, facts.cipher, facts.name, facts.days_left);
}

static void check_tls(struct lk__etcd_exam *exam)
{
	if (exam->target->tls_unverified) {
		lk__etcd_report(exam, LK_UNFIT, "tls",
		                "remove verify=none, and name the CA's file: ca=FILE",
		                "the members are not verified: any machine on the way can read and "
		                "change all");
		return;
	}
	for (int i = 0; i < exam->count; i++)
		if (exam->members[i].is_known)
			check_certificate(exam, &exam->members[i]);
}

/* ---- The whole ------------------------------------------------------------------------------ */

static void examine(struct lk__etcd_exam *exam)
{
	static const char *const rest[] = {"version", "leader", "members", "latency",
	                                   "space",   "rights", "tickets"};
	size_t known = 0; /* topics that were reported */

	check_reachable(exam);
	check_version(exam);
	choose(exam);
	check_leader(exam);
	for (int i = 0; i < exam->count; i++)
		known = exam->members[i].is_known ? 2 : known;
	if (!exam->peer) {
		for (size_t i = known; i < sizeof(rest) / sizeof(*rest); i++)
			lk__etcd_report(exam, LK_FIT_WARN, rest[i], "",
			                "cannot tell: no member with a leader was reached");
		return;
	}
	if (exam->target->tls)
		check_tls(exam);
	check_members(exam);
	check_latency(exam);
	lk__etcd_doctor_space(exam);
	lk__etcd_doctor_rights(exam);
	lk__etcd_doctor_tickets(exam);
}

lk_err lk__etcd_doctor(struct lk__target *target, const lk_client_options *options,
                       lk_finding_fn *fn, void *arg, lk_fitness *worst, struct lk__why *why)
{
	struct lk__etcd_exam *exam = calloc(1, sizeof(*exam));

	(void)options;
	if (!exam)
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	exam->target = target;
	exam->etcd.target = target;
	exam->fn = fn;
	exam->arg = arg;
	exam->count = target->seed_count;
	for (int i = 0; i < exam->count; i++)
		reach(exam, &exam->members[i], &target->seeds[i]);
	examine(exam);
	*worst = exam->worst;
	for (int i = 0; i < exam->count; i++)
		if (exam->members[i].peer)
			lk__etcd_free(exam->members[i].peer);
	lk__tls_unload(&exam->etcd.tls);
	free(exam);
	return LK_OK;
}
