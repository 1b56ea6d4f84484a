/* SPDX-License-Identifier: MIT
 * The store in Redis: what only the servers of a quorum are sent, and what only they know. */
#include "../base/slot.h"
#include "../base/text.h"
#include "codec.h"
#include "scripts.h"

#include <string.h>

#define WORDS_MAX 13 /* keys and arguments of a script */

/* The words of one request, and the memory of those that are not borrowed. */
struct words {
	int count;
	const char *text[WORDS_MAX];
	size_t len[WORDS_MAX];
	struct lk__keys keys;
	char ticket[LK__TICKET_MAX], next[LK__TICKET_MAX];
	char numbers[6][LK__DECIMAL_SIZE];
	int number_count;
};

static void add(struct words *words, const char *text, size_t len)
{
	words->text[words->count] = text;
	words->len[words->count++] = len;
}

static void add_text(struct words *words, const char *text)
{
	add(words, text, strlen(text));
}

static void add_number(struct words *words, uint64_t value)
{
	char *text = words->numbers[words->number_count++];

	add(words, text, lk__decimal(text, (int64_t)value));
}

/* Names that meet in a class share a counter of fences. */
static void add_class(struct words *words, const struct lk__request *request)
{
	add_number(words, lk__slot_of(request->name, request->name_len) % LK__CLASSES);
}

/* The memory that the request is for, and until when that is young. */
static void add_epoch(struct words *words, const struct lk__request *request)
{
	const struct lk__epoch *epoch = request->epoch;

	add(words, epoch->text, epoch->len);
	add_number(words, (uint64_t)(epoch->since_us + epoch->longest_ms * 1000));
}

static const struct lk__script *ask(struct words *words, const struct lk__space *space,
                                    const struct lk__request *request)
{
	add(words, request->only_try ? "0" : "1", 1);
	add_number(words, request->proposal);
	add_class(words, request);
	add(words, space->channels, space->channels_len);
	add_number(words, LK__QUEUE_LIFE_MS);
	return &lk__script_quorum_ask;
}

static const struct lk__script *renew(struct words *words, const struct lk__request *request)
{
	add_number(words, request->fence);
	add_number(words, (uint64_t)request->lease_ms);
	add_number(words, request->last_fence);
	add_class(words, request);
	return &lk__script_quorum_renew;
}

static const struct lk__script *leave(struct words *words, const struct lk__space *space,
                                      const struct lk__request *request)
{
	struct lk__ticket_id next = request->ticket;

	next.epoch++;
	add_number(words, request->proposal);
	add_class(words, request);
	add(words, space->channels, space->channels_len);
	add(words, request->kind == LK__BREAK ? "1" : "0", 1);
	if (request->kind == LK__YIELD)
		add(words, words->next, lk__ticket_text(space, &next, words->next));
	else
		add(words, "", 0);
	add_number(words, LK__QUEUE_LIFE_MS);
	return &lk__script_quorum_leave;
}

static void add_ticket(struct words *words, const struct lk__space *space,
                       const struct lk__request *request)
{
	if (request->kind == LK__BREAK)
		add_text(words, request->details->subject);
	else if (request->kind == LK__HAND)
		add(words, "", 0);
	else
		add(words, words->ticket, lk__ticket_text(space, &request->ticket, words->ticket));
}

bool lk__codec_is_of_quorum(const struct lk__request *request)
{
	return request->quorum && (request->kind == LK__ASK || request->kind == LK__LEAVE ||
	                           request->kind == LK__HAND || request->kind == LK__YIELD ||
	                           request->kind == LK__RENEW || request->kind == LK__BREAK);
}

bool lk__codec_quorum(struct lk__buf *buf, const struct lk__space *space,
                      const struct lk__request *request)
{
	const bool by_text = request->by_text || lk__is_query(request->kind);
	const struct lk__script *script;
	struct words words;

	words.count = words.number_count = 0;
	lk__space_keys(space, request->name, request->name_len, &words.keys);
	add_text(&words, words.keys.main);
	add_text(&words, words.keys.queue);
	add(&words, space->fences, space->fences_len);
	add(&words, space->epoch, space->epoch_len);
	add_ticket(&words, space, request);
	script = request->kind == LK__ASK     ? ask(&words, space, request)
	         : request->kind == LK__RENEW ? renew(&words, request)
	                                      : leave(&words, space, request);
	add_epoch(&words, request);
	return lk__codec_eval(buf, script, by_text, words.count, words.text, words.len);
}

/* ---- The marker --------------------------------------------------------------------------- */

/* Cut off the text up to that character. */
static bool cut(const char **at, char end, const char **start, size_t *len)
{
	const char *stop = strchr(*at, end);

	if (!stop)
		return false;
	*start = *at;
	*len = (size_t)(stop - *at);
	*at = stop + 1;
	return true;
}

void lk__codec_set(struct lk__epoch *epoch)
{
	const char *at = epoch->text, *id, *place, *servers, *longest;
	size_t id_len, place_len, servers_len, longest_len;
	int64_t number, count, longest_ms;

	epoch->set[0] = '\0';
	epoch->set_servers = epoch->set_place = 0;
	epoch->longest_ms = 0;
	if (!cut(&at, '[', &id, &id_len) || !cut(&at, ' ', &id, &id_len) ||
	    !cut(&at, '/', &place, &place_len) || !cut(&at, ' ', &servers, &servers_len) ||
	    !cut(&at, ']', &longest, &longest_len) ||
	    !id_len || id_len >= LK__SET_SIZE ||
	    !lk__parse_i64(place, place_len, 0, UINT8_MAX, &number) ||
	    !lk__parse_i64(servers, servers_len, number ? number : 1, UINT8_MAX, &count) ||
	    !lk__parse_i64(longest, longest_len, 1, LK_LEASE_MAX_MS, &longest_ms))
		return;
	memcpy(epoch->set, id, id_len);
	epoch->set[id_len] = '\0';
	epoch->set_servers = (uint8_t)count;
	epoch->set_place = (uint8_t)number;
	epoch->longest_ms = longest_ms;
}
