/* SPDX-License-Identifier: MIT
 * Leases of the model of etcd, and the lessor of each member: see etcd_model.h.  All members know
 * all leases that they have applied; the lessor of a member that takes itself for the leader is the
 * primary one, which renews them and lets them expire. */
#include "etcd_model_parts.h"

#include <string.h>

#define TTL_MAX_S INT64_C(9000000000)

/* ---- Leases -----------------------------------------------------------------------------------
 */

static bool is_known(const struct etcd_model *model, const struct em_lease *lease, int member)
{
	uint64_t applied = model->members[member].applied_index;

	return lease->granted_index <= applied &&
	       (!lease->gone_index || lease->gone_index > applied);
}

struct em_lease *em_lease_find(const struct etcd_model *model, int member, int64_t id)
{
	EM_EACH(struct em_lease, lease, model->leases)
	{
		if (lease->id == id && is_known(model, lease, member))
			return lease;
	}
	return NULL;
}

struct em_lease *em_lease_live(const struct etcd_model *model, int64_t id)
{
	EM_EACH(struct em_lease, lease, model->leases)
	{
		if (lease->id == id && !lease->gone_index)
			return lease;
	}
	return NULL;
}

int64_t em_lease_ttl_s(const struct etcd_model *model, int64_t id)
{
	const struct em_lease *lease = em_lease_live(model, id);

	return lease ? lease->ttl_s : 0;
}

/* ceil(1.5 election timeouts) */
static int64_t ttl_min_s(const struct etcd_model *model)
{
	return (model->setup.election_ms * 3 / 2 + 999) / 1000;
}

enum em_error em_serve_grant(struct etcd_model *model, int member, struct lk__bytes message,
                             struct lk__pb_writer *writer)
{
	struct lk__etcd_lease_grant grant;
	struct em_lease *lease;

	if (!em_read(&em_grant_shape, message, &grant))
		return EM_EMALFORMED;
	if (model->is_full)
		return EM_ENOSPACE;
	while (!grant.id || (grant.id == model->last_lease && em_lease_live(model, grant.id)))
		grant.id = model->last_lease += 1 + (int64_t)em_random(model, 1000);
	if (grant.ttl_s > TTL_MAX_S)
		return EM_ETTL;
	if (em_lease_live(model, grant.id))
		return EM_ELEASE_EXISTS;
	lease = em_vec_add(&model->leases);
	lease->id = grant.id;
	lease->ttl_s = grant.ttl_s < ttl_min_s(model) ? ttl_min_s(model) : grant.ttl_s;
	lease->granted_index = model->index + 1;
	for (int i = 0; i < model->setup.members; i++)
		lease->expires_ns[i] = model->now_ns + lease->ttl_s * EM_S;
	em_write_header(model, writer, member, model->store.revision);
	lk__pb_put_number(writer, 2, (uint64_t)lease->id);
	lk__pb_put_number(writer, 3, (uint64_t)lease->ttl_s);
	return EM_OK;
}

/* Delete the keys of a lease, as one revision.  Each key has one lease. */
static void delete_keys(struct etcd_model *model, int64_t id)
{
	struct em_store *store = &model->store;
	size_t count = em_store_scan(store, (struct lk__bytes){"", 1}, (struct lk__bytes){"", 1},
	                             store->revision);

	for (size_t i = 0; i < count; i++)
		if (em_store_found(store, i)->lease == id)
			em_store_delete(store, em_store_found(store, i));
}

bool em_revoke(struct etcd_model *model, int64_t id)
{
	struct em_lease *lease = em_lease_live(model, id);

	if (!lease)
		return false;
	lease->gone_index = model->index + 1;
	delete_keys(model, id);
	return true;
}

enum em_error em_serve_revoke(struct etcd_model *model, int member, struct lk__bytes message,
                              struct lk__pb_writer *writer)
{
	struct em_number id;

	if (!em_read(&em_number_shape, message, &id))
		return EM_EMALFORMED;
	if (!em_revoke(model, id.value))
		return EM_ELEASE_NOT_FOUND;
	em_write_header(model, writer, member, em_store_read_revision(&model->store));
	return EM_OK;
}

enum em_error em_serve_time_to_live(struct etcd_model *model, int member, struct lk__bytes message,
                                    struct lk__pb_writer *writer)
{
	struct em_time_to_live query;
	const struct em_lease *lease;
	struct em_store *store = &model->store;
	int64_t left_ns;
	size_t count;

	if (!em_read(&em_time_to_live_shape, message, &query))
		return EM_EMALFORMED;
	em_write_header(model, writer, member, store->revision);
	lk__pb_put_number(writer, 2, (uint64_t)query.id);
	lease = em_lease_live(model, query.id);
	if (!lease) {
		lk__pb_put_number(writer, 3, UINT64_MAX);
		return EM_OK;
	}
	left_ns = lease->expires_ns[model->leader] - model->now_ns;
	lk__pb_put_number(writer, 3, (uint64_t)(left_ns / EM_S));
	lk__pb_put_number(writer, 4, (uint64_t)lease->ttl_s);
	count = em_store_scan(store, (struct lk__bytes){"", 1}, (struct lk__bytes){"", 1},
	                      store->revision);
	for (size_t i = 0; query.keys && i < count; i++)
		if (em_store_found(store, i)->lease == query.id)
			lk__pb_put_chosen_bytes(
				writer, 5, em_store_bytes(store, em_store_found(store, i)->key));
	return EM_OK;
}

/* ---- Keep-alives ------------------------------------------------------------------------------
 */

/* By the lessor of that member, which does not ask whether the member still leads. */
static enum em_error renew(struct etcd_model *model, int member, int64_t id, int64_t *ttl_s)
{
	struct em_lease *lease;

	if (!model->members[member].is_primary)
		return EM_WAITS; /* the caller asks again */
	lease = em_lease_find(model, member, id);
	*ttl_s = 0;
	if (!lease)
		return EM_OK;
	if (lease->expires_ns[member] <= model->now_ns)
		return EM_WAITS; /* until it is revoked */
	lease->expires_ns[member] = model->now_ns + lease->ttl_s * EM_S;
	*ttl_s = lease->ttl_s;
	return EM_OK;
}

enum em_error em_serve_keep_alive(struct etcd_model *model, int member, struct lk__bytes message,
                                  struct lk__pb_writer *writer)
{
	struct em_number id;
	int64_t ttl_s;
	enum em_error error;

	if (!em_read(&em_number_shape, message, &id))
		return EM_EMALFORMED;
	error = renew(model, model->lessor, id.value, &ttl_s);
	if (error)
		return error;
	em_write_header(model, writer, member, em_member_revision(model, member));
	lk__pb_put_number(writer, 2, (uint64_t)id.value);
	lk__pb_put_number(writer, 3, (uint64_t)ttl_s);
	return EM_OK;
}

/* ---- Lessors ----------------------------------------------------------------------------------
 */

void em_lessor_promote(struct etcd_model *model, int member)
{
	int64_t extra_ns = model->setup.election_ms * EM_MS;

	model->members[member].is_primary = true;
	EM_EACH(struct em_lease, lease, model->leases)
	{
		lease->expires_ns[member] = model->now_ns + lease->ttl_s * EM_S + extra_ns;
		lease->revoke[member] = EM_REVOKE_NONE;
	}
}

void em_lessor_demote(struct etcd_model *model, int member)
{
	model->members[member].is_primary = false;
	EM_EACH(struct em_lease, lease, model->leases)
	{
		if (lease->revoke[member] == EM_REVOKE_IN_LOG)
			lease->revoke[member] = EM_REVOKE_NONE;
	}
}

/* The loop of a member whose lessor is the primary one: find expired leases. */
static void find_expired(struct etcd_model *model, int member)
{
	bool is_frozen = model->members[member].is_frozen;

	if (is_frozen && !model->setup.is_3_4)
		return;
	EM_EACH(struct em_lease, lease, model->leases)
	{
		if (is_known(model, lease, member) && lease->expires_ns[member] <= model->now_ns &&
		    !lease->revoke[member])
			lease->revoke[member] = is_frozen || em_is_in_touch(model, member)
			                                ? EM_REVOKE_WAITS
			                                : EM_REVOKE_IN_LOG;
	}
}

/* What a member has found expired, even as the leader that it was, it revokes when it reaches a
 * leader. */
static bool revoke_found(struct etcd_model *model, int member)
{
	if (!em_is_in_touch(model, member) || model->members[member].holds_revokes)
		return false;
	EM_EACH(struct em_lease, lease, model->leases)
	{
		if (!lease->revoke[member])
			continue;
		lease->revoke[member] = EM_REVOKE_NONE;
		if (!lease->gone_index) {
			em_revoke(model, lease->id);
			em_committed(model);
			return true;
		}
	}
	return false;
}

/* Leases that are gone for all members. */
static void forget(struct etcd_model *model)
{
	uint64_t applied = UINT64_MAX;

	for (int i = 0; i < model->setup.members; i++)
		if (model->members[i].applied_index < applied)
			applied = model->members[i].applied_index;
	for (size_t i = model->leases.count; i-- > 0;) {
		uint64_t gone = EM_AT(model->leases, struct em_lease, i)->gone_index;
		if (gone && gone <= applied)
			em_vec_remove(&model->leases, i);
	}
}

void em_lessor_step(struct etcd_model *model)
{
	for (int i = 0; i < model->setup.members; i++) {
		struct em_member *member = &model->members[i];
		if (!member->is_up || member->is_stopped)
			continue;
		if (member->lease_loop_ns <= model->now_ns) {
			int64_t late_ns = model->now_ns - member->lease_loop_ns;
			member->lease_loop_ns +=
				(late_ns / EM_LEASE_LOOP_NS + 1) * EM_LEASE_LOOP_NS;
			if (member->is_primary && late_ns % EM_LEASE_LOOP_NS == 0)
				find_expired(model, i);
		}
		while (revoke_found(model, i))
			;
	}
	forget(model);
}

/* The member's first turn that finds something; turns before are skipped. */
static int64_t member_due(const struct etcd_model *model, int i)
{
	int64_t expires_ns = INT64_MAX, turn_ns = model->members[i].lease_loop_ns;

	EM_EACH(struct em_lease, lease, model->leases)
	{
		if (is_known(model, lease, i) && !lease->revoke[i] &&
		    lease->expires_ns[i] < expires_ns)
			expires_ns = lease->expires_ns[i];
	}
	if (expires_ns == INT64_MAX)
		return INT64_MAX;
	if (turn_ns <= model->now_ns)
		turn_ns += ((model->now_ns - turn_ns) / EM_LEASE_LOOP_NS + 1) * EM_LEASE_LOOP_NS;
	if (expires_ns > turn_ns)
		turn_ns += (expires_ns - turn_ns + EM_LEASE_LOOP_NS - 1) / EM_LEASE_LOOP_NS *
		           EM_LEASE_LOOP_NS;
	return turn_ns;
}

int64_t em_lessor_due(const struct etcd_model *model)
{
	int64_t due_ns = INT64_MAX;

	for (int i = 0; i < model->setup.members; i++) {
		const struct em_member *member = &model->members[i];
		int64_t member_ns = member->is_up && !member->is_stopped && member->is_primary
		                            ? member_due(model, i)
		                            : INT64_MAX;
		due_ns = member_ns < due_ns ? member_ns : due_ns;
	}
	return due_ns;
}
