/* SPDX-License-Identifier: MIT
 * Connections to members of etcd: calls and streams go out in order, answers and events come back.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static const char *const paths[] = {
	[LK__ETCD_CALL_TXN] = "/etcdserverpb.KV/Txn",
	[LK__ETCD_CALL_GRANT] = "/etcdserverpb.Lease/LeaseGrant",
	[LK__ETCD_CALL_REVOKE] = "/etcdserverpb.Lease/LeaseRevoke",
	[LK__ETCD_CALL_KEEP_ALIVE] = "/etcdserverpb.Lease/LeaseKeepAlive",
};

static const struct em_metadata plain, has_leader = {.has_leader = true};

/* ---- Life --------------------------------------------------------------------------------- */

struct sim_etcd_link *sim_etcd_link_new(void)
{
	struct sim_etcd_link *own = calloc(1, sizeof(*own));

	if (!own)
		abort();
	own->out_end = &own->out;
	own->in_end = &own->in;
	return own;
}

static void free_letters(struct sim_letter **first, struct sim_letter ***end)
{
	while (*first) {
		struct sim_letter *letter = *first;
		*first = letter->next;
		free(letter);
	}
	*end = first;
}

void sim_etcd_link_free(struct sim *sim, struct sim_link *link)
{
	if (!link->etcd)
		return;
	if (sim->etcd.model)
		em_disconnect(sim->etcd.model, link->etcd->connection);
	free_letters(&link->etcd->out, &link->etcd->out_end);
	free_letters(&link->etcd->in, &link->etcd->in_end);
	free(link->etcd);
	link->etcd = NULL;
}

void sim_etcd_link_cut(struct sim_link *link)
{
	struct sim_client *client = link->client;
	struct sim_etcd_link *own = link->etcd;
	struct sim_letter **at = &own->out;
	unsigned share =
		sim_percent(&client->random, 50) ? 100 : (unsigned)sim_draw(&client->random, 100);

	free_letters(&own->in, &own->in_end);
	/* A stream of bytes: what follows a lost letter is lost as well. */
	while (*at && link->there &&
	       (sim_etcd_of(client)->is_ending || sim_percent(&client->random, share)))
		at = &(*at)->next;
	free_letters(at, &own->out_end);
}

int64_t sim_etcd_link_until_ns(const struct sim_link *link)
{
	int64_t until_ns = link->stalled_ns[SIM_COMMANDS_OUT];

	if (!link->etcd->out)
		return 0;
	for (const struct sim_letter *letter = link->etcd->out; letter; letter = letter->next)
		if (letter->at_ns > until_ns)
			until_ns = letter->at_ns;
	return until_ns + 1;
}

int64_t sim_etcd_link_first(const struct sim_link *link, bool is_out)
{
	const struct sim_letter *letter = is_out ? link->etcd->out : link->etcd->in;
	int64_t stalled_ns = link->stalled_ns[is_out ? SIM_COMMANDS_OUT : SIM_COMMANDS_IN];

	if (!letter)
		return LK__NEVER;
	return letter->at_ns < stalled_ns ? stalled_ns : letter->at_ns;
}

/* ---- Letters ------------------------------------------------------------------------------ */

static struct sim_letter *new_letter(enum sim_letter_kind kind, const void *bytes, size_t len)
{
	struct sim_letter *letter = calloc(1, sizeof(*letter) + len);

	if (!letter)
		abort();
	letter->kind = kind;
	letter->len = len;
	if (len)
		memcpy(letter->bytes, bytes, len);
	return letter;
}

static void push(struct sim_link *link, struct sim_letter *letter)
{
	letter->at_ns = sim_link_arrival(link, SIM_COMMANDS_IN);
	*link->etcd->in_end = letter;
	link->etcd->in_end = &letter->next;
	link->client->dirty = true;
}

struct sim_letter *sim_etcd_send(struct sim_client *client, enum sim_letter_kind kind,
                                 const void *bytes, size_t len)
{
	struct sim_link *link = client->lane->link;
	struct sim_letter *letter = new_letter(kind, bytes, len);

	letter->at_ns = sim_link_arrival(link, SIM_COMMANDS_OUT);
	*link->etcd->out_end = letter;
	link->etcd->out_end = &letter->next;
	client->dirty = true;
	return letter;
}

static struct sim_letter *pop(struct sim_letter **first, struct sim_letter ***end)
{
	struct sim_letter *letter = *first;

	*first = letter->next;
	if (!*first)
		*end = first;
	return letter;
}

/* ---- At the member ------------------------------------------------------------------------ */

static struct sim_etcd_call *find_call(struct sim_etcd_link *own, uint32_t id, uint64_t call)
{
	for (int i = 0; i < own->call_count; i++)
		if (id ? own->calls[i].id == id : own->calls[i].call == call)
			return &own->calls[i];
	return NULL;
}

static void forget_call(struct sim_etcd_link *own, struct sim_etcd_call *call)
{
	*call = own->calls[--own->call_count];
}

static void add_call(struct sim_etcd_link *own, uint32_t id, uint64_t call)
{
	if (own->call_count == SIM_ETCD_CALLS)
		abort();
	own->calls[own->call_count++] = (struct sim_etcd_call){id, call};
}

static void serve(struct sim *sim, struct sim_link *link, const struct sim_letter *letter)
{
	struct etcd_model *model = sim->etcd.model;
	struct sim_etcd_link *own = link->etcd;
	struct lk__bytes bytes = {letter->bytes, letter->len};
	struct sim_etcd_call *call;
	uint64_t id;

	sim->tally.scripts++;
	switch (letter->kind) {
	case SIM_LETTER_CALL:
		id = em_call(model, own->connection, paths[letter->method], &plain, bytes);
		add_call(own, letter->id, id);
		break;
	case SIM_LETTER_KEEP_ALIVE:
		id = em_open(model, own->connection, paths[letter->method], &has_leader);
		add_call(own, letter->id, id);
		em_send(model, id, bytes);
		break;
	case SIM_LETTER_WATCH:
		if (!own->watch)
			own->watch = em_open(model, own->connection, "/etcdserverpb.Watch/Watch",
			                     &has_leader);
		em_send(model, own->watch, bytes);
		break;
	case SIM_LETTER_CANCEL:
		call = find_call(own, letter->id, 0);
		if (!call)
			break;
		em_cancel(model, call->call);
		forget_call(own, call);
		break;
	default:
		if (link->here && sim->etcd.members[link->place].awake_ns <= sim->now_ns)
			push(link, new_letter(SIM_LETTER_PONG, NULL, 0));
	}
}

void sim_etcd_link_serve(struct sim_link *link)
{
	struct sim *sim = link->client->sim;
	struct sim_letter *letter = pop(&link->etcd->out, &link->etcd->out_end);

	serve(sim, link, letter);
	free(letter);
	sim_etcd_pump(sim);
	sim_etcd_look(sim);
}

void sim_etcd_execute(struct sim_client *client)
{
	sim_etcd_link_serve(client->lane->link);
}

static struct sim_link *link_of(struct sim *sim, uint64_t connection)
{
	for (struct sim_link *link = sim->links; link; link = link->next)
		if (link->etcd && link->etcd->connection == connection)
			return link;
	return NULL;
}

static void answer(struct sim_link *link, const struct em_output *output)
{
	struct sim_etcd_link *own = link->etcd;
	bool is_of_watch = output->call && output->call == own->watch;
	struct sim_etcd_call *call = is_of_watch ? NULL : find_call(own, 0, output->call);
	struct sim_letter *letter;

	if (output->call && !is_of_watch && !call)
		return;
	letter = new_letter(!output->call ? SIM_LETTER_CLOSED
	                    : is_of_watch ? SIM_LETTER_WATCHED
	                                  : SIM_LETTER_ANSWER,
	                    output->message.data, output->has_message ? output->message.len : 0);
	letter->id = call ? call->id : 0;
	letter->has_message = output->has_message;
	letter->has_ended = output->has_ended;
	letter->status = output->status;
	snprintf(letter->text, sizeof(letter->text), "%s", output->text ? output->text : "");
	if (call && output->has_ended)
		forget_call(own, call);
	if (!output->call)
		link->there = false;
	if (link->here)
		push(link, letter);
	else
		free(letter);
}

/* The answer to a dial. */
static void read_status(struct sim *sim, const struct em_output *output)
{
	struct lk__etcd_status_answer status;

	sim->etcd.is_led = output->has_message &&
	                   lk__pb_read(&lk__etcd_status_shape, output->message.data,
	                               output->message.len, &status) &&
	                   status.leader;
}

void sim_etcd_pump(struct sim *sim)
{
	struct em_output output;
	struct sim_link *link;

	while (em_take(sim->etcd.model, &output)) {
		link = link_of(sim, output.connection);
		if (output.call && output.call == sim->etcd.status_call)
			read_status(sim, &output);
		else if (link)
			answer(link, &output);
	}
}

/* ---- At the client ------------------------------------------------------------------------ */

void sim_etcd_reply(struct sim_client *client)
{
	struct sim_etcd_link *own = client->lane->link->etcd;
	struct sim_letter *letter = pop(&own->in, &own->in_end);

	own->heard_ns = sim_local(client);
	client->lane->heard_ns = client->sim->now_ns;
	lk__session_heard(&client->lane->session, sim_local(client));
	sim_etcd_heard(client, letter);
	free(letter);
}
