/* SPDX-License-Identifier: MIT
 * TLS to a real redis-server: what an error says, and what a broken connection leaves.
 * live_tls_contract has the promises. */
#include "harness/certificate.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/proxy.h"
#include "harness/redis.h"
#include "harness/test.h"
#include "harness/tls_store.h"

#include "base/os.h"
#include "redis/conn.h"
#include "net/secure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct tls_redis tls;

/* A URL of the server, or of a proxy before it. */
static const char *url_at(int port, const char *host, const char *options)
{
	static char url[700];

	snprintf(url, sizeof(url), "rediss://%s:%d?ca=%s/ca.pem%s&grace=0", host, port, tls.folder,
	         options);
	return url;
}

static void expect_error(const char *url, lk_err err, const char *part)
{
	lk_client *client = NULL;

	EXPECT(lk_client_open(url, NULL, &client), err);
	ck_assert_msg(strstr(lk_errmsg(), part) != NULL, "%s", lk_errmsg());
	ck_assert_ptr_null(client);
}

static void use(lk_client *client)
{
	lk_lock *lock = lock_named(client, "a");

	OK(lk_lock_acquire(lock, 5000, NULL));
	OK(lk_lock_release(lock));
	OK(lk_lock_close(lock));
}

static void use_at(const char *url)
{
	lk_client *client = client_at(url);

	use(client);
	OK(lk_client_close(client));
}

/* ---- Certificates ------------------------------------------------------------------------- */

TEST(l1_server_that_is_not_the_named_one_is_refused_at_once)
{
	static const struct certificate made[] = {
		{.name = "expired",
	         .issuer = "ca",
	         .sites = "DNS:localhost",
	         .to_days = -1,
	         .from_days = -9},
		{.name = "alone", .sites = "DNS:localhost"},
	};
	struct tls_redis_options options = {0};
	int64_t start_ms;

	tls_redis_prepare(&tls);
	for (size_t i = 0; i < 2; i++)
		certificate_make(tls.folder, &made[i]);
	tls_redis_start(&tls, NULL);
	use_at(url_at(tls.port, "localhost", ""));
	use_at(url_at(tls.port, "127.0.0.1", ""));
	start_ms = now_ms();
	expect_error(url_at(tls.port, "127.0.0.1", "&server_name=elsewhere"), LK_ESERVER,
	             "not for \"elsewhere\"");
	use_at(url_at(tls.port, "127.0.0.1", "&server_name=elsewhere&verify=none"));
	server_stop(&tls.server);
	for (size_t i = 0; i < 2; i++) {
		options.certificate = made[i].name;
		tls_redis_start(&tls, &options);
		expect_error(url_at(tls.port, "localhost", ""), LK_ESERVER,
		             i ? "unknown CA" : "has expired");
		use_at(url_at(tls.port, "localhost", "&verify=none"));
		server_stop(&tls.server);
	}
	ck_assert_int_le(now_ms() - start_ms, 4000);
}

TEST(l1_server_that_demands_a_client_certificate_says_so)
{
	const struct certificate me = {.name = "me", .issuer = "ca"};
	const struct tls_redis_options options = {.demands = true};
	lk_client_options with = {0};
	char cert[100], key[100];
	lk_client *client;
	lk_err err;

	tls_redis_prepare(&tls);
	certificate_make(tls.folder, &me);
	tls_redis_start(&tls, &options);
	for (int i = 0; i < 10; i++) {
		/* The reset may overtake the alert. */
		err = lk_client_open(tls.url, NULL, &client);
		ck_assert_msg(err == LK_EAUTH || err == LK_ECONN, "%s", lk_errmsg());
		ck_assert_msg(strstr(lk_errmsg(), "client certificate") &&
		                      strstr(lk_errmsg(), "cert=FILE"),
		              "%s", lk_errmsg());
	}
	snprintf(cert, sizeof(cert), "%s/me.pem", tls.folder);
	snprintf(key, sizeof(key), "%s/me.key", tls.folder);
	with.tls_cert = cert;
	with.tls_key = key;
	client = client_with(tls.url, &with);
	use(client);
	OK(lk_client_close(client));
}

/* A short-lived certificate is renewed on the disk: the next connection uses it. */
TEST(renewed_files_are_read_by_reconnects)
{
	const struct certificate ca = {.name = "ca"};
	const struct certificate server = {
		.name = "server", .issuer = "ca", .sites = "IP:127.0.0.1"};
	lk_client *client;

	tls_redis_start(&tls, NULL);
	client = client_at(tls.url);
	use(client);
	certificate_make(tls.folder, &ca);
	certificate_make(tls.folder, &server);
	server_restart(&tls.server);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock_named(client, "b"), 1000, NULL) == LK_OK));
	OK(lk_client_close(client));
}

static char lines[4000];

static void note(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines), "%d %s\n", (int)level, line);
}

static lk_finding seen;
static char seen_text[500];

static void find_tls(void *arg, const lk_finding *finding)
{
	(void)arg;
	if (strcmp(finding->topic, "tls") != 0)
		return;
	seen = *finding;
	snprintf(seen_text, sizeof(seen_text), "%s; %s", finding->text, finding->cure);
}

TEST(unverified_server_is_logged_and_unfit)
{
	const lk_client_options options = {.log = note};
	lk_client *client;
	lk_fitness worst;

	tls_redis_start(&tls, NULL);
	client = client_with(url_at(tls.port, "127.0.0.1", "&verify=none"), &options);
	ck_assert_ptr_nonnull(strstr(lines, "2 127.0.0.1:"));
	ck_assert_ptr_nonnull(strstr(lines, "not verified (verify=none)"));
	OK(lk_client_close(client));
	OK(lk_doctor(url_at(tls.port, "127.0.0.1", "&verify=none"), NULL, find_tls, NULL, &worst));
	ck_assert_int_eq(seen.fitness, LK_UNFIT);
	ck_assert_int_eq(worst, LK_UNFIT);
	ck_assert_ptr_nonnull(strstr(seen_text, "remove verify=none"));

	lines[0] = '\0';
	client = client_with(tls.url, &options);
	ck_assert_str_eq(lines, "");
	OK(lk_client_close(client));
	OK(lk_doctor(tls.url, NULL, find_tls, NULL, &worst));
	ck_assert_int_eq(seen.fitness, LK_FIT);
	ck_assert_ptr_nonnull(strstr(seen_text, "TLSv1.3"));
	ck_assert_ptr_nonnull(strstr(seen_text, "127.0.0.1 and valid for 30 more days"));
}

TEST(doctor_warns_before_a_certificate_expires)
{
	const struct certificate soon = {
		.name = "soon", .issuer = "ca", .sites = "IP:127.0.0.1", .to_days = 5};
	const struct tls_redis_options options = {.certificate = "soon"};
	lk_fitness worst;

	tls_redis_prepare(&tls);
	certificate_make(tls.folder, &soon);
	tls_redis_start(&tls, &options);
	OK(lk_doctor(tls.url, NULL, find_tls, NULL, &worst));
	ck_assert_int_eq(seen.fitness, LK_FIT_WARN);
	ck_assert_ptr_nonnull(strstr(seen_text, "5 more days; renew"));
	seen_text[0] = '\0';
	OK(lk_doctor(url_at(tls.port, "127.0.0.1", "&server_name=x"), NULL, find_tls, NULL,
	             &worst));
	ck_assert_int_eq(worst, LK_UNFIT);
	ck_assert_ptr_nonnull(strstr(seen_text, "cannot tell"));
}

/* ---- Plain and TLS ports ------------------------------------------------------------------ */

TEST(l4_plain_port_ends_with_the_connect_timeout_and_names_the_cure)
{
	const struct tls_redis_options options = {.plain_port = true};
	int64_t start_ms;

	tls_redis_start(&tls, &options);
	start_ms = now_ms();
	expect_error(url_at(tls.server.port, "127.0.0.1", "&connect_timeout=300"), LK_ECONN,
	             "if its port is plain, write redis for rediss");
	ck_assert_int_ge(now_ms() - start_ms, 290);
	ck_assert_int_le(now_ms() - start_ms, 1500);
}

TEST(l4_port_for_tls_names_the_cure_to_a_plain_client)
{
	char url[100];

	tls_redis_start(&tls, NULL);
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=0", tls.port);
	expect_error(url, LK_ECONN, "if its port is for TLS, write rediss://");
	snprintf(url, sizeof(url), "redis://:secret@127.0.0.1:%d?grace=0", tls.port);
	expect_error(url, LK_ECONN, "if its port is for TLS, write rediss://");
}

/* ---- The network -------------------------------------------------------------------------- */

TEST(l2_one_byte_at_a_time_is_enough)
{
	const struct proxy_fault fault = {.slice = true};
	struct proxy proxy;
	lk_client *client;

	tls_redis_start(&tls, NULL);
	proxy_start_at_port(&proxy, tls.port);
	proxy_set_all(&proxy, &fault);
	client = client_at(url_at(proxy.port, "127.0.0.1", ""));
	for (int i = 0; i < 5; i++)
		use(client);
	ck_assert_int_gt(proxy_count(&proxy).sliced[PROXY_COMMANDS][PROXY_TO_CLIENT], 2000);
	OK(lk_client_close(client));
	proxy_stop(&proxy);
}

/* Larger than a record and than what is read at once; the last bytes are decrypted before the
 * descriptor is polled again. */
TEST(l3_reply_of_many_records_needs_no_further_bytes)
{
	static const size_t sizes[] = {1, 8000, 8192, 16384, 16385, 100000, 1000000};
	struct lk__tls_shared shared = {0};
	struct lk__target target;
	struct lk__conn *conn;
	struct redis *redis;
	struct lk__why why;

	tls_redis_start(&tls, NULL);
	redis = redis_open(&tls.server);
	ck_assert(!lk__target_parse(tls.url, NULL, &target, &why));
	ck_assert_msg(!lk__conn_dial(&target, &shared, lk__now_ns() + 5000 * LK__MS, -1, &conn,
	                             NULL, &why),
	              "%s", why.text);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const char *get[] = {"GET", "a"};
		struct lk__resp *resp;
		redis_do(redis, "SET a %s", "");
		redis_do(redis, "SETRANGE a %lld x", (long long)sizes[i] - 1);
		for (int j = 0; j < 20; j++) {
			ck_assert_msg(!lk__conn_call(conn, lk__now_ns() + 5000 * LK__MS, -1, 2, get,
			                             NULL, &resp, &why),
			              "%s", why.text);
			ck_assert_uint_eq(resp->len, sizes[i]);
			lk__resp_free(resp);
		}
	}
	lk__conn_close(conn);
	lk__tls_unload(&shared);
	lk__target_fini(&target);
	redis_close(redis);
}

static bool count_name(void *arg, const char *name, size_t name_len)
{
	(void)name;
	*(size_t *)arg += name_len == 500;
	return true;
}

/* The same for a client's reader, which asks poll() before it reads. */
TEST(l3_large_reply_to_a_client_needs_no_further_bytes)
{
	lk_client *client;
	char name[501];
	int64_t start_ms;

	tls_redis_start(&tls, NULL);
	client = client_at(tls.url);
	for (int i = 0; i < 200; i++) {
		lk_latch *latch;
		snprintf(name, sizeof(name), "%0500d", i);
		OK(lk_latch_open(client, name, 0, NULL, &latch));
		OK(lk_latch_set(latch, 1, NULL));
		OK(lk_latch_close(latch));
	}
	start_ms = now_ms();
	for (int i = 0; i < 20; i++) {
		size_t count = 0;
		OK(lk_client_names(client, count_name, &count));
		ck_assert_uint_eq(count, 200);
	}
	ck_assert_int_le(now_ms() - start_ms, 5000);
	OK(lk_client_close(client));
}

/* More than the socket takes: the rest of a record is sent later, and no byte twice. */
TEST(request_that_fills_the_socket_is_sent_whole)
{
	static char big[3000000];
	struct lk__tls_shared shared = {0};
	const char *argv[] = {"SET", "a", big};
	const size_t lens[] = {3, 1, sizeof(big)};
	struct lk__target target;
	struct lk__conn *conn;
	struct lk__resp *resp;
	struct redis *redis;
	struct lk__why why;

	tls_redis_start(&tls, NULL);
	redis = redis_open(&tls.server);
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)(i * 31 >> 3);
	ck_assert(!lk__target_parse(tls.url, NULL, &target, &why));
	ck_assert(!lk__conn_dial(&target, &shared, lk__now_ns() + 5000 * LK__MS, -1, &conn, NULL,
	                         &why));
	ck_assert(!setsockopt(conn->socket.fd, SOL_SOCKET, SO_SNDBUF, &(int){4096}, sizeof(int)));
	server_pause(&tls.server);
	if (!fork()) { /* lets the socket fill first */
		nap_ms(300);
		server_resume(&tls.server);
		_exit(0);
	}
	ck_assert_msg(
		!lk__conn_call(conn, lk__now_ns() + 15000 * LK__MS, -1, 3, argv, lens, &resp, &why),
		"%s", why.text);
	ck_assert_str_eq(resp->str, "OK");
	lk__resp_free(resp);
	ck_assert_int_eq(redis_int(redis, "STRLEN a"), (long long)sizeof(big));
	ck_assert_str_eq(redis_text(redis, "EVAL %s 1 a %b",
	                            "return redis.call('GET', KEYS[1]) == ARGV[1] and 'same' or "
	                            "'other'",
	                            big, sizeof(big)),
	                 "same");
	lk__conn_close(conn);
	lk__tls_unload(&shared);
	lk__target_fini(&target);
	redis_close(redis);
}

/* The certificate is larger than all else that a resumed handshake has. */
TEST(l5_second_connection_and_reconnects_resume_the_session)
{
	static char sites[8000];
	const struct certificate large = {.name = "large", .issuer = "ca", .sites = sites};
	const struct tls_redis_options options = {.certificate = "large"};
	const int64_t certificate = 6000;
	struct proxy proxy;
	int64_t at_open, later;
	lk_client *client;
	lk_lock *lock;
	size_t len = 0;

	for (int i = 0; i < 200; i++)
		len += (size_t)snprintf(sites + len, sizeof(sites) - len,
		                        "DNS:a-long-name-%03d.example.com,", i);
	snprintf(sites + len, sizeof(sites) - len, "IP:127.0.0.1");
	tls_redis_prepare(&tls);
	certificate_make(tls.folder, &large);
	tls_redis_start(&tls, &options);
	proxy_start_at_port(&proxy, tls.port);
	client = client_at(url_at(proxy.port, "127.0.0.1", ""));
	lock = lock_named(client, "a");
	/* One of the two connections got the certificate. */
	at_open = proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_CLIENT];
	ck_assert_int_gt(at_open, certificate);
	ck_assert_int_lt(at_open, 2 * certificate);
	for (int i = 0; i < 3; i++) {
		int64_t connections = proxy_count(&proxy).connections;
		proxy_cut(&proxy, PROXY_COMMANDS, i & 1);
		ck_assert(WITHIN(5000, lk_lock_acquire(lock, 0, NULL) == LK_OK));
		OK(lk_lock_release(lock));
		ck_assert_int_ge(proxy_count(&proxy).connections, connections + 2);
	}
	later = proxy_count(&proxy).bytes[PROXY_COMMANDS][PROXY_TO_CLIENT] - at_open;
	ck_assert_msg(later < certificate, "%lld bytes", (long long)later);
	OK(lk_client_close(client));
	proxy_stop(&proxy);
}

TEST(l6_connection_that_ends_without_a_farewell_is_made_again)
{
	struct proxy proxy;
	lk_client *client;
	lk_lock *lock;
	int64_t cuts;

	tls_redis_start(&tls, NULL);
	proxy_start_at_port(&proxy, tls.port);
	client = client_at(url_at(proxy.port, "127.0.0.1", ""));
	lock = lock_leased(client, "a", 3000);
	OK(lk_lock_acquire(lock, 1000, NULL));
	for (int i = 0; i < 4; i++) {
		cuts = proxy_count(&proxy).cuts;
		proxy_cut(&proxy, PROXY_COMMANDS, i & 1);
		ck_assert_int_gt(proxy_count(&proxy).cuts, cuts);
		ck_assert(WITHIN(5000, lk_lock_extend(lock, 3000) == LK_OK));
	}
	ck_assert_int_eq(hold_of(lock).state, LK_STATE_HELD);
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	proxy_stop(&proxy);
}

TEST(close_cancels_a_handshake)
{
	struct proxy proxy;
	lk_client *client;
	lk_lock *lock;
	int64_t start_ms;

	tls_redis_start(&tls, NULL);
	proxy_start_at_port(&proxy, tls.port);
	proxy_black_hole(&proxy, true);
	client = client_at(url_at(proxy.port, "127.0.0.1", "&connect_timeout=8000&lazy=1"));
	lock = lock_named(client, "a");
	EXPECT(lk_lock_acquire(lock, 100, NULL), LK_ECONN);
	ck_assert(WITHIN(5000, proxy_count(&proxy).silent >= 1));
	start_ms = now_ms();
	OK(lk_client_close(client));
	ck_assert_int_le(now_ms() - start_ms, 2000);
	proxy_stop(&proxy);
}
