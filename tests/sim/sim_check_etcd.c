/* SPDX-License-Identifier: MIT
 * The promises on etcd.  The keys are the truth: the first ticket of a lock's queue holds it.  So a
 * hold that its client believes in is the first ticket, and the first ticket's client soon knows
 * it.  Only what an operator has ended is excused.  What the store had is read revision by
 * revision. Semaphores and latches: sim_check_etcd_permits.c, sim_check_etcd_latch.c. */
#include "sim.h"

#include <string.h>

#define LOOK_NS (10 * SIM_S) /* a waiter asks again that often */
#define CHORE_NS (1100 * SIM_MS)
#define KEY_LEN (sizeof("lk/L/lock0/c00_00000_aaaaaaaaaaaa") - 1 + LK__NONCE_SIZE - 1)

static int name_of(const struct lk__name *name)
{
	return name->bytes[name->len - 1] - '0';
}

/* ---- What an operator has ended ----------------------------------------------------------- */

void sim_etcd_break(struct sim *sim, int64_t created)
{
	struct sim_etcd *etcd = &sim->etcd;

	etcd->broken[etcd->broken_count++ % SIM_ETCD_BROKEN] = created;
}

static bool is_broken(const struct sim *sim, int64_t created)
{
	for (int i = 0; i < SIM_ETCD_BROKEN && i < sim->etcd.broken_count; i++)
		if (sim->etcd.broken[i] == created)
			return true;
	return false;
}

bool sim_etcd_is_ended(const struct sim *sim, const struct lk__hold *hold)
{
	return is_broken(sim, (int64_t)(hold->ticket->fence / LK__ETCD_FENCES));
}

/* ---- What the store has ------------------------------------------------------------------- */

int sim_etcd_number(const char *digits, int count)
{
	int number = 0;

	for (int i = 0; i < count; i++)
		number = 10 * number + digits[i] - '0';
	return number;
}

static bool begins(const struct lk__etcd_kv *kv, const char *text)
{
	size_t len = strlen(text);

	return kv->key.len > len && !memcmp(kv->key.data, text, len);
}

static bool read_noun(struct sim_etcd *etcd, const struct lk__etcd_kv *kv)
{
	const char *key = kv->key.data;

	return kv->key.len == sizeof("lk/Spool0") - 1 && begins(kv, "lk/Spool") &&
	       lk__etcd_read_noun(&etcd->nouns[key[8] - '0'], kv);
}

static void read_key(void *arg, const struct lk__etcd_kv *kv)
{
	struct sim_etcd *etcd = arg;
	const char *key = kv->key.data;
	struct sim_etcd_ticket *ticket = &etcd->tickets[etcd->ticket_count];

	if (begins(kv, "lk/e/") || begins(kv, "lk/c/") || read_noun(etcd, kv) ||
	    (begins(kv, "lk/D") && sim_etcd_read_latch(etcd, kv)))
		return;
	if (kv->key.len != KEY_LEN || (!begins(kv, "lk/L/lock") && !begins(kv, "lk/S/pool")) ||
	    etcd->ticket_count == SIM_ETCD_TICKETS) {
		snprintf(etcd->strange, sizeof(etcd->strange), "%.*s", (int)kv->key.len, key);
		return;
	}
	etcd->ticket_count++;
	*ticket = (struct sim_etcd_ticket){.name = key[9] - '0',
	                                   .slot = sim_etcd_number(key + 12, 2),
	                                   .life = sim_etcd_number(key + 15, 5),
	                                   .created = kv->create_revision,
	                                   .lease = kv->lease,
	                                   .permits = lk__etcd_read_permits(kv->value)};
	memcpy(ticket->nonce, key + 33, LK__NONCE_SIZE - 1);
}

static void break_revoked(struct sim *sim)
{
	struct sim_etcd *etcd = &sim->etcd;

	for (int i = 0; i < etcd->ticket_count; i++)
		for (int j = 0; j < SIM_ETCD_BROKEN && j < etcd->revoked_count; j++)
			if (etcd->tickets[i].lease == etcd->revoked[j] &&
			    !is_broken(sim, etcd->tickets[i].created))
				sim_etcd_break(sim, etcd->tickets[i].created);
}

void sim_etcd_revoke(struct sim *sim, int64_t lease)
{
	sim->etcd.revoked[sim->etcd.revoked_count++ % SIM_ETCD_BROKEN] = lease;
	break_revoked(sim);
}

static void look_at(struct sim *sim, int64_t revision)
{
	struct sim_etcd *etcd = &sim->etcd;

	etcd->former_count = etcd->ticket_count;
	memcpy(etcd->former, etcd->tickets, sizeof(*etcd->tickets) * (size_t)etcd->ticket_count);
	etcd->ticket_count = 0;
	memset(etcd->nouns, 0, sizeof(etcd->nouns));
	for (int i = SIM_RATE + 1; i < SIM_NAMES; i++) {
		etcd->former_latches[i] = etcd->latches[i];
		etcd->latches[i].is_there = false;
		etcd->latches[i].own_count = etcd->latches[i].step_keys = 0;
	}
	em_each_key_at(etcd->model, revision, read_key, etcd);
	break_revoked(sim);
	sim_etcd_look_permits(sim);
	sim_etcd_look_latches(sim);
}

void sim_etcd_look(struct sim *sim)
{
	struct sim_etcd *etcd = &sim->etcd;
	int64_t last = em_revision(etcd->model), next = etcd->seen_revision + 1;

	if (next < em_compacted(etcd->model))
		next = em_compacted(etcd->model);
	for (; next <= last; next++) {
		etcd->seen_revision = next;
		look_at(sim, next);
	}
}

static const struct sim_etcd_ticket *first_of(const struct sim *sim, int name)
{
	const struct sim_etcd_ticket *first = NULL;

	for (int i = 0; i < sim->etcd.ticket_count; i++) {
		const struct sim_etcd_ticket *ticket = &sim->etcd.tickets[i];
		if (ticket->name == name && (!first || ticket->created < first->created))
			first = ticket;
	}
	return first;
}

const struct sim_etcd_ticket *sim_etcd_find(const struct sim *sim, const char *nonce)
{
	for (int i = 0; i < sim->etcd.ticket_count; i++)
		if (!strcmp(sim->etcd.tickets[i].nonce, nonce))
			return &sim->etcd.tickets[i];
	return NULL;
}

struct sim_client *sim_etcd_client_of(struct sim *sim, const struct sim_etcd_ticket *ticket)
{
	struct sim_client *client = &sim->clients[ticket->slot];

	return client->alive && client->life == ticket->life ? client : NULL;
}

/* ---- Holds -------------------------------------------------------------------------------- */

bool sim_etcd_is_fine(const struct sim_client *client, int64_t for_ns)
{
	const struct sim *sim = client->sim;
	int64_t since_ns = sim->now_ns - for_ns;

	return client->alive && !client->closed && client->lanes[0].link &&
	       client->lanes[0].link->there && client->lanes[0].link->reset_ns == LK__NEVER &&
	       client->lanes[0].linked_ns <= since_ns && client->resume_ns <= since_ns &&
	       client->disturbed_ns <= since_ns && sim->disturbed_ns <= since_ns;
}

/* A hold that a client believes in is the first ticket of the queue. */
void sim_etcd_check_backed(struct sim_client *client, const struct lk__hold *hold)
{
	struct sim *sim = client->sim;
	int index = name_of(hold->name);
	const struct sim_name *name = &sim->names[index];
	const struct sim_etcd_ticket *ticket = sim_etcd_find(sim, hold->ticket->nonce);
	const struct sim_etcd_ticket *first = first_of(sim, index);

	if (sim_etcd_is_ended(sim, hold))
		return;
	if (!ticket || ticket->slot != client->slot || ticket->life != client->life)
		sim_keep_of(sim, name, PROMISE_VALIDITY, promise_validity(false, 0, 0));
	else if (name->kind == LK_KIND_LOCK ? first != ticket : !ticket->granted_ns)
		sim_fail(sim, PROMISE_OWNER, "%s: c%02d believes in a ticket that is not %s",
		         name->text, client->slot,
		         name->kind == LK_KIND_LOCK ? "the first" : "granted");
	else if (name->kind == LK_KIND_SEMAPHORE && hold->count > ticket->permits)
		sim_fail(sim, PROMISE_PERMITS, "%s: c%02d believes in %u permits of %lld",
		         name->text, client->slot, (unsigned)hold->count,
		         (long long)ticket->permits);
	else if (hold->fence / LK__ETCD_FENCES != (uint64_t)ticket->created)
		sim_fail(sim, PROMISE_FENCE, "%s: fence %llu of a ticket created at %lld",
		         name->text, (unsigned long long)hold->fence, (long long)ticket->created);
}

/* No two valid holds, but beside one that was ended by hand. */
static void check_alone(struct sim *sim, const struct sim_name *name)
{
	int64_t used = 0;

	for (int i = 0; i < sim->plan->clients; i++) {
		const struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next)
			used += name_of(hold->name) == name->index && hold->ticket &&
			        lk__hold_left_ns(hold, sim_local(client)) &&
			        !sim_etcd_is_ended(sim, hold);
	}
	sim_keep_of(sim, name, PROMISE_EXCLUSION, promise_exclusion(used));
}

/* Its client waits for it, or believes in it. */
static bool is_in_use(struct sim *sim, const struct sim_etcd_ticket *ticket)
{
	const struct sim_client *client = sim_etcd_client_of(sim, ticket);
	const struct lk__ticket *own =
		client ? lk__ticket_find(&client->core, ticket->nonce) : NULL;

	return own && (own->state == LK__ASKING || own->state == LK__WAITING ||
	               (own->queue->hold && own->queue->hold->ticket == own &&
	                lk__hold_left_ns(own->queue->hold, sim_local(client))));
}

static void check_order(struct sim *sim, const struct sim_name *name, const struct lk__hold *hold)
{
	struct promise_waiter queue[SIM_ETCD_TICKETS];
	const struct sim_etcd_ticket *own = sim_etcd_find(sim, hold->ticket->nonce);
	int count = 0;

	for (int i = 0; i < sim->etcd.ticket_count; i++) {
		const struct sim_etcd_ticket *other = &sim->etcd.tickets[i];
		if (other->name == name->index)
			queue[count++] = (struct promise_waiter){other->nonce, other->created,
			                                         !other->granted_ns &&
			                                                 is_in_use(sim, other)};
	}
	sim_keep_of(sim, name, PROMISE_FIFO,
	            promise_fifo(queue, (size_t)count, hold->ticket->nonce,
	                         own ? own->created : INT64_MAX));
}

static void check_share(struct sim *sim, struct sim_client *client, const struct sim_name *name,
                        const struct lk__hold *hold)
{
	int *handed = &sim_etcd_of(client)->handed[name->index];

	if (hold->fence == hold->ticket->fence || !hold->ticket->is_wanted)
		*handed = 0;
	else
		++*handed;
	sim_keep_of(sim, name, PROMISE_HAND_OVERS, promise_hand_overs(*handed));
}

void sim_etcd_check_made(struct sim_caller *caller, const struct lk__hold *hold)
{
	struct sim_client *client = caller->client;
	struct sim *sim = client->sim;
	const struct sim_name *name = &sim->names[caller->name];
	struct sim_etcd_head *head;

	if (hold->fence == hold->ticket->fence)
		sim->tally.grants++;
	else
		sim->tally.handed_over++;
	if (hold->handle != caller)
		sim_fail(sim, PROMISE_GRANT, "%s: a hold of another thread", name->text);
	if (sim_etcd_is_ended(sim, hold))
		return;
	if (name->kind == LK_KIND_SEMAPHORE) { /* several are granted at once */
		sim_etcd_check_backed(client, hold);
		check_order(sim, name, hold);
		sim_etcd_check_permits(sim, name);
		return;
	}
	head = &sim->etcd.heads[caller->name];
	sim_keep_of(sim, name, PROMISE_FENCE, promise_fence(head->fence, hold->fence));
	head->fence = hold->fence;
	sim_etcd_check_backed(client, hold);
	check_order(sim, name, hold);
	check_share(sim, client, name, hold);
	check_alone(sim, name);
}

/* The client reached the cluster for the whole lease, and nothing was delayed or refused. */
void sim_etcd_check_lost(const struct sim_client *client, const struct lk__hold *hold)
{
	struct sim *sim = client->sim;
	const struct sim_caller *caller = hold->handle;
	int64_t lease_ns = caller->queue->lease_ms * SIM_MS;

	if (!sim_etcd_is_fine(client, lease_ns + sim_ways_ns(sim, 6)))
		return;
	if (hold->lost == LK_LOST_TAKEN)
		sim_fail(sim, PROMISE_OWNER,
		         "fence %llu of %s is reported taken, and nobody took it",
		         (unsigned long long)hold->fence, hold->name->bytes);
	if (hold->lost == LK_LOST_EXPIRED && !caller->queue->fixed &&
	    lease_ns > 3 * sim_ways_ns(sim, 6))
		sim_fail(sim, PROMISE_RENEWAL,
		         "fence %llu of %s has expired: its client did not renew it",
		         (unsigned long long)hold->fence, hold->name->bytes);
}

/* ---- Lost wake-ups ------------------------------------------------------------------------ */

bool sim_etcd_is_known(const struct sim_client *client, const char *nonce)
{
	const struct lk__ticket *own = lk__ticket_find(&client->core, nonce);

	return own && own->state == LK__HOLDING;
}

int64_t sim_etcd_wake_ns(const struct sim *sim)
{
	return sim_ways_ns(sim, 12) + SIM_S + (sim->plan->fault_count ? LOOK_NS + CHORE_NS : 0);
}

/* The first ticket's client knows that it holds the lock, or ends the ticket. */
static void check_head(struct sim *sim, const struct sim_name *name)
{
	struct sim_etcd_head *head = &sim->etcd.heads[name->index];
	const struct sim_etcd_ticket *first = first_of(sim, name->index);
	const struct sim_client *client = first ? sim_etcd_client_of(sim, first) : NULL;
	int64_t limit_ns = sim_etcd_wake_ns(sim);
	double idle_ms;

	if (!client || strcmp(first->nonce, head->nonce) != 0 ||
	    sim_etcd_is_known(client, first->nonce)) {
		memcpy(head->nonce, first ? first->nonce : "", first ? LK__NONCE_SIZE : 1);
		head->since_ns = sim->now_ns;
		return;
	}
	if (!sim_etcd_is_fine(client, limit_ns))
		return;
	idle_ms = (double)(sim->now_ns - head->since_ns) / 1e6;
	if (idle_ms > sim->tally.longest_idle_ms)
		sim->tally.longest_idle_ms = idle_ms;
	sim_keep_of(sim, name, PROMISE_WAKE_UP,
	            promise_wake_up(head->since_ns + limit_ns, sim->now_ns));
}

void sim_etcd_check_names(struct sim *sim)
{
	for (int i = 0; i < SIM_LOCKS; i++) {
		check_head(sim, &sim->names[i]);
		check_alone(sim, &sim->names[i]);
	}
	for (int i = SIM_LOCKS; i < SIM_RATE; i++)
		sim_etcd_check_permits(sim, &sim->names[i]);
	for (int i = 0; i < sim->plan->clients; i++) {
		struct sim_client *client = &sim->clients[i];
		const struct lk__hold *hold = client->alive ? client->core.all_holds : NULL;
		for (; hold; hold = hold->next)
			if (!hold->lost && hold->ticket &&
			    lk__hold_left_ns(hold, sim_local(client)))
				sim_etcd_check_backed(client, hold);
	}
	if (sim->etcd.strange[0])
		sim_fail(sim, PROMISE_SCRIPT, "a strange key: %s", sim->etcd.strange);
}

/* ---- The end ------------------------------------------------------------------------------ */

void sim_etcd_check_rest(struct sim *sim)
{
	for (int i = 0; i < sim->etcd.ticket_count; i++) {
		const struct sim_etcd_ticket *ticket = &sim->etcd.tickets[i];
		const struct sim_client *client = sim_etcd_client_of(sim, ticket);
		if (client && sim_etcd_is_fine(client, sim_ways_ns(sim, 8) + CHORE_NS))
			sim_fail(sim, PROMISE_REST,
			         "all calls have ended, and a ticket of c%02d for %s is there",
			         ticket->slot, sim->names[ticket->name].text);
	}
}

static bool has_no_owner(const struct sim *sim, const struct lk__etcd_kv *kv)
{
	const char *key = kv->key.data;
	const struct sim_client *client;

	if (kv->key.len < 5 + 9)
		return true;
	client = &sim->clients[sim_etcd_number(key + 6, 2)];
	return !client->alive || client->life != sim_etcd_number(key + 9, 5);
}

static void check_key(void *arg, const struct lk__etcd_kv *kv)
{
	struct sim *sim = arg;

	if (begins(kv, "lk/L/") || begins(kv, "lk/S/"))
		sim_fail(sim, PROMISE_REST, "a ticket is left: %.*s", (int)kv->key.len,
		         (const char *)kv->key.data);
	else if (begins(kv, "lk/S") || begins(kv, "lk/D"))
		return; /* they are meant to last */
	else if (has_no_owner(sim, kv))
		sim_fail(sim, PROMISE_REST, "a key of a client that has ended is left: %.*s",
		         (int)kv->key.len, (const char *)kv->key.data);
}

/* Leases of clients that have ended are over, those of others have no tickets. */
void sim_etcd_check_end(struct sim *sim)
{
	em_each_key(sim->etcd.model, check_key, sim);
	for (int i = SIM_LOCKS; i < SIM_NAMES; i++)
		if (sim->etcd.latches[i].step_keys && !sim->etcd.latches[i].is_there)
			sim_fail(sim, PROMISE_REST, "steps of %s are left", sim->names[i].text);
	for (int i = 0; i < sim->plan->clients; i++) {
		const struct lk__etcd_session *session = &sim->etcd.clients[i].session;
		if (sim->clients[i].alive &&
		    (session->tickets.count || session->jobs || session->chores))
			sim_fail(sim, PROMISE_REST, "a ticket or a job is left in c%02d's session",
			         i);
	}
}
