/* SPDX-License-Identifier: MIT
 * Text from other programs, and error messages made of it. */
#include "base/error.h"
#include "test.h"
#include "base/text.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

TEST(escape_leaves_printable_text)
{
	char out[32];

	ck_assert_uint_eq(lk__escape(out, sizeof(out), "a b~\"'", 6), 6);
	ck_assert_str_eq(out, "a b~\"'");
	ck_assert_uint_eq(lk__escape(out, sizeof(out), "", 0), 0);
	ck_assert_str_eq(out, "");
}

TEST(escape_shows_other_bytes_as_numbers)
{
	char out[64];

	ck_assert_uint_eq(lk__escape(out, sizeof(out), "\0\n\x1b[\\\x7f\xff", 7), 25);
	ck_assert_str_eq(out, "\\x00\\x0a\\x1b[\\x5c\\x7f\\xff");
}

/* Whatever the input and however small the buffer: printable, terminated, and no partial escape. */
TEST(escape_cuts_between_escapes)
{
	const char in[] = "ab\ncd\\ef\x01\x02gh";

	for (size_t size = 4; size < 40; size++) {
		char out[41], whole[64];
		size_t len, full = lk__escape(whole, sizeof(whole), in, sizeof(in) - 1);

		memset(out, '#', sizeof(out));
		len = lk__escape(out, size, in, sizeof(in) - 1);
		ck_assert_uint_eq(len, strlen(out));
		ck_assert_uint_lt(len, size);
		ck_assert_int_eq(out[size], '#');
		if (full < size) {
			ck_assert_str_eq(out, whole);
			continue;
		}
		ck_assert_str_eq(out + len - 3, "...");
		ck_assert(!strncmp(out, whole, len - 3));
		/* In the whole text, a unit begins at the cut. */
		for (size_t back = 1; back < 4 && back <= len - 3; back++)
			ck_assert(whole[len - 3 - back] != '\\');
		/* No more is lost than the dots and one unit need. */
		ck_assert_uint_ge(len + 4, size - 1);
	}
}

TEST(name_encodes_what_keys_and_lines_cannot_hold)
{
	char out[64];

	ck_assert_uint_eq(lk__name_encode(out, "a{b}%\n \x7f\xff:z", 11), 23);
	ck_assert_str_eq(out, "a%7Bb%7D%25%0A%20%7F\xff:z");
}

TEST(name_comes_back_for_every_pair_of_bytes)
{
	for (int pair = 0; pair < 65536; pair++) {
		char name[2] = {(char)(pair >> 8), (char)pair};
		char coded[7], back[7];
		size_t len, back_len = 99;

		len = lk__name_encode(coded, name, 2);
		ck_assert_uint_eq(len, strlen(coded));
		ck_assert(!strpbrk(coded, "{} \n"));
		ck_assert(lk__name_decode(back, &back_len, coded, len));
		ck_assert_uint_eq(back_len, 2);
		ck_assert(!memcmp(back, name, 2));
	}
}

TEST(name_has_one_spelling)
{
	static const char *const wrong[] = {"%",  "%2",   "%7b", "%41",  "a b", "{",  "}",
	                                    "\n", "\x7f", "%G0", "%%25", "%FF", "x%7"};
	char out[8];
	size_t len;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		ck_assert_msg(!lk__name_decode(out, &len, wrong[i], strlen(wrong[i])), "%s",
		              wrong[i]);
	ck_assert(!lk__name_decode(out, &len, "a\0", 2));
}

/* A random text either is not an encoding, or is the encoding of what it decodes to. */
TEST(name_decode_inverts_encode)
{
	static const char alphabet[] = "%27BDFab{} \x7f";
	unsigned long long state = test_seed();
	int good = 0;

	for (int round = 0; round < 200000; round++) {
		char text[9], name[9], again[32];
		size_t len, name_len;

		for (len = 0; len < 8; len++) {
			state = state * 6364136223846793005u + 1442695040888963407u;
			text[len] = alphabet[(state >> 33) % (sizeof(alphabet) - 1)];
			if ((state >> 60) == 0)
				break;
		}
		if (!lk__name_decode(name, &name_len, text, len))
			continue;
		good++;
		ck_assert_uint_eq(lk__name_encode(again, name, name_len), len);
		ck_assert(!memcmp(again, text, len));
	}
	ck_assert_int_gt(good, 100);
}

TEST(ids_are_url_base64)
{
	unsigned char bytes[16];
	char id[23], small[12];

	memset(bytes, 0, sizeof(bytes));
	lk__id128(id, bytes);
	ck_assert_str_eq(id, "AAAAAAAAAAAAAAAAAAAAAA");
	memset(bytes, 0xff, sizeof(bytes));
	lk__id128(id, bytes);
	ck_assert_str_eq(id, "_____________________w");
	for (int i = 0; i < 16; i++)
		bytes[i] = (unsigned char)i;
	lk__id128(id, bytes);
	ck_assert_str_eq(id, "AAECAwQFBgcICQoLDA0ODw");
	lk__id64(small, 0);
	ck_assert_str_eq(small, "AAAAAAAAAAA");
	lk__id64(small, UINT64_MAX);
	ck_assert_str_eq(small, "__________8");
	lk__id64(small, UINT64_C(0x0123456789abcdef));
	ck_assert_str_eq(small, "ASNFZ4mrze8");
}

static bool parse(const char *text, int64_t min, int64_t max, int64_t *value)
{
	return lk__parse_i64(text, strlen(text), min, max, value);
}

TEST(number_is_digits_and_in_range)
{
	static const char *const wrong[] = {"",   "-",   "+1",  " 1", "1 ",
	                                    "1x", "0x1", "--1", "1-", "1.0"};
	int64_t value = 7;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		ck_assert_msg(!parse(wrong[i], -100, 100, &value), "%s", wrong[i]);
	ck_assert(!parse("-1", 0, 100, &value));
	ck_assert(!parse("101", 0, 100, &value));
	ck_assert(!lk__parse_i64("1\0", 2, 0, 100, &value));
	ck_assert_int_eq(value, 7);
	ck_assert(parse("100", 0, 100, &value) && value == 100);
	ck_assert(parse("-5", -5, 0, &value) && value == -5);
	ck_assert(parse("007", 0, 100, &value) && value == 7);
	ck_assert(lk__parse_i64("123", 2, 0, 100, &value) && value == 12);
}

TEST(number_does_not_overflow)
{
	int64_t value;

	ck_assert(parse("9223372036854775807", 0, INT64_MAX, &value) && value == INT64_MAX);
	ck_assert(parse("-9223372036854775808", INT64_MIN, 0, &value) && value == INT64_MIN);
	ck_assert(!parse("9223372036854775808", INT64_MIN, INT64_MAX, &value));
	ck_assert(!parse("-9223372036854775809", INT64_MIN, INT64_MAX, &value));
	ck_assert(!parse("99999999999999999999999999", INT64_MIN, INT64_MAX, &value));
}

/* ---- Errors ------------------------------------------------------------------------------- */

TEST(every_error_has_a_name_and_a_meaning)
{
#define CHECK(name, number, text)                                                                  \
	ck_assert_int_eq(name, number);                                                            \
	ck_assert_str_eq(lk_err_name(name), #name);                                                \
	ck_assert_str_eq(lk_err_text(name), text);
	LK_ERR_MAP(CHECK)
#undef CHECK
	ck_assert_str_eq(lk_err_name((lk_err)999), "LK_E?");
	ck_assert_str_eq(lk_err_name((lk_err)-1), "LK_E?");
	ck_assert_ptr_nonnull(lk_err_text((lk_err)999));
}

/* The last two words of the header's line about an error. */
static bool look_up(const char *header, const char *name, char ambiguous[4], char retryable[4])
{
	char start[64], line[128];
	const char *at;

	snprintf(start, sizeof(start), "\n *   %-13s ", name);
	at = strstr(header, start);
	if (!at || strstr(at + 1, start))
		return false;
	snprintf(line, sizeof(line), "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
	return sscanf(line + 75, "%3s %3s", ambiguous, retryable) == 2;
}

TEST(header_says_of_each_error_whether_it_is_ambiguous_or_retryable)
{
	static char header[65536];
	FILE *file = fopen("include/latchkey.h", "re");

	ck_assert_ptr_nonnull(file);
	header[fread(header, 1, sizeof(header) - 1, file)] = '\0';
	fclose(file);
#define CHECK(name, number, text)                                                                  \
	do {                                                                                       \
		char ambiguous[4], retryable[4];                                                   \
		ck_assert_msg(look_up(header, #name, ambiguous, retryable), "no line: %s", #name); \
		ck_assert_str_eq(ambiguous, lk_err_is_ambiguous(name) ? "yes" : "-");              \
		ck_assert_str_eq(retryable, lk_err_is_retryable(name) ? "yes" : "-");              \
	} while (0);
	LK_ERR_MAP(CHECK)
#undef CHECK
	ck_assert(lk_err_is_ambiguous(LK_EUNKNOWN) && !lk_err_is_retryable(LK_EUNKNOWN));
	ck_assert(!lk_err_is_ambiguous((lk_err)999) && !lk_err_is_retryable((lk_err)999));
}

TEST(every_reason_has_a_name)
{
	ck_assert_str_eq(lk_lost_reason_name(LK_LOST_EXPIRED), "expired");
	ck_assert_str_eq(lk_lost_reason_name(LK_LOST_TAKEN), "taken");
	ck_assert_str_eq(lk_lost_reason_name(LK_LOST_BROKEN), "broken");
	ck_assert_str_eq(lk_lost_reason_name(LK_LOST_MAX_HOLD), "max-hold");
	ck_assert_str_eq(lk_lost_reason_name(LK_LOST_THREAD), "thread-ended");
	ck_assert_ptr_nonnull(lk_lost_reason_name((lk_lost_reason)99));
}

TEST(version_is_the_headers)
{
	int major, minor, patch;

	ck_assert_str_eq(lk_version(), LK_VERSION);
	ck_assert_int_eq(sscanf(LK_VERSION, "%d.%d.%d", &major, &minor, &patch), 3);
	ck_assert_int_eq(LK_VERSION_NUM, 10000 * major + 100 * minor + patch);
}

TEST(failure_is_told_escaped)
{
	struct lk__why why = {0};

	ck_assert_str_eq(lk_errmsg(), "");
	errno = ENOENT;
	ck_assert_int_eq(lk__why_set(&why, LK_ECONN, "%s: no", "a\nb\x1b"), LK_ECONN);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_str_eq(why.text, "a\\x0ab\\x1b: no");
	ck_assert_str_eq(lk_errmsg(), "");
	ck_assert_int_eq(lk__fail(&why), LK_ECONN);
	ck_assert_str_eq(lk_errmsg(), "a\\x0ab\\x1b: no");
	ck_assert_int_eq(lk__failf(LK_EBUSY, "%d\t", 7), LK_EBUSY);
	ck_assert_str_eq(lk_errmsg(), "7\\x09");
	ck_assert_int_eq(lk__why_set(NULL, LK_ENOMEM, "unseen"), LK_ENOMEM);
}

TEST(success_leaves_the_last_failure)
{
	struct lk__why why = {LK_OK, "nothing"};

	ck_assert_int_eq(lk__failf(LK_EBUSY, "busy"), LK_EBUSY);
	ck_assert_int_eq(lk__fail(&why), LK_OK);
	ck_assert_str_eq(lk_errmsg(), "busy");
}

TEST(long_failure_is_cut_visibly)
{
	char text[2000];
	struct lk__why why;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	lk__why_set(&why, LK_ESERVER, "%s", text);
	ck_assert_uint_eq(strlen(why.text), sizeof(why.text) - 1);
	ck_assert_str_eq(why.text + sizeof(why.text) - 4, "...");
	memset(text, '\n', sizeof(text) - 1);
	lk__why_set(&why, LK_ESERVER, "%s", text);
	ck_assert_uint_gt(strlen(why.text), sizeof(why.text) - 10);
}

static void *fail_in_thread(void *arg)
{
	lk__failf(LK_EBUSY, "the other thread's");
	return strcmp(lk_errmsg(), "the other thread's") ? arg : NULL;
}

TEST(failure_belongs_to_its_thread)
{
	pthread_t thread;
	void *wrong = NULL;

	lk__failf(LK_EBUSY, "mine");
	ck_assert(!pthread_create(&thread, NULL, fail_in_thread, &wrong));
	ck_assert(!pthread_join(thread, &wrong));
	ck_assert_ptr_null(wrong);
	ck_assert_str_eq(lk_errmsg(), "mine");
}
