/* SPDX-License-Identifier: MIT
 * Keys: see keys.h. */
#include "keys.h"

#include "../base/text.h"

#include <stdio.h>
#include <string.h>

#define CLIENT_LEN (LK__CLIENT_ID_SIZE - 1)
#define NONCE_LEN (LK__NONCE_SIZE - 1)

static size_t put_text(char *out, const char *text)
{
	size_t len = strlen(text);

	memcpy(out, text, len + 1);
	return len;
}

static size_t put_name(char *out, const char *name, size_t len)
{
	size_t pos = 0;

	for (size_t i = 0; i < len; i++)
		pos += name[i] == '/' ? put_text(out + pos, "%2F")
		                      : lk__name_encode(out + pos, name + i, 1);
	return pos;
}

static size_t put_kind(char *key, const char *prefix, char kind)
{
	size_t pos = put_text(key, prefix);

	key[pos++] = '/';
	key[pos++] = kind;
	key[pos] = '\0';
	return pos;
}

size_t lk__etcd_queue_key(char key[LK__ETCD_KEY_MAX], const char *prefix, char kind,
                          const char *name, size_t len)
{
	size_t pos = put_kind(key, prefix, kind);

	pos += put_text(key + pos, "/");
	pos += put_name(key + pos, name, len);
	return pos + put_text(key + pos, "/");
}

size_t lk__etcd_ticket_key(char key[LK__ETCD_KEY_MAX], const char *queue, const char *client,
                           const char *nonce)
{
	size_t pos = put_text(key, queue);

	pos += put_text(key + pos, client);
	return pos + put_text(key + pos, nonce);
}

size_t lk__etcd_noun_key(char key[LK__ETCD_KEY_MAX], const char *prefix, char kind,
                         const char *name, size_t len)
{
	size_t pos = put_kind(key, prefix, kind);

	return pos + put_name(key + pos, name, len);
}

size_t lk__etcd_kind_key(char key[LK__ETCD_KEY_MAX], const char *prefix, char kind,
                         const char *name, size_t len)
{
	return kind == LK__ETCD_LOCK ? lk__etcd_queue_key(key, prefix, kind, name, len)
	                             : lk__etcd_noun_key(key, prefix, kind, name, len);
}

size_t lk__etcd_step_key(char key[LK__ETCD_STEP_KEY_MAX], const char *queue, char kind,
                         const char *name, size_t len)
{
	size_t pos = put_text(key, queue);

	key[pos++] = kind;
	key[pos] = '\0';
	return pos + put_name(key + pos, name, len);
}

size_t lk__etcd_mailbox_key(char key[LK__ETCD_OWN_MAX], const char *prefix, const char *client)
{
	return (size_t)snprintf(key, LK__ETCD_OWN_MAX, "%s/c/%s", prefix, client);
}

size_t lk__etcd_era_key(char key[LK__ETCD_OWN_MAX], const char *prefix, const char *client)
{
	return (size_t)snprintf(key, LK__ETCD_OWN_MAX, "%s/e/%s", prefix, client);
}

size_t lk__etcd_details_key(char key[LK__ETCD_KEY_MAX], const char *prefix, const char *client,
                            const char *name, size_t len)
{
	size_t pos = (size_t)snprintf(key, LK__ETCD_OWN_MAX, "%s/i/%s", prefix, client);

	if (!len)
		return pos;
	pos += put_text(key + pos, "/");
	return pos + put_name(key + pos, name, len);
}

void lk__etcd_range_end(char *end, size_t len)
{
	end[len - 1]++;
}

static bool is_id(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (!((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		      c == '-' || c == '_'))
			return false;
	}
	return true;
}

void lk__etcd_read_ticket(struct lk__etcd_ticket *ticket, struct lk__bytes key, size_t queue_len)
{
	const char *text = (const char *)key.data + queue_len;

	*ticket = (struct lk__etcd_ticket){0};
	if (key.len != queue_len + CLIENT_LEN + NONCE_LEN || !is_id(text, CLIENT_LEN + NONCE_LEN))
		return;
	memcpy(ticket->client, text, CLIENT_LEN);
	memcpy(ticket->nonce, text + CLIENT_LEN, NONCE_LEN);
}

bool lk__etcd_read_name(char *out, size_t *len, const char *text, size_t text_len)
{
	size_t pos = 0;

	for (size_t i = 0; i < text_len; i++) {
		bool is_slash = text_len - i >= 3 && memcmp(text + i, "%2F", 3) == 0;

		if (text[i] == '/')
			return false;
		if (is_slash) {
			out[pos++] = '/';
			i += 2;
		} else {
			out[pos++] = text[i];
		}
	}
	return lk__name_decode(out, len, out, pos);
}
