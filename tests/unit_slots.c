/* SPDX-License-Identifier: MIT
 * The slots of a Redis Cluster: of names, and a tag for each. */
#include "test.h"
#include "base/slot.h"
#include "base/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The specification, a bit at a time. */
static unsigned slot_of_bytes(const char *bytes, size_t len)
{
	unsigned crc = 0;

	for (size_t i = 0; i < len; i++) {
		crc ^= (unsigned)(unsigned char)bytes[i] << 8;
		for (int bit = 0; bit < 8; bit++)
			crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
	}
	return crc % 16384;
}

TEST(slot_is_that_of_the_specification)
{
	ck_assert_uint_eq(lk__slot_of("123456789", 9), 12739);
	ck_assert_uint_eq(lk__slot_of("foo", 3), 12182);
	ck_assert_uint_eq(lk__slot_of("bar", 3), 5061);
	ck_assert_uint_eq(lk__slot_of("a", 1), 15495);
}

TEST(slot_of_a_name_is_that_of_its_encoding)
{
	ck_assert_uint_eq(lk__slot_of("{foo}", 5), slot_of_bytes("%7Bfoo%7D", 9));
	ck_assert_uint_eq(lk__slot_of("a b", 3), slot_of_bytes("a%20b", 5));
	ck_assert_uint_eq(lk__slot_of("%20", 3), slot_of_bytes("%2520", 5));
	ck_assert_uint_eq(lk__slot_of("\0\xff", 2), slot_of_bytes("%00\xff", 4));
}

TEST(slot_of_a_name_has_no_limit_of_length)
{
	char name[600], encoded[3 * sizeof(name) + 1];

	srandom((unsigned)test_seed());
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = (char)random();
	for (size_t len = 0; len <= sizeof(name); len++)
		ck_assert_uint_eq(lk__slot_of(name, len),
		                  slot_of_bytes(encoded, lk__name_encode(encoded, name, len)));
}

/* All clients must agree on them: counted as the protocol says. */
TEST(tag_is_the_first_text_in_its_slot)
{
	static char tags[LK__SLOTS][LK__TAG_SIZE];
	char text[LK__TAG_SIZE] = "";
	int found = 0;

	for (int i = 0; i < 26 * 26 * 26 * 26; i++) {
		unsigned slot;
		int rest = i;

		for (int at = 3; at >= 0; at--, rest /= 26)
			text[at] = (char)('a' + rest % 26);
		slot = slot_of_bytes(text, 4);
		if (tags[slot][0])
			continue;
		memcpy(tags[slot], text, sizeof(text));
		found++;
	}
	ck_assert_int_eq(found, LK__SLOTS);
	for (unsigned slot = 0; slot < LK__SLOTS; slot++) {
		char tag[LK__TAG_SIZE];

		lk__slot_tag(slot, tag);
		ck_assert_str_eq(tag, tags[slot]);
		ck_assert_uint_eq(lk__slot_of(tag, 4), slot);
	}
}

/* ---- The order of a node's slots ------------------------------------------------------------- */

#define NODE_A "07c37dfeb235213a872192d90877d0cd55635b91"
#define NODE_B "67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1"

static uint8_t owners[LK__SLOTS];

/* All clients must agree on it, so these numbers never change. */
TEST(order_of_slots_is_the_protocols)
{
	static const unsigned a[] = {4835, 8411, 13326, 7143}, b[] = {9233, 15867, 1953, 12200};
	unsigned slots[4];

	ck_assert_int_eq(lk__slots_first(owners, 0, NODE_A, slots, 4), 4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(slots[i], a[i]);
	ck_assert_int_eq(lk__slots_first(owners, 0, NODE_B, slots, 4), 4);
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(slots[i], b[i]);
}

/* What moves changes nothing unless it is the first one. */
TEST(slot_keeps_its_rank_whatever_others_the_node_has)
{
	unsigned all[LK__SLOTS], some[3];

	ck_assert_int_eq(lk__slots_first(owners, 0, NODE_A, all, LK__SLOTS), LK__SLOTS);
	for (unsigned i = 0; i < LK__SLOTS; i++) {
		ck_assert_uint_eq(owners[all[i]], 0); /* each once */
		owners[all[i]] = 1;
	}
	for (unsigned i = LK__SLOTS; i-- > 0;) {
		int count = 0;
		owners[all[i]] = 2;
		if (i % 512 == 0)
			count = lk__slots_first(owners, 2, NODE_A, some, 3);
		for (int at = 0; at < count; at++)
			ck_assert_uint_eq(some[at], all[i + (unsigned)at]);
	}
}

TEST(node_with_few_slots_has_only_those)
{
	unsigned slots[4];

	ck_assert_int_eq(lk__slots_first(owners, 1, NODE_A, slots, 4), 0);
	owners[5] = owners[16383] = 1;
	ck_assert_int_eq(lk__slots_first(owners, 1, NODE_A, slots, 4), 2);
	ck_assert_uint_eq(slots[0] + slots[1], 5 + 16383);
	ck_assert_int_eq(lk__slots_first(owners, 1, NODE_A, slots, 1), 1);
}

/* A moved part of a node's slots has its first one as often as it is large. */
TEST(ranks_are_spread_over_the_slots)
{
	int lower = 0;

	for (unsigned i = 0; i < 200; i++) {
		char node[41];
		unsigned first;
		snprintf(node, sizeof(node), "%040x", i * 0x10001u);
		ck_assert_int_eq(lk__slots_first(owners, 0, node, &first, 1), 1);
		lower += first < LK__SLOTS / 2;
	}
	ck_assert_int_ge(lower, 70);
	ck_assert_int_le(lower, 130);
}
