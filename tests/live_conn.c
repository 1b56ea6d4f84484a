/* SPDX-License-Identifier: MIT
 * Commands and their replies over a connection: deadlines, cuts, stalls, and the error of a command
 * without a reply. */
#include "redis/conn.h"

#include "base/os.h"

#include "peer.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

/* ---- Helpers ------------------------------------------------------------------------------ */

static struct lk__conn *connect_to(const char *url)
{
	struct lk__target target;
	struct lk__conn *conn = NULL;
	struct lk__why why;
	lk_err err;

	ck_assert_int_eq(lk__target_parse(url, NULL, &target, NULL), LK_OK);
	err = lk__conn_dial(&target, NULL, lk__now_ns() + 5000 * LK__MS, -1, &conn, NULL, &why);
	ck_assert_msg(err == LK_OK, "%s", why.text);
	lk__target_fini(&target);
	return conn;
}

/* Send one command of up to four words and wait ms for the reply; *text is "" without a reply. */
static lk_err call(struct lk__conn *conn, int64_t ms, const char *words, char text[256],
                   struct lk__why *why)
{
	const char *argv[4];
	size_t lens[4];
	struct lk__resp *resp = NULL;
	int argc = 0;
	lk_err err;

	for (; argc < 4 && *words; argc++) {
		argv[argc] = words;
		lens[argc] = strcspn(words, " ");
		words += lens[argc];
		words += *words == ' ';
	}
	err = lk__conn_call(conn, lk__now_ns() + ms * LK__MS, -1, argc, argv, lens, &resp, why);
	text[0] = 0;
	ck_assert((err == LK_OK) == (resp != NULL));
	if (!err && resp->type == LK__RESP_INTEGER)
		snprintf(text, 256, "%lld", (long long)resp->integer);
	else if (!err && resp->str)
		snprintf(text, 256, "%s", resp->str);
	lk__resp_free(resp);
	return err;
}

#define EXPECT_ANSWER(conn_, words_, answer_)                                                      \
	do {                                                                                       \
		char text_[256];                                                                   \
		struct lk__why why_ = {.text = ""};                                                \
		lk_err err_ = call(conn_, 5000, words_, text_, &why_);                             \
		ck_assert_msg(!err_, "%s: %s: %s", words_, lk_err_name(err_), why_.text);          \
		ck_assert_str_eq(text_, answer_);                                                  \
	} while (0)

#define EXPECT_FAILURE(conn_, ms_, words_, code_, part_)                                           \
	do {                                                                                       \
		char text_[256];                                                                   \
		struct lk__why why_ = {.text = ""};                                                \
		lk_err err_ = call(conn_, ms_, words_, text_, &why_);                              \
		ck_assert_msg(err_ == (code_), "%s: %s", lk_err_name(err_), why_.text);            \
		ck_assert_int_eq(why_.err, code_);                                                 \
		ck_assert_msg(strstr(why_.text, part_) != NULL, "%s", why_.text);                  \
	} while (0)

/* Greet like a Redis: one +OK for the log-in. */
static void greet(int fd)
{
	char bytes[1024];

	peer_read(fd, bytes, sizeof(bytes));
	peer_send(fd, "+OK\r\n", 5);
}

/* ---- Calls -------------------------------------------------------------------------------- */

TEST(call_takes_whatever_reply_there_is)
{
	struct test_server server;
	struct lk__conn *conn;

	server_start(&server, NULL);
	conn = connect_to(server.url);
	EXPECT_ANSWER(conn, "SET a 1", "OK");
	EXPECT_ANSWER(conn, "INCR a", "2");
	EXPECT_ANSWER(conn, "GET a", "2");
	EXPECT_ANSWER(conn, "GET b", "");
	EXPECT_ANSWER(conn, "LPUSH a x",
	              "WRONGTYPE Operation against a key holding the wrong kind of value");
	EXPECT_ANSWER(conn, "PING", "PONG");
	lk__conn_close(conn);
	server_stop(&server);
}

TEST(pipeline_gives_replies_in_their_order)
{
	struct test_server server;
	struct lk__conn *conn;
	struct lk__buf buf = {0};
	struct lk__resp *resps[1000];
	struct lk__why why;

	server_start(&server, NULL);
	conn = connect_to(server.unix_url);
	for (int i = 0; i < 1000; i++) {
		char text[2000];
		const char *argv[] = {"ECHO", text};
		memset(text, 'x', sizeof(text));
		snprintf(text + sizeof(text) - 10, 10, "%u", (unsigned)i % 1000u);
		ck_assert(lk__resp_command(&buf, 2, argv, NULL));
	}
	ck_assert_int_eq(
		lk__conn_pipeline(conn, lk__now_ns() + 5000 * LK__MS, -1, &buf, 1000, resps, &why),
		LK_OK);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(atoi(resps[i]->str + 1990), i);
		lk__resp_free(resps[i]);
	}
	lk__buf_fini(&buf);
	lk__conn_close(conn);
	server_stop(&server);
}

TEST(unanswered_call_may_have_happened_and_its_answer_meets_no_other_question)
{
	struct test_server server;
	struct lk__conn *conn;
	struct redis *redis;
	int64_t start;

	server_start(&server, NULL);
	redis = redis_open(&server);
	conn = connect_to(server.url);
	server_pause(&server);
	start = now_ms();
	EXPECT_FAILURE(conn, 200, "INCR a", LK_EUNKNOWN, ": no response in time");
	ck_assert_int_ge(now_ms() - start, 199);
	ck_assert_int_le(now_ms() - start, 1000);
	server_resume(&server);
	/* It took effect. */
	ck_assert(WITHIN(2000, redis_int(redis, "GET a") == 1));
	EXPECT_FAILURE(conn, 200, "PING", LK_ECONN, ": ");
	lk__conn_close(conn);
	redis_close(redis);
	server_stop(&server);
}

TEST(call_is_canceled)
{
	struct test_server server;
	struct lk__conn *conn;
	struct lk__wake wake;
	struct lk__resp *resp;
	struct lk__why why;
	const char *argv[] = {"PING"};

	server_start(&server, NULL);
	conn = connect_to(server.url);
	ck_assert(lk__wake_init(&wake));
	server_pause(&server);
	lk__wake_notify(&wake);
	ck_assert_int_eq(lk__conn_call(conn, -1, wake.read_fd, 1, argv, NULL, &resp, &why),
	                 LK_EUNKNOWN);
	ck_assert_msg(strstr(why.text, ": canceled") != NULL, "%s", why.text);
	server_resume(&server);
	lk__wake_fini(&wake);
	lk__conn_close(conn);
	server_stop(&server);
}

TEST(server_that_ended_is_noticed_without_sigpipe)
{
	struct test_server server;
	struct lk__conn *conn;
	char text[256];
	struct lk__why why;

	ck_assert(signal(SIGPIPE, SIG_DFL) != SIG_ERR);
	server_start(&server, NULL);
	for (int unixy = 0; unixy < 2; unixy++) {
		conn = connect_to(unixy ? server.unix_url : server.url);
		server_kill(&server);
		for (int i = 0; i < 3; i++) {
			lk_err err = call(conn, 1000, "PING", text, &why);
			ck_assert_msg(err == LK_ECONN || err == LK_EUNKNOWN, "%s", why.text);
		}
		lk__conn_close(conn);
		server_restart(&server);
	}
	server_stop(&server);
}

/* ---- Faults of the network ---------------------------------------------------------------- */

TEST(n4_reply_cut_at_every_byte_is_unknown)
{
	static const char reply[] = "$5\r\nhello\r\n";
	struct test_server server;
	struct proxy proxy;
	struct redis *redis;
	int64_t cuts = 0;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
	redis_do(redis, "SET a hello");
	for (size_t at = 0; at <= sizeof(reply) - 1; at++) {
		struct lk__conn *conn = connect_to(proxy.url);
		struct proxy_fault fault = {.cut_after = at ? (int64_t)at : -1,
		                            .cut_gently = at % 2};
		proxy_set(&proxy, PROXY_COMMANDS, PROXY_TO_CLIENT, &fault);
		if (at < sizeof(reply) - 1) {
			EXPECT_FAILURE(conn, 2000, "GET a", LK_EUNKNOWN, ": connection ");
			cuts++;
		} else {
			EXPECT_ANSWER(conn, "GET a", "hello");
			proxy_heal(&proxy);
		}
		ck_assert_int_eq(proxy_count(&proxy).cuts, cuts);
		lk__conn_close(conn);
	}
	redis_close(redis);
	proxy_stop(&proxy);
	server_stop(&server);
}

TEST(n8_replies_in_single_bytes_and_late_are_read)
{
	struct test_server server;
	struct proxy proxy;
	struct lk__conn *conn;
	struct proxy_fault fault = {.slice = true, .jitter_ms = 30};

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	conn = connect_to(proxy.url);
	proxy_set_all(&proxy, &fault);
	for (int i = 1; i < 20; i++) {
		char answer[16];
		snprintf(answer, sizeof(answer), "%d", i);
		EXPECT_ANSWER(conn, "INCR a", answer);
	}
	ck_assert_int_gt(proxy_count(&proxy).sliced[PROXY_COMMANDS][PROXY_TO_CLIENT], 40);
	lk__conn_close(conn);
	proxy_stop(&proxy);
	server_stop(&server);
}

static void drip(int fd, void *arg)
{
	greet(fd);
	for (int i = 0; i < 3000 && !atomic_load((atomic_int *)arg); i++) {
		peer_send(fd, i ? "x" : "+", 1);
		nap_ms(1);
	}
}

TEST(peer_that_drips_bytes_does_not_move_the_deadline)
{
	atomic_int done = 0;
	struct lk__conn *conn;
	struct peer peer;
	int64_t start;

	peer_start(&peer, drip, &done);
	conn = connect_to(peer.url);
	start = now_ms();
	EXPECT_FAILURE(conn, 200, "PING", LK_EUNKNOWN, ": no response in time");
	ck_assert_int_le(now_ms() - start, 1000);
	done = 1;
	lk__conn_close(conn);
	peer_stop(&peer);
}

static void flood(int fd, void *arg)
{
	static char block[1 << 16];

	greet(fd);
	memset(block, 'x', sizeof(block));
	peer_send(fd, arg, strlen(arg));
	for (int i = 0; i < 1000; i++)
		peer_send(fd, block, sizeof(block));
}

TEST(v8_endless_reply_ends_the_connection_with_bounded_memory)
{
	static char header[] = "$2147483647\r\n";
	struct lk__conn *conn;
	struct peer peer;
	int64_t before_kb;

	peer_start(&peer, flood, header);
	conn = connect_to(peer.url);
	before_kb = proc_size_kb(0);
	EXPECT_FAILURE(conn, 5000, "PING", LK_ESERVER, "too large");
	ck_assert_int_le(proc_size_kb(0) - before_kb, 64 * 1024);
	EXPECT_FAILURE(conn, 1000, "PING", LK_ECONN, ": ");
	lk__conn_close(conn);
	peer_stop(&peer);
}

/* ---- Signals, threads --------------------------------------------------------------------- */

static atomic_long alarms;

static void on_alarm(int number)
{
	(void)number;
	alarms++;
}

TEST(c17_storm_of_signals_neither_fails_nor_shortens_a_call)
{
	struct itimerval storm = {{0, 1000}, {0, 1000}}, calm = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
	struct test_server server;
	struct lk__conn *conn;
	int64_t start;

	server_start(&server, NULL);
	ck_assert(!sigaction(SIGALRM, &action, NULL));
	ck_assert(!setitimer(ITIMER_REAL, &storm, NULL));
	conn = connect_to(server.url);
	for (int i = 1; i <= 2000; i++) {
		char answer[16];
		snprintf(answer, sizeof(answer), "%d", i);
		EXPECT_ANSWER(conn, "INCR a", answer);
	}
	kill(server.pid, SIGSTOP);
	start = now_ms();
	EXPECT_FAILURE(conn, 500, "INCR a", LK_EUNKNOWN, ": no response in time");
	ck_assert_int_ge(now_ms() - start, 499);
	ck_assert_int_le(now_ms() - start, 1500);
	ck_assert(!setitimer(ITIMER_REAL, &calm, NULL));
	ck_assert_int_ge(alarms, 200);
	lk__conn_close(conn);
	server_stop(&server);
}

struct waiting_call {
	struct lk__conn *conn;
	atomic_int started;
	lk_err err;
};

static void *wait_in_call(void *arg)
{
	struct waiting_call *waiting = arg;
	const char *argv[] = {"PING"};
	struct lk__resp *resp;

	waiting->started = 1;
	waiting->err = lk__conn_call(waiting->conn, -1, -1, 1, argv, NULL, &resp, NULL);
	return NULL;
}

TEST(shutdown_ends_a_call_in_another_thread)
{
	struct test_server server;

	server_start(&server, NULL);
	for (int unixy = 0; unixy < 2; unixy++) {
		struct waiting_call waiting = {.err = LK_OK};
		pthread_t thread;
		waiting.conn = connect_to(unixy ? server.unix_url : server.url);
		server_pause(&server);
		ck_assert(!pthread_create(&thread, NULL, wait_in_call, &waiting));
		ck_assert(WITHIN(2000, waiting.started));
		nap_ms(20); /* most often the call waits in poll() by now; it must end in any case
		             */
		lk__socket_shutdown(&waiting.conn->socket);
		pthread_join(thread, NULL);
		ck_assert_msg(waiting.err == LK_EUNKNOWN || waiting.err == LK_ECONN, "%s",
		              lk_err_name(waiting.err));
		lk__conn_close(waiting.conn);
		server_resume(&server);
	}
	server_stop(&server);
}

static void swallow_later(int fd, void *arg)
{
	static char block[1 << 16];
	atomic_long *got = arg;
	size_t len;

	greet(fd);
	while (!atomic_load(got))
		nap_ms(1);
	while ((len = peer_read(fd, block, sizeof(block))))
		*got += (long)len;
	*got = -*got;
}

TEST(shutdown_throws_away_what_was_not_delivered)
{
	atomic_long got = 0;
	static char block[1 << 16];
	struct lk__conn *conn;
	struct peer peer;
	int64_t taken, total = 0;

	peer_start(&peer, swallow_later, &got);
	conn = connect_to(peer.url);
	while ((taken = lk__socket_write(&conn->socket, block, sizeof(block), NULL)) > 0)
		total += taken;
	ck_assert_int_eq(taken, 0);
	lk__socket_shutdown(&conn->socket);
	ck_assert_int_eq(lk__socket_write(&conn->socket, block, 1, NULL), -1);
	ck_assert_int_eq(lk__conn_read(conn, false, NULL), -1);
	got = 1;
	ck_assert(WITHIN(5000, got < 0));
	ck_assert_int_lt(-got, total);
	lk__conn_close(conn);
	peer_stop(&peer);
}

TEST(reads_and_writes_do_not_block)
{
	struct test_server server;
	struct lk__conn *conn;
	struct lk__resp *resp = NULL;
	struct lk__why why;

	server_start(&server, NULL);
	conn = connect_to(server.url);
	ck_assert_int_eq(lk__conn_read(conn, false, &why), 0);
	ck_assert_int_eq(lk__socket_write(&conn->socket, "PING\r\n", 6, &why), 6);
	ck_assert(WITHIN(2000, lk__conn_read(conn, false, &why) > 0));
	ck_assert_int_eq(lk__resp_next(conn->reader, &resp, &why), LK_OK);
	ck_assert_str_eq(resp->str, "PONG");
	lk__resp_free(resp);
	server_kill(&server);
	ck_assert(WITHIN(2000, lk__conn_read(conn, false, &why) == -1));
	ck_assert_msg(strstr(why.text, ": connection ") != NULL, "%s", why.text);
	lk__conn_close(conn);
	server_stop(&server);
}

/* ---- The meaning of errors ----------------------------------------------------------------- */

TEST(errors_of_the_server_are_sorted)
{
	static const struct {
		char text[130];
		lk_err err;
	} cases[] = {
		{"NOAUTH Authentication required.", LK_EAUTH},
		{"WRONGPASS invalid username-password pair or user is disabled.", LK_EAUTH},
		{"NOPERM this user has no permissions to run the 'get' command", LK_EAUTH},
		{"ERR The user executing the script can't run this command or subcommand script: "
	         "12, "
	         "on @user_script:1.",
	         LK_EAUTH},
		{"ERR ACL failure in script: User ann has no permissions to run the 'get' command",
	         LK_EAUTH},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", LK_EFOREIGN},
		{"ERR Error running script (call to f_01): @user_script:3: WRONGTYPE Operation "
	         "against",
	         LK_EFOREIGN},
		{"ERR Error running script (call to f_01): @user_script:3: -READONLY You can't "
	         "write",
	         LK_EAGAIN},
		{"@user_script: 3: -NOREPLICAS Not enough good replicas to write.", LK_EAGAIN},
		{"TORN ERR The user executing the script can't run this command or subcommand",
	         LK_EAUTH},
		{"LOADING Redis is loading the dataset in memory", LK_EAGAIN},
		{"BUSY Redis is busy running a script.", LK_EAGAIN},
		{"READONLY You can't write against a read only replica.", LK_EAGAIN},
		{"MASTERDOWN Link with MASTER is down", LK_EAGAIN},
		{"CLUSTERDOWN The cluster is down", LK_EAGAIN},
		{"TRYAGAIN Multiple keys request during rehashing of slot", LK_EAGAIN},
		{"MOVED 3999 127.0.0.1:6381", LK_EAGAIN},
		{"ASK 3999 127.0.0.1:6381", LK_EAGAIN},
		{"ERR Script attempted to access a non local key in a cluster node", LK_EAGAIN},
		{"TORN ERR Script attempted to access a non local key in a cluster node",
	         LK_ESERVER},
		{"NOREPLICAS Not enough good replicas to write.", LK_EAGAIN},
		{"BUSYKEY Target key name already exists.", LK_ESERVER},
		{"OOM command not allowed when used memory > 'maxmemory'.", LK_ESERVER},
		{"ERR READONLY is only a word here", LK_ESERVER},
		{"LOADING", LK_EAGAIN},
		{"", LK_ESERVER},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[sizeof(cases[i].text)];
		struct lk__resp resp = {.type = LK__RESP_ERROR, .str = text};
		memcpy(text, cases[i].text, sizeof(text));
		resp.len = strlen(text);
		ck_assert_msg(lk__resp_error(&resp) == cases[i].err, "%s", text);
	}
}
