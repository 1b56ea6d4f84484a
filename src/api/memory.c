/* SPDX-License-Identifier: MIT
 * The server's memory: what it is, how much of its grace is left, and the end of that grace.  In a
 * Cluster each master has one. */
#include "runtime/client.h"

#include <stdlib.h>
#include <string.h>

/* Masters of a Cluster that lose their memories within this time have lost them at once. */
#define AT_ONCE_MS 1000

/* Fill the result from a marker, "1 <id> <since>". */
static void describe(const struct lk_client *client, const struct lk__epoch *epoch,
                     lk_memory *memory)
{
	const char *id = epoch->text + strcspn(epoch->text, " ");
	size_t len;

	id += *id == ' ';
	len = strcspn(id, " ");
	memset(memory, 0, sizeof(*memory));
	memcpy(memory->id, id, len < sizeof(memory->id) ? len : sizeof(memory->id) - 1);
	memory->since_us = epoch->since_us;
	memory->age_ms = epoch->since_us ? (epoch->read_us - epoch->since_us) / 1000 : 0;
	memory->grace_ms = lk__grace_left_ms(epoch, epoch->read_us, client->target.grace_ms);
	memory->is_partial = epoch->is_partial;
}

/* Send a query whose answer is a marker.  ends: the memory whose grace ends, NULL = only ask.
 * *epoch is empty if the server has another memory than that.  _locked */
static lk_err ask(struct lk__link *link, const struct lk__epoch *ends, struct lk__epoch *epoch)
{
	struct lk_client *client = link->client;
	struct lk__query *query =
		lk__query_new(ends ? LK__END_GRACE : LK__RECALL, LK_KIND_NONE, NULL, 0);
	lk_err err;

	if (query && ends)
		query->details.subject = ends->text;
	*epoch = (struct lk__epoch){0};
	err = lk__ask(link, query);
	if (!err && query->answer.kind == LK__MEMORY)
		*epoch = query->answer.epoch;
	else if (!err && !(ends && query->answer.kind == LK__STALE))
		err = lk__malformed_answer(client);
	lk__query_free(&client->core, query);
	/* The client itself notices the other memory. */
	if (!err && strcmp(epoch->text, link->session.epoch.text) != 0) {
		lk__memory_ask(&link->session);
		lk__client_finish(client);
	}
	return err;
}

/* The memories of all masters, in the order of their links. */
struct memories {
	unsigned count;
	struct lk__link *links[LK__NODES_MAX];
	struct lk__epoch epochs[LK__NODES_MAX];
	lk_memory list[LK__NODES_MAX];
};

/* _locked */
static lk_err ask_all(struct lk_client *client, struct memories *memories)
{
	lk_err err = lk__cluster_learn(client);

	memories->count = 0;
	for (unsigned i = 0; i < client->link_count && !err; i++) {
		struct lk__link *link = client->links[i];
		unsigned n = memories->count;
		if (!lk__core_has_slots(&client->core, &link->session))
			continue;
		if (n)
			lk__call_reenter();
		memories->links[n] = link;
		if ((err = ask(link, NULL, &memories->epochs[n])))
			break;
		describe(client, &memories->epochs[n], &memories->list[n]);
		memories->count++;
	}
	if (!err && !memories->count)
		err = lk__failf(LK_ECONN, "%s: no master is known", client->target.text);
	return err;
}

/* The one with the longest grace; without any, the youngest. */
static const lk_memory *find_longest(const struct memories *memories)
{
	const lk_memory *found = &memories->list[0];

	for (unsigned i = 1; i < memories->count; i++) {
		const lk_memory *other = &memories->list[i];
		if (other->grace_ms > found->grace_ms ||
		    (other->grace_ms == found->grace_ms && other->since_us > found->since_us))
			found = other;
	}
	return found;
}

/* Each server of a quorum judges its own memory. */
static lk_err refuse_quorum(const struct lk_client *client)
{
	if (!lk__client_is_quorum(client))
		return LK_OK;
	return lk__failf(LK_EUNSUPPORTED,
	                 "a quorum has no grace: a server that has lost its memory does not vote "
	                 "until the quorum's longest lease is over");
}

lk_err lk_client_memory(lk_client *client, lk_memory *memory)
{
	struct memories *memories;
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(memory, "memory")) || (err = refuse_quorum(client)))
		return err;
	memories = malloc(sizeof(*memories));
	if (!memories)
		return lk__failf(LK_ENOMEM, "out of memory");
	if (!(err = lk__client_enter(client))) {
		err = ask_all(client, memories);
		lk__call_leave(client, NULL);
		if (!err)
			*memory = *find_longest(memories);
	}
	free(memories);
	return err;
}

static lk_err other_memory(void)
{
	return lk__failf(LK_EMISMATCH, "the server has lost its memory again");
}

/* Did no master lose its memory after the caller asked for this one?  Its grace was the longest
 * then. */
static bool is_latest(const struct memories *memories, const lk_memory *memory)
{
	const lk_memory *found = NULL;

	for (unsigned i = 0; i < memories->count && !found; i++)
		if (memory->since_us == memories->list[i].since_us &&
		    !strcmp(memory->id, memories->list[i].id))
			found = &memories->list[i];
	return found && find_longest(memories)->grace_ms <= found->grace_ms + AT_ONCE_MS;
}

/* _locked */
static lk_err end_grace(struct lk_client *client, struct memories *memories,
                        const lk_memory *memory)
{
	struct lk__epoch ended;
	bool any = false;
	lk_err err = ask_all(client, memories);

	if (err)
		return err;
	if (memory && !is_latest(memories, memory))
		return other_memory();
	for (unsigned i = 0; i < memories->count && !err; i++) {
		if (!memories->list[i].grace_ms)
			continue;
		any = true;
		lk__call_reenter();
		err = ask(memories->links[i], &memories->epochs[i], &ended);
		if (!err && !ended.len)
			err = other_memory();
	}
	return err || any ? err : lk__failf(LK_EABSENT, "no grace");
}

lk_err lk_client_end_grace(lk_client *client, const lk_memory *memory)
{
	struct memories *memories;
	lk_err err = lk__refuse_null(client, "client");

	if (err || (err = refuse_quorum(client)))
		return err;
	memories = malloc(sizeof(*memories));
	if (!memories)
		return lk__failf(LK_ENOMEM, "out of memory");
	if (!(err = lk__client_enter(client))) {
		err = end_grace(client, memories, memory);
		lk__call_leave(client, NULL);
	}
	free(memories);
	return err;
}
