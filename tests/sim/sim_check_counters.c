/* SPDX-License-Identifier: MIT
 * After every event, a client's counters must match the results that its callers saw. */
#include "sim.h"

void sim_check_counted(struct sim_caller *caller, enum sim_doing was, lk_err err)
{
	struct lk_counters *seen = &caller->client->counted;

	if (was == SIM_AWAITING)
		seen->awaited += !err;
	else if (was == SIM_STEPPING)
		seen->stepped += !err;
	if (was != SIM_ACQUIRING)
		return;
	if (!err && caller->depth)
		seen->reentered++;
	else if (!err)
		seen->acquired++;
	else if (err == LK_EBUSY)
		seen->busy++;
	else if (err == LK_ETIMEDOUT)
		seen->timed_out++;
	else if (err == LK_ECANCELED || err == LK_ECLOSED)
		seen->canceled++;
	else
		seen->failed++;
	/* Detached permits: they are not a hold, and expire with their lease. */
	if (!err && caller->waiter.forget)
		seen->holds++;
}

static void same(const struct sim_client *client, const char *what, int64_t counted, int64_t seen)
{
	if (counted != seen)
		sim_fail(client->sim, PROMISE_COUNTERS,
		         "c%02d counted %s %lld times, its callers saw %lld", client->slot, what,
		         (long long)counted, (long long)seen);
}

static void at_most(const struct sim_client *client, const char *what, int64_t part, int64_t whole)
{
	if (part < 0 || part > whole)
		sim_fail(client->sim, PROMISE_COUNTERS, "c%02d has counted %s: %lld of %lld",
		         client->slot, what, (long long)part, (long long)whole);
}

static int64_t held_now(const struct sim_client *client)
{
	int64_t count = 0;

	for (const struct lk__hold *hold = client->core.all_holds; hold; hold = hold->next)
		count += !hold->lost;
	return count;
}

void sim_check_counters(const struct sim_client *client)
{
	const struct lk_counters *counters = &client->core.counters, *seen = &client->counted;
	int64_t lost = 0;

	same(client, "acquisitions", counters->acquired, seen->acquired);
	same(client, "re-entries", counters->reentered, seen->reentered);
	same(client, "busy", counters->busy, seen->busy);
	same(client, "timeouts", counters->timed_out, seen->timed_out);
	same(client, "cancellations", counters->canceled, seen->canceled);
	same(client, "failures", counters->failed, seen->failed);
	same(client, "latches awaited", counters->awaited, seen->awaited);
	same(client, "steps", counters->stepped, seen->stepped);
	same(client, "holds that ended", counters->holds,
	     counters->acquired - seen->holds - held_now(client));
	for (int reason = LK_LOST_EXPIRED; reason <= LK_LOST_THREAD; reason++) {
		at_most(client, "losses told", seen->lost[reason], counters->lost[reason]);
		lost += counters->lost[reason];
	}
	same(client, "losses", counters->lost[0], lost);
	at_most(client, "losses", lost, counters->holds);
	at_most(client, "passed on", counters->by_thread + counters->by_message, counters->waited);
	at_most(client, "waits", counters->waited, counters->acquired);
	at_most(client, "time of waits", counters->waited_us, counters->acquired_us);
	at_most(client, "longest wait", counters->waited_max_us, counters->waited_us);
	at_most(client, "longest hold", counters->held_max_us, counters->held_us);
	at_most(client, "latest renewal", counters->late_max_us, counters->late_us);
	at_most(client, "holds taken back", counters->reclaimed, seen->reclaimed);
	/* An expired lease is not renewed. */
	at_most(client, "share of a lease", counters->lease_max_permille, 1000);
}
