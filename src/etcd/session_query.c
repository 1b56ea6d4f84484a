/* SPDX-License-Identifier: MIT
 * The queries of the core, and breaks: each is sent once.  The answer of etcd is kept with the job,
 * and read when the core takes it.
 *
 * What only reads needs no era, no mailbox and no lease. */
#include "session_parts.h"

#include "query.h"

#include <stdlib.h>
#include <string.h>

/* The name under which people see a holder that is no client of this library. */
#define ANOTHER_PROGRAM "not Latchkey"

static const struct lk__answer listed = {.kind = LK__LISTED}, done = {.kind = LK__DONE};

static const char *subject_of(const struct lk__etcd_job *job)
{
	return job->text ? job->text : "";
}

/* ---- What a job keeps ----------------------------------------------------------------------- */

bool lk__etcd_keep_query(struct lk__etcd_job *job, const struct lk__request *request)
{
	const struct lk__details *details = request->details;
	char text[LK__ETCD_DETAILS_MAX];
	const char *kept = details->subject;

	job->noun = request->noun;
	job->holders = details->holders;
	job->waiters = details->waiters;
	job->only = details->only ? strdup(details->only) : NULL;
	job->must_exist = details->must_exist;
	job->capacity = details->capacity;
	job->ttl_ms = details->ttl_ms;
	if (request->kind == LK__SHOW)
		kept = request->ticket.nonce;
	if (request->kind == LK__INTRODUCE) {
		lk__etcd_details_write(text, details);
		kept = text;
	}
	job->text = kept ? strdup(kept) : NULL;
	job->is_serving = request->kind == LK__BREAK && kept && !*kept;
	return (job->text || !kept) && (job->only || !details->only);
}

/* Keep a copy of an answer.  False when out of memory: the job is done with it. */
static bool keep_reply(struct lk__etcd_job *job, const struct lk__etcd_outcome *outcome)
{
	free(job->reply);
	job->reply = malloc(outcome->len + 1);
	job->reply_len = outcome->len;
	if (!job->reply) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return false;
	}
	if (outcome->len)
		memcpy(job->reply, outcome->message, outcome->len);
	return true;
}

/* ---- Details -------------------------------------------------------------------------------- */

/* A key that was put under the home lease, and its value. */
struct lk__etcd_said {
	struct lk__etcd_said *next;
	uint64_t key, value; /* hashes */
};

static struct lk__etcd_said said_of(const struct lk__etcd_job *job)
{
	return (struct lk__etcd_said){NULL, lk__hash(job->name, job->name_len, 1),
	                              lk__hash(job->text, strlen(job->text), 2)};
}

static bool is_said(const struct lk__etcd_session *session, const struct lk__etcd_job *job)
{
	const struct lk__etcd_said wanted = said_of(job);

	for (const struct lk__etcd_said *said = session->said; said; said = said->next)
		if (said->key == wanted.key)
			return said->value == wanted.value;
	return false;
}

static void note_said(struct lk__etcd_session *session, const struct lk__etcd_job *job)
{
	const struct lk__etcd_said made = said_of(job);
	struct lk__etcd_said *said = session->said;

	while (said && said->key != made.key)
		said = said->next;
	if (!said) {
		said = calloc(1, sizeof(*said));
		if (!said)
			return; /* it is put again */
		said->key = made.key;
		said->next = session->said;
		session->said = said;
	}
	said->value = made.value;
}

void lk__etcd_forget_said(struct lk__etcd_session *session)
{
	while (session->said) {
		struct lk__etcd_said *said = session->said;
		session->said = said->next;
		free(said);
	}
}

/* ---- Sending -------------------------------------------------------------------------------- */

static void send(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 enum lk__etcd_method method, const struct lk__pb_writer *writer)
{
	struct lk__etcd_call *call =
		writer->is_full ? NULL : lk__etcd_call(session, LK__ETCD_FOR_QUERY, method, writer);

	if (!call) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	call->job = job;
	job->is_calling = true;
}

static void send_txn(struct lk__etcd_session *session, struct lk__etcd_job *job,
                     const struct lk__etcd_query *query)
{
	char bytes[sizeof(query->text) + 1024];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_txn(&writer, &query->txn);
	send(session, job, LK__ETCD_CALL_TXN, &writer);
}

static void ask_time_to_live(struct lk__etcd_session *session, struct lk__etcd_job *job,
                             int64_t lease)
{
	char bytes[32];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_time_to_live(&writer, lease);
	send(session, job, LK__ETCD_CALL_TIME_TO_LIVE, &writer);
}

static void show(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	int64_t limit = (int64_t)job->waiters + 1;
	struct lk__etcd_query query;

	if (*subject_of(job) && job->kind == LK__SHOW && limit < LK__ETCD_RANK_MAX)
		limit = LK__ETCD_RANK_MAX;
	lk__etcd_show(&query, &queue, limit);
	send_txn(session, job, &query);
}

static void show_permits(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_query query;

	job->shown = calloc(1, sizeof(*job->shown));
	if (!job->shown) {
		lk__etcd_refuse(job, &lk__etcd_no_memory);
		return;
	}
	lk__etcd_show_permits(&query, &queue);
	send_txn(session, job, &query);
}

static void introduce(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_query query;

	if (is_said(session, job)) {
		lk__etcd_done(job, &done);
		return;
	}
	if (session->state != LK__ETCD_READY)
		return;
	lk__etcd_introduce(&query, &queue, subject_of(job), session->home->id);
	send_txn(session, job, &query);
}

static void describe(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	char client[LK__CLIENT_ID_SIZE];
	struct lk__etcd_query query;

	if (!lk__etcd_client_of(client, subject_of(job))) {
		lk__etcd_done(job, &listed);
		return;
	}
	lk__etcd_describe(&query, &queue, client);
	send_txn(session, job, &query);
}

void lk__etcd_query(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	static const struct lk__etcd_outcome unsupported = {.err = LK_EUNSUPPORTED,
	                                                    .text = "not supported on etcd"};
	static const struct lk__etcd_outcome no_grace = {
		.err = LK_EUNSUPPORTED, .text = "etcd has no grace: it forgets no hold"};
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_query query;

	if ((job->kind == LK__SHOW || job->kind == LK__BREAK) && job->noun == LK_KIND_LOCK) {
		show(session, job); /* for a break: which ticket it is */
	} else if (job->kind == LK__SHOW && job->noun == LK_KIND_SEMAPHORE) {
		show_permits(session, job);
	} else if (job->kind == LK__KIND) {
		lk__etcd_kind(&query, &queue);
		send_txn(session, job, &query);
	} else if (job->kind == LK__LIST) {
		lk__etcd_list(&query, session->prefix, subject_of(job));
		send_txn(session, job, &query);
	} else if (job->kind == LK__DESCRIBE) {
		describe(session, job);
	} else if (job->kind == LK__INTRODUCE) {
		introduce(session, job);
	} else if (job->kind == LK__FORGET || job->kind == LK__PING) {
		lk__etcd_done(job, &done); /* details end with the home lease */
	} else if (job->kind == LK__RECALL || job->kind == LK__END_GRACE) {
		lk__etcd_refuse(job, &no_grace);
	} else {
		lk__etcd_refuse(job, &unsupported);
	}
}

/* ---- Answers -------------------------------------------------------------------------------- */

void lk__etcd_is_of_another_kind(const struct lk__etcd_session *session, struct lk__etcd_job *job,
                                 char kind)
{
	char key[LK__ETCD_KEY_MAX];
	struct lk__answer answer = {.kind = LK__FAILED, .err = LK_EFOREIGN};

	lk__etcd_kind_key(key, session->prefix, kind, job->name, job->name_len);
	lk__why_set(&job->why, LK_EFOREIGN, "key %s is in other use: not a %s", key,
	            job->letter == LK__ETCD_SEMAPHORE ? "semaphore" : "lock");
	lk__etcd_done(job, &answer);
}

static struct lk__etcd_wanted wanted_by(const struct lk__etcd_job *job)
{
	return (struct lk__etcd_wanted){job->holders, job->waiters, job->only, subject_of(job)};
}

/* Ask how long each lease has left. */
static void go_on(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	if (job->times < job->shown->time_count)
		ask_time_to_live(session, job, job->shown->times[job->times].lease);
	else
		lk__etcd_done(job, &listed);
}

static void shown_permits(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	static const struct lk__answer absent = {.kind = LK__ABSENT};
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_wanted wanted = wanted_by(job);
	size_t room = job->holders + job->waiters;
	struct lk__listing *listing =
		calloc(1, sizeof(*listing) + room * sizeof(listing->entries[0]));

	if (listing)
		listing->room = room;
	if (!listing)
		lk__etcd_refuse(job, &lk__etcd_no_memory);
	else if (!lk__etcd_see_permits(&queue, &wanted, job->reply, job->reply_len, job->shown,
	                               listing))
		lk__etcd_refuse(job, &lk__etcd_malformed);
	else if (job->shown->is_other_kind)
		lk__etcd_is_of_another_kind(session, job, LK__ETCD_SEMAPHORE);
	else if (!job->shown->is_there)
		lk__etcd_done(job, &absent);
	else
		go_on(session, job);
	free(listing);
}

/* The holder is known: ask how long its lease has left. */
static void shown(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_shown shown;

	if (!lk__etcd_see_show(&queue, subject_of(job), job->reply, job->reply_len, &shown, NULL))
		lk__etcd_refuse(job, &lk__etcd_malformed);
	else if (shown.other_kind)
		lk__etcd_is_of_another_kind(session, job, shown.other_kind);
	else if (shown.lease)
		ask_time_to_live(session, job, shown.lease);
	else
		lk__etcd_done(job, &listed);
}

/* The holder that is to be broken; false: it does not hold any more. */
static bool is_holder(const struct lk__etcd_session *session, const struct lk__etcd_job *job,
                      struct lk__bytes *key, struct lk__etcd_ticket *holder)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	char created[LK__DECIMAL_SIZE];

	if (!lk__etcd_see_holder(&queue, job->reply, job->reply_len, key, holder))
		return false;
	lk__decimal(created, holder->created);
	return strcmp(created, subject_of(job)) == 0;
}

static void end_holder(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	static const struct lk__answer another = {.kind = LK__LEFT};
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_recipe recipe;
	struct lk__etcd_ticket holder;
	struct lk__bytes key;

	if (!is_holder(session, job, &key, &holder)) {
		lk__etcd_done(job, &another);
		return;
	}
	if (job->is_mute)
		holder.client[0] = '\0';
	lk__etcd_break_hold(&recipe, &queue, key, &holder);
	lk__etcd_send_recipe(session, job, NULL, NULL, &recipe);
}

void lk__etcd_broke(struct lk__etcd_session *session, struct lk__etcd_job *job,
                    const struct lk__etcd_seen *seen)
{
	struct lk__answer answer = {.kind = LK__LEFT, .mine = seen->is_served};
	struct lk__etcd_ticket holder;
	struct lk__bytes key;

	if (!seen->is_served && !job->is_mute && seen->count &&
	    is_holder(session, job, &key, &holder) && holder.created == seen->first[0].created) {
		job->is_mute = true; /* its client has no mailbox */
		end_holder(session, job);
		return;
	}
	answer.more = seen->is_served && seen->count && seen->first[0].client[0];
	lk__etcd_done(job, &answer);
}

bool lk__etcd_break_mutely(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	if (job->is_mute)
		return false; /* it had none to write */
	job->is_mute = true;
	end_holder(session, job);
	return true;
}

static void read_time_to_live(struct lk__etcd_session *session, struct lk__etcd_job *job,
                              const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_time_to_live_answer answer;

	/* Without an answer it stays unknown. */
	if (!outcome->err &&
	    lk__pb_read(&lk__etcd_time_to_live_shape, outcome->message, outcome->len, &answer))
		job->left_ms = answer.ttl_s > 0 ? answer.ttl_s * 1000 : 0;
	if (!job->shown) {
		lk__etcd_done(job, &listed);
		return;
	}
	job->shown->times[job->times++].left_ms = job->left_ms;
	job->left_ms = 0;
	go_on(session, job);
}

void lk__etcd_query_outcome(struct lk__etcd_session *session, struct lk__etcd_call *call,
                            const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_job *job = call->job;
	struct lk__answer is = {.kind = LK__IS};

	job->is_calling = false;
	if (job->reply) {
		read_time_to_live(session, job, outcome);
		return;
	}
	if (outcome->err) {
		lk__etcd_refuse(job, outcome);
		return;
	}
	if (!keep_reply(job, outcome))
		return;
	switch ((enum lk__request_kind)job->kind) {
	case LK__SHOW:
		if (job->shown)
			shown_permits(session, job);
		else
			shown(session, job);
		break;
	case LK__BREAK:
		end_holder(session, job);
		break;
	case LK__KIND:
		if (lk__etcd_see_kind(job->reply, job->reply_len, &is.noun))
			lk__etcd_done(job, &is);
		else
			lk__etcd_refuse(job, &lk__etcd_malformed);
		break;
	case LK__INTRODUCE:
		note_said(session, job);
		lk__etcd_done(job, &done);
		break;
	default:
		lk__etcd_done(job, &listed);
		break;
	}
}

static void fill_names(struct lk__etcd_session *session, const struct lk__etcd_job *job, void *into,
                       struct lk__answer *answer)
{
	lk_err err = lk__etcd_see_list(session->prefix, job->reply, job->reply_len, into);

	if (!err)
		return;
	lk__why_set(&session->why, err, "%s",
	            err == LK_ENOMEM ? lk__etcd_no_memory.text : lk__etcd_malformed.text);
	*answer = (struct lk__answer){.kind = LK__FAILED, .err = err, .text = session->why.text};
}

void lk__etcd_session_fill(struct lk__etcd_session *session, void *into, struct lk__answer *answer)
{
	const struct lk__etcd_job *job = session->taken;
	struct lk__listing *listing = into;
	struct lk__etcd_queue queue;
	struct lk__etcd_shown shown;
	lk_party *party = into;
	struct lk__etcd_wanted wanted;

	if (!job || !into || answer->kind != LK__LISTED)
		return;
	queue = lk__etcd_queue_for(session, job);
	if (job->shown) {
		wanted = wanted_by(job);
		lk__etcd_see_permits(&queue, &wanted, job->reply, job->reply_len, job->shown,
		                     listing);
	} else if (job->kind == LK__SHOW) {
		lk__etcd_see_show(&queue, subject_of(job), job->reply, job->reply_len, &shown,
		                  listing);
		if (listing->held)
			listing->entries[0].left_ms = job->left_ms;
	} else if (job->kind == LK__DESCRIBE && job->reply) {
		lk__etcd_see_describe(job->reply, job->reply_len, party);
	} else if (job->kind == LK__DESCRIBE) {
		memcpy(party->program, ANOTHER_PROGRAM, sizeof(ANOTHER_PROGRAM));
	} else if (job->kind == LK__LIST) {
		fill_names(session, job, into, answer);
	}
}
