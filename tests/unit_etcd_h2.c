/* SPDX-License-Identifier: MIT
 * A gRPC connection against a server in this process: what is sent, what is read however it is cut,
 * and what each end of a call means.  unit_etcd_h2_end has the ends of connections. */
#include "harness/h2_server.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct h2_link link;

#define IS(bytes, chars)                                                                           \
	ck_assert_msg((bytes).len == strlen(chars) &&                                              \
	                      (!(bytes).len || !memcmp((bytes).data, chars, (bytes).len)),         \
	              "%.*s is not %s", (int)(bytes).len, (const char *)(bytes).data, chars)

static void expect_answer(uint32_t id, const char *message)
{
	const struct lk__h2_event *event = h2_next(&link);

	ck_assert_msg(event->kind == LK__H2_ANSWER && event->fate == LK__H2_ANSWERED &&
	                      event->id == id && event->status == LK__GRPC_OK,
	              "kind %d, fate %d, status %d %s", event->kind, event->fate, event->status,
	              event->text);
	IS(event->message, message);
}

static void expect_end(uint32_t id, enum lk__h2_fate fate, int status, const char *text)
{
	const struct lk__h2_event *event = h2_next(&link);

	ck_assert(event->kind == LK__H2_ANSWER || event->kind == LK__H2_ENDED);
	ck_assert_msg(event->id == id && event->fate == fate && event->status == status,
	              "id %u, fate %d, status %d %s", event->id, event->fate, event->status,
	              event->text);
	ck_assert_str_eq(event->text, text);
	ck_assert_uint_eq(event->message.len, 0);
}

static void expect_message(uint32_t id, const char *message)
{
	const struct lk__h2_event *event = h2_next(&link);

	ck_assert(event->kind == LK__H2_MESSAGE && event->id == id);
	IS(event->message, message);
}

static void expect_nothing(void)
{
	ck_assert_msg(!h2_has_event(&link), "event %d: %s", link.event.kind, link.event.text);
}

static uint32_t open_stream(const char *path)
{
	uint32_t id;

	ck_assert_int_eq(lk__h2_open(link.h2, path, &id), LK_OK);
	return id;
}

static lk_err send_on(uint32_t id, const char *message)
{
	return lk__h2_send(link.h2, id, (struct lk__bytes){message, strlen(message)});
}

/* ---- Calls ---------------------------------------------------------------------------------- */

TEST(call_is_sent_and_answered)
{
	struct h2_request *request;
	uint32_t id;

	h2_link_open(&link, 0);
	id = h2_call(&link, "a", "question");
	ck_assert_uint_eq(lk__h2_count(link.h2), 1);
	h2_pass(&link);
	request = h2_request(&link, "a");
	ck_assert(request->is_ended && !request->has_leader);
	ck_assert(request->body.len == 13 &&
	          !memcmp(request->body.data, "\0\0\0\0\x08question", 13));
	ck_assert_str_eq(request->te, "trailers");
	ck_assert_str_eq(request->user_agent, "latchkey/" LK_VERSION);
	ck_assert_str_eq(request->authority, "host:2379");
	ck_assert_str_eq(request->scheme, "http");
	ck_assert_str_eq(request->token, "");
	expect_nothing();
	h2_answer(&link, request, "answer");
	h2_pass(&link);
	expect_answer(id, "answer");
	expect_nothing();
	ck_assert_uint_eq(lk__h2_count(link.h2), 0);
	ck_assert(lk__h2_due_ns(link.h2) == LK__H2_NEVER);
	h2_link_close(&link);
}

TEST(empty_messages_are_messages)
{
	uint32_t id;

	h2_link_open(&link, 0);
	id = h2_call(&link, "a", "");
	h2_pass(&link);
	ck_assert_uint_eq(h2_request(&link, "a")->body.len, 5);
	h2_answer(&link, h2_request(&link, "a"), "");
	h2_pass(&link);
	expect_answer(id, "");
	h2_link_close(&link);
}

TEST(answers_come_in_any_order)
{
	uint32_t ids[32];
	char name[8];

	h2_link_open(&link, 0);
	for (int i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ids[i] = h2_call(&link, name, name);
	}
	h2_pass(&link);
	for (int i = 0; i < 32; i++) {
		int other = (i * 7 + 3) % 32;
		snprintf(name, sizeof(name), "%d", other);
		h2_answer(&link, h2_request(&link, name), name);
		h2_pass(&link);
		expect_answer(ids[other], name);
	}
	expect_nothing();
	h2_link_close(&link);
}

TEST(token_is_in_what_begins_later)
{
	h2_link_open(&link, 0);
	h2_call(&link, "a", "");
	ck_assert_int_eq(lk__h2_set_token(link.h2, (struct lk__bytes){"abc.7", 5}), LK_OK);
	h2_call(&link, "b", "");
	open_stream("/t.T/c");
	ck_assert_int_eq(lk__h2_set_token(link.h2, (struct lk__bytes){0}), LK_OK);
	h2_call(&link, "d", "");
	h2_pass(&link);
	ck_assert_str_eq(h2_request(&link, "a")->token, "");
	ck_assert_str_eq(h2_request(&link, "b")->token, "abc.7");
	ck_assert_str_eq(h2_request(&link, "c")->token, "abc.7");
	ck_assert_str_eq(h2_request(&link, "d")->token, "");
	/* What no header may have. */
	ck_assert_int_eq(lk__h2_set_token(link.h2, (struct lk__bytes){"a\r\nb", 4}), LK_ESERVER);
	ck_assert_int_eq(lk__h2_set_token(link.h2, (struct lk__bytes){"a\0b", 3}), LK_ESERVER);
	ck_assert_int_eq(lk__h2_set_token(link.h2, (struct lk__bytes){"\xc3\xa4", 2}), LK_ESERVER);
	h2_link_close(&link);
}

TEST(large_messages_pass_in_both_directions)
{
	static char big[LK__GRPC_MESSAGE_MAX + 1];
	const struct lk__h2_event *event;
	struct lk__buf framed = {0};
	uint32_t id, small;

	memset(big, 'x', sizeof(big));
	h2_link_open(&link, 0);
	ck_assert_int_eq(lk__h2_call(link.h2, "/t.T/a", (struct lk__bytes){big, sizeof(big)},
	                             INT64_MAX, &id),
	                 LK_ELIMIT);
	ck_assert_int_eq(lk__h2_call(link.h2, "/t.T/a", (struct lk__bytes){big, sizeof(big) - 1},
	                             INT64_MAX, &id),
	                 LK_OK);
	h2_pass(&link);
	ck_assert(h2_request(&link, "a")->is_ended);
	ck_assert_uint_eq(h2_request(&link, "a")->body.len, sizeof(big) + 4);
	/* Of more than all windows; a small answer passes it. */
	small = h2_call(&link, "b", "");
	h2_pass(&link);
	ck_assert(lk__grpc_frame(&framed, big, sizeof(big) - 1));
	h2_headers(&link, h2_request(&link, "a"));
	h2_bytes(&link, h2_request(&link, "a"), framed.data, framed.len);
	h2_answer(&link, h2_request(&link, "b"), "small");
	h2_pass(&link);
	expect_answer(small, "small");
	h2_trailers(&link, h2_request(&link, "a"), 0, "");
	h2_pass(&link);
	event = h2_next(&link);
	ck_assert(event->id == id && event->message.len == sizeof(big) - 1);
	ck_assert(!memcmp(event->message.data, big, sizeof(big) - 1));
	lk__buf_fini(&framed);
	h2_link_close(&link);
}

/* ---- Streams -------------------------------------------------------------------------------- */

TEST(stream_sends_and_receives_until_the_server_ends_it)
{
	struct h2_request *request;
	uint32_t id;

	h2_link_open(&link, 0);
	id = open_stream("/t.T/watch");
	h2_pass(&link);
	request = h2_request(&link, "watch");
	ck_assert(request->has_leader && !request->is_ended && !request->body.len);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(send_on(id, "more"), LK_OK);
		h2_pass(&link);
		ck_assert_uint_eq(request->body.len, 9 * ((size_t)i + 1));
	}
	h2_headers(&link, request);
	h2_message(&link, request, "one");
	h2_pass(&link);
	expect_message(id, "one");
	h2_message(&link, request, "two");
	h2_message(&link, request, "");
	h2_message(&link, request, "four");
	h2_pass(&link);
	expect_message(id, "two");
	expect_message(id, "");
	expect_message(id, "four");
	expect_nothing();
	ck_assert_int_eq(send_on(id, "more"), LK_OK);
	h2_trailers(&link, request, 14, "etcdserver: no leader");
	h2_pass(&link);
	expect_end(id, LK__H2_ANSWERED, 14, "etcdserver: no leader");
	/* Our side was still open. */
	ck_assert(request->is_reset);
	ck_assert_int_eq(send_on(id, "more"), LK_ECONN);
	ck_assert_uint_eq(lk__h2_count(link.h2), 0);
	h2_link_close(&link);
}

TEST(messages_are_the_same_however_they_are_cut)
{
	static const size_t steps[] = {1, 2, 3, 0, 0, 0, 0};

	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		struct h2_request *request;
		uint32_t id, call;
		h2_link_open(&link, 0);
		link.step = steps[i];
		link.random[1] = (unsigned short)(10 + i);
		link.server.frame_max = i % 4;
		id = open_stream("/t.T/watch");
		call = h2_call(&link, "a", "question");
		ck_assert_int_eq(send_on(id, "some"), LK_OK);
		h2_pass(&link);
		request = h2_request(&link, "watch");
		ck_assert_uint_eq(request->body.len, 9);
		h2_headers(&link, request);
		h2_message(&link, request, "one");
		h2_answer(&link, h2_request(&link, "a"), "answer");
		h2_message(&link, request, "a longer message");
		h2_message(&link, request, "");
		h2_trailers(&link, request, 0, "");
		h2_pass(&link);
		for (int left = 5; left; left--) {
			const struct lk__h2_event *event = h2_next(&link);
			if (event->kind == LK__H2_ANSWER) {
				ck_assert_uint_eq(event->id, call);
				IS(event->message, "answer");
			} else {
				static const char *const texts[] = {"", "", "a longer message",
				                                    "one"};
				static int next;
				if (event->kind == LK__H2_ENDED)
					ck_assert(event->fate == LK__H2_ANSWERED && !event->status);
				else
					IS(event->message, texts[3 - next % 3]);
				next += event->kind == LK__H2_MESSAGE;
			}
		}
		expect_nothing();
		h2_link_close(&link);
	}
}

TEST(stream_that_the_server_does_not_read_has_a_limit)
{
	static char big[LK__GRPC_MESSAGE_MAX];
	const struct lk__bytes message = {big, sizeof(big) - LK__GRPC_PREFIX};
	uint32_t id;

	h2_link_open(&link, 0);
	id = open_stream("/t.T/watch");
	ck_assert_int_eq(lk__h2_send(link.h2, id, message), LK_OK);
	ck_assert_int_eq(lk__h2_send(link.h2, id, message), LK_OK);
	ck_assert_int_eq(lk__h2_send(link.h2, id, message), LK_ELIMIT);
	h2_pass(&link);
	ck_assert_uint_eq(h2_request(&link, "watch")->body.len, 2 * sizeof(big));
	ck_assert_int_eq(lk__h2_send(link.h2, id, message), LK_OK);
	h2_link_close(&link);
}

/* ---- What an end means ---------------------------------------------------------------------- */

TEST(status_comes_in_trailers_or_in_headers_alone)
{
	const char *const only[] = {
		":status",     "200", "content-type", "application/grpc",
		"grpc-status", "16",  "grpc-message", "etcdserver: invalid auth token",
		NULL};
	const char *const encoded[] = {
		":status",     "200", "content-type", "application/grpc+proto",
		"grpc-status", "3",   "grpc-message", "100%25 %e4%0a%zz %4",
		NULL};
	uint32_t a, b, c;

	h2_link_open(&link, 0);
	a = h2_call(&link, "a", "");
	b = h2_call(&link, "b", "");
	c = h2_call(&link, "c", "");
	h2_pass(&link);
	h2_only_headers(&link, h2_request(&link, "a"), only);
	h2_pass(&link);
	expect_end(a, LK__H2_ANSWERED, 16, "etcdserver: invalid auth token");
	h2_only_headers(&link, h2_request(&link, "b"), encoded);
	h2_pass(&link);
	expect_end(b, LK__H2_ANSWERED, 3, "100% \\xe4\\x0a%zz %4");
	/* A message does not count if the status is an error. */
	h2_headers(&link, h2_request(&link, "c"));
	h2_message(&link, h2_request(&link, "c"), "message");
	h2_trailers(&link, h2_request(&link, "c"), 8, "too many");
	h2_pass(&link);
	expect_end(c, LK__H2_ANSWERED, 8, "too many");
	h2_link_close(&link);
}

TEST(response_that_is_none_of_grpc_is_ambiguous)
{
	static const struct {
		const char *pairs[9];
		int status;
		const char *text;
	} cases[] = {
		{{":status", "503", "content-type", "text/html"},
	         14,
	         "not a response of gRPC (HTTP status 503)"},
		{{":status", "404"}, 12, "not a response of gRPC (HTTP status 404)"},
		{{":status", "200"}, 2, "not a response of gRPC (HTTP status 200)"},
		{{":status", "200", "content-type", "application/grpc"},
	         2,
	         "ended without a status"},
		{{":status", "200", "content-type", "application/grpc", "grpc-status", "0"},
	         13,
	         "no answer in the response"},
	};

	h2_link_open(&link, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char name[8];
		uint32_t id;
		snprintf(name, sizeof(name), "%zu", i);
		id = h2_call(&link, name, "");
		h2_pass(&link);
		h2_only_headers(&link, h2_request(&link, name), cases[i].pairs);
		h2_pass(&link);
		expect_end(id, LK__H2_LOST, cases[i].status, cases[i].text);
	}
	h2_link_close(&link);
}

/* Bytes as the body of a response with status 0. */
static uint32_t respond(const char *name, const char *bytes, size_t len)
{
	uint32_t id = h2_call(&link, name, "");

	h2_pass(&link);
	h2_headers(&link, h2_request(&link, name));
	h2_bytes(&link, h2_request(&link, name), bytes, len);
	h2_trailers(&link, h2_request(&link, name), 0, "");
	h2_pass(&link);
	return id;
}

TEST(malformed_bodies_end_their_own_call_only)
{
	uint32_t watch, id;

	h2_link_open(&link, 0);
	watch = open_stream("/t.T/watch");
	h2_pass(&link);
	h2_headers(&link, h2_request(&link, "watch"));
	id = respond("large", "\0\0\x40\0\1", 5);
	expect_end(id, LK__H2_LOST, 8, "a message is too large");
	id = respond("largest",
	             "\0\xff\xff\xff\xff"
	             "abc",
	             8);
	expect_end(id, LK__H2_LOST, 8, "a message is too large");
	id = respond("compressed", "\1\0\0\0\1x", 6);
	expect_end(id, LK__H2_LOST, 13, "a message is compressed");
	id = respond("two", "\0\0\0\0\1x\0\0\0\0\0", 11);
	expect_end(id, LK__H2_LOST, 13, "more than one answer");
	id = respond("cut", "\0\0\0\0\2x", 6);
	expect_end(id, LK__H2_LOST, 13, "ended inside of a message");
	id = respond("cut2", "\0\0\0\0\1x\0", 7);
	expect_end(id, LK__H2_LOST, 13, "ended inside of a message");
	id = respond("none", "", 0);
	expect_end(id, LK__H2_LOST, 13, "no answer in the response");
	h2_message(&link, h2_request(&link, "watch"), "still there");
	h2_pass(&link);
	expect_message(watch, "still there");
	expect_nothing();
	h2_link_close(&link);
}

TEST(reset_stream_was_run_unless_it_was_refused)
{
	static const struct {
		uint32_t code;
		enum lk__h2_fate fate;
		int status;
		const char *text;
	} cases[] = {
		{NGHTTP2_REFUSED_STREAM, LK__H2_NOT_RUN, 14, "stream closed: REFUSED_STREAM"},
		{NGHTTP2_CANCEL, LK__H2_LOST, 1, "stream closed: CANCEL"},
		{NGHTTP2_ENHANCE_YOUR_CALM, LK__H2_LOST, 8, "stream closed: ENHANCE_YOUR_CALM"},
		{NGHTTP2_INTERNAL_ERROR, LK__H2_LOST, 13, "stream closed: INTERNAL_ERROR"},
	};

	h2_link_open(&link, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char name[8];
		uint32_t id;
		snprintf(name, sizeof(name), "%zu", i);
		id = h2_call(&link, name, "");
		h2_pass(&link);
		h2_reset(&link, h2_request(&link, name), cases[i].code);
		h2_pass(&link);
		expect_end(id, cases[i].fate, cases[i].status, cases[i].text);
	}
	expect_nothing();
	h2_link_close(&link);
}

TEST(cancelled_call_has_no_event)
{
	uint32_t id, sent, stream;

	h2_link_open(&link, 0);
	sent = h2_call(&link, "sent", "");
	stream = open_stream("/t.T/stream");
	h2_pass(&link);
	h2_headers(&link, h2_request(&link, "stream"));
	h2_message(&link, h2_request(&link, "stream"), "message");
	id = h2_call(&link, "queued", "");
	lk__h2_cancel(link.h2, id);
	lk__h2_cancel(link.h2, sent);
	lk__h2_cancel(link.h2, stream);
	lk__h2_cancel(link.h2, 4711);
	ck_assert_uint_eq(lk__h2_count(link.h2), 0);
	h2_pass(&link);
	ck_assert(h2_request(&link, "sent")->is_reset && h2_request(&link, "stream")->is_reset);
	ck_assert(!h2_has_request(&link, "queued"));
	h2_answer(&link, h2_request(&link, "sent"), "late");
	h2_pass(&link);
	expect_nothing();
	h2_link_close(&link);
}

/* ---- Time and limits ------------------------------------------------------------------------ */

TEST(call_without_an_answer_ends_at_its_deadline)
{
	uint32_t first, second;

	h2_link_open(&link, 1);
	first = h2_call(&link, "first", "");
	second = h2_call(&link, "second", "");
	h2_pass(&link);
	ck_assert(!h2_has_request(&link, "second"));
	ck_assert(lk__h2_due_ns(link.h2) == link.now_ns + 5 * H2_SECOND);
	h2_wait(&link, 5 * H2_SECOND - 1);
	expect_nothing();
	lk__h2_tick(link.h2, ++link.now_ns);
	/* The one was sent, the other one waits for its turn. */
	for (int i = 0; i < 2; i++) {
		const struct lk__h2_event *event = h2_next(&link);
		ck_assert_int_eq(event->status, LK__GRPC_DEADLINE_EXCEEDED);
		ck_assert(event->id == first || event->id == second);
		ck_assert(event->fate == (event->id == first ? LK__H2_LOST : LK__H2_NOT_RUN));
	}
	h2_pass(&link);
	ck_assert(h2_request(&link, "first")->is_reset);
	ck_assert(!h2_has_request(&link, "second"));
	expect_nothing();
	h2_link_close(&link);
}

TEST(calls_above_the_limit_of_streams_wait_in_order)
{
	uint32_t ids[12];
	char name[8];

	h2_link_open(&link, 4);
	for (int i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ids[i] = h2_call(&link, name, name);
	}
	for (int i = 0; i < 12; i++) {
		h2_pass(&link);
		ck_assert_uint_eq(link.server.count, i + 4 < 12 ? (unsigned)i + 4 : 12);
		snprintf(name, sizeof(name), "%d", i);
		h2_answer(&link, h2_request(&link, name), name);
		h2_pass(&link);
		expect_answer(ids[i], name);
	}
	h2_link_close(&link);
}

TEST(only_one_call_is_sent_before_the_limit_is_known)
{
	const struct lk__h2_options options = {.authority = "h", .ping_timeout_ns = 1};

	h2_link_open(&link, 4);
	lk__h2_free(link.h2);
	nghttp2_session_del(link.server.session);
	h2_server_open(&link.server, 4);
	link.h2 = lk__h2_new(&options, link.now_ns);
	for (int i = 0; i < 12; i++)
		h2_call(&link, "a", "");
	h2_pass_requests(&link);
	ck_assert_uint_eq(link.server.count, 1);
	h2_pass(&link);
	ck_assert_uint_eq(link.server.count, 4);
	expect_nothing();
	h2_link_close(&link);
}

TEST(number_of_calls_has_a_limit)
{
	uint32_t id;

	h2_link_open(&link, 4);
	for (int i = 0; i < LK__H2_CALLS_MAX; i++)
		h2_call(&link, "a", "");
	ck_assert_int_eq(lk__h2_call(link.h2, "/t.T/a", (struct lk__bytes){0}, 0, &id), LK_ELIMIT);
	ck_assert_int_eq(lk__h2_open(link.h2, "/t.T/a", &id), LK_ELIMIT);
	h2_link_close(&link);
}
