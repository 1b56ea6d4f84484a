/* SPDX-License-Identifier: MIT
 * What the files of a session share: jobs, calls, and how they reach each other. */
#ifndef LK__ETCD_SESSION_PARTS_H
#define LK__ETCD_SESSION_PARTS_H

#include "latch.h"
#include "session.h"

#define LK__ETCD_NEVER INT64_MAX
#define LK__ETCD_MAILBOX_WATCH 1
#define LK__ETCD_CHORE_NS INT64_C(1000000000)               /* after a refusal */
#define LK__ETCD_MESSAGE_MAX (2 * LK__ETCD_TEXT_MAX + 2048) /* some texts are in it twice */

struct lk__etcd_shown_permits;

/* A request of the core. */
struct lk__etcd_job {
	struct lk__etcd_job *next;
	uint8_t kind; /* enum lk__request_kind */
	char letter;  /* of the name's kind, '\0' = of another one */
	bool only_try, fixed;
	bool share; /* threads wait behind the holder */
	bool is_calling, is_done;
	bool is_chore;    /* without an answer to the core */
	bool wants_round; /* it waits for a renewal of its ticket's lease */
	bool was_read;    /* and a read has shown whether the ticket is there */
	bool extends;     /* the renewal must have been sent later than the request */
	int64_t retry_ns; /* of a chore that was refused: not before */
	int64_t asked_ns; /* when the core sent it */
	int64_t lease_ms;
	/* Of a semaphore: */
	bool was_seen;    /* the queue was read for this job, and nothing was decided by it */
	bool must_exist;  /* LK__SIZE */
	uint32_t permits; /* to acquire, or to keep */
	int64_t capacity, ttl_ms;
	int64_t granted_to; /* the last ticket that was granted, as it was read */
	/* Of a query: */
	uint8_t noun;    /* lk_kind */
	bool is_serving; /* LK__BREAK: without a subject */
	bool is_mute;    /* the same: the holder cannot be notified */
	size_t holders, waiters;
	char *only; /* the same, of a semaphore: the only holder to list */
	struct lk__etcd_shown_permits *shown; /* the same: its leases */
	size_t times;                         /* so many of them have been read */
	char *text; /* LK__SHOW: the nonce; LK__INTRODUCE: the details; else the subject */
	struct lk__etcd_latch_job *latch; /* of a latch, NULL = it is not of one */
	char *reply;                      /* etcd's answer; LK__BREAK: which ticket is the first */
	size_t reply_len;
	int64_t left_ms;          /* LK__SHOW: of the holder's lease */
	struct lk__answer answer; /* when done; its text is in why */
	struct lk__why why;
	char nonce[LK__NONCE_SIZE];
	size_t name_len;
	char name[];
};

/* What a call is for. */
enum lk__etcd_purpose {
	LK__ETCD_FOR_JOB,
	LK__ETCD_FOR_QUERY,
	LK__ETCD_FOR_LATCH,
	LK__ETCD_FOR_POST,
	LK__ETCD_FOR_NO_ERA,
	LK__ETCD_FOR_GRANT,
	LK__ETCD_FOR_KEEP_ALIVE,
	LK__ETCD_FOR_READ,
	LK__ETCD_FOR_SEMAPHORE, /* a lease */
	LK__ETCD_FOR_MAIL,
	LK__ETCD_FOR_NOTHING, /* a revoke: the answer does not matter */
};

struct lk__etcd_call {
	struct lk__etcd_call *next;
	uint32_t id;
	enum lk__etcd_purpose purpose;
	struct lk__etcd_job *job;
	struct lk__etcd_lease *lease; /* of a job: that it puts the ticket under */
	int64_t lease_id;             /* and its id: it may be granted again meanwhile */
	int64_t revision;             /* of the session, when it was made */
	uint64_t era;                 /* the same */
	struct lk__etcd_plan plan;    /* of a job's transaction */
	struct lk__etcd_noun noun;    /* of a semaphore's: that it compares, or puts */
};

/* The first tickets of a lock's queue, as they were read last. */
struct lk__etcd_memo {
	unsigned count;
	struct lk__etcd_ticket first[LK__ETCD_SEEN_MAX];
	size_t name_len;
	char name[];
};

/* A semaphore, as the session knows it. */
struct lk__etcd_known {
	struct lk__etcd_known *next;
	struct lk__etcd_noun noun; /* mod 0: it was not there; the rest is as it was before */
	bool was_read;
	/* What a read of the queue has shown: at most these permits were held or waited for, and
	 * that was its revision; 0 = none */
	int64_t used, revision;
	int64_t lease, lease_ttl_s, lease_sent_ns; /* for the semaphore, not used yet; 0 = none */
	int64_t kept_ns;                           /* when its lease was kept alive, 0 = unknown */
	unsigned users;                            /* tickets */
	size_t name_len;
	char name[];
};

struct lk__etcd_heard {
	struct lk__etcd_heard *next;
	struct lk__message message;
};

static inline void lk__etcd_call_under(struct lk__etcd_call *call, struct lk__etcd_lease *lease)
{
	call->lease = lease;
	call->lease_id = lease->id;
}

/* Does the call name a lease that has ended since? */
static inline bool lk__etcd_is_former(const struct lk__etcd_call *call)
{
	return call->lease &&
	       (call->lease->id != call->lease_id || call->lease->state == LK__LEASE_NEW);
}

static inline int64_t lk__etcd_ttl_s(int64_t lease_ms)
{
	int64_t ttl_s = (lease_ms + 999) / 1000;

	return ttl_s < LK__ETCD_TTL_MIN_S ? LK__ETCD_TTL_MIN_S : ttl_s;
}

static inline struct lk__etcd_queue lk__etcd_queue_for(const struct lk__etcd_session *session,
                                                       const struct lk__etcd_job *job)
{
	return (struct lk__etcd_queue){
		.kind = job->letter,
		.prefix = session->prefix,
		.client = session->client,
		.name = job->name,
		.name_len = job->name_len,
		.era = session->era_text,
	};
}

static inline struct lk__etcd_terms lk__etcd_terms_of(const struct lk__etcd_own_ticket *ticket,
                                                      const struct lk__etcd_lease *lease)
{
	return (struct lk__etcd_terms){lease->id, lease->ttl_s, ticket->fixed, ticket->permits};
}

/* session.c */
/* Make a call.  NULL when out of memory. */
struct lk__etcd_call *lk__etcd_call(struct lk__etcd_session *session, enum lk__etcd_purpose purpose,
                                    enum lk__etcd_method method,
                                    const struct lk__pb_writer *message);
/* Go on with each job that can. */
void lk__etcd_run(struct lk__etcd_session *session, int64_t now_ns);
/* The answer to the job. */
void lk__etcd_done(struct lk__etcd_job *job, const struct lk__answer *answer);
void lk__etcd_refuse(struct lk__etcd_job *job, const struct lk__etcd_outcome *outcome);
/* The same for all jobs that wait for a lease or for the set-up.  In a full store, those that leave
 * go on without it. */
void lk__etcd_refuse_all(struct lk__etcd_session *session, const struct lk__etcd_outcome *outcome);
extern const struct lk__etcd_outcome lk__etcd_no_memory, lk__etcd_malformed;
void lk__etcd_free_job(struct lk__etcd_job *job);
/* The era and the mailbox must be put anew. */
void lk__etcd_set_up_again(struct lk__etcd_session *session);

/* session_tickets.c */
struct lk__etcd_own_ticket *lk__etcd_find(const struct lk__etcd_session *session,
                                          const char *nonce);
/* The next one of all: see lk__table_each(). */
struct lk__etcd_own_ticket *lk__etcd_each(const struct lk__etcd_session *session,
                                          const struct lk__etcd_own_ticket *ticket);
struct lk__etcd_own_ticket *lk__etcd_add(struct lk__etcd_session *session,
                                         const struct lk__etcd_job *job);
/* Leave for the ticket, or for each one that was left, without a confirmation so far. */
void lk__etcd_add_chore(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                        int64_t not_before_ns);
/* The same, of one that the core does not know. */
void lk__etcd_leave_later(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket);
void lk__etcd_add_chores(struct lk__etcd_session *session);
/* Remove those that are not known to be in the store; if they are, the core asks for them again. */
void lk__etcd_remove_unknown(struct lk__etcd_session *session);
void lk__etcd_remove(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket);
/* Ask the core to ask again for all tickets that wait, or for one. */
void lk__etcd_reask(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                    int64_t in_ms);
void lk__etcd_reask_all(struct lk__etcd_session *session);
void lk__etcd_hear(struct lk__etcd_session *session, const struct lk__message *message);
/* The same, of what says no more than its kind. */
void lk__etcd_hear_of(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                      enum lk__message_kind kind);

/* session_watch.c */
bool lk__etcd_watch_create(struct lk__etcd_session *session,
                           const struct lk__etcd_watch_create *create);
/* Cancel a watch, unless its id is 0, and forget the id. */
void lk__etcd_watch_cancel(struct lk__etcd_session *session, uint32_t *watch_id);
/* The ticket of that nonce and place hears of its queue, as it was at that revision. */
void lk__etcd_notify(struct lk__etcd_session *session, char what, const char *nonce,
                     int64_t created, int64_t revision);
bool lk__etcd_watch_mailbox(struct lk__etcd_session *session);
/* before: "" = any ticket of the queue. */
void lk__etcd_watch(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket,
                    const struct lk__etcd_ticket *before, int64_t revision);
void lk__etcd_unwatch(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket);
/* While threads wait behind the holder: hear of the first ticket that another client puts after
 * that revision.  Threads must not keep the lock among themselves then. */
void lk__etcd_watch_wanted(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket,
                           int64_t revision);
void lk__etcd_unwatch_wanted(struct lk__etcd_session *session, struct lk__etcd_own_ticket *ticket);

/* session_lease.c */
/* The lease for a ticket, or the session's own if there is none: to be granted first unless it is
 * live.  NULL when out of memory. */
struct lk__etcd_lease *lk__etcd_lease_of(struct lk__etcd_session *session, int64_t ttl_s,
                                         bool is_own);
/* True: it is live.  Otherwise it is being granted, or cannot be now: err says why. */
bool lk__etcd_lease_is_live(struct lk__etcd_session *session, int64_t now_ns,
                            struct lk__etcd_lease *lease);
/* Ask for a lease with a new id, or keep one alive; NULL when out of memory. */
struct lk__etcd_call *lk__etcd_call_grant(struct lk__etcd_session *session,
                                          enum lk__etcd_purpose purpose, int64_t ttl_s,
                                          int64_t *id);
struct lk__etcd_call *lk__etcd_call_keep_alive(struct lk__etcd_session *session,
                                               enum lk__etcd_purpose purpose, int64_t id);
void lk__etcd_lease_revoke(struct lk__etcd_session *session, int64_t id);
/* The lease has ended: its tickets are gone, or will be. */
void lk__etcd_lease_over(struct lk__etcd_session *session, struct lk__etcd_lease *lease);
/* It is not needed any more. */
void lk__etcd_lease_end(struct lk__etcd_session *session, struct lk__etcd_lease *lease);
void lk__etcd_lease_sweep(struct lk__etcd_session *session);
void lk__etcd_lease_outcome(struct lk__etcd_session *session, int64_t now_ns,
                            struct lk__etcd_call *call, const struct lk__etcd_outcome *outcome);
void lk__etcd_lease_tick(struct lk__etcd_session *session, int64_t now_ns);
int64_t lk__etcd_lease_due_ns(const struct lk__etcd_session *session);
/* Answer the job when a round has renewed its ticket's lease. */
void lk__etcd_renew(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job);

/* session_query.c */
/* Copy what the query needs.  False when out of memory. */
bool lk__etcd_keep_query(struct lk__etcd_job *job, const struct lk__request *request);
void lk__etcd_query(struct lk__etcd_session *session, struct lk__etcd_job *job);
void lk__etcd_query_outcome(struct lk__etcd_session *session, struct lk__etcd_call *call,
                            const struct lk__etcd_outcome *outcome);
/* A transaction of lk__etcd_break_hold() was answered. */
void lk__etcd_broke(struct lk__etcd_session *session, struct lk__etcd_job *job,
                    const struct lk__etcd_seen *seen);
/* A full store takes no letters: break without one.  False: there was none. */
bool lk__etcd_break_mutely(struct lk__etcd_session *session, struct lk__etcd_job *job);
/* Refuse the job, since the name has keys of that kind. */
void lk__etcd_is_of_another_kind(const struct lk__etcd_session *session, struct lk__etcd_job *job,
                                 char kind);
/* The details have to be put anew. */
void lk__etcd_forget_said(struct lk__etcd_session *session);

/* session_latch.c */
static inline bool lk__etcd_is_of_latch(const struct lk__request *request)
{
	return request->kind == LK__LOOK || request->kind == LK__STEP || request->kind == LK__SET ||
	       request->kind == LK__REMOVE ||
	       (request->kind == LK__SHOW && request->noun == LK_KIND_LATCH);
}
/* Copy what the job of a latch needs.  False when out of memory. */
bool lk__etcd_keep_latch(struct lk__etcd_job *job, const struct lk__request *request);
void lk__etcd_latch_advance(struct lk__etcd_session *session, struct lk__etcd_job *job);
void lk__etcd_latch_outcome(struct lk__etcd_session *session, int64_t now_ns,
                            struct lk__etcd_call *call, const struct lk__etcd_outcome *outcome);

/* session_topic.c */
/* What is known of the latch with that key, in this client. */
struct lk__etcd_latch {
	struct lk__etcd_latch *next;
	uint64_t generation;           /* 0 = there is none, or it is unknown */
	int64_t mod, lease;            /* of its key */
	struct lk__etcd_own_steps own; /* of that generation */
	uint64_t opened, removed;      /* the last ones */
	int64_t since;                 /* the revision after which a watch begins, 0 = none */
	int64_t since_ns;              /* when that was read */
	uint32_t watch_id;             /* 0 = not watched over this connection */
	bool is_wanted;                /* the core waits for its events */
	bool is_on;                    /* the watch was created */
	char key[];
};

/* NULL when out of memory. */
struct lk__etcd_latch *lk__etcd_latch_of(struct lk__etcd_session *session, const char *key);
/* A read of the latch was answered. */
void lk__etcd_latch_was_read(struct lk__etcd_session *session, int64_t now_ns,
                             struct lk__etcd_latch *latch, const struct lk__etcd_latch_seen *seen);
/* False: no latch has that watch. */
bool lk__etcd_topic_created(struct lk__etcd_session *session, uint32_t watch_id);
bool lk__etcd_topic_ended(struct lk__etcd_session *session, uint32_t watch_id, bool is_new,
                          struct lk__bytes reason);
bool lk__etcd_topic_happened(struct lk__etcd_session *session, uint32_t watch_id,
                             const struct lk__etcd_event *event);
void lk__etcd_topics_down(struct lk__etcd_session *session);
void lk__etcd_topics_fini(struct lk__etcd_session *session);

/* session_known.c */
/* What the session knows of the semaphore of that name.  NULL when out of memory. */
struct lk__etcd_known *lk__etcd_know(struct lk__etcd_session *session, const char *name,
                                     size_t len);
void lk__etcd_uses_known(struct lk__etcd_session *session, const struct lk__etcd_own_ticket *ticket,
                         int change);
/* has_noun: its own key was read, too. */
void lk__etcd_learn(struct lk__etcd_known *known, const struct lk__etcd_seen *seen, bool has_noun);
void lk__etcd_forget_known(struct lk__etcd_session *session);
/* Calls have ended without an answer. */
void lk__etcd_known_down(struct lk__etcd_session *session);
/* Its lease is longer than its time to live, by what may pass until it is kept alive again. */
int64_t lk__etcd_known_ttl_s(int64_t ttl_ms);
void lk__etcd_keep_known(struct lk__etcd_session *session, int64_t now_ns,
                         struct lk__etcd_known *known);
void lk__etcd_known_tick(struct lk__etcd_session *session, int64_t now_ns);
int64_t lk__etcd_known_due_ns(const struct lk__etcd_session *session);
/* A lease for the semaphore that the job puts. */
void lk__etcd_grant_known(struct lk__etcd_session *session, int64_t now_ns,
                          struct lk__etcd_job *job, struct lk__etcd_known *known, int64_t ttl_s);
void lk__etcd_known_outcome(struct lk__etcd_session *session, struct lk__etcd_call *call,
                            const struct lk__etcd_outcome *outcome);
/* It does not exist. */
void lk__etcd_semaphore_lease_over(struct lk__etcd_session *session,
                                   const struct lk__etcd_job *job);

/* session_permits.c */
/* The transaction that is next for the job, if one can be sent now. */
void lk__etcd_ask_for_permits(struct lk__etcd_session *session, int64_t now_ns,
                              struct lk__etcd_job *job, struct lk__etcd_own_ticket *ticket);
void lk__etcd_leave_with_permits(struct lk__etcd_session *session, struct lk__etcd_job *job,
                                 struct lk__etcd_own_ticket *ticket);
void lk__etcd_give_back(struct lk__etcd_session *session, struct lk__etcd_job *job);
void lk__etcd_size_it(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job);
void lk__etcd_break_permit(struct lk__etcd_session *session, struct lk__etcd_job *job);
/* Such a transaction was answered; false: the rest is as for a lock. */
bool lk__etcd_saw_permits(struct lk__etcd_session *session, struct lk__etcd_call *call,
                          struct lk__etcd_own_ticket *ticket, const struct lk__etcd_seen *seen);

/* session_mail.c */
/* Notify a ticket: at once if it is of this session, else by a letter. */
void lk__etcd_mail(struct lk__etcd_session *session, char what,
                   const struct lk__etcd_ticket *ticket, int64_t revision);
void lk__etcd_post_mails(struct lk__etcd_session *session);
void lk__etcd_mailed(struct lk__etcd_session *session, const struct lk__etcd_call *call,
                     const struct lk__etcd_outcome *outcome);
void lk__etcd_drop_mails(struct lk__etcd_session *session);

/* session_lock.c */
/* Send a transaction for a job: of the ticket, which is put under the lease; NULL = none. */
struct lk__etcd_call *lk__etcd_send_recipe(struct lk__etcd_session *session,
                                           struct lk__etcd_job *job,
                                           struct lk__etcd_own_ticket *ticket,
                                           struct lk__etcd_lease *lease,
                                           const struct lk__etcd_recipe *recipe);
/* By a request for the same ticket: one that came later must not overtake it. */
bool lk__etcd_is_preceded(const struct lk__etcd_session *session, const struct lk__etcd_job *job);
void lk__etcd_advance(struct lk__etcd_session *session, int64_t now_ns, struct lk__etcd_job *job);
void lk__etcd_job_outcome(struct lk__etcd_session *session, int64_t now_ns,
                          struct lk__etcd_call *call, const struct lk__etcd_outcome *outcome);

#endif
