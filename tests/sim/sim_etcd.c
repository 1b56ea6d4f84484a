/* SPDX-License-Identifier: MIT
 * The members of a cluster of etcd.  Any of them may be down, stopped, frozen, late, or cut off
 * from the others or from clients, and another one may be elected, at any time; mostly a majority
 * stays. */
#include "sim.h"

#include <string.h>

#define COMPACT_NS (10 * SIM_S)
/* After a fault: until there is a leader again, streams have ended, and clients have moved. */
#define AFTERMATH_NS (9 * SIM_S)
#define REFUSALS_MAX 6

/* ---- Life --------------------------------------------------------------------------------- */

void sim_etcd_init(struct sim *sim)
{
	struct sim_etcd *etcd = &sim->etcd;
	const struct em_setup setup = {.members = sim->plan->etcd,
	                               .is_3_4 = sim->plan->etcd_is_old};

	etcd->count = sim->plan->etcd;
	etcd->model = em_new(&setup, sim->plan->seed, sim->now_ns);
	etcd->compact_ns = sim->now_ns + COMPACT_NS;
	etcd->seen_revision = -1;
	sim_etcd_look(sim);
}

void sim_etcd_fini(struct sim *sim)
{
	em_free(sim->etcd.model);
	sim->etcd.model = NULL;
}

void sim_etcd_set_time(struct sim *sim)
{
	if (!sim->etcd.model)
		return;
	em_tick(sim->etcd.model, sim->now_ns);
	sim_etcd_pump(sim);
	sim_etcd_look(sim);
}

/* ---- How they are ------------------------------------------------------------------------- */

bool sim_etcd_is_well(const struct sim *sim, int place)
{
	const struct sim_etcd_member *member = &sim->etcd.members[place];

	return !member->up_ns && !member->awake_ns && !member->thawed_ns && !member->joined_ns;
}

bool sim_etcd_reaches(const struct sim_client *client, int place)
{
	return sim_etcd_of(client)->apart_ns[place] <= client->sim->now_ns;
}

static int count_well(const struct sim *sim)
{
	int count = 0;

	for (int i = 0; i < sim->etcd.count; i++)
		count += sim_etcd_is_well(sim, i);
	return count;
}

/* ---- Time --------------------------------------------------------------------------------- */

static void sooner(int64_t *due_ns, int64_t at_ns)
{
	if (at_ns && at_ns < *due_ns)
		*due_ns = at_ns;
}

static bool is_past(const struct sim_link *link)
{
	return link->etcd && !link->here && link->there;
}

int64_t sim_etcd_world_due(const struct sim *sim)
{
	int64_t due_ns = em_due_ns(sim->etcd.model);

	sooner(&due_ns, sim->etcd.compact_ns);
	for (int i = 0; i < sim->etcd.count; i++) {
		const struct sim_etcd_member *member = &sim->etcd.members[i];
		sooner(&due_ns, member->up_ns);
		sooner(&due_ns, member->awake_ns);
		sooner(&due_ns, member->thawed_ns);
		sooner(&due_ns, member->joined_ns);
		sooner(&due_ns, member->prompt_ns);
	}
	for (const struct sim_link *link = sim->links; link; link = link->next)
		if (is_past(link))
			sooner(&due_ns, sim_etcd_link_first(link, true));
	return due_ns;
}

static bool is_over(const struct sim *sim, int64_t *until_ns)
{
	bool is = *until_ns && *until_ns <= sim->now_ns;

	if (is)
		*until_ns = 0;
	return is;
}

static void recover(struct sim *sim, int place)
{
	struct sim_etcd_member *member = &sim->etcd.members[place];
	struct etcd_model *model = sim->etcd.model;

	if (is_over(sim, &member->up_ns))
		em_start(model, place);
	if (is_over(sim, &member->awake_ns))
		em_stop(model, place, false);
	if (is_over(sim, &member->thawed_ns))
		em_freeze(model, place, false);
	if (is_over(sim, &member->joined_ns))
		em_cut(model, place, false);
	if (is_over(sim, &member->prompt_ns))
		em_lag(model, place, false);
}

static void compact(struct sim *sim, int64_t revision)
{
	char bytes[32];
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__pb_put_number(&writer, 1, (uint64_t)revision);
	sim_etcd_operate(sim, "/etcdserverpb.KV/Compact",
	                 (struct lk__bytes){writer.data, writer.len});
}

void sim_etcd_happen(struct sim *sim)
{
	struct sim_etcd *etcd = &sim->etcd;

	for (int i = 0; i < etcd->count; i++)
		recover(sim, i);
	if (is_over(sim, &etcd->compact_ns)) {
		if (etcd->compact_revision)
			compact(sim, etcd->compact_revision);
		etcd->compact_revision = em_revision(etcd->model);
		etcd->compact_ns = sim->now_ns + COMPACT_NS;
	}
	if (sim->ending && em_leader(etcd->model) >= 0)
		sim_etcd_open_all(sim);
	for (struct sim_link *link = sim->links; link; link = link->next)
		while (is_past(link) && sim_etcd_link_first(link, true) <= sim->now_ns)
			sim_etcd_link_serve(link);
	sim_etcd_pump(sim);
	sim_etcd_look(sim);
}

/* ---- Operators ---------------------------------------------------------------------------- */

bool sim_etcd_operate(struct sim *sim, const char *path, struct lk__bytes message)
{
	struct etcd_model *model = sim->etcd.model;
	int place = em_leader(model);
	uint64_t connection = place < 0 ? 0 : em_connect(model, place);

	if (!connection)
		return false;
	em_call(model, connection, path, &(struct em_metadata){0}, message);
	sim_etcd_pump(sim);
	em_disconnect(model, connection);
	sim_etcd_look(sim);
	return true;
}

static void delete_ticket(struct sim *sim, const struct sim_etcd_ticket *ticket)
{
	char key[100], bytes[200];
	struct lk__pb_writer writer;

	snprintf(key, sizeof(key), "lk/%c/%s/c%02d_%05d_aaaaaaaaaaaa%s",
	         ticket->name < SIM_LOCKS ? 'L' : 'S', sim->names[ticket->name].text, ticket->slot,
	         ticket->life, ticket->nonce);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_delete(&writer, &(struct lk__etcd_delete){.key = lk__bytes_of(key)});
	sim_etcd_operate(sim, "/etcdserverpb.KV/DeleteRange",
	                 (struct lk__bytes){writer.data, writer.len});
}

static void revoke(struct sim *sim, int64_t lease)
{
	char bytes[32];
	struct lk__pb_writer writer;

	sim_etcd_revoke(sim, lease);
	lk__pb_writer_init(&writer, bytes, sizeof(bytes));
	lk__etcd_put_lease_revoke(&writer, lease);
	sim_etcd_operate(sim, "/etcdserverpb.Lease/LeaseRevoke",
	                 (struct lk__bytes){writer.data, writer.len});
}

/* The lease of an era and a mailbox. */
static void find_home(void *arg, const struct lk__etcd_kv *kv)
{
	int64_t *lease = arg;

	if (!*lease && kv->key.len > 5 && !memcmp(kv->key.data, "lk/e/", 5))
		*lease = kv->lease;
}

/* Of any ticket that is there: delete it, or revoke its lease or that of some client's era. */
static void operate(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	struct sim_etcd *etcd = &sim->etcd;
	struct sim_etcd_ticket ticket;
	int64_t home = 0;

	if (em_leader(etcd->model) < 0 || !etcd->ticket_count)
		return;
	ticket = etcd->tickets[sim_draw(random, (uint64_t)etcd->ticket_count)];
	sim_disturb(&sim->disturbed_ns, sim->now_ns + AFTERMATH_NS);
	sim->tally.faults[fault->kind]++;
	if (fault->kind == SIM_BREAK) {
		sim_etcd_break(sim, ticket.created);
		delete_ticket(sim, &ticket);
		return;
	}
	if (sim_percent(random, 40))
		em_each_key(etcd->model, find_home, &home);
	revoke(sim, home ? home : ticket.lease);
}

/* ---- Faults ------------------------------------------------------------------------------- */

/* Mostly the leader, as most depends on it. */
static int place_of(const struct sim *sim, const struct sim_fault *fault)
{
	int leader = em_leader(sim->etcd.model);

	return leader >= 0 && fault->chance % 2
	               ? leader
	               : (int)(fault->chance / 7 % (uint64_t)sim->etcd.count);
}

/* Nothing passes between the member and some clients, or all. */
static void part(struct sim *sim, int place, int64_t until_ns, struct sim_random *random)
{
	unsigned share = sim_percent(random, 50) ? 100 : 20 + (unsigned)sim_draw(random, 60);

	for (int i = 0; i < sim->plan->clients; i++) {
		struct sim_client *client = &sim->clients[i];
		struct sim_link *link = client->lanes[0].link;
		if (!sim_percent(random, share) || !client->alive)
			continue;
		sim_disturb(&sim_etcd_of(client)->apart_ns[place], until_ns);
		for (int way = 0; link && link->place == place && way < SIM_WAYS; way++)
			sim_disturb(&link->stalled_ns[way], until_ns);
		client->dirty = true;
	}
}

/* Some of the coming calls end otherwise than they should. */
static void refuse(struct sim *sim, struct sim_random *random)
{
	static const enum em_fault faults[] = {EM_LOSE_ANSWER,   EM_CUT_BEFORE, EM_CUT_AFTER,
	                                       EM_TIME_OUT_DONE, EM_TIME_OUT,   EM_TOO_MANY,
	                                       EM_CHANGED,       EM_NO_LEADER};
	int count = 1 + (int)sim_draw(random, REFUSALS_MAX);

	for (int i = 0; i < count; i++)
		em_fault(sim->etcd.model,
		         faults[sim_draw(random, sizeof(faults) / sizeof(*faults))], NULL,
		         (int)sim_draw(random, 4));
}

static void hurt_member(struct sim *sim, const struct sim_fault *fault, int place,
                        struct sim_random *random)
{
	struct sim_etcd_member *member = &sim->etcd.members[place];
	struct etcd_model *model = sim->etcd.model;
	int64_t until_ns = sim->now_ns + fault->length_ns + SIM_MS;

	switch (fault->kind) {
	case SIM_RESTART:
		em_kill(model, place);
		*member = (struct sim_etcd_member){.up_ns = until_ns,
		                                   .joined_ns = member->joined_ns,
		                                   .prompt_ns = member->prompt_ns};
		break;
	case SIM_HALT:
		em_stop(model, place, true);
		member->awake_ns = until_ns;
		break;
	case SIM_FREEZE:
		em_freeze(model, place, true);
		member->thawed_ns = until_ns;
		break;
	case SIM_SLOW:
		em_lag(model, place, true);
		member->prompt_ns = until_ns;
		break;
	case SIM_ELECT:
		until_ns = sim->now_ns;
		em_elect(model, place);
		break;
	default:
		if (sim_percent(random, 50)) {
			part(sim, place, until_ns, random);
			break;
		}
		em_cut(model, place, true);
		member->joined_ns = until_ns;
	}
	sim_disturb(&sim->disturbed_ns, until_ns + AFTERMATH_NS);
}

bool sim_etcd_hurt(struct sim *sim, const struct sim_fault *fault, struct sim_random *random)
{
	int place = place_of(sim, fault);

	switch (fault->kind) {
	case SIM_CUT:
	case SIM_STALL:
	case SIM_CUT_OFF:
	case SIM_CRASH:
	case SIM_STOP:
	case SIM_LEAVE:
		return false;
	case SIM_BREAK:
	case SIM_REVOKE:
		operate(sim, fault, random);
		return true;
	case SIM_RESIZE:
	case SIM_RESET:
		sim_etcd_command(sim, fault, random);
		return true;
	case SIM_COMPACT:
		compact(sim, em_revision(sim->etcd.model));
		break;
	case SIM_REFUSE:
		refuse(sim, random);
		sim_disturb(&sim->disturbed_ns, sim->now_ns + AFTERMATH_NS);
		break;
	default:
		if (sim->etcd.members[place].up_ns)
			return true;
		if (count_well(sim) - sim_etcd_is_well(sim, place) <= sim->etcd.count / 2 &&
		    fault->kind != SIM_ELECT && !sim_percent(random, 15))
			return true;
		hurt_member(sim, fault, place, random);
	}
	sim_trace(sim, NULL, "... at member %d, the leader is %d", place,
	          em_leader(sim->etcd.model));
	sim->tally.faults[fault->kind]++;
	sim_etcd_pump(sim);
	sim_etcd_look(sim);
	return true;
}

void sim_etcd_heal(struct sim *sim)
{
	for (int i = 0; i < sim->etcd.count; i++) {
		struct sim_etcd_member *member = &sim->etcd.members[i];
		int64_t *ends[] = {&member->up_ns, &member->awake_ns, &member->thawed_ns,
		                   &member->joined_ns, &member->prompt_ns};
		for (size_t j = 0; j < sizeof(ends) / sizeof(*ends); j++)
			if (*ends[j] > sim->now_ns)
				*ends[j] = sim->now_ns;
		recover(sim, i);
	}
	for (int i = 0; i < sim->plan->clients; i++)
		memset(sim->etcd.clients[i].apart_ns, 0, sizeof(sim->etcd.clients[i].apart_ns));
	sim_disturb(&sim->disturbed_ns, sim->now_ns + AFTERMATH_NS);
	for (struct sim_link *link = sim->links; link; link = link->next)
		for (int way = 0; way < SIM_WAYS; way++)
			link->stalled_ns[way] = 0;
}
