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
	const struct lk__etcd_range range = {
		.key = lk__bytes_of("revision"), .revision = revision, .count_only = true};
	struct lk__etcd_verdict verdict;
	struct lk__h2_event event;
	struct lk__pb_writer writer;
	char bytes[64];

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_range(&writer, &range);
	return lk__etcd_examine(exam, "/etcdserverpb.KV/Range", &writer, &event, &verdict) &&
	       verdict.meaning == LK__ETCD_DONE;
}

/* False if the member has space. */
static bool lacks_space(struct lk__etcd_exam *exam, const struct lk__etcd_examined *member)
{
	if (member->is_full)
		lk__etcd_report(exam, LK_UNFIT, "space",
		                "etcdctl compact, defrag, then alarm disarm; start it with "
		                "" AUTO_COMPACTION,
		                "%s: no space is left: nothing can be acquired", member->text);
	else if (member->is_corrupt)
		lk__etcd_report(exam, LK_UNFIT, "space", "restore the member",
		                "%s: its data is corrupt", member->text);
	else if (member->quota && member->size > member->quota / 2)
		lk__etcd_report(exam, LK_UNFIT, "space",
		                "start it with " AUTO_COMPACTION ", and etcdctl defrag; or raise "
		                "--quota-backend-bytes",
		                "%s: %.0f of %.0f MiB are used: at the limit nothing can be "
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

struct tickets {
	int count, ended; /* ended: they never end, for their leases have */
	char first[200];  /* the name of one of these */
};

/* Does the store know the lease?  Also if nothing is known. */
static bool lives(struct lk__etcd_exam *exam, int64_t lease)
{
	struct lk__etcd_time_to_live_answer answer;
	struct lk__etcd_verdict verdict;
	struct lk__h2_event event;
	struct lk__pb_writer writer;
	char bytes[32];

	if (!lease)
		return false;
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

static void note_ended(struct lk__etcd_exam *exam, struct tickets *tickets, struct lk__bytes key)
{
	size_t head = strlen(exam->target->prefix) + strlen("/L/");
	const char *text = (const char *)key.data + head;
	const char *slash = key.len > head ? memchr(text, '/', key.len - head) : NULL;
	char name[LK__ETCD_NAME_MAX + 1];
	size_t len;

	if (!tickets->ended++ && slash && slash - text <= LK__ETCD_NAME_MAX &&
	    lk__etcd_read_name(name, &len, text, (size_t)(slash - text)))
		lk__escape(tickets->first, sizeof(tickets->first), name, len);
}

/* Count the first tickets, and look at some of their leases; false when they cannot be read. */
static bool count_tickets(struct lk__etcd_exam *exam, struct tickets *tickets)
{
	char from[LK__ETCD_OWN_MAX], to[LK__ETCD_OWN_MAX], bytes[256];
	struct lk__etcd_range range = {.limit = TICKETS_MAX, .keys_only = true};
	struct lk__etcd_range_answer answer;
	struct lk__etcd_verdict verdict;
	struct lk__buf copy = {0};
	struct lk__h2_event event;
	struct lk__pb_writer writer;
	int64_t last = 0;
	int looks = 0;
	struct lk__etcd_kv kv;

	*tickets = (struct tickets){0};
	snprintf(from, sizeof(from), "%s/L/", exam->target->prefix);
	snprintf(to, sizeof(to), "%s/L0", exam->target->prefix);
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
	tickets->count = (int)answer.count;
	while (lk__pb_next(&answer.kvs, &kv)) {
		if (kv.lease && (kv.lease == last || ++looks > LEASES_MAX))
			continue;
		if (lives(exam, kv.lease))
			last = kv.lease;
		else
			note_ended(exam, tickets, kv.key);
	}
	lk__buf_fini(&copy);
	return true;
}

void lk__etcd_doctor_tickets(struct lk__etcd_exam *exam)
{
	struct tickets tickets;
	char cure[300];
	bool is_read = count_tickets(exam, &tickets);

	if (is_read && tickets.ended) {
		poll(NULL, 0, AGAIN_MS);
		is_read = count_tickets(exam, &tickets);
	}
	if (!is_read) {
		lk__etcd_report(exam, LK_FIT_WARN, "tickets", "",
		                "cannot tell: they cannot be read");
		return;
	}
	snprintf(cure, sizeof(cure), "latchkey break '%s', unless its holder lives", tickets.first);
	if (tickets.ended)
		lk__etcd_report(exam, LK_FIT_WARN, "tickets", cure,
		                "%d of %d, one of \"%s\", have no lease: they hold their locks, or "
		                "keep others waiting, for ever",
		                tickets.ended, tickets.count, tickets.first);
	else
		lk__etcd_report(exam, LK_FIT, "tickets", "", "%d, each under a lease that lives",
		                tickets.count);
}
