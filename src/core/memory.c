/* SPDX-License-Identifier: MIT
 * The server's memory: what it knows without a gap since a moment.  The link knows the marker of
 * that memory; scripts that grant compare it, and do nothing for another one.  When the marker has
 * changed, this client takes back the holds that are valid by its own clock: for a grace after the
 * loss, the server grants nothing new, so no other client can hold them.  docs/redis.md has the
 * rules and the reasons. */
#include "core.h"

#include "counters.h"
#include "query.h"
#include "quorum.h"

#include <string.h>

#define MS INT64_C(1000000)
#define RETRY_MS 100
#define BELIEF_NS (1000 * MS) /* in a Cluster: how long a marker that was read is believed */
#define CHECK_NS (2500 * MS)  /* while holds or waits need the link: a part of the grace */

/* Ask for the marker, unless a question for it has no answer yet. */
void lk__memory_ask(struct lk__session *session)
{
	struct lk__pending *request = &session->memory;

	if (request->state != LK__IDLE || !lk__session_is_up(session))
		return;
	*request = (struct lk__pending){.session = session, .kind = LK__EPOCH};
	lk__pending_enqueue(session, request);
}

/* In a Cluster no script can compare the marker, which is in another slot: the client reads it
 * ahead of what may grant, in the same write, unless it did so a moment ago. */
bool lk__memory_is_old(const struct lk__core *core, const struct lk__session *session,
                       int64_t now_ns)
{
	return core->route && now_ns - session->memory_ns > BELIEF_NS;
}

int64_t lk__memory_due(const struct lk__core *core, const struct lk__session *session)
{
	int64_t last_ns = session->memory_ns;

	if (core->quorum)
		return lk__members_due(session);
	if (!core->route || !session->users || !lk__session_is_up(session) ||
	    session->memory.state != LK__IDLE)
		return LK__NEVER;
	if (last_ns < session->memory_try_ns)
		last_ns = session->memory_try_ns;
	return last_ns + CHECK_NS;
}

void lk__ticket_stale(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	ticket->next_ns = now_ns + RETRY_MS * MS; /* the new marker comes sooner */
	lk__memory_ask(ticket->session);
	lk__ticket_pursue(core, now_ns, ticket);
}

void lk__ticket_doubt(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket)
{
	ticket->is_doubted = true;
	lk__ticket_stale(core, now_ns, ticket);
}

/* The new marker changes what a hold's ticket does next. */
static void judge(struct lk__core *core, int64_t now_ns, struct lk__ticket *ticket, bool changed)
{
	bool doubted = ticket->is_doubted;

	if (ticket->is_leg) {
		if (changed)
			lk__leg_forgotten(core, now_ns, ticket);
		return;
	}
	ticket->is_doubted = false;
	if (changed || ticket->is_forgotten) {
		ticket->is_forgotten = true;
		ticket->next_ns = now_ns;
	} else if (doubted) {
		lk__ticket_lose(core, now_ns, ticket,
		                LK_LOST_TAKEN); /* another program deleted it */
		return;
	}
	lk__ticket_pursue(core, now_ns, ticket);
}

/* The length of the text up to that character, or to its end. */
static size_t until(const char *text, char end)
{
	size_t len = 0;

	while (text[len] && text[len] != end)
		len++;
	return len;
}

/* The id of the memory: the second word of the marker. */
static size_t id_of(const struct lk__epoch *epoch, const char **id)
{
	*id = epoch->text + until(epoch->text, ' ');
	*id += **id == ' ';
	return until(*id, ' ');
}

/* The ids of memories of one process differ behind a '-': there are numbers of databases that were
 * swapped, and of flushes. */
static bool is_same_process(const char *a, size_t a_len, const char *b, size_t b_len)
{
	size_t a_process = until(a, '-'), b_process = until(b, '-');

	a_len = a_process < a_len ? a_process : a_len;
	b_len = b_process < b_len ? b_process : b_len;
	return a_len == b_len && !memcmp(a, b, a_len);
}

static enum lk__found compare(const struct lk__epoch *known, const struct lk__epoch *found)
{
	const char *known_id, *found_id;
	size_t known_len = id_of(known, &known_id), found_len = id_of(found, &found_id);

	if (!known->len)
		return LK__FOUND_FIRST;
	if (known->len == found->len && !memcmp(known->text, found->text, found->len))
		return LK__FOUND_SAME;
	if (!is_same_process(known_id, known_len, found_id, found_len))
		return until(found_id, '+') < found_len ? LK__FOUND_PROMOTED : LK__FOUND_OTHER;
	return found->since_us ? LK__FOUND_EMPTY : LK__FOUND_ENDED;
}

/* In a Cluster: an ask or claim in flight is for another memory; its answer makes nothing. */
static void doubt_answer(struct lk__ticket *ticket)
{
	if (ticket->main.state == LK__IN_FLIGHT &&
	    (ticket->main.kind == LK__ASK || ticket->main.claim)) {
		ticket->may_be_known = true;
		ticket->main.doubted = true;
	}
}

void lk__core_memory(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                     const struct lk__epoch *epoch)
{
	enum lk__found found = compare(&session->epoch, epoch);
	bool changed = found > LK__FOUND_FIRST;
	struct lk__ticket *ticket = core->all_tickets, *next;

	session->epoch = *epoch;
	session->memory_ns = now_ns;
	session->clock_us = epoch->read_us;
	session->clock_ns = now_ns;
	if (found) {
		session->news.found = (uint8_t)found;
		core->has_news = true;
	}
	for (; ticket; ticket = next) {
		next = ticket->next;
		if (changed && core->route &&
		    (ticket->session == session || ticket->main.link == session->index))
			doubt_answer(ticket);
		if (ticket->session != session)
			continue;
		if (ticket->state == LK__HOLDING) {
			judge(core, now_ns, ticket, changed);
			continue;
		}
		/* Its leave will find nothing. */
		if (changed && ticket->released)
			ticket->is_forgotten = true;
		/* A waiter's place in the queue may be forgotten. */
		if (changed || ticket->state != LK__WAITING)
			ticket->next_ns = now_ns;
		lk__ticket_pursue(core, now_ns, ticket);
	}
	lk__queries_resume(core, session);
	if (core->quorum)
		lk__members_judge(core, now_ns);
	lk__quorum_settle(core, now_ns);
}

int64_t lk__grace_left_ms(const struct lk__epoch *epoch, int64_t store_us, int64_t grace_ms)
{
	int64_t left_us = epoch->since_us + grace_ms * 1000 - store_us;

	return epoch->len && left_us > 0 ? (left_us + 999) / 1000 : 0;
}

/* The marker cannot be read, or not written.  Without it nothing is granted: the waits end, unless
 * that may change soon. */
static void unknown(struct lk__core *core, int64_t now_ns, struct lk__session *session,
                    const struct lk__answer *answer)
{
	struct lk__ticket *ticket = core->all_tickets, *next;

	for (; ticket && !answer->retryable; ticket = next) {
		next = ticket->next;
		if (ticket->session == session &&
		    (ticket->state == LK__ASKING || ticket->state == LK__WAITING ||
		     ticket->state == LK__CLAIMING))
			lk__ticket_fail(core, now_ns, ticket, answer);
	}
	lk__queries_unresumed(core, session, answer);
}

void lk__memory_answer(struct lk__core *core, int64_t now_ns, struct lk__session *session,
                       const struct lk__answer *answer)
{
	session->memory.state = LK__IDLE;
	session->memory_try_ns = now_ns;
	if (answer->kind == LK__MEMORY)
		lk__core_memory(core, session, now_ns, &answer->epoch);
	else
		unknown(core, now_ns, session, answer);
}

/* A hold was taken back.  After the grace, in a Cluster, it was there: its slot had moved. */
void lk__memory_reclaimed(struct lk__core *core, int64_t now_ns, const struct lk__ticket *ticket,
                          const struct lk__answer *answer)
{
	struct lk__session *session = ticket->session;

	if (core->route && !lk__grace_left_ms(&session->epoch, answer->store_us, session->grace_ms))
		return;
	lk__count(&core->counters.reclaimed, 1);
	if (!session->news.reclaimed++)
		session->news.reclaimed_ns = now_ns;
	core->has_news = true;
}
