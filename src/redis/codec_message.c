/* SPDX-License-Identifier: MIT
 * The store in Redis: the wire format of messages. */
#include "../base/text.h"
#include "codec.h"

#include <string.h>

/* Cut off the next word, at a single space or the end. */
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

	return word(at, end, &start, &len) && lk__parse_i64(start, len, 0, LK__EXACT_MAX, value);
}

/* Cut a number off the end of the text, and the ':' before it. */
static bool last_number(const char *text, size_t *len, int64_t min, int64_t max, int64_t *value)
{
	size_t start = *len;

	while (start && text[start - 1] != ':')
		start--;
	if (!start || !lk__parse_i64(text + start, *len - start, min, max, value))
		return false;
	*len = start - 1;
	return true;
}

/* Parse <head>client:nonce:lease:mode, where client is us; the mode n only if it may be. */
static bool parse_parts(const struct lk__space *space, const char *head, const char *text,
                        size_t len, bool may_be_final, struct lk__message *message)
{
	const size_t version = strlen(head), nonce = LK__NONCE_SIZE - 1;
	const size_t at = version + LK__CLIENT_ID_SIZE;
	char mode;

	if (len < at + nonce + 4 || memcmp(text, head, version) ||
	    memcmp(text + version, space->client_id, LK__CLIENT_ID_SIZE - 1) ||
	    text[at - 1] != ':' || text[at + nonce] != ':' || text[len - 2] != ':')
		return false;
	mode = text[len - 1];
	if (mode != 'r' && mode != 'f' && (mode != 'n' || !may_be_final))
		return false;
	memcpy(message->nonce, text + at, nonce);
	message->nonce[nonce] = '\0';
	message->fixed = mode != 'r';
	message->final = mode == 'n';
	return lk__parse_i64(text + at + nonce + 1, len - at - nonce - 3, 1, LK_LEASE_MAX_MS,
	                     &message->lease_ms);
}

/* Parse 2:client:nonce:lease:mode, with :permits of a semaphore, or of a quorum
 * q1:client:nonce:lease:mode:priority:epoch. */
static bool parse_ticket(const struct lk__space *space, const char *text, size_t len,
                         struct lk__message *message)
{
	int64_t permits = 0, priority, epoch;

	if (*text == 'q') {
		if (!last_number(text, &len, 0, UINT16_MAX, &epoch) ||
		    !last_number(text, &len, 1, LK__EXACT_MAX, &priority))
			return false;
		message->priority = (uint64_t)priority;
		message->epoch = (uint16_t)epoch;
		return parse_parts(space, "q1:", text, len, false, message);
	}
	if (text[len - 1] >= '0' && text[len - 1] <= '9' &&
	    !last_number(text, &len, 1, LK_PERMITS_MAX, &permits))
		return false;
	message->permits = (uint32_t)permits;
	return parse_parts(space, "2:", text, len, permits > 0, message);
}

bool lk__codec_broadcast(const char *text, size_t len, struct lk__message *message)
{
	const char *at = text, *end = text + len, *verb;
	size_t verb_len;
	int64_t generation;

	memset(message, 0, sizeof(*message));
	if (!word(&at, end, &verb, &verb_len) || verb_len != 4 ||
	    !word_number(&at, end, &generation) || at != end)
		return false;
	message->fence = (uint64_t)generation;
	message->kind = memcmp(verb, "open", 4) ? LK__REMOVED : LK__OPENED;
	return !memcmp(verb, "open", 4) || !memcmp(verb, "gone", 4);
}

bool lk__codec_message(const struct lk__space *space, const char *text, size_t len,
                       struct lk__message *message)
{
	const char *at = text, *end = text + len, *verb, *ticket;
	size_t verb_len, ticket_len;
	int64_t fence, claim, older;

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
		/* Of a quorum, the priority of the older ticket follows. */
		if (message->priority && !word_number(&at, end, &older))
			return false;
	} else if (verb_len == 5 && !memcmp(verb, "again", 5)) {
		message->kind = LK__REASK;
		if (!word_number(&at, end, &message->in_ms) || message->in_ms > LK_LEASE_MAX_MS)
			return false;
	} else if (verb_len == 6 && !memcmp(verb, "broken", 6)) {
		message->kind = LK__BROKEN;
	} else {
		return false;
	}
	return at == end;
}
