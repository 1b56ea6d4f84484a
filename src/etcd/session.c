/* SPDX-License-Identifier: MIT
 * The life of a session: connections, jobs in order, calls. */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_NS (100 * MS)

const struct lk__etcd_outcome lk__etcd_no_memory = {
	.err = LK_ENOMEM, .retryable = true, .text = "out of memory"};
const struct lk__etcd_outcome lk__etcd_malformed = {.err = LK_ESERVER, .text = "malformed answer"};

bool lk__etcd_session_init(struct lk__etcd_session *session, const char *prefix, const char *client,
                           const struct lk__etcd_wire *wire)
{
	*session = (struct lk__etcd_session){
		.prefix = prefix,
		.client = client,
		.wire = *wire,
		.last_watch = LK__ETCD_MAILBOX_WATCH,
	};
	session->jobs_end = &session->jobs;
	session->heard_end = &session->heard;
	session->notices_end = &session->notices;
	return lk__table_init(&session->tickets);
}

void lk__etcd_free_job(struct lk__etcd_job *job)
{
	if (!job)
		return;
	free(job->text);
	free(job->latch);
	free(job->only);
	free(job->shown);
	free(job->reply);
	free(job);
}

static void drop(struct lk__etcd_job **jobs)
{
	while (*jobs) {
		struct lk__etcd_job *job = *jobs;
		*jobs = job->next;
		lk__etcd_free_job(job);
	}
}

static void drop_jobs(struct lk__etcd_session *session)
{
	drop(&session->jobs);
	drop(&session->chores);
	session->jobs_end = &session->jobs;
}

static void drop_calls(struct lk__etcd_session *session)
{
	while (session->calls) {
		struct lk__etcd_call *call = session->calls;
		session->calls = call->next;
		free(call);
	}
}

static void drop_messages(struct lk__etcd_session *session)
{
	while (session->heard) {
		struct lk__etcd_heard *heard = session->heard;
		session->heard = heard->next;
		free(heard);
	}
	session->heard_end = &session->heard;
}

void lk__etcd_session_fini(struct lk__etcd_session *session)
{
	lk__etcd_session_down(session);
	drop_messages(session); /* of what that has ended */
	for (size_t i = 0; i < session->tickets.size; i++) {
		while (session->tickets.buckets[i]) {
			struct lk__node *node = session->tickets.buckets[i];
			session->tickets.buckets[i] = node->next;
			free(node);
		}
	}
	lk__table_fini(&session->tickets);
	while (session->leases) {
		struct lk__etcd_lease *lease = session->leases;
		session->leases = lease->next;
		free(lease);
	}
	free(session->memo);
	lk__etcd_free_job(session->taken);
	lk__etcd_forget_said(session);
	lk__etcd_topics_fini(session);
	lk__etcd_forget_known(session);
}

/* ---- Connections ---------------------------------------------------------------------------- */

void lk__etcd_session_up(struct lk__etcd_session *session, int64_t now_ns)
{
	session->state = LK__ETCD_IDLE;
	session->retry_ns = 0;
	session->is_watching = session->has_no_era = false;
	session->era++;
	for (struct lk__etcd_lease *lease = session->leases; lease; lease = lease->next)
		if (lease->state == LK__LEASE_LIVE)
			lk__lease_moved(&lease->machine, now_ns);
}

void lk__etcd_session_down(struct lk__etcd_session *session)
{
	struct lk__etcd_own_ticket *ticket = NULL;

	session->state = LK__ETCD_DOWN;
	drop_jobs(session);
	drop_calls(session);
	lk__etcd_topics_down(session);
	drop_messages(session); /* the core asks for everything again */
	lk__etcd_drop_mails(session);
	lk__etcd_known_down(session);
	while ((ticket = lk__etcd_each(session, ticket))) {
		ticket->busy = NULL;
		ticket->watch_id = ticket->wanted_id = 0;
		if (ticket->is_moving) /* or it was moved */
			ticket->is_under_another = true;
		ticket->is_moving = false;
	}
	lk__etcd_remove_unknown(session);
	for (struct lk__etcd_lease *lease = session->leases; lease; lease = lease->next)
		if (lease->state == LK__LEASE_GRANTING)
			lease->state = LK__LEASE_NEW;
}

void lk__etcd_set_up_again(struct lk__etcd_session *session)
{
	lk__etcd_forget_said(session);
	if (session->state != LK__ETCD_DOWN)
		session->state = LK__ETCD_IDLE;
}

/* Put the era and the mailbox, under the home lease.  An era is put by one call only, before the
 * asks that name it: one that is executed late must not let late asks put a ticket. */
static bool post(struct lk__etcd_session *session)
{
	char era[LK__ETCD_OWN_MAX], mailbox[LK__ETCD_OWN_MAX], bytes[1024];
	struct lk__etcd_put puts[2] = {
		{.lease = session->home->id},
		{.lease = session->home->id, .value = lk__bytes_of("1")},
	};
	struct lk__etcd_op ops[2] = {{.put = &puts[0]}, {.put = &puts[1]}};
	struct lk__etcd_txn txn = {.success = ops, .success_count = 2};
	struct lk__pb_writer writer;

	lk__decimal(session->era_text, (int64_t)++session->era);
	puts[0].value = lk__bytes_of(session->era_text);
	puts[0].key =
		(struct lk__bytes){era, lk__etcd_era_key(era, session->prefix, session->client)};
	puts[1].key = (struct lk__bytes){
		mailbox, lk__etcd_mailbox_key(mailbox, session->prefix, session->client)};
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_txn(&writer, &txn);
	return !writer.is_full &&
	       lk__etcd_call(session, LK__ETCD_FOR_POST, LK__ETCD_CALL_TXN, &writer);
}

/* A full store takes no era, but deletions: without the key, no ask of an earlier connection puts
 * anything, either. */
static void delete_era(struct lk__etcd_session *session)
{
	char era[LK__ETCD_OWN_MAX], bytes[512];
	struct lk__etcd_delete del = {
		.key = {era, lk__etcd_era_key(era, session->prefix, session->client)}};
	struct lk__etcd_op op = {.del = &del};
	struct lk__etcd_txn txn = {.success = &op, .success_count = 1};
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_txn(&writer, &txn);
	lk__etcd_call(session, LK__ETCD_FOR_NO_ERA, LK__ETCD_CALL_TXN, &writer);
}

static void set_up(struct lk__etcd_session *session, int64_t now_ns)
{
	if (session->state != LK__ETCD_IDLE || now_ns < session->retry_ns)
		return;
	if (!session->home)
		session->home = lk__etcd_lease_of(session, LK__ETCD_HOME_TTL_S, false);
	if (!session->home)
		lk__etcd_refuse_all(session, &lk__etcd_no_memory);
	else if (lk__etcd_lease_is_live(session, now_ns, session->home) && post(session))
		session->state = LK__ETCD_POSTING;
}

static void posted(struct lk__etcd_session *session, int64_t now_ns,
                   const struct lk__etcd_outcome *outcome)
{
	if (session->state != LK__ETCD_POSTING)
		return;
	session->state = LK__ETCD_IDLE;
	if (outcome->no_lease && session->home) {
		lk__etcd_lease_over(session, session->home);
	} else if (outcome->err) {
		session->retry_ns = now_ns + RETRY_NS;
		lk__etcd_refuse_all(session, outcome);
	} else if (session->is_watching) {
		session->state = LK__ETCD_READY;
		lk__etcd_add_chores(session);
		lk__etcd_reask_all(session); /* without a mailbox they got no letters */
	} else {
		session->state = LK__ETCD_OPENING;
		session->is_watching = lk__etcd_watch_mailbox(session);
		if (!session->is_watching)
			session->state = LK__ETCD_IDLE;
	}
}

static void era_is_gone(struct lk__etcd_session *session, const struct lk__etcd_outcome *outcome)
{
	if (outcome->err || session->has_no_era)
		return;
	session->has_no_era = true;
	lk__etcd_add_chores(session);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

struct lk__etcd_call *lk__etcd_call(struct lk__etcd_session *session, enum lk__etcd_purpose purpose,
                                    enum lk__etcd_method method,
                                    const struct lk__pb_writer *message)
{
	struct lk__etcd_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->id = ++session->last_call;
	call->purpose = purpose;
	call->revision = session->revision;
	call->era = session->era;
	if (!session->wire.call(session->wire.arg, call->id, method, message->data, message->len)) {
		free(call);
		return NULL;
	}
	call->next = session->calls;
	session->calls = call;
	return call;
}

void lk__etcd_session_outcome(struct lk__etcd_session *session, int64_t now_ns, uint32_t id,
                              const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_call **at = &session->calls, *call;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	call = *at;
	if (!call)
		return;
	*at = call->next;
	if (call->purpose == LK__ETCD_FOR_JOB)
		lk__etcd_job_outcome(session, now_ns, call, outcome);
	else if (call->purpose == LK__ETCD_FOR_QUERY)
		lk__etcd_query_outcome(session, call, outcome);
	else if (call->purpose == LK__ETCD_FOR_LATCH)
		lk__etcd_latch_outcome(session, now_ns, call, outcome);
	else if (call->purpose == LK__ETCD_FOR_POST)
		posted(session, now_ns, outcome);
	else if (call->purpose == LK__ETCD_FOR_SEMAPHORE)
		lk__etcd_known_outcome(session, call, outcome);
	else if (call->purpose == LK__ETCD_FOR_MAIL)
		lk__etcd_mailed(session, call, outcome);
	else if (call->purpose == LK__ETCD_FOR_NO_ERA)
		era_is_gone(session, outcome);
	else if (call->purpose != LK__ETCD_FOR_NOTHING)
		lk__etcd_lease_outcome(session, now_ns, call, outcome);
	free(call);
	lk__etcd_run(session, now_ns);
}

/* ---- Jobs ----------------------------------------------------------------------------------- */

static char letter_of(uint8_t noun)
{
	switch ((lk_kind)noun) {
	case LK_KIND_LOCK:
		return LK__ETCD_LOCK;
	case LK_KIND_SEMAPHORE:
		return LK__ETCD_SEMAPHORE;
	case LK_KIND_LATCH:
		return LK__ETCD_LATCH;
	default:
		return '\0';
	}
}

bool lk__etcd_session_request(struct lk__etcd_session *session, int64_t now_ns,
                              const struct lk__request *request)
{
	struct lk__etcd_job *job = calloc(1, sizeof(*job) + request->name_len);

	if (!job)
		return false;
	job->kind = request->kind;
	job->letter = letter_of(request->noun);
	job->only_try = request->only_try;
	job->share = request->share;
	job->fixed = request->ticket.fixed;
	job->extends = request->extends;
	job->permits = request->kind == LK__SHRINK ? request->keep : request->ticket.permits;
	job->capacity = request->capacity;
	job->ttl_ms = request->ttl_ms;
	job->asked_ns = now_ns;
	job->lease_ms = request->kind == LK__RENEW ? request->lease_ms : request->ticket.lease_ms;
	job->name_len = request->name_len;
	if (job->name_len)
		memcpy(job->name, request->name, job->name_len);
	if (lk__etcd_is_of_latch(request)) {
		if (!lk__etcd_keep_latch(job, request)) {
			lk__etcd_free_job(job);
			return false;
		}
	} else if (!lk__is_query(request->kind)) {
		memcpy(job->nonce, request->ticket.nonce, sizeof(job->nonce));
	} else if (!lk__etcd_keep_query(job, request)) {
		lk__etcd_free_job(job);
		return false;
	}
	*session->jobs_end = job;
	session->jobs_end = &job->next;
	lk__etcd_run(session, now_ns);
	return true;
}

void lk__etcd_done(struct lk__etcd_job *job, const struct lk__answer *answer)
{
	job->answer = *answer;
	job->is_done = true;
}

void lk__etcd_refuse(struct lk__etcd_job *job, const struct lk__etcd_outcome *outcome)
{
	struct lk__answer answer = {
		.kind = LK__FAILED,
		.err = outcome->err,
		.retryable = outcome->retryable,
	};

	lk__why_set(&job->why, outcome->err, "%s", outcome->text);
	lk__etcd_done(job, &answer);
}

void lk__etcd_refuse_all(struct lk__etcd_session *session, const struct lk__etcd_outcome *outcome)
{
	for (struct lk__etcd_job *job = session->jobs; job; job = job->next) {
		struct lk__etcd_own_ticket *ticket = lk__etcd_find(session, job->nonce);

		if (job->is_done || job->is_calling || job->wants_round || job->latch ||
		    (outcome->is_full && job->kind == LK__LEAVE))
			continue;
		lk__etcd_refuse(job, outcome);
		if (job->kind == LK__ASK && ticket && !ticket->created && !ticket->is_leaving &&
		    !ticket->busy)
			lk__etcd_remove(session, ticket); /* the core may not ask again */
	}
	if (outcome->is_full && session->state == LK__ETCD_IDLE && !session->has_no_era)
		delete_era(session);
}

static void do_chores(struct lk__etcd_session *session, int64_t now_ns)
{
	struct lk__etcd_job **at = &session->chores;

	while (*at) {
		struct lk__etcd_job *chore = *at;

		if (chore->retry_ns <= now_ns)
			chore->retry_ns = 0;
		if (!chore->is_done && !chore->is_calling && !chore->retry_ns)
			lk__etcd_advance(session, now_ns, chore);
		if (chore->is_done && chore->answer.kind == LK__FAILED) {
			chore->is_done = false;
			chore->retry_ns = now_ns + LK__ETCD_CHORE_NS;
		} else if (chore->is_done && chore->answer.more) {
			chore->is_done = chore->answer.more = false;
			chore->kind = LK__HAND;
			continue;
		}
		if (chore->is_done) {
			*at = chore->next;
			lk__etcd_free_job(chore);
		} else {
			at = &chore->next;
		}
	}
}

/* Does a job put something? */
static bool needs_set_up(const struct lk__etcd_session *session)
{
	for (const struct lk__etcd_job *job = session->jobs; job; job = job->next)
		if (!job->is_done && !job->latch &&
		    (!lk__is_query(job->kind) || job->kind == LK__INTRODUCE))
			return true;
	return false;
}

void lk__etcd_run(struct lk__etcd_session *session, int64_t now_ns)
{
	if (session->home || needs_set_up(session))
		set_up(session, now_ns);
	for (struct lk__etcd_job *job = session->jobs; job; job = job->next)
		if (!job->is_done && !job->is_calling && !job->wants_round)
			lk__etcd_advance(session, now_ns, job);
	do_chores(session, now_ns);
	lk__etcd_post_mails(session);
	lk__etcd_lease_sweep(session);
}

/* ---- Time, and what goes out ---------------------------------------------------------------- */

void lk__etcd_session_tick(struct lk__etcd_session *session, int64_t now_ns)
{
	lk__etcd_lease_tick(session, now_ns);
	lk__etcd_known_tick(session, now_ns);
	if (session->retry_ns && session->retry_ns <= now_ns)
		session->retry_ns = 0;
	lk__etcd_run(session, now_ns);
}

int64_t lk__etcd_session_due_ns(const struct lk__etcd_session *session)
{
	int64_t due_ns = lk__etcd_lease_due_ns(session), known_ns = lk__etcd_known_due_ns(session);

	if (known_ns < due_ns)
		due_ns = known_ns;
	if (session->retry_ns && session->retry_ns < due_ns)
		due_ns = session->retry_ns;
	for (const struct lk__etcd_job *chore = session->chores; chore; chore = chore->next)
		if (chore->retry_ns && !chore->is_calling && chore->retry_ns < due_ns)
			due_ns = chore->retry_ns;
	return due_ns;
}

bool lk__etcd_session_answer(struct lk__etcd_session *session, struct lk__answer *answer)
{
	struct lk__etcd_job *job = session->jobs;

	if (!job || !job->is_done)
		return false;
	session->jobs = job->next;
	if (!session->jobs)
		session->jobs_end = &session->jobs;
	lk__etcd_free_job(session->taken);
	session->taken = job;
	*answer = job->answer;
	session->why = job->why;
	if (answer->kind == LK__FAILED)
		answer->text = session->why.text;
	return true;
}

bool lk__etcd_session_message(struct lk__etcd_session *session, struct lk__message *message)
{
	struct lk__etcd_heard *heard = session->heard;

	if (!heard)
		return false;
	session->heard = heard->next;
	if (!session->heard)
		session->heard_end = &session->heard;
	*message = heard->message;
	free(heard);
	return true;
}
