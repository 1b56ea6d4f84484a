/* SPDX-License-Identifier: MIT
 * What the end of a call means for a session. */
#include "session.h"

#include "status.h"

bool lk__etcd_outcome_of(const struct lk__h2_event *event, struct lk__etcd_outcome *outcome)
{
	static const struct {
		lk_err err;
		bool retryable, no_lease;
	} table[] = {
		[LK__ETCD_DONE] = {LK_OK, false, false},
		[LK__ETCD_AGAIN] = {LK_EAGAIN, true, false},
		[LK__ETCD_AMBIGUOUS] = {LK_EUNKNOWN, true, false},
		[LK__ETCD_LOGIN] = {LK_EAUTH, true, false},
		[LK__ETCD_DENIED] = {LK_EAUTH, false, false},
		[LK__ETCD_FULL] = {LK_ESERVER, true, false},
		[LK__ETCD_NO_LEASE] = {LK_ESERVER, true, true},
		[LK__ETCD_COMPACTED] = {LK_ESERVER, true, false},
		[LK__ETCD_FUTURE] = {LK_ESERVER, true, false},
		[LK__ETCD_REFUSED] = {LK_ESERVER, false, false},
	};
	enum lk__etcd_meaning meaning = lk__etcd_judge(event).meaning;

	*outcome = (struct lk__etcd_outcome){
		.err = table[meaning].err,
		.message = event->message.data,
		.len = event->message.len,
		.retryable = table[meaning].retryable,
		.no_lease = table[meaning].no_lease,
		.is_full = meaning == LK__ETCD_FULL,
		.text = event->text,
	};
	return meaning != LK__ETCD_AMBIGUOUS;
}
