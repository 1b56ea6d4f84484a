/* SPDX-License-Identifier: MIT
 * The store in Redis: the wire format of requests and answers. */
#include "codec.h"

#include "../base/text.h"
#include "conn.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 16

/* Copy the text and return its end.  Every request is written with this: printf(), or searching the
 * end of the last copy, would be most of a request's cost. */
static inline char *put(char *out, const char *text, size_t len)
{
	memcpy(out, text, len);
	return out + len;
}

size_t lk__ticket_text(const struct lk__space *space, const struct lk__ticket_id *ticket,
                       char text[LK__TICKET_MAX])
{
	const char *version = ticket->priority ? "q1:" : "2:";
	char *end = put(put(text, version, strlen(version)), space->client_id,
	                space->client_id_len);

	*end++ = ':';
	end = put(end, ticket->nonce, LK__NONCE_SIZE - 1);
	*end++ = ':';
	end += lk__decimal(end, ticket->lease_ms);
	end = put(end, ticket->final ? ":n" : ticket->fixed ? ":f" : ":r", 3) - 1;
	if (ticket->permits) {
		*end++ = ':';
		end += lk__decimal(end, ticket->permits);
	}
	if (ticket->priority) {
		*end++ = ':';
		end += lk__decimal(end, (int64_t)ticket->priority);
		*end++ = ':';
		end += lk__decimal(end, ticket->epoch);
	}
	return (size_t)(end - text);
}

/* ---- Requests ----------------------------------------------------------------------------- */

#define HEAD 3 /* command, script, number of keys */
#define OWN_MAX (3 * LK__KEY_MAX + LK__TOPIC_MAX + 48 + LK__TICKET_MAX + 8 * LK__DECIMAL_SIZE + 1)

struct args {
	int count; /* the first HEAD are filled in by eval() */
	int keys;  /* of them, the first behind HEAD */
	char *end; /* of the used part of own */
	const char *text[HEAD + ARGS_MAX];
	size_t len[HEAD + ARGS_MAX];
	char own[OWN_MAX]; /* arguments that are not borrowed */
};

/* Does not zero args, which is large. */
static void begin(struct args *args)
{
	args->count = HEAD;
	args->end = args->own;
}

static inline void add(struct args *args, const char *text, size_t len)
{
	args->text[args->count] = text;
	args->len[args->count++] = len;
}

/* Add an argument whose bytes are already at args->end. */
static void add_own(struct args *args, size_t len)
{
	add(args, args->end, len);
	args->end += len;
}

static void add_number(struct args *args, int64_t value)
{
	/* Nearly all numbers are zeros and ones. */
	if (value == 0 || value == 1)
		add(args, value ? "1" : "0", 1);
	else
		add_own(args, lk__decimal(args->end, value));
}

/* Add the first key again, with two more characters. */
static void add_key(struct args *args, const char *suffix)
{
	size_t len = args->len[HEAD];

	put(put(args->end, args->text[HEAD], len), suffix, 2);
	add_own(args, len + 2);
}

/* All arguments so far are keys. */
static void end_keys(struct args *args)
{
	args->keys = args->count - HEAD;
}

static bool eval(struct lk__buf *buf, const struct lk__script *script, bool by_text,
                 struct args *args)
{
	args->text[0] = by_text ? "EVAL" : "EVALSHA";
	args->len[0] = by_text ? strlen("EVAL") : strlen("EVALSHA");
	args->text[1] = by_text ? script->text : script->sha1;
	args->len[1] = by_text ? script->len : sizeof(script->sha1) - 1;
	args->text[2] = args->end;
	args->len[2] = 1;
	*args->end = (char)('0' + args->keys);
	return lk__resp_command(buf, args->count, args->text, args->len);
}

bool lk__codec_eval(struct lk__buf *buf, const struct lk__script *script, bool by_text, int count,
                    const char *const *texts, const size_t *lens)
{
	return lk__codec_eval_keys(buf, script, by_text, script->keys, count, texts, lens);
}

bool lk__codec_eval_keys(struct lk__buf *buf, const struct lk__script *script, bool by_text,
                         int keys, int count, const char *const *texts, const size_t *lens)
{
	struct args args;

	begin(&args);
	args.keys = keys;
	for (int i = 0; i < count && i < ARGS_MAX; i++)
		add(&args, texts[i], lens ? lens[i] : strlen(texts[i]));
	return eval(buf, script, by_text, &args);
}

/* The prefix of the channels for messages about the request's name. */
static void add_channels(struct args *args, const struct lk__space *space)
{
	if (space->cluster)
		add_own(args,
		        lk__space_channels(space, args->text[HEAD], args->len[HEAD], args->end));
	else
		add(args, space->channels, space->channels_len);
}

/* The memory that the request is for, and the end of its grace. */
static void add_epoch(struct args *args, const struct lk__space *space,
                      const struct lk__request *request)
{
	add(args, request->epoch->text, request->epoch->len);
	add_number(args, request->epoch->since_us + space->grace_ms * 1000);
}

static const struct lk__script *lock_request(const struct lk__space *space,
                                             const struct lk__request *request, struct args *args)
{
	const char *share = request->share ? "s" : "-";

	switch (request->kind) {
	case LK__ASK:
		add(args, request->only_try ? "0" : "1", 1);
		add_number(args, (int64_t)request->arrival);
		add_channels(args, space);
		add(args, share, 1);
		add_number(args, LK__QUEUE_LIFE_MS);
		add_epoch(args, space, request);
		return &lk__script_lock_ask;
	case LK__RENEW:
	case LK__RECLAIM:
		add_number(args, (int64_t)request->fence);
		add_number(args, request->lease_ms);
		add_number(args, (int64_t)request->last_fence);
		add(args, share, 1);
		add_epoch(args, space, request);
		return request->kind == LK__RENEW ? &lk__script_lock_renew
		                                  : &lk__script_lock_reclaim;
	default:
		add_number(args, (int64_t)request->last_fence);
		add_channels(args, space);
		add(args, "0", 1);
		add_epoch(args, space, request);
		return &lk__script_lock_leave;
	}
}

static const struct lk__script *semaphore_request(const struct lk__space *space,
                                                  const struct lk__request *request,
                                                  struct args *args)
{
	switch (request->kind) {
	case LK__ASK:
		add(args, request->only_try ? "0" : "1", 1);
		add_number(args, (int64_t)request->arrival);
		add_channels(args, space);
		add_number(args, request->capacity);
		add_number(args, request->ttl_ms);
		add_number(args, LK__QUEUE_LIFE_MS);
		add_number(args, LK__HEAD_PATIENCE_MS);
		add_epoch(args, space, request);
		return &lk__script_semaphore_ask;
	case LK__RENEW:
		add_number(args, (int64_t)request->fence);
		add_number(args, request->lease_ms);
		add_epoch(args, space, request);
		return &lk__script_semaphore_renew;
	case LK__RECLAIM:
		add_number(args, (int64_t)request->fence);
		add_number(args, request->lease_ms);
		add_number(args, request->keep);
		add_number(args, request->capacity);
		add_number(args, request->ttl_ms);
		add_epoch(args, space, request);
		return &lk__script_semaphore_reclaim;
	default:
		add_number(args, request->keep);
		add_channels(args, space);
		add(args, "0", 1);
		add_number(args, LK__HEAD_PATIENCE_MS);
		add_epoch(args, space, request);
		if (request->fence)
			add_number(args, (int64_t)request->fence);
		return &lk__script_semaphore_leave;
	}
}

static const struct lk__script *latch_request(const struct lk__space *space,
                                              const struct lk__request *request, struct args *args)
{
	if (request->kind == LK__LOOK)
		return &lk__script_latch_show;
	add_number(args, (int64_t)request->generation);
	add(args, space->client_id, space->client_id_len);
	add_number(args, (int64_t)request->number);
	add_number(args, request->n);
	add(args, request->step, request->step_len);
	add(args, request->topic, request->topic_len);
	return &lk__script_latch_down;
}

static bool confirm_request(struct lk__buf *buf, const struct lk__request *request)
{
	char replicas[LK__DECIMAL_SIZE], wait_ms[LK__DECIMAL_SIZE];
	const char *texts[] = {"WAIT", replicas, wait_ms};
	const size_t lens[] = {4, lk__decimal(replicas, request->replicas),
	                       lk__decimal(wait_ms, request->wait_ms)};

	return lk__resp_command(buf, 3, texts, lens);
}

static bool epoch_request(struct lk__buf *buf, const struct lk__space *space,
                          const struct lk__request *request, struct args *args)
{
	const char *marker = request->marker ? request->marker : space->epoch;

	add(args, marker, strlen(marker));
	end_keys(args);
	add(args, request->epoch->text, request->epoch->len);
	add_number(args, request->epoch->unheld_pid);
	add_number(args, space->db);
	if (space->quorum || request->quorum) {
		const char *set = request->set ? request->set : "";
		add(args, set, strlen(set));
		add(args, request->set_is_new ? "1" : "0", 1);
	}
	for (int i = 0; i < request->voucher_count; i++)
		add(args, request->vouchers[i], strlen(request->vouchers[i]));
	return eval(buf, &lk__script_epoch_set, request->by_text, args);
}

static void add_fence(struct args *args, const struct lk__space *space,
                      const struct lk__request *request)
{
	if (space->cluster)
		add_own(args, lk__space_fence(space, request->name, request->name_len, args->end));
	else
		add(args, space->fence, space->fence_len);
}

/* The keys of the request, the name's first one first.  The marker of a Cluster's node is in a slot
 * of its own, and the client compares it. */
static void add_keys(struct args *args, const struct lk__space *space,
                     const struct lk__request *request)
{
	bool is_semaphore = request->noun == LK_KIND_SEMAPHORE;

	add_own(args, lk__space_main_key(space, request->name, request->name_len, args->end));
	if (request->noun == LK_KIND_LATCH) {
		add_key(args, ":s");
		if (request->kind == LK__LOOK)
			add_fence(args, space, request);
	} else if (request->narrow) {
		if (is_semaphore)
			add_key(args, ":h");
	} else {
		add_key(args, ":q");
		add_fence(args, space, request);
		if (is_semaphore)
			add_key(args, ":h");
		if (!space->cluster)
			add(args, space->epoch, space->epoch_len);
	}
	end_keys(args);
}

static bool name_request(struct lk__buf *buf, const struct lk__space *space,
                         const struct lk__request *request, struct args *args)
{
	const struct lk__script *script;

	add_keys(args, space, request);
	if (request->noun == LK_KIND_LATCH) {
		script = latch_request(space, request, args);
		return eval(buf, script, request->by_text, args);
	}
	if (request->kind == LK__HAND)
		add(args, "", 0);
	else
		add_own(args, lk__ticket_text(space, &request->ticket, args->end));
	script = request->noun == LK_KIND_SEMAPHORE ? semaphore_request(space, request, args)
	                                            : lock_request(space, request, args);
	return eval(buf, script, request->by_text, args);
}

bool lk__codec_request(struct lk__buf *buf, const struct lk__space *space,
                       const struct lk__request *request)
{
	const char *asking[] = {"ASKING"};
	const size_t before = buf->len;
	struct args args;
	bool ok;

	if (request->asking && !lk__resp_command(buf, 1, asking, NULL))
		return false;
	begin(&args);
	if (lk__codec_is_of_quorum(request))
		ok = lk__codec_quorum(buf, space, request);
	else if (lk__is_query(request->kind))
		ok = lk__codec_query(buf, space, request);
	else if (request->kind == LK__CONFIRM)
		ok = confirm_request(buf, request);
	else if (request->kind == LK__EPOCH)
		ok = epoch_request(buf, space, request, &args);
	else
		ok = name_request(buf, space, request, &args);
	if (!ok)
		buf->len = before;
	return ok;
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

/* Get a number, which may be text. */
static bool number(const struct lk__resp *resp, size_t index, int64_t *value)
{
	const struct lk__resp *part = element(resp, index);

	if (part && part->type == LK__RESP_INTEGER) {
		if (part->integer < 0 || part->integer > LK__EXACT_MAX)
			return false;
		*value = part->integer;
		return true;
	}
	return part && part->type == LK__RESP_STRING &&
	       lk__parse_i64(part->str, part->len, 0, LK__EXACT_MAX, value);
}

static bool is(const struct lk__resp *resp, const char *word)
{
	const struct lk__resp *part = element(resp, 0);

	return part && part->type == LK__RESP_STRING && part->str[0] == word[0] &&
	       !strcmp(part->str, word);
}

lk_err lk__codec_foreign(const struct lk__resp *resp, struct lk__why *why)
{
	const struct lk__resp *key = element(resp, 1), *what = element(resp, 2);

	if (!is(resp, "foreign") || !key || key->type != LK__RESP_STRING || !what ||
	    what->type != LK__RESP_STRING)
		return LK_OK;
	if (strstr(what->str, "use redis"))
		return lk__why_set(why, LK_EFOREIGN, "key %s: %s", key->str, what->str);
	return lk__why_set(why, LK_EFOREIGN, "key %s is in other use: %s%s", key->str, what->str,
	                   strstr(what->str, "version") ? " (of another version of Latchkey)" : "");
}

static void fail(struct lk__answer *answer, struct lk__why *why)
{
	answer->kind = LK__FAILED;
	answer->err = why->err;
	answer->text = why->text;
}

void lk__codec_error(const struct lk__resp *resp, const char *what, struct lk__answer *answer,
                     struct lk__why *why)
{
	const char *place = lk__resp_redirect(resp);

	lk__resp_why(resp, what, why);
	if (place)
		lk__why_set(why, LK_EAGAIN, "%s", place);
	fail(answer, why);
	if (place)
		answer->kind = resp->str[0] == 'M' ? LK__MOVED : LK__ASKED;
	answer->retryable = why->err == LK_EAGAIN;
	answer->ambiguous = lk__resp_is_torn(resp);
	answer->divided = lk__resp_is_divided(resp);
}

bool lk__codec_epoch(const struct lk__resp *resp, struct lk__epoch *epoch)
{
	const struct lk__resp *marker = element(resp, 1);
	int64_t refused;

	if (!is(resp, "epoch") || !marker || marker->type != LK__RESP_STRING ||
	    marker->len >= LK__EPOCH_SIZE || !number(resp, 2, &epoch->since_us) ||
	    !number(resp, 3, &epoch->read_us) || !number(resp, 4, &refused))
		return false;
	epoch->is_partial = refused != 0;
	epoch->len = (uint8_t)marker->len;
	memcpy(epoch->text, marker->str, marker->len + 1);
	lk__codec_set(epoch);
	return true;
}

bool lk__codec_is_cluster(const struct lk__resp *resp)
{
	return is(resp, "cluster");
}

/* Decode the replies of latch_show and latch_down.  False when it is neither. */
static bool latch_answer(const struct lk__resp *resp, struct lk__answer *answer)
{
	static const char *const states[] = {"absent", "counting", "open"};
	int64_t generation, opened, removed, next, counted;

	if (is(resp, "stepped") && number(resp, 1, &answer->remaining) &&
	    number(resp, 2, &counted)) {
		answer->kind = LK__STEPPED;
		answer->counted = counted != 0;
		return true;
	}
	if (!number(resp, 1, &generation))
		return false;
	answer->fence = (uint64_t)generation;
	if (is(resp, "other")) {
		answer->kind = LK__OTHER;
		return true;
	}
	for (int state = LK_LATCH_ABSENT; state <= LK_LATCH_OPEN; state++) {
		if (!is(resp, states[state]) || !number(resp, 5, &opened) ||
		    !number(resp, 6, &removed) || !number(resp, 7, &next))
			continue;
		answer->kind = LK__SHOWN;
		answer->latch_state = (lk_latch_state)state;
		answer->opened = (uint64_t)opened;
		answer->removed = (uint64_t)removed;
		answer->next = (uint64_t)next;
		if (!number(resp, 4, &answer->left_ms))
			answer->left_ms = -1; /* none */
		return true;
	}
	return false;
}

void lk__codec_answer(const struct lk__resp *resp, const char *what, struct lk__answer *answer,
                      struct lk__why *why)
{
	int64_t fence, a = 0, b = 0, c = 0, d = 0, e = 0;

	memset(answer, 0, sizeof(*answer));
	if (resp->type == LK__RESP_ERROR) {
		lk__codec_error(resp, what, answer, why);
	} else if (resp->type == LK__RESP_INTEGER) {
		answer->kind = LK__CONFIRMED;
		answer->replicas = resp->integer;
	} else if ((is(resp, "granted") || is(resp, "held")) && number(resp, 1, &fence) &&
	           number(resp, 2, &answer->store_us) && number(resp, 3, &answer->waiting)) {
		answer->kind = is(resp, "held") ? LK__KEPT : LK__GRANTED;
		answer->fence = (uint64_t)fence;
		if (number(resp, 4, &d) && number(resp, 5, &e)) {
			answer->last = (uint64_t)d;
			answer->older = e != 0;
		} else {
			answer->more = d != 0;
		}
	} else if (is(resp, "queued") && number(resp, 1, &a) && number(resp, 2, &b) &&
	           number(resp, 3, &c) && number(resp, 4, &d)) {
		answer->kind = LK__QUEUED;
		answer->arrival = (uint64_t)a;
		answer->rank = b;
		answer->left_ms = c;
		answer->free = d != 0;
		number(resp, 5, &answer->grace_ms);
	} else if (is(resp, "busy") && number(resp, 1, &d)) {
		answer->kind = LK__BUSY;
		answer->free = d != 0;
		number(resp, 2, &answer->grace_ms);
	} else if (is(resp, "epoch")) {
		answer->kind = LK__STALE;
		if (lk__codec_epoch(resp, &answer->epoch))
			answer->kind = LK__MEMORY;
	} else if (is(resp, "young") && number(resp, 1, &a)) {
		answer->kind = LK__YOUNG;
		answer->grace_ms = a;
	} else if (is(resp, "gone")) {
		answer->kind = LK__GONE;
	} else if (is(resp, "left") && number(resp, 1, &a) && number(resp, 2, &b) &&
	           number(resp, 3, &c)) {
		answer->kind = LK__LEFT;
		answer->mine = a != 0;
		answer->more = b != 0;
		answer->free = c != 0;
	} else if (is(resp, "limit") && number(resp, 1, &a)) {
		lk__why_set(why, LK_ELIMIT, "permits: more than the capacity of %lld",
		            (long long)a);
		answer->by_script = true;
		fail(answer, why);
	} else if (is(resp, "fence")) {
		lk__why_about(why, LK_ESERVER, what, "the fence counter is %s",
		              element(resp, 1) && element(resp, 1)->str ? element(resp, 1)->str
		                                                        : "bad");
		answer->by_script = true;
		fail(answer, why);
	} else if (lk__codec_foreign(resp, why)) {
		fail(answer, why);
	} else if (!latch_answer(resp, answer)) {
		lk__why_about(why, LK_ESERVER, what, "unexpected response to a script");
		answer->ambiguous = true;
		fail(answer, why);
	}
}
