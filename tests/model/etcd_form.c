/* SPDX-License-Identifier: MIT
 * A state of clients of etcd as a hash.  Of numbers that only count (calls, connections), and of
 * the model's chance, nothing depends; times are relative, revisions are not. */
#include "etcd.h"

#include <string.h>

#define FAR_NS (INT64_C(60000) * ETCD_MS)

struct sum {
	const struct model_world *world;
	uint64_t hash;
};

static void put(struct sum *sum, uint64_t value)
{
	sum->hash = (sum->hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	sum->hash ^= sum->hash >> 29;
}

static void put_bytes(struct sum *sum, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	put(sum, len);
	for (size_t i = 0; i < len; i++)
		put(sum, bytes[i]);
}

/* 0 and NEVER stay; what is over for long is alike. */
static void put_time(struct sum *sum, int64_t at_ns)
{
	int64_t left_ns = at_ns - sum->world->now_ns;

	if (at_ns == 0 || at_ns == LK__NEVER)
		put(sum, (uint64_t)at_ns);
	else
		put(sum, (uint64_t)(left_ns < -FAR_NS ? -FAR_NS : left_ns));
}

/* ---- The core ----------------------------------------------------------------------------- */

static void put_ticket(struct sum *sum, const struct lk__ticket *ticket)
{
	put_bytes(sum, ticket->nonce, strlen(ticket->nonce));
	put(sum, ticket->state | (uint64_t)ticket->main.state << 4 |
	                 (uint64_t)ticket->main.kind << 8 | (uint64_t)ticket->leave.state << 16 |
	                 (uint64_t)ticket->leave.kind << 20 | (uint64_t)ticket->main.claim << 28 |
	                 (uint64_t)ticket->main.heard << 32);
	put(sum, (uint64_t)(ticket->is_try | ticket->may_be_known << 1 |
	                    ticket->granted_by_message << 2 | ticket->is_shared << 3 |
	                    ticket->is_wanted << 4 | ticket->renewal_failed << 5 |
	                    ticket->head_unserved << 6 | ticket->released << 7 |
	                    ticket->leave_refused << 8 | ticket->is_doubted << 9) |
	                 (uint64_t)ticket->refusals << 16 | (uint64_t)ticket->hands << 24 |
	                 (uint64_t)ticket->leaves_sent << 32);
	put(sum, ticket->fence);
	put(sum, ticket->arrival);
	put(sum, (ticket->queue != NULL) | (ticket->leavers != NULL) << 1);
	put_time(sum, ticket->next_ns);
	put_time(sum, ticket->timer.due_ns);
	put_time(sum, ticket->first_sent_ns);
	put_time(sum, ticket->valid_until_ns);
	put_time(sum, ticket->main.state ? ticket->main.sent_ns : 0);
}

static void put_core(struct sum *sum, const struct etcd_client *client)
{
	const struct lk__core *core = &client->core;

	for (const struct lk__ticket *ticket = core->all_tickets; ticket; ticket = ticket->next)
		put_ticket(sum, ticket);
	for (const struct lk__hold *hold = core->all_holds; hold; hold = hold->next) {
		put(sum, hold->fence);
		put(sum, hold->count | (uint64_t)hold->lost << 8 |
		                 (uint64_t)hold->loss_reported << 16 |
		                 (uint64_t)hold->released << 17 |
		                 (uint64_t)(hold->ticket != NULL) << 18);
	}
	put(sum, client->waiter ? client->waiter->awaits + 1u : 0);
	put_time(sum, client->waiter ? client->waiter->timer.due_ns : 0);
	put(sum, client->alive | client->gave_up << 1 | client->is_broken << 2 | client->verb << 8 |
	                 (uint64_t)client->link.state << 16 | (uint64_t)client->link.users << 24);
	put(sum, client->told);
	put(sum, client->lapsed);
}

/* ---- The session -------------------------------------------------------------------------- */

static void put_lease(struct sum *sum, const struct lk__etcd_lease *lease)
{
	put(sum, (uint64_t)lease->ttl_s | (uint64_t)lease->state << 16 |
	                 (uint64_t)lease->tickets << 20 | (uint64_t)lease->is_own << 30 |
	                 (uint64_t)lease->is_ended << 31 | (uint64_t)lease->rests << 32 |
	                 (uint64_t)lease->machine.sent << 40);
	put_time(sum, lease->sent_ns);
	put_time(sum, lease->machine.since_ns);
	put_time(sum, lease->machine.due_ns);
	put_time(sum, lease->machine.sent_ns);
	put_time(sum, lease->machine.sent ? lease->machine.keep_alive_ns : 0);
	put(sum, lease->machine.term);
	put(sum, (uint64_t)lease->id);
}

static void put_own(struct sum *sum, const struct lk__etcd_own_ticket *ticket)
{
	put_bytes(sum, ticket->nonce, strlen(ticket->nonce));
	put(sum, (uint64_t)ticket->created);
	put(sum, (uint64_t)ticket->granted);
	put(sum, (ticket->busy != NULL) | ticket->is_waiting << 1 | ticket->is_leaving << 2 |
	                 ticket->is_under_another << 3 | (ticket->watch_id != 0) << 4 |
	                 ticket->count << 8);
	put(sum, ticket->lease ? (uint64_t)ticket->lease->id : 0);
	for (unsigned i = 0; i < ticket->count; i++)
		put(sum, (uint64_t)ticket->next[i].created);
}

static void put_jobs(struct sum *sum, const struct lk__etcd_job *job)
{
	for (; job; job = job->next) {
		put(sum, job->kind | (uint64_t)job->is_calling << 8 | (uint64_t)job->is_done << 9 |
		                 (uint64_t)job->wants_round << 10 | (uint64_t)job->was_read << 11 |
		                 (uint64_t)job->is_chore << 12 | (uint64_t)job->answer.kind << 16);
		put_bytes(sum, job->nonce, strlen(job->nonce));
		put_time(sum, job->retry_ns);
	}
	put(sum, 99);
}

static void put_session(struct sum *sum, const struct lk__etcd_session *session)
{
	put(sum, session->state | (uint64_t)session->is_watching << 8);
	put_time(sum, session->retry_ns);
	put(sum, session->era);
	for (const struct lk__etcd_lease *lease = session->leases; lease; lease = lease->next)
		put_lease(sum, lease);
	for (size_t i = 0; i < session->tickets.size; i++)
		for (const struct lk__node *node = session->tickets.buckets[i]; node;
		     node = node->next)
			put_own(sum, (const struct lk__etcd_own_ticket *)node);
	put_jobs(sum, session->jobs);
	put_jobs(sum, session->chores);
	for (const struct lk__etcd_call *call = session->calls; call; call = call->next)
		put(sum, call->purpose | (uint64_t)call->plan.task << 8);
	put(sum, session->memo ? session->memo->count + 1 : 0);
	put(sum,
	    session->memo && session->memo->count ? (uint64_t)session->memo->first[0].created : 0);
}

/* ---- What is in flight -------------------------------------------------------------------- */

static void put_queue(struct sum *sum, const struct etcd_queue *queue)
{
	put(sum, (uint64_t)queue->count);
	for (int i = 0; i < queue->count; i++) {
		const struct etcd_letter *letter = &queue->letters[i];
		put(sum, (letter->id != 0) | (uint64_t)letter->method << 8 |
		                 (uint64_t)letter->has_ended << 16 |
		                 (uint64_t)letter->is_closed << 17 |
		                 (uint64_t)(unsigned)letter->status << 24);
		put_bytes(sum, letter->bytes.data, letter->bytes.len);
	}
}

static void put_client(struct sum *sum, const struct etcd_client *client, bool with_bounds)
{
	put(sum, client->alive);
	put_queue(sum, &client->past.out);
	put(sum, client->past.connection ? client->past.member + 1u : 0);
	if (!client->alive)
		return;
	put(sum, client->end.connection ? client->end.member + 1u : 0);
	put(sum, client->end.watch != 0);
	put(sum, (uint64_t)client->end.call_count);
	for (int i = 0; i < client->end.call_count; i++)
		put_time(sum, client->end.calls[i].sent_ns);
	put_queue(sum, &client->end.out);
	put_queue(sum, &client->in);
	put(sum, with_bounds ? client->begun : 0);
	put_core(sum, client);
	put_session(sum, &client->session);
}

/* ---- The cluster -------------------------------------------------------------------------- */

static void put_key(void *arg, const struct lk__etcd_kv *kv)
{
	struct sum *sum = arg;

	put_bytes(sum, kv->key.data, kv->key.len);
	put_bytes(sum, kv->value.data, kv->value.len);
	put(sum, (uint64_t)kv->create_revision);
	put(sum, (uint64_t)kv->lease);
}

static void put_member(struct sum *sum, const struct em_member *member)
{
	put(sum, member->is_up | member->is_frozen << 1 | member->is_stopped << 2 |
	                 member->is_lagging << 3 | member->is_primary << 4);
	put(sum, member->term);
	put(sum, (uint64_t)(member->leader + 1));
	put(sum, (uint64_t)member->applied_revision);
	put(sum, (member->learns_ns != 0) | (member->lost_ns != 0) << 1 |
	                 (member->streams_end_ns != 0) << 2);
}

static void put_cluster(struct sum *sum, const struct etcd_model *model)
{
	em_each_key(model, put_key, sum);
	put(sum, (uint64_t)model->store.revision);
	put(sum, (uint64_t)model->leader | model->term << 8);
	put(sum, (model->begins_ns != 0) | (model->election_ns != 0) << 1);
	for (int i = 0; i < model->setup.members; i++)
		put_member(sum, &model->members[i]);
	for (size_t i = 0; i < model->leases.count; i++) {
		const struct em_lease *lease = EM_AT(model->leases, struct em_lease, i);
		put(sum, (uint64_t)lease->id);
		put(sum, lease->gone_index != 0);
		for (int j = 0; j < model->setup.members; j++) {
			put_time(sum, lease->expires_ns[j]);
			put(sum, lease->revoke[j]);
		}
	}
	for (size_t i = 0; i < model->requests.count; i++) {
		const struct em_request *request = EM_AT(model->requests, struct em_request, i);
		put(sum, (uint64_t)request->member | (uint64_t)request->has_arrived << 8 |
		                 (uint64_t)(unsigned)request->holder << 16 |
		                 (uint64_t)request->is_lost << 32 |
		                 (uint64_t)request->has_ended << 33);
		put_time(sum, request->sent_ns);
		put_bytes(sum, request->message, request->len);
	}
	for (size_t i = 0; i < model->watchers.count; i++) {
		const struct em_watcher *watcher = EM_AT(model->watchers, struct em_watcher, i);
		put(sum, (uint64_t)watcher->member | (uint64_t)watcher->is_unsynced << 8 |
		                 (uint64_t)watcher->no_put << 9);
		put(sum, (uint64_t)watcher->next_revision);
	}
	put(sum, model->streams.count);
}

static void put_bounds(struct sum *sum, const struct model_world *world)
{
	put(sum, world->ticks | (uint64_t)world->stalls << 8 | (uint64_t)world->faults << 16);
	for (int i = 0; i < MODEL_VERBS; i++)
		put(sum, world->faults == world->bounds->faults && i != DO_TRY && i != DO_GIVE_UP
		                 ? 0
		                 : world->used[i]);
}

uint64_t etcd_hash(const struct model_world *world, bool with_bounds)
{
	const struct model_etcd *etcd = world->etcd;
	struct sum sum = {world, UINT64_C(0xcbf29ce484222325)};

	if (with_bounds)
		put_bounds(&sum, world);
	for (int i = 0; i < ETCD_CLIENTS; i++)
		put_client(&sum, &etcd->clients[i], with_bounds);
	put_cluster(&sum, etcd->model);
	put(&sum, etcd->fence);
	put(&sum, etcd->hurt);
	for (int i = 0; i < ETCD_BROKEN; i++)
		put_bytes(&sum, etcd->broken[i], strlen(etcd->broken[i]));
	return sum.hash;
}
