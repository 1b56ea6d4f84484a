/* SPDX-License-Identifier: MIT
 * The store in Redis: the names of a client's keys and channels. */
#include "space.h"

#include "../base/slot.h"
#include "../base/text.h"

#include <stdio.h>
#include <string.h>

static uint8_t length(const char *text)
{
	return (uint8_t)strlen(text);
}

void lk__space_init(struct lk__space *space, const char *prefix, int db, const char *client_id)
{
	snprintf(space->prefix, sizeof(space->prefix), "%s", prefix);
	snprintf(space->client_id, sizeof(space->client_id), "%s", client_id);
	snprintf(space->channels, sizeof(space->channels), "%s:c:%d:", space->prefix, db);
	snprintf(space->channel, sizeof(space->channel), "%s%s", space->channels, client_id);
	snprintf(space->broadcasts, sizeof(space->broadcasts), "%s:l:%d:", space->prefix, db);
	snprintf(space->fence, sizeof(space->fence), "%s:fence", space->prefix);
	snprintf(space->fences, sizeof(space->fences), "%s:fences", space->prefix);
	snprintf(space->epoch, sizeof(space->epoch), "%s:epoch", space->prefix);
	space->cluster = false;
	space->quorum = false;
	space->db = db;
	space->grace_ms = 0;
	space->prefix_len = length(space->prefix);
	space->client_id_len = length(space->client_id);
	space->channels_len = length(space->channels);
	space->fence_len = length(space->fence);
	space->fences_len = length(space->fences);
	space->epoch_len = length(space->epoch);
}

void lk__space_divide(struct lk__space *space)
{
	space->cluster = true;
	snprintf(space->channels, sizeof(space->channels), "%s:c:", space->prefix);
	snprintf(space->broadcasts, sizeof(space->broadcasts), "%s:l:", space->prefix);
	space->channel[0] = '\0';
	space->db = 0;
	space->channels_len = length(space->channels);
}

/* Copy the text and return its end, as in codec.c. */
static inline char *put(char *out, const char *text, size_t len)
{
	memcpy(out, text, len);
	return out + len;
}

size_t lk__space_main_key(const struct lk__space *space, const char *name, size_t len, char *key)
{
	char *end = put(put(key, space->prefix, space->prefix_len), ":{", 2);

	end += lk__name_encode(end, name, len);
	*end++ = '}';
	return (size_t)(end - key);
}

size_t lk__space_fence(const struct lk__space *space, const char *name, size_t len, char *key)
{
	char tag[LK__TAG_SIZE], *end = put(key, space->fence, space->fence_len);

	if (space->cluster) {
		lk__slot_tag(lk__slot_of(name, len), tag);
		end = put(put(put(end, ":{", 2), tag, sizeof(tag) - 1), "}", 1);
	}
	return (size_t)(end - key);
}

size_t lk__space_channels(const struct lk__space *space, const char *main_key, size_t len,
                          char *text)
{
	char *end = put(text, space->channels, space->channels_len);

	if (!space->cluster)
		return space->channels_len;
	end = put(end, main_key + space->prefix_len + 1, len - space->prefix_len - 1);
	*end++ = ':';
	return (size_t)(end - text);
}

void lk__space_keys(const struct lk__space *space, const char *name, size_t len,
                    struct lk__keys *keys)
{
	size_t main_len = lk__space_main_key(space, name, len, keys->main);

	keys->main[main_len] = '\0';
	put(put(keys->queue, keys->main, main_len), ":q", 3);
	put(put(keys->holds, keys->main, main_len), ":h", 3);
	put(put(keys->memory, keys->main, main_len), ":s", 3);
	keys->fence[lk__space_fence(space, name, len, keys->fence)] = '\0';
}

void lk__space_topic(const struct lk__space *space, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	char encoded[3 * LK_NAME_MAX + 1];

	lk__name_encode(encoded, name, len);
	snprintf(topic, LK__TOPIC_MAX, "%s{%s}", space->broadcasts, encoded);
}

bool lk__space_inbox(const struct lk__space *space, const char *name, size_t len,
                     char topic[LK__TOPIC_MAX])
{
	char key[LK__KEY_MAX];
	size_t key_len = lk__space_main_key(space, name, len, key);
	size_t head = lk__space_channels(space, key, key_len, topic);

	put(topic + head, space->client_id, (size_t)space->client_id_len + 1);
	return space->cluster;
}

void lk__space_client_key(const struct lk__space *space, const char *client_id, unsigned slot,
                          char key[LK__CHANNEL_MAX])
{
	char tag[LK__TAG_SIZE];

	if (space->cluster) {
		lk__slot_tag(slot, tag);
		snprintf(key, LK__CHANNEL_MAX, "%s:client:%s:{%s}", space->prefix, client_id, tag);
	} else {
		snprintf(key, LK__CHANNEL_MAX, "%s:client:%s", space->prefix, client_id);
	}
}

void lk__space_slot_channel(const struct lk__space *space, unsigned slot,
                            char channel[LK__CHANNEL_MAX])
{
	char tag[LK__TAG_SIZE],
		*end = put(put(channel, space->channels, space->channels_len), "{", 1);

	lk__slot_tag(slot, tag);
	end = put(put(end, tag, sizeof(tag) - 1), "}:", 2);
	put(end, space->client_id, (size_t)space->client_id_len + 1);
}

void lk__space_marker(const struct lk__space *space, unsigned slot, const char *node,
                      char key[LK__MARKER_MAX])
{
	char tag[LK__TAG_SIZE];

	lk__slot_tag(slot, tag);
	snprintf(key, LK__MARKER_MAX, "%s:{%s}:%s", space->epoch, tag, node);
}
