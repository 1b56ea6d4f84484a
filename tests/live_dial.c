/* SPDX-License-Identifier: MIT
 * Connecting to a server: look-up, connect, log-in, each with its own deadline and error. */
#include "redis/conn.h"

#include "base/os.h"

#include "peer.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Helpers ------------------------------------------------------------------------------ */

/* The result of one dial; the connection is open when err is LK_OK. */
struct outcome {
	lk_err err;
	struct lk__why why;
	struct lk__conn *conn;
	struct lk__address address;
	int64_t ms;
};

static struct outcome dial_until(const char *url, int64_t deadline_ms, int cancel_fd)
{
	struct outcome outcome = {.conn = NULL};
	struct lk__target target;
	int64_t start = now_ms();

	ck_assert_msg(!lk__target_parse(url, NULL, &target, &outcome.why), "%s", outcome.why.text);
	outcome.err = lk__conn_dial(&target, NULL, lk__now_ns() + deadline_ms * LK__MS, cancel_fd,
	                            &outcome.conn, &outcome.address, &outcome.why);
	outcome.ms = now_ms() - start;
	lk__target_fini(&target);
	if (outcome.err)
		ck_assert_ptr_null(outcome.conn);
	return outcome;
}

static struct outcome dial(const char *url)
{
	return dial_until(url, 5000, -1);
}

/* The dial fails with err, and the error text contains words. */
#define EXPECT_REFUSED(url_, err_, words_)                                                         \
	do {                                                                                       \
		struct outcome outcome_ = dial(url_);                                              \
		ck_assert_msg(outcome_.err == (err_), "%s: %s", lk_err_name(outcome_.err),         \
		              outcome_.why.text);                                                  \
		ck_assert_int_eq(outcome_.why.err, err_);                                          \
		ck_assert_msg(strstr(outcome_.why.text, words_) != NULL, "%s", outcome_.why.text); \
	} while (0)

static void close_ok(struct outcome outcome)
{
	ck_assert_msg(outcome.err == LK_OK, "%s: %s", lk_err_name(outcome.err), outcome.why.text);
	lk__conn_close(outcome.conn);
}

static const char *url_at(const struct test_server *server, const char *before, const char *behind)
{
	static char url[256];

	snprintf(url, sizeof(url), "redis://%s127.0.0.1:%d%s", before, server->port, behind);
	return url;
}

static const char *answer(struct lk__conn *conn, const char *first, const char *second)
{
	static char text[256];
	const char *argv[] = {first, second};
	struct lk__resp *resp;
	lk_err err = lk__conn_call(conn, lk__now_ns() + 2000 * LK__MS, -1, second ? 2 : 1, argv,
	                           NULL, &resp, NULL);

	ck_assert_int_eq(err, LK_OK);
	ck_assert_ptr_nonnull(resp->str);
	snprintf(text, sizeof(text), "%s", resp->str);
	lk__resp_free(resp);
	return text;
}

/* This getaddrinfo() replaces libc's for the library and knows a few names of its own. */
static atomic_int lookups;
static atomic_int lookups_ended;

static struct addrinfo *address_new(const char *text, int port, struct addrinfo *next)
{
	struct addrinfo *info = calloc(1, sizeof(*info) + sizeof(struct sockaddr_in));
	struct sockaddr_in *address = (struct sockaddr_in *)(void *)(info + 1);

	address->sin_family = AF_INET;
	address->sin_port = htons((uint16_t)port);
	address->sin_addr.s_addr = (in_addr_t)htonl(INADDR_LOOPBACK + (uint32_t)atoi(text));
	info->ai_family = AF_INET;
	info->ai_addr = (struct sockaddr *)address;
	info->ai_addrlen = sizeof(*address);
	info->ai_next = next;
	return info;
}

int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
	void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
	int port = atoi(service), status = 0;

	memcpy(&real, &symbol, sizeof(real));
	if (hints->ai_flags & AI_NUMERICHOST)
		return real(node, service, hints, list);
	lookups++;
	if (!strcmp(node, "slow.test"))
		nap_ms(700);
	*list = NULL;
	if (!strcmp(node, "two.test")) /* 127.0.0.2, then 127.0.0.1 */
		*list = address_new("1", port, address_new("0", port, NULL));
	else if (!strcmp(node, "again.test"))
		status = EAI_AGAIN;
	else if (!strcmp(node, "files.test"))
		errno = EMFILE, status = EAI_SYSTEM;
	else if (!strcmp(node, "memory.test"))
		status = EAI_MEMORY;
	else if (!strcmp(node, "one.test") || !strcmp(node, "slow.test"))
		*list = address_new("0", port, NULL);
	else
		status = EAI_NONAME;
	lookups_ended++;
	return status;
}

void freeaddrinfo(struct addrinfo *list)
{
	while (list) {
		struct addrinfo *next = list->ai_next;
		/* This program's entries, as glibc's, have their address in the same allocation. */
		free(list->ai_canonname);
		free(list);
		list = next;
	}
}

/* ---- Connecting --------------------------------------------------------------------------- */

TEST(dial_reaches_a_server_by_tcp_and_unix_socket)
{
	struct test_server server;
	struct outcome outcome;
	char text[200];

	server_start(&server, NULL);
	outcome = dial(server.url);
	ck_assert_msg(outcome.err == LK_OK, "%s", outcome.why.text);
	snprintf(text, sizeof(text), "127.0.0.1:%d", server.port);
	ck_assert_str_eq(outcome.conn->socket.text, text);
	ck_assert_str_eq(answer(outcome.conn, "PING", NULL), "PONG");
	ck_assert_int_eq(outcome.address.family, AF_INET);
	lk__conn_close(outcome.conn);
	outcome = dial(server.unix_url);
	ck_assert_msg(outcome.err == LK_OK, "%s", outcome.why.text);
	ck_assert_str_eq(outcome.conn->socket.text, server.socket_path);
	ck_assert_str_eq(answer(outcome.conn, "PING", NULL), "PONG");
	ck_assert_int_eq(outcome.address.family, AF_UNIX);
	lk__conn_close(outcome.conn);
	server_stop(&server);
}

TEST(dial_address_goes_to_the_place_found_before)
{
	struct test_server server;
	struct lk__target target;
	struct lk__conn *conn = NULL;
	struct outcome outcome;

	server_start(&server, NULL);
	outcome = dial(url_at(&server, "", ""));
	ck_assert_int_eq(lk__target_parse("redis://nowhere.test", NULL, &target, NULL), LK_OK);
	ck_assert_int_eq(lk__conn_dial_address(&target, NULL, &outcome.address,
	                                       lk__now_ns() + 2000 * LK__MS, -1, &conn, NULL),
	                 LK_OK);
	ck_assert_int_eq(lookups, 0);
	lk__conn_close(conn);
	close_ok(outcome);
	lk__target_fini(&target);
	server_stop(&server);
}

TEST(socket_has_its_options)
{
	static const struct {
		int level, option, least, most;
	} wanted[] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1, 1},
		{IPPROTO_TCP, TCP_NODELAY, 1, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, 7, 7},
		{IPPROTO_TCP, TCP_KEEPINTVL, 1, 7},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, 7000, 30000},
	};
	struct test_server server;
	struct outcome outcome;
	struct linger linger;
	socklen_t len = sizeof(linger);

	server_start(&server, NULL);
	outcome = dial(url_at(&server, "", "?keepalive=7000"));
	ck_assert_int_eq(outcome.err, LK_OK);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		int value = -1;
		socklen_t size = sizeof(value);
		ck_assert(!getsockopt(outcome.conn->socket.fd, wanted[i].level, wanted[i].option,
		                      &value, &size));
		ck_assert_msg(value >= wanted[i].least && value <= wanted[i].most,
		              "option %d is %d", wanted[i].option, value);
	}
	ck_assert(!getsockopt(outcome.conn->socket.fd, SOL_SOCKET, SO_LINGER, &linger, &len));
	ck_assert(linger.l_onoff && linger.l_linger == 0);
	lk__conn_close(outcome.conn);
	server_stop(&server);
}

TEST(refused_connection_is_named)
{
	char url[64], expected[96];
	int port = port_pick();
	struct outcome outcome;

	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
	snprintf(expected, sizeof(expected), "127.0.0.1:%d: connection refused", port);
	outcome = dial(url);
	ck_assert_int_eq(outcome.err, LK_ECONN);
	ck_assert_str_eq(outcome.why.text, expected);
	EXPECT_REFUSED("redis+unix:///nonexistent/socket", LK_ECONN,
	               "/nonexistent/socket: no such file or directory");
}

TEST(port_that_nobody_listens_on_never_answers_itself)
{
	struct peer peer;
	char url[64];

	/* A port of the range for outgoing connections.  Linux uses even ports for these, and odd
	 * ones for bind(). */
	peer_start(&peer, NULL, NULL);
	peer_stop(&peer);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", peer.port & ~1);
	for (int i = 0; i < 60000; i++) {
		struct outcome outcome = dial_until(url, 1000, -1);
		ck_assert_msg(outcome.err == LK_ECONN, "try %d: %s", i, outcome.why.text);
	}
}

TEST(n14_silent_server_ends_at_the_connect_deadline)
{
	struct test_server server;
	struct proxy proxy;
	struct outcome outcome;

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	proxy_black_hole(&proxy, true);
	outcome = dial_until(proxy.url, 300, -1);
	ck_assert_int_eq(outcome.err, LK_ECONN);
	ck_assert_msg(strstr(outcome.why.text, "no response in time") != NULL, "%s",
	              outcome.why.text);
	ck_assert_int_ge(outcome.ms, 299);
	ck_assert_int_le(outcome.ms, 1000);
	ck_assert_int_eq(proxy_count(&proxy).silent, 1);
	proxy_heal(&proxy);
	close_ok(dial(proxy.url));
	proxy_stop(&proxy);
	server_stop(&server);
}

TEST(listener_without_room_ends_at_the_connect_deadline)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0), filler[8];
	char dir[80], url[160];
	struct outcome outcome;

	folder_make(dir, sizeof(dir));
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", dir);
	snprintf(url, sizeof(url), "redis+unix://%s/s", dir);
	ck_assert(!bind(listener, (struct sockaddr *)&address, sizeof(address)));
	ck_assert(!listen(listener, 1));
	for (size_t i = 0; i < 8; i++) {
		filler[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)connect(filler[i], (struct sockaddr *)&address, sizeof(address));
	}
	outcome = dial_until(url, 300, -1);
	ck_assert_int_eq(outcome.err, LK_ECONN);
	ck_assert_msg(strstr(outcome.why.text, "connecting timed out") != NULL, "%s",
	              outcome.why.text);
	ck_assert_int_ge(outcome.ms, 295);
	ck_assert_int_le(outcome.ms, 1000);
	for (size_t i = 0; i < 8; i++)
		close(filler[i]);
	close(listener);
	folder_remove(dir);
}

TEST(dial_is_canceled_at_each_stage)
{
	struct peer silent;
	struct lk__wake wake;
	char url[64];
	struct outcome outcome;

	peer_start(&silent, NULL, NULL);
	ck_assert(lk__wake_init(&wake));
	lk__wake_notify(&wake);
	outcome = dial_until(silent.url, 5000, wake.read_fd);
	ck_assert_int_eq(outcome.err, LK_ECONN);
	ck_assert_msg(strstr(outcome.why.text, ": canceled") != NULL, "%s", outcome.why.text);
	ck_assert_int_le(outcome.ms, 300);
	snprintf(url, sizeof(url), "redis://slow.test:%d", silent.port);
	outcome = dial_until(url, 5000, wake.read_fd);
	ck_assert_int_eq(outcome.err, LK_ECONN);
	ck_assert_msg(strstr(outcome.why.text, ": canceled") != NULL, "%s", outcome.why.text);
	ck_assert_int_le(outcome.ms, 300);
	ck_assert(WITHIN(3000, lookups_ended == 1));
	lk__wake_fini(&wake);
	peer_stop(&silent);
}

TEST(c19_no_descriptor_left_is_the_systems_refusal)
{
	struct rlimit before, none = {0, 0};
	struct test_server server;
	struct outcome outcome, by_name;
	char url[64];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis://one.test:%d?grace=0", server.port);
	ck_assert(!getrlimit(RLIMIT_NOFILE, &before));
	none.rlim_max = before.rlim_max;
	ck_assert(!setrlimit(RLIMIT_NOFILE, &none));
	outcome = dial(server.url);
	by_name = dial(url);
	ck_assert(!setrlimit(RLIMIT_NOFILE, &before));
	ck_assert_int_eq(outcome.err, LK_ESYSTEM);
	ck_assert_msg(strstr(outcome.why.text, "too many open files") != NULL, "%s",
	              outcome.why.text);
	ck_assert_int_eq(by_name.err, LK_ESYSTEM);
	close_ok(dial(url));
	server_stop(&server);
}

TEST(dial_leaves_no_descriptor_behind)
{
	struct test_server server;
	int before;

	server_start(&server, NULL);
	close_ok(dial(server.url));
	before = proc_fd_count(0);
	for (int i = 0; i < 50; i++) {
		close_ok(dial(server.url));
		EXPECT_REFUSED(url_at(&server, ":wrong@", ""), LK_EAUTH, "");
		EXPECT_REFUSED("redis://nowhere.test", LK_ECONN, "");
	}
	ck_assert(WITHIN(1000, proc_fd_count(0) == before));
	server_stop(&server);
}

/* ---- Names -------------------------------------------------------------------------------- */

TEST(names_are_looked_up_and_their_failures_named)
{
	struct test_server server;
	char url[64];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis://one.test:%d?grace=0", server.port);
	close_ok(dial(url));
	EXPECT_REFUSED("redis://nowhere.test:7", LK_ECONN,
	               "nowhere.test:7: name or service not known");
	EXPECT_REFUSED("redis://again.test:7", LK_ECONN, "again.test:7: temporary failure");
	EXPECT_REFUSED("redis://files.test:7", LK_ESYSTEM, "files.test:7: no descriptor left");
	EXPECT_REFUSED("redis://memory.test:7", LK_ENOMEM, "memory.test:7: out of memory");
	ck_assert_int_eq(lookups, 5);
	server_stop(&server);
}

TEST(slow_look_up_is_left_behind_at_the_deadline)
{
	struct outcome outcome = dial_until("redis://slow.test:7", 200, -1);
	int threads;

	ck_assert_int_eq(outcome.err, LK_ECONN);
	ck_assert_str_eq(outcome.why.text, "slow.test:7: name look-up timed out");
	ck_assert_int_ge(outcome.ms, 199);
	ck_assert_int_le(outcome.ms, 500);
	threads = proc_thread_count(0);
	ck_assert(WITHIN(3000, lookups_ended == 1));
	ck_assert(WITHIN(3000, proc_thread_count(0) == threads - 1));
}

TEST(second_address_is_tried_when_the_first_refuses)
{
	struct test_server server; /* listens on 127.0.0.1 alone */
	struct outcome outcome;
	char url[64];

	server_start(&server, NULL);
	snprintf(url, sizeof(url), "redis://two.test:%d?grace=0", server.port);
	outcome = dial(url);
	ck_assert_msg(outcome.err == LK_OK, "%s", outcome.why.text);
	ck_assert_uint_eq(((struct sockaddr_in *)(void *)&outcome.address.addr)->sin_addr.s_addr,
	                  htonl(INADDR_LOOPBACK));
	lk__conn_close(outcome.conn);
	server_stop(&server);
}

TEST(second_address_is_tried_when_the_first_is_silent)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct test_server server;
	struct outcome outcome;
	char url[64];

	server_start(&server, NULL);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	address.sin_port = htons((uint16_t)server.port);
	ck_assert(!bind(listener, (struct sockaddr *)&address, sizeof(address)));
	ck_assert(!listen(listener, 8));
	snprintf(url, sizeof(url), "redis://two.test:%d?grace=0", server.port);
	outcome = dial_until(url, 600, -1);
	ck_assert_msg(outcome.err == LK_OK, "%s", outcome.why.text);
	ck_assert_int_ge(outcome.ms, 295);
	lk__conn_close(outcome.conn);
	close(listener);
	server_stop(&server);
}

/* ---- Log-in ------------------------------------------------------------------------------- */

TEST(n16_wrong_credentials_are_refused_and_right_ones_taken)
{
	static const char *const args[] = {"--requirepass", "secret", NULL};
	struct server_options options = {.args = args};
	struct test_server server;
	struct redis *redis;

	server_start(&server, &options);
	redis = redis_open(&server);
	redis_do(redis, "AUTH secret");
	redis_do(redis, "ACL SETUSER %s on >%s +@all ~* &*", "ann", "p@ss");
	redis_do(redis, "ACL SETUSER off off >x +@all");
	close_ok(dial(url_at(&server, ":secret@", "")));
	close_ok(dial(url_at(&server, "ann:p%40ss@", "")));
	EXPECT_REFUSED(url_at(&server, "", ""), LK_EAUTH, ": NOAUTH ");
	EXPECT_REFUSED(url_at(&server, "", "/3"), LK_EAUTH, ": NOAUTH ");
	EXPECT_REFUSED(url_at(&server, ":wrong@", ""), LK_EAUTH, ": WRONGPASS ");
	EXPECT_REFUSED(url_at(&server, "ann:secret@", ""), LK_EAUTH, ": WRONGPASS ");
	EXPECT_REFUSED(url_at(&server, "bob:secret@", ""), LK_EAUTH, ": WRONGPASS ");
	EXPECT_REFUSED(url_at(&server, "off:x@", ""), LK_EAUTH, ": WRONGPASS ");
	/* The password was rotated: the server now refuses the old one. */
	redis_do(redis, "ACL SETUSER ann resetpass >new");
	EXPECT_REFUSED(url_at(&server, "ann:p%40ss@", ""), LK_EAUTH, ": WRONGPASS ");
	close_ok(dial(url_at(&server, "ann:new@", "")));
	redis_close(redis);
	server_stop(&server);
}

TEST(password_where_none_is_wanted_is_refused)
{
	struct test_server server;

	server_start(&server, NULL);
	EXPECT_REFUSED(url_at(&server, ":secret@", ""), LK_EAUTH,
	               "without any password configured");
	server_stop(&server);
}

TEST(database_and_name_are_set)
{
	struct test_server server;
	struct outcome outcome;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	outcome = dial(url_at(&server, "", "/3?client_name=night-job"));
	ck_assert_msg(outcome.err == LK_OK, "%s", outcome.why.text);
	ck_assert_str_eq(answer(outcome.conn, "CLIENT", "GETNAME"), "night-job");
	ck_assert_ptr_nonnull(strstr(redis_text(redis, "CLIENT LIST"), "name=night-job"));
	redis_do(redis, "SELECT 3");
	redis_do(redis, "SET here yes");
	ck_assert_str_eq(answer(outcome.conn, "GET", "here"), "yes");
	lk__conn_close(outcome.conn);
	EXPECT_REFUSED(url_at(&server, "", "/99"), LK_ESERVER, "DB index is out of range");
	redis_close(redis);
	server_stop(&server);
}

TEST(refused_client_name_does_no_harm)
{
	struct test_server server;
	struct redis *redis;

	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, "ACL SETUSER ann on >x nocommands +ping +select");
	close_ok(dial(url_at(&server, "ann:x@", "/2")));
	redis_do(redis, "ACL SETUSER ann -select");
	EXPECT_REFUSED(url_at(&server, "ann:x@", "/2"), LK_EAUTH, "NOPERM");
	redis_close(redis);
	server_stop(&server);
}

TEST(s19_full_server_is_not_reached)
{
	static const char *const args[] = {"--maxclients", "1", NULL};
	struct server_options options = {.args = args};
	struct test_server server;
	struct redis *redis;

	server_start(&server, &options);
	redis = redis_open(&server);
	for (int i = 0; i < 20; i++) {
		EXPECT_REFUSED(server.url, LK_ECONN, ": max number of clients reached");
		EXPECT_REFUSED(server.unix_url, LK_ECONN, ": max number of clients reached");
	}
	ck_assert_int_eq(redis_info(redis, "rejected_connections"), 40);
	redis_close(redis);
	ck_assert(WITHIN(2000, ({
				 struct outcome outcome = dial(server.url);
				 lk__conn_close(outcome.conn);
				 outcome.err == LK_OK;
			 })));
	server_stop(&server);
}

/* ---- Peers that are no Redis, or that refuse this client ----------------------------------- */

static void say(int fd, void *words)
{
	char bytes[1024];

	peer_read(fd, bytes, sizeof(bytes));
	peer_send(fd, words, strlen(words));
}

TEST(peers_that_are_no_redis_are_told_apart)
{
	static const struct {
		char words[80];
		lk_err err;
		const char *text;
	} cases[] = {
		{"HTTP/1.1 400 Bad Request\r\n\r\n", LK_ESERVER, "invalid reply"},
		{":1\r\n", LK_ESERVER, "unexpected response: not a Redis server"},
		{"*2147483647\r\n", LK_ESERVER, "too many elements"},
		{"", LK_ECONN, "connection closed by the server"},
		{"+O", LK_ECONN, "connection closed by the server"},
		{"-DENIED Redis is running in protected mode\r\n", LK_EAUTH, ": DENIED Redis is"},
		{"-NOAUTH Authentication required.\r\n", LK_EAUTH, ": NOAUTH "},
		{"-ERR max number of clients reached\r\n", LK_ECONN, ": max number"},
		{"-NOAUTH \x1b[31m\x07 \\\r\n", LK_EAUTH, ": NOAUTH \\x1b[31m\\x07 \\x5c"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char words[sizeof(cases[i].words)];
		struct peer peer;
		memcpy(words, cases[i].words, sizeof(words));
		peer_start(&peer, say, words);
		EXPECT_REFUSED(peer.url, cases[i].err, cases[i].text);
		ck_assert_int_eq(peer.accepted, 1);
		peer_stop(&peer);
	}
}
