/* SPDX-License-Identifier: MIT
 * The keys of the Redis in memory.  There are few of them, and few items in each: lists and arrays
 * will do. */
#include "lua_store_parts.h"

#include <stdlib.h>
#include <string.h>

static char *copy(struct lua_word word)
{
	char *bytes = malloc(word.len + 1);

	if (!bytes)
		abort();
	if (word.len)
		memcpy(bytes, word.bytes, word.len);
	bytes[word.len] = '\0';
	return bytes;
}

static bool same(const char *bytes, size_t len, struct lua_word word)
{
	return len == word.len && !memcmp(bytes, word.bytes, len);
}

int64_t lua_keys_now_ms(const struct lua_keys *keys)
{
	return keys->now_us / 1000;
}

struct lua_key *lua_keys_find(const struct lua_keys *keys, struct lua_word name)
{
	struct lua_key *key = keys->first;

	while (key && !same(key->name, key->name_len, name))
		key = key->next;
	return key;
}

struct lua_key *lua_keys_make(struct lua_keys *keys, struct lua_word name, enum lua_type type)
{
	struct lua_key *key = calloc(1, sizeof(*key));

	if (!key)
		abort();
	key->name = copy(name);
	key->name_len = name.len;
	key->type = type;
	key->expires_ms = -1;
	key->next = keys->first;
	keys->first = key;
	return key;
}

static void free_item(struct lua_item *item)
{
	free(item->name);
	free(item->value);
}

void lua_keys_remove(struct lua_keys *keys, struct lua_key *key)
{
	struct lua_key **at = &keys->first;

	while (*at != key)
		at = &(*at)->next;
	*at = key->next;
	for (size_t i = 0; i < key->count; i++)
		free_item(&key->items[i]);
	free(key->items);
	free(key->text);
	free(key->name);
	free(key);
}

/* A key lives through the millisecond of its end, as in the server. */
void lua_keys_expire(struct lua_keys *keys)
{
	struct lua_key *key = keys->first, *next;

	for (; key; key = next) {
		next = key->next;
		if (key->expires_ms >= 0 && lua_keys_now_ms(keys) > key->expires_ms)
			lua_keys_remove(keys, key);
	}
}

void lua_keys_flush(struct lua_keys *keys)
{
	while (keys->first)
		lua_keys_remove(keys, keys->first);
}

void lua_key_set_text(struct lua_key *key, struct lua_word text)
{
	char *bytes = copy(text);

	free(key->text);
	key->text = bytes;
	key->text_len = text.len;
}

/* ---- Items -------------------------------------------------------------------------------- */

long lua_key_item(const struct lua_key *key, struct lua_word name)
{
	for (size_t i = 0; key && i < key->count; i++)
		if (same(key->items[i].name, key->items[i].name_len, name))
			return (long)i;
	return -1;
}

struct lua_item *lua_key_add_item(struct lua_key *key, struct lua_word name)
{
	struct lua_item *item;

	if (key->count == key->room) {
		key->room = key->room * 2 + 4;
		key->items = realloc(key->items, key->room * sizeof(*key->items));
		if (!key->items)
			abort();
	}
	item = &key->items[key->count++];
	*item = (struct lua_item){.name = copy(name), .name_len = name.len};
	return item;
}

void lua_item_set_value(struct lua_item *item, struct lua_word value)
{
	char *bytes = copy(value);

	free(item->value);
	item->value = bytes;
	item->value_len = value.len;
}

/* By score, then by bytes. */
static bool before(const struct lua_item *one, const struct lua_item *other)
{
	size_t len = one->name_len < other->name_len ? one->name_len : other->name_len;
	int order;

	if (one->score != other->score)
		return one->score < other->score;
	order = memcmp(one->name, other->name, len);
	return order ? order < 0 : one->name_len < other->name_len;
}

bool lua_key_set_score(struct lua_key *key, struct lua_word name, double score)
{
	long known = lua_key_item(key, name);
	size_t at = known < 0 ? key->count : (size_t)known;
	struct lua_item item;

	if (known < 0)
		lua_key_add_item(key, name);
	item = key->items[at];
	item.score = score;
	for (; at > 0 && before(&item, &key->items[at - 1]); at--)
		key->items[at] = key->items[at - 1];
	for (; at + 1 < key->count && before(&key->items[at + 1], &item); at++)
		key->items[at] = key->items[at + 1];
	key->items[at] = item;
	return known < 0;
}

void lua_key_remove_item(struct lua_keys *keys, struct lua_key *key, long index)
{
	size_t at = (size_t)index;

	free_item(&key->items[at]);
	key->count--;
	memmove(&key->items[at], &key->items[at + 1], (key->count - at) * sizeof(*key->items));
	if (!key->count)
		lua_keys_remove(keys, key);
}
