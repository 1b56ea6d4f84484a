/* SPDX-License-Identifier: MIT
 * Which results a call may return, and what a latch counts. */
#include "promises.h"

#include <stdio.h>

const char *promise_script(const struct lk__resp *reply)
{
	static char text[120];

	if (reply->type != LK__RESP_ERROR)
		return NULL;
	snprintf(text, sizeof(text), "a script failed: %.80s", reply->str);
	return text;
}

const char *promise_step(int64_t times)
{
	return times ? "a step was counted twice" : NULL;
}

static bool has_cause(const struct promise_causes *causes, lk_err err)
{
	switch (err) {
	case LK_OK:
		return causes->success;
	case LK_ELOST:
		return causes->loss;
	case LK_EUNKNOWN:
		return causes->silence;
	case LK_ECONN:
		return causes->unsent;
	case LK_EAGAIN:
	case LK_EAUTH:
	case LK_ESERVER:
		return causes->refusal;
	case LK_ECLOSED:
		return causes->close;
	case LK_EREPLICAS:
		return causes->shortage;
	case LK_EBUSY:
		return causes->busy;
	case LK_ELIMIT:
		return causes->limit;
	case LK_EABSENT:
		return causes->absence;
	case LK_EFOREIGN:
		return causes->other;
	case LK_ETIMEDOUT:
	case LK_ECANCELED:
		return causes->gave_up == err;
	default:
		return false;
	}
}

const char *promise_result(const struct promise_causes *causes, lk_err err)
{
	static char text[120];

	if (has_cause(causes, err))
		return NULL;
	snprintf(text, sizeof(text), "a call ended with %s, without a cause", lk_err_name(err));
	return text;
}

const char *promise_result_once(const struct lk__op *op, bool pending)
{
	return op->done && pending ? NULL : "a call is done twice";
}

const char *promise_result_step(lk_err err, bool reported, int64_t times)
{
	if (!err && times != reported)
		return reported ? "a step was reported as counted and was not"
		                : "a step was counted and reported as not counted";
	return err && err != LK_EUNKNOWN && times ? "a step counted and its caller got an error"
	                                          : NULL;
}

const char *promise_opening(uint64_t last, uint64_t generation)
{
	return generation <= last ? "a generation opens twice" : NULL;
}

const char *promise_await(lk_err err, bool was_open)
{
	return !err && !was_open ? "a wait for a latch succeeded, which was not open" : NULL;
}
