/* SPDX-License-Identifier: MIT
 * lk_doctor() for etcd: what all members have in common, the store.  See doctor.h. */
#include "doctor.h"

#include "keys.h"

#include "../base/text.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
#define DEFAULT_QUOTA (INT64_C(2) << 30)
#define AUTO_COMPACTION "--auto-compaction-mode=periodic --auto-compaction-retention=5m"
#define TICKETS_MAX 1000
#define LEASES_MAX 100
#define AGAIN_MS 1000 /* a lease that has ended is revoked meanwhile */
#define LEASE_S 5     /* of the one that is tried */

int64_t lk__etcd_revisions_max = 1000000;

/* ---- Space ---------------------------------------------------------------------------------- */

/* Can the store be read as it was then? */
static bool is_kept(struct lk__etcd_exam *exam, int64_t revision)
{
	char key[LK__ETCD_OWN_MAX], bytes[LK__ETCD_OWN_MAX + 64];
	struct lk__etcd_range range = {.revision = revision, .count_only = true};
	struct lk__etcd_verdict verdict;
	struct lk__h2_event event;
	struct lk__pb_writer writer;

	range.key = lk__etcd_doctor_key(exam, key);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_range(&writer, &range);
	return lk__etcd_examine(exam, "/etcdserverpb.KV/Range", &writer, &event, &verdict) &&
	       verdict.meaning == LK__ETCD_DONE;
}

/* False if the member has space. */
static bool lacks_space(struct lk__etcd_exam *exam, const struct lk__etcd_examined *member)
{
	if (member->is_full)
		lk__etcd_report(
			exam, LK_UNFIT, "space",
			"etcdctl compact, defrag, then alarm disarm; start it with "
			"" AUTO_COMPACTION,
			"%s: no space is left: nothing can be acquired or extended, only renewed "
			"and released",
			member->text);
	else if (member->is_corrupt)
		lk__etcd_report(exam, LK_UNFIT, "space", "restore the member",
		                "%s: its data is corrupt", member->text);
	else if (member->quota && member->size > member->quota / 2)
		lk__etcd_report(exam, LK_UNFIT, "space",
		                "start it with " AUTO_COMPACTION ", and etcdctl defrag; or raise "
		                "--quota-backend-bytes",
		                "%s: %.1f of %.1f MiB are used: at the limit nothing can be "
		                "acquired",
		                member->text, (double)member->size / MIB,
		                (double)member->quota / MIB);
	else if (!member->quota && member->size > DEFAULT_QUOTA / 2)
		lk__etcd_report(exam, LK_FIT_WARN, "space",
		                "start it with " AUTO_COMPACTION ", and etcdctl defrag",
		                "%s: %.0f MiB are used; its limit is not known, and 2048 MiB by "
		                "default",
		                member->text, (double)member->size / MIB);
	else
		return false;
	return true;
}

void lk__etcd_doctor_space(struct lk__etcd_exam *exam)
{
	int64_t largest = 0;
	bool lacking = false;

	for (int i = 0; i < exam->count; i++) {
		const struct lk__etcd_examined *member = &exam->members[i];
		if (!member->is_known)
			continue;
		lacking |= lacks_space(exam, member);
		if (member->size > largest)
			largest = member->size;
	}
	if (exam->revision > lk__etcd_revisions_max &&
	    is_kept(exam, exam->revision - lk__etcd_revisions_max))
		lk__etcd_report(exam, LK_FIT_WARN, "space", "start etcd with " AUTO_COMPACTION,
		                "more than %lld revisions are kept: without compaction they fill "
		                "the space",
		                (long long)lk__etcd_revisions_max);
	else if (!lacking)
		lk__etcd_report(exam, LK_FIT, "space", "", "%.1f MiB are used",
		                (double)largest / MIB);
}

/* ---- Rights --------------------------------------------------------------------------------- */

/* Keys that clients read, or write as well. */
static const struct {
	const char *from, *to, *what;
	bool is_written, is_needed;
} rights[] = {
	{"/A", "/[", "the kinds of names", false, true},
	{"/L/", "/L0", "tickets of locks", true, true},
	{"/D", "/E", "latches", true, false},
	{"/S", "/T", "semaphores", true, false},
	{"/c/", "/c0", "mailboxes", true, true},
	{"/e/", "/e0", "eras", true, true},
	{"/i/", "/i0", "details of clients", true, false},
};

/* A transaction that reads, and would write if its comparison were ever true: etcd asks for the
 * rights to both.  What became of it. */
static enum lk__etcd_meaning try_right(struct lk__etcd_exam *exam, size_t right,
                                       struct lk__h2_event *event)
{
	char from[LK__ETCD_OWN_MAX], to[LK__ETCD_OWN_MAX], bytes[512];
	struct lk__etcd_range range = {.limit = 1, .keys_only = true};
	struct lk__etcd_delete del = {0};
	const struct lk__etcd_op write = {.del = &del}, read = {.range = &range};
	struct lk__etcd_compare never = {.result = LK__ETCD_LESS, .target = LK__ETCD_VERSION};
	const struct lk__etcd_txn txn = {
		.compares = &never,
		.compare_count = 1,
		.success = &write,
		.success_count = rights[right].is_written,
		.failure = &read,
		.failure_count = 1,
	};
	struct lk__etcd_verdict verdict;
	struct lk__pb_writer writer;

	snprintf(from, sizeof(from), "%s%s", exam->target->prefix, rights[right].from);
	snprintf(to, sizeof(to), "%s%s", exam->target->prefix, rights[right].to);
	never.key = range.key = del.key = lk__bytes_of(from);
	range.range_end = del.range_end = lk__bytes_of(to);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_txn(&writer, &txn);
	event->text = "the connection was lost";
	lk__etcd_examine(exam, "/etcdserverpb.KV/Txn", &writer, event, &verdict);
	return verdict.meaning;
}

/* Grant a lease and revoke it. */
static enum lk__etcd_meaning try_lease(struct lk__etcd_exam *exam, struct lk__h2_event *event)
{
	const struct lk__etcd_lease_grant grant = {.ttl_s = LEASE_S};
	struct lk__etcd_lease_grant_answer answer;
	struct lk__etcd_verdict verdict, revoked;
	struct lk__pb_writer writer;
	char bytes[64];

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_lease_grant(&writer, &grant);
	event->text = "the connection was lost";
	lk__etcd_examine(exam, "/etcdserverpb.Lease/LeaseGrant", &writer, event, &verdict);
	if (verdict.meaning || !lk__pb_read(&lk__etcd_lease_grant_shape, event->message.data,
	                                    event->message.len, &answer))
		return verdict.meaning;
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_lease_revoke(&writer, answer.id);
	lk__etcd_examine(exam, "/etcdserverpb.Lease/LeaseRevoke", &writer, event, &revoked);
	return revoked.meaning;
}

static bool report_right(struct lk__etcd_exam *exam, enum lk__etcd_meaning meaning,
                         const struct lk__h2_event *event, const char *what, bool is_needed)
{
	char cure[200];

	if (meaning == LK__ETCD_DONE)
		return true;
	if (strstr(event->text, LK__ETCD_NO_USER)) {
		lk__etcd_report(exam, LK_UNFIT, "rights", lk__etcd_doctor_user(exam),
		                "etcd demands a user: %s", event->text);
		return false;
	}
	snprintf(cure, sizeof(cure),
	         "etcdctl role grant-permission ROLE readwrite --prefix=true %s/",
	         exam->target->prefix);
	if (meaning == LK__ETCD_DENIED || meaning == LK__ETCD_LOGIN)
		lk__etcd_report(exam, is_needed ? LK_UNFIT : LK_FIT_WARN, "rights", cure, "%s: %s",
		                what, event->text);
	else
		lk__etcd_report(exam, LK_FIT_WARN, "rights", "", "cannot tell: %s: %s", what,
		                event->text);
	return false;
}

void lk__etcd_doctor_rights(struct lk__etcd_exam *exam)
{
	struct lk__h2_event event = {0};
	enum lk__etcd_meaning meaning;
	bool has_all = true;

	for (size_t i = 0; i < sizeof(rights) / sizeof(*rights) && !exam->is_lost; i++) {
		meaning = try_right(exam, i, &event);
		has_all &= report_right(exam, meaning, &event, rights[i].what, rights[i].is_needed);
		if (strstr(event.text, LK__ETCD_NO_USER))
			return; /* as for each of them */
	}
	meaning = try_lease(exam, &event);
	has_all &= report_right(exam, meaning, &event, "leases", true);
	if (has_all)
		lk__etcd_report(exam, LK_FIT, "rights", "",
		                "sufficient: keys below %s/ can be read, written and watched, and "
		                "leases granted",
		                exam->target->prefix);
}

/* ---- Tickets -------------------------------------------------------------------------------- */

/* Which keys have to end with their clients.  Steps of a latch may have no lease. */
static const struct {
	char kind;
	bool has_tickets; /* <kind>/<name>/...: each under a lease */
} kinds[] = {
	{LK__ETCD_LATCH, false},
	{LK__ETCD_LOCK, true},
	{LK__ETCD_SEMAPHORE, true},
};

struct tickets {
	int64_t count;                /* of tickets */
	int looked_at;                /* of them */
	int ended;                    /* keys that never end: they have no lease, or it has ended */
	char first[LK__ETCD_KEY_MAX]; /* one of these, escaped */
	bool is_plain;                /* first can be written in a command */
	int lease_count;
	int64_t leases[LEASES_MAX]; /* that live */
};

/* Does the store know the lease?  Also if nothing is known. */
static bool lives(struct lk__etcd_exam *exam, int64_t lease)
{
	struct lk__etcd_time_to_live_answer answer;
	struct lk__etcd_verdict verdict;
	struct lk__h2_event event;
	struct lk__pb_writer writer;
	char bytes[32];

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_time_to_live(&writer, lease);
	if (!lk__etcd_examine(exam, "/etcdserverpb.Lease/LeaseTimeToLive", &writer, &event,
	                      &verdict) ||
	    verdict.meaning ||
	    !lk__pb_read(&lk__etcd_time_to_live_shape, event.message.data, event.message.len,
	                 &answer))
		return true;
	return answer.ttl_s >= 0;
}

static void note_ended(struct tickets *tickets, struct lk__bytes key)
{
	const char *text = key.data;

	if (tickets->ended++)
		return;
	lk__escape(tickets->first, sizeof(tickets->first), text, key.len);
	tickets->is_plain = key.len < sizeof(tickets->first);
	for (size_t i = 0; i < key.len; i++)
		tickets->is_plain &= text[i] > ' ' && text[i] < 0x7f && !strchr("'\\", text[i]);
}

/* Look at a key, unless its lease would be one too many. */
static void look_at(struct lk__etcd_exam *exam, struct tickets *tickets,
                    const struct lk__etcd_kv *kv, bool is_ticket)
{
	int known = 0;

	if (!kv->lease && !is_ticket)
		return;
	while (known < tickets->lease_count && tickets->leases[known] != kv->lease)
		known++;
	if (kv->lease && known == LEASES_MAX)
		return;
	tickets->looked_at += is_ticket;
	if (!kv->lease || (known == tickets->lease_count && !lives(exam, kv->lease)))
		note_ended(tickets, kv->key);
	else if (known == tickets->lease_count)
		tickets->leases[tickets->lease_count++] = kv->lease;
}

/* Count the tickets of a kind, and look at the first keys; false when they cannot be read. */
static bool count_kind(struct lk__etcd_exam *exam, size_t kind, struct tickets *tickets)
{
	char from[LK__ETCD_OWN_MAX], to[LK__ETCD_OWN_MAX], bytes[256];
	const char *tail = kinds[kind].has_tickets ? "/" : "";
	struct lk__etcd_range range = {.limit = TICKETS_MAX, .keys_only = true};
	struct lk__etcd_range_answer answer;
	struct lk__etcd_verdict verdict;
	struct lk__buf copy = {0};
	struct lk__h2_event event;
	struct lk__pb_writer writer;
	struct lk__etcd_kv kv;
	int len;

	len = snprintf(from, sizeof(from), "%s/%c%s", exam->target->prefix, kinds[kind].kind, tail);
	memcpy(to, from, sizeof(to));
	lk__etcd_range_end(to, (size_t)len);
	range.key = lk__bytes_of(from);
	range.range_end = lk__bytes_of(to);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_range(&writer, &range);
	if (!lk__etcd_examine(exam, "/etcdserverpb.KV/Range", &writer, &event, &verdict) ||
	    verdict.meaning || !lk__grpc_append(&copy, event.message.data, event.message.len) ||
	    !lk__pb_read(&lk__etcd_range_shape, copy.data, copy.len, &answer)) {
		lk__buf_fini(&copy);
		return false;
	}
	if (kinds[kind].has_tickets)
		tickets->count += answer.count;
	while (lk__pb_next(&answer.kvs, &kv))
		look_at(exam, tickets, &kv, kinds[kind].has_tickets);
	lk__buf_fini(&copy);
	return true;
}

static bool count_tickets(struct lk__etcd_exam *exam, struct tickets *tickets)
{
	*tickets = (struct tickets){0};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!count_kind(exam, i, tickets) && kinds[i].kind == LK__ETCD_LOCK)
			return false;
	return !exam->is_lost;
}

static void report_ended(struct lk__etcd_exam *exam, const struct tickets *tickets)
{
	char cure[LK__ETCD_KEY_MAX + 100] = "etcdctl del KEY, unless its owner lives";

	if (tickets->is_plain)
		snprintf(cure, sizeof(cure), "etcdctl del '%s', unless its owner lives",
		         tickets->first);
	lk__etcd_report(exam, LK_FIT_WARN, "tickets", cure,
	                "%d without a lease that lives, the first is %s: they never end by "
	                "themselves, so each holds its name, or keeps others waiting, for ever",
	                tickets->ended, tickets->first);
}

void lk__etcd_doctor_tickets(struct lk__etcd_exam *exam)
{
	struct tickets tickets;
	bool is_read = count_tickets(exam, &tickets);

	if (is_read && tickets.ended) {
		poll(NULL, 0, AGAIN_MS);
		is_read = count_tickets(exam, &tickets);
	}
	if (!is_read)
		lk__etcd_report(exam, LK_FIT_WARN, "tickets", "",
		                "cannot tell: they cannot be read");
	else if (tickets.ended)
		report_ended(exam, &tickets);
	else if (tickets.looked_at < tickets.count)
		lk__etcd_report(exam, LK_FIT, "tickets", "",
		                "%lld, of which %d were examined, each under a lease that lives",
		                (long long)tickets.count, tickets.looked_at);
	else
		lk__etcd_report(exam, LK_FIT, "tickets", "", "%d, each under a lease that lives",
		                tickets.looked_at);
}
