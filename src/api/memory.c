/* SPDX-License-Identifier: MIT
 * The server's memory: what it is, how much of its grace is left, and the end of that grace. */
#include "runtime/client.h"

#include <string.h>

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
static lk_err ask(struct lk_client *client, const struct lk__epoch *ends, struct lk__epoch *epoch)
{
	/* The store has one server. */
	struct lk__link *link = client->links[0];
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

lk_err lk_client_memory(lk_client *client, lk_memory *memory)
{
	struct lk__epoch epoch;
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) ||
	    (err = lk__refuse_null(memory, "memory")) || (err = lk__client_enter(client)))
		return err;
	err = ask(client, NULL, &epoch);
	lk__call_leave(client, NULL);
	if (!err)
		describe(client, &epoch, memory);
	return err;
}

static lk_err other_memory(void)
{
	return lk__failf(LK_EMISMATCH, "the server has lost its memory again");
}

/* _locked */
static lk_err end_grace(struct lk_client *client, const lk_memory *memory)
{
	struct lk__epoch epoch, ended;
	lk_memory found;
	lk_err err = ask(client, NULL, &epoch);

	if (err)
		return err;
	describe(client, &epoch, &found);
	if (memory && (memory->since_us != found.since_us || strcmp(memory->id, found.id) != 0))
		return other_memory();
	if (!found.grace_ms)
		return lk__failf(LK_EABSENT, "no grace");
	if ((err = ask(client, &epoch, &ended)))
		return err;
	return ended.len ? LK_OK : other_memory();
}

lk_err lk_client_end_grace(lk_client *client, const lk_memory *memory)
{
	lk_err err = lk__refuse_null(client, "client");

	if (err || (err = lk__client_enter(client)))
		return err;
	err = end_grace(client, memory);
	lk__call_leave(client, NULL);
	return err;
}
