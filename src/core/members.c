/* SPDX-License-Identifier: MIT
 * Which servers form the quorum.  Each member's marker names its set: an id, the number of servers,
 * and the longest lease W.  A server votes only if it belongs to the set that a majority belongs
 * to, or all that are marked, when all servers have answered.
 *
 * A server that has lost its memory has no set any more: it is marked again, and is young for W.
 * Servers without any mark are made a set by the first client that has read all of them.  Two
 * clients may do so at once: each marks the server with the smallest id of its memory first, and
 * goes on with the set that it finds there then.
 *
 * The mark has the server's place in the set, 1 to N.  Clients with different lists of servers
 * could get disjoint majorities: {a, d} and {b, c} of the lists a, b, d and a, b, c, where d was
 * empty and has joined the set.  A client that knows one list only cannot distinguish d from c
 * after a loss of its memory.  But a client that lists both finds their place twice, and the later
 * one does not vote there.  So no place may be given twice for another reason: a server gets a free
 * place only if there are as many of them as servers without a mark, by the order of their memory
 * ids; else its place is 0, unknown.  All clients that read the same marks give the same places,
 * whatever the order of their lists, and also when some of the places were given meanwhile. */
#include "quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_NS (100 * MS)
#define REFUSED_NS (1000 * MS)
#define NUMBER_SIZE 24 /* "server 1" */
#define REST_SIZE 16   /* "; 3 more" */

bool lk__core_use_quorum(struct lk__core *core, unsigned servers)
{
	struct lk__quorum *quorum = calloc(1, sizeof(*quorum));

	if (!quorum)
		return false;
	quorum->servers = servers;
	quorum->majority = servers / 2 + 1;
	core->quorum = quorum;
	return true;
}

/* ---- Counting ----------------------------------------------------------------------------- */

static bool is_of_set(const struct lk__epoch *epoch, const char *set, int64_t longest_ms)
{
	return epoch->len && set[0] && !strcmp(epoch->set, set) && epoch->longest_ms == longest_ms;
}

/* The id of the memory is the first word that differs. */
static bool has_smaller_id(const struct lk__epoch *a, const struct lk__epoch *b)
{
	return strcmp(a->text, b->text) < 0;
}

static bool is_earlier(const struct lk__epoch *a, const struct lk__epoch *b)
{
	return a->since_us < b->since_us || (a->since_us == b->since_us && has_smaller_id(a, b));
}

/* The server that has the same place in the set, and had it before; NULL = none.  One that is not
 * connected now has not lost its place. */
static const struct lk__session *find_twin(const struct lk__core *core,
                                           const struct lk__session *session)
{
	const struct lk__epoch *own = &session->epoch;

	for (unsigned i = 0; i < core->link_count && own->set_place; i++) {
		const struct lk__epoch *other = &core->links[i]->epoch;
		if (other != own && other->set_place == own->set_place &&
		    is_of_set(other, own->set, own->longest_ms) && is_earlier(other, own))
			return core->links[i];
	}
	return NULL;
}

bool lk__quorum_accepts(const struct lk__core *core, const struct lk__session *session)
{
	const struct lk__quorum *quorum = core->quorum;

	/* Without INFO a restart with an older file would go unseen. */
	return !session->epoch.is_partial &&
	       is_of_set(&session->epoch, quorum->set, quorum->longest_ms) &&
	       !find_twin(core, session);
}

unsigned lk__quorum_votes(const struct lk__core *core)
{
	unsigned votes = 0;

	for (unsigned i = 0; i < core->link_count; i++)
		votes += lk__session_is_up(core->links[i]) &&
		         lk__quorum_accepts(core, core->links[i]);
	return votes;
}

bool lk__quorum_is_ready(const struct lk__core *core)
{
	return lk__quorum_votes(core) >= core->quorum->majority;
}

/* How many servers, of those that have answered, have that set? */
static unsigned count_set(const struct lk__core *core, const struct lk__epoch *like)
{
	unsigned count = 0;

	for (unsigned i = 0; i < core->link_count; i++)
		count += is_of_set(&core->links[i]->epoch, like->set, like->longest_ms);
	return count;
}

static bool have_all_answered(const struct lk__core *core)
{
	unsigned answered = 0;

	for (unsigned i = 0; i < core->link_count; i++)
		answered += core->links[i]->epoch.len > 0;
	return answered == core->quorum->servers;
}

/* The marker whose set is the quorum's, NULL if that is unknown. */
static const struct lk__epoch *find_set(const struct lk__core *core)
{
	const struct lk__epoch *found = NULL;
	unsigned marked = 0;

	for (unsigned i = 0; i < core->link_count; i++) {
		const struct lk__epoch *epoch = &core->links[i]->epoch;
		if (!epoch->set[0])
			continue;
		marked++;
		if (epoch->set_servers == core->quorum->servers &&
		    (!found || count_set(core, epoch) > count_set(core, found)))
			found = epoch;
	}
	if (!found || count_set(core, found) >= core->quorum->majority)
		return found;
	return have_all_answered(core) && count_set(core, found) == marked ? found : NULL;
}

/* ---- Marking ------------------------------------------------------------------------------ */

/* The place of a server without a mark: see the top. */
static unsigned choose_place(const struct lk__core *core, const struct lk__session *session,
                             const char *set, int64_t longest_ms)
{
	unsigned unmarked = 0, before = 0, left = 0, place = 0;
	bool is_taken[LK__SERVERS_MAX + 1] = {false};

	for (unsigned i = 0; i < core->link_count; i++) {
		const struct lk__epoch *epoch = &core->links[i]->epoch;
		if (epoch->len && !epoch->set[0]) {
			unmarked++;
			before += has_smaller_id(epoch, &session->epoch);
		} else if (is_of_set(epoch, set, longest_ms) &&
		           epoch->set_place <= LK__SERVERS_MAX) {
			is_taken[epoch->set_place] = true;
		}
	}
	for (unsigned i = 1; i <= core->quorum->servers; i++)
		if (!is_taken[i] && left++ == before)
			place = i;
	return left == unmarked ? place : 0;
}

static void mark(const struct lk__core *core, int64_t now_ns, struct lk__session *session,
                 const char *set, int64_t longest_ms)
{
	if (!lk__session_is_up(session) || session->epoch.set[0])
		return;
	/* Not at once again, if the server refuses to store the mark. */
	if (session->set[0] && now_ns - session->marked_ns < RETRY_NS)
		return;
	session->marked_ns = now_ns;
	snprintf(session->set, sizeof(session->set), "%s %u/%u %lld", set,
	         choose_place(core, session, set, longest_ms), core->quorum->servers,
	         (long long)longest_ms);
	lk__memory_ask(session);
}

/* The server refused to store the mark, or the link was lost with the request. */
int64_t lk__members_due(const struct lk__session *session)
{
	int64_t last_ns = session->marked_ns;

	if (!session->set[0] || session->epoch.set[0] || !lk__session_is_up(session) ||
	    session->memory.state != LK__IDLE)
		return LK__NEVER;
	if (last_ns < session->memory_try_ns)
		last_ns = session->memory_try_ns;
	return last_ns + REFUSED_NS;
}

/* No server has a mark.  Make a set once all have answered. */
static void make_set(struct lk__core *core, int64_t now_ns)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz234567";
	struct lk__quorum *quorum = core->quorum;
	struct lk__session *first = NULL;

	for (unsigned i = 0; i < core->link_count; i++) {
		struct lk__session *session = core->links[i];
		if (!session->epoch.len || session->epoch.set[0])
			return;
		if (!first || has_smaller_id(&session->epoch, &first->epoch))
			first = session;
	}
	if (core->link_count < quorum->servers || !first)
		return;
	for (int i = 0; !quorum->own[LK__NONCE_SIZE - 2]; i++)
		quorum->own[i] = digits[lk__core_random(core) % (sizeof(digits) - 1)];
	mark(core, now_ns, first, quorum->own,
	     quorum->begins_ms ? quorum->begins_ms : LK__LONGEST_MS);
}

/* Let the tickets see that no majority will vote. */
static void refuse_misfits(struct lk__core *core)
{
	struct lk__ticket *ticket;

	if (!lk__quorum_misfits(core, NULL))
		return;
	for (ticket = core->all_tickets; ticket; ticket = ticket->next)
		if (ticket->legs)
			lk__quorum_touch(core, ticket);
}

void lk__members_judge(struct lk__core *core, int64_t now_ns)
{
	struct lk__quorum *quorum = core->quorum;
	const struct lk__epoch *epoch = find_set(core);
	struct lk__ticket *ticket = core->all_tickets, *next;

	if (!epoch) {
		make_set(core, now_ns);
		refuse_misfits(core);
		return;
	}
	if (quorum->begins_ms && strcmp(epoch->set, quorum->own) != 0)
		return; /* the servers have holders: none of them is new in that set */
	memcpy(quorum->set, epoch->set, sizeof(quorum->set));
	quorum->longest_ms = epoch->longest_ms;
	for (unsigned i = 0; i < core->link_count; i++)
		mark(core, now_ns, core->links[i], quorum->set, quorum->longest_ms);
	/* Legs may ask servers that did not vote before. */
	for (; ticket; ticket = next) {
		next = ticket->next;
		if (lk__ticket_whole(ticket))
			lk__ticket_pursue(core, now_ns, ticket);
		if (ticket->legs)
			lk__quorum_touch(core, ticket);
	}
}

/* ---- Explanations ------------------------------------------------------------------------- */

/* How long the server grants nothing yet, ms. */
static int64_t young_ms(const struct lk__core *core, const struct lk__session *session,
                        int64_t now_ns)
{
	int64_t passed_us = (now_ns - session->clock_ns) / 1000;

	return lk__grace_left_ms(&session->epoch, session->clock_us + passed_us,
	                         core->quorum->longest_ms);
}

bool lk__quorum_is_young(const struct lk__core *core, const struct lk__session *session,
                         int64_t now_ns)
{
	return young_ms(core, session, now_ns) > 0;
}

/* Every reason names its server in the same way.  The result is escaped. */
static const char *name_of(const struct lk__session *session, char number[NUMBER_SIZE])
{
	snprintf(number, NUMBER_SIZE, "server %u", session->index + 1U);
	return session->name ? session->name : number;
}

/* Why one server does not vote. */
struct reason {
	const struct lk__session *session;
	struct lk__why why; /* without the server's name */
	bool is_result;     /* of the reasons of other servers */
	bool is_named;      /* in the text */
};

/* The reason why it is not connected, which names the server. */
static void copy_reason(const struct lk__session *session, struct lk__why *why)
{
	char number[NUMBER_SIZE];
	const char *name = name_of(session, number);
	const size_t len = strlen(name);

	*why = session->why;
	why->err = lk__session_unasked(session);
	if (strlen(why->text) > len + 2 && !memcmp(why->text, name, len) &&
	    !memcmp(why->text + len, ": ", 2))
		memmove(why->text, why->text + len + 2, strlen(why->text + len + 2) + 1);
}

/* Why the server does not vote.  False if it does. */
static bool explain(const struct lk__core *core, const struct lk__session *session,
                    struct reason *reason)
{
	const struct lk__epoch *epoch = &session->epoch;
	int64_t ms = young_ms(core, session, core->seen_ns);
	struct lk__why *why = &reason->why;
	char other[NUMBER_SIZE];

	*reason = (struct reason){.session = session};
	if (!lk__session_is_up(session) && session->why.text[0])
		copy_reason(session, why);
	else if (!lk__session_is_up(session))
		lk__why_set(why, LK_ECONN, "not connected yet");
	else if (epoch->is_partial)
		lk__why_set(why, LK_EAUTH, "this user may not run INFO (right +info)");
	else if (lk__quorum_accepts(core, session) && ms)
		lk__why_set(why, LK_ETIMEDOUT, "has lost its memory, votes in %lld s",
		            (long long)(ms + 999) / 1000);
	else if (lk__quorum_accepts(core, session))
		return false;
	else if (is_of_set(epoch, core->quorum->set, core->quorum->longest_ms))
		lk__why_set(why, LK_EFOREIGN,
		            "has the same place in the quorum as %s: correct the URL",
		            name_of(find_twin(core, session), other));
	else if (epoch->set[0] && core->quorum->set[0])
		lk__why_set(why, LK_EFOREIGN, "belongs to another set of servers");
	else if (epoch->set[0] && epoch->set_servers != core->quorum->servers)
		lk__why_set(why, LK_EFOREIGN, "belongs to a quorum of %u servers",
		            epoch->set_servers);
	else if (epoch->set[0] && have_all_answered(core))
		lk__why_set(why, LK_EFOREIGN, "belongs to set %s, others do not", epoch->set);
	else
		reason->is_result = lk__why_set(why, LK_ECONN,
		                                "its set is not known until all have "
		                                "answered") != LK_OK;
	return true;
}

/* Append to an escaped text, which is cut at its end. */
static void append(struct lk__why *why, const char *text)
{
	size_t len = strlen(why->text), more = strlen(text);

	if (more > sizeof(why->text) - 1 - len)
		more = sizeof(why->text) - 1 - len;
	memcpy(why->text + len, text, more);
	why->text[len + more] = '\0';
}

/* The servers that have this reason, and the reason.  Returns how many. */
static unsigned put_together(const struct reason *first, const struct reason *end,
                             struct lk__why *text)
{
	char number[NUMBER_SIZE];
	unsigned count = 0;

	*text = (struct lk__why){0};
	for (const struct reason *same = first; same < end; same++) {
		if (strcmp(same->why.text, first->why.text) != 0)
			continue;
		append(text, count++ ? ", " : "");
		append(text, name_of(same->session, number));
	}
	append(text, ": ");
	append(text, first->why.text);
	return count;
}

/* Append the reasons, each of them once and whole; the servers of those that do not fit are
 * counted. */
static void append_all(struct lk__why *why, struct reason *reasons, unsigned count)
{
	struct lk__why text;
	char rest[REST_SIZE];
	unsigned left = count;

	for (unsigned i = 0; i < count; i++) {
		const size_t used = strlen(why->text) + 2;
		unsigned together;
		if (reasons[i].is_named)
			continue;
		together = put_together(&reasons[i], reasons + count, &text);
		if (i && used + strlen(text.text) + (together < left ? REST_SIZE : 0) >=
		                 sizeof(why->text))
			continue;
		append(why, i ? "; " : ": ");
		append(why, text.text);
		left -= together;
		for (unsigned j = i; j < count; j++)
			reasons[j].is_named |= !strcmp(reasons[i].why.text, reasons[j].why.text);
	}
	snprintf(rest, sizeof(rest), "; %u more", left);
	append(why, left ? rest : "");
}

/* Does waiting not help? */
static bool is_lasting(lk_err err)
{
	return err != LK_OK && err != LK_ECONN && err != LK_EAGAIN && err != LK_EUNKNOWN &&
	       err != LK_ETIMEDOUT;
}

/* The smaller, the more it says: the first one is the error. */
static unsigned rank_of(const struct reason *reason)
{
	if (is_lasting(reason->why.err))
		return 0;
	return reason->is_result ? 3 : reason->why.err == LK_ETIMEDOUT ? 2 : 1;
}

/* A new quorum needs all servers, young or not, and has no set yet. */
static bool hinders(const struct lk__core *core, const struct reason *reason)
{
	return !core->quorum->begins_ms || rank_of(reason) < 2;
}

/* The reasons of all servers that do not vote, in the order of their ranks.  Returns how many. */
static unsigned explain_all(const struct lk__core *core, struct reason reasons[LK__SERVERS_MAX])
{
	struct reason reason;
	unsigned count = 0;

	for (unsigned i = 0; i < core->link_count; i++) {
		unsigned at = count;
		if (!explain(core, core->links[i], &reason) || !hinders(core, &reason))
			continue;
		for (; at > 0 && rank_of(&reasons[at - 1]) > rank_of(&reason); at--)
			reasons[at] = reasons[at - 1];
		reasons[at] = reason;
		count++;
	}
	return count;
}

bool lk__quorum_misfits(const struct lk__core *core, struct lk__why *why)
{
	const struct lk__quorum *quorum = core->quorum;
	const struct lk__session *found = NULL;
	char number[NUMBER_SIZE];
	unsigned count = 0;

	for (unsigned i = 0; i < core->link_count; i++) {
		const struct lk__session *session = core->links[i];
		if (!lk__session_is_up(session) || !session->epoch.set[0] ||
		    session->epoch.set_servers == quorum->servers)
			continue;
		found = session;
		count++;
	}
	if (count <= quorum->servers - quorum->majority)
		return false;
	/* As a part of the URL that can be judged without its servers. */
	lk__why_set(why, LK_EINVALID,
	            "host: %u in the list, but %s belongs to a quorum of %u: list all its servers",
	            quorum->servers, name_of(found, number), found->epoch.set_servers);
	return true;
}

lk_err lk__quorum_explain(const struct lk__core *core, struct lk__why *why)
{
	const struct lk__quorum *quorum = core->quorum;
	struct reason reasons[LK__SERVERS_MAX] = {0};
	unsigned count = explain_all(core, reasons);

	if (lk__quorum_misfits(core, why))
		return why->err;
	if (!count || (!quorum->begins_ms && quorum->servers - count >= quorum->majority))
		return LK_OK;
	if (quorum->begins_ms)
		lk__why_set(why, reasons[0].why.err, "a new quorum needs all %u servers",
		            quorum->servers);
	else
		lk__why_set(why, reasons[0].why.err, "%u of %u servers vote, %u are needed",
		            quorum->servers - count, quorum->servers, quorum->majority);
	append_all(why, reasons, count);
	return why->err;
}
