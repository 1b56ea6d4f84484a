/* SPDX-License-Identifier: MIT
 * The store in Redis: the wire format of queries and of their answers. */
#include "../base/slot.h"
#include "../base/text.h"
#include "codec.h"
#include "conn.h"
#include "scripts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCAN_COUNT "500"
#define LISTING_HEAD 8 /* elements of semaphore_show's reply before its lists */
#define PER_HOLD 4
#define LOCK_HEAD 6
#define PARTY_FIELDS 6

/* ---- Queries ---------------------------------------------------------------------------- */

/* The words of one query, and the memory of those that are not borrowed. */
struct words {
	const struct lk__space *space;
	const struct lk__request *query;
	const struct lk__details *details;
	struct lk__keys keys;
	char ticket[LK__TICKET_MAX];
	char topic[LK__TOPIC_MAX];
	char channels[LK__TOPIC_MAX];
	char numbers[5][LK__DECIMAL_SIZE];
	int number_count;
};

static const char *number_text(struct words *words, int64_t value)
{
	char *text = words->numbers[words->number_count++];

	lk__decimal(text, value);
	return text;
}

static bool script(struct lk__buf *buf, const struct lk__script *script, int count,
                   const char *const *args)
{
	return lk__codec_eval(buf, script, true, count, args, NULL);
}

static bool show(struct lk__buf *buf, struct words *words)
{
	const struct lk__details *details = words->details;
	const struct lk__keys *keys = &words->keys;

	if (words->query->noun == LK_KIND_LATCH) {
		const char *args[] = {keys->main, keys->memory, keys->fence};
		return script(buf, &lk__script_latch_show, 3, args);
	}
	if (words->query->ticket.nonce[0])
		lk__ticket_text(words->space, &words->query->ticket, words->ticket);
	if (words->query->noun == LK_KIND_LOCK) {
		const char *args[] = {keys->main, keys->queue, words->ticket,
		                      number_text(words, (int64_t)details->waiters)};
		return script(buf, &lk__script_lock_show, 4, args);
	}
	const char *args[] = {keys->main,
	                      keys->queue,
	                      keys->fence,
	                      keys->holds,
	                      words->ticket,
	                      number_text(words, (int64_t)details->holders),
	                      number_text(words, (int64_t)details->waiters),
	                      details->only};
	return script(buf, &lk__script_semaphore_show, details->only ? 8 : 7, args);
}

static const char *grace_text(struct words *words)
{
	return number_text(words, words->query->epoch->since_us + words->space->grace_ms * 1000);
}

/* All keys of a lock or a semaphore, and in a Cluster not the marker: it is in another slot.
 * Returns how many. */
static int put_keys(const struct words *words, bool is_lock, const char **args)
{
	int count = 0;

	args[count++] = words->keys.main;
	args[count++] = words->keys.queue;
	args[count++] = words->keys.fence;
	if (!is_lock)
		args[count++] = words->keys.holds;
	if (!words->space->cluster)
		args[count++] = words->space->epoch;
	return count;
}

static bool end_hold(struct lk__buf *buf, struct words *words)
{
	const bool is_lock = words->query->noun == LK_KIND_LOCK;
	const char *args[12];
	const int keys = put_keys(words, is_lock, args);
	int count = keys;

	args[count++] = words->details->subject;
	args[count++] = "0";
	args[count++] = words->channels;
	args[count++] = "1";
	if (!is_lock)
		args[count++] = number_text(words, LK__HEAD_PATIENCE_MS);
	args[count++] = words->query->epoch->text;
	args[count++] = grace_text(words);
	return lk__codec_eval_keys(buf,
	                           is_lock ? &lk__script_lock_leave : &lk__script_semaphore_leave,
	                           true, keys, count, args, NULL);
}

static bool size(struct lk__buf *buf, struct words *words)
{
	const struct lk__details *details = words->details;
	const char *args[12];
	const int keys = put_keys(words, false, args);
	int count = keys;

	args[count++] = details->must_exist ? "resize" : "open";
	args[count++] = number_text(words, details->capacity);
	args[count++] = number_text(words, details->ttl_ms);
	args[count++] = words->channels;
	args[count++] = number_text(words, LK__HEAD_PATIENCE_MS);
	args[count++] = words->query->epoch->text;
	args[count++] = grace_text(words);
	return lk__codec_eval_keys(buf, &lk__script_semaphore_set, true, keys, count, args, NULL);
}

static bool set_latch(struct lk__buf *buf, struct words *words)
{
	const struct lk__details *details = words->details;
	const struct lk__keys *keys = &words->keys;
	const char *args[] = {keys->main,
	                      keys->memory,
	                      keys->fence,
	                      keys->queue,
	                      number_text(words, details->count),
	                      details->anew ? "1" : "0",
	                      number_text(words, details->open_ttl_ms),
	                      number_text(words, details->counting_ttl_ms),
	                      words->topic};

	return script(buf, &lk__script_latch_set, 9, args);
}

static bool list(struct lk__buf *buf, const struct words *words)
{
	char pattern[48];
	const char *argv[] = {"SCAN",    words->details->subject, "MATCH", pattern, "COUNT",
	                      SCAN_COUNT};

	snprintf(pattern, sizeof(pattern), "%s:{*}*", words->space->prefix);
	return lk__resp_command(buf, 6, argv, NULL);
}

/* The field of the label of the client, or of the name.  In a Cluster both come with a name. */
static void put_label_field(const struct lk__request *query, char field[LK__KEY_MAX])
{
	bool of_name = query->name_len && !query->details->pid;

	snprintf(field, LK__KEY_MAX, of_name ? "label:" : "label");
	if (of_name)
		lk__name_encode(field + strlen(field), query->name, query->name_len);
}

/* In a Cluster each slot has the details of the clients that use its names. */
static void put_client_key(const struct words *words, const char *id, char key[LK__CHANNEL_MAX])
{
	lk__space_client_key(words->space, id,
	                     lk__slot_of(words->query->name, words->query->name_len), key);
}

static bool describe(struct lk__buf *buf, const struct words *words)
{
	char id[LK__CLIENT_ID_SIZE], key[LK__CHANNEL_MAX], label[LK__KEY_MAX];
	const char *argv[2 + PARTY_FIELDS] = {"HMGET",   key,   "host", "user",
	                                      "program", "pid", label,  "label"};

	snprintf(id, sizeof(id), "%.22s", words->details->subject);
	put_client_key(words, id, key);
	put_label_field(words->query, label);
	return lk__resp_command(buf, 2 + PARTY_FIELDS, argv, NULL);
}

static bool introduce(struct lk__buf *buf, struct words *words)
{
	const struct lk__details *details = words->details;
	char key[LK__CHANNEL_MAX], label[LK__KEY_MAX];
	const char *fields[][2] = {
		{"host", details->host}, {"user", details->user}, {"program", details->program},
		{"pid", NULL},           {label, details->label},
	};
	const char *args[2 + 10] = {key, number_text(words, details->life_ms)};
	int count = 2;

	put_client_key(words, words->space->client_id, key);
	put_label_field(words->query, label);
	if (details->pid)
		fields[3][1] = number_text(words, details->pid);
	for (size_t i = 0; i < 5; i++) {
		if (!fields[i][1])
			continue;
		args[count++] = fields[i][0];
		args[count++] = fields[i][1];
	}
	return script(buf, &lk__script_client_set, count, args);
}

static bool forget(struct lk__buf *buf, const struct words *words)
{
	char key[LK__CHANNEL_MAX];
	const char *argv[] = {"DEL", key};

	put_client_key(words, words->space->client_id, key);
	return lk__resp_command(buf, 2, argv, NULL);
}

static const char *marker_of(const struct words *words)
{
	return words->query->marker ? words->query->marker : words->space->epoch;
}

static void put_names(struct words *words)
{
	const struct lk__request *query = words->query;
	size_t len;

	lk__space_keys(words->space, query->name, query->name_len, &words->keys);
	lk__space_topic(words->space, query->name, query->name_len, words->topic);
	len = lk__space_channels(words->space, words->keys.main, strlen(words->keys.main),
	                         words->channels);
	words->channels[len] = '\0';
}

bool lk__codec_query(struct lk__buf *buf, const struct lk__space *space,
                     const struct lk__request *query)
{
	struct words words = {.space = space, .query = query, .details = query->details};
	const char *ping[] = {"PING"}, *slots[] = {"CLUSTER", "SLOTS"};

	if (query->name_len)
		put_names(&words);
	switch ((enum lk__request_kind)query->kind) {
	case LK__SHOW:
		return show(buf, &words);
	case LK__DESCRIBE:
		return describe(buf, &words);
	case LK__BREAK:
		return end_hold(buf, &words);
	case LK__SIZE:
		return size(buf, &words);
	case LK__SET:
		return set_latch(buf, &words);
	case LK__REMOVE: {
		const char *args[] = {words.keys.main, words.keys.memory, words.keys.queue,
		                      words.topic};
		return script(buf, &lk__script_latch_remove, 4, args);
	}
	case LK__KIND: {
		const char *args[] = {words.keys.main, words.keys.queue};
		return script(buf, &lk__script_name_kind, 2, args);
	}
	case LK__LIST:
		return list(buf, &words);
	case LK__RECALL: {
		const char *args[] = {marker_of(&words), query->epoch->text,
		                      number_text(&words, query->epoch->unheld_pid),
		                      number_text(&words, space->db),
		                      query->set ? query->set : "",
		                      query->set_is_new ? "1" : "0"};
		const bool quorum = space->quorum || query->quorum;
		return script(buf, &lk__script_epoch_set, quorum ? 6 : 4, args);
	}
	case LK__END_GRACE: {
		const char *args[] = {marker_of(&words), query->details->subject};
		return script(buf, &lk__script_epoch_end, 2, args);
	}
	case LK__TOPOLOGY:
		return lk__resp_command(buf, 2, slots, NULL);
	case LK__INTRODUCE:
		return introduce(buf, &words);
	case LK__FORGET:
		return forget(buf, &words);
	default:
		return lk__resp_command(buf, 1, ping, NULL);
	}
}

/* ---- Answers ------------------------------------------------------------------------------ */

static bool is_string(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_STRING;
}

/* Is it an array that begins with these types: s a string, i an integer? */
static bool begins(const struct lk__resp *resp, const char *form)
{
	if (resp->type != LK__RESP_ARRAY || resp->len < strlen(form))
		return false;
	for (size_t i = 0; form[i]; i++)
		if (resp->elements[i]->type !=
		    (form[i] == 's' ? LK__RESP_STRING : LK__RESP_INTEGER))
			return false;
	return true;
}

static bool first_is(const struct lk__resp *resp, const char *word)
{
	return begins(resp, "s") && !strcmp(resp->elements[0]->str, word);
}

/* Get a number, which may be text; 0 if it is none. */
static int64_t number(const struct lk__resp *resp)
{
	int64_t value = 0;

	if (resp->type == LK__RESP_INTEGER)
		return resp->integer;
	if (is_string(resp))
		lk__parse_i64(resp->str, resp->len, 0, INT64_MAX, &value);
	return value;
}

/* Get the client id from a ticket, 2:client:nonce:... or q1:client:nonce:...  False when it is not
 * a ticket. */
static bool entry_of(const struct lk__resp *ticket, struct lk__entry *entry)
{
	const size_t len = LK__CLIENT_ID_SIZE + LK__NONCE_SIZE - 1;
	size_t head;

	if (!is_string(ticket))
		return false;
	head = ticket->str[0] == 'q' ? 3 : 2;
	if (ticket->len < head + len || ticket->len >= sizeof(entry->id) ||
	    memcmp(ticket->str, head == 3 ? "q1:" : "2:", head))
		return false;
	*entry = (struct lk__entry){0};
	memcpy(entry->id, ticket->str, ticket->len + 1);
	lk__escape(entry->party, sizeof(entry->party), ticket->str + head, len);
	return true;
}

static bool lock_listing(const struct lk__resp *resp, struct lk__listing *listing)
{
	struct lk__entry *entry = listing->entries;

	if (!begins(resp, "ssisii"))
		return false;
	listing->store_us = number(resp->elements[3]);
	listing->waiting = resp->elements[4]->integer;
	listing->rank = resp->elements[5]->integer;
	if (listing->room && entry_of(resp->elements[0], entry)) {
		entry->fence = (uint64_t)number(resp->elements[1]);
		entry->left_ms = resp->elements[2]->integer;
		listing->held = listing->count = listing->holders = 1;
	}
	for (size_t i = LOCK_HEAD; i < resp->len && listing->count < listing->room; i++)
		listing->count += entry_of(resp->elements[i], &listing->entries[listing->count]);
	return true;
}

static bool semaphore_listing(const struct lk__resp *resp, struct lk__listing *listing)
{
	struct lk__resp *const *part;
	size_t holds;

	if (!begins(resp, "ssiiiisi") || resp->elements[7]->integer < 0 ||
	    (uint64_t)resp->elements[7]->integer > (resp->len - LISTING_HEAD) / PER_HOLD)
		return false;
	listing->capacity = number(resp->elements[0]);
	listing->used = number(resp->elements[1]);
	listing->holders = resp->elements[2]->integer;
	listing->waiting = resp->elements[3]->integer;
	listing->rank = resp->elements[4]->integer;
	listing->ttl_ms = resp->elements[5]->integer;
	listing->store_us = number(resp->elements[6]);
	holds = (size_t)resp->elements[7]->integer;
	part = resp->elements + LISTING_HEAD;
	for (size_t i = 0; i < holds && listing->count < listing->room; i++, part += PER_HOLD) {
		struct lk__entry *entry = &listing->entries[listing->count];
		if (!entry_of(part[0], entry))
			continue;
		entry->permits = number(part[1]);
		entry->fence = (uint64_t)number(part[2]);
		entry->left_ms = number(part[3]);
		listing->held = ++listing->count;
	}
	for (size_t i = LISTING_HEAD + holds * PER_HOLD;
	     i < resp->len && listing->count < listing->room; i++) {
		struct lk__entry *entry = &listing->entries[listing->count];
		const char *last;
		if (!entry_of(resp->elements[i], entry))
			continue;
		last = strrchr(entry->id, ':'); /* its last word: the permits it wants */
		entry->permits = last ? strtoll(last + 1, NULL, 10) : 0;
		listing->count++;
	}
	return true;
}

static void copy_field(char *out, size_t size, const struct lk__resp *resp)
{
	if (is_string(resp))
		lk__escape(out, size, resp->str, resp->len);
}

/* Fields that the client did not publish stay empty. */
static void fill_party(lk_party *party, const struct lk__resp *resp)
{
	if (resp->type != LK__RESP_ARRAY || resp->len != PARTY_FIELDS)
		return;
	copy_field(party->host, sizeof(party->host), resp->elements[0]);
	copy_field(party->user, sizeof(party->user), resp->elements[1]);
	copy_field(party->program, sizeof(party->program), resp->elements[2]);
	if (is_string(resp->elements[3]))
		lk__parse_i64(resp->elements[3]->str, resp->elements[3]->len, 0, INT64_MAX,
		              &party->pid);
	copy_field(party->label, sizeof(party->label), resp->elements[5]);
	copy_field(party->label, sizeof(party->label), resp->elements[4]);
}

static const char *const latch_states[] = {"absent", "counting", "open"};
static const char *const nouns[] = {"nothing", "lock", "semaphore", "latch"};

/* The index of the matching word, -1 = none. */
static int which(const struct lk__resp *resp, const char *const *list, int count)
{
	for (int i = 0; i < count; i++)
		if (is_string(resp) && !strcmp(resp->str, list[i]))
			return i;
	return -1;
}

static bool state_of(const struct lk__resp *resp, lk_latch_state *state)
{
	int i = which(resp, latch_states, 3);

	*state = i < 0 ? LK_LATCH_ABSENT : (lk_latch_state)i;
	return i >= 0;
}

/* Decode the replies of the queries' scripts.  False when it is none of them. */
static bool script_answer(const struct lk__resp *resp, const struct lk__request *query,
                          struct lk__answer *answer)
{
	enum lk__request_kind kind = (enum lk__request_kind)query->kind;

	/* A latch that is shown has its state and all the rest in one reply. */
	if (first_is(resp, "absent") && (kind == LK__SIZE || kind == LK__REMOVE ||
	                                 (kind == LK__SHOW && query->noun != LK_KIND_LATCH))) {
		answer->kind = LK__ABSENT;
	} else if (kind == LK__SIZE && first_is(resp, "mismatch") && resp->len > 1) {
		answer->kind = LK__MISMATCH;
		answer->capacity = number(resp->elements[1]);
	} else if (kind == LK__SIZE && begins(resp, "ssi") && first_is(resp, "set")) {
		answer->kind = LK__SIZED;
		answer->capacity = number(resp->elements[1]);
		answer->more = resp->elements[2]->integer != 0;
	} else if (kind == LK__SET && begins(resp, "sii") && first_is(resp, "counting")) {
		answer->kind = LK__COUNTS;
		answer->remaining = resp->elements[1]->integer;
		answer->initial = resp->elements[2]->integer;
	} else if (kind == LK__SET && begins(resp, "ss") && first_is(resp, "set") &&
	           state_of(resp->elements[1], &answer->latch_state)) {
		answer->kind = LK__MADE;
	} else if (kind == LK__REMOVE && first_is(resp, "removed")) {
		answer->kind = LK__DONE;
	} else if (kind == LK__KIND) {
		int i = begins(resp, "s") ? which(resp->elements[0], nouns, 4) : -1;
		answer->kind = LK__IS;
		answer->noun = i < 0 ? LK_KIND_NONE : (lk_kind)i;
		return i >= 0;
	} else {
		return false;
	}
	return true;
}

/* Decode a latch's reply, if it is complete. */
static bool latch_shown(const struct lk__resp *resp, struct lk__answer *answer)
{
	if (!begins(resp, "ssiiisss") || !state_of(resp->elements[0], &answer->latch_state))
		return false;
	answer->kind = LK__SHOWN;
	answer->fence = (uint64_t)number(resp->elements[1]);
	answer->remaining = resp->elements[2]->integer;
	answer->initial = resp->elements[3]->integer;
	answer->left_ms = resp->elements[4]->integer;
	return true;
}

static bool show_answer(const struct lk__resp *resp, lk_kind noun, struct lk__listing *listing,
                        struct lk__answer *answer)
{
	if (noun == LK_KIND_LATCH)
		return latch_shown(resp, answer);
	answer->kind = LK__LISTED;
	if (!listing) /* its caller has returned */
		return true;
	return noun == LK_KIND_LOCK ? lock_listing(resp, listing)
	                            : semaphore_listing(resp, listing);
}

static void fail(struct lk__answer *answer, struct lk__why *why, const char *text)
{
	answer->kind = LK__FAILED;
	answer->err = why->err;
	answer->text = text;
}

void lk__codec_query_answer(const struct lk__resp *resp, const char *what,
                            const struct lk__space *space, const struct lk__request *query,
                            void *into, struct lk__answer *answer, struct lk__why *why)
{
	enum lk__request_kind kind = (enum lk__request_kind)query->kind;
	lk_err err;

	*answer = (struct lk__answer){.kind = LK__DONE};
	if (kind == LK__DESCRIBE && !lk__resp_redirect(resp)) {
		/* List a party that cannot be described as well, whatever the reason. */
		answer->kind = LK__LISTED;
		if (into)
			fill_party(into, resp);
	} else if (resp->type == LK__RESP_ERROR) {
		lk__codec_error(resp, what, answer, why);
	} else if (kind == LK__BREAK || first_is(resp, "epoch") ||
	           ((kind == LK__SIZE || kind == LK__SET) && first_is(resp, "fence"))) {
		lk__codec_answer(resp, what, answer, why);
	} else if (kind == LK__LIST) {
		answer->kind = LK__LISTED;
		err = into ? lk__codec_names(resp, space, into) : LK_OK;
		if (err == LK_ENOMEM)
			lk__why_set(why, err, "out of memory");
		else if (err)
			lk__why_about(why, err, what, "unexpected response to SCAN");
		if (err)
			fail(answer, why, why->text);
	} else if (kind == LK__TOPOLOGY) {
		answer->kind = LK__LISTED;
		if (into && !lk__codec_topology(resp, what, into, why))
			fail(answer, why, why->text);
	} else if (kind == LK__INTRODUCE || kind == LK__FORGET || kind == LK__PING) {
		answer->kind = LK__DONE;
	} else if (lk__codec_foreign(resp, why)) {
		fail(answer, why, why->text);
	} else if (!script_answer(resp, query, answer) &&
	           (kind != LK__SHOW || !show_answer(resp, (lk_kind)query->noun, into, answer))) {
		bool changes = kind == LK__SIZE || kind == LK__SET || kind == LK__REMOVE ||
		               kind == LK__END_GRACE;
		lk__why_about(why, changes ? LK_EUNKNOWN : LK_ESERVER, what,
		              "unexpected response to a script");
		fail(answer, why, why->text);
	}
}
