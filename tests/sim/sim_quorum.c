/* SPDX-License-Identifier: MIT
 * The members of a quorum.  Any of them may be down, stopped, slow, cut off from clients, or begin
 * again with an older memory or none, at any time; mostly no more than a minority at once. */
#include "find_epoch.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define LONG_AGO INT64_C(-1000000000000)
#define SKEW_US (SIM_LONGEST_MS * 750) /* then a loss of memory may take fences back */

/* ---- Life --------------------------------------------------------------------------------- */

/* As `latchkey quorum init` does. */
static void join(struct sim *sim, int place)
{
	static const struct lk__epoch none;
	struct lk__buf bytes = {0}, reply = {0};
	struct lk__space space;
	char set[LK__SET_TEXT];
	const struct lk__request request = {
		.kind = LK__EPOCH, .quorum = true, .epoch = &none, .set = set, .set_is_new = true};

	snprintf(set, sizeof(set), "theset_AAAA %d/%d %d", place + 1, sim->quorum.count,
	         SIM_LONGEST_MS);
	lk__space_init(&space, "lk", 0, "operator_AAAAAAAAAAAAA");
	space.quorum = true;
	if (!lk__codec_request(&bytes, &space, &request))
		abort();
	lua_store_run(sim->quorum.members[place].store, bytes.data, bytes.len, &reply);
	lk__buf_fini(&bytes);
	lk__buf_fini(&reply);
	sim_quorum_mark(sim, place);
}

static void init_member(struct sim *sim, int place, int64_t offset_us)
{
	struct sim_member *member = &sim->quorum.members[place];

	member->store = sim_server_store(sim);
	member->names = calloc(SIM_LOCKS, sizeof(*member->names));
	if (!member->names)
		abort();
	for (int i = 0; i < SIM_LOCKS; i++)
		sim_name_init(sim, &member->names[i], i);
	member->offset_us = member->least_us = member->most_us = offset_us;
	member->jumped_ns = LONG_AGO;
	*lua_store_process(member->store) = (struct lua_store_process){
		.run = 40 + (uint64_t)place, .replid = 40 + (uint64_t)place};
}

void sim_quorum_init(struct sim *sim)
{
	struct sim_random random = sim_random_of(sim->plan->seed, 15, 0);
	int64_t spread_us = sim_percent(&random, 75) ? 20000 : 1000000;

	sim->quorum.count = sim->plan->quorum;
	sim->quorum.majority = sim->quorum.count / 2 + 1;
	sim->quorum.upset_ns = LONG_AGO;
	lua_store_free(sim->store);
	for (int i = 0; i < sim->quorum.count; i++)
		init_member(sim, i,
		            (int64_t)sim_draw(&random, (uint64_t)spread_us * 2 + 1) - spread_us);
	sim_quorum_set_time(sim);
	for (int i = 0; i < sim->quorum.count; i++) {
		sim_quorum_load(sim, i);
		join(sim, i);
	}
	sim_quorum_select(sim, 0);
}

void sim_quorum_fini(struct sim *sim)
{
	for (int i = 0; i < sim->quorum.count; i++) {
		lua_store_free(sim->quorum.members[i].store);
		free(sim->quorum.members[i].names);
	}
}

static int64_t clock_us(const struct sim *sim, const struct sim_member *member)
{
	return SIM_EPOCH_US + member->offset_us + sim->now_ns / 1000;
}

void sim_quorum_set_time(struct sim *sim)
{
	for (int i = 0; i < sim->quorum.count; i++)
		lua_store_set_time(sim->quorum.members[i].store,
		                   clock_us(sim, &sim->quorum.members[i]));
}

void sim_quorum_select(struct sim *sim, int place)
{
	const struct sim_member *member = &sim->quorum.members[place];

	sim->quorum.runs_at = place;
	sim->store = member->store;
	sim->store_offset_us = member->offset_us;
	sim->since_us = member->since_us;
	sim->marked_ns = member->marked_ns;
	sim->up_ns = member->up_ns > member->awake_ns ? member->up_ns : member->awake_ns;
	if (sim->up_ns < member->slow_ns)
		sim->up_ns = member->slow_ns;
	sim->sick = member->sick;
	sim->sick_to_some = member->sick_to_some;
	sim->sick_until_ns = member->sick_until_ns;
}

void sim_quorum_load(struct sim *sim, int place)
{
	struct sim_member *member = &sim->quorum.members[place];

	if (!member->has_scripts)
		lua_store_load_scripts(member->store);
	member->has_scripts = true;
}

/* 1 <id> <since> [...] */
void sim_quorum_mark(struct sim *sim, int place)
{
	struct sim_member *member = &sim->quorum.members[place];
	const char *marker = store_marker(member->store, "lk:epoch");
	long long since_us = INT64_MAX;

	if (store_mark(marker) == member->old_mark || sscanf(marker, "1 %*s %lld", &since_us) != 1)
		since_us = INT64_MAX;
	if (since_us != member->since_us)
		member->marked_ns = sim->now_ns;
	member->since_us = since_us;
	if (place == sim->quorum.runs_at)
		sim_quorum_select(sim, place);
}

struct sim_name *sim_quorum_name(const struct sim *sim, int place, int name)
{
	return &sim->quorum.members[place].names[name];
}

/* ---- How they are ------------------------------------------------------------------------- */

bool sim_quorum_is_up(const struct sim *sim, int place)
{
	return sim->now_ns >= sim->quorum.members[place].up_ns;
}

bool sim_quorum_votes(const struct sim *sim, int place)
{
	const struct sim_member *member = &sim->quorum.members[place];

	return sim_quorum_is_up(sim, place) && sim->now_ns >= member->awake_ns &&
	       sim->now_ns >= member->slow_ns && sim->now_ns >= member->sick_until_ns &&
	       member->since_us <= clock_us(sim, member) - SIM_LONGEST_MS * 1000;
}

int sim_quorum_voters(const struct sim *sim)
{
	int count = 0;

	for (int i = 0; i < sim->quorum.count; i++)
		count += sim_quorum_votes(sim, i);
	return count;
}

int64_t sim_quorum_lag_ns(const struct sim *sim, int place)
{
	const struct sim_member *member = &sim->quorum.members[place];

	return sim->plan->quorum && sim->now_ns < member->slow_ns ? member->lag_ns : 0;
}

bool sim_quorum_put_off(struct sim *sim, struct sim_call *call)
{
	const struct sim_member *member = &sim->quorum.members[call->place];

	if (!sim->plan->quorum || call->at_ns >= member->awake_ns)
		return false;
	call->at_ns = member->awake_ns;
	return true;
}

/* ---- Ends of a memory --------------------------------------------------------------------- */

/* Its legs belong to an earlier memory now. */
static void forget(struct sim *sim, int place)
{
	struct sim_member *member = &sim->quorum.members[place];

	member->old_mark = store_mark(store_marker(member->store, "lk:epoch"));
	sim_quorum_mark(sim, place);
	sim_quorum_select(sim, place);
	sim->quorum.upset_ns = sim->now_ns;
	for (int i = 0; i < SIM_LOCKS; i++) {
		struct sim_name *name = sim_quorum_name(sim, place, i);
		name->epoch++;
		name->forced_ns = sim->now_ns;
		if (sim->quorum.was_skewed) {
			name->fence_max = 0;
			sim->names[i].regime++;
		}
		sim_look(sim, name, &name->view);
		sim_check_ghosts(sim, name);
	}
}

static void restart(struct sim *sim, int place, int64_t away_ns)
{
	struct sim_member *member = &sim->quorum.members[place];
	struct lua_store_process *process = lua_store_process(member->store);

	member->up_ns = sim->now_ns + away_ns;
	member->awake_ns = member->slow_ns = member->sick_until_ns = 0;
	member->has_scripts = false;
	lua_store_text(member->store, "SCRIPT", "FLUSH", NULL);
	lua_store_restart(member->store);
	process->run = ++sim->runs;
	process->replid = ++sim->replids;
	sim_disturb(&member->disturbed_ns, member->up_ns);
	sim_server_hang_up(sim, place);
}

static void lose_memory(struct sim *sim, const struct sim_fault *fault, int place)
{
	struct sim_member *member = &sim->quorum.members[place];
	struct lua_store_process process;

	sim_quorum_select(sim, place);
	if (fault->kind == SIM_OLD) {
		process = *lua_store_process(member->store);
		sim_server_reload(sim, (int)(fault - sim->plan->faults));
		*lua_store_process(member->store) = process;
	} else if (fault->kind != SIM_RESTART) {
		lua_store_text(member->store, "FLUSHALL", NULL);
	}
	if (fault->kind != SIM_FLUSH_ALL)
		restart(sim, place, fault->length_ns / (fault->kind == SIM_OLD ? 10 : 1));
	if (fault->kind == SIM_EMPTY)
		lua_store_process(member->store)->flushed = false;
	forget(sim, place);
}

/* ---- Other faults ------------------------------------------------------------------------- */

/* Nothing passes until it continues. */
static void halt(struct sim *sim, int place, int64_t until_ns)
{
	struct sim_member *member = &sim->quorum.members[place];

	sim_disturb(&member->awake_ns, until_ns);
	sim_disturb(&member->disturbed_ns, until_ns);
	for (struct sim_link *link = sim->links; link; link = link->next) {
		if (link->place != place)
			continue;
		for (int way = 0; way < SIM_WAYS; way++)
			sim_disturb(&link->stalled_ns[way], until_ns);
		link->client->dirty = true;
	}
}

static void slow_down(struct sim *sim, int place, int64_t until_ns, struct sim_random *random)
{
	struct sim_member *member = &sim->quorum.members[place];

	sim_disturb(&member->slow_ns, until_ns);
	member->lag_ns = 10 * SIM_MS +
	                 sim_within(random, sim_percent(random, 50) ? 100 * SIM_MS : 1500 * SIM_MS);
	sim_disturb(&member->disturbed_ns, member->slow_ns + 2 * member->lag_ns);
}

/* Between the member and some clients, or all: each way, or one alone. */
static void part(struct sim *sim, int place, int64_t until_ns, struct sim_random *random)
{
	unsigned share = sim_percent(random, 50) ? 100 : 20 + (unsigned)sim_draw(random, 60);
	unsigned ways = sim_percent(random, 50)   ? (1u << SIM_WAYS) - 1
	                : sim_percent(random, 50) ? 1u << SIM_COMMANDS_OUT | 1u << SIM_MESSAGES_OUT
	                                          : 1u << SIM_COMMANDS_IN | 1u << SIM_MESSAGES_IN;

	for (int i = 0; i < sim->plan->clients; i++) {
		struct sim_client *client = &sim->clients[i];
		struct sim_lane *lane = &client->lanes[place];
		bool is_hit = sim_percent(random, share);
		if (!client->alive || !is_hit)
			continue;
		sim_disturb(&lane->apart_ns, until_ns);
		sim_disturb(&lane->disturbed_ns, until_ns);
		for (int way = 0; lane->link && way < SIM_WAYS; way++)
			if (ways >> way & 1)
				sim_disturb(&lane->link->stalled_ns[way], until_ns);
		client->dirty = true;
	}
}

static void refuse(struct sim *sim, const struct sim_fault *fault, int place,
                   struct sim_random *random)
{
	struct sim_member *member = &sim->quorum.members[place];

	member->sick = sim_fault_refusal(random, fault->length_ns, &member->sick_to_some);
	member->sick_until_ns = sim->now_ns + fault->length_ns;
	sim_disturb(&member->refused_ns, member->sick_until_ns);
}

static void step_clock(struct sim *sim, int place, int64_t by_us)
{
	struct sim_member *member = &sim->quorum.members[place];

	member->offset_us += by_us;
	if (member->offset_us < member->least_us)
		member->least_us = member->offset_us;
	if (member->offset_us > member->most_us)
		member->most_us = member->offset_us;
	for (int i = 0; i < sim->quorum.count; i++)
		if (llabs(member->offset_us - sim->quorum.members[i].offset_us) > SKEW_US)
			sim->quorum.was_skewed = true;
	sim->clock_was_back |= by_us < 0;
	/* A counter that was lost a moment ago may now have the wrong floor. */
	sim->quorum.was_skewed |= by_us < 0 && member->since_us > 0;
	if (by_us > 0) {
		member->jumped_ns = sim->quorum.upset_ns = sim->now_ns;
	}
	sim_disturb(&member->disturbed_ns, sim->now_ns);
	sim_quorum_select(sim, place);
	sim_set_time(sim, sim->now_ns);
}

/* ---- Operators ---------------------------------------------------------------------------- */

static void break_at(struct sim *sim, int place, int index, const char *ticket)
{
	const struct lk__details details = {.subject = ticket};
	struct sim_member *member = &sim->quorum.members[place];
	struct sim_name *name = sim_quorum_name(sim, place, index);
	struct lk__buf bytes = {0}, reply = {0};
	struct lk__epoch epoch = {0};
	struct lk__space space;
	const struct lk__request request = {.kind = LK__BREAK,
	                                    .noun = LK_KIND_LOCK,
	                                    .quorum = true,
	                                    .name = name->text,
	                                    .name_len = (uint16_t)strlen(name->text),
	                                    .epoch = &epoch,
	                                    .details = &details};

	sim_quorum_select(sim, place);
	sim_quorum_load(sim, place);
	lk__space_init(&space, "lk", 0, "operator_AAAAAAAAAAAAA");
	space.quorum = true;
	find_epoch(member->store, &space, &epoch);
	sim_quorum_mark(sim, place);
	sim_check_before(sim, index);
	for (int i = 0; i < name->view.hold_count; i++) {
		const struct store_ticket *held = &name->view.holds[i];
		struct sim_grant *grant = sim_grant_of(name, held->fence, held->nonce);
		if (grant && store_is_same(held->text, ticket))
			grant->broken = true;
	}
	if (!lk__codec_request(&bytes, &space, &request))
		abort();
	lua_store_run(member->store, bytes.data, bytes.len, &reply);
	sim_check_after(sim, index, NULL);
	lk__buf_fini(&bytes);
	lk__buf_fini(&reply);
}

/* On all members that are up: the ticket that is the holder of one. */
static void break_one(struct sim *sim, int place, struct sim_random *random)
{
	int index = (int)sim_draw(random, SIM_LOCKS);
	const struct sim_name *name = sim_quorum_name(sim, place, index);
	char *ticket = sim->quorum.broken;

	if (!name->view.hold_count)
		return;
	memcpy(ticket, name->view.holds[0].text, LK__TICKET_MAX);
	sim->tally.faults[SIM_BREAK]++;
	sim->quorum.upset_ns = sim->now_ns;
	for (int i = 0; i < sim->quorum.count; i++)
		if (sim_quorum_is_up(sim, i) && sim->now_ns >= sim->quorum.members[i].awake_ns)
			break_at(sim, i, index, ticket);
	ticket[0] = '\0';
}

/* ---- Faults ------------------------------------------------------------------------------- */

int sim_quorum_place(const struct sim *sim, const struct sim_fault *fault)
{
	return (int)(fault->chance / 7 % (uint64_t)sim->quorum.count);
}

/* Mostly a majority stays. */
static bool is_enough(struct sim *sim, int place, struct sim_random *random)
{
	int others = sim_quorum_voters(sim) - sim_quorum_votes(sim, place);

	return others >= sim->quorum.majority || sim_percent(random, 10);
}

static void hurt_member(struct sim *sim, const struct sim_fault *fault, int place,
                        struct sim_random *random)
{
	int64_t until_ns = sim->now_ns + fault->length_ns;

	switch (fault->kind) {
	case SIM_HALT:
		halt(sim, place, until_ns);
		break;
	case SIM_SLOW:
		slow_down(sim, place, until_ns, random);
		break;
	case SIM_APART:
		part(sim, place, until_ns, random);
		break;
	case SIM_REFUSE:
		refuse(sim, fault, place, random);
		break;
	default:
		lose_memory(sim, fault, place);
	}
}

bool sim_quorum_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int place = sim_quorum_place(sim, fault);
	struct sim_member *member = &sim->quorum.members[place];

	switch (fault->kind) {
	case SIM_CUT:
	case SIM_STALL:
	case SIM_CUT_OFF:
	case SIM_CRASH:
	case SIM_STOP:
	case SIM_LOSE:
	case SIM_LEAVE:
		return false;
	case SIM_BREAK:
		break_one(sim, place, random);
		return true;
	case SIM_FORGET:
		member->has_scripts = false;
		lua_store_text(member->store, "SCRIPT", "FLUSH", NULL);
		break;
	case SIM_CLOCK_ON:
		step_clock(sim, place, fault->length_ns / 1000);
		break;
	case SIM_CLOCK_BACK:
		step_clock(sim, place, -fault->length_ns / 1000);
		break;
	default:
		if (!is_enough(sim, place, random) || !sim_quorum_is_up(sim, place))
			return true;
		hurt_member(sim, fault, place, random);
	}
	sim_trace(sim, NULL, "... at member %d", place);
	sim->tally.faults[fault->kind]++;
	return true;
}

void sim_quorum_heal(struct sim *sim)
{
	for (int i = 0; i < sim->quorum.count; i++) {
		struct sim_member *member = &sim->quorum.members[i];
		member->up_ns = member->awake_ns = member->slow_ns = member->sick_until_ns = 0;
	}
	for (int i = 0; i < sim->plan->clients; i++)
		for (int j = 0; j < sim->quorum.count; j++)
			sim->clients[i].lanes[j].apart_ns = 0;
	for (struct sim_call *call = sim->late; call; call = call->next)
		if (call->at_ns > sim->now_ns + 3 * SIM_S)
			call->at_ns = sim->now_ns;
	sim_quorum_select(sim, 0);
}

/* ---- A client's way to them --------------------------------------------------------------- */

int sim_client_place(const struct sim_client *client)
{
	return (int)(client->lane - client->lanes);
}

void sim_quorum_start(struct sim_client *client)
{
	client->space.quorum = client->sim->plan->quorum;
	if (client->space.quorum &&
	    !lk__core_use_quorum(&client->core, (unsigned)client->sim->quorum.count))
		abort();
}

void sim_quorum_probe(struct sim_client *client)
{
	struct sim *sim = client->sim;
	struct sim_lane *lane = client->lane;
	int place = sim_client_place(client);
	struct sim_member *member = &sim->quorum.members[place];
	int64_t lag_ns;

	if (!sim_quorum_is_up(sim, place))
		return;
	lag_ns = 2 * sim_quorum_lag_ns(sim, place);
	if (member->awake_ns > sim->now_ns || lane->apart_ns > sim->now_ns ||
	    lag_ns > lane->session.connect_timeout_ns) {
		lane->dial_ns = sim->now_ns + lane->session.connect_timeout_ns;
		return;
	}
	sim_quorum_select(sim, place);
	if (sim_server_refuses(sim, client->slot, LK__EPOCH)) {
		if (sim->sick[1] == 'N')
			lane->dial_err = LK_EAUTH;
		else if (sim->sick[1] == 'O' || sim->sick[1] == 'M')
			lane->dial_err = LK_ESERVER;
		return;
	}
	sim_quorum_load(sim, place);
	lane->dialled = sim_link_new(client, place);
	lane->found = lane->session.epoch;
	find_epoch(member->store, &client->space, &lane->found);
	sim_quorum_mark(sim, place);
	lane->dial_ns += lag_ns;
	lane->dial_err = LK_OK;
}

/* Its link to that member works since then, though the member may refuse. */
static bool is_reached(const struct sim_client *client, int place, int64_t since_ns)
{
	const struct sim_member *member = &client->sim->quorum.members[place];
	const struct sim_lane *lane = &client->lanes[place];

	return client->alive && !client->closed && client->resume_ns <= since_ns &&
	       client->disturbed_ns <= since_ns && lane->link && lane->link->there &&
	       lane->link->reset_ns == LK__NEVER && lane->disturbed_ns <= since_ns &&
	       member->disturbed_ns <= since_ns;
}

static bool is_refused(const struct sim_client *client, int place, int64_t since_ns)
{
	return client->sim->quorum.members[place].refused_ns > since_ns ||
	       client->lanes[place].refused_ns > since_ns;
}

bool sim_quorum_is_linked(const struct sim_client *client, int place, int64_t since_ns)
{
	return is_reached(client, place, since_ns) && !is_refused(client, place, since_ns);
}

bool sim_quorum_accepts(const struct sim_client *client, int place, int64_t since_ns,
                        int64_t refused_ns)
{
	return is_reached(client, place, since_ns) && !is_refused(client, place, refused_ns) &&
	       (client->lanes[place].linked_ns <= since_ns || !is_refused(client, place, since_ns));
}

static bool has_voted(const struct sim *sim, int place, int64_t since_ns)
{
	const struct sim_member *member = &sim->quorum.members[place];
	int64_t voted_us = (sim->now_ns - since_ns) / 1000;

	return sim_quorum_votes(sim, place) && member->marked_ns <= since_ns &&
	       member->since_us <= clock_us(sim, member) - SIM_LONGEST_MS * 1000 - voted_us;
}

bool sim_quorum_is_fine(const struct sim_client *client, int64_t since_ns)
{
	int count = 0;

	for (int i = 0; i < client->sim->quorum.count; i++)
		count += sim_quorum_is_linked(client, i, since_ns) &&
		         has_voted(client->sim, i, since_ns);
	return count >= client->sim->quorum.majority;
}

const struct lk__ticket *sim_quorum_leg(const struct sim_client *client,
                                        const struct store_ticket *ticket)
{
	int place = client->sim->quorum.runs_at;

	return lk__ticket_find_at(&client->core, ticket->nonce, &client->lanes[place].session);
}
