/* SPDX-License-Identifier: MIT
 * The jobs of semaphores: which transaction is next for each, and what its answer makes of it. */
#include "session_parts.h"

#include "query.h"

#include <stdio.h>
#include <string.h>

#define ALL (INT64_MAX / 4) /* more permits than there are */

/* ---- Sending -------------------------------------------------------------------------------- */

static void send(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 struct lk__etcd_own_ticket *ticket, struct lk__etcd_lease *lease,
                 const struct lk__etcd_recipe *recipe, const struct lk__etcd_noun *noun)
{
	struct lk__etcd_call *call = lk__etcd_send_recipe(session, job, ticket, lease, recipe);

	if (call)
		call->noun = *noun;
}

static void look(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 struct lk__etcd_own_ticket *ticket, const struct lk__etcd_known *known)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_recipe recipe;

	lk__etcd_look_permits(&recipe, &queue, job->nonce, lk__etcd_limit(&queue, &known->noun));
	send(session, job, ticket, ticket ? ticket->lease : NULL, &recipe, &known->noun);
}

/* Put the semaphore, under a new lease unless it keeps its own. */
static void put_noun(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job,
                     struct lk__etcd_known *known, struct lk__etcd_noun noun, bool keeps)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	int64_t ttl_s = lk__etcd_known_ttl_s(noun.ttl_ms), mod = noun.mod;
	struct lk__etcd_recipe recipe;

	if (!keeps && (!known->lease || known->lease_ttl_s != ttl_s)) {
		known->lease = 0; /* one of another time to live ends by itself */
		lk__etcd_grant_known(session, now_ns, job, known, ttl_s);
		return;
	}
	noun.lease = keeps ? 0 : known->lease;
	lk__etcd_size(&recipe, &queue, mod, &noun, lk__etcd_limit(&queue, &noun));
	noun.mod = mod;
	send(session, job, NULL, NULL, &recipe, &noun);
}

static void create(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job,
                   struct lk__etcd_known *known)
{
	put_noun(session, now_ns, job, known,
	         (struct lk__etcd_noun){.capacity = job->capacity, .ttl_ms = job->ttl_ms}, false);
}

static void refuse_more(struct lk__etcd_job *job, int64_t capacity)
{
	char text[80];
	const struct lk__etcd_outcome more = {.err = LK_ELIMIT, .text = text};

	snprintf(text, sizeof(text), "permits: more than the capacity of %lld",
	         (long long)capacity);
	lk__etcd_refuse(job, &more);
	job->answer.by_script = true;
}

/* Refuse an ask before its ticket was put. */
static void is_too_much(struct lk__etcd_session *session, struct lk__etcd_job *job,
                        struct lk__etcd_own_ticket *ticket, int64_t capacity)
{
	refuse_more(job, capacity);
	lk__etcd_remove(session, ticket);
}

/* Put a ticket only if it is granted by that: as nothing was put since a read, there is enough. */
static bool fits(const struct lk__etcd_known *known, int64_t permits)
{
	return known->revision && known->used + permits <= known->noun.capacity;
}

/* Before a ticket is put, or in place of a refusal by what was read for another job. */
static bool needs_look(const struct lk__etcd_known *known, const struct lk__etcd_job *job,
                       const struct lk__etcd_own_ticket *ticket)
{
	bool is_refused = ticket->permits > known->noun.capacity ||
	                  (job->only_try && !fits(known, ticket->permits));

	if (!known->was_read || !known->noun.mod)
		return !known->was_read;
	return ticket->created || (is_refused && !job->was_seen);
}

void lk__etcd_ask_for_permits(struct lk__etcd_session *session, int64_t now_ns,
                              struct lk__etcd_job *job, struct lk__etcd_own_ticket *ticket)
{
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	const struct lk__answer busy = {.kind = LK__BUSY};
	struct lk__etcd_terms terms = lk__etcd_terms_of(ticket, ticket->lease);
	bool is_over = known && ticket->permits > known->noun.capacity;
	struct lk__etcd_recipe recipe;

	if (!known) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	lk__etcd_keep_known(session, now_ns, known);
	if (needs_look(known, job, ticket))
		look(session, job, ticket, known);
	else if (!known->noun.mod && ticket->permits > job->capacity && !ticket->created)
		is_too_much(session, job, ticket, job->capacity);
	else if (!known->noun.mod)
		create(session, now_ns, job, known);
	else if (is_over)
		is_too_much(session, job, ticket, known->noun.capacity);
	else if (job->only_try && !fits(known, ticket->permits)) {
		lk__etcd_remove(session, ticket);
		lk__etcd_done(job, &busy);
	} else {
		lk__etcd_ask_permits(&recipe, &queue, job->nonce, &known->noun,
		                     job->only_try ? known->revision : 0, &terms);
		send(session, job, ticket, ticket->lease, &recipe, &known->noun);
	}
}

void lk__etcd_leave_with_permits(struct lk__etcd_session *session, struct lk__etcd_job *job,
                                 struct lk__etcd_own_ticket *ticket)
{
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	const struct lk__etcd_noun none = {0};
	const struct lk__etcd_noun *noun = known ? &known->noun : &none;
	struct lk__etcd_recipe recipe;

	lk__etcd_leave_permits(&recipe, &queue, job->nonce, lk__etcd_limit(&queue, noun));
	send(session, job, ticket, NULL, &recipe, noun);
}

void lk__etcd_give_back(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	const struct lk__answer left = {.kind = LK__LEFT};
	struct lk__etcd_terms terms;
	struct lk__etcd_recipe recipe;

	if (!ticket || !ticket->created || !ticket->lease) {
		lk__etcd_done(job, &left); /* the store does not have it */
		return;
	}
	if (!known) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	/* Others may have had these permits since an earlier try: never put more again. */
	if (job->permits < ticket->permits)
		ticket->permits = job->permits;
	if (ticket->busy || session->state != LK__ETCD_READY || lk__etcd_is_preceded(session, job))
		return;
	terms = lk__etcd_terms_of(ticket, ticket->lease);
	lk__etcd_shrink(&recipe, &queue, job->nonce, ticket->created, &terms,
	                lk__etcd_limit(&queue, &known->noun));
	send(session, job, ticket, NULL, &recipe, &known->noun);
}

/* ---- The size ------------------------------------------------------------------------------- */

static void refuse_capacity(struct lk__etcd_job *job, int64_t max)
{
	char text[80];
	const struct lk__etcd_outcome wrong = {.err = LK_EINVALID, .text = text};

	snprintf(text, sizeof(text), "capacity: %lld at most on etcd%s", (long long)max,
	         max < LK__ETCD_CAPACITY_MAX ? ", for so long a name" : "");
	lk__etcd_refuse(job, &wrong);
}

static void resize(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job,
                   struct lk__etcd_known *known)
{
	struct lk__etcd_noun noun = known->noun;

	noun.capacity = job->capacity;
	if (job->granted_to > noun.granted_to)
		noun.granted_to = job->granted_to;
	put_noun(session, now_ns, job, known, noun, true);
}

void lk__etcd_size_it(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job)
{
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_noun noun = known ? known->noun : (struct lk__etcd_noun){0};
	struct lk__answer answer = {.kind = LK__SIZED, .capacity = noun.capacity};
	bool is_same = !job->capacity || job->capacity == noun.capacity;

	if (job->capacity > lk__etcd_capacity_max(&queue)) {
		refuse_capacity(job, lk__etcd_capacity_max(&queue));
		return;
	}
	if (!known) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	if (!job->was_seen) {
		look(session, job, NULL, known);
		return;
	}
	lk__etcd_keep_known(session, now_ns, known);
	if (!noun.mod && (job->must_exist || !job->capacity))
		answer.kind = LK__ABSENT;
	else if (noun.mod && !job->must_exist && !is_same)
		answer.kind = LK__MISMATCH;
	else if (!noun.mod) {
		create(session, now_ns, job, known);
		return;
	} else if (job->must_exist && !is_same) {
		resize(session, now_ns, job, known);
		return;
	} else if (!job->must_exist && job->capacity && job->ttl_ms != noun.ttl_ms) {
		noun.ttl_ms = job->ttl_ms;
		put_noun(session, now_ns, job, known, noun, false);
		return;
	}
	lk__etcd_done(job, &answer);
}

/* ---- Answers -------------------------------------------------------------------------------- */

/* Notify those that are granted because the ticket of that place, or one before all, has given so
 * many permits back; and the next one, if it is now the first that waits. */
static void serve(struct lk__etcd_session *session, const struct lk__etcd_call *call,
                  const struct lk__etcd_seen *seen, const struct lk__etcd_noun *noun, int64_t from,
                  int64_t permits)
{
	struct lk__etcd_walk walk = {.kvs = seen->queue,
	                             .capacity = noun->capacity,
	                             .granted_to = noun->granted_to,
	                             .queue_len = call->plan.queue_len};
	int64_t before = 0;
	bool moves = false;

	while (lk__etcd_walk(&walk)) {
		if (walk.ticket.created <= from) {
			before = walk.sum;
		} else if (!walk.is_granted) {
			if (walk.permits > noun->capacity)
				lk__etcd_mail(session, LK__NEWS_AGAIN, &walk.ticket,
				              seen->revision);
			else if (moves || before + permits > noun->capacity)
				lk__etcd_mail(session, LK__NEWS_FIRST, &walk.ticket,
				              seen->revision);
			return;
		} else if (walk.sum + permits > noun->capacity &&
		           walk.ticket.created > noun->granted_to) {
			lk__etcd_mail(session, LK__NEWS_GRANT, &walk.ticket, seen->revision);
			moves = true;
		}
	}
}

static void sized(struct lk__etcd_session *session, struct lk__etcd_job *job,
                  struct lk__etcd_known *known, const struct lk__etcd_call *call,
                  const struct lk__etcd_seen *seen)
{
	static const struct lk__etcd_outcome foreign = {.err = LK_EFOREIGN,
	                                                .text = "the name is one of another kind"};
	struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);
	struct lk__etcd_noun noun = call->noun;
	struct lk__answer answer = {.kind = LK__SIZED, .capacity = noun.capacity};
	int64_t before = noun.mod ? known->noun.capacity : 0;

	if (!seen->has_put && !seen->noun.mod && seen->is_other_kind) {
		lk__etcd_refuse(job, &foreign);
		job->answer.by_script = true;
		if (ticket && !ticket->created)
			lk__etcd_remove(session, ticket);
		return;
	}
	if (!seen->has_put) {
		lk__etcd_learn(known, seen, true);
		known->revision = 0;
		job->was_seen = false;
		if (known->lease) /* another client was faster */
			lk__etcd_lease_revoke(session, known->lease);
		known->lease = 0;
		return;
	}
	if (call->noun.lease) {
		known->kept_ns = known->lease_sent_ns;
		known->lease = 0;
	} else {
		noun.lease = known->noun.lease;
	}
	noun.mod = seen->revision;
	lk__etcd_learn(known, seen, false);
	known->noun = noun;
	known->was_read = true;
	if (job->kind != LK__SIZE)
		return; /* an ask goes on */
	if (before)
		serve(session, call, seen, &noun, 0, noun.capacity - before);
	lk__etcd_done(job, &answer);
}

static void shrunk(struct lk__etcd_session *session, struct lk__etcd_job *job,
                   struct lk__etcd_own_ticket *ticket, const struct lk__etcd_call *call,
                   const struct lk__etcd_seen *seen, const struct lk__etcd_noun *noun)
{
	const struct lk__answer answer = {.kind = LK__LEFT, .mine = seen->has_put};

	if (seen->is_past) {
		if (call->era == session->era)
			lk__etcd_set_up_again(session);
		return;
	}
	if (seen->has_put) {
		serve(session, call, seen, noun, ticket->created,
		      (int64_t)ticket->stored - ticket->permits);
		ticket->stored = ticket->permits;
	}
	lk__etcd_done(job, &answer);
}

static void broke(struct lk__etcd_session *session, struct lk__etcd_job *job,
                  const struct lk__etcd_call *call, const struct lk__etcd_seen *seen,
                  const struct lk__etcd_noun *noun)
{
	const struct lk__answer answer = {.kind = LK__LEFT, .mine = seen->is_served};

	if (!seen->is_served && seen->had && !job->is_mute) {
		job->is_mute = true; /* its client has no mailbox */
		return;
	}
	if (seen->is_served)
		serve(session, call, seen, noun, seen->created, seen->gone);
	lk__etcd_done(job, &answer);
}

/* A read for a size. */
static void seen_for_size(struct lk__etcd_session *session, struct lk__etcd_job *job,
                          const struct lk__etcd_seen *seen)
{
	if (!seen->noun.mod && seen->is_other_kind) {
		lk__etcd_is_of_another_kind(session, job, LK__ETCD_SEMAPHORE);
		return;
	}
	job->was_seen = true;
	job->granted_to = seen->granted_to;
}

/* True: the job goes on, or is done. */
static bool saw_ask(struct lk__etcd_session *session, const struct lk__etcd_call *call,
                    struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen,
                    const struct lk__etcd_noun *noun)
{
	struct lk__etcd_job *job = call->job;

	if (seen->is_past)
		return false;
	job->was_seen = !seen->has_put;
	if (!seen->created) {
		ticket->created = 0; /* it is not there, or not any more: put it */
		return true;
	}
	ticket->stored = ticket->permits;
	if (!seen->has_put && !noun->mod) {
		ticket->created = seen->created;
		return true; /* make the semaphore first */
	}
	if (seen->is_granted) {
		if (!seen->has_put && seen->created != ticket->granted)
			serve(session, call, seen, noun, seen->created, ALL);
		return false;
	}
	if (seen->created == ticket->granted)
		return false;
	if (job->only_try) {
		lk__etcd_leave_later(session, ticket);
		lk__etcd_done(job, &(struct lk__answer){.kind = LK__BUSY});
		return true;
	}
	if (!seen->has_put && ticket->permits > noun->capacity) {
		ticket->created = seen->created;
		refuse_more(job, noun->capacity);
		job->answer.by_script = false; /* it leaves */
		return true;
	}
	return false;
}

bool lk__etcd_saw_permits(struct lk__etcd_session *session, struct lk__etcd_call *call,
                          struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen)
{
	struct lk__etcd_job *job = call->job;
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_noun noun = call->noun;
	enum lk__etcd_task task = call->plan.task;
	bool asks = task == LK__ETCD_ASK || task == LK__ETCD_TRY;

	if (!known) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return true;
	}
	if (task == LK__ETCD_SIZE) {
		sized(session, job, known, call, seen);
		return true;
	}
	if (!seen->is_past &&
	    !((task == LK__ETCD_SHRINK || task == LK__ETCD_BREAK) && !seen->is_served)) {
		lk__etcd_learn(known, seen, !asks || !seen->has_put);
		noun = known->noun;
	}
	if (task == LK__ETCD_LOOK && seen->is_short &&
	    lk__etcd_limit(&queue, &noun) > lk__etcd_limit(&queue, &call->noun))
		return true; /* the capacity is another one: read more */
	if (task == LK__ETCD_SHRINK)
		shrunk(session, job, ticket, call, seen, &noun);
	else if (task == LK__ETCD_BREAK)
		broke(session, job, call, seen, &noun);
	else if (job->kind == LK__SIZE)
		seen_for_size(session, job, seen);
	else if (task == LK__ETCD_LEAVE && seen->had)
		serve(session, call, seen, &noun, seen->created, seen->gone);
	if (task == LK__ETCD_LEAVE)
		return false;
	return job->kind != LK__ASK || saw_ask(session, call, ticket, seen, &noun);
}

void lk__etcd_break_permit(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_known *known = lk__etcd_know(session, job->name, job->name_len);
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	const struct lk__answer nothing = {.kind = LK__LEFT};
	struct lk__etcd_recipe recipe;
	struct lk__etcd_ticket holder;

	if (!known) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	if (!lk__etcd_read_entry_id(&holder, job->text)) {
		lk__etcd_done(job, &nothing);
		return;
	}
	lk__etcd_break_permits(&recipe, &queue, &holder, job->is_mute,
	                       lk__etcd_limit(&queue, &known->noun));
	send(session, job, NULL, NULL, &recipe, &known->noun);
}
