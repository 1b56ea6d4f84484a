/* SPDX-License-Identifier: MIT
 * The members of the model of etcd: see etcd_model.h.  Who leads, what each member knows of it, and
 * what it has applied.  tests/harness/lessor.h has the same rules for one lease. */
#include "etcd_model_parts.h"

#define LEARN_NS (30 * EM_MS) /* at most, until a member hears of a new leader */

/* ---- What is so -------------------------------------------------------------------------------
 */

bool em_is_well(const struct etcd_model *model, int member)
{
	const struct em_member *self = &model->members[member];

	return self->is_up && !self->is_frozen && !self->is_stopped && !self->is_cut;
}

static bool has_majority(const struct etcd_model *model)
{
	int well = 0;

	for (int i = 0; i < model->setup.members; i++)
		well += em_is_well(model, i);
	return 2 * well > model->setup.members;
}

bool em_leads(const struct etcd_model *model, int member)
{
	const struct em_member *self = &model->members[member];

	return model->leader == member && self->term == model->term && self->leader == member &&
	       em_is_well(model, member) && has_majority(model);
}

bool em_is_in_touch(const struct etcd_model *model, int member)
{
	const struct em_member *self = &model->members[member];

	return em_is_well(model, member) && em_leads(model, model->leader) && !model->begins_ns &&
	       self->term == model->term && self->leader == model->leader;
}

int em_leader(const struct etcd_model *model)
{
	return em_leads(model, model->leader) ? model->leader : -1;
}

uint64_t em_term(const struct etcd_model *model)
{
	return model->term;
}

int64_t em_member_revision(const struct etcd_model *model, int member)
{
	const struct em_member *self = &model->members[member];

	return model->now_ns < self->seen_until_ns ? self->seen_revision : self->applied_revision;
}

/* ---- Elections --------------------------------------------------------------------------------
 */

static int64_t election_ns(struct etcd_model *model)
{
	int64_t timeout_ns = model->setup.election_ms * EM_MS;

	return model->now_ns + timeout_ns + (int64_t)em_random(model, (uint64_t)timeout_ns);
}

static bool elect(struct etcd_model *model, int member)
{
	struct em_member *self = &model->members[member];

	if (!em_is_well(model, member) || !has_majority(model) || em_leads(model, member))
		return false;
	model->term++;
	model->leader = member;
	model->election_ns = 0;
	model->begins_ns = model->now_ns + 1 + (int64_t)em_random(model, 20 * EM_MS);
	self->term = model->term;
	self->leader = member;
	self->lost_ns = self->learns_ns = self->streams_end_ns = 0;
	em_lessor_promote(model, member);
	return true;
}

bool em_elect(struct etcd_model *model, int member)
{
	bool is_elected = elect(model, member);

	em_tick(model, model->now_ns);
	return is_elected;
}

/* Members that can hear the leader know it, a little later. */
static void learn(struct etcd_model *model, int i)
{
	struct em_member *self = &model->members[i];

	if (!em_is_well(model, i) || !em_leads(model, model->leader)) {
		self->learns_ns = 0;
		if (self->is_up && !self->is_frozen && !self->is_stopped && self->leader >= 0 &&
		    !self->lost_ns)
			self->lost_ns = election_ns(model);
		return;
	}
	self->lost_ns = 0;
	if (self->term == model->term && self->leader == model->leader)
		return;
	if (!self->learns_ns)
		self->learns_ns = model->now_ns + 1 + (int64_t)em_random(model, LEARN_NS);
	if (self->learns_ns > model->now_ns)
		return;
	if (self->is_primary)
		em_lessor_demote(model, i);
	self->term = model->term;
	self->leader = model->leader;
	self->learns_ns = self->streams_end_ns = 0;
}

/* A member without a leader notices it; one that led steps down. */
static void lose(struct etcd_model *model, int i)
{
	struct em_member *self = &model->members[i];

	if (!self->lost_ns || self->lost_ns > model->now_ns || self->is_frozen || self->is_stopped)
		return;
	self->lost_ns = 0;
	self->leader = -1;
	self->streams_end_ns = election_ns(model) + model->setup.election_ms * EM_MS;
	if (self->is_primary)
		em_lessor_demote(model, i);
}

/* Streams that want a leader end two to three election timeouts after the member has lost it. */
static void end_streams(struct etcd_model *model, int member)
{
	const struct em_member *self = &model->members[member];

	if (!self->streams_end_ns || self->streams_end_ns > model->now_ns || self->is_stopped)
		return;
	for (size_t i = model->streams.count; i-- > 0;) {
		const struct em_stream *stream = EM_AT(model->streams, struct em_stream, i);
		if (stream->member == member && stream->has_leader)
			em_stream_end(model, stream->id, em_status_of(EM_ENO_LEADER));
	}
}

static void hold_elections(struct etcd_model *model)
{
	int first;

	if (em_leads(model, model->leader) || !has_majority(model)) {
		model->election_ns = 0;
	} else if (!model->election_ns) {
		model->election_ns = election_ns(model);
	} else if (model->election_ns <= model->now_ns) {
		first = (int)em_random(model, (uint64_t)model->setup.members);
		for (int i = 0; i < model->setup.members; i++)
			if (elect(model, (first + i) % model->setup.members))
				break;
	}
}

/* ---- What is applied --------------------------------------------------------------------------
 */

static void apply(struct etcd_model *model, int member)
{
	struct em_member *self = &model->members[member];

	if (!em_is_in_touch(model, member) || self->is_lagging)
		return;
	self->applied_index = model->index;
	while (self->applied_revision < model->store.revision) {
		if (model->setup.early_ns && model->now_ns >= self->seen_until_ns)
			self->seen_revision = self->applied_revision;
		self->seen_until_ns = model->now_ns + model->setup.early_ns;
		self->applied_revision++;
		em_watch_notify(model, member, self->applied_revision);
	}
}

void em_cluster_apply(struct etcd_model *model)
{
	for (int i = 0; i < model->setup.members; i++)
		apply(model, i);
}

void em_committed(struct etcd_model *model)
{
	model->index++;
	em_store_commit(&model->store);
	em_cluster_apply(model);
}

void em_cluster_step(struct etcd_model *model)
{
	hold_elections(model);
	for (int i = 0; i < model->setup.members; i++) {
		learn(model, i);
		lose(model, i);
		end_streams(model, i);
	}
	if (model->begins_ns && model->begins_ns <= model->now_ns &&
	    em_leads(model, model->leader)) {
		model->begins_ns = 0;
		em_committed(model); /* the term's first entry */
	}
	em_cluster_apply(model);
}

/* ---- Time -------------------------------------------------------------------------------------
 */

static void sooner(int64_t *due_ns, int64_t at_ns)
{
	if (at_ns && at_ns < *due_ns)
		*due_ns = at_ns;
}

static bool has_leader_streams(const struct etcd_model *model, int member)
{
	EM_EACH(struct em_stream, stream, model->streams)
	{
		if (stream->member == member && stream->has_leader)
			return true;
	}
	return false;
}

int64_t em_due_ns(const struct etcd_model *model)
{
	int64_t due_ns = em_lessor_due(model);

	sooner(&due_ns, em_watch_due(model));
	sooner(&due_ns, em_requests_due(model));
	sooner(&due_ns, model->election_ns);
	if (em_leads(model, model->leader))
		sooner(&due_ns, model->begins_ns);
	for (int i = 0; i < model->setup.members; i++) {
		const struct em_member *self = &model->members[i];
		sooner(&due_ns, self->learns_ns);
		if (self->is_stopped)
			continue;
		if (!self->is_frozen)
			sooner(&due_ns, self->lost_ns);
		if (has_leader_streams(model, i))
			sooner(&due_ns, self->streams_end_ns);
	}
	return due_ns;
}

static void step(struct etcd_model *model)
{
	em_cluster_step(model);
	em_lessor_step(model);
	em_watch_step(model);
	em_requests_try(model);
}

void em_tick(struct etcd_model *model, int64_t now_ns)
{
	int64_t due_ns;

	step(model);
	while ((due_ns = em_due_ns(model)) <= now_ns) {
		if (due_ns > model->now_ns)
			model->now_ns = due_ns;
		step(model);
	}
	if (model->now_ns < now_ns) {
		model->now_ns = now_ns;
		step(model);
	}
}

/* ---- Faults -----------------------------------------------------------------------------------
 */

void em_kill(struct etcd_model *model, int member)
{
	struct em_member *self = &model->members[member];

	self->is_up = self->is_stopped = self->is_frozen = false;
	self->lost_ns = self->learns_ns = self->streams_end_ns = 0;
	EM_EACH(struct em_request, request, model->requests)
	{
		request->is_lost |= request->holder == member + 1;
	}
	em_lessor_demote(model, member);
	EM_EACH(struct em_lease, lease, model->leases)
	{
		lease->revoke[member] = EM_REVOKE_NONE;
	}
	for (size_t i = model->connections.count; i-- > 0;) {
		const struct em_connection *connection =
			EM_AT(model->connections, struct em_connection, i);
		if (connection->member == member)
			em_close_connection(model, connection->id);
	}
	em_tick(model, model->now_ns);
}

void em_start(struct etcd_model *model, int member)
{
	struct em_member *self = &model->members[member];

	self->is_up = true;
	self->leader = -1;
	em_tick(model, model->now_ns);
}

void em_freeze(struct etcd_model *model, int member, bool is_frozen)
{
	model->members[member].is_frozen = is_frozen;
	em_tick(model, model->now_ns);
}

void em_stop(struct etcd_model *model, int member, bool is_stopped)
{
	model->members[member].is_stopped = is_stopped;
	em_tick(model, model->now_ns);
}

void em_cut(struct etcd_model *model, int member, bool is_cut)
{
	model->members[member].is_cut = is_cut;
	em_tick(model, model->now_ns);
}

void em_hold_revokes(struct etcd_model *model, int member, bool holds)
{
	model->members[member].holds_revokes = holds;
	em_tick(model, model->now_ns);
}

void em_lag(struct etcd_model *model, int member, bool is_lagging)
{
	model->members[member].is_lagging = is_lagging;
	em_tick(model, model->now_ns);
}
