/* SPDX-License-Identifier: MIT
 * A quorum: independent masters, its members.  Each has a memory, a clock and faults of its own,
 * and a record of each lock, for the checks of a single server: a leg is a single server's ticket.
 */
#ifndef SIM_QUORUM_H
#define SIM_QUORUM_H

#include "core/core.h"
#include "core/quorum.h"
#include "lua_store.h"
#include "promises/promises.h"
#include "sim_plan.h"

#define SIM_MEMBERS 5
#define SIM_LONGEST_MS 4000 /* the longest lease */

struct sim;
struct sim_call;
struct sim_caller;
struct sim_client;
struct sim_name;

struct sim_member {
	struct lua_store *store;
	struct sim_name *names;    /* of its own: the locks */
	int64_t offset_us;         /* its clock, less now_ns */
	int64_t least_us, most_us; /* ... since the start */
	int64_t since_us, marked_ns;
	uint64_t old_mark;       /* of an earlier memory: what it says counts for no client */
	int64_t up_ns, awake_ns; /* it is down, or stopped, until then */
	int64_t slow_ns, lag_ns; /* until then each trip takes so much longer */
	int64_t sick_until_ns;
	const char *sick;
	bool sick_to_some;
	bool has_scripts;
	int64_t disturbed_ns; /* when its last fault ended, */
	int64_t refused_ns;   /* and the last time in which it refuses: no fault of those */
	int64_t jumped_ns;    /* when its clock was last set forward */
};

/* Of a lock, for the whole quorum. */
struct sim_idle {
	int64_t since_ns; /* a majority could grant it since then, and a client waits */
	char nonce[LK__NONCE_SIZE];
};

struct sim_quorum {
	int count, majority;
	struct sim_member members[SIM_MEMBERS];
	struct sim_idle waits[SIM_LOCKS];
	int runs_at;      /* the member whose script runs, or that a check looks at */
	int64_t upset_ns; /* when a memory was lost, a clock set forward, or a hold broken */
	bool was_skewed;  /* clocks differed so much that a loss of memory may take fences back */
	long long calls;  /* of threads */
	char broken[LK__TICKET_MAX]; /* the ticket that an operator breaks, "" = none */
};

/* sim_quorum.c: the members */
void sim_quorum_init(struct sim *sim);
void sim_quorum_fini(struct sim *sim);
void sim_quorum_set_time(struct sim *sim);
/* The server's part of the simulator is that of the member from now on. */
void sim_quorum_select(struct sim *sim, int place);
void sim_quorum_load(struct sim *sim, int place);
void sim_quorum_mark(struct sim *sim, int place);
struct sim_name *sim_quorum_name(const struct sim *sim, int place, int name);
bool sim_quorum_is_up(const struct sim *sim, int place);
/* Does it run, and grant? */
bool sim_quorum_votes(const struct sim *sim, int place);
int sim_quorum_voters(const struct sim *sim);
/* How much longer a trip to or from that member takes. */
int64_t sim_quorum_lag_ns(const struct sim *sim, int place);
/* A late request waits until its member continues. */
bool sim_quorum_put_off(struct sim *sim, struct sim_call *call);
/* The member of a fault. */
int sim_quorum_place(const struct sim *sim, const struct sim_fault *fault);
/* False if it is none of a member. */
bool sim_quorum_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random);
void sim_quorum_heal(struct sim *sim);
/* ... a client's way to them */
void sim_quorum_start(struct sim_client *client);
void sim_quorum_probe(struct sim_client *client);
/* Its link to that member works since then; those to a majority that votes do. */
bool sim_quorum_is_linked(const struct sim_client *client, int place, int64_t since_ns);
/* The same, but refusals count only if they are as late as refused_ns. */
bool sim_quorum_accepts(const struct sim_client *client, int place, int64_t since_ns,
                        int64_t refused_ns);
bool sim_quorum_is_fine(const struct sim_client *client, int64_t since_ns);
/* The leg of a ticket in the present member's store, NULL = none. */
const struct lk__ticket *sim_quorum_leg(const struct sim_client *client,
                                        const struct store_ticket *ticket);

/* sim_check_quorum.c */
void sim_quorum_check_script(struct sim *sim, struct sim_name *name, const struct sim_call *call,
                             const struct lk__answer *answer);
void sim_quorum_check_client(struct sim_client *client);
void sim_quorum_check_sent(struct sim_client *client, const struct lk__pending *request);
void sim_quorum_check_made(struct sim_caller *caller, const struct lk__hold *hold);
void sim_quorum_check_lost(const struct sim_client *client, const struct lk__hold *hold);
void sim_quorum_check_release(struct sim_caller *caller);
/* All the time of the call it reached a majority that had legs of its hold at the begin; they may
 * have refused until a moment ago. */
bool sim_quorum_had_majority(const struct sim_caller *caller);
void sim_quorum_check_released(struct sim_caller *caller, lk_err err);
void sim_quorum_check_cost(struct sim *sim);
void sim_quorum_check_idle(struct sim *sim, const struct sim_name *name, int64_t limit_ns);

#endif
