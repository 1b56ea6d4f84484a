/* SPDX-License-Identifier: MIT
 * Inboxes: in a Cluster a client gets the messages about a name on a sharded channel in the name's
 * slot.  A ticket uses it when it waits, when threads wait behind it, and when it has held for a
 * while; the channel lingers, so that a loop of waits subscribes once.  docs/cluster.md has the
 * reasons.
 *
 * An ask before the channel is confirmed only tries: a queued ticket whose client does not hear is
 * skipped. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_MS 100 /* out of memory */

struct lk__inbox *lk__inbox_new(const char *topic)
{
	size_t len = strlen(topic);
	struct lk__inbox *inbox = calloc(1, sizeof(*inbox) + len + 1);

	if (inbox)
		memcpy(inbox->topic, topic, len + 1);
	return inbox;
}

void lk__inbox_open(struct lk__name *name, struct lk__inbox *inbox)
{
	if (name->inbox)
		free(inbox);
	else if ((name->inbox = inbox))
		inbox->slot = (uint16_t)lk__slot_of(name->bytes, name->len);
}

/* ---- Events of the channel ---------------------------------------------------------------- */

static bool is_of(const struct lk__ticket *ticket, const struct lk__channel *channel)
{
	return ticket->uses_inbox && ticket->queue &&
	       ticket->queue->name->inbox->channel == channel;
}

static bool waits(const struct lk__ticket *ticket)
{
	return ticket->state == LK__ASKING || ticket->state == LK__WAITING;
}

/* Tickets that wait ask now: to be enqueued, or since messages may have been missed. */
static void ask_now(struct lk__core *core, int64_t now_ns, const struct lk__channel *channel)
{
	struct lk__ticket *ticket = core->all_tickets, *next;

	for (; ticket; ticket = next) {
		next = ticket->next;
		if (!is_of(ticket, channel))
			continue;
		if (waits(ticket))
			ticket->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, ticket);
	}
}

static void channel_on(struct lk__channel *channel, void *arg, int64_t now_ns)
{
	ask_now(arg, now_ns, channel);
}

static void channel_off(struct lk__channel *channel, void *arg, int64_t now_ns)
{
	ask_now(arg, now_ns, channel);
}

/* Waits end; holds do without messages. */
static void channel_refused(struct lk__channel *channel, void *arg, int64_t now_ns,
                            const struct lk__why *why)
{
	struct lk__core *core = arg;
	struct lk__ticket *ticket = core->all_tickets, *next;

	for (; ticket; ticket = next) {
		next = ticket->next;
		if (!is_of(ticket, channel))
			continue;
		ticket->queue->name->inbox->is_refused = true;
		lk__inbox_unuse(core, now_ns, ticket);
		if (waits(ticket))
			lk__ticket_refuse(core, now_ns, ticket, why->err, why->text);
	}
}

static void channel_message(struct lk__channel *channel, void *arg, int64_t now_ns,
                            const struct lk__message *message)
{
	(void)channel;
	(void)arg;
	(void)now_ns;
	(void)message; /* they are for tickets: lk__core_message() */
}

/* ---- Users -------------------------------------------------------------------------------- */

bool lk__inbox_use(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	static const struct lk__channel_events events = {channel_on, channel_refused,
	                                                 channel_message, channel_off};
	struct lk__name *name = ticket->queue->name;
	struct lk__inbox *inbox = name->inbox;
	struct lk__channel *channel;

	if (!core->route || ticket->uses_inbox)
		return true;
	if (!inbox->channel) {
		channel = lk__channel_new(inbox->topic);
		if (!channel)
			return false;
		inbox->channels = &name->session->channels;
		inbox->channel = lk__channel_open(inbox->channels, channel, &events, core);
	}
	ticket->uses_inbox = true;
	inbox->is_refused = false;
	lk__channel_use(inbox->channels, now_ns, inbox->channel);
	return true;
}

void lk__inbox_unuse(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	const struct lk__inbox *inbox = ticket->queue->name->inbox;

	(void)core;
	if (ticket->uses_inbox)
		lk__channel_unuse(inbox->channels, now_ns, inbox->channel);
	ticket->uses_inbox = false;
}

bool lk__inbox_is_on(const struct lk__core *core, const struct lk__ticket *ticket)
{
	const struct lk__inbox *inbox = ticket->queue->name->inbox;

	return !core->route || (inbox->channel && lk__channel_is_on(inbox->channel));
}

/* A name of another kind may have the same inbox. */
static bool is_shared(const struct lk__core *core, const struct lk__name *name)
{
	const struct lk__node *node =
		lk__table_first(&core->names, lk__hash(name->bytes, name->len, 0));

	for (; node; node = lk__table_next(node)) {
		const struct lk__name *other = (const struct lk__name *)node;
		if (other != name && other->inbox && other->inbox->channel == name->inbox->channel)
			return true;
	}
	return false;
}

void lk__inbox_close(struct lk__core *core, struct lk__name *name)
{
	struct lk__ticket *ticket;

	if (!name->inbox || !name->inbox->channel)
		return;
	for (ticket = core->all_tickets; ticket; ticket = ticket->next)
		if (ticket->queue && ticket->queue->name == name)
			lk__inbox_unuse(core, core->seen_ns, ticket);
	if (!is_shared(core, name))
		lk__channel_close(name->inbox->channels, name->inbox->channel);
	name->inbox->channel = NULL;
}

void lk__inbox_await(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	ticket->state = LK__ASKING;
	if (!ticket->may_be_known)
		ticket->first_sent_ns = 0; /* the store does not know it */
	if (!lk__inbox_use(core, now_ns, ticket))
		ticket->next_ns = now_ns + RETRY_MS * MS;
	else
		ticket->next_ns = lk__inbox_is_on(core, ticket) ? now_ns : LK__NEVER;
	lk__ticket_pursue(core, now_ns, ticket);
}
