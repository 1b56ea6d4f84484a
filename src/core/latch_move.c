/* SPDX-License-Identifier: MIT
 * Latches whose slot moves to another server of a Cluster. */
#include "latch.h"

void lk__latch_move(struct lk__core *core, struct lk__latch *latch, struct lk__session *session)
{
	struct lk__channel *channel = lk__channel_new(latch->channel->topic);

	lk__pending_dequeue(core, &latch->ask);
	lk__pending_dequeue(core, &latch->down);
	latch->ask.asking = latch->down.asking = false;
	if (latch->busy) {
		latch->name->session->users--;
		session->users++;
	}
	if (latch->down.state == LK__IN_FLIGHT)
		latch->steps->may_be_counted = true;
	lk__latch_doubt(latch);
	if (!channel)
		return; /* out of memory: it asks from time to time */
	if (latch->using_channel)
		lk__channel_unuse(latch->channels, core->seen_ns, latch->channel);
	latch->using_channel = false;
	lk__channel_close(latch->channels, latch->channel);
	lk__latch_channel(latch, session, channel);
}

void lk__latches_settle(struct lk__core *core, int64_t now_ns)
{
	struct lk__latch *latch = core->latches, *next;

	for (; latch; latch = next) {
		next = latch->next;
		if (latch->heard || latch->hops > LK__HOPS_MAX)
			continue; /* the latter pauses: servers redirect to each other */
		latch->ask_ns = now_ns;
		latch->step_ns = 0;
		lk__latch_pursue(core, now_ns, latch);
	}
}

void lk__latch_unrun(struct lk__core *core, int64_t now_ns, struct lk__pending *request)
{
	struct lk__latch *latch = request->latch;

	request->state = LK__IDLE;
	request->asking = false;
	if (request == &latch->down)
		latch->step_ns = 0;
	else
		latch->ask_ns = now_ns;
	lk__latch_pursue(core, now_ns, latch);
}
