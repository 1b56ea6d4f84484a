/* SPDX-License-Identifier: MIT
 * Grants to a client that was stopped, at a server that sentinels name.
 *
 * A master that was replaced in a planned failover grants for some seconds more, and has forgotten
 * holds that have moved.  A client that runs leaves it when a sentinel names the new one.  A client
 * that was stopped meanwhile goes on where it was: its next ask may be answered before it has read
 * what the sentinels sent.  So it notices that it has not run for a while, by a clock that counts
 * that time, and asks the sentinels anew.  What makes or prolongs a hold does not count until they
 * have named this server again.
 *
 * If none of them can be asked, holds go on, as those of any client without sentinels.  But new
 * ones are not made: each grant is as one that the server has refused for now.
 *
 * An idle client does not run, either, so its first call asks the sentinels, too. */
#include "core.h"

#define MS INT64_C(1000000)
#define RUN_NS (500 * MS)    /* while something needs the link, a client runs at least so often */
#define PAUSE_NS (1500 * MS) /* not having run for longer is a pause */

void lk__vouch_run(struct lk__session *session, int64_t now_ns)
{
	struct lk__vouch *vouch = &session->vouch;

	if (vouch->ran_ns == LK__NEVER || now_ns <= vouch->ran_ns)
		return;
	if (now_ns - vouch->ran_ns > PAUSE_NS) {
		vouch->pauses++;
		vouch->is_doubted = true;
		vouch->is_alone = session->unwatched_ns != LK__NEVER; /* before it, too */
		lk__why_set(&vouch->why, LK_ECONN,
		            "after a pause of this client, no sentinel confirms the master");
	}
	vouch->ran_ns = now_ns;
}

int64_t lk__vouch_due(const struct lk__session *session)
{
	const struct lk__vouch *vouch = &session->vouch;
	bool runs = session->users || session->unwatched_ns != LK__NEVER;

	return runs && vouch->ran_ns != LK__NEVER ? vouch->ran_ns + RUN_NS : LK__NEVER;
}

void lk__vouch_begin(struct lk__session *session, int64_t now_ns)
{
	session->vouch.ran_ns = now_ns;
	session->vouch.is_doubted = session->vouch.is_alone = false;
}

/* A hold, although no sentinel can be asked. */
static bool goes_on(const struct lk__vouch *vouch, const struct lk__pending *request)
{
	return vouch->is_alone && request->ticket->state == LK__HOLDING;
}

void lk__vouch_answer(struct lk__core *core, int64_t now_ns, struct lk__pending *request,
                      const struct lk__answer *answer)
{
	struct lk__vouch *vouch = &core->links[request->link]->vouch;
	bool is_grant = (answer->kind == LK__GRANTED || answer->kind == LK__KEPT) &&
	                lk__pending_makes_hold(request);
	const struct lk__answer refused = {
		.kind = LK__FAILED,
		.err = vouch->why.err,
		.retryable = !request->ticket->is_try,
		.text = vouch->why.text,
	};

	if (!is_grant || !vouch->is_doubted || goes_on(vouch, request)) {
		lk__ticket_answer(core, now_ns, request, answer);
	} else if (!vouch->is_alone) {
		lk__kept_add(&vouch->kept, now_ns, request, answer);
	} else {
		request->ticket->may_be_known = true;
		lk__ticket_answer(core, now_ns, request, &refused);
	}
}

static void deliver(struct lk__core *core, int64_t now_ns, struct lk__session *session)
{
	struct lk__pending *request = session->vouch.kept.first, *next;

	session->vouch.kept.first = NULL;
	for (; request; request = next) {
		struct lk__answer answer = lk__kept_answer(request);

		next = request->next;
		request->next = NULL;
		lk__vouch_answer(core, now_ns, request, &answer);
	}
}

void lk__core_vouched(struct lk__core *core, struct lk__session *session, int64_t now_ns)
{
	session->vouch.is_doubted = session->vouch.is_alone = false;
	deliver(core, now_ns, session);
}

void lk__core_unvouched(struct lk__core *core, struct lk__session *session, int64_t now_ns,
                        const struct lk__why *why)
{
	session->vouch.is_alone = true;
	session->vouch.why = *why;
	deliver(core, now_ns, session);
}

void lk__vouch_forget(struct lk__session *session)
{
	session->vouch.kept.first = NULL;
}
