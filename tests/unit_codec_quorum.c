/* SPDX-License-Identifier: MIT
 * The wire format of a quorum: requests, answers, messages, the set in a marker. */
#include "redis/codec.h"
#include "redis/conn.h"

#include "base/slot.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <stdlib.h>
#include <string.h>

#define CLIENT "aaaaaaaaaaaaaaaaaaaaaa"
#define OTHER "bbbbbbbbbbbbbbbbbbbbbb"
#define NONCE "nonce-nonc0"
#define AT "1700000000000000"
#define TICKET "q1:" CLIENT ":" NONCE ":10000:r:" AT ":7"
#define MARKER "1 ab 1000 [set 2/3 60000]"
/* The class of "foo": its CRC16 is 44950. */
#define CLASS "918"
#define KEYS "4 lk:{foo} lk:{foo}:q lk:fences lk:epoch"
#define MEMORY MARKER " 60001000"

static struct lk__space space_of(bool quorum)
{
	struct lk__space space;

	lk__space_init(&space, "lk", 3, CLIENT);
	space.grace_ms = quorum ? 0 : 10000;
	space.quorum = quorum;
	return space;
}

/* The words of a command, with spaces; "" as "-", a script's text or digest as "*". */
static const char *words_of(const struct lk__buf *bytes)
{
	static char text[8192];
	const char *at = strstr(bytes->data, "\r\n") + 2, *end = bytes->data + bytes->len;
	size_t len = 0;

	text[0] = '\0';
	while (at < end) {
		long size = strtol(at + 1, NULL, 10);
		at = strstr(at, "\r\n") + 2;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.*s", len ? " " : "",
		                        !size || size == 40 || size > 200 ? 1 : (int)size,
		                        !size                       ? "-"
		                        : size == 40 || size > 200 ? "*"
		                                                   : at);
		at += size + 2;
	}
	return text;
}

static const char *encoded_in(bool quorum, struct lk__request request)
{
	static struct lk__epoch epoch = {.len = strlen(MARKER), .text = MARKER, .since_us = 1000};
	struct lk__space space = space_of(quorum);
	struct lk__buf bytes = {0};
	const char *text;

	lk__codec_set(&epoch);
	if (!request.epoch)
		request.epoch = &epoch;
	ck_assert(lk__codec_request(&bytes, &space, &request));
	ck_assert(lk__resp_command(&bytes, 0, NULL, NULL)); /* ends it with a NUL */
	bytes.len -= strlen("*0\r\n");
	bytes.data[bytes.len] = '\0';
	text = words_of(&bytes);
	lk__buf_fini(&bytes);
	return text;
}

static const char *encoded(struct lk__request request)
{
	return encoded_in(true, request);
}

static struct lk__request request_of(enum lk__request_kind kind)
{
	static const struct lk__details details = {.subject = "q1:it"};

	return (struct lk__request){.kind = (uint8_t)kind,
	                            .noun = LK_KIND_LOCK,
	                            .quorum = true,
	                            .name = "foo",
	                            .name_len = 3,
	                            .ticket = {.nonce = NONCE,
	                                       .lease_ms = 10000,
	                                       .priority = UINT64_C(1700000000000000),
	                                       .epoch = 7},
	                            .proposal = 5,
	                            .details = &details};
}

/* ---- Requests ----------------------------------------------------------------------------- */

TEST(ask_of_a_quorum)
{
	struct lk__request request = request_of(LK__ASK);

	ck_assert_str_eq(encoded(request), "EVALSHA * " KEYS " " TICKET " 1 5 " CLASS
	                                   " lk:c:3: 30000 " MEMORY);
	request.only_try = request.by_text = request.ticket.fixed = true;
	ck_assert_str_eq(encoded(request),
	                 "EVAL * " KEYS " q1:" CLIENT ":" NONCE ":10000:f:" AT ":7 0 5 " CLASS
	                 " lk:c:3: 30000 " MEMORY);
}

TEST(renewal_of_a_quorum)
{
	struct lk__request request = request_of(LK__RENEW);

	request.fence = 8;
	request.lease_ms = 9;
	request.last_fence = 10;
	ck_assert_str_eq(encoded(request),
	                 "EVALSHA * " KEYS " " TICKET " 8 9 10 " CLASS " " MEMORY);
	request.fence = 0;
	request.lease_ms = 0;
	request.last_fence = 0;
	ck_assert_str_eq(encoded(request),
	                 "EVALSHA * " KEYS " " TICKET " 0 0 0 " CLASS " " MEMORY);
}

TEST(ends_of_a_leg)
{
	struct lk__request request = request_of(LK__LEAVE);

	ck_assert_str_eq(encoded(request), "EVALSHA * " KEYS " " TICKET " 5 " CLASS
	                                   " lk:c:3: 0 - 30000 " MEMORY);
	request.kind = LK__HAND;
	ck_assert_str_eq(encoded(request), "EVALSHA * " KEYS " - 5 " CLASS
	                                   " lk:c:3: 0 - 30000 " MEMORY);
	request.kind = LK__YIELD;
	ck_assert_str_eq(encoded(request), "EVALSHA * " KEYS " " TICKET " 5 " CLASS
	                                   " lk:c:3: 0 q1:" CLIENT ":" NONCE ":10000:r:" AT
	                                   ":8 30000 " MEMORY);
	request.kind = LK__BREAK;
	ck_assert_str_eq(encoded(request), "EVAL * " KEYS " q1:it 5 " CLASS
	                                   " lk:c:3: 1 - 30000 " MEMORY);
}

/* The name as the program gave it, whatever braces it has. */
TEST(class_is_of_the_whole_name)
{
	struct lk__request request = request_of(LK__HAND);
	char wanted[40];

	request.name = "{foo}x";
	request.name_len = 6;
	snprintf(wanted, sizeof(wanted), " - 5 %u lk:c:3:", lk__slot_of("{foo}x", 6) % 1024);
	ck_assert_ptr_nonnull(strstr(encoded(request), wanted));
	ck_assert_ptr_null(strstr(encoded(request), " " CLASS " "));
}

TEST(question_for_the_marker_of_a_member)
{
	static const struct lk__epoch none = {.len = 0};
	struct lk__request request = {.kind = LK__EPOCH, .epoch = &none};

	ck_assert_str_eq(encoded_in(false, request), "EVALSHA * 1 lk:epoch - 0 3");
	ck_assert_str_eq(encoded_in(true, request), "EVALSHA * 1 lk:epoch - 0 3 - 0");
	request.quorum = true;
	ck_assert_str_eq(encoded_in(false, request), "EVALSHA * 1 lk:epoch - 0 3 - 0");
	request.set = "set 1/3 60000";
	ck_assert_str_eq(encoded(request), "EVALSHA * 1 lk:epoch - 0 3 set 1/3 60000 0");
	request.set_is_new = true;
	ck_assert_str_eq(encoded(request), "EVALSHA * 1 lk:epoch - 0 3 set 1/3 60000 1");
	request.kind = LK__RECALL;
	ck_assert_str_eq(encoded(request), "EVAL * 1 lk:epoch - 0 3 set 1/3 60000 1");
	request = (struct lk__request){.kind = LK__RECALL, .epoch = &none};
	ck_assert_str_eq(encoded_in(false, request), "EVAL * 1 lk:epoch - 0 3");
	ck_assert_str_eq(encoded_in(true, request), "EVAL * 1 lk:epoch - 0 3 - 0");
}

TEST(ticket_of_a_single_server_is_as_before)
{
	struct lk__request request = request_of(LK__ASK);

	request.quorum = false;
	request.ticket.priority = 0;
	ck_assert_str_eq(encoded_in(false, request),
	                 "EVALSHA * 4 lk:{foo} lk:{foo}:q lk:fence lk:epoch 2:" CLIENT ":" NONCE
	                 ":10000:r 1 0 lk:c:3: - 30000 " MARKER " 10001000");
}

TEST(longest_request_fits)
{
	struct lk__request request = request_of(LK__YIELD);
	struct lk__space space;
	struct lk__epoch epoch = {.len = LK__EPOCH_SIZE - 1, .longest_ms = LK_LEASE_MAX_MS};
	struct lk__buf bytes = {0};
	char name[LK_NAME_MAX], ticket[LK__TICKET_MAX];

	memset(name, '{', sizeof(name));
	memset(epoch.text, '1', sizeof(epoch.text) - 1);
	epoch.since_us = LK__EXACT_MAX;
	lk__space_init(&space, "abcdefghijklmnopqrstuvwxyz123456", INT32_MAX, CLIENT);
	request.name = name;
	request.name_len = sizeof(name);
	request.epoch = &epoch;
	request.proposal = LK__EXACT_MAX;
	request.ticket.lease_ms = LK_LEASE_MAX_MS;
	request.ticket.priority = LK__EXACT_MAX;
	request.ticket.epoch = UINT16_MAX;
	ck_assert_uint_lt(lk__ticket_text(&space, &request.ticket, ticket), LK__TICKET_MAX);
	ck_assert(lk__codec_request(&bytes, &space, &request));
	lk__buf_fini(&bytes);
}

/* ---- Answers ------------------------------------------------------------------------------ */

static struct lk__resp *parse(const char *bytes)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	struct lk__resp *resp;
	struct lk__why why;

	ck_assert(!lk__resp_feed(reader, bytes, strlen(bytes), &why));
	ck_assert_msg(!lk__resp_next(reader, &resp, &why), "%s", why.text);
	ck_assert_ptr_nonnull(resp);
	lk__resp_reader_free(reader);
	return resp;
}

static struct lk__answer answer_of(const char *bytes)
{
	static struct lk__why why;
	struct lk__resp *resp = parse(bytes);
	struct lk__answer answer;

	lk__codec_answer(resp, "server", &answer, &why);
	lk__resp_free(resp);
	return answer;
}

TEST(answers_of_a_quorum_have_the_counter_and_the_head)
{
	struct lk__answer answer =
		answer_of("*6\r\n$7\r\ngranted\r\n$1\r\n5\r\n$1\r\n6\r\n:7\r\n$1\r\n8\r\n:1\r\n");

	ck_assert_int_eq(answer.kind, LK__GRANTED);
	ck_assert_uint_eq(answer.fence, 5);
	ck_assert_int_eq(answer.store_us, 6);
	ck_assert_int_eq(answer.waiting, 7);
	ck_assert_uint_eq(answer.last, 8);
	ck_assert(answer.older && !answer.more);
	answer = answer_of("*6\r\n$4\r\nheld\r\n$1\r\n5\r\n$1\r\n6\r\n:0\r\n$1\r\n8\r\n:0\r\n");
	ck_assert_int_eq(answer.kind, LK__KEPT);
	ck_assert_uint_eq(answer.last, 8);
	ck_assert(!answer.older && !answer.more);
}

TEST(answers_of_a_single_server_have_neither)
{
	struct lk__answer answer =
		answer_of("*5\r\n$7\r\ngranted\r\n$1\r\n5\r\n$1\r\n6\r\n:7\r\n:1\r\n");

	ck_assert_int_eq(answer.kind, LK__GRANTED);
	ck_assert(answer.more && !answer.older && !answer.last);
	answer = answer_of("*4\r\n$4\r\nheld\r\n$1\r\n5\r\n$1\r\n6\r\n:7\r\n");
	ck_assert_int_eq(answer.kind, LK__KEPT);
	ck_assert(!answer.more && !answer.older && !answer.last);
}

TEST(young_server_says_for_how_long)
{
	struct lk__answer answer = answer_of("*2\r\n$5\r\nyoung\r\n:1234\r\n");

	ck_assert_int_eq(answer.kind, LK__YOUNG);
	ck_assert_int_eq(answer.grace_ms, 1234);
	ck_assert_int_eq(answer_of("*1\r\n$5\r\nyoung\r\n").kind, LK__FAILED);
	ck_assert_int_eq(answer_of("*2\r\n$5\r\nyoung\r\n:-1\r\n").kind, LK__FAILED);
}

TEST(foreign_text_that_says_what_to_use_is_not_called_another_use)
{
	struct lk__why why = {0};
	struct lk__resp *resp = parse("*3\r\n$7\r\nforeign\r\n$8\r\nlk:epoch\r\n"
	                              "$40\r\nmember of a quorum: use redis+quorum://!\r\n");

	ck_assert_int_eq(lk__codec_foreign(resp, &why), LK_EFOREIGN);
	ck_assert_str_eq(why.text, "key lk:epoch: member of a quorum: use redis+quorum://!");
	lk__resp_free(resp);
}

static struct lk__epoch set_of(const char *marker)
{
	struct lk__epoch epoch = {.set = "old", .set_servers = 9, .longest_ms = 9};

	snprintf(epoch.text, sizeof(epoch.text), "%s", marker);
	lk__codec_set(&epoch);
	return epoch;
}

TEST(marker_names_the_set)
{
	static const char reply[] = "*5\r\n$5\r\nepoch\r\n$25\r\n1 ab 1000 [set 2/3 60000]\r\n"
				    "$4\r\n1000\r\n$4\r\n2000\r\n:0\r\n";
	struct lk__answer answer = answer_of(reply);
	struct lk__epoch epoch;

	ck_assert_int_eq(answer.kind, LK__MEMORY);
	ck_assert_str_eq(answer.epoch.set, "set");
	ck_assert_uint_eq(answer.epoch.set_servers, 3);
	ck_assert_int_eq(answer.epoch.longest_ms, 60000);
	ck_assert_str_eq(answer.epoch.text, MARKER);
	epoch = set_of("1 a 5 [abcdefghijklmnopqrs_-79 7/7 86400000]");
	ck_assert_str_eq(epoch.set, "abcdefghijklmnopqrs_-79");
	ck_assert_uint_eq(epoch.set_servers, 7);
	ck_assert_int_eq(epoch.longest_ms, 86400000);
}

TEST(marker_without_a_set)
{
	static const char *const markers[] = {
		"",
		"1 a 5",
		"1 a 5 [q 3]",
		"1 a 5 [set 1/3 60000",
		"1 a 5 [set 0/0 60000]",
		"1 a 5 [set -1/3 60000]",
		"1 a 5 [set 4/3 60000]",
		"1 a 5 [set 1/256 60000]",
		"1 a 5 [set 1/3 0]",
		"1 a 5 [set 1/3 86400001]",
		"1 a 5 [set 1/3 x]",
		"1 a 5 [set 1 3/60000]",
		"1 a 5 [ 1/3 60000]",
		"1 a 5 [abcdefghijklmnopqrs_-790 1/3 60000]",
	};

	for (size_t i = 0; i < sizeof(markers) / sizeof(*markers); i++) {
		struct lk__epoch epoch = set_of(markers[i]);
		ck_assert_str_eq(epoch.set, "");
		ck_assert_uint_eq(epoch.set_servers, 0);
		ck_assert_uint_eq(epoch.set_place, 0);
		ck_assert_int_eq(epoch.longest_ms, 0);
	}
}

TEST(place_in_a_set_may_be_unknown)
{
	ck_assert_uint_eq(set_of("1 a 5 [set 3/3 60000]").set_place, 3);
	ck_assert_uint_eq(set_of("1 a 5 [set 0/3 60000]").set_place, 0);
	ck_assert_uint_eq(set_of("1 a 5 [set 0/3 60000]").set_servers, 3);
}

TEST(listing_has_the_legs_of_a_server)
{
	struct lk__listing *found = calloc(1, sizeof(*found) + 4 * sizeof(found->entries[0]));
	struct lk__request query = request_of(LK__SHOW);
	const struct lk__space space = space_of(true);
	struct lk__answer answer;
	struct lk__why why;
	struct lk__resp *resp;
	char bytes[600];

	snprintf(bytes, sizeof(bytes),
	         "*7\r\n$%zu\r\n" TICKET "\r\n$1\r\n5\r\n:9\r\n$1\r\n6\r\n:1\r\n:-1\r\n"
	         "$%zu\r\nq1:" OTHER ":" NONCE ":10000:r:" AT ":0\r\n",
	         strlen(TICKET), strlen(TICKET));
	found->room = 4;
	resp = parse(bytes);
	lk__codec_query_answer(resp, "server", &space, &query, found, &answer, &why);
	lk__resp_free(resp);
	ck_assert_int_eq(answer.kind, LK__LISTED);
	ck_assert_uint_eq(found->count, 2);
	ck_assert_str_eq(found->entries[0].id, TICKET);
	ck_assert_str_eq(found->entries[0].party, CLIENT ":" NONCE);
	ck_assert_str_eq(found->entries[1].party, OTHER ":" NONCE);
	free(found);
}

/* ---- Messages ----------------------------------------------------------------------------- */

static struct lk__message message;

static bool parses(const char *text)
{
	const struct lk__space space = space_of(true);

	return lk__codec_message(&space, text, strlen(text), &message);
}

TEST(messages_name_the_priority_and_the_epoch)
{
	ck_assert(parses("grant " TICKET " 5 3000 1 2 1700"));
	ck_assert_int_eq(message.kind, LK__GRANT);
	ck_assert_str_eq(message.nonce, NONCE);
	ck_assert_int_eq(message.lease_ms, 10000);
	ck_assert_uint_eq(message.priority, UINT64_C(1700000000000000));
	ck_assert_uint_eq(message.epoch, 7);
	ck_assert_uint_eq(message.permits, 0);
	ck_assert(!message.fixed && message.claim);
	ck_assert(parses("wanted " TICKET " 1699"));
	ck_assert_int_eq(message.kind, LK__WANTED);
	ck_assert_uint_eq(message.priority, UINT64_C(1700000000000000));
	ck_assert(parses("again " TICKET " 3000"));
	ck_assert(parses("broken q1:" CLIENT ":" NONCE ":10000:f:9007199254740992:65535"));
	ck_assert_uint_eq(message.epoch, 65535);
	ck_assert_uint_eq(message.priority, UINT64_C(9007199254740992));
	ck_assert(message.fixed);
	ck_assert(parses("broken 2:" CLIENT ":" NONCE ":10000:r"));
	ck_assert_uint_eq(message.priority, 0);
	ck_assert_uint_eq(message.epoch, 0);
}

TEST(message_of_another_form_is_none)
{
	static const char *const texts[] = {
		"broken q1:" CLIENT ":" NONCE ":10000:r:" AT ":65536",
		"broken q1:" CLIENT ":" NONCE ":10000:r:" AT ":-1",
		"broken q1:" CLIENT ":" NONCE ":10000:r:" AT ":",
		"broken q1:" CLIENT ":" NONCE ":10000:r:" AT,
		"broken q1:" CLIENT ":" NONCE ":10000:r:0:7",
		"broken q1:" CLIENT ":" NONCE ":10000:r:9007199254740993:7",
		"broken q1:" CLIENT ":" NONCE ":10000:n:" AT ":7",
		"broken q1:" CLIENT ":" NONCE ":10000:r",
		"broken q1:" OTHER ":" NONCE ":10000:r:" AT ":7",
		"broken q2:" CLIENT ":" NONCE ":10000:r:" AT ":7",
		"broken q:" CLIENT ":" NONCE ":10000:r:" AT ":7",
		"broken q",
		"broken q1",
		"broken q1:",
		"broken q1::",
		"broken 2:" CLIENT ":" NONCE ":10000:r:" AT ":7",
		"wanted " TICKET,
		"wanted " TICKET " ",
		"wanted " TICKET " x",
		"wanted " TICKET " 1 2",
		"wanted 2:" CLIENT ":" NONCE ":10000:r 1",
		"grant " TICKET " 0 3000 1 2 1700",
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		ck_assert_msg(!parses(texts[i]), "%s", texts[i]);
}
