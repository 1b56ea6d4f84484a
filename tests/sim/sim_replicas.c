/* SPDX-License-Identifier: MIT
 * The replicas of a service's master: what each has, and how WAIT counts them.
 *
 * A replica has at once what the master wrote, and confirms it some time later.  It is deaf for a
 * while if it is stopped; and from the moment of the image that a failover is going to load until
 * that failover.  So what it confirmed is in each later image, and nothing else must be. */
#include "sim.h"

#define LAG_NS (4 * SIM_MS)         /* of a confirmation, mostly */
#define LAG_LONG_NS (1500 * SIM_MS) /* ... and at most */
#define NOTED_NS (5 * SIM_MS)       /* a count that takes longer delays its client */
#define ATTACHED_NS (3 * SIM_S)     /* a replica follows its new master by then */
#define FOLLOWS_NS (1000 * SIM_MS)  /* ... and a master that was replaced, by then */

static bool is_failover(const struct sim_fault *fault)
{
	return fault->kind == SIM_SWITCH || fault->kind == SIM_MASTER_KILL ||
	       fault->kind == SIM_MASTER_STOP;
}

static bool is_deaf(const struct sim *sim, int place)
{
	return sim->service.replicas[place].deaf_ns > sim->now_ns;
}

void sim_replicas_init(struct sim *sim)
{
	sim->service.acks = sim_random_of(sim->plan->seed, 11, 0);
}

void sim_replicas_heal(struct sim *sim)
{
	for (int i = 0; i < SIM_PLACES; i++)
		sim->service.replicas[i] = (struct sim_replica){0};
}

/* ---- WAIT ----------------------------------------------------------------------------------- */

static int64_t lag_ns(struct sim *sim)
{
	struct sim_random *random = &sim->service.acks;

	return sim_within(random, sim_percent(random, 97) ? LAG_NS : LAG_LONG_NS);
}

/* When the replica will have confirmed what the connection wrote; if it wrote nothing, it counts at
 * once. */
static int64_t ack_ns(struct sim *sim, const struct sim_link *link, int place)
{
	const struct sim_replica *replica = &sim->service.replicas[place];
	int64_t lag = lag_ns(sim), now_ns = sim->now_ns;

	if (place == link->place || place == sim->service.place)
		return LK__NEVER;              /* no replica of that server */
	if (link->place != sim->service.place) /* it follows the new master soon */
		return !sim->service.is_alone && now_ns + lag < replica->attached_ns ? now_ns + lag
		                                                                     : LK__NEVER;
	if (replica->attached_ns > now_ns)
		return replica->is_chosen && is_deaf(sim, place) ? LK__NEVER
		                                                 : replica->attached_ns + lag;
	if (link->wrote == 0 || (is_deaf(sim, place) && link->wrote <= replica->has))
		return now_ns;
	if (!is_deaf(sim, place))
		return now_ns + lag;
	return replica->is_chosen ? LK__NEVER : replica->deaf_ns + lag;
}

static uint32_t count(const struct sim_wait *wait, int64_t at_ns)
{
	uint32_t replicas = 0;

	for (int i = 0; i < SIM_PLACES; i++)
		replicas += wait->acks_ns[i] <= at_ns;
	return replicas;
}

static void set_due(const struct sim *sim, struct sim_call *call)
{
	const struct sim_wait *wait = &call->wait;

	call->at_ns = wait->until_ns;
	for (int i = 0; i < SIM_PLACES; i++)
		if (wait->acks_ns[i] < call->at_ns &&
		    count(wait, wait->acks_ns[i]) >= sim->plan->replicas)
			call->at_ns = wait->acks_ns[i];
	if (call->at_ns < sim->now_ns)
		call->at_ns = sim->now_ns;
}

static void begin(struct sim *sim, struct sim_link *link, struct sim_call *call)
{
	struct sim_client *client = link->client;

	call->wait.until_ns = sim->now_ns + client->lane->session.replicas_ms * SIM_MS;
	for (int i = 0; i < SIM_PLACES; i++)
		call->wait.acks_ns[i] = ack_ns(sim, link, i);
	set_due(sim, call);
	if (call->at_ns > sim->now_ns + NOTED_NS)
		sim_disturb(&client->disturbed_ns, call->at_ns);
}

bool sim_replicas_wait(struct sim *sim, struct sim_link *link, struct sim_call *call)
{
	bool is_stale = link->place != sim->service.place;
	struct lua_store *store = is_stale ? sim->service.stale.store : sim->store;
	uint32_t replicas;

	if (call->kind != LK__CONFIRM || !store ||
	    (!is_stale && sim_server_refuses(sim, call->slot, call->kind)))
		return false;
	if (!call->wait.until_ns)
		begin(sim, link, call);
	if (call->at_ns > sim->now_ns)
		return true;
	replicas = count(&call->wait, sim->now_ns);
	lua_store_process(store)->replicas = replicas;
	sim->tally.counts++;
	if (replicas >= sim->plan->replicas)
		return false;
	sim->tally.short_counts++;
	sim_disturb(&link->client->disturbed_ns, sim->now_ns);
	return false;
}

/* What the replica has not confirmed by then, it never confirms to that server. */
static void forget_acks(struct sim *sim, int server, int place, int64_t by_ns)
{
	for (struct sim_link *link = sim->links; link; link = link->next)
		for (struct sim_call *call = link->calls; call; call = call->next) {
			if (link->place != server || !call->wait.until_ns || call->executed ||
			    call->wait.acks_ns[place] <= by_ns)
				continue;
			call->wait.acks_ns[place] = LK__NEVER;
			set_due(sim, call);
			sim_disturb(&link->client->disturbed_ns, call->at_ns);
			link->client->dirty = true;
		}
}

/* ---- What a replica has --------------------------------------------------------------------- */

static void deafen(struct sim *sim, int place, int64_t until_ns)
{
	struct sim_replica *replica = &sim->service.replicas[place];

	if (is_deaf(sim, place))
		return;
	*replica = (struct sim_replica){.attached_ns = replica->attached_ns,
	                                .deaf_ns = until_ns,
	                                .has = sim->service.writes};
	sim_server_save(sim, SIM_FAULTS + place);
}

void sim_replicas_stop(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int first = sim_service_next(sim, random);
	bool both = sim_percent(random, 30);

	for (int i = 0; i < SIM_PLACES; i++) {
		if ((i != first && !both) || i == sim->service.place ||
		    sim->service.replicas[i].attached_ns > sim->now_ns)
			continue;
		sim->tally.faults[fault->kind]++;
		deafen(sim, i, sim->now_ns + fault->length_ns);
	}
}

/* If it was deaf already, it lacks more than the image would. */
static void choose(struct sim *sim, int index)
{
	const struct sim_fault *fault = &sim->plan->faults[index];
	struct sim_random random = {fault->chance};
	int place = sim_service_next(sim, &random);
	struct sim_replica *replica = &sim->service.replicas[place];
	int64_t until_ns = SIM_START_NS + fault->at_ns + 1;

	deafen(sim, place, until_ns);
	if (sim->images[SIM_FAULTS + place])
		sim_server_move_image(sim, SIM_FAULTS + place, index);
	else
		sim_server_save(
			sim, index); /* for an earlier failover, after which this is done again */
	forget_acks(sim, sim->service.place, place, sim->now_ns);
	replica->deaf_ns = until_ns;
	replica->is_chosen = true;
	/* The master may be cut off from both. */
	if (sim_percent(&sim->service.acks, 50))
		deafen(sim, SIM_PLACES - place - sim->service.place, until_ns);
}

void sim_replicas_image(struct sim *sim, int fault)
{
	if (sim->plan->replicas && is_failover(&sim->plan->faults[fault]))
		choose(sim, fault);
	else
		sim_server_save(sim, fault);
}

/* ---- A failover ----------------------------------------------------------------------------- */

static bool hears(const struct sim *sim, int place)
{
	return !is_deaf(sim, place) && sim->service.replicas[place].attached_ns <= sim->now_ns;
}

/* Has the replica all that so many confirm, now or later? */
static bool has_all(const struct sim *sim, int from, int place, bool is_kill)
{
	const struct sim_replica *replica = &sim->service.replicas[place];
	int other = SIM_PLACES - from - place;

	if (!replica->is_chosen)
		return false;
	if (sim_check_is_unanimous(sim))
		return true;
	if (hears(sim, other)) /* it may confirm what a master that goes on writes */
		return is_kill && sim->service.writes == replica->has;
	return sim->service.replicas[other].attached_ns > sim->now_ns ||
	       sim->service.replicas[other].has <= replica->has;
}

void sim_replicas_promote(struct sim *sim, int from, int place, bool is_kill)
{
	struct sim_service *service = &sim->service;

	service->keeps = sim->plan->replicas && has_all(sim, from, place, is_kill);
	service->is_alone = !hears(sim, SIM_PLACES - from - place);
	service->keeps_offset_us = sim->store_offset_us;
}

void sim_replicas_promoted(struct sim *sim, int from, int64_t up_ns)
{
	struct sim_service *service = &sim->service;
	int place = service->place, other = SIM_PLACES - from - place;
	int64_t back_ns = service->stale.store ? service->stale.end_ns : service->down_ns[from];

	service->keeps = false;
	if (!sim->plan->replicas)
		return;
	back_ns = back_ns > up_ns ? back_ns : up_ns;
	sim_replicas_heal(sim);
	service->replicas[other].attached_ns = up_ns + sim_within(&service->acks, ATTACHED_NS);
	service->replicas[from].attached_ns = back_ns + sim_within(&service->acks, FOLLOWS_NS);
	forget_acks(sim, from, place, sim->now_ns);
	forget_acks(sim, from, other,
	            service->is_alone ? sim->now_ns : service->replicas[other].attached_ns);
	/* Those that later failovers promote begin anew with its memory. */
	for (int i = 0; i < sim->plan->fault_count; i++)
		if (sim->images[i] && is_failover(&sim->plan->faults[i]) &&
		    SIM_START_NS + sim->plan->faults[i].at_ns >= sim->now_ns)
			choose(sim, i);
}
