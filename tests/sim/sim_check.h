/* SPDX-License-Identifier: MIT
 * The checks of the simulator: what each reads, and when. */
#ifndef SIM_CHECK_H
#define SIM_CHECK_H

#include "sim.h"

/* sim_check.c: around each script, and after each step. */
void sim_fail(struct sim *sim, enum promise promise, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* wrong: as a promise's function returns it. */
void sim_keep(struct sim *sim, enum promise promise, const char *wrong);
void sim_keep_of(struct sim *sim, const struct sim_name *name, enum promise promise,
                 const char *wrong);
/* The state of a name in the store. */
void sim_look(struct sim *sim, const struct sim_name *name, struct store_view *view);
void sim_check_before(struct sim *sim, int name);
/* call: NULL for changes from outside, which may break holds. */
void sim_check_after(struct sim *sim, int name, const struct sim_call *call);
void sim_check_forced(struct sim *sim, int name, bool covered);
void sim_check_client(struct sim_client *client);
void sim_check_names(struct sim *sim);
void sim_check_sent(struct sim_client *client, const struct lk__pending *request);
/* Holds that it acquired while half of its memory was lost. */
void sim_check_adopt(struct sim *sim, struct sim_name *name, const struct sim_call *call);
struct sim_grant *sim_grant_of(struct sim_name *name, uint64_t fence, const char *nonce);
/* The last grant of that fence to that process: for a ticket that its core has freed. */
struct sim_grant *sim_grant_to(struct sim_name *name, uint64_t fence,
                               const struct sim_client *client);

/* sim_check_link.c */
void sim_check_link(struct sim_client *client);
void sim_check_redial(struct sim_client *client);

/* sim_check_holds.c */
void sim_check_backed(struct sim_client *client, const struct lk__hold *hold);
void sim_check_made(struct sim_caller *caller);
void sim_check_forgotten(struct sim_caller *caller);
int64_t sim_capacity_since(const struct sim_name *name, int64_t since_ns, bool least);
/* The most time that so many trips between a client and the server take. */
int64_t sim_ways_ns(const struct sim *sim, int ways);

/* sim_check_results.c */
/* The result of a call has a cause. */
void sim_keep_result(const struct sim_caller *caller, const struct promise_causes *causes,
                     lk_err err);
void sim_check_gave_up(struct sim_caller *caller);
void sim_check_deadline(const struct sim_caller *caller);
void sim_check_acquired(struct sim_caller *caller, lk_err err);
void sim_check_reentered(struct sim_caller *caller, lk_err err);
void sim_check_released(struct sim_caller *caller, lk_err err);
void sim_check_extended(struct sim_caller *caller, lk_err err);

/* sim_check_permits.c, sim_check_latch.c */
bool sim_check_is_torn(const struct sim_name *name);
void sim_check_permits(struct sim *sim, struct sim_name *name, const struct sim_call *call,
                       const struct promise_run *run);
void sim_check_latch(struct sim *sim, struct sim_name *name, const struct store_view *before,
                     const struct sim_call *call, const struct lk__answer *answer);
/* A step counts. */
void sim_check_count(struct sim *sim, struct sim_name *name, const struct store_view *before,
                     const struct sim_call *call);
void sim_check_opened(struct sim *sim, int name, const char *text);
void sim_check_latch_now(struct sim *sim, struct sim_name *name);
void sim_check_latch_forced(struct sim *sim, struct sim_name *name);
void sim_check_waiting(struct sim_caller *caller);
void sim_check_awaited(struct sim_caller *caller, lk_err err);
void sim_check_stepped(struct sim_caller *caller, lk_err err);

/* sim_check_lost.c: a client learns that its hold is lost. */
void sim_check_lost(const struct sim_client *client, const struct lk__hold *hold);

/* sim_check_excuse.c: holds that clients believe in for longer than the store keeps them. */
/* Stop checking all earlier grants: NULL = of all names. */
void sim_check_excuse(struct sim *sim, struct sim_name *name, struct sim_grant *grant);
void sim_check_excused(struct sim_client *client, const struct lk__hold *hold,
                       struct sim_grant *grant);
void sim_check_gone(struct sim_client *client, const char *nonce, uint64_t fence);
/* Until when a client may believe in a ticket, given what was sent so far: the true time. */
int64_t sim_check_excused_until(const struct sim_client *client, const struct lk__ticket *ticket);
/* No loss of memory is meant to be made up for by the grace. */
#define SIM_NO_ERA (-1)
/* The store has it, and grants nothing beside it from now on. */
void sim_check_join(struct sim *sim, const struct sim_name *name, struct sim_grant *grant);
/* Until when the store surely keeps that hold: its time. */
int64_t sim_check_kept_us(const struct sim *sim, const struct store_ticket *held);
/* Do they exclude each other? */
bool sim_check_excludes(const struct sim_grant *one, const struct sim_grant *other);
bool sim_check_is_apart(const struct sim_grant *one, const struct sim_grant *other);
void sim_check_doubts(const struct sim_client *client);
/* The memory was lost: of those grants, find those that may outlast the grace. */
void sim_check_uncovered(struct sim *sim, struct sim_name *name);

/* sim_check_counters.c */
void sim_check_counted(struct sim_caller *caller, enum sim_doing was, lk_err err);
void sim_check_counters(const struct sim_client *client);

/* sim_check_end.c */
void sim_check_ghost(struct sim *sim, const char *ticket);
/* Of the memory that a name has now. */
void sim_check_ghosts(struct sim *sim, const struct sim_name *name);
/* All calls have ended, a few trips ago. */
void sim_check_rest(struct sim *sim);
/* Everything of ended processes has expired. */
void sim_check_end(struct sim *sim);

#endif
