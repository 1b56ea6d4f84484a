/* SPDX-License-Identifier: MIT
 * Names of keys in etcd, and letters in mailboxes. */
#include "harness/test.h"
#include "etcd/letter.h"

#include <stdio.h>
#include <string.h>

#define CLIENT "ABCDEFGHIJKLMNOPQRSTUV"
#define OTHER "abcdefghijklmnopqrstuv"
#define NONCE "0123456789_"

static char key[LK__ETCD_KEY_MAX], other[LK__ETCD_KEY_MAX];

static struct lk__bytes bytes(const char *text)
{
	return (struct lk__bytes){text, strlen(text)};
}

TEST(keys_have_the_kind_and_the_name)
{
	char mailbox[LK__ETCD_OWN_MAX];
	size_t len = lk__etcd_queue_key(other, "lk", LK__ETCD_LOCK, "a b", 3);

	ck_assert_str_eq(other, "lk/L/a%20b/");
	ck_assert_uint_eq(len, strlen(other));
	lk__etcd_ticket_key(key, other, CLIENT, NONCE);
	ck_assert_str_eq(key, "lk/L/a%20b/" CLIENT NONCE);
	lk__etcd_range_end(other, len);
	ck_assert_str_eq(other, "lk/L/a%20b0");
	lk__etcd_noun_key(key, "lk", LK__ETCD_SEMAPHORE, "a", 1);
	ck_assert_str_eq(key, "lk/Sa");
	lk__etcd_mailbox_key(mailbox, "lk", CLIENT);
	ck_assert_str_eq(mailbox, "lk/c/" CLIENT);
	lk__etcd_era_key(mailbox, "lk", CLIENT);
	ck_assert_str_eq(mailbox, "lk/e/" CLIENT);
}

/* Names that differ by a slash: no queue contains another one. */
TEST(slash_of_a_name_does_not_divide_its_key)
{
	static const char *const names[] = {"a", "a/b", "/a", "a/", "a%2Fb", "/", "a//b"};
	enum { COUNT = sizeof(names) / sizeof(*names) };

	for (int i = 0; i < COUNT; i++) {
		size_t len =
			lk__etcd_queue_key(key, "lk", LK__ETCD_LOCK, names[i], strlen(names[i]));

		for (int j = 0; j < COUNT; j++) {
			lk__etcd_queue_key(other, "lk", LK__ETCD_LOCK, names[j], strlen(names[j]));
			ck_assert_msg((strncmp(key, other, len) == 0) == (i == j), "%s, %s",
			              names[i], names[j]);
			lk__etcd_noun_key(other, "lk", LK__ETCD_LOCK, names[j], strlen(names[j]));
			ck_assert_msg(strncmp(key, other, len) != 0, "%s, noun %s", names[i],
			              names[j]);
		}
	}
}

TEST(longest_name_fits)
{
	char name[LK_NAME_MAX];
	size_t len;

	memset(name, '/', sizeof(name));
	len = lk__etcd_queue_key(other, "12345678901234567890123456789012", LK__ETCD_LOCK, name,
	                         sizeof(name));
	ck_assert_uint_eq(len, 32 + 3 + 3 * LK_NAME_MAX + 1);
	ck_assert_uint_lt(lk__etcd_ticket_key(key, other, CLIENT, NONCE), sizeof(key));
}

TEST(name_is_read_back)
{
	char name[256], out[3 * sizeof(name) + 1];
	size_t len, out_len;

	for (int i = 0; i < 256; i++)
		name[i] = (char)i;
	len = lk__etcd_noun_key(key, "lk", LK__ETCD_LOCK, name, sizeof(name));
	ck_assert(lk__etcd_read_name(out, &out_len, key + 4, len - 4));
	ck_assert_uint_eq(out_len, sizeof(name));
	ck_assert_mem_eq(out, name, sizeof(name));
}

TEST(text_that_is_no_name_is_refused)
{
	static const char *const texts[] = {"a/b", "%2f", "%2", "%", "a b", "%41"};
	char out[16];
	size_t len;

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		ck_assert_msg(!lk__etcd_read_name(out, &len, texts[i], strlen(texts[i])), "%s",
		              texts[i]);
}

TEST(ticket_is_read_from_its_key)
{
	struct lk__etcd_ticket ticket;
	size_t len = lk__etcd_queue_key(other, "lk", LK__ETCD_LOCK, "a", 1);

	lk__etcd_ticket_key(key, other, CLIENT, NONCE);
	lk__etcd_read_ticket(&ticket, bytes(key), len);
	ck_assert_str_eq(ticket.client, CLIENT);
	ck_assert_str_eq(ticket.nonce, NONCE);
}

TEST(ticket_of_another_program_has_no_client)
{
	static const char *const keys[] = {"lk/L/a/694d8a1b2c3d4e5f", "lk/L/a/",
	                                   "lk/L/a/" CLIENT NONCE "x",
	                                   "lk/L/a/ABCDEFGHIJKLMNOPQRSTU.0123456789_"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		struct lk__etcd_ticket ticket;

		lk__etcd_read_ticket(&ticket, bytes(keys[i]), strlen("lk/L/a/"));
		ck_assert_msg(!ticket.client[0] && !ticket.nonce[0], "%s", keys[i]);
	}
}

/* ---- Letters ---- */

static char text[LK__ETCD_LETTER_MAX];
static struct lk__etcd_letter letter, back;

static void goes_there_and_back(void)
{
	size_t len = lk__etcd_letter_write(text, &letter);

	ck_assert_uint_eq(len, strlen(text));
	ck_assert(lk__etcd_letter_read(&back, bytes(text)));
	ck_assert_mem_eq(&back, &letter, sizeof(letter));
}

TEST(empty_mailbox_has_no_letter)
{
	goes_there_and_back();
	ck_assert_str_eq(text, "1");
}

TEST(broken_is_read_back)
{
	letter.kind = LK__LETTER_BROKEN;
	letter.created = 77;
	snprintf(letter.nonce, sizeof(letter.nonce), NONCE);
	goes_there_and_back();
	ck_assert_str_eq(text, "1 b " NONCE " 77");
}

TEST(grant_is_read_back_with_those_who_are_next)
{
	letter.kind = LK__LETTER_GRANT;
	letter.created = INT64_MAX;
	snprintf(letter.nonce, sizeof(letter.nonce), NONCE);
	goes_there_and_back();
	while (letter.count < LK__ETCD_NEXT_MAX) {
		struct lk__etcd_ticket *next = &letter.next[letter.count++];

		snprintf(next->client, sizeof(next->client), OTHER);
		snprintf(next->nonce, sizeof(next->nonce), NONCE);
		next->created = INT64_MAX - letter.count;
		goes_there_and_back();
	}
}

TEST(malformed_letter_is_none)
{
	static const char *const texts[] = {
		"",
		"2 b " NONCE " 77",
		"1 ",
		"1 x " NONCE " 77",
		"1 b",
		"1 b 0123",
		"1 b " NONCE,
		"1 b " NONCE " 0",
		"1 b " NONCE " more",
		"1 b " NONCE " 77 more",
		"1 g " NONCE,
		"1 g " NONCE " 0",
		"1 g " NONCE " 12 ",
		"1 g " NONCE " 12 " OTHER NONCE,
		"1 g " NONCE " 12 " OTHER NONCE ":",
		"1 g " NONCE " 12 " OTHER NONCE ":x",
		"1 g " NONCE " 12 " OTHER "." NONCE ":1",
		"1 gg " NONCE " 12",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		ck_assert_msg(!lk__etcd_letter_read(&back, bytes(texts[i])), "%s", texts[i]);
		ck_assert_int_eq(back.kind, LK__LETTER_NONE);
		ck_assert_uint_eq(back.count, 0);
	}
}

TEST(grant_with_more_next_ones_than_there_is_room_for_is_none)
{
	char many[2 * LK__ETCD_LETTER_MAX];
	size_t len = (size_t)snprintf(many, sizeof(many), "1 g " NONCE " 1");

	for (int i = 0; i <= LK__ETCD_NEXT_MAX; i++) {
		ck_assert_int_eq(lk__etcd_letter_read(&back, bytes(many)), true);
		len += (size_t)snprintf(many + len, sizeof(many) - len, " " OTHER NONCE ":7");
	}
	ck_assert(!lk__etcd_letter_read(&back, bytes(many)));
}
