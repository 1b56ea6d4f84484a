/* SPDX-License-Identifier: MIT
 * A service that sentinels watch: a master and two replicas, of which a failover makes one the
 * master while the old one may go on; sentinels that are late and wrong; and each client's
 * conversations with them.  Its rules are those of core/sentinel.h. */
#ifndef SIM_SENTINEL_H
#define SIM_SENTINEL_H

#include "core/sentinel.h"
#include "lua_store.h"
#include "sim_plan.h"

#define SIM_UNAWARE (-1)   /* instead of a place: no such service */
#define SIM_REPORTS 32     /* of a sentinel to a client, in flight */
#define SIM_FOLLOW_MS 3000 /* for so long after a promotion a client may use the old master */

struct sim;
struct sim_name;
struct sim_link;
struct sim_call;
struct sim_caller;
struct sim_grant;
struct sim_client;
struct lk__ticket;

struct sim_sentinel {
	int named;       /* what it believes to be the master */
	int next;        /* what it will believe, from then on: */
	int64_t next_ns; /* LK__NEVER */
	int64_t mute_ns; /* it says nothing until then */
	bool is_killed;  /* while it is mute: else stopped */
	int lie;         /* what it says instead, until then: */
	int64_t lie_ns;
	int64_t changed_ns; /* when it last began to say something else, or to be silent */
};

/* The master that a failover replaced, as long as it takes writes. */
struct sim_stale {
	struct lua_store *store; /* NULL = there is none */
	int place;
	int64_t offset_us;                      /* of its clock */
	int64_t wake_ns;                        /* it is stopped until then */
	int64_t end_ns;                         /* when it becomes a replica */
	int64_t since_ns;                       /* when the new master began to take writes */
	int epochs[SIM_NAMES], eras[SIM_NAMES]; /* of each name, in its memory */
	bool runs;                              /* one of its scripts, just now */
};

/* A replica has what the master has; or, while it is deaf, what that had when it became so. */
struct sim_replica {
	int64_t attached_ns; /* it is one of this master from then on */
	int64_t deaf_ns;     /* it receives nothing until then */
	bool is_chosen;      /* ... and is promoted then */
	uint64_t has;        /* the last of the master's writes that it has, while it is deaf */
};

/* A request WAIT, while it blocks its connection. */
struct sim_wait {
	int64_t until_ns;            /* 0 = the server does not have it yet */
	int64_t acks_ns[SIM_PLACES]; /* when each replica will have confirmed */
};

struct sim_service {
	struct sim_sentinel sentinels[SIM_SENTINELS];
	struct sim_random random;
	int place; /* of the master */
	struct sim_stale stale;
	struct lua_store *spare; /* what the next master's memory will be in */
	struct lua_store_process processes[SIM_PLACES]; /* those of the replicas */
	int64_t down_ns[SIM_PLACES];                    /* a killed server is away until then */
	struct sim_replica replicas[SIM_PLACES];
	struct sim_random acks;
	uint64_t writes;         /* scripts that wrote something, at masters */
	bool keeps;              /* the replica that is promoted has all that was confirmed */
	int64_t keeps_offset_us; /* ... by a clock that was so far from the true time */
	bool is_alone;           /* the replaced master has no replica any more */
};

enum sim_saying { SIM_ANSWERS, SIM_PUBLISHES, SIM_HANGS_UP };

/* A report on its way to a client. */
struct sim_report {
	int64_t at_ns;
	enum sim_saying saying;
	int place;
};

/* One client's conversation with one sentinel: what a thread of src/runtime/sentinels.c does. */
struct sim_watcher {
	bool open;
	int64_t asked_ns; /* local: an answer is due, LK__NEVER = none is */
	uint64_t asked_round;
	int64_t heard_ns, retry_ns, backoff_ns; /* local */
	int64_t arrives_ns;                     /* true: when the question is at the sentinel */
	int64_t blind_ns;                       /* nothing passes until then */
	struct sim_report reports[SIM_REPORTS];
	int count;
	/* For checks: */
	int says;          /* what was delivered last */
	int named;         /* ... of the places, -2 = nothing yet */
	uint64_t answered; /* the round of the last answer that was delivered */
	int64_t sent_ns;   /* true: the last question */
};

enum sim_dialing { SIM_NO_DIAL, SIM_CHOOSING, SIM_CONNECTING, SIM_PAUSING };

struct sim_watch {
	struct lk__watch core;
	struct sim_watcher watchers[SIM_SENTINELS];
	enum sim_dialing dialing;
	int64_t deadline_ns, pause_ns, resume_ns; /* local */
	int place;                                /* of the dial, then of the link */
	bool was_unaware;        /* sim_check_is_unaware(), when a dial last failed */
	bool must_cut, had_link; /* for checks, while a report is delivered */
	int64_t told_ns;         /* true: when a sentinel last began to name another place to it */
	uint32_t pauses;         /* of the session, after which the sentinels were asked */
	/* For checks; true: when it last did something; the end of its last pause; when a question
	 * was sent, whose answer named the place. */
	int64_t ran_ns, paused_ns, named_ns;
};

/* sim_service.c: the servers */
void sim_service_init(struct sim *sim);
void sim_service_fini(struct sim *sim);
void sim_service_set_time(struct sim *sim);
void sim_service_heal(struct sim *sim);
/* A failover; image: the replica's copy. */
void sim_service_fail_over(struct sim *sim, const struct sim_fault *fault, int image,
                           struct sim_random *random);
/* When the servers or the sentinels change by themselves, LK__NEVER; and do it. */
int64_t sim_service_due(const struct sim *sim);
void sim_service_happen(struct sim *sim);
/* A request that was sent to another server than the master. */
void sim_service_run(struct sim *sim, struct sim_call *call);
/* What a client that dials the place finds there. */
enum sim_found { SIM_MASTER, SIM_REPLACED, SIM_REPLICA, SIM_STOPPED, SIM_DEAD };
enum sim_found sim_service_find(const struct sim *sim, int place);

/* sim_replicas.c: what the replicas have, and WAIT */
void sim_replicas_init(struct sim *sim);
void sim_replicas_heal(struct sim *sim);
void sim_replicas_stop(struct sim *sim, const struct sim_fault *fault, struct sim_random *random);
/* The image of a fault is due: from now on the replica that will be promoted is deaf. */
void sim_replicas_image(struct sim *sim, int fault);
/* One is promoted, before and after its memory becomes the master's. */
void sim_replicas_promote(struct sim *sim, int from, int place, bool is_kill);
void sim_replicas_promoted(struct sim *sim, int from, int64_t from_up_ns);
/* The request is WAIT and goes on: it is due again at call->at_ns. */
bool sim_replicas_wait(struct sim *sim, struct sim_link *link, struct sim_call *call);
/* The place that the failover would make the master now. */
int sim_service_next(const struct sim *sim, struct sim_random *random);

/* sim_sentinels.c: the sentinels, and the conversations with them */
void sim_sentinels_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random);
/* From about that time on the sentinels name the master. */
void sim_sentinels_switch(struct sim *sim, int64_t from_ns);
int64_t sim_sentinels_due(const struct sim *sim);
void sim_sentinels_happen(struct sim *sim);
void sim_sentinels_heal(struct sim *sim);
void sim_watch_start(struct sim_client *client);
/* A dial is due. */
void sim_watch_dial(struct sim_client *client);
/* The dial of the chosen place has failed, or been cut.  False if the session must be told. */
bool sim_watch_dial_again(struct sim_client *client, lk_err err);
/* True times: of the client's next step, and when its next question is at a sentinel. */
int64_t sim_watch_due(const struct sim_client *client);
int64_t sim_watch_asked_ns(const struct sim_client *client);
void sim_watch_happen(struct sim_client *client);
void sim_watch_asked(struct sim_client *client);
/* After a pause of the client, it asks the sentinels anew. */
void sim_watch_vouch(struct sim_client *client);

/* sim_check_replicas.c: the judge of what replicas have confirmed */
void sim_check_kept(struct sim *sim, struct sim_name *name);
/* The grant makes a hold. */
void sim_check_confirmed(struct sim_caller *caller, const struct sim_grant *grant);
void sim_check_unconfirmed(struct sim_caller *caller);
/* No grant or renewal of a replaced master counts. */
bool sim_check_is_unanimous(const struct sim *sim);

/* sim_check_sentinel.c: the judge */
/* A report is delivered, before the client knows it: place, or SIM_UNAWARE. */
void sim_check_report(struct sim_client *client, int sentinel, enum sim_saying saying, int place);
/* ... and after. */
void sim_check_reported(struct sim_client *client, int sentinel);
/* That happens to the client, enum sim_event: does it run? */
void sim_check_ran(struct sim_client *client, int event);
/* A grant makes a hold: after a pause, sentinels must have named the server. */
void sim_check_vouched(const struct sim_client *client, const struct lk__ticket *ticket);
bool sim_check_is_unaware(const struct sim_client *client);
void sim_check_chosen(struct sim_client *client, int place);
/* Since when the client could have followed: two sentinels reach it and name the master. */
int64_t sim_check_led_ns(const struct sim_client *client);
/* Around a script of a replaced master. */
void sim_check_stale_before(struct sim *sim, const struct sim_call *call);
void sim_check_stale_after(struct sim *sim, const struct sim_call *call);

#endif
