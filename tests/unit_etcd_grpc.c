/* SPDX-License-Identifier: MIT
 * The framing and the texts of gRPC, and what etcd's errors mean. */
#include "etcd/status.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>

/* ---- Messages ------------------------------------------------------------------------------- */

/* Read bytes in pieces of that size; the messages, separated by '|', and the last result. */
static enum lk__grpc_got read_all(const char *bytes, size_t len, size_t step, char out[200])
{
	struct lk__grpc_reader reader = {0};
	enum lk__grpc_got got = LK__GRPC_MORE;
	size_t count = 0;

	for (size_t at = 0; at < len && got == LK__GRPC_MORE; at += step) {
		const size_t piece = len - at < step ? len - at : step;
		unsigned char *exact = malloc(piece);
		const unsigned char *rest = exact;
		size_t left = piece;
		memcpy(exact, bytes + at, piece);
		while (left && (got = lk__grpc_read(&reader, &rest, &left)) == LK__GRPC_MESSAGE) {
			if (reader.message.len)
				memcpy(out + count, reader.message.data, reader.message.len);
			count += reader.message.len;
			out[count++] = '|';
			lk__buf_fini(&reader.message);
			got = LK__GRPC_MORE;
		}
		free(exact);
	}
	out[count] = '\0';
	lk__grpc_reader_fini(&reader);
	return got;
}

TEST(messages_are_framed_and_read_again)
{
	struct lk__buf buf = {0};
	char out[200];

	ck_assert(lk__grpc_frame(&buf, "one", 3) && lk__grpc_frame(&buf, "", 0) &&
	          lk__grpc_frame(&buf, "three", 5));
	ck_assert_uint_eq(buf.len, 23);
	ck_assert(!memcmp(buf.data, "\0\0\0\0\3one\0\0\0\0\0\0\0\0\0\5three", 23));
	for (size_t step = 1; step <= buf.len; step++) {
		ck_assert_int_eq(read_all(buf.data, buf.len, step, out), LK__GRPC_MORE);
		ck_assert_str_eq(out, "one||three|");
	}
	lk__buf_fini(&buf);
}

TEST(claimed_length_takes_no_memory)
{
	struct lk__grpc_reader reader = {0};
	const unsigned char claim[] = {0, 0, 0x40, 0, 0, 'x'};
	const unsigned char *at = claim;
	size_t len = sizeof(claim);

	ck_assert_int_eq(lk__grpc_read(&reader, &at, &len), LK__GRPC_MORE);
	ck_assert(reader.message.len == 1 && reader.message.cap < 1000);
	ck_assert(!lk__grpc_is_between(&reader));
	lk__grpc_reader_fini(&reader);
	ck_assert(lk__grpc_is_between(&reader));
}

TEST(unusable_prefixes_are_refused)
{
	char out[200];

	ck_assert_int_eq(read_all("\1\0\0\0\0", 5, 5, out), LK__GRPC_COMPRESSED);
	ck_assert_int_eq(read_all("\xff\0\0\0\0", 5, 1, out), LK__GRPC_COMPRESSED);
	ck_assert_int_eq(read_all("\0\0\x40\0\1", 5, 1, out), LK__GRPC_TOO_LARGE);
	ck_assert_int_eq(read_all("\0\xff\xff\xff\xff", 5, 2, out), LK__GRPC_TOO_LARGE);
	ck_assert_int_eq(read_all("\0\0\0\0\1x\1\0\0\0\0", 11, 3, out), LK__GRPC_COMPRESSED);
	ck_assert_str_eq(out, "x|");
}

/* ---- Status --------------------------------------------------------------------------------- */

TEST(status_is_a_number_of_grpc)
{
	ck_assert_int_eq(lk__grpc_status_parse("0", 1), 0);
	ck_assert_int_eq(lk__grpc_status_parse("16", 2), 16);
	ck_assert_int_eq(lk__grpc_status_parse("17", 2), LK__GRPC_UNKNOWN);
	ck_assert_int_eq(lk__grpc_status_parse("-1", 2), LK__GRPC_UNKNOWN);
	ck_assert_int_eq(lk__grpc_status_parse("", 0), LK__GRPC_UNKNOWN);
	ck_assert_int_eq(lk__grpc_status_parse("0x", 2), LK__GRPC_UNKNOWN);
	ck_assert_int_eq(lk__grpc_status_parse("99999999999999999999", 20), LK__GRPC_UNKNOWN);
	ck_assert_int_eq(lk__grpc_status_of_http(503), LK__GRPC_UNAVAILABLE);
	ck_assert_int_eq(lk__grpc_status_of_http(401), LK__GRPC_UNAUTHENTICATED);
	ck_assert_int_eq(lk__grpc_status_of_http(0), LK__GRPC_UNKNOWN);
}

TEST(text_of_a_status_is_decoded_and_printable)
{
	char out[LK__GRPC_TEXT], many[600];

	lk__grpc_text(out, "plain text", 10);
	ck_assert_str_eq(out, "plain text");
	lk__grpc_text(out, "a%20b%0A%e2%", 12);
	ck_assert_str_eq(out, "a b\\x0a\\xe2%");
	lk__grpc_text(out, "%4", 2);
	ck_assert_str_eq(out, "%4");
	lk__grpc_text(out, "%g0%0g", 6);
	ck_assert_str_eq(out, "%g0%0g");
	lk__grpc_text(out, "", 0);
	ck_assert_str_eq(out, "");
	for (size_t i = 0; i < sizeof(many); i++)
		many[i] = "%41"[i % 3];
	lk__grpc_text(out, many, sizeof(many));
	ck_assert_uint_eq(strlen(out), LK__GRPC_TEXT - 1);
	ck_assert_str_eq(out + LK__GRPC_TEXT - 6, "AA...");
}

static struct lk__etcd_verdict judge(enum lk__h2_fate fate, int status, const char *text)
{
	const struct lk__h2_event event = {
		.kind = LK__H2_ANSWER, .fate = fate, .status = status, .text = text};

	return lk__etcd_judge(&event);
}

TEST(errors_of_etcd_are_told_apart_by_their_text)
{
	static const struct {
		int status;
		const char *text;
		enum lk__etcd_meaning meaning;
		bool elsewhere;
	} cases[] = {
		{0, "", LK__ETCD_DONE, false},
		{16, "etcdserver: invalid auth token", LK__ETCD_LOGIN, false},
		{3, "etcdserver: revision of auth store is old", LK__ETCD_LOGIN, false},
		{3, "etcdserver: authentication failed, invalid user ID or password",
	         LK__ETCD_DENIED, false},
		{3, "etcdserver: user name is empty", LK__ETCD_DENIED, false},
		{7, "etcdserver: permission denied", LK__ETCD_DENIED, false},
		{14, "etcdserver: no leader", LK__ETCD_AMBIGUOUS, true},
		{14, "etcdserver: leader changed", LK__ETCD_AMBIGUOUS, false},
		{14, "etcdserver: request timed out", LK__ETCD_AMBIGUOUS, true},
		{14, "etcdserver: request timed out, possibly due to connection lost",
	         LK__ETCD_AMBIGUOUS, true},
		{14, "etcdserver: server stopped", LK__ETCD_AMBIGUOUS, true},
		{14, "etcdserver: not capable", LK__ETCD_AGAIN, true},
		{14, "etcdserver: rpc not supported for learner", LK__ETCD_AGAIN, true},
		{14, "of a proxy", LK__ETCD_AMBIGUOUS, true},
		{8, "etcdserver: too many requests", LK__ETCD_AMBIGUOUS, false},
		{8, "etcdserver: mvcc: database space exceeded", LK__ETCD_FULL, false},
		{8, "grpc: received message larger than max", LK__ETCD_AMBIGUOUS, false},
		{5, "etcdserver: requested lease not found", LK__ETCD_NO_LEASE, false},
		{11, "etcdserver: mvcc: required revision has been compacted", LK__ETCD_COMPACTED,
	         false},
		{11, "etcdserver: mvcc: required revision is a future revision", LK__ETCD_FUTURE,
	         false},
		{3, "etcdserver: duplicate key given in txn request", LK__ETCD_REFUSED, false},
		{9, "etcdserver: authentication is not enabled", LK__ETCD_REFUSED, false},
		{12, "unknown service", LK__ETCD_REFUSED, false},
		{15, "etcdserver: corrupt cluster", LK__ETCD_REFUSED, true},
		{1, "context canceled", LK__ETCD_AMBIGUOUS, false},
		{2, "not a primary lessor", LK__ETCD_AMBIGUOUS, false},
		{4, "context deadline exceeded", LK__ETCD_AMBIGUOUS, false},
		{13, "", LK__ETCD_AMBIGUOUS, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct lk__etcd_verdict verdict =
			judge(LK__H2_ANSWERED, cases[i].status, cases[i].text);
		ck_assert_msg(verdict.meaning == cases[i].meaning &&
		                      verdict.elsewhere == cases[i].elsewhere,
		              "%d %s: %d", cases[i].status, cases[i].text, verdict.meaning);
	}
}

TEST(fate_of_a_request_decides_before_its_status)
{
	ck_assert_int_eq(judge(LK__H2_NOT_RUN, 14, "etcdserver: request timed out").meaning,
	                 LK__ETCD_AGAIN);
	ck_assert_int_eq(judge(LK__H2_NOT_RUN, 4, "").meaning, LK__ETCD_AGAIN);
	/* The status is our own, or a proxy's. */
	ck_assert_int_eq(judge(LK__H2_LOST, 7, "").meaning, LK__ETCD_AMBIGUOUS);
	ck_assert_int_eq(judge(LK__H2_LOST, 5, "lease not found").meaning, LK__ETCD_AMBIGUOUS);
}

TEST(version_tells_whether_leases_may_end_early)
{
	static const struct {
		const char *version;
		bool is_old;
	} cases[] = {
		{"3.3.27", true},  {"3.4.23", true},      {"3.4.30", true},      {"3.4.31", false},
		{"3.4.37", false}, {"3.5.0", true},       {"3.5.12", true},      {"3.5.13", false},
		{"3.5.35", false}, {"3.6.0", false},      {"3.6.0-rc.3", false}, {"3.7.3", false},
		{"4.0.0", false},  {"2.3.8", true},       {"3.5", true},         {"3.6", false},
		{"", true},        {"not decided", true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		ck_assert_msg(lk__etcd_is_old(cases[i].version) == cases[i].is_old, "%s",
		              cases[i].version);
}
