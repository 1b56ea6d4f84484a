/* SPDX-License-Identifier: MIT
 * A process: its clock, its state machines, and the part of src/runtime/: it dials, sends and reads
 * when the state machines ask for it. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_NS (2000 * SIM_MS)

/* ---- Its clock ---------------------------------------------------------------------------- */

int64_t sim_local(const struct sim_client *client)
{
	int64_t now_ns = client->sim->now_ns;

	return now_ns + client->offset_ns + now_ns / 1000000 * client->drift_ppm;
}

int64_t sim_true(const struct sim_client *client, int64_t local_ns)
{
	int64_t at_ns;

	if (local_ns == LK__NEVER)
		return LK__NEVER;
	at_ns = local_ns - client->offset_ns;
	at_ns -= at_ns / (1000000 + client->drift_ppm) * client->drift_ppm;
	while (at_ns + client->offset_ns + at_ns / 1000000 * client->drift_ppm < local_ns)
		at_ns += 1000;
	return at_ns;
}

/* ---- Life --------------------------------------------------------------------------------- */

static void open_places(struct sim_client *client, struct sim_random *random)
{
	static const int64_t leases[6] = {150, 400, 1000, 3000, 6000, 10000};
	const struct sim_plan *plan = client->sim->plan;
	int64_t lease_ms = leases[sim_draw(random, 6)];

	if (plan->lease_ms)
		lease_ms = plan->lease_ms;
	if (plan->quorum && lease_ms > SIM_LONGEST_MS / 2)
		lease_ms = SIM_LONGEST_MS / 2;
	client->lease_ms = lease_ms;
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
		lk__session_mind_lease(&lane->session, lease_ms);
	for (int i = 0; i < SIM_NAMES * SIM_HANDLES; i++) {
		const struct sim_name *name = &client->sim->names[i / SIM_HANDLES];
		bool second = i % SIM_HANDLES;
		bool fixed = second && sim_percent(random, name->rate ? 100 : plan->fixed_percent);
		struct lk__wait_queue *queue =
			lk__wait_queue_new(second ? lease_ms * 2 : lease_ms, fixed);

		queue->capacity = plan->capacity;
		queue->ttl_ms = SIM_TTL_MS;
		queue = lk__wait_queue_open(
			&client->core, &client->lane->session,
			lk__name_new(name->kind, name->text, strlen(name->text)), queue);
		if (name->kind == LK_KIND_LATCH)
			lk__latch_open(queue->name, lk__latch_new(name->topic));
		if (plan->cluster)
			sim_nodes_open(client, queue->name);
		client->queues[i / SIM_HANDLES][second] = queue;
	}
}

static void start_callers(struct sim_client *client)
{
	for (int i = 0; i < SIM_THREADS; i++) {
		struct sim_caller *caller = &client->callers[i];
		memset(caller, 0, sizeof(*caller));
		caller->client = client;
		caller->index = i;
		caller->random = sim_random_of(client->sim->plan->seed, 4,
		                               (uint64_t)(client->slot * 100 + client->life) * 100 +
		                                       (uint64_t)i);
		caller->next_ns = caller->cancel_ns = LK__NEVER;
		if (i < client->sim->plan->threads)
			sim_caller_plan(caller, 500 * SIM_MS);
	}
}

struct sim_lane *sim_client_lane(struct sim_client *client, struct sim_lane *lane)
{
	lane = lane ? lane + 1 : client->lanes;
	if (lane < client->lanes + client->lane_count)
		return client->lane = lane;
	client->lane = client->lanes;
	return NULL;
}

static void init_lanes(struct sim_client *client)
{
	const struct sim *sim = client->sim;

	client->lane_count = sim->plan->cluster  ? SIM_NODES
	                     : sim->plan->quorum ? sim->plan->quorum
	                                         : 1;
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));) {
		lk__session_init(&lane->session, CONNECT_TIMEOUT_NS, SIM_TIMEOUT_NS);
		lk__session_need_replicas(&lane->session, sim->plan->replicas);
		lane->session.lazy = !sim->plan->quorum && (client->slot + client->life) % 3 == 0;
		lane->session.on_demand = sim->plan->cluster;
		lane->probe_ns = lane->dial_ns = lane->flush_ns = LK__NEVER;
		lane->unlinked_ns = sim->now_ns;
	}
}

void sim_client_start(struct sim *sim, int slot)
{
	struct sim_client *client = &sim->clients[slot];
	int life = client->life + 1;
	uint64_t index = (uint64_t)(slot * 1000 + life);
	struct sim_random random = sim_random_of(sim->plan->seed, 2, index);
	char id[LK__CLIENT_ID_SIZE];

	memset(client, 0, sizeof(*client));
	client->sim = sim;
	client->slot = slot;
	client->life = life;
	client->alive = client->dirty = true;
	client->random = sim_random_of(sim->plan->seed, 3, index);
	client->tie = sim_random_of(sim->plan->seed, 5, index);
	client->offset_ns = sim_within(&random, 100000 * SIM_MS);
	client->drift_ppm = (int64_t)sim_draw(&random, 8001) - 4000;
	init_lanes(client);
	client->busy_ns = client->start_ns = client->close_ns = LK__NEVER;
	client->disturbed_ns = sim->now_ns;
	snprintf(id, sizeof(id), "c%02u_%05u_aaaaaaaaaaaa", (unsigned)slot % 100u,
	         (unsigned)life % 100000u);
	lk__space_init(&client->space, "lk", 0, id);
	if (!(sim->plan->graceless >> slot & 1))
		client->space.grace_ms = sim->plan->grace_ms;
	if (sim->plan->sentinels)
		sim_watch_start(client);
	if (!lk__core_init(&client->core, sim_draw(&random, UINT64_MAX)))
		abort();
	sim_quorum_start(client);
	sim_etcd_start(client);
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
		if (!lk__core_add_session(&client->core, &lane->session))
			abort();
	if (sim->plan->cluster)
		sim_nodes_start(client);
	client->core.command_timeout_ns = SIM_TIMEOUT_NS;
	open_places(client, &random);
	start_callers(client);
	sim_trace(sim, client, "starts");
}

/* Drop the state machine and all state of its threads. */
void sim_client_free(struct sim_client *client)
{
	if (!client->alive)
		return;
	client->alive = false;
	lk__core_fini(&client->core);
	sim_etcd_free(client);
	for (int i = 0; i < SIM_THREADS; i++)
		sim_caller_free(&client->callers[i]);
}

/* The server notices it soon, or when it closes a silent connection. */
static void half_open(struct sim_client *client, struct sim_link *link)
{
	bool silent = client->cut_off_ns > client->sim->now_ns ||
	              link->stalled_ns[SIM_MESSAGES_OUT] > client->sim->now_ns ||
	              sim_percent(&client->random, 15);

	link->here = false;
	link->there_until_ns = client->sim->now_ns + sim_delay(client);
	if (silent)
		link->there_until_ns += sim_within(&client->random, 20 * SIM_S);
	if (link->etcd)
		sim_disturb(&link->there_until_ns, sim_etcd_link_until_ns(link));
}

void sim_client_drop_link(struct sim_client *client, struct sim_link **at)
{
	struct sim_link *link = *at;

	*at = NULL;
	if (!link)
		return;
	sim_link_cut(link);
	half_open(client, link);
	if (!link->there)
		sim_link_free(client->sim, link);
}

static void drop_links(struct sim_client *client)
{
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));) {
		sim_client_drop_link(client, &lane->link);
		sim_client_drop_link(client, &lane->dialled);
		free(lane->topology);
		lane->topology = NULL;
	}
}

void sim_client_crash(struct sim_client *client)
{
	sim_trace(client->sim, client, "is killed");
	drop_links(client);
	sim_client_free(client);
}

void sim_client_unlink(struct sim_client *client, lk_err err)
{
	struct lk__why why = {.err = err, .text = "the link is down"};
	struct sim *sim = client->sim;

	if (!client->lane->link)
		return;
	sim_trace(sim, client, "loses its link");
	for (int i = 0; i < SIM_THREADS; i++)
		if (client->callers[i].doing == SIM_ASKING &&
		    client->callers[i].asks == client->lane)
			sim_latch_answered(&client->callers[i], false);
	sim_client_drop_link(client, &client->lane->link);
	sim_etcd_down(client);
	sim_disturb(sim_disturbed(client, sim_client_place(client)), sim->now_ns);
	lk__core_link_down(&client->core, &client->lane->session, sim_local(client), &why,
	                   sim_draw(&client->random, UINT64_MAX));
	client->lane->unlinked_ns = sim->now_ns;
	sim_check_redial(client);
}

static int64_t oldest_ns(const struct sim_client *client)
{
	const struct sim_link *link = client->lane->link;

	if (link && link->etcd)
		return sim_etcd_oldest_ns(client);
	return link && link->calls ? link->calls->sent_ns : LK__NEVER;
}

/* Execute the session's requests. */
static void do_duties_of(struct sim_client *client)
{
	enum lk__duty duty;

	while ((duty = lk__session_next(&client->lane->session, sim_local(client),
	                                oldest_ns(client)))) {
		if (duty == LK__DUTY_DIAL && client->sim->plan->sentinels)
			sim_watch_dial(client);
		else if (duty == LK__DUTY_DIAL)
			sim_client_connect(client);
		else if (duty == LK__DUTY_REFUSE)
			lk__core_link_refused(&client->core, &client->lane->session,
			                      sim_local(client));
		else if (duty == LK__DUTY_PING)
			sim_network_ping(client);
		else
			sim_client_unlink(client, LK_EUNKNOWN);
	}
}

static void do_duties(struct sim_client *client)
{
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
		do_duties_of(client);
}

void sim_client_close(struct sim_client *client)
{
	client->closed = true;
	client->close_ns = LK__NEVER;
	sim_trace(client->sim, client, "closes");
	for (int i = 0; i < SIM_THREADS; i++) {
		struct sim_caller *caller = &client->callers[i];
		if (sim_caller_is_inside(caller) && caller->waits)
			sim_caller_note(caller, LK_ECLOSED);
		caller->cancel_ns = LK__NEVER;
		if (caller->doing == SIM_HOLDING)
			caller->doing = SIM_IDLE;
		if (caller->doing == SIM_IDLE)
			caller->next_ns = LK__NEVER;
	}
	lk__core_close(&client->core, sim_local(client));
}

void sim_client_tick(struct sim_client *client)
{
	int64_t now_ns = sim_local(client);

	for (int i = 0; i < SIM_THREADS; i++) {
		struct sim_caller *caller = &client->callers[i];
		int64_t timeout_ns = caller->waits ? 0 : SIM_TIMEOUT_NS;
		if (sim_caller_is_inside(caller) && caller->until_ns <= now_ns - timeout_ns)
			sim_caller_note(caller, LK_ETIMEDOUT);
	}
	lk__core_tick(&client->core, now_ns);
}

/* ---- What comes next ---------------------------------------------------------------------- */

static void consider(struct sim_client *client, enum sim_event event, int64_t at_ns, bool here,
                     struct sim_caller *caller)
{
	struct sim_next *next = &client->next;
	uint64_t tie;

	if (at_ns == LK__NEVER)
		return;
	/* Overdue events have no order: a stopped process finds all of them at once. */
	if (here && at_ns < client->resume_ns)
		at_ns = client->resume_ns;
	if (at_ns < client->sim->now_ns)
		at_ns = client->sim->now_ns;
	if (next->event != SIM_NOTHING && at_ns > next->at_ns)
		return;
	tie = sim_draw(&client->tie, 1u << 30);
	if (next->event != SIM_NOTHING && at_ns == next->at_ns && tie > next->tie)
		return;
	*next = (struct sim_next){event, at_ns, tie, caller, client->lane};
}

static void consider_link(struct sim_client *client, struct sim_link *link)
{
	if (link->there) {
		consider(client, SIM_EXECUTE, sim_link_first(link, SIM_COMMANDS_OUT), false, NULL);
		consider(client, SIM_ORDER, sim_link_first(link, SIM_MESSAGES_OUT), false, NULL);
	}
	consider(client, SIM_REPLY, sim_link_first(link, SIM_COMMANDS_IN), true, NULL);
	consider(client, SIM_HEAR, sim_link_first(link, SIM_MESSAGES_IN), true, NULL);
	consider(client, SIM_HUNG_UP, link->reset_ns, true, NULL);
}

static void consider_caller(struct sim_client *client, struct sim_caller *caller)
{
	consider(client, SIM_CANCEL, caller->cancel_ns, true, caller);
	if (caller->doing == SIM_IDLE || caller->doing == SIM_HOLDING)
		consider(client, SIM_CALL, caller->next_ns, true, caller);
	else if (sim_caller_is_inside(caller))
		consider(client, SIM_CALL, sim_true(client, caller->waiter.timer.due_ns), true,
		         caller);
}

void sim_client_find_next(struct sim_client *client)
{
	int64_t duty_ns;

	client->dirty = false;
	client->next = (struct sim_next){.event = SIM_NOTHING, .at_ns = LK__NEVER};
	if (!client->alive) {
		consider(client, SIM_START, client->start_ns, false, NULL);
		return;
	}
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));) {
		if (lane->link)
			consider_link(client, lane->link);
		consider(client, SIM_PROBE, lane->probe_ns, false, NULL);
		consider(client, SIM_DIAL, lane->dial_ns, true, NULL);
		duty_ns = lk__session_due(&lane->session, oldest_ns(client));
		consider(client, SIM_DUTY, sim_true(client, duty_ns), true, NULL);
	}
	consider(client, SIM_TICK, sim_true(client, lk__core_due(&client->core)), true, NULL);
	consider(client, SIM_TICK, sim_true(client, sim_etcd_due(client)), true, NULL);
	for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
		consider(client, SIM_FLUSH, lane->flush_ns, true, NULL);
	consider(client, SIM_CLOSE, client->close_ns, true, NULL);
	if (client->sim->plan->sentinels) {
		consider(client, SIM_WATCH, sim_watch_due(client), true, NULL);
		consider(client, SIM_ASKED, sim_watch_asked_ns(client), false, NULL);
	}
	for (int i = 0; i < client->sim->plan->threads; i++)
		consider_caller(client, &client->callers[i]);
}

/* ---- What happens ------------------------------------------------------------------------- */

/* Send, perhaps a little later. */
static void flush(struct sim_client *client)
{
	if ((!client->lane->session.send_queue && !client->lane->session.channels.queue) ||
	    client->lane->flush_ns != LK__NEVER)
		return;
	if (sim_percent(&client->random, 5) && client->sim->plan->delay_ns)
		client->lane->flush_ns =
			client->sim->now_ns + sim_within(&client->random, 5 * SIM_MS);
	else
		sim_network_flush(client);
}

/* Take the pending work of the state machine for the runtime. */
static void take(struct sim_client *client)
{
	struct lk__core *core = &client->core;
	struct lk__op *waiter;
	struct lk__hold *hold;

	while ((waiter = lk__core_next_done(core)))
		sim_caller_done((struct sim_caller *)waiter);
	while ((hold = lk__core_next_lost(core))) {
		client->sim->tally.losses++;
		client->counted.lost[hold->lost]++;
		sim_check_lost(client, hold);
		sim_trace(client->sim, client, "learns that fence %llu of %s is lost: %s",
		          (unsigned long long)hold->fence, hold->name->bytes,
		          lk_lost_reason_name(hold->lost));
		((struct sim_caller *)hold->handle)->told = hold->fence;
		lk__core_loss_reported(hold);
	}
}

/* ... and send. */
void sim_client_settle(struct sim_client *client)
{
	struct lk__core *core = &client->core;

	client->dirty = true;
	if (!client->alive)
		return;
	sim_etcd_turn(client);
	take(client);
	sim_watch_vouch(client);
	sim_check_counters(client);
	if (client->sim->plan->forgets)
		memset(&core->ghosts, 0, sizeof(core->ghosts));
	if (client->closed && !lk__core_busy(core)) {
		sim_trace(client->sim, client, "has ended");
		sim_etcd_end(client);
		drop_links(client);
		client->start_ns = client->sim->now_ns + SIM_S;
		sim_client_free(client);
		return;
	}
	do
		for (struct sim_lane *lane = NULL; (lane = sim_client_lane(client, lane));)
			flush(client);
	while (sim_etcd_turn(client) && (take(client), true));
}

void sim_client_happen(struct sim_client *client, const struct sim_next *next)
{
	client->lane = next->lane ? next->lane : client->lanes;
	sim_check_ran(client, next->event);
	switch (next->event) {
	case SIM_EXECUTE:
		sim_network_execute(client);
		client->dirty = true;
		return;
	case SIM_PROBE:
		sim_dial_probe(client);
		client->dirty = true;
		return;
	case SIM_ORDER:
		sim_network_order(client);
		client->dirty = true;
		return;
	case SIM_ASKED:
		sim_watch_asked(client);
		client->dirty = true;
		return;
	case SIM_WATCH:
		sim_watch_happen(client);
		break;
	case SIM_REPLY:
		sim_network_reply(client);
		break;
	case SIM_HEAR:
		sim_network_hear(client);
		break;
	case SIM_TICK:
		sim_client_tick(client);
		break;
	case SIM_FLUSH:
		sim_network_flush(client);
		break;
	case SIM_DIAL:
		sim_dial_end(client);
		break;
	case SIM_DUTY:
		do_duties(client);
		break;
	case SIM_HUNG_UP:
		sim_client_unlink(client, LK_ECONN);
		break;
	case SIM_CALL:
		sim_caller_step(next->caller);
		break;
	case SIM_CANCEL:
		sim_caller_cancel(next->caller);
		break;
	case SIM_CLOSE:
		sim_client_close(client);
		break;
	default:
		sim_client_start(client->sim, client->slot);
	}
	sim_client_settle(client);
}
