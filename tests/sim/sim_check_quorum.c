/* SPDX-License-Identifier: MIT
 * What clients believe because of a quorum's members.
 *
 * A leg is sound while its member keeps it, or has lost its memory and is young: then it grants
 * nothing for as long as any client may believe in what it had granted.  A leg is early when the
 * member has ended it before the client's time, because its clock was set forward.  A hold with a
 * majority of sound legs excludes every other; one with fewer is counted apart: a hold on exactly Q
 * legs survives no clock that is set forward, and with Q + j it survives j. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define SLACK_US 3000             /* a key exists through the millisecond of its expiry */
#define BELIEF_NS (4100 * SIM_MS) /* the longest lease, and the drift of clocks */
#define PRIORITY_SLACK_US 20000   /* of a client that flushes late */

#define REQUESTS_MAX 3 /* of a call, to each member */

enum soundness { SIM_SOUND, SIM_EARLY, SIM_BROKEN };

/* ---- Legs --------------------------------------------------------------------------------- */

static int name_of(const struct lk__name *name)
{
	return name->bytes[name->len - 1] - '0';
}

static const struct store_ticket *find_held(const struct sim_client *client,
                                            const struct sim_name *name,
                                            const struct lk__ticket *leg)
{
	const struct lk__ticket_id id = lk__ticket_id(leg);
	const struct store_ticket *held = &name->view.holds[0];
	char text[LK__TICKET_MAX];

	if (!name->view.hold_count)
		return NULL;
	lk__ticket_text(&client->space, &id, text);
	return !strcmp(held->text, text) && held->fence == leg->fence ? held : NULL;
}

/* The member has another memory than the grant, and grants nothing before that time. */
static bool is_covered(const struct sim *sim, const struct sim_name *name,
                       const struct sim_grant *grant, int64_t until_us)
{
	return grant->epoch != name->epoch &&
	       (sim->since_us == INT64_MAX || sim->since_us + SIM_LONGEST_MS * 1000 >= until_us);
}

/* A leg in which its client believes. */
static enum soundness check_leg(const struct sim_client *client, const struct lk__ticket *leg)
{
	struct sim *sim = client->sim;
	int place = leg->session->index;
	struct sim_name *name = sim_quorum_name(sim, place, name_of(leg->queue->name));
	const struct sim_grant *grant = sim_grant_of(name, leg->fence, leg->nonce);
	const struct store_ticket *held;
	int64_t until_us;
	bool is_kept;

	sim_quorum_select(sim, place);
	until_us =
		SIM_EPOCH_US + sim->store_offset_us + sim_true(client, leg->valid_until_ns) / 1000;
	held = find_held(client, name, leg);
	is_kept = held && held->end_us > sim_server_us(sim);
	if (!grant)
		sim_fail(sim, PROMISE_GRANT, "a leg of %s is no grant of member %d", name->text,
		         place);
	else if ((is_kept && held->end_us + SLACK_US >= until_us) ||
	         is_covered(sim, name, grant, until_us))
		return SIM_SOUND;
	else if (grant->broken)
		return SIM_BROKEN;
	else if (sim->now_ns - sim->quorum.members[place].jumped_ns > BELIEF_NS)
		sim_keep_of(sim, name, PROMISE_VALIDITY,
		            promise_validity(is_kept, is_kept ? held->end_us : 0, until_us));
	return is_kept ? SIM_SOUND : SIM_EARLY;
}

void sim_quorum_check_client(struct sim_client *client)
{
	const struct lk__ticket *ticket = client->core.all_tickets;
	int64_t now_ns = sim_local(client);

	for (; ticket; ticket = ticket->next)
		if (lk__ticket_whole(ticket) && lk__leg_is_valid(ticket, now_ns))
			check_leg(client, ticket);
}

/* ---- Holds -------------------------------------------------------------------------------- */

/* How many legs of a hold are sound; which are valid. */
static int count_sound(const struct sim_client *client, const struct lk__hold *hold,
                       uint32_t *valid, bool *is_broken)
{
	const struct lk__legs *legs = hold->ticket->legs;
	int64_t now_ns = sim_local(client);
	int sound = 0;

	*valid = 0;
	for (unsigned i = 0; i < legs->servers; i++) {
		enum soundness is;
		if (!lk__leg_is_valid(legs->leg[i], now_ns))
			continue;
		is = check_leg(client, legs->leg[i]);
		*valid |= 1u << i;
		*is_broken |= is == SIM_BROKEN;
		sound += is == SIM_SOUND;
	}
	return sound;
}

/* What is known of a hold at a moment. */
struct belief {
	int sound;
	uint32_t valid;
	bool is_broken, is_excused; /* it has no majority, and clocks or an operator are why */
};

static struct belief believe(const struct sim_client *client, const struct lk__hold *hold)
{
	struct belief belief = {0};

	belief.sound = count_sound(client, hold, &belief.valid, &belief.is_broken);
	belief.is_excused = belief.sound < client->sim->quorum.majority;
	return belief;
}

static void check_alone(struct sim *sim, const struct sim_name *name, const struct lk__hold *mine,
                        const struct belief *belief)
{
	int64_t used = 1;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next) {
			struct belief other;
			if (hold == mine || name_of(hold->name) != name->index ||
			    !lk__hold_left_ns(hold, sim_local(client)))
				continue;
			other = believe(client, hold);
			used += !other.is_excused && !belief->is_excused;
			sim->tally.overlaps += (other.is_excused && !other.is_broken) ||
			                       (belief->is_excused && !belief->is_broken);
		}
	}
	sim_keep_of(sim, name, PROMISE_EXCLUSION, promise_exclusion(used));
}

/* The member's counter; of a memory that is lost, what it had said. */
static uint64_t counter_of(const struct sim *sim, int place, const struct sim_name *name,
                           const struct lk__ticket *leg)
{
	struct sim_name *there = sim_quorum_name(sim, place, name->index);
	const struct sim_grant *grant = sim_grant_of(there, leg->fence, leg->nonce);
	char class[16];

	if (!grant || grant->epoch != there->epoch)
		return there->store_max;
	snprintf(class, sizeof(class), "%u",
	         lk__slot_of(name->text, strlen(name->text)) % LK__CLASSES);
	return strtoull(
		lua_store_text(sim->quorum.members[place].store, "HGET", "lk:fences", class, NULL),
		NULL, 10);
}

/* A majority's counters have reached the fence, and no leg of theirs exceeds it. */
static void check_committed(const struct sim_client *client, const struct sim_name *name,
                            const struct lk__hold *hold)
{
	const struct lk__legs *legs = hold->ticket->legs;
	struct sim *sim = client->sim;
	int count = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		const struct lk__ticket *leg = legs->leg[i];
		count += lk__leg_is_valid(leg, sim_local(client)) && leg->fence <= hold->fence &&
		         hold->fence <= counter_of(sim, (int)i, name, leg);
	}
	if (count < sim->quorum.majority)
		sim_fail(sim, PROMISE_FENCE,
		         "%s: fence %llu of a hold is known to %d of %d members", name->text,
		         (unsigned long long)hold->fence, count, sim->quorum.count);
}

static void check_fence(struct sim *sim, struct sim_name *name, const struct lk__hold *hold,
                        const struct belief *belief)
{
	if (belief->is_excused)
		return;
	if (name->regime == name->made_regime)
		sim_keep_of(sim, name, PROMISE_FENCE, promise_fence(name->made_max, hold->fence));
	name->made_max = hold->fence;
	name->made_regime = name->regime;
}

/* ---- The order of holds ------------------------------------------------------------------- */

static bool is_older(const struct sim_client *client, const struct lk__ticket *ticket,
                     const struct sim_client *of, const struct lk__ticket *other)
{
	int order;

	if (ticket->legs->priority != other->legs->priority)
		return ticket->legs->priority < other->legs->priority;
	order = strcmp(client->space.client_id, of->space.client_id);
	return order ? order < 0 : strcmp(ticket->nonce, other->nonce) < 0;
}

/* The leg has been in the queue of its member for so long that a younger holder knows it. */
static bool is_known(const struct sim_client *client, const struct lk__ticket *leg, int64_t for_ns)
{
	struct sim *sim = client->sim;
	const struct sim_name *name;
	const struct lk__ticket_id id = leg ? lk__ticket_id(leg) : (struct lk__ticket_id){0};
	char text[LK__TICKET_MAX];

	if (!leg || (leg->state != LK__ASKING && leg->state != LK__WAITING) || !leg->main.sent_ns ||
	    sim_true(client, leg->main.sent_ns) > sim->now_ns - for_ns ||
	    !sim_quorum_is_linked(client, leg->session->index, sim->now_ns - for_ns))
		return false;
	name = sim_quorum_name(sim, leg->session->index, name_of(leg->queue->name));
	lk__ticket_text(&client->space, &id, text);
	return store_wait(&name->view, text) != NULL;
}

/* Without the legs that it owes to that older ticket, it has no majority.  But it may have had one
 * for a while, and wait for a slow member to commit its fence. */
static void check_overtaken(const struct sim_client *client, const struct sim_name *name,
                            const struct lk__hold *hold, const struct sim_client *other,
                            const struct lk__ticket *older)
{
	struct sim *sim = client->sim;
	const struct lk__legs *legs = hold->ticket->legs;
	int64_t for_ns = sim_ways_ns(sim, 12);
	int own = 0;

	for (unsigned i = 0; i < legs->servers; i++) {
		if (!lk__leg_is_valid(legs->leg[i], sim_local(client)))
			continue;
		if (!sim_quorum_is_linked(client, (int)i, sim->now_ns - for_ns))
			return;
		own += !is_known(other, older->legs->leg[i], for_ns);
	}
	if (own < sim->quorum.majority)
		sim_fail(sim, PROMISE_FIFO, "%s: c%02d has overtaken c%02d, which is older",
		         name->text, client->slot, other->slot);
}

static void check_order(struct sim_client *client, const struct sim_name *name,
                        const struct lk__hold *hold)
{
	struct sim *sim = client->sim;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *other = &sim->clients[i];
		const struct lk__ticket *ticket = other->alive ? other->core.all_tickets : NULL;
		for (; ticket; ticket = ticket->next)
			if (ticket->legs && ticket->legs->priority && ticket->queue &&
			    ticket->state == LK__ASKING && ticket->queue->first &&
			    name_of(ticket->queue->name) == name->index &&
			    is_older(other, ticket, client, hold->ticket))
				check_overtaken(client, name, hold, other, ticket);
	}
}

/* Its priority is the time of the members' clocks, at its first ask. */
static void check_priority(const struct sim_client *client, const struct lk__ticket *leg)
{
	struct sim *sim = client->sim;
	int64_t least_us = INT64_MAX, most_us = 0, oldest_ns = sim_local(client), slack_us;
	int64_t us = (int64_t)leg->whole->legs->priority;

	for (int i = 0; i < sim->quorum.count; i++) {
		const struct sim_member *member = &sim->quorum.members[i];
		const struct lk__session *session = &client->lanes[i].session;
		if (session->clock_ns && session->clock_ns < oldest_ns)
			oldest_ns = session->clock_ns;
		if (member->least_us < least_us)
			least_us = member->least_us;
		if (i == 0 || member->most_us > most_us)
			most_us = member->most_us;
	}
	slack_us = (sim_local(client) - oldest_ns) / 100000 + sim_ways_ns(sim, 1) / 1000 +
	           PRIORITY_SLACK_US;
	us -= SIM_EPOCH_US + sim->now_ns / 1000;
	for (int i = 0; i < sim->quorum.count; i++)
		if (!sim_quorum_is_linked(client, i,
		                          sim_true(client, oldest_ns) - sim_ways_ns(sim, 2)))
			return; /* it may have read an old reply a moment ago */
	if (us < least_us - slack_us || us > most_us + slack_us)
		sim_fail(sim, PROMISE_FIFO,
		         "c%02d: the priority of a ticket is %lld us from the members' clocks",
		         client->slot, (long long)(us < least_us ? us - least_us : us - most_us));
}

void sim_quorum_check_sent(struct sim_client *client, const struct lk__pending *request)
{
	const struct lk__ticket *leg = request->ticket, *other;
	bool is_first = request->kind == LK__ASK;

	client->sim->tally.requests += request->kind != LK__EPOCH;
	if (!is_first || !lk__ticket_whole(leg) || leg->epoch ||
	    leg->first_sent_ns != request->sent_ns)
		return;
	for (unsigned i = 0; i < leg->whole->legs->servers; i++) {
		other = leg->whole->legs->leg[i];
		is_first = is_first && (!other || !other->first_sent_ns ||
		                        request->sent_ns - other->first_sent_ns < 10 * SIM_MS);
	}
	if (is_first)
		check_priority(client, leg);
}

/* ---- Acquired, lost, released ------------------------------------------------------------- */

void sim_quorum_check_made(struct sim_caller *caller, const struct lk__hold *hold)
{
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	struct sim_name *name = &sim->names[caller->name];
	struct belief belief = believe(client, hold);

	sim->tally.grants++;
	caller->legs = belief.valid;
	if (__builtin_popcount(belief.valid) < sim->quorum.majority)
		sim_fail(sim, PROMISE_GRANT, "%s: a hold with too few legs", name->text);
	sim->tally.early += belief.is_excused && !belief.is_broken;
	check_committed(client, name, hold);
	check_fence(sim, name, hold, &belief);
	check_order(client, name, hold);
	check_alone(sim, name, hold, &belief);
}

void sim_quorum_check_lost(const struct sim_client *client, const struct lk__hold *hold)
{
	struct sim *sim = client->sim;
	const struct sim_caller *caller = hold->handle;
	int64_t lease_ns = caller->queue->lease_ms * SIM_MS;
	int64_t since_ns = sim_true(client, hold->since_ns);
	int linked = 0;

	if (since_ns < sim->now_ns - lease_ns)
		since_ns = sim->now_ns - lease_ns;
	for (int i = 0; i < sim->quorum.count; i++)
		linked += (caller->legs >> i & 1) && sim_quorum_is_linked(client, i, since_ns);
	if (sim->quorum.upset_ns >= since_ns - BELIEF_NS)
		return;
	if (hold->lost == LK_LOST_TAKEN)
		sim_fail(sim, PROMISE_OWNER,
		         "fence %llu of %s is reported taken, and nobody took it",
		         (unsigned long long)hold->fence, hold->name->bytes);
	if (hold->lost == LK_LOST_EXPIRED && !caller->queue->fixed &&
	    lease_ns > 3 * sim_ways_ns(sim, 6) && linked >= sim->quorum.majority)
		sim_fail(sim, PROMISE_RENEWAL,
		         "fence %llu of %s has expired, and a majority was there",
		         (unsigned long long)hold->fence, hold->name->bytes);
}

static bool was_broken(const struct sim_caller *caller, const struct lk__ticket *leg)
{
	struct sim *sim = caller->client->sim;
	const struct sim_grant *grant = sim_grant_of(
		sim_quorum_name(sim, leg->session->index, caller->name), leg->fence, leg->nonce);

	return grant && grant->broken;
}

void sim_quorum_check_release(struct sim_caller *caller)
{
	const struct lk__hold *hold = lk__core_hold(caller->queue->name, caller->owner);
	int64_t now_ns = sim_local(caller->client);

	caller->held = caller->left = caller->broken = 0;
	if (!hold || !hold->ticket)
		return;
	memcpy(caller->nonce, hold->ticket->nonce, sizeof(caller->nonce));
	for (unsigned i = 0; i < hold->ticket->legs->servers; i++) {
		const struct lk__ticket *leg = hold->ticket->legs->leg[i];
		if (!lk__leg_is_valid(leg, now_ns))
			continue;
		caller->held |= 1u << i;
		caller->broken |= (uint32_t)was_broken(caller, leg) << i;
	}
}

bool sim_quorum_had_majority(const struct sim_caller *caller)
{
	struct sim *sim = caller->client->sim;
	/* A leg repeats what was refused after that pause. */
	int64_t pause_ns = (caller->queue->lease_ms / 20 + 10) * SIM_MS + sim_ways_ns(sim, 4);
	int count = 0;

	for (int i = 0; i < sim->quorum.count; i++)
		count += (caller->held >> i & 1) &&
		         sim_quorum_accepts(caller->client, i, caller->began_ns,
		                            sim->now_ns - pause_ns);
	return count >= sim->quorum.majority;
}

void sim_quorum_check_released(struct sim_caller *caller, lk_err err)
{
	struct sim *sim = caller->client->sim;
	int broken = 0;

	if (err == LK_ELOST && caller->was_valid &&
	    __builtin_popcount(caller->held & caller->left) >= sim->quorum.majority)
		sim_fail(sim, PROMISE_RESULT,
		         "a release returns LK_ELOST, and a majority had the lock");
	for (int i = 0; i < sim->quorum.count; i++)
		broken += (caller->broken >> i & 1) &&
		          sim_quorum_is_linked(caller->client, i, caller->began_ns);
	if (!err && broken >= sim->quorum.majority)
		sim_fail(sim, PROMISE_RESULT,
		         "a release returns LK_OK, and a majority had broken the hold");
}

/* ---- Scripts ------------------------------------------------------------------------------ */

static void note_leave(struct sim *sim, const struct sim_call *call)
{
	struct sim_client *client = &sim->clients[call->slot];

	for (int i = 0; client->alive && client->life == call->life && i < SIM_THREADS; i++)
		if (client->callers[i].doing == SIM_RELEASING &&
		    !strncmp(client->callers[i].nonce, call->nonce, LK__NONCE_SIZE))
			client->callers[i].left |= 1u << sim->quorum.runs_at;
}

/* The next epoch waits, or has been granted again. */
static void check_yielded(struct sim *sim, const struct sim_name *name, const struct sim_call *call)
{
	const struct store_view *view = &name->view;
	bool is_there = view->hold_count && store_is_same(view->holds[0].text, call->ticket);

	for (int i = 0; i < view->queued && !is_there; i++)
		is_there = store_is_same(view->queue[i].text, call->ticket);
	if (!is_there)
		sim_fail(sim, PROMISE_FIFO, "%s: %s has lost its place by a yield", name->text,
		         call->ticket);
}

void sim_quorum_check_script(struct sim *sim, struct sim_name *name, const struct sim_call *call,
                             const struct lk__answer *answer)
{
	sim->tally.yields += call->kind == LK__YIELD;
	if (call->kind == LK__YIELD && answer->kind == LK__LEFT && !answer->more)
		check_yielded(sim, name, call);
	if (call->kind == LK__LEAVE && answer->kind == LK__LEFT && answer->mine)
		note_leave(sim, call);
	if (answer->kind != LK__GRANTED && answer->kind != LK__KEPT)
		return;
	/* What is granted next exceeds the counter. */
	if (answer->last > name->fence_max)
		name->fence_max = answer->last;
	if (answer->last > name->store_max)
		name->store_max = answer->last;
}

/* ---- Requests ----------------------------------------------------------------------------- */

/* In a run without faults, with all renewals, yields and commits: measured are 1.1 a server. */
void sim_quorum_check_cost(struct sim *sim)
{
	if (sim->tally.requests > REQUESTS_MAX * sim->quorum.count * sim->quorum.calls)
		sim_fail(sim, PROMISE_PROGRESS, "%lld calls have made %lld requests to %d members",
		         sim->quorum.calls, sim->tally.requests, sim->quorum.count);
}

/* ---- Lost wake-ups ------------------------------------------------------------------------ */

/* The oldest ticket that waits for the lock and reaches a majority that votes, NULL = none. */
static const struct lk__ticket *who_waits(const struct sim *sim, int index)
{
	const struct lk__ticket *oldest = NULL;
	const struct sim_client *of = NULL;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__ticket *ticket = client->alive ? client->core.all_tickets : NULL;
		int64_t since_ns = sim->quorum.waits[index].since_ns;
		for (; ticket; ticket = ticket->next) {
			if (!ticket->legs || ticket->state != LK__ASKING || !ticket->queue ||
			    !ticket->queue->first || ticket->is_try || !ticket->legs->priority ||
			    name_of(ticket->queue->name) != index ||
			    (oldest && is_older(of, oldest, client, ticket)) ||
			    !sim_quorum_is_fine(client, since_ns))
				continue;
			oldest = ticket;
			of = client;
		}
	}
	return oldest;
}

static bool is_held(const struct sim *sim, int index)
{
	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next)
			if (name_of(hold->name) == index &&
			    lk__hold_left_ns(hold, sim_local(client)))
				return true;
	}
	return false;
}

/* No holder there, or one that waits for the other members and can yield. */
static bool is_free(struct sim *sim, int place, int index, int64_t since_ns)
{
	const struct store_view *view = &sim_quorum_name(sim, place, index)->view;
	const struct store_ticket *held = &view->holds[0];
	const struct lk__ticket *leg;
	const struct sim_client *client;

	sim_quorum_select(sim, place);
	if (!sim_quorum_votes(sim, place))
		return false;
	if (!view->hold_count || held->end_us <= sim_server_us(sim))
		return true;
	client = sim_client_of(sim, held);
	leg = client && sim_quorum_is_linked(client, place, since_ns) ? sim_quorum_leg(client, held)
	                                                              : NULL;
	return leg && lk__ticket_whole(leg);
}

void sim_quorum_check_idle(struct sim *sim, const struct sim_name *name, int64_t limit_ns)
{
	struct sim_idle *wait = &sim->quorum.waits[name->index];
	const struct lk__ticket *ticket;
	int free_places = 0;

	ticket = who_waits(sim, name->index);
	for (int i = 0; ticket && i < sim->quorum.count; i++)
		free_places += is_free(sim, i, name->index, wait->since_ns);
	if (!ticket || strcmp(ticket->nonce, wait->nonce) != 0 ||
	    free_places < sim->quorum.majority || is_held(sim, name->index)) {
		wait->since_ns = sim->now_ns;
		memcpy(wait->nonce, ticket ? ticket->nonce : "", ticket ? LK__NONCE_SIZE : 1);
		return;
	}
	if ((double)(sim->now_ns - wait->since_ns) / 1e6 > sim->tally.longest_idle_ms)
		sim->tally.longest_idle_ms = (double)(sim->now_ns - wait->since_ns) / 1e6;
	sim_keep_of(sim, name, PROMISE_WAKE_UP,
	            promise_wake_up(wait->since_ns + limit_ns, sim->now_ns));
}
