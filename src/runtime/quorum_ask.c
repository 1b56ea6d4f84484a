/* SPDX-License-Identifier: MIT
 * The same question to all servers of a quorum at once. */
#include "client.h"

#include <stdio.h>

/* May another link come up soon? */
static bool is_opening(const struct lk_client *client)
{
	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__session *session = &client->links[i]->session;
		if (!lk__session_is_up(session) && !session->backoff_ns)
			return true;
	}
	return false;
}

/* Can a majority show what it has granted?  Then others need not be waited for. */
static bool is_informed(const struct lk_client *client)
{
	unsigned informed = 0;

	for (unsigned i = 0; i < client->link_count; i++) {
		const struct lk__session *session = &client->links[i]->session;
		informed += lk__round_includes(client, i) &&
		            !lk__quorum_is_young(&client->core, session, lk__now_ns());
	}
	return informed >= client->core.quorum->majority || !is_opening(client);
}

/* Wait until that is true of the client, or until deadline_ns, but leave a part of the command
 * timeout for the question. */
static void await(struct lk_client *client, bool (*is_true)(const struct lk_client *),
                  int64_t deadline_ns)
{
	int64_t last_ns = lk__call_entered_ns() + client->target.command_timeout_ns / 2, now_ns;

	if (deadline_ns > last_ns)
		deadline_ns = last_ns;
	client->quorum_waiters++;
	while (!is_true(client) && (now_ns = lk__now_ns()) < deadline_ns && !client->core.closing)
		lk__client_wait_quiet(client, deadline_ns - now_ns);
	client->quorum_waiters--;
}

static bool is_settled(const struct lk_client *client)
{
	return !is_opening(client);
}

static unsigned included(const struct lk_client *client)
{
	unsigned count = 0;

	for (unsigned i = 0; i < client->link_count; i++)
		count += lk__round_includes(client, i);
	return count;
}

bool lk__round_await_more(struct lk_client *client, unsigned count, int64_t deadline_ns)
{
	await(client, is_settled, deadline_ns);
	return included(client) > count;
}

lk_err lk__round_begin(struct lk_client *client)
{
	int64_t deadline_ns = lk__call_entered_ns() + client->target.command_timeout_ns;
	struct lk__why why;

	if (lk__quorum_await(client, deadline_ns, false, &why))
		return lk__fail(&why);
	await(client, is_informed, LK__NEVER);
	return LK_OK;
}

bool lk__round_includes(const struct lk_client *client, unsigned link)
{
	const struct lk__session *session = &client->links[link]->session;

	return lk__session_is_up(session) && lk__quorum_accepts(&client->core, session);
}

/* Does an operator have to act?  Such a reason is worth more than a server that is down. */
static bool is_lasting(lk_err err)
{
	return err != LK_ECONN && err != LK_EUNKNOWN && err != LK_EAGAIN;
}

/* Free the questions without an answer.  Returns how many have one; *why: the reason of another,
 * LK_OK = there is none. */
static unsigned sort_out(struct lk_client *client, struct lk__round *round, struct lk__why *why)
{
	unsigned answered = 0;

	why->err = LK_OK;
	for (unsigned i = 0; i < client->link_count; i++) {
		struct lk__query *query = round->queries[i];
		const struct lk__session *session = &client->links[i]->session;
		const struct lk__why *reason = query ? &query->why : &session->why;
		if (query && !query->why.err) {
			answered++;
			continue;
		}
		if ((query || !lk__session_is_up(session)) && reason->err &&
		    (!why->err || (!is_lasting(why->err) && is_lasting(reason->err))))
			*why = *reason;
		lk__query_free(&client->core, query);
		round->queries[i] = NULL;
	}
	return answered;
}

static lk_err fail(const struct lk_client *client, unsigned answered, const struct lk__why *why)
{
	lk_err err = why->err ? why->err : LK_ECONN;

	return lk__failf(err, "%u of %u servers answered: %s", answered, client->link_count,
	                 why->err ? why->text : "others do not vote");
}

lk_err lk__round_ask(struct lk_client *client, struct lk__round *round, unsigned enough)
{
	struct lk__session *sessions[LK__SERVERS_MAX];
	struct lk__query *queries[LK__SERVERS_MAX];
	struct lk__call call = {0};
	unsigned count = 0, answered;
	struct lk__why why;

	for (unsigned i = 0; i < client->link_count; i++) {
		if (!round->queries[i])
			continue;
		sessions[count] = &client->links[i]->session;
		queries[count++] = round->queries[i];
	}
	if (!lk__park_init(&call.park))
		return lk__failf(LK_ENOMEM, "out of memory");
	lk__core_query_each(&client->core, sessions, lk__call_entered_ns(), &call.op, queries,
	                    count);
	lk__call_await(client, &call);
	lk__park_fini(&call.park);
	if (call.op.why.err)
		return lk__fail(&call.op.why);
	answered = sort_out(client, round, &why);
	return answered >= enough ? LK_OK : fail(client, answered, &why);
}

void lk__round_end(struct lk_client *client, struct lk__round *round)
{
	for (unsigned i = 0; i < client->link_count; i++) {
		lk__query_free(&client->core, round->queries[i]);
		round->queries[i] = NULL;
	}
}
