/* SPDX-License-Identifier: MIT
 * All keys of the Redis in memory as bytes, and back.  Equal keys give equal bytes, whatever the
 * order of the writes: the state is hashed over its image. */
#include "lua_store_parts.h"

#include <stdlib.h>
#include <string.h>

struct lua_store_image {
	struct lk__buf bytes;
};

/* ---- To bytes ----------------------------------------------------------------------------- */

static void put(struct lk__buf *out, const void *bytes, size_t len)
{
	lua_reply_bytes(out, bytes, len);
}

static void put_word(struct lk__buf *out, const char *bytes, size_t len)
{
	uint32_t size = (uint32_t)len;

	put(out, &size, sizeof(size));
	put(out, bytes, len);
}

static int by_name(const void *one, const void *other)
{
	return lua_item_order(*(const struct lua_item *const *)one,
	                      *(const struct lua_item *const *)other);
}

static void put_hash(struct lk__buf *out, const struct lua_key *key)
{
	const struct lua_item **items = calloc(key->count + 1, sizeof(const struct lua_item *));

	if (!items)
		abort();
	for (size_t i = 0; i < key->count; i++)
		items[i] = &key->items[i];
	qsort(items, key->count, sizeof(const struct lua_item *), by_name);
	for (size_t i = 0; i < key->count; i++) {
		put_word(out, items[i]->name, items[i]->name_len);
		put_word(out, items[i]->value, items[i]->value_len);
	}
	free(items);
}

static void put_key(struct lk__buf *out, const struct lua_key *key)
{
	uint8_t type = (uint8_t)key->type;
	uint32_t count = (uint32_t)key->count;

	put(out, &type, sizeof(type));
	put(out, &key->expires_ms, sizeof(key->expires_ms));
	put_word(out, key->name, key->name_len);
	if (key->type == LUA_STRING) {
		put_word(out, key->text, key->text_len);
		return;
	}
	put(out, &count, sizeof(count));
	if (key->type == LUA_HASH) {
		put_hash(out, key);
		return;
	}
	for (size_t i = 0; i < key->count; i++) {
		put(out, &key->items[i].score, sizeof(key->items[i].score));
		put_word(out, key->items[i].name, key->items[i].name_len);
	}
}

void lua_keys_dump(const struct lua_keys *keys, struct lk__buf *out)
{
	struct lua_key **all = lua_keys_sorted(keys);

	for (size_t i = 0; i < keys->count; i++)
		put_key(out, all[i]);
	free(all);
}

struct lua_store_image *lua_keys_save(const struct lua_keys *keys)
{
	struct lua_store_image *image = calloc(1, sizeof(*image));

	if (!image)
		abort();
	lua_keys_dump(keys, &image->bytes);
	/* There may be very many keys. */
	image->bytes.data = realloc(image->bytes.data, image->bytes.len + 1);
	image->bytes.cap = image->bytes.len + 1;
	if (!image->bytes.data)
		abort();
	return image;
}

void lua_store_image_free(struct lua_store_image *image)
{
	if (image)
		lk__buf_fini(&image->bytes);
	free(image);
}

/* ---- And back ----------------------------------------------------------------------------- */

static void take(const char **at, void *value, size_t len)
{
	memcpy(value, *at, len);
	*at += len;
}

static struct lua_word take_word(const char **at)
{
	struct lua_word word;
	uint32_t size;

	take(at, &size, sizeof(size));
	word = (struct lua_word){*at, size};
	*at += size;
	return word;
}

static void take_key(struct lua_keys *keys, const char **at)
{
	struct lua_key *key;
	int64_t expires_ms;
	uint32_t count;
	uint8_t type;

	take(at, &type, sizeof(type));
	take(at, &expires_ms, sizeof(expires_ms));
	key = lua_keys_make(keys, take_word(at), (enum lua_type)type);
	lua_keys_set_end(keys, key, expires_ms);
	if (key->type == LUA_STRING) {
		lua_key_set_text(key, take_word(at));
		return;
	}
	take(at, &count, sizeof(count));
	for (uint32_t i = 0; i < count; i++) {
		double score = 0;
		struct lua_item *item;
		if (key->type == LUA_ZSET)
			take(at, &score, sizeof(score));
		item = lua_key_add_item(key, take_word(at));
		item->score = score;
		if (key->type == LUA_HASH)
			lua_item_set_value(item, take_word(at));
	}
}

void lua_keys_load(struct lua_keys *keys, const struct lua_store_image *image)
{
	const char *at = image->bytes.data, *end = at + image->bytes.len;

	lua_keys_flush(keys);
	while (at < end)
		take_key(keys, &at);
}

/* FNV-1a (Fowler, Noll, Vo). */
uint64_t lua_store_image_hash(const struct lua_store_image *image)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < image->bytes.len; i++)
		sum = (sum ^ (unsigned char)image->bytes.data[i]) * UINT64_C(0x100000001b3);
	return sum;
}
