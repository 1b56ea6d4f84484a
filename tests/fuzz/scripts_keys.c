/* SPDX-License-Identifier: MIT
 * The content of the store before a script runs: see scripts_keys.h. */
#include "scripts_keys.h"

#include "lua_store_parts.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 4

#define FENCES 6 /* of a quorum */

const char *const script_keys[SCRIPT_KEYS] = {"lk:{a}",   "lk:{a}:q", "lk:fence", "lk:{a}:h",
                                              "lk:{a}:s", "lk:epoch", "lk:fences"};
const char script_types[SCRIPT_KEYS] = {'*', 'z', 's', 'z', 'h', 's', 'h'};

/* ---- Texts --------------------------------------------------------------------------------- */

/* Values that no library writes in place of a number. */
static const char *bad_number(struct fuzz_input *input)
{
	static const char *const numbers[] = {
		"",
		"-1",
		"abc",
		"nan",
		"inf",
		"-inf",
		"0x10",
		"1e5",
		"1e300",
		"1.5",
		" 1",
		"0",
		"9007199254740991",
		"9007199254740993",
		"99999999999999999999",
		"000000000000000000001",
		"99999999999999999999999999999999999999999999999999999999999999999999999999999999",
	};

	return numbers[fuzz_below(input, sizeof(numbers) / sizeof(*numbers))];
}

/* Mostly one of the four valid ones. */
static const char *number(struct fuzz_input *input, const char *const good[4])
{
	unsigned choice = fuzz_byte(input);

	return choice < 224 ? good[choice % 4] : bad_number(input);
}

#define NUMBER(a, b, c, d) number(input, (const char *const[]){a, b, c, d})
#define LEASE() NUMBER("10000", "1000", "100", "86400000")
#define PERMITS() NUMBER("1", "2", "3", "2147483647")
#define FENCE() NUMBER("1799999999000000", "1800000000000000", "1", "1800000001000000")
#define TTL() NUMBER("86400000", "1000", "60000", "31536000000")

void script_ticket(struct fuzz_input *input, bool permits, bool ours, char *out, size_t size)
{
	struct fuzz_input plain = {NULL, 0};
	unsigned who = fuzz_byte(input);
	int len;

	if (ours)
		plain = (struct fuzz_input){(const uint8_t *)&"\0\1\2\3"[fuzz_below(input, 4)], 1};
	len = snprintf(out, size, "%s:%s:nonce-nonc%u:%s:%c", !ours && who >= 240 ? "3" : "2",
	               !ours && who >= 200 ? "another_client_-_id-01" : SCRIPT_CLIENT, who % 3,
	               number(ours ? &plain : input,
	                      (const char *const[]){"10000", "1000", "100", "86400000"}),
	               !(who & 16)             ? 'r'
	               : permits && (who & 32) ? 'n'
	                                       : 'f');
	if (permits && len < (int)size)
		snprintf(out + len, size - (size_t)len, ":%s",
		         number(ours ? &plain : input,
		                (const char *const[]){"1", "2", "3", "2147483647"}));
}

void script_leg(struct fuzz_input *input, bool ours, char *out, size_t size)
{
	static const char *const priorities[] = {"1799999999000000", "1800000000000000", "5",
	                                         "1800000001000000"};
	static const char *const epochs[] = {"0", "1", "7", "65535"};
	unsigned who = fuzz_byte(input), choice = fuzz_byte(input);

	snprintf(out, size, "%s:%s:nonce-nonc%u:%s:%c:%s:%s", !ours && who >= 240 ? "q2" : "q1",
	         !ours && who >= 200 ? "another_client_-_id-01" : SCRIPT_CLIENT, who % 3,
	         choice & 1 ? "10000" : "1000", choice & 2 ? 'r' : 'f',
	         ours ? priorities[choice >> 2 & 3] : number(input, priorities),
	         ours ? epochs[choice >> 4 & 3] : number(input, epochs));
}

void script_marker(struct fuzz_input *input, char *out, size_t size)
{
	static const char *const markers[] = {
		"1 a+0b 1799999999000000", "1 a+0b 1799999999000000",
		"1 a+0b 1799999999000000", "1 000000000000000000000000000000000000000a 1 [later]",
		"1 - 1800000000000000",
		"1 a+0b 1799999999000000 [s 1/3 60000]", "1 a+0b 1799999999000000 [s 1/3 60000]",
		"1 a+0b 1799999999000000 [s 1/3 60000]", "1 a 5 [t 2/3 100]",
	};

	snprintf(out, size, "%s",
	         markers[fuzz_below(input, sizeof(markers) / sizeof(*markers))]);
}

/* Any bytes, from the input itself. */
static void raw(struct fuzz_input *input, char *out, size_t size)
{
	size_t len = fuzz_below(input, 16);

	for (size_t i = 0; i < len && i + 1 < size; i++)
		out[i] = (char)(1 + fuzz_below(input, 255));
	out[len] = '\0';
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static void make_lock(struct fuzz_input *input, struct lua_store *store, const char *key)
{
	char ticket[SCRIPT_TEXT], value[SCRIPT_TEXT * 3];

	bool is_leg = fuzz_below(input, 3) == 2;

	if (is_leg)
		script_leg(input, false, ticket, sizeof(ticket));
	else
		script_ticket(input, false, false, ticket, sizeof(ticket));
	snprintf(value, sizeof(value), "%s %s %s %s", ticket, FENCE(), LEASE(),
	         is_leg ? NUMBER("-", "-", "-", "s")
	                : NUMBER("s", "-", "- a+0b 1799999999000000", "s a+0b 1"));
	lua_store_text(store, "SET", key, value, NULL);
}

static void make_semaphore(struct fuzz_input *input, struct lua_store *store, const char *key)
{
	unsigned holds = fuzz_below(input, ITEMS_MAX), parts = fuzz_byte(input);
	char ticket[SCRIPT_TEXT], value[SCRIPT_TEXT];

	lua_store_text(store, "HSET", key, "kind",
	               NUMBER("2:semaphore", "2:semaphore", "2:semaphore", "2:semaphore"),
	               "capacity", PERMITS(), "used", NUMBER("0", "1", "2", "3"), "ttl", TTL(),
	               NULL);
	if (parts & 1)
		lua_store_text(store, "HDEL", key, NUMBER("ttl", "used", "capacity", "kind"), NULL);
	if (parts & 2) {
		script_ticket(input, true, false, ticket, sizeof(ticket));
		lua_store_text(store, "HSET", key, "head", ticket, "head_us", FENCE(), "told_us",
		               FENCE(), NULL);
	}
	for (unsigned i = 0; i < holds; i++) {
		script_ticket(input, true, false, ticket, sizeof(ticket));
		snprintf(value, sizeof(value), "%s %s %s", PERMITS(), FENCE(), LEASE());
		lua_store_text(store, "HSET", key, ticket, value, NULL);
		lua_store_text(store, "ZADD", script_keys[3],
		               NUMBER("1800000009000000", "1799999999000000", "1800000000000000",
		                      "1800086400000000"),
		               ticket, NULL);
	}
}

static void make_latch(struct fuzz_input *input, struct lua_store *store, const char *key)
{
	lua_store_text(store, "HSET", key, "kind",
	               NUMBER("1:latch", "1:latch", "1:latch", "1:latch"), "gen", FENCE(), "count",
	               NUMBER("0", "1", "3", "2147483647"), "initial",
	               NUMBER("1", "3", "7", "2147483647"), "open_ttl", TTL(), NULL);
	if (fuzz_below(input, 4) == 3)
		lua_store_text(store, "HDEL", key, NUMBER("gen", "count", "open_ttl", "kind"),
		               NULL);
}

static void make_memory(struct fuzz_input *input, struct lua_store *store, const char *key)
{
	lua_store_text(store, "HSET", key, "opened", FENCE(), "removed", FENCE(), "gen", FENCE(),
	               NULL);
	if (fuzz_below(input, 2))
		lua_store_text(store, "HSET", key, "c:" SCRIPT_CLIENT, FENCE(), "n:step", "1",
		               NULL);
}

static void make_tickets(struct fuzz_input *input, struct lua_store *store, const char *key)
{
	unsigned count = 1 + fuzz_below(input, ITEMS_MAX), kind = fuzz_byte(input);

	for (unsigned i = 0; i < count; i++) {
		char member[SCRIPT_TEXT];
		if (kind >= 250)
			raw(input, member, sizeof(member));
		else if (kind >= 160)
			script_leg(input, false, member, sizeof(member));
		else
			script_ticket(input, kind & 1, false, member, sizeof(member));
		lua_store_text(store, "ZADD", key, FENCE(), member, NULL);
	}
}

static void make_foreign(struct fuzz_input *input, struct lua_store *store, const char *key)
{
	char one[SCRIPT_TEXT], other[SCRIPT_TEXT];
	unsigned type = fuzz_below(input, 3);

	raw(input, one, sizeof(one));
	raw(input, other, sizeof(other));
	if (type == 0)
		lua_store_text(store, "SET", key, one, NULL);
	else if (type == 1)
		lua_store_text(store, "HSET", key, NUMBER("kind", "count", "gen", "capacity"), one,
		               one, other, NULL);
	else
		lua_store_text(store, "ZADD", key, FENCE(), one, NULL);
}

static void make_marker(struct fuzz_input *input, struct lua_store *store, const char *key,
                        unsigned kind)
{
	char marker[SCRIPT_TEXT];

	if (kind >= 232) {
		make_foreign(input, store, key);
	} else if (kind >= 216) {
		snprintf(marker, sizeof(marker), "%s %s %s", NUMBER("1", "1", "1", "2"),
		         NUMBER("a", "a+0b", "x", "-"), FENCE());
		lua_store_text(store, "SET", key, marker, NULL);
	} else if (kind < 200) {
		script_marker(input, marker, sizeof(marker));
		lua_store_text(store, "SET", key, marker, NULL);
	}
}

static void make_key(struct fuzz_input *input, struct lua_store *store, int index)
{
	const char *key = script_keys[index];
	unsigned kind = fuzz_byte(input);

	if (index == SCRIPT_MARKER)
		make_marker(input, store, key, kind);
	else if (kind >= 232)
		make_foreign(input, store, key);
	else if (kind >= 200)
		; /* none */
	else if (index == 2)
		lua_store_text(store, "SET", key, FENCE(), NULL);
	else if (index == FENCES)
		lua_store_text(store, "HSET", key, "1", FENCE(), "2", FENCE(), NULL);
	else if (script_types[index] == 'z')
		make_tickets(input, store, key);
	else if (index == 4)
		make_memory(input, store, key);
	else if (kind % 3 == 0)
		make_lock(input, store, key);
	else if (kind % 3 == 1)
		make_semaphore(input, store, key);
	else
		make_latch(input, store, key);
	if (fuzz_below(input, 3))
		lua_store_text(store, "PEXPIRE", key, NUMBER("10000", "1000", "86400000", "1"),
		               NULL);
}

void script_fill(struct fuzz_input *input, struct lua_store *store)
{
	for (int i = SCRIPT_MARKER - 1; i >= 0; i--)
		make_key(input, store, i);
	make_key(input, store, SCRIPT_MARKER);
	make_key(input, store, FENCES);
}

/* ---- As text ------------------------------------------------------------------------------- */

static void write_text(FILE *out, const char *bytes, size_t len)
{
	char text[SCRIPT_TEXT * 16];

	lk__escape(text, sizeof(text), bytes, len);
	fprintf(out, " \"%s\"", text);
}

static void write_key(FILE *out, const struct lua_key *key)
{
	static const char letters[] = {[LUA_STRING] = 's', [LUA_HASH] = 'h', [LUA_ZSET] = 'z'};

	fprintf(out, "%c %.*s %lld", letters[key->type], (int)key->name_len, key->name,
	        (long long)key->expires_ms);
	if (key->type == LUA_STRING)
		write_text(out, key->text, key->text_len);
	for (size_t i = 0; i < key->count; i++) {
		const struct lua_item *item = &key->items[i];
		write_text(out, item->name, item->name_len);
		if (key->type == LUA_ZSET)
			fprintf(out, " %.17g", item->score);
		else
			write_text(out, item->value, item->value_len);
	}
}

void script_save(struct lua_store *store, struct script_saved *saved)
{
	/* Its first member. */
	const struct lua_server *server = (const struct lua_server *)(const void *)store;

	for (int i = 0; i < SCRIPT_KEYS; i++) {
		const struct lua_key *key = lua_keys_find(
			&server->keys, (struct lua_word){script_keys[i], strlen(script_keys[i])});
		size_t size;
		FILE *out = open_memstream(&saved->keys[i], &size);
		if (!out)
			abort();
		if (key)
			write_key(out, key);
		fclose(out);
	}
}

void script_saved_free(struct script_saved *saved)
{
	for (int i = 0; i < SCRIPT_KEYS; i++)
		free(saved->keys[i]);
}
