/* SPDX-License-Identifier: MIT
 * Shows etcd's answers as texts: see etcd_script.h. */
#include "etcd_script_parts.h"

#include <inttypes.h>

static void malformed(struct script_run *run)
{
	fputs("malformed\n", run->out);
}

/* 0 is shown as it is: not there. */
static void show_revision(struct script_run *run, const char *before, int64_t revision)
{
	if (revision)
		fprintf(run->out, "%s%+" PRId64, before, revision - run->base);
	else
		fprintf(run->out, "%s0", before);
}

static void show_lease(struct script_run *run, int64_t lease)
{
	int64_t number = lease - run->first_lease;

	if (number > 0 && number < 10)
		fprintf(run->out, " L%" PRId64, number);
	else
		fprintf(run->out, " lease %" PRId64, lease);
}

/* "a=1 (created, modified, version)" */
static void show_kv(struct script_run *run, const struct lk__etcd_kv *kv)
{
	fprintf(run->out, " %.*s=%.*s (", (int)kv->key.len, (const char *)kv->key.data,
	        (int)kv->value.len, (const char *)kv->value.data);
	show_revision(run, "", kv->create_revision);
	show_revision(run, " ", kv->mod_revision);
	fprintf(run->out, " %" PRId64 ")", kv->version);
	if (kv->lease)
		show_lease(run, kv->lease);
}

static void show_range(struct script_run *run, const struct lk__etcd_range_answer *answer)
{
	struct lk__pb_list kvs = answer->kvs;
	struct lk__etcd_kv kv;

	show_revision(run, "", answer->header.revision);
	fprintf(run->out, " count %" PRId64 "%s", answer->count, answer->more ? " more" : "");
	while (lk__pb_next(&kvs, &kv))
		show_kv(run, &kv);
}

static void show_put(struct script_run *run, const struct lk__etcd_put_answer *answer)
{
	show_revision(run, "", answer->header.revision);
	if (answer->has_prev_kv)
		show_kv(run, &answer->prev_kv);
}

static void show_delete(struct script_run *run, const struct lk__etcd_delete_answer *answer)
{
	struct lk__pb_list kvs = answer->prev_kvs;
	struct lk__etcd_kv kv;

	show_revision(run, "", answer->header.revision);
	fprintf(run->out, " deleted %" PRId64, answer->deleted);
	while (lk__pb_next(&kvs, &kv))
		show_kv(run, &kv);
}

#define READ(shape, answer, out) lk__pb_read(&(shape), (answer).data, (answer).len, out)

void script_show_range(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_range_answer range;

	if (!READ(lk__etcd_range_shape, answer, &range)) {
		malformed(run);
		return;
	}
	show_range(run, &range);
	fputc('\n', run->out);
}

void script_show_put(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_put_answer put;

	if (!READ(lk__etcd_put_shape, answer, &put)) {
		malformed(run);
		return;
	}
	show_put(run, &put);
	fputc('\n', run->out);
}

void script_show_delete(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_delete_answer del;

	if (!READ(lk__etcd_delete_shape, answer, &del)) {
		malformed(run);
		return;
	}
	show_delete(run, &del);
	fputc('\n', run->out);
}

void script_show_txn(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_txn_answer txn;
	struct lk__etcd_op_answer op;

	if (!READ(lk__etcd_txn_shape, answer, &txn)) {
		malformed(run);
		return;
	}
	show_revision(run, txn.succeeded ? "then " : "else ", txn.header.revision);
	while (lk__pb_next(&txn.responses, &op)) {
		fputs(" | ", run->out);
		if (op.has_range)
			show_range(run, &op.range);
		if (op.has_put)
			show_put(run, &op.put);
		if (op.has_del)
			show_delete(run, &op.del);
	}
	fputc('\n', run->out);
}

/* Each answer that is no more than a header has the shape of LeaseRevoke's. */
void script_show_header(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_lease_revoke_answer header;

	if (!READ(lk__etcd_lease_revoke_shape, answer, &header)) {
		malformed(run);
		return;
	}
	show_revision(run, "", header.header.revision);
	fputc('\n', run->out);
}

void script_show_grant(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_lease_grant_answer grant;

	if (!READ(lk__etcd_lease_grant_shape, answer, &grant)) {
		malformed(run);
		return;
	}
	show_revision(run, "", grant.header.revision);
	show_lease(run, grant.id);
	fprintf(run->out, " ttl %" PRId64 "%.*s\n", grant.ttl_s, (int)grant.error.len,
	        (const char *)grant.error.data);
}

void script_show_keep_alive(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_keep_alive_answer alive;

	if (!READ(lk__etcd_keep_alive_shape, answer, &alive)) {
		malformed(run);
		return;
	}
	show_revision(run, "", alive.header.revision);
	show_lease(run, alive.id);
	fprintf(run->out, " ttl %" PRId64 "\n", alive.ttl_s);
}

/* etcd's LeaseTimeToLiveResponse, which the library does not read. */
struct time_to_live {
	int64_t id, ttl_s, granted_s;
	struct lk__pb_list keys;
};
static const struct lk__pb_rule time_to_live_rules[] = {
	{2, LK__PB_NUMBER, offsetof(struct time_to_live, id), 0, NULL},
	{3, LK__PB_NUMBER, offsetof(struct time_to_live, ttl_s), 0, NULL},
	{4, LK__PB_NUMBER, offsetof(struct time_to_live, granted_s), 0, NULL},
	{5, LK__PB_LIST, offsetof(struct time_to_live, keys), 0, NULL},
};
static const struct lk__pb_shape time_to_live_shape = {sizeof(struct time_to_live), 4,
                                                       time_to_live_rules};

/* The keys are in no order. */
void script_show_time_to_live(struct script_run *run, struct lk__bytes answer)
{
	struct time_to_live lease;

	if (!READ(time_to_live_shape, answer, &lease)) {
		malformed(run);
		return;
	}
	show_lease(run, lease.id);
	fprintf(run->out, " granted %" PRId64 " keys %zu%s\n", lease.granted_s, lease.keys.count,
	        lease.ttl_s < 0                 ? " gone"
	        : lease.ttl_s > lease.granted_s ? " more left"
	                                        : "");
}

void script_show_alarms(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_alarm_answer alarms;
	struct lk__etcd_alarm alarm;

	if (!READ(lk__etcd_alarm_shape, answer, &alarms)) {
		malformed(run);
		return;
	}
	fputs("alarms", run->out);
	while (lk__pb_next(&alarms.alarms, &alarm))
		fprintf(run->out, " %u", alarm.type);
	fputc('\n', run->out);
}

void script_show_watch(struct script_run *run, struct lk__bytes answer)
{
	struct lk__etcd_watch_answer watch;
	struct lk__etcd_event event;

	if (!READ(lk__etcd_watch_shape, answer, &watch)) {
		malformed(run);
		return;
	}
	fprintf(run->out, "  watch %" PRId64, watch.watch_id);
	show_revision(run, " ", watch.header.revision);
	fprintf(run->out, "%s%s", watch.created ? " created" : "",
	        watch.canceled ? " cancelled" : "");
	if (watch.compact_revision)
		show_revision(run, " compacted ", watch.compact_revision);
	if (watch.cancel_reason.len)
		fprintf(run->out, " \"%.*s\"", (int)watch.cancel_reason.len,
		        (const char *)watch.cancel_reason.data);
	while (lk__pb_next(&watch.events, &event)) {
		fputs(event.type == LK__ETCD_EVENT_PUT ? " put" : " delete", run->out);
		show_kv(run, &event.kv);
		if (event.has_prev_kv) {
			fputs(" before", run->out);
			show_kv(run, &event.prev_kv);
		}
	}
	fputc('\n', run->out);
}
