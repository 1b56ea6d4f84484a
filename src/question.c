/* SPDX-License-Identifier: MIT
 * Questions: commands that are none of the state machine's, each sent once and answered once. */
#include "question.h"

#include "redis/dial.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* ---- Calls -------------------------------------------------------------------------------- */

void lk__call_add(struct lk_client *client, struct lk__call *call)
{
	call->request.kind = LK__CALL_KIND;
	call->request.where = LK__IN_LINE;
	call->request.next = NULL;
	*client->calls_end = &call->request;
	client->calls_end = &call->request.next;
}

bool lk__call_background(struct lk_client *client, struct lk__buf *buf)
{
	struct lk__call *call = calloc(1, sizeof(*call));

	if (!call) {
		lk__buf_fini(buf);
		return false;
	}
	call->background = true;
	call->bytes = *buf;
	lk__call_add(client, call);
	return true;
}

/* Take a call that was not sent out of the line. */
static void withdraw(struct lk_client *client, struct lk__call *call)
{
	struct lk__request **at = &client->calls;

	while (*at && *at != &call->request)
		at = &(*at)->next;
	if (*at) {
		*at = call->request.next;
		if (!*at)
			client->calls_end = at;
	}
	lk__buf_fini(&call->bytes);
}

/* Have the answer to a call that is under way thrown away when it comes.  False when out of
 * memory. */
static bool orphan(struct lk__pair *pair, struct lk__call *call)
{
	struct lk__call *heir = calloc(1, sizeof(*heir));
	struct lk__request **at = &pair->sent;

	if (!heir)
		return false;
	heir->request = call->request;
	heir->background = true;
	while (*at != &call->request)
		at = &(*at)->next;
	*at = &heir->request;
	if (!heir->request.next)
		pair->sent_end = &heir->request.next;
	lk__buf_fini(&call->bytes);
	return true;
}

void lk__call_await(struct lk_client *client, struct lk__call *call, int64_t deadline_ns)
{
	struct lk__sleeper sleeper = {.call = call};

	if (lk__park_init(&sleeper.park)) {
		call->sleeper = &sleeper;
		lk__wire_wait(client, &sleeper, deadline_ns);
		call->sleeper = NULL;
		lk__park_fini(&sleeper.park);
	}
	if (!call->done && call->request.where == LK__UNDER_WAY) {
		/* What is overdue breaks the connection; this may have been sent just now. */
		lk__why_set(&call->why, LK_EUNKNOWN, "%s: no answer within %lld ms",
		            client->target.text,
		            (long long)(client->target.command_timeout_ns / LK__MS));
		if (!orphan(client->pair, call))
			lk__wire_broken(client, client->pair, &call->why);
	} else if (!call->done) {
		withdraw(client, call);
		call->why = client->core.link_why;
		if (client->core.linked) /* want of memory, or a socket that takes nothing */
			lk__why_set(&call->why, LK_ECONN, "%s: it could not be sent in time",
			            client->target.text);
		else if (call->why.err == LK_EUNKNOWN || !call->why.err)
			call->why.err = LK_ECONN;
	}
	lk__wire_settle(client);
}

/* ---- Questions ---------------------------------------------------------------------------- */

lk_err lk__questions(struct lk_client *client, struct lk__call *calls, size_t count)
{
	int64_t deadline_ns = lk__now_ns() + client->target.command_timeout_ns;
	struct lk__why why = {0};

	if (client->core.closing)
		lk__why_set(&why, LK_ECLOSED, "the client was closed");
	for (size_t i = 0; i < count; i++) {
		if (why.err)
			lk__buf_fini(&calls[i].bytes);
		else
			lk__call_add(client, &calls[i]);
	}
	if (why.err)
		return lk__fail(&why);
	for (size_t i = 0; i < count; i++) {
		if (!calls[i].done)
			lk__call_await(client, &calls[i], why.err ? 0 : deadline_ns);
		if (!calls[i].resp && !why.err)
			why = calls[i].why;
	}
	return why.err ? lk__fail(&why) : LK_OK;
}

lk_err lk__question(struct lk_client *client, struct lk__buf *buf, bool whole,
                    struct lk__resp **resp)
{
	struct lk__call call = {.bytes = *buf};
	lk_err err;

	if (!whole) {
		lk__buf_fini(buf);
		return lk__failf(LK_ENOMEM, "out of memory");
	}
	if ((err = lk__questions(client, &call, 1)))
		return err;
	*resp = call.resp;
	if (call.resp->type != LK__RESP_ERROR)
		return LK_OK;
	lk__conn_why(&call.why, lk__resp_error(call.resp), client->target.text, "%s",
	             call.resp->str);
	err = lk__fail(&call.why);
	lk__resp_free(call.resp);
	return err;
}

lk_err lk__question_script(struct lk_client *client, const struct lk__script *script, int count,
                           const char *const *args, struct lk__resp **resp)
{
	struct lk__buf buf = {0};
	struct lk__why why = {0};
	lk_err err = lk__question(client, &buf,
	                          lk__codec_eval(&buf, script, true, count, args, NULL), resp);

	if (err)
		return err;
	if (!lk__codec_foreign(*resp, &why))
		return LK_OK;
	lk__resp_free(*resp);
	return lk__fail(&why);
}

lk_err lk__question_odd(struct lk_client *client, struct lk__resp *resp)
{
	lk__resp_free(resp);
	return lk__failf(LK_ESERVER, "%s: answered a script with something else",
	                 client->target.text);
}

bool lk__resp_is(const struct lk__resp *resp, const char *form)
{
	size_t i;

	if (resp->type != LK__RESP_ARRAY || resp->len < strlen(form))
		return false;
	for (i = 0; form[i]; i++)
		if (resp->elements[i]->type !=
		    (form[i] == 's' ? LK__RESP_STRING : LK__RESP_INTEGER))
			return false;
	return true;
}

bool lk__resp_says(const struct lk__resp *resp, const char *word)
{
	return lk__resp_is(resp, "s") && !strcmp(resp->elements[0]->str, word);
}

int64_t lk__resp_number(const struct lk__resp *resp)
{
	int64_t value = 0;

	if (resp->type == LK__RESP_INTEGER)
		return resp->integer;
	if (resp->type == LK__RESP_STRING)
		lk__parse_i64(resp->str, resp->len, 0, INT64_MAX, &value);
	return value;
}
