/* SPDX-License-Identifier: MIT
 * The store in Redis: how requests, answers and messages are written. */
#include "codec.h"

#include "../core/core.h"
#include "../text.h"
#include "conn.h"
#include "dial.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 16
#define NUMBER_MAX 24
#define EXACT_MAX (INT64_C(1) << 53) /* beyond it the store's numbers are not exact, nor ours */

void lk__space_init(struct lk__space *space, const char *prefix, int db, const char *client_id)
{
	snprintf(space->prefix, sizeof(space->prefix), "%s", prefix);
	snprintf(space->client_id, sizeof(space->client_id), "%s", client_id);
	snprintf(space->channels, sizeof(space->channels), "%s:c:%d:", space->prefix, db);
	snprintf(space->channel, sizeof(space->channel), "%s%s", space->channels, client_id);
}

void lk__space_key(const struct lk__space *space, const char *name, size_t len, const char *suffix,
                   char key[LK__KEY_MAX])
{
	char encoded[3 * LK_NAME_MAX + 1];

	lk__name_encode(encoded, name, len);
	snprintf(key, LK__KEY_MAX, "%s:{%s}%s", space->prefix, encoded, suffix);
}

void lk__space_client_key(const struct lk__space *space, const char *client_id,
                          char key[LK__CHANNEL_MAX])
{
	snprintf(key, LK__CHANNEL_MAX, "%s:client:%s", space->prefix, client_id);
}

void lk__ticket_text(const struct lk__space *space, const struct lk__ticket *ticket,
                     char text[LK__TICKET_MAX])
{
	snprintf(text, LK__TICKET_MAX, "1:%s:%s:%lld:%c", space->client_id, ticket->nonce,
	         (long long)ticket->lease_ms, ticket->fixed ? 'f' : 'r');
}

/* ---- Requests ----------------------------------------------------------------------------- */

struct args {
	int count;
	const char *text[ARGS_MAX];
	size_t len[ARGS_MAX];
	char number[4][NUMBER_MAX];
	int numbers;
};

static void add(struct args *args, const char *text)
{
	args->text[args->count] = text;
	args->len[args->count++] = strlen(text);
}

static void add_number(struct args *args, int64_t value)
{
	char *number = args->number[args->numbers++];

	snprintf(number, NUMBER_MAX, "%lld", (long long)value);
	add(args, number);
}

static bool eval(struct lk__buf *buf, const struct lk__script *script, bool by_text,
                 const struct args *args)
{
	const char *argv[ARGS_MAX + 3];
	size_t lens[ARGS_MAX + 3];
	char keys[NUMBER_MAX];

	snprintf(keys, sizeof(keys), "%d", script->keys);
	argv[0] = by_text ? "EVAL" : "EVALSHA";
	argv[1] = by_text ? script->text : script->sha1;
	argv[2] = keys;
	lens[0] = strlen(argv[0]);
	lens[1] = by_text ? script->len : strlen(script->sha1);
	lens[2] = strlen(keys);
	memcpy(argv + 3, args->text, sizeof(*argv) * (size_t)args->count);
	memcpy(lens + 3, args->len, sizeof(*lens) * (size_t)args->count);
	return lk__resp_command(buf, args->count + 3, argv, lens);
}

bool lk__codec_eval(struct lk__buf *buf, const struct lk__script *script, int count,
                    const char *const *texts, const size_t *lens)
{
	struct args args = {0};

	for (int i = 0; i < count && i < ARGS_MAX; i++) {
		args.text[i] = texts[i];
		args.len[i] = lens ? lens[i] : strlen(texts[i]);
	}
	args.count = count;
	return eval(buf, script, true, &args);
}

bool lk__codec_request(struct lk__buf *buf, const struct lk__space *space,
                       const struct lk__request *request)
{
	const struct lk__ticket *ticket = request->ticket;
	const struct lk__name *name = ticket->place->name;
	const char *share = ticket->share_asked ? "s" : "-";
	char key[LK__KEY_MAX], queue[LK__KEY_MAX], fence[48], text[LK__TICKET_MAX];
	const struct lk__script *script = &lk__script_lock_leave;
	struct args args = {0};

	lk__space_key(space, name->bytes, name->len, "", key);
	lk__space_key(space, name->bytes, name->len, ":q", queue);
	snprintf(fence, sizeof(fence), "%s:fence", space->prefix);
	lk__ticket_text(space, ticket, text);
	add(&args, key);
	add(&args, queue);
	add(&args, fence);
	add(&args, request->kind == LK__HAND ? "" : text);
	switch (request->kind) {
	case LK__ASK:
		script = &lk__script_lock_ask;
		add(&args, ticket->only_try ? "0" : "1");
		add_number(&args, (int64_t)ticket->arrival);
		add(&args, space->channels);
		add(&args, share);
		add_number(&args, LK__QUEUE_LIFE_MS);
		break;
	case LK__RENEW:
		script = &lk__script_lock_renew;
		add_number(&args, request->claim ? 0 : (int64_t)ticket->fence);
		add_number(&args, request->lease_ms);
		add_number(&args, request->claim ? 0 : (int64_t)ticket->last_fence);
		add(&args, share);
		break;
	default:
		add_number(&args, request->kind == LK__HAND ? 0 : (int64_t)ticket->last_fence);
		add(&args, space->channels);
		add(&args, "0");
		break;
	}
	return eval(buf, script, request->by_text, &args);
}

/* ---- Answers ------------------------------------------------------------------------------ */

bool lk__codec_unknown_script(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_ERROR && resp->len >= 8 && !memcmp(resp->str, "NOSCRIPT", 8);
}

static const struct lk__resp *element(const struct lk__resp *resp, size_t index)
{
	return resp->type == LK__RESP_ARRAY && index < resp->len ? resp->elements[index] : NULL;
}

/* A number that may have been written as text. */
static bool number(const struct lk__resp *resp, size_t index, int64_t *value)
{
	const struct lk__resp *part = element(resp, index);

	if (part && part->type == LK__RESP_INTEGER) {
		*value = part->integer;
		return part->integer >= 0 && part->integer <= EXACT_MAX;
	}
	return part && part->type == LK__RESP_STRING &&
	       lk__parse_i64(part->str, part->len, 0, EXACT_MAX, value);
}

static bool is(const struct lk__resp *resp, const char *word)
{
	const struct lk__resp *part = element(resp, 0);

	return part && part->type == LK__RESP_STRING && !strcmp(part->str, word);
}

lk_err lk__codec_foreign(const struct lk__resp *resp, struct lk__why *why)
{
	const struct lk__resp *key = element(resp, 1), *what = element(resp, 2);

	if (!is(resp, "foreign") || !key || key->type != LK__RESP_STRING || !what ||
	    what->type != LK__RESP_STRING)
		return LK_OK;
	return lk__why_set(why, LK_EFOREIGN,
	                   "key %s is not ours: %s (this library writes protocol 1)", key->str,
	                   what->str);
}

static void fail(struct lk__answer *answer, struct lk__why *why)
{
	answer->kind = LK__FAILED;
	answer->err = why->err;
	answer->text = why->text;
}

void lk__codec_answer(const struct lk__resp *resp, const char *what, struct lk__answer *answer,
                      struct lk__why *why)
{
	int64_t fence, a = 0, b = 0, c = 0, d = 0;

	memset(answer, 0, sizeof(*answer));
	if (resp->type == LK__RESP_ERROR) {
		lk__conn_why(why, lk__resp_error(resp), what, "%s%s",
		             lk__resp_error(resp) == LK_EAUTH ? "(latchkey doctor names the right) "
		                                              : "",
		             resp->str);
		answer->passes = lk__resp_error_passes(resp);
		fail(answer, why);
	} else if ((is(resp, "granted") || is(resp, "held")) && number(resp, 1, &fence) &&
	           number(resp, 2, &answer->store_us) && number(resp, 3, &answer->waiting)) {
		answer->kind = is(resp, "held") ? LK__KEPT : LK__GRANTED;
		answer->fence = (uint64_t)fence;
	} else if (is(resp, "queued") && number(resp, 1, &a) && number(resp, 2, &b) &&
	           number(resp, 3, &c) && number(resp, 4, &d)) {
		answer->kind = LK__QUEUED;
		answer->arrival = (uint64_t)a;
		answer->rank = b;
		answer->left_ms = c;
		answer->free = d != 0;
	} else if (is(resp, "busy") && number(resp, 1, &d)) {
		answer->kind = LK__BUSY;
		answer->free = d != 0;
	} else if (is(resp, "gone")) {
		answer->kind = LK__GONE;
	} else if (is(resp, "left") && number(resp, 1, &a) && number(resp, 2, &b) &&
	           number(resp, 3, &c)) {
		answer->kind = LK__LEFT;
		answer->mine = a != 0;
		answer->more = b != 0;
		answer->free = c != 0;
	} else if (is(resp, "fence")) {
		lk__conn_why(why, LK_EFENCE, what, "the fence counter is %s",
		             element(resp, 1) && element(resp, 1)->str ? element(resp, 1)->str
		                                                       : "bad");
		fail(answer, why);
	} else if (lk__codec_foreign(resp, why)) {
		fail(answer, why);
	} else {
		lk__conn_why(why, LK_ESERVER, what, "answered a script with something else");
		fail(answer, why);
	}
}

/* ---- Messages ----------------------------------------------------------------------------- */

/* Cut the next word off, at a single space or the end. */
static bool word(const char **at, const char *end, const char **start, size_t *len)
{
	const char *stop;

	if (*at >= end)
		return false;
	stop = memchr(*at, ' ', (size_t)(end - *at));
	if (!stop)
		stop = end;
	*start = *at;
	*len = (size_t)(stop - *at);
	*at = stop < end ? stop + 1 : end;
	return *len > 0;
}

static bool word_number(const char **at, const char *end, int64_t *value)
{
	const char *start;
	size_t len;

	return word(at, end, &start, &len) && lk__parse_i64(start, len, 0, EXACT_MAX, value);
}

/* 1:client:nonce:lease:mode, client being us. */
static bool parse_ticket(const struct lk__space *space, const char *text, size_t len,
                         struct lk__message *message)
{
	const size_t head = 2 + LK__CLIENT_ID_SIZE - 1 + 1, nonce = LK__NONCE_SIZE - 1;

	if (len < head + nonce + 4 || memcmp(text, "1:", 2) ||
	    memcmp(text + 2, space->client_id, LK__CLIENT_ID_SIZE - 1) || text[head - 1] != ':' ||
	    text[head + nonce] != ':' || text[len - 2] != ':' ||
	    (text[len - 1] != 'r' && text[len - 1] != 'f'))
		return false;
	memcpy(message->nonce, text + head, nonce);
	message->nonce[nonce] = '\0';
	message->fixed = text[len - 1] == 'f';
	return lk__parse_i64(text + head + nonce + 1, len - head - nonce - 3, 1, LK_LEASE_MAX_MS,
	                     &message->lease_ms);
}

bool lk__codec_message(const struct lk__space *space, const char *text, size_t len,
                       struct lk__message *message)
{
	const char *at = text, *end = text + len, *verb, *ticket;
	size_t verb_len, ticket_len;
	int64_t fence, claim;

	memset(message, 0, sizeof(*message));
	if (!word(&at, end, &verb, &verb_len) || !word(&at, end, &ticket, &ticket_len) ||
	    !parse_ticket(space, ticket, ticket_len, message))
		return false;
	if (verb_len == 5 && !memcmp(verb, "grant", 5)) {
		message->kind = LK__GRANT;
		if (!word_number(&at, end, &fence) || !word_number(&at, end, &message->life_ms) ||
		    !word_number(&at, end, &claim) || !word_number(&at, end, &message->waiting) ||
		    !word_number(&at, end, &message->store_us) || !fence ||
		    message->life_ms > LK_LEASE_MAX_MS)
			return false;
		message->fence = (uint64_t)fence;
		message->claim = claim != 0;
	} else if (verb_len == 6 && !memcmp(verb, "wanted", 6)) {
		message->kind = LK__WANTED;
	} else if (verb_len == 5 && !memcmp(verb, "again", 5)) {
		message->kind = LK__AGAIN;
		if (!word_number(&at, end, &message->in_ms) || message->in_ms > LK_LEASE_MAX_MS)
			return false;
	} else if (verb_len == 6 && !memcmp(verb, "broken", 6)) {
		message->kind = LK__BROKEN;
	} else {
		return false;
	}
	return at == end;
}
