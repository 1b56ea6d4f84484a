/* SPDX-License-Identifier: MIT
 * The promises of latches on etcd: what each revision of the store has, for the rules of
 * sim_check_latch.c.  The last step opens a latch; its key says so only a little later, and must
 * do so before it says anything else. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define CLIENT_AT (sizeof("lk/D/gate6/c") - 1)
#define CLIENT_LEN (sizeof("c00_00000_aaaaaaaaaaaa") - 1)

/* ---- What the store has ------------------------------------------------------------------- */

static struct sim_etcd_own *own_of(struct sim_etcd_latch *latch, int slot, int life)
{
	struct sim_etcd_own *own = latch->own;

	while (own < latch->own + latch->own_count && (own->slot != slot || own->life != life))
		own++;
	if (own < latch->own + latch->own_count)
		return own;
	if (latch->own_count++ == SIM_ETCD_OWN)
		abort();
	*own = (struct sim_etcd_own){.slot = slot, .life = life};
	return own;
}

static bool read_step(struct sim_etcd_latch *latch, const struct lk__etcd_kv *kv)
{
	const char *key = kv->key.data;
	char kind = key[CLIENT_AT - 1], text[64];
	long long number, sum;
	struct sim_etcd_own *own;

	latch->step_keys++;
	if (kind == 'n' && kv->key.len == CLIENT_AT + 1)
		return true;
	if (kv->key.len != CLIENT_AT + CLIENT_LEN || kv->value.len >= sizeof(text))
		return false;
	memcpy(text, kv->value.data, kv->value.len);
	text[kv->value.len] = '\0';
	own = own_of(latch, sim_etcd_number(key + CLIENT_AT + 1, 2),
	             sim_etcd_number(key + CLIENT_AT + 4, 5));
	if (kind == '1' && sscanf(text, "%lld", &number) == 1)
		own->first = number;
	else if (kind == 'c' && sscanf(text, "%lld %lld", &number, &sum) == 2)
		*own = (struct sim_etcd_own){own->slot, own->life, own->first, number, sum};
	else
		return false;
	return true;
}

bool sim_etcd_read_latch(struct sim_etcd *etcd, const struct lk__etcd_kv *kv)
{
	const char *key = kv->key.data;
	struct sim_etcd_latch *latch;

	if (kv->key.len == sizeof("lk/Dgate0") - 1 && !memcmp(key, "lk/Dgate", 8)) {
		latch = &etcd->latches[key[8] - '0'];
		latch->is_there = true;
		latch->lease = kv->lease;
		latch->mod = kv->mod_revision;
		return lk__etcd_latch_value_read(&latch->value, kv->value, kv->mod_revision);
	}
	return kv->key.len > CLIENT_AT && !memcmp(key, "lk/D/gate", 9) && key[10] == '/' &&
	       read_step(&etcd->latches[key[9] - '0'], kv);
}

static struct store_view view_of(const struct sim_etcd_latch *latch)
{
	struct store_view view = {.there = latch->is_there, .end_us = INT64_MAX};

	if (!latch->is_there)
		return view;
	view.generation = latch->value.generation;
	view.initial = view.count = latch->value.initial;
	for (int i = 0; i < latch->own_count; i++)
		view.count -= latch->own[i].sum + (latch->own[i].first != 0);
	if (latch->value.is_open || view.count < 0)
		view.count = 0;
	return view;
}

/* ---- Steps -------------------------------------------------------------------------------- */

void sim_etcd_note_step(struct sim_client *client, const struct lk__latch *latch)
{
	const struct lk__step *step = latch->steps;
	struct sim_caller *caller = (struct sim_caller *)step->waiter;

	sim_etcd_of(client)->steps[step->number % SIM_ETCD_STEPS] = (struct sim_etcd_step){
		.name = latch->name->bytes[latch->name->len - 1] - '0',
		.step_name = step->len ? step->name[0] - 'a' : 0,
		.generation = step->generation,
		.number = step->number,
		.n = step->n,
	};
	if (!caller)
		return;
	caller->step_number = step->number;
	caller->step_generation = step->generation;
}

/* A step of a process that has ended since may still count: what it was is not known then. */
static void count(struct sim *sim, struct sim_name *name, const struct store_view *before,
                  const struct sim_etcd_own *own, int64_t number, int64_t n)
{
	const struct sim_client *client = &sim->clients[own->slot];
	const struct sim_etcd_step *step = &sim_etcd_of(client)->steps[number % SIM_ETCD_STEPS];
	struct sim_call call = {.kind = LK__STEP,
	                        .slot = own->slot,
	                        .life = own->life,
	                        .generation = before->generation,
	                        .number = (uint64_t)number,
	                        .n = (uint32_t)n};

	if (client->life == own->life) {
		if (step->number != (uint64_t)number || step->name != name->index || step->n != n)
			sim_fail(sim, PROMISE_STEP, "%s: c%02d has not sent step %lld of %lld",
			         name->text, own->slot, (long long)number, (long long)n);
		call.generation = step->generation;
		call.step_name = step->step_name;
	}
	if (before->count) /* else it has come too late, and its caller learns that */
		sim_check_count(sim, name, before, &call);
}

/* Those that this revision has, and the one before had not; false: there are none. */
static bool count_steps(struct sim *sim, struct sim_name *name, const struct store_view *before)
{
	const struct sim_etcd_latch *latch = &sim->etcd.latches[name->index];
	struct sim_etcd_latch *former = &sim->etcd.former_latches[name->index];
	bool counted = false;

	for (int i = 0; i < latch->own_count; i++) {
		const struct sim_etcd_own *is = &latch->own[i];
		const struct sim_etcd_own *was = own_of(former, is->slot, is->life);
		if (is->first != was->first)
			count(sim, name, before, is, is->first, 1);
		if (is->number != was->number || is->sum != was->sum)
			count(sim, name, before, is, is->number, is->sum - was->sum);
		counted |=
			is->first != was->first || is->number != was->number || is->sum != was->sum;
	}
	return counted;
}

/* ---- Changes ------------------------------------------------------------------------------ */

/* All had counted: the latch is open next, unless its lease has ended. */
static void check_opened(struct sim *sim, const struct sim_name *name,
                         const struct store_view *before)
{
	const struct sim_etcd_latch *former = &sim->etcd.former_latches[name->index];
	const struct sim_etcd_latch *latch = &sim->etcd.latches[name->index];
	bool is_opened = latch->value.is_open && latch->value.generation == before->generation;

	if (!former->is_there || former->value.is_open || before->count)
		return;
	if (latch->is_there && latch->mod != former->mod && !is_opened)
		sim_fail(sim, PROMISE_OPENING, "%s was complete and is replaced unopened",
		         name->text);
	if (!latch->is_there && (!former->lease || em_lease_ttl_s(sim->etcd.model, former->lease)))
		sim_fail(sim, PROMISE_OPENING, "%s was complete and is removed unopened",
		         name->text);
}

static void look(struct sim *sim, struct sim_name *name)
{
	const struct sim_etcd_latch *latch = &sim->etcd.latches[name->index];
	const struct lk__answer none = {0};
	struct store_view before = name->view;
	bool is_same;

	sim_check_latch_now(sim, name); /* until now */
	name->view = view_of(latch);
	check_opened(sim, name, &before);
	is_same = before.there && name->view.there && before.generation == name->view.generation;
	if (name->view.there && !name->view.count)
		name->count.published = name->view.generation;
	if (is_same && !latch->value.is_open && count_steps(sim, name, &before))
		sim_check_latch_now(sim, name);
	else
		sim_check_latch(sim, name, &before, NULL, &none);
}

void sim_etcd_look_latches(struct sim *sim)
{
	for (int i = SIM_RATE + 1; i < SIM_NAMES; i++)
		look(sim, &sim->names[i]);
}
