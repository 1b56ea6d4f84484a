/* SPDX-License-Identifier: MIT
 * Names as keys: encoded and decoded, no two names in one key, one hash tag in each. */
#include "fuzz.h"
#include "redis/codec.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static const char id[] = "abcdefghijklmnopqrstuv";

/* Allocated with the exact size, so that a sanitizer finds a read of one byte too many. */
static char *exactly(size_t size)
{
	char *memory = malloc(size);

	if (!memory)
		abort();
	return memory;
}

static void there_and_back(const char *name, size_t len)
{
	char *encoded = exactly(3 * len + 1), *decoded;
	size_t encoded_len = lk__name_encode(encoded, name, len), decoded_len;

	FUZZ_MUST(encoded_len == strlen(encoded), "an encoded name has a NUL in it");
	decoded = exactly(encoded_len + 1);
	FUZZ_MUST(lk__name_decode(decoded, &decoded_len, encoded, encoded_len),
	          "what was encoded cannot be decoded: %s", encoded);
	FUZZ_MUST(decoded_len == len && !memcmp(decoded, name, len), "a decoded name differs: %s",
	          encoded);
	free(decoded);
	free(encoded);
}

/* A foreign key is accepted only if the library would write the same one. */
static void back_and_there(const char *text, size_t len)
{
	char *copy = exactly(len + !len), *decoded = exactly(len + 1), *encoded;
	size_t decoded_len;

	if (len)
		memcpy(copy, text, len);
	if (lk__name_decode(decoded, &decoded_len, copy, len)) {
		encoded = exactly(3 * decoded_len + 1);
		FUZZ_MUST(lk__name_encode(encoded, decoded, decoded_len) == len &&
		                  !memcmp(encoded, copy, len),
		          "a second spelling of a name was accepted");
		free(encoded);
	}
	free(decoded);
	free(copy);
}

static void check_key(const char *key, const char *head, const char *tail, size_t name_len)
{
	const char *open = strchr(key, '{'), *close = strchr(key, '}');

	FUZZ_MUST(!strncmp(key, head, strlen(head)), "%s does not begin with %s", key, head);
	FUZZ_MUST(open && close && open < close && !strchr(open + 1, '{') &&
	                  !strchr(close + 1, '}') && close - open - 1 >= (long)name_len &&
	                  close - open - 1 <= 3 * (long)name_len,
	          "not exactly one hash tag in %s", key);
	FUZZ_MUST(!strcmp(close + 1, tail), "%s does not end with %s", key, tail);
	for (; *key; key++)
		FUZZ_MUST((unsigned char)*key > 0x20 && *key != 0x7f, "an unsafe byte in a key");
}

static void make_keys(const struct lk__space *space, const char *name, size_t len, char *all[5])
{
	struct lk__keys keys;
	char topic[LK__TOPIC_MAX];

	lk__space_keys(space, name, len, &keys);
	lk__space_topic(space, name, len, topic);
	check_key(keys.main, space->prefix, "", len);
	check_key(keys.queue, space->prefix, ":q", len);
	check_key(keys.holds, space->prefix, ":h", len);
	check_key(keys.memory, space->prefix, ":s", len);
	check_key(topic, space->broadcasts, "", len);
	all[0] = strdup(keys.main);
	all[1] = strdup(keys.queue);
	all[2] = strdup(keys.holds);
	all[3] = strdup(keys.memory);
	all[4] = strdup(topic);
	for (int i = 0; i < 5; i++) {
		if (!all[i])
			abort();
		FUZZ_MUST(strcmp(all[i], keys.fence), "a name has the key of the fences");
		for (int j = 0; j < i; j++)
			FUZZ_MUST(strcmp(all[i], all[j]), "two keys of a name are one");
	}
}

static void check_pair(const struct lk__space *space, const char *one, size_t one_len,
                       const char *other, size_t other_len)
{
	bool same = one_len == other_len && !memcmp(one, other, one_len);
	char *keys[5], *others[5];

	make_keys(space, one, one_len, keys);
	make_keys(space, other, other_len, others);
	for (int i = 0; i < 5; i++)
		for (int j = 0; j < 5; j++)
			FUZZ_MUST(!strcmp(keys[i], others[j]) == (same && i == j), "%s and %s",
			          keys[i], others[j]);
	for (int i = 0; i < 5; i++) {
		free(keys[i]);
		free(others[i]);
	}
}

static void make_space(struct fuzz_input *input, struct lk__space *space)
{
	static const char good[] = "lkAZ09._-";
	char prefix[33];
	size_t len = 1 + fuzz_below(input, 32);

	for (size_t i = 0; i < len; i++)
		prefix[i] = good[fuzz_below(input, sizeof(good) - 1)];
	prefix[len] = '\0';
	lk__space_init(space, prefix, (int)(fuzz_bits(input, 4) & INT32_MAX), id);
}

/* The prefix, the offset of the second name, both names. */
void fuzz_names(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct lk__space space;
	size_t first, second;
	const char *text;

	make_space(&input, &space);
	first = (size_t)fuzz_bits(&input, 2);
	if (first > input.left)
		first = input.left;
	text = (const char *)input.at;
	second = input.left - first;
	if (first > LK_NAME_MAX)
		first = LK_NAME_MAX;
	if (second > LK_NAME_MAX)
		second = LK_NAME_MAX;
	back_and_there(text, first);
	back_and_there(text + input.left - second, second);
	if (!first || !second)
		return;
	there_and_back(text, first);
	there_and_back(text + input.left - second, second);
	check_pair(&space, text, first, text + input.left - second, second);
}
