/* SPDX-License-Identifier: MIT
 * The jobs of latches: which call is next for each, and what its answer makes of it.  They need no
 * lease of the client's, no mailbox and no era: whatever they write compares what it changes. */
#include "session_parts.h"

#include <stdlib.h>
#include <string.h>

#define TRIES_MAX 16         /* a latch that changes all the time is left alone */
#define TTL_MAX_S 9000000000 /* as etcd has it */

enum latch_task {
	READ,      /* read the latch */
	STEP,      /* count the step */
	PAST_OWN,  /* read what this client had counted before the latch was open */
	PAST_SUM,  /* read what all had counted before the step */
	OPEN,      /* write that it is open */
	MAKE,      /* set it */
	REMOVE,    /* remove it */
	TIME_LEFT, /* ask how long it lives */
};

struct lk__etcd_latch_job {
	enum latch_task task;
	bool is_granting; /* a lease for the task */
	bool was_put;     /* LK__STEP: by this job */
	bool has_result;  /* the same: answer, once the latch is open */
	bool is_repeated;
	unsigned tries, reads;
	int64_t lease; /* granted, and not used yet; 0 = none */
	int64_t count, open_ttl_ms, counting_ttl_ms;
	bool anew;
	struct lk__etcd_latch_seen seen; /* the last one */
	struct lk__etcd_own_steps after; /* what the client has counted if the step is put */
	struct lk__answer answer;
	struct lk__etcd_step step;
	char step_name[LK_STEP_MAX];
};

bool lk__etcd_keep_latch(struct lk__etcd_job *job, const struct lk__request *request)
{
	struct lk__etcd_latch_job *latch = calloc(1, sizeof(*latch));

	job->latch = latch;
	if (!latch)
		return false;
	latch->task = request->kind == LK__STEP ? STEP : READ;
	if (request->kind == LK__SET) {
		latch->anew = request->details->anew;
		latch->count = request->details->count;
		latch->open_ttl_ms = request->details->open_ttl_ms;
		latch->counting_ttl_ms = request->details->counting_ttl_ms;
	} else if (request->kind == LK__STEP) {
		latch->is_repeated = request->is_repeated;
		latch->step = (struct lk__etcd_step){
			.generation = request->generation,
			.number = request->number,
			.n = request->n,
			.name = latch->step_name,
			.len = request->step_len,
		};
		if (request->step_len)
			memcpy(latch->step_name, request->step, request->step_len);
	}
	return true;
}

static bool is_put(const struct lk__etcd_own_steps *own, uint64_t number)
{
	return own->first == number || own->number == number;
}

/* What the session knows of the job's latch.  NULL when out of memory. */
static struct lk__etcd_latch *known(struct lk__etcd_session *session,
                                    const struct lk__etcd_job *job)
{
	char key[LK__ETCD_KEY_MAX];

	lk__etcd_noun_key(key, session->prefix, LK__ETCD_LATCH, job->name, job->name_len);
	return lk__etcd_latch_of(session, key);
}

/* ---- Ends of a job -------------------------------------------------------------------------- */

static void done(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 const struct lk__answer *answer)
{
	if (job->latch->lease) /* granted in vain */
		lk__etcd_lease_revoke(session, job->latch->lease);
	job->latch->lease = 0;
	lk__etcd_done(job, answer);
}

/* A step that was put may count, whatever becomes of the job. */
static void fail(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 const struct lk__etcd_outcome *outcome)
{
	struct lk__answer answer = {
		.kind = LK__FAILED,
		.err = outcome->err,
		.retryable = outcome->retryable,
		.ambiguous = job->latch->was_put || job->latch->has_result,
	};

	lk__why_set(&job->why, outcome->err, "%s", outcome->text);
	done(session, job, &answer);
}

static void is_foreign(struct lk__etcd_session *session, struct lk__etcd_job *job, char kind)
{
	const struct lk__answer answer = {.kind = LK__FAILED, .err = LK_EFOREIGN};
	char key[LK__ETCD_KEY_MAX];

	lk__etcd_kind_key(key, session->prefix, kind, job->name, job->name_len);
	lk__why_set(&job->why, LK_EFOREIGN, "key %s is in other use: %s", key,
	            kind == LK__ETCD_LOCK        ? "a lock, not a latch"
	            : kind == LK__ETCD_SEMAPHORE ? "a semaphore, not a latch"
	                                         : "not a latch");
	done(session, job, &answer);
}

static void is_unknown(struct lk__etcd_session *session, struct lk__etcd_job *job, const char *text)
{
	fail(session, job, &(struct lk__etcd_outcome){.err = LK_EUNKNOWN, .text = text});
}

/* ---- Sending -------------------------------------------------------------------------------- */

/* call: NULL when out of memory. */
static void sent(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 struct lk__etcd_call *call)
{
	if (!call) {
		fail(session, job, &lk__etcd_no_memory);
		return;
	}
	call->job = job;
	job->is_calling = true;
}

static void send(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 enum lk__etcd_method method, const struct lk__pb_writer *writer)
{
	sent(session, job,
	     writer->is_full ? NULL : lk__etcd_call(session, LK__ETCD_FOR_LATCH, method, writer));
}

/* The time to live of the lease that the task needs, 0 = it needs none. */
static int64_t ttl_ms(const struct lk__etcd_latch_job *latch)
{
	if (latch->task == OPEN)
		return latch->seen.value.open_ttl_ms;
	if (latch->task == MAKE)
		return latch->count ? latch->counting_ttl_ms : latch->open_ttl_ms;
	return 0;
}

static void grant(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	int64_t id, ttl_s = lk__etcd_ttl_s(ttl_ms(job->latch));

	if (ttl_s > TTL_MAX_S)
		ttl_s = TTL_MAX_S;
	sent(session, job, lk__etcd_call_grant(session, LK__ETCD_FOR_LATCH, ttl_s, &id));
	job->latch->is_granting = job->is_calling;
	if (job->is_calling)
		job->latch->lease = id;
}

static void ask_time_left(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	char bytes[32];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_time_to_live(&writer, job->latch->seen.lease);
	send(session, job, LK__ETCD_CALL_TIME_TO_LIVE, &writer);
}

/* Write that it is open, or set it. */
static void put(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                const struct lk__etcd_latch_job *latch)
{
	const struct lk__etcd_latch_seen *seen = &latch->seen;
	struct lk__etcd_latch_value value = {
		.is_open = latch->task == OPEN || !latch->count,
		.generation = latch->task == OPEN ? seen->value.generation : 0,
		.initial = latch->task == OPEN ? seen->value.initial : latch->count,
		.open_ttl_ms = latch->open_ttl_ms,
		.opened = seen->value.opened,
	};

	/* A complete latch is only opened; its steps may go on. */
	lk__etcd_latch_put(recipe, queue, &value, latch->lease, seen->is_there ? seen->mod : 0,
	                   latch->task == MAKE ? seen->revision : 0);
}

static void make(struct lk__etcd_latch_recipe *recipe, struct lk__etcd_session *session,
                 struct lk__etcd_job *job, const struct lk__etcd_latch *about)
{
	struct lk__etcd_queue queue = lk__etcd_queue_for(session, job);
	struct lk__etcd_latch_job *latch = job->latch;
	const struct lk__etcd_latch_seen *seen = &latch->seen;

	switch (latch->task) {
	case STEP:
		latch->after = lk__etcd_latch_step(recipe, &queue, &latch->step, &about->own,
		                                   about->lease);
		break;
	case PAST_OWN:
		lk__etcd_latch_past(recipe, &queue, seen->mod - 1);
		break;
	case PAST_SUM:
		lk__etcd_latch_past(recipe, &queue,
		                    (latch->step.number == seen->own.first ? seen->first_mod
		                                                           : seen->number_mod) -
		                            1);
		break;
	case OPEN:
	case MAKE:
		put(recipe, &queue, latch);
		break;
	case REMOVE:
		lk__etcd_latch_remove(recipe, &queue, seen->mod, seen->revision);
		break;
	default:
		lk__etcd_latch_read(recipe, &queue);
		break;
	}
}

static void send_txn(struct lk__etcd_session *session, struct lk__etcd_job *job,
                     const struct lk__etcd_latch *about)
{
	static const size_t size = 4 * (size_t)LK__ETCD_LATCH_TEXT;
	struct lk__etcd_latch_recipe *recipe = malloc(sizeof(*recipe) + size);
	struct lk__pb_writer writer;

	if (!recipe) {
		fail(session, job, &lk__etcd_no_memory);
		return;
	}
	make(recipe, session, job, about);
	job->latch->reads = recipe->reads;
	lk__pb_writer_init(&writer, recipe + 1, size);
	lk__etcd_put_txn(&writer, &recipe->txn);
	send(session, job, LK__ETCD_CALL_TXN, &writer);
	free(recipe);
}

void lk__etcd_latch_advance(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	static const struct lk__etcd_outcome busy = {
		.err = LK_EAGAIN, .retryable = true, .text = "the latch changes all the time"};
	struct lk__etcd_latch_job *latch = job->latch;
	struct lk__etcd_latch *about = known(session, job);

	if (session->state == LK__ETCD_DOWN)
		return;
	if (!about) {
		fail(session, job, &lk__etcd_no_memory);
		return;
	}
	if (latch->tries > TRIES_MAX) {
		fail(session, job, &busy);
		return;
	}
	/* The lease that a step is put under has to be known; and it may have been put. */
	if (latch->task == STEP && (about->generation != latch->step.generation ||
	                            is_put(&about->own, latch->step.number)))
		latch->task = READ;
	if (latch->task == TIME_LEFT)
		ask_time_left(session, job);
	else if (ttl_ms(latch) && !latch->lease)
		grant(session, job);
	else
		send_txn(session, job, about);
}

/* ---- What was read -------------------------------------------------------------------------- */

/* The latch is open, as far as the caller can know. */
static void finish_step(struct lk__etcd_session *session, struct lk__etcd_job *job, int64_t left,
                        bool counted)
{
	const struct lk__answer answer = {
		.kind = LK__STEPPED, .remaining = left, .counted = counted};

	done(session, job, &answer);
}

/* The same, when the latch is open: all has counted. */
static void finish_opened(struct lk__etcd_job *job, bool counted)
{
	job->latch->has_result = true;
	job->latch->answer = (struct lk__answer){.kind = LK__STEPPED, .counted = counted};
	job->latch->task = OPEN;
}

static void is_another(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	const struct lk__etcd_latch_job *latch = job->latch;
	const struct lk__etcd_latch_seen *seen = &latch->seen;
	const struct lk__answer other = {.kind = LK__OTHER,
	                                 .fence = seen->is_there ? seen->value.generation : 0};

	if (!latch->was_put && !latch->has_result)
		done(session, job, &other);
	else if (latch->has_result && seen->value.opened >= latch->step.generation)
		done(session, job, &latch->answer); /* another client has opened it */
	else
		is_unknown(session, job, "the latch ended in the moment of its last step");
}

/* The step was not put now: why? */
static void judge_step(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_latch_job *latch = job->latch;
	const struct lk__etcd_latch_seen *seen = &latch->seen;
	bool is_known = is_put(&seen->own, latch->step.number);

	latch->task = STEP;
	if (!seen->is_there || seen->value.generation != latch->step.generation)
		is_another(session, job);
	else if (latch->has_result && seen->value.is_open)
		done(session, job, &latch->answer);
	else if (seen->value.is_open && latch->is_repeated)
		latch->task = PAST_OWN;
	else if (seen->value.is_open)
		finish_step(session, job, 0, false);
	else if (is_known && lk__etcd_latch_is_complete(seen))
		latch->task = PAST_SUM;
	else if (is_known)
		finish_step(session, job, lk__etcd_latch_left(seen), true);
	else if (lk__etcd_latch_is_complete(seen))
		finish_opened(job, false);
	else if (seen->has_name)
		finish_step(session, job, lk__etcd_latch_left(seen), false);
}

static void stepped(struct lk__etcd_session *session, struct lk__etcd_job *job,
                    struct lk__etcd_latch *about)
{
	struct lk__etcd_latch_job *latch = job->latch;
	const struct lk__etcd_latch_seen *seen = &latch->seen;
	bool counted = seen->total - (int64_t)latch->step.n < seen->value.initial;

	about->own = latch->after;
	latch->was_put = true;
	if (lk__etcd_latch_is_complete(seen))
		finish_opened(job, counted);
	else
		finish_step(session, job, lk__etcd_latch_left(seen), counted);
}

static lk_latch_state state_of(const struct lk__etcd_latch_seen *seen)
{
	return !seen->is_there       ? LK_LATCH_ABSENT
	       : seen->value.is_open ? LK_LATCH_OPEN
	                             : LK_LATCH_COUNTING;
}

static void show(struct lk__etcd_session *session, struct lk__etcd_job *job,
                 const struct lk__etcd_latch *about, int64_t left_ms)
{
	const struct lk__etcd_latch_seen *seen = &job->latch->seen;
	struct lk__answer answer = {
		.kind = LK__SHOWN,
		.latch_state = state_of(seen),
		.fence = seen->value.generation,
		.remaining = lk__etcd_latch_left(seen),
		.initial = seen->value.initial,
		.left_ms = left_ms,
		.opened = about->opened,
		.removed = about->removed,
		.next = (uint64_t)seen->revision + 1,
	};

	done(session, job, &answer);
}

static void judge_set(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	struct lk__etcd_latch_job *latch = job->latch;
	const struct lk__etcd_latch_seen *seen = &latch->seen;
	const struct lk__answer counts = {
		.kind = LK__COUNTS,
		.remaining = lk__etcd_latch_left(seen),
		.initial = seen->value.initial,
	};

	if (seen->is_there && !seen->value.is_open && !latch->anew)
		done(session, job, &counts);
	else
		latch->task = MAKE;
}

/* The latch was read; it is as it was read, or a transaction has failed on it. */
static void judge(struct lk__etcd_session *session, struct lk__etcd_job *job,
                  const struct lk__etcd_latch *about)
{
	static const struct lk__answer absent = {.kind = LK__ABSENT};
	struct lk__etcd_latch_job *latch = job->latch;
	const struct lk__etcd_latch_seen *seen = &latch->seen;

	if (seen->is_foreign)
		is_foreign(session, job, LK__ETCD_LATCH);
	else if (!seen->is_there && seen->other_kind)
		is_foreign(session, job, seen->other_kind);
	else if (job->kind == LK__STEP)
		judge_step(session, job);
	else if (lk__etcd_latch_is_complete(seen))
		latch->task = OPEN; /* its last step's client has not done it yet */
	else if (job->kind == LK__SET)
		judge_set(session, job);
	else if (job->kind == LK__REMOVE && !seen->is_there)
		done(session, job, &absent);
	else if (job->kind == LK__REMOVE)
		latch->task = REMOVE;
	else if (job->kind == LK__SHOW && seen->lease)
		latch->task = TIME_LEFT;
	else
		show(session, job, about, -1);
}

/* ---- What was changed ----------------------------------------------------------------------- */

static void made(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	const struct lk__etcd_latch_seen *seen = &job->latch->seen;
	const struct lk__answer answer = {.kind = LK__MADE, .latch_state = state_of(seen)};

	done(session, job, &answer);
}

/* The latch has the job's lease now, or none; that of its last state has no keys. */
static void changed(struct lk__etcd_session *session, struct lk__etcd_job *job)
{
	static const struct lk__answer removed = {.kind = LK__DONE};
	struct lk__etcd_latch_job *latch = job->latch;

	if (latch->seen.is_there && latch->seen.lease)
		lk__etcd_lease_revoke(session, latch->seen.lease);
	latch->lease = 0;
	if (latch->task == MAKE)
		made(session, job);
	else if (latch->task == REMOVE)
		done(session, job, &removed);
	else if (latch->has_result)
		done(session, job, &latch->answer);
	else
		latch->task = READ;
}

/* ---- Answers -------------------------------------------------------------------------------- */

/* What had been counted before is known from the history. */
static void saw_past(struct lk__etcd_session *session, struct lk__etcd_job *job,
                     const struct lk__etcd_latch_seen *past)
{
	struct lk__etcd_latch_job *latch = job->latch;
	bool counted = past->total < latch->seen.value.initial;

	if (latch->task == PAST_OWN) {
		latch->seen.own = past->own;
		latch->seen.first_mod = past->first_mod;
		latch->seen.number_mod = past->number_mod;
		latch->task = PAST_SUM;
		if (!is_put(&past->own, latch->step.number))
			finish_step(session, job, 0, false);
	} else if (latch->seen.value.is_open) {
		finish_step(session, job, 0, counted);
	} else {
		finish_opened(job, counted);
	}
}

static void answered(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job,
                     const struct lk__etcd_latch_seen *seen)
{
	struct lk__etcd_latch_job *latch = job->latch;
	struct lk__etcd_latch *about = known(session, job);
	enum latch_task task = latch->task;

	if (!about) {
		fail(session, job, &lk__etcd_no_memory);
		return;
	}
	if (task == PAST_OWN || task == PAST_SUM) {
		saw_past(session, job, seen);
		return;
	}
	if (seen->succeeded && (task == OPEN || task == MAKE || task == REMOVE)) {
		changed(session, job);
		return;
	}
	latch->seen = *seen;
	lk__etcd_latch_was_read(session, now_ns, about, seen);
	if (seen->succeeded && task == STEP) {
		stepped(session, job, about);
		return;
	}
	latch->tries++;
	judge(session, job, about);
}

static void granted(struct lk__etcd_session *session, struct lk__etcd_job *job,
                    const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_lease_grant_answer answer;

	job->latch->is_granting = false;
	if (outcome->err) {
		job->latch->lease = 0;
		fail(session, job, outcome);
	} else if (!lk__pb_read(&lk__etcd_lease_grant_shape, outcome->message, outcome->len,
	                        &answer) ||
	           answer.id != job->latch->lease) {
		fail(session, job, &lk__etcd_malformed);
	}
}

static void read_time_left(struct lk__etcd_session *session, struct lk__etcd_job *job,
                           const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_time_to_live_answer answer;
	const struct lk__etcd_latch *about = known(session, job);

	if (!about)
		fail(session, job, &lk__etcd_no_memory);
	else if (outcome->err || !lk__pb_read(&lk__etcd_time_to_live_shape, outcome->message,
	                                      outcome->len, &answer))
		show(session, job, about, -1);
	else
		show(session, job, about, answer.ttl_s > 0 ? answer.ttl_s * 1000 : 0);
}

/* It was not executed. */
static void refused(struct lk__etcd_session *session, struct lk__etcd_job *job,
                    const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_latch_job *latch = job->latch;

	if (outcome->no_lease) { /* the latch's, or the one that was granted, has ended meanwhile */
		latch->lease = 0;
		latch->tries++;
		latch->task = READ;
	} else if ((latch->task == PAST_OWN || latch->task == PAST_SUM) &&
	           outcome->err == LK_ESERVER) {
		is_unknown(session, job,
		           "no response, and the latch has opened since: the step may have been "
		           "counted");
	} else {
		fail(session, job, outcome);
	}
}

void lk__etcd_latch_outcome(struct lk__etcd_session *session, int64_t now_ns,
                            struct lk__etcd_call *call, const struct lk__etcd_outcome *outcome)
{
	struct lk__etcd_job *job = call->job;
	struct lk__etcd_latch_seen seen;

	job->is_calling = false;
	if (job->latch->is_granting)
		granted(session, job, outcome);
	else if (job->latch->task == TIME_LEFT)
		read_time_left(session, job, outcome);
	else if (outcome->err)
		refused(session, job, outcome);
	else if (!lk__etcd_latch_see(job->latch->reads, outcome->message, outcome->len, &seen))
		fail(session, job, &lk__etcd_malformed);
	else
		answered(session, now_ns, job, &seen);
}
