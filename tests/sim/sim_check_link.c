/* SPDX-License-Identifier: MIT
 * Invariants of a link: the client notices a dead one in time, and has one if it can. */
#include "sim.h"

#include <string.h>

#define SLACK_NS (50 * SIM_MS) /* the two clocks of a check may differ by 0.4 % */
#define BACKOFF_MAX_NS (500 * SIM_MS)
#define BACKOFF_AUTH_NS (5 * SIM_S) /* after a refusal for lack of rights */
/* A sentinel that was not reached is tried again after 5 s at most, and has 2 s to answer; a dial
 * may have 2 s left, and the one after that a pause of 1 s. */
#define FOLLOW_NS (10 * SIM_S)

static int64_t later(int64_t one_ns, int64_t other_ns)
{
	return one_ns > other_ns ? one_ns : other_ns;
}

/* A third of the shortest lease, 0.1 to 5 s: after so much silence the client pings. */
static int64_t silence_ns(const struct sim_client *client)
{
	int64_t ns = client->lease_ms * SIM_MS / 3;

	return ns > 5 * SIM_S ? 5 * SIM_S : later(ns, 100 * SIM_MS);
}

static void check_linked(struct sim_client *client, const struct sim_link *link)
{
	struct sim *sim = client->sim;
	int64_t awake_ns = sim->now_ns - client->resume_ns, quiet_since_ns;

	if (link->etcd)
		return; /* it sends a PING after 10 s of silence */
	if (link->calls && awake_ns > SLACK_NS &&
	    sim_local(client) > link->calls->sent_ns + SIM_TIMEOUT_NS + SLACK_NS)
		sim_fail(sim, PROMISE_LINK, "a request of client %d has no answer for %lld ms",
		         client->slot,
		         (long long)((sim_local(client) - link->calls->sent_ns) / SIM_MS));
	quiet_since_ns = later(later(client->lane->heard_ns, client->busy_ns), client->resume_ns);
	quiet_since_ns = later(quiet_since_ns, client->lane->used_ns);
	if (client->busy_ns != LK__NEVER &&
	    sim->now_ns - quiet_since_ns > silence_ns(client) + SIM_TIMEOUT_NS + SLACK_NS)
		sim_fail(sim, PROMISE_LINK,
		         "client %d believes in a link that is silent for %lld ms", client->slot,
		         (long long)((sim->now_ns - quiet_since_ns) / SIM_MS));
}

static void check_unlinked(struct sim_client *client)
{
	struct sim *sim = client->sim;
	int64_t since_ns = later(client->lane->unlinked_ns, client->resume_ns);

	if (sim->plan->sentinels) {
		int64_t led_ns = sim_check_led_ns(client);
		if (led_ns > sim->now_ns)
			return;
		since_ns = later(since_ns, led_ns + FOLLOW_NS);
	}

	since_ns =
		later(later(since_ns, client->cut_off_ns), later(sim->up_ns, sim->sick_until_ns));
	since_ns = later(since_ns, client->lane->apart_ns);
	if (sim->plan->etcd) /* it tries each member */
		since_ns = later(since_ns, sim->disturbed_ns + SIM_TIMEOUT_NS);
	if (client->lane->denied_ns)
		since_ns = later(since_ns, client->lane->denied_ns + BACKOFF_AUTH_NS);
	if (sim->ending) /* all faults were healed at once */
		since_ns = later(since_ns, sim->end_ns);
	if (client->lane->session.lazy) /* it dials only for calls */
		since_ns = later(since_ns, client->busy_ns);
	if (sim->now_ns - since_ns > client->lane->session.connect_timeout_ns + BACKOFF_MAX_NS +
	                                     sim_ways_ns(sim, 5) + SLACK_NS)
		sim_fail(sim, PROMISE_LINK, "client %d could have a link for %lld ms, and has none",
		         client->slot, (long long)((sim->now_ns - since_ns) / SIM_MS));
}

/* The client dials a node for names only, and follows them. */
static void check_node(struct sim_client *client, struct sim_lane *lane)
{
	bool is_missing = lane->session.users && !lane->link;

	if (is_missing || lane->is_missing)
		sim_disturb(&client->disturbed_ns, client->sim->now_ns);
	lane->is_missing = is_missing;
	if (!lane->session.users)
		lane->used_ns = LK__NEVER;
	else if (lane->used_ns == LK__NEVER)
		lane->used_ns = client->sim->now_ns;
	if (lane->session.users && lane->link)
		check_linked(client, lane->link);
}

/* The client dials all members, and needs a sign of life where it has tickets. */
static void check_member(struct sim_client *client, struct sim_lane *lane)
{
	sim_quorum_select(client->sim, (int)(lane - client->lanes));
	if (!lane->session.users)
		lane->used_ns = LK__NEVER;
	else if (lane->used_ns == LK__NEVER)
		lane->used_ns = client->sim->now_ns;
	if (!lane->link)
		check_unlinked(client);
	else if (lane->session.users)
		check_linked(client, lane->link);
}

void sim_check_link(struct sim_client *client)
{
	if (!lk__core_busy(&client->core))
		client->busy_ns = LK__NEVER;
	else if (client->busy_ns == LK__NEVER)
		client->busy_ns = client->sim->now_ns;
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));) {
		if (client->sim->plan->quorum)
			check_member(client, lane);
		else if (client->sim->plan->cluster)
			check_node(client, lane);
		else if (lane->link)
			check_linked(client, lane->link);
		else
			check_unlinked(client);
	}
}

/* The link went down, and the next dial is scheduled. */
void sim_check_redial(struct sim_client *client)
{
	struct sim *sim = client->sim;
	int64_t lasted_ns = sim->now_ns - client->lane->linked_ns;
	int64_t pause_ns = lk__session_due(&client->lane->session, LK__NEVER) - sim_local(client);

	if (sim->plan->cluster)
		return; /* another node may be needed */
	if (lasted_ns > SIM_S + SLACK_NS && pause_ns > 0)
		sim_fail(sim, PROMISE_LINK,
		         "client %d waits %lld ms after a link that lasted %lld ms", client->slot,
		         (long long)(pause_ns / SIM_MS), (long long)(lasted_ns / SIM_MS));
}

/* ---- Of a client, and of a ticket's ---------------------------------------------------------- */

void sim_disturb(int64_t *disturbed_ns, int64_t until_ns)
{
	if (*disturbed_ns < until_ns)
		*disturbed_ns = until_ns;
}

int64_t *sim_disturbed(struct sim_client *client, int place)
{
	return client->sim->plan->quorum ? &client->lanes[place].disturbed_ns
	                                 : &client->disturbed_ns;
}

bool sim_is_fine(const struct sim_client *client, int64_t for_ns)
{
	const struct sim *sim = client->sim;
	int64_t since_ns = sim->now_ns - for_ns;

	if (sim->plan->cluster)
		return sim_nodes_are_fine(client, since_ns);
	if (sim->plan->quorum)
		return sim_quorum_is_fine(client, since_ns);
	if (sim->plan->etcd)
		return sim_etcd_is_fine(client, for_ns);
	return client->alive && !client->closed && client->lane->link &&
	       client->lane->link->there && client->lane->link->place == sim->service.place &&
	       client->lane->link->reset_ns == LK__NEVER && client->resume_ns <= since_ns &&
	       client->disturbed_ns <= since_ns && sim->disturbed_ns <= since_ns &&
	       sim->up_ns <= since_ns;
}

static int number_of(const char *digits, int count)
{
	int number = 0;

	for (int i = 0; i < count; i++)
		number = 10 * number + digits[i] - '0';
	return number;
}

int sim_slot_of(const struct store_ticket *ticket)
{
	return number_of(strchr(ticket->text, ':') + strlen(":c"), 2);
}

int sim_life_of(const struct store_ticket *ticket)
{
	return number_of(strchr(ticket->text, ':') + strlen(":cSS_"), 5);
}

struct sim_client *sim_client_of(struct sim *sim, const struct store_ticket *ticket)
{
	struct sim_client *client = &sim->clients[sim_slot_of(ticket)];

	return client->alive && client->life == sim_life_of(ticket) ? client : NULL;
}
