/* SPDX-License-Identifier: MIT
 * The wire format of Protocol Buffers: what is written, what is read, and what is refused. */
#include "etcd/pb.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A message with a field of each kind, and one inside of the other. */
struct inner {
	uint64_t number;
	struct lk__bytes bytes;
	struct lk__pb_list texts;
};
struct outer {
	int64_t number;
	uint32_t word;
	bool flag, has_inner;
	struct lk__bytes bytes;
	struct inner inner;
	struct lk__pb_list inners;
};

static const struct lk__pb_rule inner_rules[] = {
	{1, LK__PB_NUMBER, offsetof(struct inner, number), 0, NULL},
	{2, LK__PB_BYTES, offsetof(struct inner, bytes), 0, NULL},
	{3, LK__PB_LIST, offsetof(struct inner, texts), 0, NULL},
};
static const struct lk__pb_shape inner_shape = {sizeof(struct inner), 3, inner_rules};
static const struct lk__pb_rule outer_rules[] = {
	{1, LK__PB_NUMBER, offsetof(struct outer, number), 0, NULL},
	{2, LK__PB_WORD, offsetof(struct outer, word), 0, NULL},
	{3, LK__PB_FLAG, offsetof(struct outer, flag), 0, NULL},
	{4, LK__PB_BYTES, offsetof(struct outer, bytes), 0, NULL},
	{5, LK__PB_OPTION, offsetof(struct outer, inner), offsetof(struct outer, has_inner),
         &inner_shape},
	{6, LK__PB_LIST, offsetof(struct outer, inners), 0, &inner_shape},
};
static const struct lk__pb_shape outer_shape = {sizeof(struct outer), 6, outer_rules};

/* Read from memory of the exact size, so that a sanitizer detects an overrun. */
static bool read_exact(const void *bytes, size_t len, struct outer *out, char **copy)
{
	*copy = malloc(len + !len);
	if (len)
		memcpy(*copy, bytes, len);
	return lk__pb_read(&outer_shape, *copy, len, out);
}

static bool is_read(const void *bytes, size_t len)
{
	struct outer out;
	char *copy;
	bool good = read_exact(bytes, len, &out, &copy);

	free(copy);
	return good;
}
#define READS(bytes) ck_assert(is_read(bytes, sizeof(bytes) - 1))
#define REFUSES(bytes) ck_assert(!is_read(bytes, sizeof(bytes) - 1))

static struct lk__bytes text(const char *chars)
{
	return (struct lk__bytes){chars, strlen(chars)};
}

#define IS(bytes, chars)                                                                           \
	ck_assert_msg((bytes).len == strlen(chars) && !memcmp((bytes).data, chars, (bytes).len),   \
	              "%.*s is not " chars, (int)(bytes).len, (const char *)(bytes).data)

static void put_inner(struct lk__pb_writer *writer, uint32_t field, uint64_t number, size_t len)
{
	static const char many[70000];
	size_t begun = lk__pb_begin(writer, field);

	lk__pb_put_number(writer, 1, number);
	lk__pb_put_bytes(writer, 2, (struct lk__bytes){many, len});
	lk__pb_put_chosen_bytes(writer, 3, text("a"));
	lk__pb_put_chosen_bytes(writer, 3, text(""));
	lk__pb_put_chosen_bytes(writer, 3, text("ccc"));
	lk__pb_end(writer, begun);
}

static size_t write_all(void *data, size_t size, size_t len)
{
	struct lk__pb_writer writer;

	lk__pb_writer_init(&writer, data, size);
	lk__pb_put_number(&writer, 1, (uint64_t)INT64_C(-3));
	lk__pb_put_number(&writer, 2, UINT32_MAX);
	lk__pb_put_number(&writer, 3, true);
	lk__pb_put_bytes(&writer, 4, text("four"));
	put_inner(&writer, 5, 300, len);
	put_inner(&writer, 6, 0, 0);
	put_inner(&writer, 6, UINT64_MAX, len);
	return writer.is_full ? 0 : writer.len;
}

/* ---- Writing ------------------------------------------------------------------------------ */

TEST(numbers_are_written_as_the_format_has_them)
{
	static const struct {
		uint64_t value;
		const char *bytes;
		size_t len;
	} cases[] = {
		{0, "", 0},
		{1, "\x08\x01", 2},
		{127, "\x08\x7f", 2},
		{128, "\x08\x80\x01", 3},
		{300, "\x08\xac\x02", 3},
		{UINT64_MAX, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct lk__pb_writer writer;
		char out[20];
		lk__pb_writer_init(&writer, out, sizeof(out));
		lk__pb_put_number(&writer, 1, cases[i].value);
		ck_assert(!writer.is_full && writer.len == cases[i].len);
		ck_assert(!memcmp(out, cases[i].bytes, cases[i].len));
	}
}

TEST(default_of_a_oneof_is_written)
{
	struct lk__pb_writer writer;
	char out[20];

	lk__pb_writer_init(&writer, out, sizeof(out));
	lk__pb_put_chosen_number(&writer, 5, 0);
	lk__pb_put_chosen_bytes(&writer, 7, text(""));
	lk__pb_put_bytes(&writer, 8, text(""));
	ck_assert_uint_eq(writer.len, 4);
	ck_assert(!memcmp(out, "\x28\0\x3a\0", 4));
}

TEST(what_is_written_is_read_whatever_its_length)
{
	static const size_t lens[] = {0, 1, 100, 127, 128, 129, 16000, 16383, 16384, 70000};
	static char data[300000];

	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		size_t len = write_all(data, sizeof(data), lens[i]);
		struct inner inner;
		struct outer out;
		struct lk__bytes a;
		char *copy;
		ck_assert(len && read_exact(data, len, &out, &copy));
		ck_assert(out.number == -3 && out.word == UINT32_MAX && out.flag && out.has_inner);
		IS(out.bytes, "four");
		ck_assert(out.inner.number == 300 && out.inner.bytes.len == lens[i]);
		ck_assert_uint_eq(out.inners.count, 2);
		ck_assert(lk__pb_next(&out.inners, &inner));
		ck_assert(!inner.number && !inner.bytes.len && inner.texts.count == 3);
		ck_assert(lk__pb_next(&inner.texts, &a) && a.len == 1);
		ck_assert(lk__pb_next(&inner.texts, &a) && a.len == 0);
		ck_assert(lk__pb_next(&inner.texts, &a));
		IS(a, "ccc");
		ck_assert(!lk__pb_next(&inner.texts, &a));
		ck_assert(lk__pb_next(&out.inners, &inner));
		ck_assert(inner.number == UINT64_MAX && inner.bytes.len == lens[i]);
		ck_assert(!lk__pb_next(&out.inners, &inner));
		free(copy);
	}
}

TEST(writer_stays_in_its_memory)
{
	static char data[300000];
	size_t len = write_all(data, sizeof(data), 200);

	ck_assert_uint_gt(len, 400);
	for (size_t size = 0; size < len + 3; size++) {
		char *exact = malloc(size + !size);
		size_t got = write_all(exact, size, 200);
		ck_assert(got == (size < len ? 0 : len));
		ck_assert(!got || !memcmp(exact, data, len));
		free(exact);
	}
}

/* ---- Reading ------------------------------------------------------------------------------ */

TEST(absent_fields_are_zero)
{
	struct outer out;
	struct inner inner;

	memset(&out, 0xff, sizeof(out));
	ck_assert(lk__pb_read(&outer_shape, "", 0, &out));
	ck_assert(!out.number && !out.word && !out.flag && !out.has_inner && !out.bytes.len);
	ck_assert(!lk__pb_next(&out.inners, &inner) && !lk__pb_next(&out.inner.texts, &out.bytes));
}

TEST(unknown_fields_are_skipped)
{
	/* Field 9 by each type of the wire, and 536870911, the largest number. */
	static const char bytes[] = "\x48\x05"
				    "\x49"
				    "12345678"
				    "\x4a\x02xy"
				    "\x4d"
				    "1234"
				    "\xf8\xff\xff\xff\x0f\x01"
				    "\x08\x07";
	struct outer out;

	ck_assert(lk__pb_read(&outer_shape, bytes, sizeof(bytes) - 1, &out));
	ck_assert_int_eq(out.number, 7);
}

TEST(last_value_of_a_field_counts)
{
	static const char bytes[] = "\x08\x01\x08\x02\x2a\x02\x08\x09\x2a\x00";
	struct outer out;

	ck_assert(lk__pb_read(&outer_shape, bytes, sizeof(bytes) - 1, &out));
	ck_assert(out.number == 2 && out.has_inner && !out.inner.number);
}

TEST(every_truncation_is_refused_or_ends_between_two_fields)
{
	static char data[3000];
	size_t len = write_all(data, sizeof(data), 150), whole = 0;

	for (size_t cut = 0; cut <= len; cut++)
		whole += is_read(data, cut);
	/* At the beginning, and behind each of the seven fields of the outer message. */
	ck_assert_uint_eq(whole, 8);
}

TEST(numbers_that_are_too_long_are_refused)
{
	READS("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
	REFUSES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
	REFUSES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f");
	REFUSES("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01");
	REFUSES("\x08\x80");
	REFUSES("\x08");
	/* Longer than necessary, but a number. */
	READS("\x08\x80\x80\x00");
	/* An enumeration has 32 bits. */
	READS("\x10\xff\xff\xff\xff\x0f");
	REFUSES("\x10\x80\x80\x80\x80\x10");
}

TEST(keys_that_no_field_has_are_refused)
{
	REFUSES("\x00\x01"); /* field 0 */
	REFUSES("\x02\x00");
	REFUSES("\x80\x80\x80\x80\x10\x01"); /* field 2^29 */
	REFUSES("\x4b\x4c");                 /* a group */
	REFUSES("\x4c");
	REFUSES("\x4e\x00");
	REFUSES("\x4f\x00");
}

TEST(known_field_of_another_type_is_refused)
{
	REFUSES("\x0a\x00"); /* a number as bytes */
	REFUSES("\x0d\x01\x00\x00\x00");
	REFUSES("\x12\x01\x01");     /* a word */
	REFUSES("\x1a\x01\x01");     /* a flag */
	REFUSES("\x20\x01");         /* bytes as a number */
	REFUSES("\x28\x01");         /* a part */
	REFUSES("\x30\x01");         /* an element */
	REFUSES("\x2a\x02\x18\x01"); /* a text of an inner list */
}

TEST(length_beyond_its_parent_is_refused)
{
	READS("\x22\x01x");
	REFUSES("\x22\x02x");
	REFUSES("\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x");
	REFUSES("\x22\xff\xff\xff\xff\xff\xff\xff\xff\x7fx");
	/* The inner bytes reach as far as the outer message, but not as far as their parent. */
	READS("\x2a\x03\x12\x01x\x08\x01");
	REFUSES("\x2a\x03\x12\x02x\x08\x01");
	REFUSES("\x32\x03\x12\x02x\x08\x01");
	REFUSES("\x2a\x01\x12\x01x");
	/* Fixed sizes, too. */
	REFUSES("\x49"
	        "1234567");
	REFUSES("\x4d"
	        "123");
	REFUSES("\x2a\x04\x4d"
	        "123"
	        "\x08\x01");
}

TEST(random_changes_never_reach_beyond_the_memory)
{
	static char data[600];
	size_t len = write_all(data, sizeof(data), 20);
	unsigned short random[3] = {(unsigned short)test_seed(), 3, 4};

	for (int i = 0; i < 200000; i++) {
		char changed[600];
		struct outer out;
		struct inner inner;
		struct lk__bytes a;
		size_t cut = (size_t)nrand48(random) % (len + 1);
		memcpy(changed, data, len);
		for (int n = 1 + (int)(nrand48(random) % 3); n; n--)
			changed[(size_t)nrand48(random) % len] = (char)nrand48(random);
		if (!lk__pb_read(&outer_shape, changed, cut, &out))
			continue;
		ck_assert_uint_le(out.inners.count, cut);
		for (size_t left = out.inners.count; left; left--) {
			ck_assert(lk__pb_next(&out.inners, &inner));
			while (lk__pb_next(&inner.texts, &a))
				ck_assert((const char *)a.data + a.len <= changed + cut);
			ck_assert_uint_eq(inner.texts.count, 0);
		}
		ck_assert(!lk__pb_next(&out.inners, &inner));
	}
}
