/* SPDX-License-Identifier: MIT
 * The servers of a quorum: a link each, all of them dialled when the client opens.  The core
 * decides which of them vote. */
#include "client.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

#define MOMENT_NS (250 * LK__MS) /* for the reasons of the other servers */

bool lk__quorum_begin(struct lk_client *client)
{
	if (!lk__core_use_quorum(&client->core, client->store->links))
		return false;
	client->core.quorum->begins_ms = client->quorum_begins_ms;
	return true;
}

void lk__quorum_place(struct lk__link *link)
{
	const struct lk__endpoint *member = &link->client->target.members[link->index];
	char text[LK__PLACE_SIZE];

	snprintf(link->place.host, sizeof(link->place.host), "%s", member->host);
	link->place.port = member->port;
	link->name = strdup(lk__link_text(link, text));
}

void lk__quorum_aim(struct lk__link *link, struct lk__target *target)
{
	char text[LK__PLACE_SIZE];

	target->host = link->place.host; /* constant */
	target->port = link->place.port;
	lk__place_write(text, sizeof(text), target->host, target->port);
	lk__escape(target->text, sizeof(target->text), text, strlen(text));
}

/* The id of a memory is that of its server: the second word of the marker. */
static bool is_same(const struct lk__epoch *a, const struct lk__epoch *b)
{
	const char *x = strchr(a->text, ' '), *y = strchr(b->text, ' ');
	size_t len = x ? strcspn(x + 1, " ") + 1 : 0;

	return len > 2 && y && !strncmp(x, y, len) && y[len] == ' ';
}

bool lk__quorum_takes(const struct lk__link *link, struct lk__why *why)
{
	const struct lk_client *client = link->client;
	char text[LK__PLACE_SIZE], other[LK__PLACE_SIZE];

	for (unsigned i = 0; i < client->link_count && lk__client_is_quorum(client); i++) {
		const struct lk__link *twin = client->links[i];
		if (twin == link || !lk__session_is_up(&twin->session) ||
		    !is_same(&twin->session.epoch, &link->dialer.epoch))
			continue;
		lk__why_about(why, LK_EINVALID, lk__link_text(link, text), "the same server as %s",
		              lk__link_text(twin, other));
		return false;
	}
	return true;
}

/* A server that the URL names wrongly, NULL = none: it is no server of its own. */
static const struct lk__session *find_invalid(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__session *session = &client->links[i]->session;
		if (!lk__session_is_up(session) && session->backoff_ns > 0 &&
		    session->why.err == LK_EINVALID)
			return session;
	}
	return NULL;
}

/* How many servers were dialled in vain, and how many have no result yet. */
static unsigned count_failed(const struct lk_client *client, unsigned *open)
{
	unsigned failed = 0;

	*open = 0;
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__session *session = &client->links[i]->session;
		failed += !lk__session_is_up(session) && session->backoff_ns > 0;
		*open += !lk__session_is_up(session) && !session->backoff_ns;
	}
	return failed;
}

/* No longer only for the calls that need a link: a vote needs all of them.  Those that were never
 * up are lazy again when no call waits here. */
static void dial_all(struct lk_client *client, bool begins)
{
	for (unsigned i = 0; i < client->link_count; i++) {
		struct lk__session *session = &client->links[i]->session;
		session->lazy = !begins && client->target.lazy && !session->up_ns;
	}
	if (begins)
		lk__wake_notify(&client->loop.wake);
}

/* Do so many servers refuse a lazy client that waiting does not help?  Other clients are open: the
 * servers may accept them again. */
static bool is_refused(const struct lk_client *client)
{
	unsigned refused = 0;

	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__session *session = &client->links[i]->session;
		refused += session->state == LK__SESSION_DOWN && !session->up_ns &&
		           session->retry_ns > lk__now_ns() && lk__session_is_refused(session);
	}
	return client->target.lazy &&
	       refused > client->core.quorum->servers - client->core.quorum->majority;
}

/* A server that belongs to another quorum than the one that is being made, NULL = none. */
static const struct lk__link *find_taken(const struct lk_client *client)
{
	const struct lk__quorum *quorum = client->core.quorum;

	for (unsigned i = 0; i < client->link_count && quorum->begins_ms; i++) {
		const struct lk__epoch *epoch = &client->links[i]->session.epoch;
		if (epoch->set[0] && strcmp(epoch->set, quorum->own) != 0)
			return client->links[i];
	}
	return NULL;
}

static bool is_ready(const struct lk_client *client)
{
	const struct lk__quorum *quorum = client->core.quorum;

	if (quorum->begins_ms)
		return lk__quorum_votes(&client->core) == quorum->servers;
	return lk__quorum_is_ready(&client->core);
}

/* Can it not become ready before other servers are dialled again? */
static bool is_hopeless(const struct lk_client *client, unsigned *open)
{
	const struct lk__quorum *quorum = client->core.quorum;
	unsigned spare = quorum->begins_ms ? 0 : quorum->servers - quorum->majority;

	return count_failed(client, open) > spare;
}

static lk_err explain(const struct lk_client *client, struct lk__why *why)
{
	const struct lk__link *taken = find_taken(client);
	char text[LK__PLACE_SIZE];
	lk_err err;

	if (client->core.closing)
		return lk__why_set(why, LK_ECLOSED, "the client was closed");
	if (taken)
		return lk__why_about(why, LK_EMISMATCH, lk__link_text(taken, text),
		                     "belongs to a quorum already");
	if (find_invalid(client)) {
		*why = find_invalid(client)->why;
		return why->err;
	}
	err = lk__quorum_explain(&client->core, why);
	return err ? err : lk__why_set(why, LK_ECONN, "not all servers were reached in time");
}

lk_err lk__quorum_await(struct lk_client *client, int64_t deadline_ns, bool gives_up,
                        struct lk__why *why)
{
	bool gave_up = false, ready = is_ready(client);
	unsigned open;

	if (!ready)
		dial_all(client, true);
	client->quorum_waiters++;
	while (!(ready = is_ready(client) && !find_taken(client)) && !client->core.closing) {
		int64_t now_ns = lk__now_ns();
		if (find_taken(client) || (gives_up && find_invalid(client)) ||
		    is_refused(client) || lk__quorum_misfits(&client->core, NULL))
			break;
		/* The reason may be with a server that has not answered yet. */
		if (gives_up && is_hopeless(client, &open)) {
			if (!gave_up && now_ns + MOMENT_NS < deadline_ns)
				deadline_ns = now_ns + MOMENT_NS;
			gave_up = true;
			if (!open)
				break;
		}
		if (now_ns >= deadline_ns)
			break;
		lk__client_wait_quiet(client, deadline_ns - now_ns);
	}
	if (!--client->quorum_waiters)
		dial_all(client, false);
	return ready ? LK_OK : explain(client, why);
}
