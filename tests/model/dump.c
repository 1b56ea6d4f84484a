/* SPDX-License-Identifier: MIT
 * A state's canonical form: two states whose futures are the same should have the same bytes here,
 * and two whose futures may differ must not.
 *
 * - Moments are ticks from now, rounded up: all events are at ticks, so no more can be seen of
 *   them.  All moments in the past are equal.
 * - Fences, generations and stamps are only compared: they become their rank.  Arrivals, too, with
 *   their age, by which the store finds old waiters.
 * - Nonces are new each time, so only equality matters: they become numbers in the order of their
 *   first appearance here.
 * - Clients are interchangeable: they are sorted by their own form, then by their numbers.  If two
 *   are equal in both, their order is kept; then one state may be counted twice.
 * - A field that is not read in this state of its owner is left out.  The store's clock in replies
 *   is not read as long as no hold is handed over inside a process, which takes two threads of a
 *   client; the model has one.  That in messages is read where memories differ. */
#include "dump.h"
#include "etcd.h"

#include "arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_NS (INT64_C(1000000) * MODEL_TICK_MS)

void form_put(struct form *form, int64_t value)
{
	if (form->len + 1 >= FORM_MAX)
		abort();
	form->bytes[form->len++] = (uint8_t)value;
}

void form_put_wide(struct form *form, int64_t value)
{
	form_put(form, value & 255);
	form_put(form, value >> 8);
}

/* Its rank, once all are known. */
void form_put_number(struct form *form, int class, uint64_t value)
{
	/* Of a quorum all are times of the servers, and are compared with each other. */
	if (form->world->bounds->servers)
		class = FENCES;
	if (value) {
		if (form->slot_count[class] == SLOTS_MAX)
			abort();
		form->slots[class][form->slot_count[class]].at = form->len;
		form->slots[class][form->slot_count[class]++].value = value;
	}
	form_put(form, 0);
}

void form_put_nonce(struct form *form, int client, const char *nonce)
{
	size_t i = 0;

	while (i < form->nonce_count && (form->nonces[i].client != client ||
	                                 memcmp(form->nonces[i].text, nonce, NONCE_LEN) != 0))
		i++;
	if (i == NONCES_MAX)
		abort();
	if (i == form->nonce_count) {
		form->nonce_count++;
		form->nonces[i].client = client;
		memcpy(form->nonces[i].text, nonce, NONCE_LEN);
	}
	form_put(form, (int64_t)i + 1);
}

int64_t form_least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Ticks until then. */
void form_put_due(struct form *form, int64_t due_ns)
{
	int64_t left_ns = due_ns - form->world->now_ns;

	if (due_ns == LK__NEVER)
		form_put(form, 255);
	else
		form_put(form, left_ns <= 0 ? 0 : (left_ns + TICK_NS - 1) / TICK_NS);
}

/* Ticks since then, up to a limit from which on more make no difference. */
void form_put_age(struct form *form, int64_t at_ns, int64_t most_ms)
{
	int64_t most = (most_ms + MODEL_TICK_MS - 1) / MODEL_TICK_MS;

	form_put(form, at_ns ? form_least((form->world->now_ns - at_ns) / TICK_NS, most) : 255);
}

/* The same of a moment of the store's clock. */
void form_put_store_age(struct form *form, int64_t at_us)
{
	int64_t age_ms = (lua_store_time(form->server->store) - at_us + 500) / 1000;

	form_put(form, (age_ms + MODEL_TICK_MS / 2) / MODEL_TICK_MS);
}

/* ---- A client ----------------------------------------------------------------------------- */

int form_where_of(const struct model_client *client, const struct lk__op *list)
{
	int at = 1;

	for (; list; list = list->next, at++)
		if (list == client->waiter)
			return at;
	return 0;
}

static void put_ticket(struct form *form, const struct model_client *client, int index,
                       const struct lk__ticket *ticket)
{
	bool waits = ticket->state <= LK__CLAIMING, holds = ticket->state == LK__HOLDING;
	bool over = ticket->state == LK__OVER;
	bool heard_late = !waits && !holds && lk__pending_heard(&ticket->leave, LK__GRANT);

	form_put(form, ticket->state);
	form_put(form, ticket->main.state | ticket->leave.state << 2 |
	                       (!over && ticket->queue->fixed) << 4 | ticket->is_try << 5 |
	                       (!over && ticket->head_unserved) << 6);
	form_put(form, ((waits || holds) && lk__pending_heard(&ticket->main, LK__BROKEN)) |
	                       (holds && lk__ticket_is_shrinking(ticket)) << 1 |
	                       (ticket->queue && ticket->queue->ticket == ticket) << 2 |
	                       (ticket->queue && ticket->queue->first) << 3 |
	                       ticket->is_shared << 4 | ticket->main.shares << 5 |
	                       ticket->main.claim << 6 | ticket->main.extends << 7);
	if (over)
		return;
	form_put(form, ticket->queue->final | lk__ticket_is_used(ticket) << 1 |
	                       ticket->is_forgotten << 2 | ticket->is_doubted << 3);
	form_put_nonce(form, index, ticket->nonce);
	form_put(form, ticket->leave_refused | heard_late << 1 | ticket->may_be_known << 2 |
	                       ticket->refusals << 3);
	form_put_due(form, ticket->next_ns);
	form_put_wide(form, ticket->queue->lease_ms / 10);
	form_put(form, ticket->queue->permits);
	form_put(form, holds && ticket->permits ? ticket->queue->hold->count : 0);
	form_put(form, ticket->main.state != LK__IDLE && ticket->main.kind == LK__SHRINK
	                       ? ticket->main.permits
	                       : 0);
	form_put(form, waits ? ticket->hands : 0);
	form_put(form, form_where_of(client, ticket->queue->first));
	form_put(form, form_where_of(client, ticket->leavers));
	form_put(form, form_where_of(client, ticket->extenders));
	if (waits) {
		form_put_age(form, ticket->first_sent_ns,
		             ticket->queue->final ? FAR_MS : ticket->queue->lease_ms);
		form_put_number(form, ARRIVALS, ticket->arrival);
		if (ticket->queue->final && ticket->arrival)
			form_put_store_age(form, (int64_t)ticket->arrival);
	} else {
		form_put(form, ticket->first_sent_ns != 0);
		form_put(form, form_least(ticket->leaves_sent, 2));
	}
	/* The length of an extension matters up to the time between two asks. */
	if (ticket->main.state == LK__IN_FLIGHT || waits)
		form_put_age(form, ticket->main.sent_ns, MODEL_EXTENSION_MS);
	if (ticket->main.state == LK__IN_FLIGHT)
		form_put_wide(form, ticket->main.lease_ms / 10);
	form_put(form, ticket->main.state == LK__IN_FLIGHT ? ticket->main.kind : 0);
	form_put(form, ticket->leave.state == LK__IN_FLIGHT ? ticket->leave.kind : 0);
	if (holds)
		form_put_due(form, ticket->valid_until_ns);
	if (ticket->leave_refused)
		form_put_due(form, ticket->leave_until_ns);
	if (form->world->rule == RULE_FENCE_OF_MESSAGE)
		holds = holds || ticket->state == LK__CLAIMING;
	form_put_number(form, FENCES, holds || lk__ticket_is_used(ticket) ? ticket->fence : 0);
	form_put_number(form, FENCES,
	                holds || lk__ticket_is_leaving(ticket) ? ticket->last_fence : 0);
}

void form_put_hold(struct form *form, const struct model_client *client)
{
	const struct lk__hold *hold = world_hold(client);
	int index = 1;

	form_put(form, hold ? 1 + (hold->lost != 0) : 0);
	if (!hold)
		return;
	form_put(form, hold->count);
	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next, index++)
		if (ticket == hold->ticket)
			form_put(form, index);
	form_put_number(form, FENCES, hold->fence);
}

static void put_latch(struct form *form, const struct model_client *client)
{
	const struct lk__latch *latch = client->queue->name->latch;
	const struct lk__op *waiter = latch->first;

	form_put(form, latch->ask.state | latch->down.state << 2 | latch->using_channel << 4 |
	                       latch->heard << 5 | (latch->confirmed >= latch->answered) << 6 |
	                       (latch->confirmed >= latch->asks) << 7);
	form_put_due(form, latch->ask_ns);
	form_put_due(form, latch->step_ns);
	form_put_number(form, FENCES, latch->generation);
	form_put(form, form->world->now_ns - latch->known_ns > 1000000000);
	form_put(form, (latch->asks != latch->answered) | (latch->trouble.err != 0) << 1);
	form_put(form, client->core.step_number);
	form_put(form, latch->channel->state);
	form_put(form, latch->channel->users << 1 | latch->channel->sent);
	form_put_due(form, latch->channel->timer.due_ns);
	for (; waiter; waiter = waiter->next) {
		form_put(form, 1 | waiter->only_try << 1 | waiter->late << 2 |
		                       (waiter->joined >= latch->answered) << 3 |
		                       (waiter->joined >= latch->asks) << 4);
		form_put_number(form, FENCES, waiter->stamp);
		form_put_number(form, FENCES, waiter->opened);
		form_put_number(form, FENCES, waiter->removed);
	}
	for (const struct lk__step *step = latch->steps; step; step = step->next) {
		form_put(form, 2 | (step->waiter != NULL) << 2 | step->may_be_counted << 3 |
		                       (step->joined >= latch->answered) << 4 |
		                       (step->joined >= latch->asks) << 5 | (step->len != 0) << 6);
		form_put(form, (int64_t)step->number);
		form_put_number(form, FENCES, step->generation);
	}
}

/* "1 <id> <since>": how long since then, up to the end of the grace. */
static void put_marker(struct form *form, const char *marker)
{
	const char *since = strrchr(marker, ' ');
	int64_t now_us = lua_store_time(form->server->store);
	int64_t most_us = world_grace_ms(form->world->bounds) * 1000;

	for (; *marker && marker != since; marker++)
		form_put(form, *marker);
	form_put(form, 0);
	if (since) {
		int64_t age_us = now_us - strtoll(since, NULL, 10);
		form_put_wide(form, form_least(age_us, most_us) / 1000000);
		form_put_number(form, FENCES, strtoull(since, NULL, 10));
	}
}

void form_put_marker(struct form *form, const char *marker)
{
	if (form->world->bounds->servers)
		form_put_member(form, marker);
	else
		put_marker(form, marker);
}

static void put_answer(struct form *form, const struct lk__answer *answer)
{
	form_put(form, answer->kind);
	form_put_number(form, FENCES, answer->fence);
	form_put_number(form, ARRIVALS, answer->arrival);
	form_put(form, answer->free | answer->mine << 1 | answer->more << 2 |
	                       (answer->waiting > 0) << 3 | answer->counted << 4 |
	                       (unsigned)answer->latch_state << 5);
	if (answer->kind == LK__QUEUED || answer->kind == LK__SHOWN)
		form_put_wide(form,
		              answer->left_ms < 0 ? 0xffff : form_least(answer->left_ms, FAR_MS));
	if (answer->kind == LK__SHOWN) {
		form_put_number(form, FENCES, answer->opened);
		form_put_number(form, FENCES, answer->removed);
		form_put_number(form, FENCES, answer->next);
	}
	if (answer->kind == LK__MEMORY)
		form_put_marker(form, answer->epoch.text);
	form_put_wide(form, answer->grace_ms);
	form_put(form, answer->remaining + answer->replicas);
	form_put(form, answer->retryable | answer->by_script << 1 | answer->older << 2);
	if (form->world->bounds->servers)
		form_put_number(form, FENCES, answer->last);
}

void form_put_call(struct form *form, int index, const struct model_call *call)
{
	form_put(form, call->kind << 2 | call->executed << 1 | 1);
	if (call->executed) {
		put_answer(form, &call->answer);
		return;
	}
	form_put(form, call->only_try);
	form_put_marker(form, call->epoch.text);
	form_put_wide(form, call->lease_ms / 10);
	form_put(form, call->permits);
	form_put(form, (int64_t)call->number);
	if (call->nonce[0] && call->kind != LK__HAND)
		form_put_nonce(form, index, call->nonce);
	form_put_number(form, ARRIVALS, call->arrival);
	form_put_number(form, FENCES, call->fence);
	form_put_number(form, FENCES, call->kind == LK__ASK ? 0 : call->last_fence);
	if (form->world->bounds->servers) {
		form_put(form, call->leg_epoch);
		form_put_number(form, FENCES, call->proposal);
	}
}

void form_put_item(struct form *form, int index, const struct model_item *item)
{
	const struct lk__message *message = &item->message;

	form_put(form, item->kind << 4 | (int)message->kind);
	if (item->kind == ITEM_MESSAGE)
		form_put_nonce(form, index, message->nonce);
	if (form->world->bounds->servers)
		form_put(form, message->epoch);
	if (item->kind <= ITEM_BROADCAST) {
		form_put_number(form, FENCES, message->fence);
		form_put_wide(form, message->life_ms / 10);
		if (message->final)
			form_put_store_age(form, message->store_us);
		/* Compared with the beginning of a memory. */
		if (form->world->has_lost || world_may_lose(form->world))
			form_put_number(form, FENCES, (uint64_t)message->store_us);
		form_put(form, message->claim | (message->waiting > 0) << 1);
		form_put_wide(form, form_least(message->in_ms, FAR_MS));
	}
}

static void put_core(struct form *form, const struct model_client *client, int index)
{
	for (const struct lk__ticket *ticket = client->core.all_tickets; ticket;
	     ticket = ticket->next)
		put_ticket(form, client, index, ticket);
	form_put(form, 254);
	form_put_hold(form, client);
	if (form->world->bounds->kind == LK_KIND_LATCH)
		put_latch(form, client);
}

/* The grants that wait for replicas. */
static void put_granted(struct form *form, int index, const struct lk__session *session)
{
	form_put(form, session->confirm.state | session->confirm_due << 2);
	for (const struct lk__pending *at = session->granted.first; at; at = at->next) {
		form_put_nonce(form, index, at->ticket->nonce);
		form_put(form, at->kind | at->waited_for << 6 | at->more << 7);
		form_put_number(form, FENCES, at->fence);
	}
	form_put(form, 253);
}

static void put_client(struct form *form, const struct model_client *client, bool with_bounds)
{
	const struct model_link *link = &client->links[0];
	int index = world_index(form->world, client);

	form_put(form, client->alive | link->linked << 1 | link->heard << 2 | link->listens << 3 |
	                       client->gave_up << 4 | client->was_open << 5 |
	                       (client->owner != 0) << 6 | client->refused << 7);
	if (client->alive) {
		form_put(form, world_is_final(form->world, client));
		form_put(form, client->verb | client->stalled << 7);
		if (with_bounds) {
			form_put(form, client->scripts);
			form_put(form, client->begun);
		}
		if (form->world->bounds->kind == LK_KIND_SEMAPHORE)
			form_put_number(form, FENCES, client->seen);
		put_core(form, client, index);
		form_put(form, link->session.memory.state);
		put_granted(form, index, &link->session);
		form_put_marker(form, link->session.epoch.text);
	}
	form_put_wide(form, client->counted);
	form_put(form, client->stepped);
	form_put(form, link->call_count << 4 | link->late_count);
	form_put(form, link->inbox_count);
	for (int i = 0; i < link->call_count; i++)
		form_put_call(form, index, &link->calls[i]);
	for (int i = 0; i < link->late_count; i++)
		form_put_call(form, index, &link->late[i]);
	for (int i = 0; i < link->inbox_count; i++)
		form_put_item(form, index, &link->inbox[i]);
}

/* ---- All of it ---------------------------------------------------------------------------- */

static int by_value(const void *one, const void *other)
{
	uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

	return a < b ? -1 : a > b;
}

/* Replace each number by its rank.  Of a quorum, clients also compute with them (the next fence):
 * there a small difference stays as it is. */
static void rank(struct form *form, int class)
{
	uint64_t values[SLOTS_MAX];
	uint8_t ranks[SLOTS_MAX];
	size_t count = form->slot_count[class], distinct = 0;

	for (size_t i = 0; i < count; i++)
		values[i] = form->slots[class][i].value;
	qsort(values, count, sizeof(*values), by_value);
	for (size_t i = 0; i < count; i++) {
		uint64_t gap = i ? values[i] - values[distinct - 1] : 1;
		if (!gap)
			continue;
		if (!form->world->bounds->servers)
			gap = 1;
		else if (gap > GAP_MAX)
			gap = GAP_MAX;
		ranks[distinct] = (uint8_t)(gap + (distinct ? ranks[distinct - 1] : 0));
		values[distinct++] = values[i];
	}
	for (size_t i = 0; i < count; i++) {
		size_t at = 0;
		while (values[at] != form->slots[class][i].value)
			at++;
		form->bytes[form->slots[class][i].at] = ranks[at];
	}
}

static uint64_t hash_of(const uint8_t *bytes, size_t len)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325) ^ len, word;
	size_t i = 0;

	for (; i < len; i += sizeof(word)) {
		word = 0;
		memcpy(&word, bytes + i, len - i < sizeof(word) ? len - i : sizeof(word));
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 29;
	}
	sum = (sum ^ (sum >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	sum = (sum ^ (sum >> 27)) * UINT64_C(0x94d049bb133111eb);
	return sum ^ (sum >> 31);
}

uint64_t form_hash(struct form *form)
{
	rank(form, FENCES);
	rank(form, ARRIVALS);
	return hash_of(form->bytes, form->len);
}

void form_begin(struct form *form, const struct model_world *world)
{
	form->world = world;
	form->server = world->servers;
	form->len = form->nonce_count = 0;
	form->slot_count[FENCES] = form->slot_count[ARRIVALS] = 0;
}

#define LOOKS 24

/* A client's own form; then its numbers, which order the clients in the store. */
struct looks {
	uint64_t hash;
	uint64_t numbers[2][LOOKS];
};

static bool before(const struct looks *one, const struct looks *other)
{
	if (one->hash != other->hash)
		return one->hash < other->hash;
	for (int class = 0; class < 2; class ++)
		for (int i = 0; i < LOOKS; i++)
			if (one->numbers[class][i] != other->numbers[class][i])
				return one->numbers[class][i] < other->numbers[class][i];
	return one < other;
}

static void sort_clients(struct form *form, const struct model_world *world, bool with_bounds)
{
	struct looks looks[MODEL_CLIENTS];
	int count = world->bounds->clients;

	memset(looks, 0, sizeof(looks));

	for (int i = 0; i < count; i++) {
		form_begin(form, world);
		put_client(form, &world->clients[i], with_bounds);
		looks[i].hash = form_hash(form);
		for (int class = 0; class < 2; class ++)
			for (size_t j = 0; j < form->slot_count[class] && j < LOOKS; j++)
				looks[i].numbers[class][j] = form->slots[class][j].value;
	}
	for (int i = 0; i < count; i++) {
		form->place[i] = 0;
		for (int j = 0; j < count; j++)
			form->place[i] += j != i && before(&looks[j], &looks[i]);
	}
}

/* The rest of the bounds. */
void form_put_bounds(struct form *form)
{
	const struct model_world *world = form->world;

	form_put(form, world->ticks);
	form_put(form, world->ticks < world->bounds->ticks ? world->stalls : 0);
	form_put(form, world->faults);
	for (int i = 0; i < MODEL_VERBS; i++) {
		bool fault = i == DO_CUT || i == DO_CRASH || i == DO_CRASH_UNSEEN || i == DO_LOSE ||
		             i >= DO_COPY;
		form_put(form,
		         fault && world->faults == world->bounds->faults ? 0 : world->used[i]);
	}
}

/* Expired ones may still be found in the store, too. */
static void put_uses(struct form *form)
{
	const struct model_world *world = form->world;

	form_put(form, world->use_count);
	for (int i = 0; i < world->use_count; i++) {
		form_put_number(form, FENCES, world->uses[i].fence);
		form_put_store_age(form, (int64_t)world->uses[i].fence);
		form_put(form, world->uses[i].permits);
	}
}

static void put_memory(struct form *form)
{
	const struct model_world *world = form->world;
	const struct lua_store_process *process = lua_store_process(form->server->store);
	int64_t age_us = lua_store_time(form->server->store) - process->began_us;
	int64_t most_us = world_grace_ms(world->bounds) * 1000;

	form_put(form, world->has_lost | world->is_older << 1 | process->flushed << 2 |
	                       process->was_replica << 3);
	form_put(form, (int64_t)process->run);
	form_put_wide(form, form_least(age_us, most_us) / 1000000);
	form_put(form, -form->server->ahead_us / 1000000);
}

/* By the bytes: copies of different times are different.  Which of two replicas has which makes no
 * difference. */
static void put_copies(struct form *form)
{
	const struct model_world *world = form->world;
	uint64_t sums[MODEL_REPLICAS];
	int first;

	for (int i = 0; i < MODEL_REPLICAS; i++)
		sums[i] = world->copies[i] ? lua_store_image_hash(world->copies[i]) : 0;
	first = world->bounds->second &&
	        (world->received[1] > world->received[0] ||
	         (world->received[1] == world->received[0] && sums[1] < sums[0]));
	for (int i = 0; i < 8; i++)
		form_put(form, (int64_t)(sums[first] >> (8 * i) & 0xff));
	for (int i = 0; world->bounds->second && i < 8; i++)
		form_put(form, (int64_t)(sums[!first] >> (8 * i) & 0xff));
	if (world->bounds->better)
		form_put(form, world->received[0] == world->received[1]);
}

uint64_t world_hash(struct model_world *world, bool with_bounds)
{
	static struct form form;
	enum arena_mode mode = arena_use(ARENA_OFF);

	if (world->etcd) {
		arena_use(mode);
		return etcd_hash(world, with_bounds);
	}
	if (world->bounds->servers) {
		form_put_quorum(&form, world, with_bounds);
		arena_use(mode);
		return form_hash(&form);
	}
	sort_clients(&form, world, with_bounds);
	form_begin(&form, world);
	if (with_bounds) {
		form_put_bounds(&form);
		put_copies(&form);
	}
	form_put_number(&form, FENCES, world->seen);
	form_put_number(&form, FENCES, world->opened);
	put_memory(&form);
	put_uses(&form);
	for (int place = 0; place < world->bounds->clients; place++)
		for (int i = 0; i < world->bounds->clients; i++)
			if (form.place[i] == place)
				put_client(&form, &world->clients[i], with_bounds);
	form_put_keys(&form);
	arena_use(mode);
	return form_hash(&form);
}
