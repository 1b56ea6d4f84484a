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

/* Parse 2:client:nonce:lease:mode or 2:client:nonce:lease:mode:permits, where client is us. */
static bool parse_ticket(const struct lk__space *space, const char *text, size_t len,
                         struct lk__message *message)
{
	const size_t head = 2 + LK__CLIENT_ID_SIZE - 1 + 1, nonce = LK__NONCE_SIZE - 1;
	size_t last = len; /* start of the last word */
	int64_t permits = 0;
	char mode;

	while (last && text[last - 1] != ':')
		last--;
	if (last && last < len && text[last] != 'r' && text[last] != 'f') {
		if (!lk__parse_i64(text + last, len - last, 1, LK_PERMITS_MAX, &permits))
			return false;
		len = last - 1;
	}
	if (len < head + nonce + 4 || memcmp(text, "2:", 2) ||
	    memcmp(text + 2, space->client_id, LK__CLIENT_ID_SIZE - 1) || text[head - 1] != ':' ||
	    text[head + nonce] != ':' || text[len - 2] != ':')
		return false;
	mode = text[len - 1];
	if (mode != 'r' && mode != 'f' && (mode != 'n' || !permits))
		return false;
	memcpy(message->nonce, text + head, nonce);
	message->nonce[nonce] = '\0';
	message->fixed = mode != 'r';
	message->final = mode == 'n';
	message->permits = (uint32_t)permits;
	return lk__parse_i64(text + head + nonce + 1, len - head - nonce - 3, 1, LK_LEASE_MAX_MS,
	                     &message->lease_ms);
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
