/* SPDX-License-Identifier: MIT
 * The leases of a session: granted when the first ticket needs one, renewed in rounds as lease.h
 * has it, ended with a fixed ticket. */
#include "session_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_NS (100 * MS)
#define READ_MAX 60 /* tickets in one transaction, and their queues; etcd allows 128 operations */

/* An id that no other client takes: from the client's own, which is 128 random bits. */
static int64_t new_id(struct lk__etcd_session *session)
{
	uint64_t seed = ++session->leases_made * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t hash = lk__hash(session->client, strlen(session->client), seed);

	return (int64_t)(hash >> 1 | 1);
}

struct lk__etcd_lease *lk__etcd_lease_of(struct lk__etcd_session *session, int64_t ttl_s,
                                         bool is_own)
{
	struct lk__etcd_lease *lease;

	for (lease = session->leases; lease && !is_own; lease = lease->next)
		if (lease->ttl_s == ttl_s && !lease->is_own)
			return lease;
	lease = calloc(1, sizeof(*lease));
	if (!lease)
		return NULL;
	lease->ttl_s = ttl_s;
	lease->is_own = is_own;
	lease->next = session->leases;
	session->leases = lease;
	return lease;
}

struct lk__etcd_call *lk__etcd_call_grant(struct lk__etcd_session *session,
                                          enum lk__etcd_purpose purpose, int64_t ttl_s, int64_t *id)
{
	char bytes[64];
	struct lk__pb_writer writer;

	*id = new_id(session);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_lease_grant(&writer,
	                         &(struct lk__etcd_lease_grant){.ttl_s = ttl_s, .id = *id});
	return lk__etcd_call(session, purpose, LK__ETCD_CALL_GRANT, &writer);
}

static struct lk__etcd_call *grant(struct lk__etcd_session *session, struct lk__etcd_lease *lease)
{
	struct lk__etcd_call *call =
		lk__etcd_call_grant(session, LK__ETCD_FOR_GRANT, lease->ttl_s, &lease->id);

	if (call)
		lk__etcd_call_under(call, lease);
	return call;
}

bool lk__etcd_lease_is_live(struct lk__etcd_session *session, int64_t now_ns,
                            struct lk__etcd_lease *lease)
{
	if (lease->state == LK__LEASE_LIVE && lk__lease_is_valid(&lease->machine, now_ns))
		return true;
	if (lease->state != LK__LEASE_GRANTING && session->state != LK__ETCD_DOWN &&
	    session->retry_ns <= now_ns && grant(session, lease)) {
		lease->state = LK__LEASE_GRANTING;
		lease->sent_ns = now_ns;
	}
	return false;
}

void lk__etcd_lease_revoke(struct lk__etcd_session *session, int64_t id)
{
	char bytes[32];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_lease_revoke(&writer, id);
	lk__etcd_call(session, LK__ETCD_FOR_NOTHING, LK__ETCD_CALL_REVOKE, &writer);
}

void lk__etcd_lease_end(struct lk__etcd_session *session, struct lk__etcd_lease *lease)
{
	if (session->state != LK__ETCD_DOWN && lease->state != LK__LEASE_NEW)
		lk__etcd_lease_revoke(session, lease->id);
	lease->state = LK__LEASE_NEW;
	lease->is_ended = true;
}

void lk__etcd_session_end(struct lk__etcd_session *session)
{
	struct lk__etcd_lease *lease = session->leases;

	for (; lease && session->state != LK__ETCD_DOWN; lease = lease->next)
		if (lease->state != LK__LEASE_NEW)
			lk__etcd_lease_revoke(session, lease->id);
	session->state = LK__ETCD_DOWN; /* it puts nothing any more */
}

void lk__etcd_lease_sweep(struct lk__etcd_session *session)
{
	struct lk__etcd_lease **at = &session->leases;

	while (*at) {
		struct lk__etcd_lease *lease = *at;
		struct lk__etcd_call *call;

		if (!lease->is_ended) {
			at = &lease->next;
			continue;
		}
		for (call = session->calls; call; call = call->next)
			if (call->lease == lease)
				call->purpose = LK__ETCD_FOR_NOTHING;
		*at = lease->next;
		free(lease);
	}
}

/* ---- Rounds --------------------------------------------------------------------------------- */

static bool is_of(const struct lk__etcd_session *session, const struct lk__etcd_job *job,
                  const struct lk__etcd_lease *lease)
{
	const struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);

	return job->wants_round && !job->is_done && ticket && ticket->lease == lease;
}

/* The ticket's lease has ended: the core asks for it again, if it needs it. */
static void begin_again(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	if (ticket->is_waiting)
		lk__etcd_reask(session, ticket, 0);
	ticket->created = ticket->granted = 0;
	ticket->count = 0;
	ticket->is_waiting = ticket->is_under_another = false;
	if (!ticket->busy)
		lk__etcd_remove(session, ticket);
}

void lk__etcd_lease_over(struct lk__etcd_session *session, struct lk__etcd_lease *lease)
{
	const struct lk__answer gone = {.kind = LK__GONE};
	struct lk__etcd_own_ticket *ticket, *next;

	lease->state = LK__LEASE_NEW;
	for (struct lk__etcd_job *job = session->jobs; job; job = job->next) {
		if (!is_of(session, job, lease))
			continue;
		job->wants_round = false;
		if (job->kind != LK__ASK) /* that puts its ticket anew */
			lk__etcd_done(job, &gone);
	}
	for (ticket = lk__etcd_each(session, NULL); ticket; ticket = next) {
		next = lk__etcd_each(session, ticket);
		if (ticket->lease == lease)
			begin_again(session, ticket);
	}
	if (lease == session->home)
		lk__etcd_set_up_again(session);
}

struct lk__etcd_call *lk__etcd_call_keep_alive(struct lk__etcd_session *session,
                                               enum lk__etcd_purpose purpose, int64_t id)
{
	char bytes[32];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_keep_alive(&writer, id);
	return lk__etcd_call(session, purpose, LK__ETCD_CALL_KEEP_ALIVE, &writer);
}

static bool keep_alive(struct lk__etcd_session *session, struct lk__etcd_lease *lease)
{
	struct lk__etcd_call *call =
		lk__etcd_call_keep_alive(session, LK__ETCD_FOR_KEEP_ALIVE, lease->id);

	if (call)
		lk__etcd_call_under(call, lease);
	return call;
}

/* The ranges of a ticket and of its queue; returns how much memory their keys need. */
static size_t read_ticket(const struct lk__etcd_session *session, const struct lk__etcd_job *job,
                          struct lk__etcd_range ranges[2], char *keys)
{
	char *end = keys + LK__ETCD_KEY_MAX, *own = end + LK__ETCD_KEY_MAX;
	size_t len =
		lk__etcd_queue_key(keys, session->prefix, job->letter, job->name, job->name_len);

	memcpy(end, keys, len + 1);
	lk__etcd_range_end(end, len);
	ranges[0].key.len = lk__etcd_ticket_key(own, keys, session->client, job->nonce);
	ranges[0].key.data = own;
	ranges[1].key = (struct lk__bytes){keys, len};
	ranges[1].range_end = (struct lk__bytes){end, len};
	return 3 * LK__ETCD_KEY_MAX;
}

/* Read the tickets whose renewal waits, so that one that was deleted is noticed, and count those in
 * their queues, for which threads must not keep a lock among themselves; at least the session's own
 * key. */
static bool read_tickets(struct lk__etcd_session *session, struct lk__etcd_lease *lease)
{
	static const size_t size = (READ_MAX + 1) * (3 * LK__ETCD_KEY_MAX + 128);
	struct lk__etcd_range ranges[2 * READ_MAX + 1];
	struct lk__etcd_op ops[2 * READ_MAX + 1];
	struct lk__etcd_txn txn = {.success = ops};
	struct lk__pb_writer writer;
	struct lk__etcd_call *call = NULL;
	char own[LK__ETCD_OWN_MAX];
	char *keys = malloc(2 * size), *bytes = keys + size;
	size_t used = 0;

	if (!keys)
		return false;
	memset(ranges, 0, sizeof(ranges));
	ranges[0].key.len = lk__etcd_era_key(own, session->prefix, session->client);
	ranges[0].key.data = own;
	txn.success_count = 1;
	for (struct lk__etcd_job *job = session->jobs; job; job = job->next) {
		if (!is_of(session, job, lease))
			continue;
		job->was_read = txn.success_count < 2 * READ_MAX;
		if (!job->was_read)
			continue;
		used += read_ticket(session, job, &ranges[txn.success_count], keys + used);
		txn.success_count += 2;
	}
	for (size_t i = 0; i < txn.success_count; i++) {
		ranges[i].count_only = true;
		ops[i] = (struct lk__etcd_op){.range = &ranges[i]};
	}
	lk__pb_writer_init(&writer, bytes, size);
	lk__etcd_put_txn(&writer, &txn);
	if (!writer.is_full)
		call = lk__etcd_call(session, LK__ETCD_FOR_READ, LK__ETCD_CALL_TXN, &writer);
	if (call)
		lk__etcd_call_under(call, lease);
	free(keys);
	return call;
}

static void tick(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_lease *lease)
{
	enum lk__lease_step step;
	bool sent;

	if (lease->state != LK__LEASE_LIVE)
		return;
	if (!lk__lease_is_valid(&lease->machine, now_ns)) {
		lk__etcd_lease_over(session, lease);
		return;
	}
	if (session->state == LK__ETCD_DOWN || lease->rests)
		return;
	step = lk__lease_next(&lease->machine, now_ns);
	if (step == LK__LEASE_REST)
		return;
	sent = step == LK__LEASE_READ ? read_tickets(session, lease) : keep_alive(session, lease);
	if (!sent)
		lk__lease_failed(&lease->machine, now_ns, RETRY_NS);
}

void lk__etcd_lease_tick(struct lk__etcd_session *session, int64_t now_ns)
{
	for (struct lk__etcd_lease *lease = session->leases; lease; lease = lease->next)
		tick(session, now_ns, lease);
}

int64_t lk__etcd_lease_due_ns(const struct lk__etcd_session *session)
{
	int64_t due_ns = LK__ETCD_NEVER;

	for (const struct lk__etcd_lease *lease = session->leases; lease; lease = lease->next) {
		int64_t at_ns = lk__lease_end_ns(&lease->machine);

		if (lease->state != LK__LEASE_LIVE)
			continue;
		if (session->state != LK__ETCD_DOWN && !lease->rests &&
		    lease->machine.sent == LK__LEASE_REST && lease->machine.due_ns < at_ns)
			at_ns = lease->machine.due_ns;
		if (at_ns < due_ns)
			due_ns = at_ns;
	}
	return due_ns;
}

void lk__etcd_renew(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job)
{
	const struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__lease *machine = ticket && ticket->lease ? &ticket->lease->machine : NULL;
	const struct lk__answer gone = {.kind = LK__GONE};

	if (!machine || !ticket->created || ticket->is_waiting ||
	    ticket->lease->state != LK__LEASE_LIVE) {
		lk__etcd_done(job, &gone);
		return;
	}
	if (job->wants_round)
		return;
	job->wants_round = true;
	ticket->lease->rests = false;
	if (machine->due_ns > now_ns)
		machine->due_ns = now_ns;
	tick(session, now_ns, ticket->lease);
}

/* ---- Answers -------------------------------------------------------------------------------- */

static bool waits(const struct lk__etcd_session *session, const struct lk__etcd_lease *lease)
{
	const struct lk__etcd_own_ticket *ticket = NULL;

	while ((ticket = lk__etcd_each(session, ticket)))
		if (ticket->lease == lease && ticket->is_waiting)
			return true;
	return false;
}

/* The ticket is not there any more: it was deleted. */
static void vanished(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	const struct lk__answer gone = {.kind = LK__GONE};
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);

	ticket->created = ticket->granted = 0;
	job->wants_round = false;
	if (job->kind != LK__ASK)
		lk__etcd_done(job, &gone);
}

/* A round is complete: answer the renewals that wait for it. */
static void renewed(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_lease *lease,
                    struct lk__pb_list responses, int64_t revision)
{
	struct lk__etcd_op_answer op, queue;

	lease->rests = lease->is_own && !waits(session, lease);
	lk__pb_next(&responses, &op);
	for (struct lk__etcd_job *job = session->jobs; job; job = job->next) {
		struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
		struct lk__answer answer = {
			.kind = job->kind == LK__ASK ? LK__GRANTED : LK__KEPT,
			.store_us = LK__ETCD_LATE_US,
		};

		if (!is_of(session, job, lease))
			continue;
		if (!job->was_read || (job->extends && job->asked_ns > lease->machine.since_ns)) {
			lease->machine.due_ns = now_ns; /* it came too late for this round */
			lease->rests = false;
			continue;
		}
		answer.since_ns = lease->machine.since_ns;
		answer.fence = (uint64_t)ticket->created * LK__ETCD_FENCES;
		if (lk__pb_next(&responses, &op) && lk__pb_next(&responses, &queue) &&
		    op.range.count > 0 && queue.range.count > 0) {
			/* Those of a semaphore may hold, too. */
			if (job->letter == LK__ETCD_LOCK)
				answer.waiting = queue.range.count - 1;
			if (job->share && !answer.waiting)
				lk__etcd_watch_wanted(session, ticket, revision);
			else
				lk__etcd_unwatch_wanted(session, ticket);
			lk__etcd_done(job, &answer);
		} else {
			vanished(session, job);
		}
	}
}

/* Those that do not renew now would believe in their hold. */
static void notify_holders(struct lk__etcd_session *session, const struct lk__etcd_lease *lease)
{
	const struct lk__etcd_own_ticket *ticket = NULL;

	while ((ticket = lk__etcd_each(session, ticket)))
		if (ticket->lease == lease && ticket->created && !ticket->is_waiting)
			lk__etcd_hear_of(session, ticket, LK__TAKEN);
}

/* An earlier state of the store was restored.  What it has of this client would live for as long as
 * the leases under which it was put. */
static void begin_anew(struct lk__etcd_session *session)
{
	session->revision = 0;
	for (struct lk__etcd_lease *lease = session->leases; lease; lease = lease->next) {
		if (lease->state != LK__LEASE_LIVE)
			continue;
		lk__etcd_lease_revoke(session, lease->id);
		notify_holders(session, lease);
		lk__etcd_lease_over(session, lease);
	}
}

/* The round failed.  What waiting does not cure is the answer to the renewals that wait for it:
 * otherwise their end would look like a silence. */
static void round_failed(struct lk__etcd_session *session, int64_t now_ns,
                         struct lk__etcd_lease *lease, const struct lk__etcd_outcome *outcome)
{
	lk__lease_failed(&lease->machine, now_ns, RETRY_NS);
	if (!outcome->err || outcome->retryable)
		return;
	for (struct lk__etcd_job *job = session->jobs; job; job = job->next) {
		if (!is_of(session, job, lease))
			continue;
		job->wants_round = false;
		lk__etcd_refuse(job, outcome);
	}
}

static void confirmed(struct lk__etcd_session *session, int64_t now_ns, int64_t revision,
                      struct lk__etcd_lease *lease, const struct lk__etcd_outcome *outcome)
{
	int64_t sent_ns = lease->machine.sent_ns;
	struct lk__etcd_txn_answer answer;

	if (outcome->err ||
	    !lk__pb_read(&lk__etcd_txn_shape, outcome->message, outcome->len, &answer)) {
		round_failed(session, now_ns, lease, outcome);
		return;
	}
	if (answer.header.revision < revision) {
		begin_anew(session);
		return;
	}
	if (answer.header.revision > session->revision)
		session->revision = answer.header.revision;
	lk__lease_confirmed(&lease->machine, now_ns, answer.header.raft_term);
	if (!lk__lease_is_valid(&lease->machine, now_ns))
		lk__etcd_lease_over(session, lease);
	else if (sent_ns && lease->machine.since_ns == sent_ns)
		renewed(session, now_ns, lease, answer.responses, answer.header.revision);
}

/* etcd does not have the lease.  A leader that is being replaced may not know a new one: pause, so
 * that it is not asked again and again. */
static void ended_early(struct lk__etcd_session *session, int64_t now_ns,
                        struct lk__etcd_lease *lease)
{
	session->retry_ns = now_ns + RETRY_NS;
	lk__etcd_lease_over(session, lease);
}

static void kept_alive(struct lk__etcd_session *session, int64_t now_ns,
                       struct lk__etcd_lease *lease, const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_keep_alive_answer answer;

	if (outcome->err ||
	    !lk__pb_read(&lk__etcd_keep_alive_shape, outcome->message, outcome->len, &answer) ||
	    answer.id != lease->id)
		round_failed(session, now_ns, lease, outcome);
	else if (!lk__lease_renewed(&lease->machine, now_ns, answer.ttl_s))
		ended_early(session, now_ns, lease);
}

static void granted(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_lease *lease,
                    const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_lease_grant_answer answer;

	lease->state = LK__LEASE_NEW;
	if (outcome->err) {
		session->retry_ns = now_ns + RETRY_NS;
		lk__etcd_refuse_all(session, outcome);
	} else if (!lk__pb_read(&lk__etcd_lease_grant_shape, outcome->message, outcome->len,
	                        &answer) ||
	           answer.ttl_s < lease->ttl_s) {
		lk__etcd_refuse_all(session, &lk__etcd_malformed);
	} else {
		lease->state = LK__LEASE_LIVE;
		lk__lease_granted(&lease->machine, lease->sent_ns, answer.ttl_s,
		                  answer.header.raft_term);
	}
}

void lk__etcd_lease_outcome(struct lk__etcd_session *session, int64_t now_ns,
                            struct lk__etcd_call *call, const struct lk__etcd_outcome *outcome)
{
	if (lk__etcd_is_former(call))
		return;
	if (call->purpose == LK__ETCD_FOR_GRANT)
		granted(session, now_ns, call->lease, outcome);
	else if (call->purpose == LK__ETCD_FOR_KEEP_ALIVE)
		kept_alive(session, now_ns, call->lease, outcome);
	else
		confirmed(session, now_ns, call->revision, call->lease, outcome);
	lk__etcd_lease_tick(session, now_ns);
}
