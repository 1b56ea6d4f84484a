/* SPDX-License-Identifier: MIT
 * The keys of the Redis in memory: a hash table by name, with chains.  A key has few items, so they
 * are arrays. */
#include "lua_store_parts.h"

#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 32 /* a power of two */

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static char *copy(struct lua_word word)
{
	char *bytes = must(malloc(word.len + 1));

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

/* ---- The table ---------------------------------------------------------------------------- */

static size_t slot_of(const struct lua_keys *keys, struct lua_word name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < name.len; i++)
		hash = (hash ^ (unsigned char)name.bytes[i]) * UINT64_C(0x100000001b3);
	return (size_t)(hash ^ hash >> 32) & (keys->slot_count - 1);
}

static struct lua_word name_of(const struct lua_key *key)
{
	return (struct lua_word){key->name, key->name_len};
}

static void make_slots(struct lua_keys *keys, size_t count)
{
	struct lua_key **old = keys->slots;
	size_t old_count = keys->slot_count;

	keys->slots = must(calloc(count, sizeof(*keys->slots)));
	keys->slot_count = count;
	for (size_t i = 0; i < old_count; i++) {
		struct lua_key *key = old[i], *next;
		for (; key; key = next) {
			size_t slot = slot_of(keys, name_of(key));
			next = key->next;
			key->next = keys->slots[slot];
			keys->slots[slot] = key;
		}
	}
	free(old);
}

struct lua_key *lua_keys_find(const struct lua_keys *keys, struct lua_word name)
{
	struct lua_key *key = keys->slots ? keys->slots[slot_of(keys, name)] : NULL;

	while (key && !same(key->name, key->name_len, name))
		key = key->next;
	return key;
}

struct lua_key *lua_keys_make(struct lua_keys *keys, struct lua_word name, enum lua_type type)
{
	struct lua_key *key = must(calloc(1, sizeof(*key)));
	size_t slot;

	if (keys->count >= keys->slot_count)
		make_slots(keys, keys->slot_count ? keys->slot_count * 2 : SLOTS_MIN);
	key->name = copy(name);
	key->name_len = name.len;
	key->type = type;
	key->expires_ms = -1;
	slot = slot_of(keys, name);
	key->next = keys->slots[slot];
	keys->slots[slot] = key;
	keys->count++;
	return key;
}

static void free_item(struct lua_item *item)
{
	free(item->name);
	free(item->value);
}

void lua_keys_remove(struct lua_keys *keys, struct lua_key *key)
{
	struct lua_key **at = &keys->slots[slot_of(keys, name_of(key))];

	while (*at != key)
		at = &(*at)->next;
	*at = key->next;
	keys->count--;
	for (size_t i = 0; i < key->count; i++)
		free_item(&key->items[i]);
	free(key->items);
	free(key->text);
	free(key->name);
	free(key);
}

void lua_keys_set_end(struct lua_keys *keys, struct lua_key *key, int64_t expires_ms)
{
	key->expires_ms = expires_ms;
	if (expires_ms >= 0 && (!keys->has_ends || expires_ms < keys->first_end_ms)) {
		keys->has_ends = true;
		keys->first_end_ms = expires_ms;
	}
}

/* A key exists through the millisecond of its expiry, as in the server. */
void lua_keys_expire(struct lua_keys *keys)
{
	int64_t now_ms = lua_keys_now_ms(keys);

	if (!keys->has_ends || now_ms <= keys->first_end_ms)
		return;
	keys->has_ends = false;
	for (size_t i = 0; i < keys->slot_count; i++) {
		struct lua_key *key = keys->slots[i], *next;
		for (; key; key = next) {
			next = key->next;
			if (key->expires_ms >= 0 && now_ms > key->expires_ms)
				lua_keys_remove(keys, key);
			else
				lua_keys_set_end(keys, key, key->expires_ms);
		}
	}
}

void lua_keys_flush(struct lua_keys *keys)
{
	for (size_t i = 0; keys->count && i < keys->slot_count; i++)
		while (keys->slots[i])
			lua_keys_remove(keys, keys->slots[i]);
	free(keys->slots);
	keys->slots = NULL;
	keys->slot_count = 0;
	keys->has_ends = false;
}

static int by_name(const void *one, const void *other)
{
	const struct lua_key *left = *(struct lua_key *const *)one;
	const struct lua_key *right = *(struct lua_key *const *)other;
	size_t len = left->name_len < right->name_len ? left->name_len : right->name_len;
	int order = memcmp(left->name, right->name, len);

	return order ? order
	             : (left->name_len > right->name_len) - (left->name_len < right->name_len);
}

struct lua_key **lua_keys_sorted(const struct lua_keys *keys)
{
	struct lua_key **all = must(calloc(keys->count + 1, sizeof(struct lua_key *)));
	size_t count = 0;

	for (size_t i = 0; i < keys->slot_count; i++)
		for (struct lua_key *key = keys->slots[i]; key; key = key->next)
			all[count++] = key;
	qsort(all, count, sizeof(struct lua_key *), by_name);
	return all;
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
		key->items = must(realloc(key->items, key->room * sizeof(*key->items)));
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

/* By bytes; callers must not rely on an order of a hash. */
int lua_item_order(const struct lua_item *one, const struct lua_item *other)
{
	size_t len = one->name_len < other->name_len ? one->name_len : other->name_len;
	int order = memcmp(one->name, other->name, len);

	return order ? order
	             : (one->name_len > other->name_len) - (one->name_len < other->name_len);
}

/* By score, then by bytes. */
static bool before(const struct lua_item *one, const struct lua_item *other)
{
	if (one->score != other->score)
		return one->score < other->score;
	return lua_item_order(one, other) < 0;
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
