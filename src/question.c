/* SPDX-License-Identifier: MIT
 * Questions: commands that are none of the state machine's, each sent once and answered once. */
#include "question.h"

#include "redis/dial.h"
#include "text.h"

#include <string.h>

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
			lk__wire_call(client, &calls[i]);
	}
	if (why.err)
		return lk__fail(&why);
	for (size_t i = 0; i < count; i++) {
		if (!calls[i].done)
			lk__wire_await(client, &calls[i], why.err ? 0 : deadline_ns);
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
	lk_err err =
		lk__question(client, &buf, lk__codec_eval(&buf, script, count, args, NULL), resp);

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
