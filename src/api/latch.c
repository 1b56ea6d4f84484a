/* SPDX-License-Identifier: MIT
 * The latch's public calls.  Waiting and counting down may repeat requests and go through the state
 * machine; everything else is a query. */
#include "base/text.h"
#include "core/latch.h"
#include "runtime/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const states[] = {"absent", "counting", "open"};
#define STATES (sizeof(states) / sizeof(*states))

const char *lk_latch_state_name(lk_latch_state state)
{
	return (size_t)state < STATES ? states[state] : "unknown";
}

/* ---- Open and close ----------------------------------------------------------------------- */

static lk_err check_ttls(const lk_latch_options *options)
{
	lk_err err = LK_OK;

	if (options->open_ttl_ms)
		err = lk__check_range("open_ttl_ms", options->open_ttl_ms, LK_TTL_MIN_MS,
		                      LK_TTL_MAX_MS);
	if (!err && options->counting_ttl_ms)
		err = lk__check_range("counting_ttl_ms", options->counting_ttl_ms, LK_TTL_MIN_MS,
		                      LK_TTL_MAX_MS);
	return err;
}

/* The state machine's part of the latch of that name. */
static struct lk__latch *new_part(const lk_client *client, const char *name, size_t name_len)
{
	size_t len = lk__name_len(name, name_len);
	char topic[LK__TOPIC_MAX];

	if (len > LK_NAME_MAX)
		len = 0; /* lk__handle_open() refuses it */
	client->store->ops->topic(client->store, name ? name : "", name ? len : 0, topic);
	return lk__latch_new(topic);
}

lk_err lk_latch_open(lk_client *client, const char *name, size_t name_len,
                     const lk_latch_options *options, lk_latch **result)
{
	static const lk_latch_options defaults;
	struct lk__handle_plan plan;
	struct lk_latch *latch;
	lk_err err;

	if ((err = lk__refuse_null(client, "client")) || (err = lk__refuse_null(result, "latch")))
		return err;
	if (!options)
		options = &defaults;
	if ((err = check_ttls(options)))
		return err;
	plan = (struct lk__handle_plan){
		.name = name,
		.label = options->label,
		.name_len = name_len,
		.reserved = options->reserved,
		.latch = new_part(client, name, name_len),
		.kind = LK_KIND_LATCH,
	};
	latch = calloc(1, sizeof(*latch));
	if (!latch || !plan.latch)
		err = lk__failf(LK_ENOMEM, "out of memory");
	else
		err = lk__handle_open(client, &latch->handle, &plan);
	if (err) {
		lk__latch_discard(plan.latch);
		free(latch);
		return err;
	}
	latch->open_ttl_ms = options->open_ttl_ms ? options->open_ttl_ms : LK_TTL_DEFAULT_MS;
	latch->counting_ttl_ms = options->counting_ttl_ms;
	latch->absent_is_open = options->absent_is_open;
	lk__call_leave(client, NULL);
	*result = latch;
	return LK_OK;
}

lk_err lk_latch_close(lk_latch *latch)
{
	return lk__handle_close(latch ? &latch->handle : NULL);
}

lk_err lk_latch_cancel(lk_latch *latch)
{
	lk_err err = lk__refuse_null(latch, "latch");

	return err ? err : lk__handle_cancel(&latch->handle);
}

/* ---- Calls that wait ---------------------------------------------------------------------- */

lk_err lk_latch_await(lk_latch *latch, int64_t wait_ms)
{
	int64_t now_ns = lk__now_ns();
	struct lk__call call;
	lk_err err = lk__refuse_null(latch, "latch");

	if (err || (err = lk__check_wait(wait_ms)))
		return err;
	if ((err = lk__handle_enter(&latch->handle)))
		return err;
	lk__call_init(&call, &latch->handle);
	lk__call_limit(&call, now_ns, wait_ms);
	call.op.absent_is_open = latch->absent_is_open;
	return lk__call_run(&call, now_ns, lk__core_await);
}

lk_err lk_latch_down(lk_latch *latch, int64_t n, const char *step_name, size_t step_name_len,
                     lk_latch_step *result)
{
	size_t len = lk__name_len(step_name, step_name_len);
	struct lk__call call;
	struct lk__step *step;
	int64_t now_ns = lk__now_ns();
	lk_err err = lk__refuse_null(latch, "latch");

	if (err || (err = lk__check_range("n", n, 1, LK_COUNT_MAX)))
		return err;
	if (!step_name && len)
		return lk__failf(LK_EINVALID, "step_name: NULL, but step_name_len is %zu", len);
	if (step_name && (err = lk__check_len("step_name", len, LK_STEP_MAX)))
		return err;
	step = calloc(1, sizeof(*step));
	if (!step)
		return lk__failf(LK_ENOMEM, "out of memory");
	step->n = (uint32_t)n;
	step->len = (uint16_t)len;
	if (step_name)
		memcpy(step->name, step_name, len);
	if ((err = lk__handle_enter(&latch->handle))) {
		free(step);
		return err;
	}
	lk__call_init(&call, &latch->handle);
	call.op.spare_step = step;
	err = lk__call_run(&call, now_ns, lk__core_step);
	if (!err && result)
		*result =
			(lk_latch_step){.remaining = call.op.remaining, .counted = call.op.counted};
	return err;
}

/* ---- Queries ---------------------------------------------------------------------------- */

static lk_err query(struct lk_latch *latch, lk_latch_status *status)
{
	struct lk_client *client = latch->handle.client;
	struct lk__query *query = lk__handle_query(&latch->handle, LK__SHOW);
	lk_err err = lk__ask(lk__handle_link(&latch->handle), query);

	if (!err) {
		const struct lk__answer *answer = &query->answer;
		status->state = answer->latch_state;
		status->generation = answer->fence;
		status->count = answer->remaining;
		status->initial = answer->initial;
		status->ttl_ms = answer->left_ms;
	}
	lk__query_free(&client->core, query);
	return err;
}

lk_err lk_latch_query(lk_latch *latch, lk_latch_status *result)
{
	lk_latch_status status = {.state = LK_LATCH_ABSENT};
	lk_err err;

	if ((err = lk__refuse_null(latch, "latch")) || (err = lk__refuse_null(result, "status")) ||
	    (err = lk__handle_enter(&latch->handle)))
		return err;
	err = query(latch, &status);
	lk__call_leave(latch->handle.client, &latch->handle);
	if (!err)
		*result = status;
	return err;
}

/* anew: replace a counting generation, too. */
static lk_err make(struct lk_latch *latch, int64_t count, bool anew, lk_latch_state *was)
{
	struct lk_client *client = latch->handle.client;
	struct lk__query *query = lk__handle_query(&latch->handle, LK__SET);
	const struct lk__answer *answer;
	lk_err err;

	if (query) {
		query->details.count = count;
		query->details.anew = anew;
		query->details.open_ttl_ms = latch->open_ttl_ms;
		query->details.counting_ttl_ms = latch->counting_ttl_ms;
	}
	if (!(err = lk__ask(lk__handle_link(&latch->handle), query))) {
		answer = &query->answer;
		if (answer->kind == LK__COUNTS)
			err = lk__failf(LK_EMISMATCH, "counts already: %lld of %lld remain",
			                (long long)answer->remaining, (long long)answer->initial);
		else if (answer->kind == LK__MADE)
			*was = answer->latch_state;
		else
			err = lk__malformed_answer(client);
	}
	lk__query_free(&client->core, query);
	return err;
}

static lk_err set(struct lk_latch *latch, int64_t count, bool anew, lk_latch_state *result)
{
	lk_latch_state was = LK_LATCH_ABSENT;
	lk_err err = lk__refuse_null(latch, "latch");

	if (err || (err = lk__check_range("count", count, 0, LK_COUNT_MAX)) ||
	    (err = lk__handle_enter(&latch->handle)))
		return err;
	err = make(latch, count, anew, &was);
	latch->handle.name->latch->generation = 0; /* the known one is outdated */
	lk__call_leave(latch->handle.client, &latch->handle);
	if (!err && result)
		*result = was;
	return err;
}

lk_err lk_latch_set(lk_latch *latch, int64_t count, lk_latch_state *was)
{
	return set(latch, count, false, was);
}

lk_err lk_latch_reset(lk_latch *latch, int64_t count, lk_latch_state *was)
{
	return set(latch, count, true, was);
}

static lk_err remove_it(struct lk_latch *latch)
{
	struct lk_client *client = latch->handle.client;
	struct lk__query *query = lk__handle_query(&latch->handle, LK__REMOVE);
	lk_err err = lk__ask(lk__handle_link(&latch->handle), query);

	if (!err && query->answer.kind == LK__ABSENT)
		err = lk__failf(LK_EABSENT, "no such latch");
	lk__query_free(&client->core, query);
	return err;
}

lk_err lk_latch_remove(lk_latch *latch)
{
	lk_err err = lk__refuse_null(latch, "latch");

	if (err || (err = lk__handle_enter(&latch->handle)))
		return err;
	err = remove_it(latch);
	latch->handle.name->latch->generation = 0;
	lk__call_leave(latch->handle.client, &latch->handle);
	return err;
}
