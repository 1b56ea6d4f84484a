/* SPDX-License-Identifier: MIT
 * The end of a gRPC connection: GOAWAY, PING, silence, bytes that are no HTTP/2; and memory that
 * runs out.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
 */
#include "harness/h2_server.h"
#include "harness/short_memory.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>

static struct h2_link link;

/* The next event is the end of that call. */
static void expect_fate(uint32_t id, enum lk__h2_fate fate, const char *text)
{
	const struct lk__h2_event *event = h2_next(&link);

	ck_assert_msg(event->id == id && event->fate == fate, "id %u, fate %d: %s", event->id,
	              event->fate, event->text);
	ck_assert_msg(strstr(event->text, text) != NULL, "%s", event->text);
}

static void expect_draining(void)
{
	uint32_t id;

	ck_assert_int_eq(h2_next(&link)->kind, LK__H2_DRAINING);
	ck_assert_int_eq(lk__h2_call(link.h2, "/t.T/a", (struct lk__bytes){0}, 0, &id), LK_ECONN);
	ck_assert_int_eq(lk__h2_open(link.h2, "/t.T/a", &id), LK_ECONN);
}

static void expect_dead(lk_err err, const char *text)
{
	const struct lk__h2_event *event = h2_next(&link);

	ck_assert_int_eq(event->kind, LK__H2_DEAD);
	ck_assert_str_eq(lk_err_name(event->why->err), lk_err_name(err));
	ck_assert_msg(strstr(event->why->text, text) != NULL, "%s", event->why->text);
	ck_assert(!h2_has_event(&link));
	ck_assert(lk__h2_due_ns(link.h2) == LK__H2_NEVER);
	ck_assert_uint_eq(lk__h2_count(link.h2), 0);
}

/* ---- GOAWAY --------------------------------------------------------------------------------- */

TEST(calls_behind_the_last_one_of_a_goaway_were_not_run)
{
	uint32_t a, b, c, queued;

	h2_link_open(&link, 3);
	a = h2_call(&link, "a", "");
	b = h2_call(&link, "b", "");
	c = h2_call(&link, "c", "");
	queued = h2_call(&link, "queued", "");
	h2_pass(&link);
	h2_goaway(&link, h2_request(&link, "b")->id, NGHTTP2_NO_ERROR, "bye");
	h2_pass(&link);
	expect_fate(queued, LK__H2_NOT_RUN, "bye");
	expect_fate(c, LK__H2_NOT_RUN, "REFUSED_STREAM");
	expect_draining();
	/* The others go on. */
	h2_answer(&link, h2_request(&link, "b"), "answer");
	h2_pass(&link);
	expect_fate(b, LK__H2_ANSWERED, "");
	ck_assert(!h2_has_event(&link));
	h2_answer(&link, h2_request(&link, "a"), "answer");
	h2_pass(&link);
	expect_fate(a, LK__H2_ANSWERED, "");
	expect_dead(LK_ECONN, "ended by the server: NO_ERROR, bye");
	h2_link_close(&link);
}

TEST(goaway_in_two_steps_drains)
{
	uint32_t a;

	/* As Go's server does: it announces the end, and then names the last request. */
	h2_link_open(&link, 0);
	a = h2_call(&link, "a", "");
	h2_pass(&link);
	h2_goaway(&link, INT32_MAX, NGHTTP2_NO_ERROR, "");
	h2_pass(&link);
	expect_draining();
	h2_goaway(&link, h2_request(&link, "a")->id, NGHTTP2_NO_ERROR, "");
	h2_pass(&link);
	ck_assert(!h2_has_event(&link));
	h2_answer(&link, h2_request(&link, "a"), "answer");
	h2_pass(&link);
	expect_fate(a, LK__H2_ANSWERED, "");
	expect_dead(LK_ECONN, "ended by the server: NO_ERROR");
	h2_link_close(&link);
}

TEST(goaway_of_an_idle_connection_ends_it)
{
	h2_link_open(&link, 0);
	h2_goaway(&link, 0, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
	h2_pass(&link);
	expect_draining();
	expect_dead(LK_ECONN, "ended by the server: ENHANCE_YOUR_CALM, too_many_pings");
	h2_link_close(&link);
}

TEST(text_of_a_goaway_is_escaped)
{
	h2_link_open(&link, 0);
	h2_goaway(&link, 0, NGHTTP2_NO_ERROR, "\x1b[2J\n");
	h2_pass(&link);
	expect_draining();
	expect_dead(LK_ECONN, "NO_ERROR, \\x1b[2J\\x0a");
	h2_link_close(&link);
}

TEST(reason_of_a_goaway_counts_when_the_connection_ends)
{
	const struct lk__why why = {LK_ECONN, "host:2379: connection closed by the server"};
	uint32_t a;

	h2_link_open(&link, 0);
	a = h2_call(&link, "a", "");
	h2_pass(&link);
	h2_goaway(&link, h2_request(&link, "a")->id, NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings");
	h2_pass(&link);
	lk__h2_lost(link.h2, &why);
	expect_fate(a, LK__H2_LOST, "too_many_pings");
	expect_draining();
	expect_dead(LK_ECONN, "too_many_pings");
	h2_link_close(&link);
}

/* ---- PING ----------------------------------------------------------------------------------- */

TEST(silence_is_checked_by_one_ping_each_ten_seconds)
{
	uint32_t id;

	h2_link_open(&link, 0);
	/* A server does not allow it while nothing is open. */
	ck_assert(lk__h2_due_ns(link.h2) == LK__H2_NEVER);
	h2_wait(&link, 60 * H2_SECOND);
	ck_assert_uint_eq(link.server.pings, 0);
	ck_assert_int_eq(lk__h2_open(link.h2, "/t.T/watch", &id), LK_OK);
	h2_wait(&link, 1);
	ck_assert_uint_eq(link.server.pings, 1);
	for (unsigned i = 1; i < 5; i++) {
		ck_assert(lk__h2_due_ns(link.h2) == link.now_ns + 10 * H2_SECOND);
		h2_wait(&link, 10 * H2_SECOND - 1);
		ck_assert_uint_eq(link.server.pings, i);
		h2_wait(&link, 1);
		ck_assert_uint_eq(link.server.pings, i + 1);
	}
	/* A message is a sign of life, too. */
	h2_wait(&link, 9 * H2_SECOND);
	h2_headers(&link, h2_request(&link, "watch"));
	h2_message(&link, h2_request(&link, "watch"), "message");
	h2_pass(&link);
	h2_wait(&link, 9 * H2_SECOND);
	ck_assert_uint_eq(link.server.pings, 5);
	h2_wait(&link, H2_SECOND);
	ck_assert_uint_eq(link.server.pings, 6);
	h2_link_close(&link);
}

TEST(server_without_a_pong_is_dead)
{
	uint32_t id;

	h2_link_open(&link, 0);
	ck_assert_int_eq(lk__h2_open(link.h2, "/t.T/watch", &id), LK_OK);
	h2_pass(&link);
	lk__h2_tick(link.h2, link.now_ns += 10 * H2_SECOND);
	ck_assert(lk__h2_due_ns(link.h2) == link.now_ns + 3 * H2_SECOND);
	lk__h2_tick(link.h2, link.now_ns + 3 * H2_SECOND - 1);
	ck_assert(!h2_has_event(&link));
	lk__h2_tick(link.h2, link.now_ns + 3 * H2_SECOND);
	expect_fate(id, LK__H2_LOST, "no response to a PING");
	expect_dead(LK_ECONN, "no response to a PING");
	h2_link_close(&link);
}

/* ---- Broken connections --------------------------------------------------------------------- */

TEST(lost_connection_leaves_what_was_sent_ambiguous)
{
	const struct lk__why why = {LK_ECONN, "host:2379: connection reset by peer"};
	struct lk__buf buf = {0};
	uint32_t sent, unsent;

	h2_link_open(&link, 0);
	sent = h2_call(&link, "sent", "");
	lk__h2_write(link.h2, &buf);
	unsent = h2_call(&link, "unsent", "");
	lk__h2_lost(link.h2, &why);
	for (int i = 0; i < 2; i++) {
		const struct lk__h2_event *event = h2_next(&link);
		ck_assert(event->id == sent || event->id == unsent);
		ck_assert(event->fate == (event->id == sent ? LK__H2_LOST : LK__H2_NOT_RUN));
		ck_assert_str_eq(event->text, why.text);
	}
	expect_dead(LK_ECONN, why.text);
	/* Nothing happens any more. */
	lk__h2_feed(link.h2, "x", 1, link.now_ns);
	lk__h2_tick(link.h2, link.now_ns);
	buf.len = 0;
	lk__h2_write(link.h2, &buf);
	ck_assert_uint_eq(buf.len, 0);
	lk__h2_lost(link.h2, &why);
	ck_assert(!h2_has_event(&link));
	lk__buf_fini(&buf);
	h2_link_close(&link);
}

/* Bytes from a server that is none of ours; the result is the fate of a call. */
static void expect_violation(const void *bytes, size_t len, bool greeted, const char *text)
{
	struct lk__buf buf = {0};
	const struct lk__h2_options options = {.authority = "h", .ping_timeout_ns = 1};
	uint32_t id;

	if (greeted) {
		h2_link_open(&link, 0);
	} else {
		memset(&link, 0, sizeof(link));
		link.h2 = lk__h2_new(&options, 1);
	}
	id = h2_call(&link, "a", "");
	lk__h2_write(link.h2, &buf);
	lk__h2_feed(link.h2, bytes, len, link.now_ns);
	lk__h2_write(link.h2, &buf);
	expect_fate(id, LK__H2_LOST, text);
	expect_dead(LK_ESERVER, text);
	lk__buf_fini(&buf);
	h2_link_close(&link);
}

TEST(server_that_does_not_speak_http2_is_refused)
{
	static const char old[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
	static const char alert[] = "\x15\x03\x01\x00\x02\x02\x16 and more bytes";
	/* A frame that a client never gets: PRIORITY with a wrong length; one above all limits. */
	static const char priority[] = "\0\0\1\2\0\0\0\0\1x";
	static const char huge[] = "\xff\xff\xff\0\0\0\0\0\1";

	expect_violation(old, sizeof(old) - 1, false, "does not speak HTTP/2");
	expect_violation(alert, sizeof(alert) - 1, false, "does not speak HTTP/2");
	expect_violation(priority, sizeof(priority) - 1, true, "violated HTTP/2");
	expect_violation(huge, sizeof(huge) - 1, true, "violated HTTP/2");
}

/* ---- Memory --------------------------------------------------------------------------------- */

/* What a client does below, of which the server's bytes are kept. */
static void record_conversation(struct lk__buf *record)
{
	uint32_t id;

	link.record = record;
	h2_link_open(&link, 0);
	h2_call(&link, "a", "abc");
	ck_assert_int_eq(lk__h2_open(link.h2, "/t.T/watch", &id), LK_OK);
	h2_pass(&link);
	h2_headers(&link, h2_request(&link, "watch"));
	h2_message(&link, h2_request(&link, "watch"), "one");
	h2_answer(&link, h2_request(&link, "a"), "answer");
	h2_message(&link, h2_request(&link, "watch"), "two");
	h2_trailers(&link, h2_request(&link, "watch"), 14, "no leader");
	h2_pass(&link);
	h2_link_close(&link);
	link.record = NULL;
}

/* One conversation with the n-th allocation failing.  Each call ends once, or was not begun. */
static void converse(const struct lk__buf *record, int n)
{
	const struct lk__h2_options options = {.authority = "host", .ping_timeout_ns = 1};
	struct lk__buf buf = {0};
	struct lk__h2_event event;
	unsigned begun = 0, ended = 0;
	lk_err why = LK_OK;
	uint32_t id;
	struct lk__h2 *h2;

	memory.left = n;
	h2 = lk__h2_new(&options, 1);
	if (!h2) {
		memory.left = 0;
		return;
	}
	(void)lk__h2_set_token(h2, (struct lk__bytes){"token", 5});
	begun += lk__h2_call(h2, "/t.T/a", (struct lk__bytes){"abc", 3}, INT64_MAX, &id) == LK_OK;
	if (lk__h2_open(h2, "/t.T/watch", &id) == LK_OK) {
		begun++;
		(void)lk__h2_send(h2, id, (struct lk__bytes){"abc", 3});
	}
	lk__h2_write(h2, &buf);
	/* Its SETTINGS come first: until then, a server gets one request. */
	for (size_t at = 0, len; at < record->len; at += len) {
		len = at ? 50 : 9;
		if (len > record->len - at)
			len = record->len - at;
		lk__h2_feed(h2, record->data + at, len, 2);
		buf.len = 0;
		lk__h2_write(h2, &buf);
		while (lk__h2_next(h2, &event)) {
			ended += event.kind == LK__H2_ANSWER || event.kind == LK__H2_ENDED;
			if (event.kind == LK__H2_DEAD)
				why = event.why->err;
		}
	}
	lk__h2_free(h2);
	/* A check needs memory, too. */
	memory.left = 0;
	ck_assert_msg(ended == begun, "%u of %u ended", ended, begun);
	/* The server's responses do not fit if a request was not sent. */
	ck_assert(why == LK_OK || why == LK_ENOMEM || why == LK_ESERVER);
	lk__buf_fini(&buf);
}

TEST(failing_allocations_end_the_connection_in_order)
{
	struct lk__buf record = {0};
	int n = 0;

	record_conversation(&record);
	do {
		memory.failures = 0;
		converse(&record, ++n);
	} while (memory.failures);
	/* Without counting those of nghttp2, which the linker does not wrap. */
	ck_assert_int_gt(n, 10);
	lk__buf_fini(&record);
}
