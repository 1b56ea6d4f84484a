/* SPDX-License-Identifier: MIT
 * Queries of a quorum.  A ticket holds the lock if it stands on a majority of servers; one that
 * stands on fewer has not got enough of them yet, and waits. */
#include "quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAME_US 100000 /* fences of one grant, of which counters may be ahead */

/* ---- A question to several servers -------------------------------------------------------- */

/* What came of it.  is_open: more servers could change it. */
struct outcome {
	unsigned asked;
	bool is_open;
};

typedef struct lk__query *make_fn(void *arg, unsigned link);
typedef lk_err ask_fn(struct lk_client *client, void *arg, struct outcome *outcome);

/* Make the query for each server that votes, but for those left out (NULL = none); *asked: for how
 * many. */
static lk_err prepare(struct lk_client *client, struct lk__round *round, const bool *left_out,
                      make_fn *make, void *arg, unsigned *asked)
{
	*asked = 0;
	for (unsigned i = 0; i < client->link_count; i++) {
		if (!lk__round_includes(client, i) || (left_out && left_out[i]))
			continue;
		round->queries[i] = make(arg, i);
		if (!round->queries[i])
			return lk__failf(LK_ENOMEM, "out of memory");
		++*asked;
	}
	return LK_OK;
}

/* Ask, and once more if a server that was not connected yet decides. */
static lk_err ask_until_decided(struct lk_client *client, ask_fn *ask, void *arg)
{
	struct outcome outcome = {0};
	lk_err err = lk__round_begin(client);

	if (err)
		return err;
	err = ask(client, arg, &outcome);
	if ((err || outcome.is_open) && lk__round_await_more(client, outcome.asked, LK__NEVER))
		err = ask(client, arg, &outcome);
	return err;
}

/* ---- Numbers of several servers ----------------------------------------------------------- */

/* What each server says. */
struct numbers {
	unsigned count;
	int64_t list[LK__SERVERS_MAX];
};

static void add(struct numbers *numbers, int64_t number)
{
	numbers->list[numbers->count++] = number;
}

static int compare(const void *a, const void *b)
{
	int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;

	return (left > right) - (left < right);
}

/* The smallest number that so many do not exceed. */
static int64_t smallest(struct numbers *numbers, unsigned of)
{
	qsort(numbers->list, numbers->count, sizeof(numbers->list[0]), compare);
	return numbers->list[of - 1];
}

static int64_t median(struct numbers *numbers)
{
	return smallest(numbers, numbers->count / 2 + 1);
}

/* ---- Show --------------------------------------------------------------------------------- */

/* The listings of the servers, NULL = it did not answer. */
struct listings {
	struct lk__listing *of[LK__SERVERS_MAX];
	unsigned count, majority;
};

static const struct lk__entry *holder_at(const struct lk__listing *listing)
{
	return listing && listing->held ? &listing->entries[0] : NULL;
}

static bool is_same(const struct lk__entry *a, const struct lk__entry *b)
{
	return a && b && !strcmp(a->party, b->party);
}

/* The entry of the ticket that holds the lock at a majority, NULL if there is none. */
static const struct lk__entry *find_holder(const struct listings *listings)
{
	for (unsigned i = 0; i < listings->count; i++) {
		const struct lk__entry *holder = holder_at(listings->of[i]);
		unsigned count = 0;
		for (unsigned j = 0; j < listings->count; j++)
			count += is_same(holder, holder_at(listings->of[j]));
		if (count >= listings->majority)
			return holder;
	}
	return NULL;
}

/* The hold's fence is one that a majority has reached, and it lasts as long as a majority's legs.
 */
static void put_holder(const struct listings *listings, const struct lk__entry *holder,
                       struct lk__listing *result)
{
	struct numbers fences = {0}, left = {0};

	if (!holder)
		return;
	for (unsigned i = 0; i < listings->count; i++) {
		const struct lk__entry *leg = holder_at(listings->of[i]);
		if (!is_same(leg, holder))
			continue;
		add(&fences, (int64_t)leg->fence);
		add(&left, -leg->left_ms);
	}
	result->entries[0] = *holder;
	result->entries[0].fence = (uint64_t)smallest(&fences, listings->majority);
	result->entries[0].left_ms = -smallest(&left, listings->majority);
	result->held = result->count = 1;
}

/* The priority in a ticket's text, q1:client:nonce:lease:r:priority:epoch. */
static uint64_t priority_of(const struct lk__entry *entry)
{
	const char *at = entry->id;

	for (int colons = 0; at && colons < 5; colons++)
		at = strchr(at + (colons > 0), ':');
	return at ? strtoull(at + 1, NULL, 10) : 0;
}

static int compare_entries(const void *a, const void *b)
{
	const struct lk__entry *left = a, *right = b;
	uint64_t x = priority_of(left), y = priority_of(right);

	return x != y ? (x > y) - (x < y) : strcmp(left->party, right->party);
}

static void put_waiter(const struct lk__entry *entry, const struct lk__entry *holder,
                       struct lk__listing *result)
{
	if (is_same(entry, holder) || result->count == result->room)
		return;
	for (size_t i = result->held; i < result->count; i++)
		if (is_same(entry, &result->entries[i]))
			return;
	result->entries[result->count++] = *entry;
}

/* All tickets that wait, each once, in the order of the queues. */
static void put_waiters(const struct listings *listings, const struct lk__entry *holder,
                        size_t waiters, struct lk__listing *result)
{
	for (unsigned i = 0; i < listings->count && waiters; i++)
		for (size_t j = 0; listings->of[i] && j < listings->of[i]->count; j++)
			put_waiter(&listings->of[i]->entries[j], holder, result);
	if (result->count > result->held)
		qsort(result->entries + result->held, result->count - result->held,
		      sizeof(result->entries[0]), compare_entries);
	if (result->count > result->held + waiters)
		result->count = result->held + waiters;
}

static void put_numbers(const struct listings *listings, const struct lk__entry *holder,
                        struct lk__listing *result)
{
	struct numbers waiting = {0}, clocks = {0}, ranks = {0};

	for (unsigned i = 0; i < listings->count; i++) {
		const struct lk__listing *listing = listings->of[i];
		bool has_other = listing && listing->held && !is_same(holder_at(listing), holder);
		if (!listing)
			continue;
		add(&clocks, listing->store_us);
		add(&waiting, listing->waiting + has_other);
		if (listing->rank >= 0)
			add(&ranks, listing->rank + has_other);
	}
	result->store_us = median(&clocks);
	result->waiting = median(&waiting);
	result->rank = ranks.count ? median(&ranks) : -1;
}

static struct lk__listing *merge(const struct listings *listings, size_t waiters)
{
	const struct lk__entry *holder = find_holder(listings);
	size_t room = 1;
	struct lk__listing *result;

	for (unsigned i = 0; i < listings->count; i++)
		room += listings->of[i] ? listings->of[i]->count : 0;
	result = calloc(1, sizeof(*result) + room * sizeof(result->entries[0]));
	if (!result)
		return NULL;
	result->room = room;
	put_holder(listings, holder, result);
	put_waiters(listings, holder, waiters, result);
	put_numbers(listings, holder, result);
	return result;
}

/* The ticket of this client that waits, as that server knows it. */
static void name_mine(const struct lk__handle *handle, unsigned link, struct lk__query *query)
{
	for (const struct lk__wait_queue *queue = handle->name->queues; queue;
	     queue = queue->next) {
		const struct lk__ticket *ticket = queue->ticket;
		const struct lk__ticket *leg =
			ticket && ticket->legs && !queue->hold ? ticket->legs->leg[link] : NULL;
		if (leg && leg->state == LK__WAITING) {
			query->ticket = lk__ticket_id(leg);
			return;
		}
	}
}

/* A listing of each server, merged. */
struct shown {
	struct lk__handle *handle;
	size_t waiters;
	struct listings listings;
	struct lk__listing *result;
};

static struct lk__query *make_show(void *arg, unsigned link)
{
	struct shown *shown = arg;
	struct lk__query *query = lk__handle_query(shown->handle, LK__SHOW);
	struct lk__listing *listing =
		calloc(1, sizeof(*listing) + (1 + shown->waiters) * sizeof(listing->entries[0]));

	shown->listings.of[link] = listing;
	if (!query || !listing) {
		lk__query_free(&shown->handle->client->core, query);
		return NULL;
	}
	listing->room = 1 + shown->waiters;
	query->details.holders = 1;
	query->details.waiters = shown->waiters;
	query->into = listing;
	name_mine(shown->handle, link, query);
	return query;
}

static void drop_listing(struct listings *listings, unsigned link)
{
	free(listings->of[link]);
	listings->of[link] = NULL;
}

/* Do servers differ about when it was granted?  One that was down since then has a later time, and
 * one whose leg waited for the others an earlier one: with all servers, most have the right one. */
static bool is_age_open(const struct listings *listings)
{
	const struct lk__entry *holder = find_holder(listings);

	for (unsigned i = 0; i < listings->count && holder; i++) {
		const struct lk__entry *leg = holder_at(listings->of[i]);
		if (is_same(leg, holder) &&
		    (leg->fence > holder->fence + SAME_US || holder->fence > leg->fence + SAME_US))
			return true;
	}
	return false;
}

/* It is open if some of those that were asked have granted it, but no majority, or at different
 * times. */
static lk_err ask_show(struct lk_client *client, void *arg, struct outcome *outcome)
{
	struct shown *shown = arg;
	struct listings *listings = &shown->listings;
	struct lk__round round = {{0}};
	bool is_held = false;
	lk_err err = prepare(client, &round, NULL, make_show, shown, &outcome->asked);

	if (!err)
		err = lk__round_ask(client, &round, listings->majority);
	for (unsigned i = 0; i < client->link_count && !err; i++) {
		if (!round.queries[i])
			drop_listing(listings, i);
		is_held = is_held || holder_at(listings->of[i]);
	}
	free(shown->result);
	shown->result = err ? NULL : merge(listings, shown->waiters);
	if (!err && !shown->result)
		err = lk__failf(LK_ENOMEM, "out of memory");
	outcome->is_open = !err && is_held && (!shown->result->held || is_age_open(listings));
	lk__round_end(client, &round);
	for (unsigned i = 0; i < client->link_count; i++)
		drop_listing(listings, i);
	return err;
}

lk_err lk__quorum_show(struct lk__handle *handle, size_t waiters, struct lk__listing **result)
{
	struct lk_client *client = handle->client;
	struct shown shown = {.handle = handle,
	                      .waiters = waiters,
	                      .listings = {.count = client->link_count,
	                                   .majority = client->core.quorum->majority}};
	lk_err err = ask_until_decided(client, ask_show, &shown);

	*result = shown.result;
	return err;
}

int64_t lk__quorum_grace_ms(const struct lk_client *client, int64_t store_us)
{
	struct numbers left = {0};

	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__epoch *epoch = &client->links[i]->session.epoch;
		if (lk__round_includes(client, i))
			add(&left, lk__grace_left_ms(epoch, store_us, epoch->longest_ms));
	}
	return left.count < client->core.quorum->majority
	               ? 0
	               : smallest(&left, client->core.quorum->majority);
}

struct lk__link *lk__quorum_link(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++)
		if (lk__round_includes(client, i))
			return client->links[i];
	return NULL;
}

/* ---- Break -------------------------------------------------------------------------------- */

/* How long servers that are not connected yet may delay a break that a majority has confirmed. */
#define SPARE_NS INT64_C(100000000)

/* A break in progress, with a flag for each server. */
struct breaking {
	struct lk__handle *handle;
	const char *id; /* "" = only serve the queues */
	/* The same for all, as a release does: no commit is needed, and it is the time of the
	 * grant. */
	uint64_t proposal;
	bool left_out[LK__SERVERS_MAX];
	bool more[LK__SERVERS_MAX]; /* its run had its limit */
	unsigned answered;
	bool was_held;
};

static uint64_t now_us(const struct lk__handle *handle)
{
	return lk__quorum_time_us(&handle->client->core, lk__now_ns());
}

static struct lk__query *make_break(void *arg, unsigned link)
{
	struct breaking *breaking = arg;
	struct lk__query *query = lk__handle_query(breaking->handle, LK__BREAK);

	if (query) {
		query->details.subject = breaking->id;
		query->details.proposal = breaking->proposal;
	}
	breaking->left_out[link] = true;
	return query;
}

/* Leave at those that are not left out, and leave them out from now on. */
static lk_err leave(struct breaking *breaking, unsigned *asked)
{
	struct lk_client *client = breaking->handle->client;
	unsigned majority = client->core.quorum->majority, answered = breaking->answered;
	struct lk__round round = {{0}};
	lk_err err = prepare(client, &round, breaking->left_out, make_break, breaking, asked);

	if (!err)
		err = lk__round_ask(client, &round, majority > answered ? majority - answered : 0);
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__query *query = round.queries[i];
		if (!query || !query->done)
			continue;
		breaking->more[i] = query->answer.more;
		breaking->answered++;
		breaking->was_held = breaking->was_held || query->answer.mine;
	}
	lk__round_end(client, &round);
	return err;
}

static bool is_any(const bool flags[LK__SERVERS_MAX])
{
	for (unsigned i = 0; i < LK__SERVERS_MAX; i++)
		if (flags[i])
			return true;
	return false;
}

/* Serve the queues of servers whose run had its limit. */
static void serve(struct breaking *breaking)
{
	struct breaking again = {
		.handle = breaking->handle, .id = "", .proposal = now_us(breaking->handle)};
	unsigned asked;

	for (unsigned i = 0; i < LK__SERVERS_MAX; i++)
		again.left_out[i] = !breaking->more[i];
	again.answered = LK__SERVERS_MAX; /* all may fail */
	leave(&again, &asked);
	memcpy(breaking->more, again.more, sizeof(breaking->more));
}

lk_err lk__quorum_break(struct lk__handle *handle, const char *id, bool *was_held)
{
	struct lk_client *client = handle->client;
	struct breaking breaking = {.handle = handle, .id = id, .proposal = now_us(handle)};
	unsigned asked, more;
	lk_err err = leave(&breaking, &asked);

	/* One of them may have refused. */
	if (asked < client->link_count &&
	    lk__round_await_more(client, asked, err ? LK__NEVER : lk__now_ns() + SPARE_NS))
		err = leave(&breaking, &more);
	if (err && breaking.answered)
		err = lk__failf(LK_EUNKNOWN,
		                "%u of %u servers have confirmed that it was broken, %u are needed",
		                breaking.answered, client->link_count,
		                client->core.quorum->majority);
	while (!err && is_any(breaking.more) && !lk__ask_is_late(client))
		serve(&breaking);
	*was_held = !err && breaking.was_held;
	return err;
}

/* ---- Names -------------------------------------------------------------------------------- */

struct found {
	const char *name;
	size_t len;
	lk_kind kind;
};

static struct lk__query *make_kind(void *arg, unsigned link)
{
	const struct found *found = arg;

	(void)link;
	return lk__query_new(LK__KIND, LK_KIND_NONE, found->name, found->len);
}

static lk_err ask_kind(struct lk_client *client, void *arg, struct outcome *outcome)
{
	struct found *found = arg;
	struct lk__round round = {{0}};
	lk_err err = prepare(client, &round, NULL, make_kind, found, &outcome->asked);

	if (!err)
		err = lk__round_ask(client, &round, client->core.quorum->majority);
	for (unsigned i = 0; i < client->link_count && !err; i++)
		if (round.queries[i] && round.queries[i]->answer.noun != LK_KIND_NONE)
			found->kind = round.queries[i]->answer.noun;
	lk__round_end(client, &round);
	return err;
}

lk_err lk__quorum_kind(struct lk_client *client, const char *name, size_t len, lk_kind *kind)
{
	struct found found = {.name = name, .len = len, .kind = LK_KIND_NONE};
	lk_err err = ask_until_decided(client, ask_kind, &found);

	if (!err)
		*kind = found.kind;
	return err;
}

/* ---- A list of names ---------------------------------------------------------------------- */

/* The lists of the servers while they grow. */
struct lists {
	struct lk__names of[LK__SERVERS_MAX];
	char cursors[LK__SERVERS_MAX][sizeof(((struct lk__names *)0)->cursor)];
	bool is_over[LK__SERVERS_MAX]; /* it is complete, or its server has failed */
	unsigned complete;
};

static struct lk__query *make_list(void *arg, unsigned link)
{
	struct lists *lists = arg;
	struct lk__query *query = lk__query_new(LK__LIST, LK_KIND_NONE, NULL, 0);

	if (!query)
		return NULL;
	memcpy(lists->cursors[link], lists->of[link].cursor, sizeof(lists->cursors[link]));
	query->details.subject = lists->cursors[link];
	query->into = &lists->of[link];
	return query;
}

/* One more request to each server whose list is not over; *count: to how many. */
static lk_err ask_on(struct lk_client *client, struct lists *lists, unsigned *count)
{
	unsigned majority = client->core.quorum->majority;
	struct lk__round round = {{0}};
	lk_err err;

	lk__call_reenter();
	err = prepare(client, &round, lists->is_over, make_list, lists, count);
	if (!err && *count)
		err = lk__round_ask(client, &round,
		                    majority > lists->complete ? majority - lists->complete : 0);
	for (unsigned i = 0; i < client->link_count; i++) {
		bool ends = round.queries[i] && !strcmp(lists->of[i].cursor, "0");
		lists->complete += ends;
		lists->is_over[i] = lists->is_over[i] || ends || !round.queries[i];
	}
	lk__round_end(client, &round);
	return err;
}

/* False when out of memory. */
static bool append(struct lk__names *names, const struct lk__names *more)
{
	size_t count = names->count + more->count;
	struct lk__listed_name **list = realloc(names->list, (count + 1) * sizeof(*list));

	if (!list)
		return false;
	if (more->count)
		memcpy(list + names->count, more->list, more->count * sizeof(*list));
	names->list = list;
	names->count = names->cap = count;
	return true;
}

static void drop_list(struct lk__names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
}

lk_err lk__quorum_names(struct lk_client *client, struct lk__names *names)
{
	lk_err err = lk__round_begin(client);
	struct lists *lists = err ? NULL : calloc(1, sizeof(*lists));
	unsigned count = 1;

	if (!err && !lists)
		err = lk__failf(LK_ENOMEM, "out of memory");
	for (unsigned i = 0; i < client->link_count && !err; i++)
		snprintf(lists->of[i].cursor, sizeof(lists->of[i].cursor), "0");
	while (!err && count)
		err = ask_on(client, lists, &count);
	for (unsigned i = 0; i < client->link_count && lists; i++) {
		if (!err && append(names, &lists->of[i]))
			lists->of[i].count = 0; /* they are those of the caller now */
		else if (!err)
			err = lk__failf(LK_ENOMEM, "out of memory");
		drop_list(&lists->of[i]);
	}
	free(lists);
	return err;
}
