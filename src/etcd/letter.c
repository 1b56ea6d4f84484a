/* SPDX-License-Identifier: MIT
 * Letters: see letter.h. */
#include "letter.h"

#include "../base/text.h"

#include <stdio.h>
#include <string.h>

#define CLIENT_LEN (LK__CLIENT_ID_SIZE - 1)
#define NONCE_LEN (LK__NONCE_SIZE - 1)

static const char letters[] = {'\0', 'g', 'b', 's'};

static size_t write_permits(char *text, size_t size, const struct lk__etcd_letter *letter)
{
	size_t pos = (size_t)snprintf(text, size, " %c", letters[letter->kind]);

	for (unsigned i = 0; i < letter->count; i++)
		pos += (size_t)snprintf(text + pos, size - pos, " %c%s:%lld", letter->what[i],
		                        letter->next[i].nonce, (long long)letter->next[i].created);
	return pos;
}

size_t lk__etcd_letter_write(char text[LK__ETCD_LETTER_MAX], const struct lk__etcd_letter *letter)
{
	size_t pos = 0;

	text[pos++] = '1';
	text[pos] = '\0';
	if (letter->kind == LK__LETTER_NONE)
		return pos;
	if (letter->kind == LK__LETTER_PERMITS)
		return pos + write_permits(text + pos, LK__ETCD_LETTER_MAX - pos, letter);
	pos += (size_t)snprintf(text + pos, LK__ETCD_LETTER_MAX - pos, " %c %s %lld",
	                        letters[letter->kind], letter->nonce, (long long)letter->created);
	for (unsigned i = 0; i < letter->count; i++)
		pos += (size_t)snprintf(text + pos, LK__ETCD_LETTER_MAX - pos, " %s%s:%lld",
		                        letter->next[i].client, letter->next[i].nonce,
		                        (long long)letter->next[i].created);
	return pos;
}

/* The next word of what is left, after a space; NULL if there is none. */
static const char *word(struct lk__bytes *left, size_t *len)
{
	const char *text = left->data;
	const char *end;

	if (left->len < 2 || text[0] != ' ')
		return NULL;
	text++;
	end = memchr(text, ' ', left->len - 1);
	*len = end ? (size_t)(end - text) : left->len - 1;
	*left = (struct lk__bytes){text + *len, left->len - 1 - *len};
	return *len ? text : NULL;
}

static bool read_place(int64_t *created, const char *text, size_t len)
{
	return lk__parse_i64(text, len, 1, INT64_MAX, created);
}

static bool read_next(struct lk__etcd_ticket *ticket, const char *text, size_t len)
{
	const size_t id_len = CLIENT_LEN + NONCE_LEN;

	if (len < id_len + 2 || text[id_len] != ':')
		return false;
	lk__etcd_read_ticket(ticket, (struct lk__bytes){text, id_len}, 0);
	return ticket->client[0] &&
	       read_place(&ticket->created, text + id_len + 1, len - id_len - 1);
}

static bool read_grant(struct lk__etcd_letter *letter, struct lk__bytes left)
{
	while (left.len) {
		size_t len;
		const char *text = word(&left, &len);
		if (!text || letter->count == LK__ETCD_NEXT_MAX ||
		    !read_next(&letter->next[letter->count], text, len))
			return false;
		letter->count++;
	}
	return true;
}

static bool read_permits(struct lk__etcd_letter *letter, struct lk__bytes left)
{
	letter->kind = LK__LETTER_PERMITS;
	while (left.len) {
		size_t len;
		const char *text = word(&left, &len);
		struct lk__etcd_ticket *ticket = &letter->next[letter->count];
		if (!text || letter->count == LK__ETCD_NEXT_MAX || len < NONCE_LEN + 3 ||
		    text[NONCE_LEN + 1] != ':' ||
		    !read_place(&ticket->created, text + NONCE_LEN + 2, len - NONCE_LEN - 2))
			return false;
		letter->what[letter->count++] = *text;
		memcpy(ticket->nonce, text + 1, NONCE_LEN);
	}
	return true;
}

static bool read_letter(struct lk__etcd_letter *letter, struct lk__bytes text)
{
	struct lk__bytes left = {(const char *)text.data + 1, text.len - 1};
	const char *kind, *nonce, *place;
	size_t kind_len, len, place_len;

	kind = word(&left, &kind_len);
	if (kind && kind_len == 1 && *kind == letters[LK__LETTER_PERMITS])
		return read_permits(letter, left);
	nonce = kind ? word(&left, &len) : NULL;
	place = nonce ? word(&left, &place_len) : NULL;
	if (!place || kind_len != 1 || len != NONCE_LEN ||
	    !read_place(&letter->created, place, place_len))
		return false;
	memcpy(letter->nonce, nonce, NONCE_LEN);
	for (unsigned i = LK__LETTER_GRANT; i < sizeof(letters); i++)
		if (letters[i] == *kind)
			letter->kind = (enum lk__etcd_letter_kind)i;
	if (letter->kind == LK__LETTER_GRANT)
		return read_grant(letter, left);
	return letter->kind != LK__LETTER_NONE && left.len == 0;
}

bool lk__etcd_letter_read(struct lk__etcd_letter *letter, struct lk__bytes text)
{
	*letter = (struct lk__etcd_letter){0};
	if (text.len == 0 || *(const char *)text.data != '1')
		return false;
	if (text.len == 1)
		return true;
	if (read_letter(letter, text))
		return true;
	*letter = (struct lk__etcd_letter){0};
	return false;
}
