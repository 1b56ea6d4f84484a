/* SPDX-License-Identifier: MIT
 * The jobs of locks: which transaction is next for each, and what its answer makes of it.  Those of
 * semaphores share what both have: leases, eras, places in a queue. */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define FIRST_LOOK_MS 1000 /* a ticket that waits for longer watches the one before it */
#define LOOK_MS 10000

static uint64_t fence_of(const struct lk__etcd_own_ticket *ticket)
{
	return (uint64_t)ticket->created * LK__ETCD_FENCES;
}

/* ---- What was read of a queue --------------------------------------------------------------- */

static void forget(struct lk__etcd_session *session)
{
	free(session->memo);
	session->memo = NULL;
}

static void note(struct lk__etcd_session *session, const struct lk__etcd_job *job,
                 const struct lk__etcd_seen *seen)
{
	forget(session);
	session->memo = calloc(1, sizeof(*session->memo) + job->name_len);
	if (!session->memo)
		return; /* it is read again */
	session->memo->count = seen->count;
	memcpy(session->memo->first, seen->first, sizeof(seen->first));
	session->memo->name_len = job->name_len;
	memcpy(session->memo->name, job->name, job->name_len);
}

static const struct lk__etcd_memo *noted(const struct lk__etcd_session *session,
                                         const struct lk__etcd_job *job)
{
	const struct lk__etcd_memo *memo = session->memo;

	return memo && memo->name_len == job->name_len &&
	                       memcmp(memo->name, job->name, job->name_len) == 0
	               ? memo
	               : NULL;
}

/* ---- Sending -------------------------------------------------------------------------------- */

struct lk__etcd_call *lk__etcd_send_recipe(struct lk__etcd_session *session,
                                           struct lk__etcd_job *job,
                                           struct lk__etcd_own_ticket *ticket,
                                           struct lk__etcd_lease *lease,
                                           const struct lk__etcd_recipe *recipe)
{
	char bytes[LK__ETCD_MESSAGE_MAX];
	struct lk__pb_writer writer;
	struct lk__etcd_call *call;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_txn(&writer, &recipe->txn);
	call = writer.is_full
	               ? NULL
	               : lk__etcd_call(session, LK__ETCD_FOR_JOB, LK__ETCD_CALL_TXN, &writer);
	if (!call) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return NULL;
	}
	call->job = job;
	if (lease)
		lk__etcd_call_under(call, lease);
	call->plan = recipe->plan;
	job->is_calling = true;
	if (ticket)
		ticket->busy = job;
	return call;
}

/* The ticket is not under it, nor will be. */
static void forget_longer(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket)
{
	if (ticket->longer)
		lk__etcd_lease_end(session, ticket->longer);
	ticket->longer = NULL;
}

static void move(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 struct lk__etcd_own_ticket *ticket, struct lk__etcd_lease *lease)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_terms terms = lk__etcd_terms_of(ticket, lease);
	struct lk__etcd_recipe recipe;

	lk__etcd_move(&recipe, &queue, job->nonce, ticket->created, &terms);
	lk__etcd_send_recipe(session, job, ticket, lease, &recipe);
	ticket->is_moving = job->is_calling;
}

static void ask(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job)
{
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_terms terms;
	struct lk__etcd_recipe recipe;
	bool only_looks;

	if (!ticket)
		ticket = lk__etcd_add(session, job);
	if (ticket && !ticket->lease) {
		ticket->lease =
			lk__etcd_lease_of(session, lk__etcd_ttl_s(job->lease_ms), job->fixed);
		if (ticket->lease)
			ticket->lease->tickets++;
	}
	if (!ticket || !ticket->lease) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	/* A look puts nothing, so that it needs no era. */
	only_looks = ticket->created && !ticket->is_under_another;
	if (ticket->busy || !lk__etcd_lease_is_live(session, now_ns, ticket->lease) ||
	    (session->state != LK__ETCD_READY && !(only_looks && session->has_no_era)))
		return;
	if (ticket->is_under_another) {
		move(session, job, ticket, ticket->lease);
		return;
	}
	if (job->letter == LK__ETCD_SEMAPHORE) {
		lk__etcd_ask_for_permits(session, now_ns, job, ticket);
		return;
	}
	terms = lk__etcd_terms_of(ticket, ticket->lease);
	if (ticket->created)
		lk__etcd_look(&recipe, &queue, job->nonce);
	else
		lk__etcd_ask(&recipe, &queue, job->nonce, job->only_try, &terms);
	lk__etcd_send_recipe(session, job, ticket, ticket->lease, &recipe);
}

bool lk__etcd_is_preceded(const struct lk__etcd_session *session, const struct lk__etcd_job *job)
{
	for (const struct lk__etcd_job *at = session->jobs; at && at != job; at = at->next)
		if (!at->is_done && strcmp(at->nonce, job->nonce) == 0)
			return true;
	return false;
}

static void leave(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	const struct lk__answer left = {.kind = LK__LEFT};
	struct lk__etcd_recipe recipe;

	if (!ticket && job->is_chore) {
		lk__etcd_done(job, &left); /* the core has done it meanwhile */
		return;
	}
	if (!ticket)
		ticket = lk__etcd_add(session, job);
	if (!ticket) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	ticket->is_leaving = true;
	if ((session->state != LK__ETCD_READY && !session->has_no_era) || ticket->busy ||
	    lk__etcd_is_preceded(session, job))
		return;
	if (ticket->kind == LK__ETCD_SEMAPHORE) {
		lk__etcd_leave_with_permits(session, job, ticket);
		return;
	}
	lk__etcd_leave(&recipe, &queue, job->nonce, ticket->created, ticket->next,
	               ticket->is_waiting ? 0 : ticket->count);
	lk__etcd_send_recipe(session, job, ticket, NULL, &recipe);
}

/* The lease for an extension that the ticket's own does not cover.  NULL when out of memory. */
static struct lk__etcd_lease *longer_lease(struct lk__etcd_session *session,
                                           struct lk__etcd_own_ticket *ticket,
                                           const struct lk__etcd_job *job)
{
	const struct lk__etcd_lease *longer = ticket->longer;

	/* One of an earlier request may end before what the hold has now. */
	if (longer && (longer->ttl_s < lk__etcd_ttl_s(job->lease_ms) ||
	               (longer->state == LK__LEASE_LIVE && longer->sent_ns < job->asked_ns)))
		forget_longer(session, ticket);
	if (!ticket->longer) {
		ticket->longer = lk__etcd_lease_of(session, lk__etcd_ttl_s(job->lease_ms), true);
		if (ticket->longer)
			ticket->longer->rests = true;
	}
	return ticket->longer;
}

/* A lease cannot grow in etcd: its ticket is put under another one, in its place. */
static void renew(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job)
{
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__etcd_lease *lease = ticket ? ticket->lease : NULL;
	const struct lk__answer gone = {.kind = LK__GONE};

	if (!lease || !ticket->created || lease->state != LK__LEASE_LIVE) {
		lk__etcd_done(job, &gone);
		return;
	}
	if (ticket->busy)
		return;
	if (!ticket->is_under_another && job->lease_ms * MS > lease->machine.ttl_ns)
		lease = longer_lease(session, ticket, job);
	if (!lease)
		lk__etcd_refuse(job, &lk__etcd_no_memory);
	else if (lease == ticket->lease && !ticket->is_under_another)
		lk__etcd_renew(session, now_ns, job);
	else if (lk__etcd_lease_is_live(session, now_ns, lease) && session->state == LK__ETCD_READY)
		move(session, job, ticket, lease);
}

/* Notify the first ticket; read which it is, unless that was just read. */
static void serve(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	const struct lk__etcd_memo *memo = noted(session, job);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	const struct lk__answer nothing = {.kind = LK__LEFT};
	struct lk__etcd_recipe recipe;

	if (job->letter == LK__ETCD_SEMAPHORE) {
		lk__etcd_done(job, &nothing); /* done by the client that read the queue */
		return;
	}
	if (session->state != LK__ETCD_READY && job->kind != LK__BREAK) {
		if (session->has_no_era) /* and no room for a letter */
			lk__etcd_done(job, &nothing);
		return;
	}
	if (!memo)
		lk__etcd_look(&recipe, &queue, "");
	else if (memo->count && memo->first[0].client[0])
		lk__etcd_serve(&recipe, &queue, memo->first, memo->count);
	else
		lk__etcd_done(job, &nothing); /* empty; or one that notices it by itself */
	if (!job->is_done)
		lk__etcd_send_recipe(session, job, NULL, NULL, &recipe);
}

void lk__etcd_advance(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job)
{
	static const struct lk__answer memory = {.kind = LK__MEMORY,
	                                         .epoch = {.len = 1, .text = "1"}};
	static const struct lk__etcd_outcome unsupported = {.err = LK_EUNSUPPORTED,
	                                                    .text = "not supported on etcd"};

	static const struct lk__answer left = {.kind = LK__LEFT};

	bool is_queue = job->letter == LK__ETCD_LOCK || job->letter == LK__ETCD_SEMAPHORE;

	if (job->latch) {
		lk__etcd_latch_advance(session, job);
		return;
	}
	if (job->kind == LK__LEAVE && !is_queue) {
		lk__etcd_done(job, &left); /* its ask was refused */
		return;
	}
	if (!is_queue && job->kind <= LK__RENEW) {
		lk__etcd_refuse(job, &unsupported);
		job->answer.by_script = true;
		return;
	}
	switch (job->kind) {
	case LK__ASK:
		ask(session, now_ns, job);
		break;
	case LK__LEAVE:
		leave(session, job);
		break;
	case LK__HAND:
		serve(session, job);
		break;
	case LK__RENEW:
		renew(session, now_ns, job);
		break;
	case LK__SHRINK:
		lk__etcd_give_back(session, job);
		break;
	case LK__SIZE:
		lk__etcd_size_it(session, now_ns, job);
		break;
	case LK__EPOCH:
		lk__etcd_done(job, &memory); /* etcd forgets nothing */
		break;
	case LK__BREAK:
		if (job->is_serving)
			serve(session, job);
		else if (job->letter == LK__ETCD_SEMAPHORE)
			lk__etcd_break_permit(session, job);
		else
			lk__etcd_query(session, job);
		break;
	default:
		lk__etcd_query(session, job);
		break;
	}
}

/* ---- Answers -------------------------------------------------------------------------------- */

/* The job goes on after the next set-up, which may have begun already. */
static void is_past(struct lk__etcd_session *session, const struct lk__etcd_call *call)
{
	if (call->era == session->era)
		lk__etcd_set_up_again(session);
}

/* Of a semaphore: the first that waits must notice the end of any before it. */
static const struct lk__etcd_ticket *watched_permits(const struct lk__etcd_seen *seen)
{
	static const struct lk__etcd_ticket any;

	return seen->is_first ? &any : seen->count ? seen->first : NULL;
}

/* The ticket is in the queue. */
static void queued(struct lk__etcd_session *session, struct lk__etcd_job *job,
                   struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	bool of_lock = job->letter == LK__ETCD_LOCK;
	const struct lk__etcd_ticket *before = !of_lock        ? watched_permits(seen)
	                                       : seen->has_put ? seen->first
	                                       : seen->before <= seen->count
	                                               ? &seen->first[seen->before - 1]
	                                               : NULL;
	struct lk__answer answer = {
		.kind = LK__QUEUED,
		.arrival = (uint64_t)seen->created,
		.rank = of_lock ? seen->before : seen->rank,
		.left_ms = seen->has_put ? FIRST_LOOK_MS : LOOK_MS,
	};

	ticket->is_waiting = true;
	ticket->lease->rests = false; /* it held, and was put again */
	if (before && ((of_lock && !before->client[0]) || !seen->has_put))
		lk__etcd_watch(session, ticket, before, seen->revision);
	lk__etcd_done(job, &answer);
}

static void granted(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job,
                    struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	struct lk__answer answer = {
		.kind = LK__GRANTED,
		.fence = fence_of(ticket),
		.since_ns = ticket->lease->machine.since_ns,
		.store_us = LK__ETCD_LATE_US,
	};

	ticket->is_waiting = false;
	if (job->letter == LK__ETCD_SEMAPHORE) {
		lk__etcd_unwatch(session, ticket);
	} else if (seen->created != ticket->granted) { /* else its letter has the next ones */
		ticket->count = 0;
		for (unsigned i = 1; i < seen->count && ticket->count < LK__ETCD_NEXT_MAX; i++)
			ticket->next[ticket->count++] = seen->first[i];
	}
	answer.waiting = ticket->count;
	if (job->share && !ticket->count && job->letter == LK__ETCD_LOCK)
		lk__etcd_watch_wanted(session, ticket, seen->revision);
	if (ticket->fixed && !seen->has_put) {
		lk__etcd_renew(session, now_ns, job); /* its time begins now */
		return;
	}
	ticket->lease->rests = ticket->fixed;
	lk__etcd_done(job, &answer);
}

static void asked(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_call *call,
                  struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	struct lk__etcd_job *job = call->job;
	static const struct lk__etcd_outcome foreign = {.err = LK_EFOREIGN,
	                                                .text = "the name is one of another kind"};
	const struct lk__answer busy = {.kind = LK__BUSY, .left_ms = LOOK_MS};
	bool is_granted;

	if (seen->is_past) {
		is_past(session, call);
		return;
	}
	if (seen->has_put)
		ticket->era = call->era;
	if (seen->created && seen->created == ticket->broken) {
		ticket->broken = 0;
		return; /* it is not there any more: put it again */
	}
	ticket->created = seen->created;
	ticket->is_under_another =
		seen->created &&
		(lk__etcd_is_former(call) || (!seen->has_put && seen->lease != ticket->lease->id));
	if (ticket->is_under_another)
		return; /* move it first: the store lets that lease expire */
	is_granted = job->letter == LK__ETCD_SEMAPHORE ? seen->is_granted : seen->before == 0;
	if (seen->created && (is_granted || seen->created == ticket->granted)) {
		granted(session, now_ns, job, ticket, seen);
	} else if (seen->created && !job->only_try) {
		queued(session, job, ticket, seen);
	} else if (seen->is_other_kind) {
		lk__etcd_remove(session, ticket);
		lk__etcd_refuse(job, &foreign);
		job->answer.by_script = true;
	} else if (job->only_try) {
		lk__etcd_remove(session, ticket);
		lk__etcd_done(job, &busy);
	}
	/* Else it was not there: put it. */
}

/* It is known which lease the ticket is under. */
static void settle(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket,
                   struct lk__etcd_lease *lease)
{
	if (lease == ticket->longer) {
		ticket->longer = ticket->lease->is_own ? ticket->lease : NULL;
		ticket->lease->tickets--;
		ticket->lease = lease;
		lease->tickets++;
	}
	forget_longer(session, ticket);
}

static void moved(struct lk__etcd_session *session, const struct lk__etcd_call *call,
                  struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	if (seen->is_past) {
		is_past(session, call);
		return;
	}
	ticket->is_under_another = false;
	if (seen->has_put)
		settle(session, ticket, call->lease);
	else
		ticket->created = 0; /* it was not there any more */
}

/* Can no call and no chore name the ticket any more, now that it has left?  What was sent over a
 * connection that has broken may still be executed. */
static bool is_forgotten(const struct lk__etcd_session *session, const struct lk__etcd_job *job,
                         const struct lk__etcd_own_ticket *ticket)
{
	if (!ticket || ticket->era != session->era || job->is_chore)
		return false;
	for (const struct lk__etcd_job *chore = session->chores; chore; chore = chore->next)
		if (strcmp(chore->nonce, job->nonce) == 0)
			return false;
	return true;
}

static void left(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	struct lk__answer answer = {.kind = LK__LEFT, .mine = seen->had};

	if (!seen->is_served) {
		note(session, job, seen);
		answer.free = seen->count == 0;
		answer.more = seen->count && seen->first[0].client[0] &&
		              (!ticket || seen->first[0].created > ticket->created);
	}
	answer.is_spare = is_forgotten(session, job, ticket);
	if (ticket)
		lk__etcd_remove(session, ticket);
	lk__etcd_done(job, &answer);
}

static void served(struct lk__etcd_session *session, struct lk__etcd_job *job, bool was_read,
                   const struct lk__etcd_seen *seen)
{
	const struct lk__etcd_memo *memo = noted(session, job);
	int64_t tried = memo && memo->count ? memo->first[0].created : 0;
	struct lk__answer answer = {.kind = LK__LEFT};

	if (was_read) {
		note(session, job, seen);
		return; /* now serve it */
	}
	forget(session);
	if (!seen->is_served && seen->count && seen->first[0].created != tried) {
		note(session, job, seen);
		answer.more = seen->first[0].client[0];
	}
	lk__etcd_done(job, &answer);
}

static void refused(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job,
                    struct lk__etcd_own_ticket *ticket, const struct lk__etcd_outcome *outcome)
{
	if (ticket && job->kind == LK__ASK && !ticket->created)
		lk__etcd_remove(session, ticket);
	else if (ticket && job->kind == LK__LEAVE && !job->is_chore)
		lk__etcd_add_chore(session, ticket, now_ns + LK__ETCD_CHORE_NS);
	lk__etcd_refuse(job, outcome);
}

/* A full store takes no letters.  The waiter notices the end of the ticket before it, too, although
 * later. */
static bool needs_no_letter(struct lk__etcd_session *session, struct lk__etcd_job *job,
                            struct lk__etcd_own_ticket *ticket)
{
	const struct lk__answer nothing = {.kind = LK__LEFT};

	if (job->kind == LK__HAND || job->is_serving) {
		forget(session);
		lk__etcd_done(job, &nothing);
		return true;
	}
	if (job->kind == LK__BREAK)
		return lk__etcd_break_mutely(session, job);
	if (job->kind != LK__LEAVE || !ticket || !ticket->count)
		return false;
	ticket->count = 0;
	return true;
}

static void answered(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_call *call,
                     struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	struct lk__etcd_job *job = call->job;

	if (seen->revision > session->revision)
		session->revision = seen->revision;
	if (call->plan.kind == LK__ETCD_SEMAPHORE &&
	    lk__etcd_saw_permits(session, call, ticket, seen))
		return;
	if (call->plan.task == LK__ETCD_BREAK)
		lk__etcd_broke(session, job, seen);
	else if (call->plan.task == LK__ETCD_MOVE)
		moved(session, call, ticket, seen);
	else if (job->kind == LK__ASK)
		asked(session, now_ns, call, ticket, seen);
	else if (job->kind == LK__LEAVE)
		left(session, job, ticket, seen);
	else
		served(session, job, call->plan.task == LK__ETCD_LOOK, seen);
}

void lk__etcd_job_outcome(struct lk__etcd_session *session, int64_t now_ns,
                          struct lk__etcd_call *call, const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_job *job = call->job;
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	char era[LK__DECIMAL_SIZE];
	struct lk__etcd_seen seen;

	lk__decimal(era, (int64_t)call->era);
	queue.era = era;
	job->is_calling = false;
	if (ticket && job->kind != LK__HAND && ticket->busy == job) {
		ticket->busy = NULL;
		ticket->is_moving = false;
	}
	if (outcome->no_lease && call->lease && lk__etcd_is_former(call))
		return; /* it is put under a new one */
	if (outcome->no_lease && call->lease)
		lk__etcd_lease_over(session, call->lease); /* the same */
	else if (outcome->no_lease && call->plan.task == LK__ETCD_SIZE)
		lk__etcd_semaphore_lease_over(session, job);
	else if (outcome->is_full && needs_no_letter(session, job, ticket))
		return; /* done, or to be repeated without it */
	else if (outcome->err)
		refused(session, now_ns, job, ticket, outcome);
	else if (!lk__etcd_see(&call->plan, &queue, job->nonce, &call->noun, outcome->message,
	                       outcome->len, &seen))
		lk__etcd_refuse(job, &lk__etcd_malformed);
	else
		answered(session, now_ns, call, ticket, &seen);
}
