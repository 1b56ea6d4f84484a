/* SPDX-License-Identifier: MIT
 * Latches in the virtual world: see virtual_etcd_latch.h. */
#include "virtual_etcd_latch.h"

#include "etcd/keys.h"
#include "store.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static struct lk__wait_queue *gates[VE_CLIENTS];

void vel_start(const struct em_setup *setup, int clients)
{
	ve_start(setup, clients);
	for (int i = 0; i < clients; i++) {
		struct lk__core *core = &ve.client[i].core;
		char topic[LK__ETCD_KEY_MAX];

		lk__etcd_noun_key(topic, "lk", LK__ETCD_LATCH, "gate", 4);
		gates[i] = lk__wait_queue_open(core, core->links[0],
		                               lk__name_new(LK_KIND_LATCH, "gate", 4),
		                               lk__wait_queue_new(VE_LEASE_MS, false));
		lk__latch_open(gates[i]->name, lk__latch_new(topic));
	}
}

/* The same as the runtime does. */
void vel_told(struct ve_client *client, const struct lk__event *event)
{
	struct lk__channels *channels = &client->link.channels;

	if (event->kind == LK__EVENT_PUBLISHED)
		lk__channels_published(channels, ve.now_ns, event->topic, event->topic_len,
		                       &event->message);
	else if (event->kind == LK__EVENT_CONFIRMED)
		lk__channels_confirmed(channels, ve.now_ns, event->subscribed, event->topic,
		                       event->topic_len);
	else
		lk__channels_refused(channels, ve.now_ns, &event->why);
}

struct lk__op *vel_await(int client, bool only_try, bool absent_is_open)
{
	struct lk__op *op = ve_new_op(client, gates[client]);

	op->only_try = only_try;
	op->absent_is_open = absent_is_open;
	lk__core_await(&ve.client[client].core, ve.now_ns, op);
	return op;
}

struct lk__op *vel_down(int client, uint32_t n, const char *name)
{
	struct lk__op *op = ve_new_op(client, gates[client]);

	op->spare_step = calloc(1, sizeof(*op->spare_step));
	op->spare_step->n = n;
	if (name) {
		op->spare_step->len = (uint16_t)strlen(name);
		memcpy(op->spare_step->name, name, strlen(name));
	}
	lk__core_step(&ve.client[client].core, ve.now_ns, op);
	return op;
}

void vel_downs(int client, uint32_t n, const char *name, int64_t remaining, bool counted)
{
	struct lk__op *op = vel_down(client, n, name);

	ve_pass(200);
	ve_done(op, LK_OK);
	ck_assert_int_eq(op->remaining, remaining);
	ck_assert_int_eq(op->counted, counted);
}

struct vel_query vel_begin(int client, enum lk__request_kind kind, int64_t count, bool anew,
                           int64_t open_ttl_ms, int64_t counting_ttl_ms)
{
	struct lk__core *core = &ve.client[client].core;
	struct vel_query made = {
		.op = ve_new_op(client, NULL),
		.query = lk__query_new(kind, LK_KIND_LATCH, "gate", 4),
	};

	made.query->details = (struct lk__details){
		.count = count,
		.anew = anew,
		.open_ttl_ms = open_ttl_ms,
		.counting_ttl_ms = counting_ttl_ms,
	};
	lk__core_query(core, core->links[0], ve.now_ns, made.op, &made.query, 1);
	return made;
}

struct lk__answer vel_end(int client, struct vel_query *query)
{
	struct lk__answer answer;

	for (int i = 0; i < 100 && !query->op->done; i++)
		ve_pass(100);
	ck_assert(query->op->done);
	answer = query->query->answer;
	if (query->op->why.err)
		answer = (struct lk__answer){.kind = LK__FAILED, .err = query->op->why.err};
	lk__query_free(&ve.client[client].core, query->query);
	return answer;
}

struct lk__answer vel_set(int client, int64_t count, bool anew, int64_t open_ttl_ms,
                          int64_t counting_ttl_ms)
{
	struct vel_query query =
		vel_begin(client, LK__SET, count, anew, open_ttl_ms, counting_ttl_ms);

	return vel_end(client, &query);
}

struct lk__answer vel_remove(int client)
{
	struct vel_query query = vel_begin(client, LK__REMOVE, 0, false, 0, 0);

	return vel_end(client, &query);
}

struct lk__answer vel_show(int client)
{
	struct vel_query query = vel_begin(client, LK__SHOW, 0, false, 0, 0);

	return vel_end(client, &query);
}

/* ---- Short forms ---- */

void vel_make(int64_t count)
{
	ck_assert_int_eq(vel_set(0, count, true, VEL_OPEN_MS, 0).kind, LK__MADE);
}

void vel_is(lk_latch_state state, int64_t remaining)
{
	struct lk__answer shown = vel_show(0);

	ck_assert_int_eq(shown.kind, LK__SHOWN);
	ck_assert_int_eq(shown.latch_state, state);
	ck_assert_int_eq(shown.remaining, remaining);
}

static void count_key(void *arg, const struct lk__etcd_kv *kv)
{
	if (kv->key.len >= 4 && memcmp(kv->key.data, "lk/D", 4) == 0)
		++*(int *)arg;
}

int vel_keys(void)
{
	int count = 0;

	em_each_key(ve.model, count_key, &count);
	return count;
}

struct lk__op *vel_waits(int client, bool absent_is_open)
{
	struct lk__op *op = vel_await(client, false, absent_is_open);

	ve_pass(300);
	ve_waits(op);
	return op;
}
