/* SPDX-License-Identifier: MIT
 * The conversation with one sentinel, against a made-up peer: the exact bytes of each question, and
 * replies in pieces of one byte.  And the password of the store, which no sentinel may see. */
#include "redis/sentinel.h"

#include "base/os.h"

#include "peer.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAME "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$8\r\nlatchkey\r\n"
#define ASK                                                                                        \
	"*3\r\n$8\r\nSENTINEL\r\n$23\r\nGET-MASTER-ADDR-BY-NAME\r\n$1\r\ns\r\n"                    \
	"*2\r\n$9\r\nSUBSCRIBE\r\n$14\r\n+switch-master\r\n"
#define AGAIN "*2\r\n$11\r\nUNSUBSCRIBE\r\n$14\r\n+switch-master\r\n" ASK
#define ENDED "*3\r\n$11\r\nunsubscribe\r\n$14\r\n+switch-master\r\n:0\r\n"
#define SUBSCRIBED "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"
#define PLACE(host, len, port, port_len)                                                           \
	"*2\r\n$" #len "\r\n" host "\r\n$" #port_len "\r\n" port "\r\n"
#define CHANGE(len, text)                                                                          \
	"*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$" #len "\r\n" text "\r\n"

/* What the peer expects and answers, in turn; it ends the connection after the last one. */
struct exchange {
	const char *expected, *answer;
};

struct script {
	const struct exchange *exchanges;
	size_t count;
	atomic_bool kept; /* every byte was the expected one */
};

static bool expect(int fd, const char *expected)
{
	char got[2000];
	size_t len = 0, wanted = strlen(expected);

	while (len < wanted) {
		size_t part = peer_read(fd, got + len, sizeof(got) - len);
		if (!part)
			return false;
		len += part;
	}
	return len == wanted && !memcmp(got, expected, len);
}

static void follow(int fd, void *arg)
{
	struct script *script = arg;
	char byte;

	script->kept = true;
	for (size_t i = 0; i < script->count; i++) {
		const char *answer = script->exchanges[i].answer;
		if (!expect(fd, script->exchanges[i].expected)) {
			script->kept = false;
			return;
		}
		for (size_t at = 0; answer[at]; at++)
			peer_send(fd, answer + at, 1);
	}
	peer_read(fd, &byte, 1); /* until the client closes */
}

static struct peer peer;
static struct script script;
static struct lk__target target;
static struct lk__sentinel_conn *conn;
static struct lk__why why;
static struct lk__report report;

static lk_err open_conn(const struct exchange *exchanges, size_t count, const char *options)
{
	char url[200];
	lk_err err;

	script = (struct script){.exchanges = exchanges, .count = count};
	peer_start(&peer, follow, &script);
	snprintf(url, sizeof(url), "redis+sentinel://holder:sesame@127.0.0.1:%d/s/3%s", peer.port,
	         options);
	err = lk__target_parse(url, NULL, &target, &why);
	ck_assert_msg(!err, "%s", why.text);
	return lk__sentinel_open(&target, 0, lk__now_ns() + 5000 * LK__MS, -1, &conn, &why);
}

static void end(void)
{
	lk__sentinel_close(conn);
	peer_stop(&peer);
	lk__target_fini(&target);
}

static lk_err ask(void)
{
	return lk__sentinel_ask(conn, lk__now_ns() + 5000 * LK__MS, -1, &why);
}

static lk_err next(int64_t ms)
{
	return lk__sentinel_next(conn, lk__now_ns() + ms * LK__MS, -1, &report, &why);
}

#define START(exchanges_)                                                                          \
	ck_assert_msg(!open_conn(exchanges_, sizeof(exchanges_) / sizeof(*(exchanges_)), ""),      \
	              "%s", why.text);                                                             \
	ck_assert_int_eq(ask(), LK_OK)
#define EXPECT(kind_, host_, port_)                                                                \
	do {                                                                                       \
		lk_err err_ = next(5000);                                                          \
		ck_assert_msg(!err_, "%s", why.text);                                              \
		ck_assert_int_eq(report.kind, kind_);                                              \
		ck_assert_str_eq(report.place.host, host_);                                        \
		ck_assert_int_eq(report.place.port, port_);                                        \
	} while (0)
#define EXPECT_ERROR(err_, text_)                                                                  \
	do {                                                                                       \
		ck_assert_int_eq(next(5000), err_);                                                \
		ck_assert_int_eq(why.err, err_);                                                   \
		ck_assert_msg(strstr(why.text, text_) != NULL, "%s", why.text);                    \
	} while (0)

TEST(sentinel_is_asked_and_watched_in_one_write)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, PLACE("10.0.0.1", 8, "6379", 4)
	                      SUBSCRIBED CHANGE(29, "s 10.0.0.1 6379 10.0.0.2 6380")},
	};

	START(exchanges);
	EXPECT(LK__REPORT_NAMED, "10.0.0.1", 6379);
	EXPECT(LK__REPORT_CHANGED, "10.0.0.2", 6380);
	ck_assert_int_eq(next(50), LK_OK);
	ck_assert_int_eq(report.kind, LK__REPORT_NONE);
	ck_assert(script.kept);
	end();
}

TEST(question_is_repeated_on_the_same_connection)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, PLACE("a.b", 3, "1", 1) SUBSCRIBED},
		{AGAIN, ENDED PLACE("::1", 3, "65535", 5) SUBSCRIBED},
		{AGAIN, CHANGE(13, "s ::1 1 h_i 2") ENDED "*-1\r\n" SUBSCRIBED},
	};

	START(exchanges);
	EXPECT(LK__REPORT_NAMED, "a.b", 1);
	ck_assert_int_eq(ask(), LK_OK);
	EXPECT(LK__REPORT_NAMED, "::1", 65535);
	ck_assert_int_eq(ask(), LK_OK);
	EXPECT(LK__REPORT_CHANGED, "h_i", 2);
	ck_assert_int_eq(next(5000), LK_OK);
	ck_assert_int_eq(report.kind, LK__REPORT_UNAWARE);
	ck_assert(script.kept);
	end();
}

TEST(messages_about_other_services_are_ignored)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, PLACE("a", 1, "1", 1) SUBSCRIBED CHANGE(11, "t a 1 b 222") CHANGE(
			      11, "ss a 1 b 22") CHANGE(7, "s a 1 b") CHANGE(11, "s a 1 b 2 3")
	                      CHANGE(9, "s a 1 b x") CHANGE(9, "s a 1 b 0") CHANGE(0, "")
	                              CHANGE(9, "s a 1 / 2") CHANGE(9, "s a 1 c 7")},
	};

	START(exchanges);
	EXPECT(LK__REPORT_NAMED, "a", 1);
	EXPECT(LK__REPORT_CHANGED, "c", 7);
	end();
}

/* ---- Credentials -------------------------------------------------------------------------- */

/* The exact bytes of the log-in: neither the store's password nor its database. */
TEST(sentinel_gets_only_its_own_password)
{
	static const struct exchange exchanges[] = {
		{"*3\r\n$4\r\nAUTH\r\n$1\r\nw\r\n$3\r\nown\r\n" NAME, "+OK\r\n+OK\r\n"},
		{ASK, PLACE("a", 1, "1", 1) SUBSCRIBED},
	};
	char path[] = "/tmp/lk-sentinel-XXXXXX", options[200];
	int fd = mkstemp(path);

	ck_assert_int_eq(write(fd, "own\n", 4), 4);
	close(fd);
	snprintf(options, sizeof(options), "?sentinel_user=w&sentinel_password_file=%s", path);
	ck_assert_msg(!open_conn(exchanges, 2, options), "%s", why.text);
	ck_assert_int_eq(ask(), LK_OK);
	EXPECT(LK__REPORT_NAMED, "a", 1);
	ck_assert(script.kept);
	end();
	unlink(path);
}

TEST(sentinel_without_a_password_gets_none)
{
	static const struct exchange exchanges[] = {
		{NAME, "-NOAUTH Authentication required.\r\n"},
	};

	ck_assert_int_eq(open_conn(exchanges, 1, ""), LK_EAUTH);
	ck_assert_msg(strstr(why.text, "NOAUTH") && strstr(why.text, "sentinel_password_file=FILE"),
	              "%s", why.text);
	ck_assert(script.kept);
	ck_assert_ptr_null(conn);
	end();
}

/* ---- Errors ------------------------------------------------------------------------------- */

TEST(missing_right_is_named)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, "-NOPERM this user has no permissions to run the 'sentinel' command\r\n"},
	};

	START(exchanges);
	EXPECT_ERROR(LK_EAUTH, "SENTINEL: NOPERM");
	end();
}

TEST(missing_right_to_subscribe_is_named)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, PLACE("a", 1, "1", 1) "-NOPERM no channel\r\n"},
	};

	START(exchanges);
	EXPECT(LK__REPORT_NAMED, "a", 1);
	EXPECT_ERROR(LK_EAUTH, "SUBSCRIBE: NOPERM no channel");
	end();
}

TEST(single_server_is_no_sentinel)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, "-ERR unknown command 'SENTINEL', with args beginning with: \r\n"},
	};

	START(exchanges);
	EXPECT_ERROR(LK_EINVALID, "not a sentinel (for a single server write redis://127.0.0.1:");
	end();
}

TEST(malformed_replies_end_the_conversation)
{
	static const char *const answers[] = {
		":1\r\n",
		"+OK\r\n",
		"$1\r\na\r\n",
		"*0\r\n",
		"*1\r\n$1\r\na\r\n",
		PLACE("a", 1, "0", 1),
		PLACE("a", 1, "65536", 5),
		PLACE("a", 1, "x", 1),
		PLACE("", 0, "1", 1),
		PLACE("a b", 3, "1", 1),
		"*2\r\n$1\r\na\r\n:1\r\n",
		"*2\r\n$-1\r\n$1\r\n1\r\n",
		"*3\r\n:1\r\n:2\r\n:3\r\n",
		SUBSCRIBED "*-1\r\n*-1\r\n",
		PLACE("a", 1, "1", 1) SUBSCRIBED PLACE("b", 1, "1", 1),
		"*9999999\r\n",
		"what\r\n",
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		const struct exchange exchanges[] = {{NAME, "+OK\r\n"}, {ASK, answers[i]}};
		lk_err err = LK_OK;

		START(exchanges);
		for (int reports = 0; reports < 3 && !err; reports++)
			err = next(5000);
		ck_assert_msg(err == LK_ESERVER, "%s: %s", answers[i], lk_err_name(err));
		end();
	}
}

TEST(lost_connection_is_reported)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, PLACE("a", 1, "1", 1) SUBSCRIBED},
	};

	START(exchanges);
	EXPECT(LK__REPORT_NAMED, "a", 1);
	shutdown(peer.fd, SHUT_RDWR);
	EXPECT_ERROR(LK_ECONN, "127.0.0.1:");
	end();
}

TEST(wake_ends_the_wait_for_a_report)
{
	static const struct exchange exchanges[] = {
		{NAME, "+OK\r\n"},
		{ASK, ""},
	};
	struct lk__wake wake;

	START(exchanges);
	ck_assert(lk__wake_init(&wake));
	lk__wake_notify(&wake);
	ck_assert_int_eq(
		lk__sentinel_next(conn, lk__now_ns() + 60000 * LK__MS, wake.read_fd, &report, &why),
		LK_OK);
	ck_assert_int_eq(report.kind, LK__REPORT_NONE);
	lk__wake_fini(&wake);
	end();
}
