/* SPDX-License-Identifier: MIT
 * The codec against correct, broken and hostile peers (V8).  No test needs a server. */
#include "redis/resp.h"

#include "process.h"
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUTATIONS 30000
#define BYTES_MAX ((size_t)LK__RESP_MAX_BYTES)

/* ---- Helpers ------------------------------------------------------------------------------ */

/* Print a reply as text, in a notation of its own: +ok -error :1 "string" nil [a,b]. */
static void print(FILE *out, const struct lk__resp *resp)
{
	switch (resp->type) {
	case LK__RESP_STATUS:
		fprintf(out, "+%s", resp->str);
		break;
	case LK__RESP_ERROR:
		fprintf(out, "-%s", resp->str);
		break;
	case LK__RESP_INTEGER:
		fprintf(out, ":%lld", (long long)resp->integer);
		break;
	case LK__RESP_STRING:
		ck_assert_int_eq(resp->str[resp->len], 0);
		fputc('"', out);
		fwrite(resp->str, 1, resp->len, out);
		fputc('"', out);
		break;
	case LK__RESP_NIL:
		fputs("nil", out);
		break;
	case LK__RESP_ARRAY:
		fputc('[', out);
		for (size_t i = 0; i < resp->len; i++) {
			if (i)
				fputc(',', out);
			print(out, resp->elements[i]);
		}
		fputc(']', out);
		break;
	}
}

/* Take the complete replies; the text of each and a space go to out. */
static lk_err take(struct lk__resp_reader *reader, FILE *out, struct lk__why *why)
{
	for (;;) {
		struct lk__resp *resp;
		lk_err err = lk__resp_next(reader, &resp, why);
		if (err || !resp)
			return err;
		print(out, resp);
		fputc(' ', out);
		lk__resp_free(resp);
	}
}

/* Feed bytes in pieces of size step, up to the first error; the text is static. */
static const char *parse(const char *bytes, size_t len, size_t step, lk_err *err,
                         struct lk__why *why)
{
	static char *text;
	struct lk__resp_reader *reader = lk__resp_reader_new();
	size_t size;
	FILE *out;

	free(text);
	out = open_memstream(&text, &size);
	ck_assert(reader && out);
	*err = LK_OK;
	for (size_t at = 0; at < len && !*err; at += step) {
		size_t piece = len - at < step ? len - at : step;
		char *copy = malloc(piece); /* exact size, so that a sanitizer detects an overrun */
		memcpy(copy, bytes + at, piece);
		*err = lk__resp_feed(reader, copy, piece, why);
		free(copy);
		if (!*err)
			*err = take(reader, out, why);
	}
	lk__resp_reader_free(reader);
	fclose(out);
	return text;
}

static void expect_refused_len(const char *bytes, size_t len)
{
	for (size_t step = 1; step < 3; step++) {
		struct lk__why why = {.err = LK_OK};
		lk_err err;
		parse(bytes, len, step == 1 ? 1 : len, &err, &why);
		ck_assert_msg(err == LK_ESERVER, "%.40s is taken (%s)", bytes, lk_err_name(err));
		ck_assert_int_eq(why.err, LK_ESERVER);
		ck_assert_msg(!strncmp(why.text, "invalid reply: ", 15), "%s", why.text);
	}
}

static void expect_refused(const char *bytes)
{
	expect_refused_len(bytes, strlen(bytes));
}

static uint64_t random_state;

static uint64_t random_next(uint64_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % below;
}

/* ---- Correct peers ------------------------------------------------------------------------ */

static const struct {
	const char *bytes;
	const char *text;
} honest[] = {
	{"+OK\r\n", "+OK "},
	{"+\r\n", "+ "},
	{"-ERR no\r\n", "-ERR no "},
	{":0\r\n", ":0 "},
	{":-1\r\n", ":-1 "},
	{":9223372036854775807\r\n", ":9223372036854775807 "},
	{":-9223372036854775808\r\n", ":-9223372036854775808 "},
	{"$-1\r\n", "nil "},
	{"$0\r\n\r\n", "\"\" "},
	{"$5\r\na\r\nb\n\r\n", "\"a\r\nb\n\" "},
	{"*-1\r\n", "nil "},
	{"*0\r\n", "[] "},
	{"*3\r\n$7\r\nmessage\r\n$4\r\nlk:c\r\n$2\r\nhi\r\n", "[\"message\",\"lk:c\",\"hi\"] "},
	{"*2\r\n:-5\r\n$0\r\n\r\n", "[:-5,\"\"] "},
	{"*1\r\n:999999999999999999\r\n", "[:999999999999999999] "},
	{"*1\r\n:9223372036854775807\r\n", "[:9223372036854775807] "},
	{"*1\r\n$3\r\na\r\n\r\n", "[\"a\r\n\"] "},
	{"*8\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n$1\r\n8\r\n",
         "[:1,:2,:3,:4,:5,:6,:7,\"8\"] "},
	{"*9\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n$1\r\n9\r\n",
         "[:1,:2,:3,:4,:5,:6,:7,:8,\"9\"] "},
	{"*2\r\n*2\r\n:1\r\n$-1\r\n*1\r\n*0\r\n", "[[:1,nil],[[]]] "},
	{"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:7\r\n", "[[[[[[[:7]]]]]]] "},
	{"*2\r\n-ERR inside\r\n+fine\r\n", "[-ERR inside,+fine] "},
	{"+a\r\n:2\r\n$1\r\nc\r\n*1\r\n:4\r\n", "+a :2 \"c\" [:4] "},
};
#define HONEST_COUNT (sizeof(honest) / sizeof(honest[0]))

TEST(resp_reads_each_type_sliced_at_every_byte)
{
	for (size_t i = 0; i < HONEST_COUNT; i++) {
		size_t len = strlen(honest[i].bytes);
		for (size_t step = 1; step <= len; step++) {
			lk_err err;
			const char *text = parse(honest[i].bytes, len, step, &err, NULL);
			ck_assert_int_eq(err, LK_OK);
			ck_assert_str_eq(text, honest[i].text);
		}
	}
}

TEST(resp_cut_at_every_byte_is_no_reply_yet)
{
	for (size_t i = 0; i < HONEST_COUNT - 1; i++)
		for (size_t len = 0; len < strlen(honest[i].bytes); len++) {
			lk_err err;
			ck_assert_str_eq(parse(honest[i].bytes, len, len + 1, &err, NULL), "");
			ck_assert_int_eq(err, LK_OK);
		}
}

/* Small arrays that come in one piece have a fast path. */
TEST(resp_many_answers_in_one_piece_are_those_of_many_pieces)
{
	static const char answer[] = "*3\r\n$7\r\ngranted\r\n:17\r\n$3\r\n123\r\n";
	static char bytes[200 * (sizeof(answer) - 1)];
	lk_err err;
	char *one;

	for (size_t at = 0; at < sizeof(bytes); at += sizeof(answer) - 1)
		memcpy(bytes + at, answer, sizeof(answer) - 1);
	one = strdup(parse(bytes, sizeof(bytes), 1, &err, NULL));
	ck_assert_int_eq(err, LK_OK);
	ck_assert_uint_eq(strlen(one), 200 * strlen("[\"granted\",:17,\"123\"] "));
	for (size_t step = sizeof(answer) - 1; step <= sizeof(bytes); step += 97) {
		ck_assert_str_eq(parse(bytes, sizeof(bytes), step, &err, NULL), one);
		ck_assert_int_eq(err, LK_OK);
	}
	free(one);
}

TEST(resp_keeps_nul_bytes)
{
	static const char bytes[] = "$3\r\na\0b\r\n";
	struct lk__resp_reader *reader = lk__resp_reader_new();
	struct lk__resp *resp;

	ck_assert_int_eq(lk__resp_feed(reader, bytes, sizeof(bytes) - 1, NULL), LK_OK);
	ck_assert_int_eq(lk__resp_next(reader, &resp, NULL), LK_OK);
	ck_assert_ptr_nonnull(resp);
	ck_assert_uint_eq(resp->len, 3);
	ck_assert_mem_eq(resp->str, "a\0b", 4);
	lk__resp_free(resp);
	lk__resp_reader_free(reader);
}

TEST(resp_bounds_are_of_one_reply_not_of_a_connection)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	static char big[BYTES_MAX / 4];
	char header[32];

	memset(big, 'x', sizeof(big));
	snprintf(header, sizeof(header), "$%zu\r\n", sizeof(big));
	for (int i = 0; i < 20; i++) {
		struct lk__resp *resp;
		ck_assert_int_eq(lk__resp_feed(reader, header, strlen(header), NULL), LK_OK);
		ck_assert_int_eq(lk__resp_feed(reader, big, sizeof(big), NULL), LK_OK);
		ck_assert_int_eq(lk__resp_feed(reader, "\r\n", 2, NULL), LK_OK);
		ck_assert_int_eq(lk__resp_next(reader, &resp, NULL), LK_OK);
		ck_assert_ptr_nonnull(resp);
		ck_assert_uint_eq(resp->len, sizeof(big));
		lk__resp_free(resp);
	}
	for (int i = 0; i < 2 * LK__RESP_MAX_ELEMENTS; i++) {
		struct lk__resp *resp;
		ck_assert_int_eq(lk__resp_feed(reader, "*1\r\n:1\r\n", 8, NULL), LK_OK);
		ck_assert_int_eq(lk__resp_next(reader, &resp, NULL), LK_OK);
		lk__resp_free(resp);
	}
	lk__resp_reader_free(reader);
}

/* ---- Hostile peers ------------------------------------------------------------------------ */

TEST(v8_garbage_is_refused)
{
	static const char *const garbage[] = {
		"HTTP/1.1 400 Bad Request\r\n",
		"\r\n",
		"SSH-2.0-OpenSSH_9.2\r\n",
		"\x1b[2J",
		"PONG\r\n",
		":\r\n",
		":abc\r\n",
		":1 \r\n",
		":+1\r\n",
		":01\r\n",
		":1.5\r\n",
		":0x10\r\n",
		":--1\r\n",
		":9223372036854775808\r\n",
		":-9223372036854775809\r\n",
		":99999999999999999999999999\r\n",
		"$\r\n",
		"$x\r\n",
		"$1e3\r\n",
		"*\r\n",
		"*x\r\n",
		"*1\r\nx",
		"*01\r\n:1\r\n",
		"*1\r\n:01\r\n",
		"*1\r\n:\r\n",
		"*1\r\n:-\r\n",
		"*1\r\n:1 \r\n",
		"*1\r\n:9223372036854775808\r\n",
		"*1\r\n$01\r\na\r\n",
		"*2\r\n:1\r\nx\r\n",
		"+a\rb\r\n",
		"+a\nb\r\n",
		"-a\nb\r\n",
	};

	for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
		expect_refused(garbage[i]);
	expect_refused_len("\0\0\0\0", 4);
	expect_refused_len("\xff\xfe", 2);
}

TEST(v8_wrong_lengths_are_refused)
{
	static const char *const wrong[] = {
		"$-2\r\n",
		"$-2147483648\r\n",
		"$-9223372036854775808\r\n",
		"$99999999999999999999\r\n",
		"$2\r\nabc\r\n",
		"$3\r\nab\r\n+OK\r\n",
		"$0\r\nab\r\n",
		"$2\r\nabcd+OK\r\n",
		"*1\r\n$2\r\nabc\r\n",
		"*1\r\n$2\r\nabcd:1\r\n",
		"*-2\r\n",
		"*-2147483649\r\n",
		"*2147483647\r\n",
		"*2147483648\r\n",
		"*4294967295\r\n",
		"*4294967296\r\n",
		"*9223372036854775807\r\n",
		"*1\r\n*2147483647\r\n",
		"*20001\r\n",
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		expect_refused(wrong[i]);
}

TEST(v8_huge_array_takes_no_memory)
{
	int64_t before_kb = proc_size_kb(0);

	for (int i = 0; i < 100; i++)
		expect_refused("*2147483647\r\n");
	ck_assert_int_lt(proc_size_kb(0) - before_kb, 64 * 1024);
}

TEST(v8_huge_string_is_not_buffered_beyond_the_bound)
{
	static const char *const headers[] = {"$2147483647\r\n", "$9223372036854775807\r\n",
	                                      "$9223372036854775805\r\n", "+",
	                                      "*3\r\n$8000000\r\n"};
	static char block[1 << 16];

	memset(block, 'x', sizeof(block));
	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		struct lk__resp_reader *reader = lk__resp_reader_new();
		struct lk__why why;
		struct lk__resp *resp;
		size_t fed = 0;
		lk_err err = lk__resp_feed(reader, headers[i], strlen(headers[i]), &why);
		while (!err && fed <= 2 * BYTES_MAX) {
			err = lk__resp_next(reader, &resp, &why);
			ck_assert_ptr_null(resp);
			if (!err)
				err = lk__resp_feed(reader, block, sizeof(block), &why);
			fed += sizeof(block);
		}
		ck_assert_int_eq(err, LK_ESERVER);
		ck_assert_str_eq(why.text, "invalid reply: too large");
		ck_assert_uint_le(fed, BYTES_MAX + sizeof(block));
		/* And it keeps refusing. */
		ck_assert_int_eq(lk__resp_feed(reader, "+OK\r\n", 5, &why), LK_ESERVER);
		ck_assert_int_eq(lk__resp_next(reader, &resp, &why), LK_ESERVER);
		lk__resp_reader_free(reader);
	}
}

TEST(v8_many_large_strings_are_refused_in_sum)
{
	struct lk__resp_reader *reader = lk__resp_reader_new();
	static char big[BYTES_MAX / 8];
	char header[32];
	struct lk__why why;
	struct lk__resp *resp;
	int strings = 0;
	lk_err err;

	memset(big, 'x', sizeof(big));
	snprintf(header, sizeof(header), "$%zu\r\n", sizeof(big));
	err = lk__resp_feed(reader, "*100\r\n", 6, &why);
	while (!err && strings < 100) {
		(void)lk__resp_feed(reader, header, strlen(header), &why);
		(void)lk__resp_feed(reader, big, sizeof(big), &why);
		(void)lk__resp_feed(reader, "\r\n", 2, &why);
		err = lk__resp_next(reader, &resp, &why);
		strings++;
	}
	ck_assert_int_eq(err, LK_ESERVER);
	ck_assert_int_eq(strings, 9);
	lk__resp_reader_free(reader);
}

TEST(v8_elements_are_bounded_in_sum)
{
	/* 150 arrays of 150: none is large, the whole is. */
	size_t len = 0, size = 1 << 20;
	char *bytes = malloc(size);

	len += (size_t)snprintf(bytes, size, "*150\r\n");
	for (int i = 0; i < 150; i++) {
		len += (size_t)snprintf(bytes + len, size - len, "*150\r\n");
		for (int j = 0; j < 150; j++)
			len += (size_t)snprintf(bytes + len, size - len, ":1\r\n");
	}
	expect_refused_len(bytes, len);
	free(bytes);
}

TEST(v8_depth_is_bounded)
{
	static char deep[4 * 10000 + 1];

	for (size_t i = 0; i < 10000; i++)
		memcpy(deep + 4 * i, "*1\r\n", 4);
	expect_refused_len(deep, 4 * 10000);
	expect_refused_len(deep, 4 * 8);
}

TEST(v8_resp3_is_refused)
{
	static const char *const third[] = {
		",1.5\r\n",
		"#t\r\n",
		"_\r\n",
		"(12345\r\n",
		"=7\r\ntxt:abc\r\n",
		"%1\r\n:1\r\n:2\r\n",
		"~1\r\n:1\r\n",
		">1\r\n:1\r\n",
		"|1\r\n:1\r\n:2\r\n",
		"*1\r\n_\r\n",
		"*1\r\n#f\r\n",
		"%2147483647\r\n",
		"*1\r\n~2147483647\r\n",
	};

	for (size_t i = 0; i < sizeof(third) / sizeof(third[0]); i++)
		expect_refused(third[i]);
}

/* Change a valid stream at random places: in any slices, it is parsed or refused; the sanitizers
 * detect leaks and overruns. */
TEST_LIMIT(v8_mutated_replies_are_parsed_or_refused, 60)
{
	static const char interesting[] = "*$+-:\r\n0123456789\0\xff%~>_#,(";
	int refused = 0;

	random_state = test_seed() | 1;
	for (int round = 0; round < MUTATIONS; round++) {
		char bytes[512];
		size_t len = 0;
		lk_err err;
		while (len < 100) {
			const char *part = honest[random_next(HONEST_COUNT)].bytes;
			memcpy(bytes + len, part, strlen(part));
			len += strlen(part);
		}
		for (uint64_t changes = random_next(6); changes; changes--) {
			size_t at = (size_t)random_next(len), n = (size_t)random_next(4);
			switch (random_next(3)) {
			case 0:
				bytes[at] = interesting[random_next(sizeof(interesting))];
				break;
			case 1:
				n = n > len - at ? len - at : n;
				memmove(bytes + at, bytes + at + n, len - at - n);
				len -= n;
				break;
			default:
				memmove(bytes + at + n, bytes + at, len - at);
				len += n;
				break;
			}
			if (!len)
				len = 1;
		}
		parse(bytes, len, 1 + (size_t)random_next(len), &err, NULL);
		ck_assert_msg(err == LK_OK || err == LK_ESERVER, "round %d: %s", round,
		              lk_err_name(err));
		refused += err != LK_OK;
	}
	/* Both outcomes must occur. */
	ck_assert_int_gt(refused, MUTATIONS / 10);
	ck_assert_int_lt(refused, MUTATIONS * 9 / 10);
}

/* ---- Commands ----------------------------------------------------------------------------- */

TEST(command_is_written_byte_for_byte)
{
	static const char *const argv[] = {"SET", "a\0b\r\n", ""};
	static const size_t lens[] = {3, 5, 0};
	static const char *const ping[] = {"PING"};
	static const char expected[] =
		"*3\r\n$3\r\nSET\r\n$5\r\na\0b\r\n\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n";
	struct lk__buf buf = {0};

	ck_assert(lk__resp_command(&buf, 3, argv, lens));
	ck_assert(lk__resp_command(&buf, 1, ping, NULL));
	ck_assert_uint_eq(buf.len, sizeof(expected) - 1);
	ck_assert_mem_eq(buf.data, expected, buf.len);
	lk__buf_fini(&buf);
	ck_assert_ptr_null(buf.data);
}

TEST(command_of_any_size_is_read_back_the_same)
{
	static char big[100000];
	const char *argv[3] = {"X", big, big};
	struct lk__buf buf = {0};

	memset(big, '\r', sizeof(big));
	for (size_t len = 0; len < sizeof(big); len = len * 2 + 1) {
		struct lk__resp_reader *reader = lk__resp_reader_new();
		struct lk__resp *resp;
		size_t lens[3] = {1, len, len / 2};
		buf.len = 0;
		ck_assert(lk__resp_command(&buf, 3, argv, lens));
		ck_assert_int_eq(lk__resp_feed(reader, buf.data, buf.len, NULL), LK_OK);
		ck_assert_int_eq(lk__resp_next(reader, &resp, NULL), LK_OK);
		ck_assert_ptr_nonnull(resp);
		ck_assert_uint_eq(resp->len, 3);
		ck_assert_uint_eq(resp->elements[1]->len, len);
		ck_assert_mem_eq(resp->elements[1]->str, big, len);
		ck_assert_uint_eq(resp->elements[2]->len, len / 2);
		lk__resp_free(resp);
		lk__resp_reader_free(reader);
	}
	lk__buf_fini(&buf);
}

TEST(command_too_large_leaves_the_buffer_as_it_was)
{
	static const char *const argv[] = {"SET"};
	static const size_t lens[] = {SIZE_MAX / 2};
	struct lk__buf buf = {0};

	ck_assert(lk__resp_command(&buf, 1, argv, NULL));
	ck_assert_uint_eq(buf.len, 13);
	ck_assert(!lk__resp_command(&buf, 1, argv, lens));
	ck_assert_uint_eq(buf.len, 13);
	lk__buf_fini(&buf);
}

/* ---- Two threads -------------------------------------------------------------------------- */

static struct lk__resp_reader *shared;
static _Thread_local bool feeds;
static atomic_bool has_taken, taken_inside;

static void *take_one(void *arg)
{
	struct lk__resp *resp;

	(void)arg;
	ck_assert_int_eq(lk__resp_next(shared, &resp, NULL), LK_OK);
	has_taken = true;
	ck_assert_str_eq(resp->str, "OK");
	lk__resp_free(resp);
	return NULL;
}

/* The thread that adds bytes is about to release the reader's mutex: another thread takes a reply,
 * and must not get it before this call ends. */
int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	int (*real)(pthread_mutex_t *) =
		(int (*)(pthread_mutex_t *))(intptr_t)dlsym(RTLD_NEXT, "pthread_mutex_unlock");
	static pthread_t thread;

	if (feeds) {
		feeds = false;
		pthread_create(&thread, NULL, take_one, NULL);
		taken_inside = WITHIN(200, has_taken);
		real(mutex);
		return pthread_join(thread, NULL);
	}
	return real(mutex);
}

TEST(reply_is_not_taken_while_another_thread_adds_bytes)
{
	shared = lk__resp_reader_new();
	feeds = true;
	ck_assert_int_eq(lk__resp_feed(shared, "+OK\r\n", 5, NULL), LK_OK);
	ck_assert(has_taken);
	ck_assert(!taken_inside);
	lk__resp_reader_free(shared);
}
