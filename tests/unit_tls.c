/* SPDX-License-Identifier: MIT
 * TLS without I/O: both ends in this process, and between them bytes that arrive one at a time, in
 * parts of any size, damaged, or never. */
#include "net/tls.h"

#include "harness/process.h"
#include "harness/test.h"
#include "harness/tls_link.h"

#include <pthread.h>
#include <stdlib.h>

static void fill(struct tls_link *link, char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		bytes[i] = (char)nrand48(link->random);
}

/* ---- Bytes -------------------------------------------------------------------------------- */

/* Exchange messages of many sizes in both directions. */
static void exchange(struct tls_link *link, int rounds)
{
	static char sent[TLS_BIG], plain[2 * TLS_BIG];

	for (int i = 0; i < rounds; i++) {
		size_t len = 1 + (size_t)nrand48(link->random) % (i % 4 ? 300 : 60000);
		fill(link, sent, len);
		tls_send_and_check(link, sent, len);
		fill(link, sent, len);
		ck_assert_uint_eq(tls_receive(link, sent, len, plain, 1 + len % 8192), len);
		ck_assert_int_eq(memcmp(sent, plain, len), 0);
	}
}

TEST(l2_bytes_pass_one_at_a_time)
{
	static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

	tls_start();
	for (int i = 0; i < 2; i++) {
		struct tls_link link =
			tls_link_new(tls_url("localhost", ""), "server", versions[i]);
		struct lk__tls_facts facts;
		link.step = 1;
		MEETS(&link);
		exchange(&link, 4);
		lk__tls_look(link.tls, &facts);
		ck_assert_str_eq(facts.version, i ? "TLSv1.3" : "TLSv1.2");
		ck_assert_int_eq(facts.days_left, 30);
		tls_link_free(&link);
	}
}

TEST(l2_records_may_be_split_anywhere)
{
	tls_start();
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct tls_link link = tls_link_new(tls_url("localhost", ""), "server", version);
		for (int i = 0; i < 10; i++) {
			MEETS(&link);
			exchange(&link, 20);
		}
		tls_link_free(&link);
	}
}

TEST(l3_decrypted_bytes_that_are_left_are_reported)
{
	char sent[20000], plain[20000];
	struct tls_link link;
	bool more = true;
	size_t all = 0;
	char bytes[30000];
	size_t len;

	tls_start();
	link = tls_link_new(tls_url("localhost", ""), "server", 0);
	link.step = sizeof(bytes);
	MEETS(&link);
	fill(&link, sent, sizeof(sent));
	ck_assert_int_eq(SSL_write(link.server.ssl, sent, sizeof(sent)), sizeof(sent));
	len = tls_from_server(&link, bytes, sizeof(bytes));
	while (more) {
		int64_t got =
			lk__tls_decrypt(link.tls, bytes, len, plain + all, 100, &more, &link.why);
		ck_assert_int_ge(got, 0);
		ck_assert_int_le(got, 100);
		all += (size_t)got;
		len = 0;
	}
	ck_assert_uint_eq(all, sizeof(sent));
	ck_assert_int_eq(memcmp(sent, plain, all), 0);
	tls_link_free(&link);
}

TEST_LIMIT(damaged_bytes_are_never_delivered, 60)
{
	char sent[1000], plain[2000], bytes[4096];

	tls_start();
	for (int i = 0; i < 100; i++) {
		struct tls_link link = tls_link_new(tls_url("localhost", ""), "server",
		                                    i % 2 ? TLS1_3_VERSION : TLS1_2_VERSION);
		size_t len;
		int64_t got;
		MEETS(&link);
		tls_receive(&link, "x", 1, plain, sizeof(plain)); /* and the tickets */
		fill(&link, sent, sizeof(sent));
		SSL_write(link.server.ssl, sent, sizeof(sent));
		link.step = sizeof(bytes);
		len = tls_from_server(&link, bytes, sizeof(bytes));
		bytes[(size_t)nrand48(link.random) % len] ^= (char)(1 << i % 8);
		got = tls_drain(&link, bytes, len, plain, sizeof(plain));
		/* A longer record is still incomplete. */
		ck_assert_msg(got <= 0, "%lld bytes", (long long)got);
		tls_link_free(&link);
	}
}

TEST(new_keys_do_not_disturb)
{
	struct tls_link link;
	char plain[100];

	tls_start();
	link = tls_link_new(tls_url("localhost", ""), "server", TLS1_3_VERSION);
	MEETS(&link);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(SSL_key_update(link.server.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
		ck_assert_uint_eq(tls_receive(&link, "abc", 3, plain, sizeof(plain)), 3);
		tls_send_and_check(&link, "def", 3);
	}
	tls_link_free(&link);
}

TEST(renegotiation_is_refused)
{
	struct lk__buf out = {0};
	char plain[100], bytes[200];
	struct tls_link link;
	size_t len;

	tls_start();
	link = tls_link_new(tls_url("localhost", ""), "server", TLS1_2_VERSION);
	MEETS(&link);
	tls_receive(&link, "abc", 3, plain, sizeof(plain));
	ck_assert_int_eq(SSL_renegotiate(link.server.ssl), 1);
	SSL_do_handshake(link.server.ssl); /* asks for it */
	link.step = sizeof(bytes);
	len = tls_from_server(&link, bytes, sizeof(bytes));
	ck_assert_uint_gt(len, 0);
	ck_assert_int_eq(tls_drain(&link, bytes, len, plain, sizeof(plain)), 0);
	/* The answer is an alert (21), and no handshake (22); then come the bytes (23). */
	ck_assert_int_eq(lk__tls_encrypt(link.tls, "def", 3, &out, &link.why), LK_OK);
	ck_assert_int_eq(out.data[0], 21);
	ck_assert_int_eq(out.data[5 + out.data[4]], 23);
	lk__buf_fini(&out);
	tls_link_free(&link);
}

TEST(l6_end_is_a_closed_connection)
{
	char plain[100], bytes[200];
	struct tls_link link;
	size_t len;

	tls_start();
	link = tls_link_new(tls_url("localhost", ""), "server", TLS1_2_VERSION);
	link.step = sizeof(bytes);
	MEETS(&link);
	while ((len = tls_from_server(&link, bytes, sizeof(bytes))))
		tls_drain(&link, bytes, len, plain, sizeof(plain));
	SSL_shutdown(link.server.ssl);
	len = tls_from_server(&link, bytes, sizeof(bytes));
	ck_assert_int_eq(tls_drain(&link, bytes, len, plain, sizeof(plain)), -1);
	ck_assert_int_eq(link.why.err, LK_ECONN);
	ck_assert_str_eq(link.why.text, "connection closed by the server");
	tls_link_free(&link);
}

/* ---- Other peers -------------------------------------------------------------------------- */

TEST(old_versions_are_refused)
{
	struct tls_link link;

	tls_start();
	link = tls_link_new(tls_url("localhost", ""), "server", TLS1_1_VERSION);
	SSL_CTX_set_cipher_list(link.server.settings, "ALL:@SECLEVEL=0");
	FAILS(&link, LK_ESERVER, "neither TLS 1.2 nor 1.3");
	tls_link_free(&link);
}

TEST(l4_plain_answer_is_no_tls)
{
	static const char *const answers[] = {"-ERR unknown command '\\x16\\x03\\x01'\r\n",
	                                      "HTTP/1.1 400 Bad Request\r\n\r\n",
	                                      "+PONG\r\n$-1\r\n*0\r\n"};

	tls_start();
	for (size_t i = 0; i < 3; i++) {
		struct tls_link link = tls_link_new(tls_url("localhost", ""), "server", 0);
		struct lk__buf out = {0};
		bool done;
		ck_assert_int_eq(lk__tls_load(&link.shared, &link.target, &link.why), LK_OK);
		link.tls = lk__tls_new(&link.shared, &link.target);
		ck_assert_int_eq(lk__tls_shake(link.tls, NULL, 0, &out, &done, &link.why), LK_OK);
		ck_assert(!done && out.len > 0);
		ck_assert_int_eq(lk__tls_shake(link.tls, answers[i], strlen(answers[i]), &out,
		                               &done, &link.why),
		                 LK_ESERVER);
		ck_assert(!done);
		ck_assert_msg(strstr(link.why.text, "does not speak TLS") &&
		                      strstr(link.why.text, "write redis for rediss"),
		              "%s", link.why.text);
		lk__buf_fini(&out);
		tls_link_free(&link);
	}
}

/* ---- Sessions ----------------------------------------------------------------------------- */

TEST(l5_session_is_resumed_by_later_connections)
{
	char plain[100];
	struct lk__tls_facts facts;

	tls_start();
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct tls_link link = tls_link_new(tls_url("localhost", ""), "server", version);
		for (int i = 0; i < 5; i++) {
			MEETS(&link);
			lk__tls_look(link.tls, &facts);
			ck_assert_int_eq(facts.is_resumed, i > 0);
			ck_assert_int_eq(SSL_session_reused(link.server.ssl), i > 0);
			tls_receive(&link, "+OK", 3, plain, sizeof(plain));
			lk__tls_remember(&link.shared, link.tls);
		}
		/* A server that was restarted does not know it: a full handshake. */
		SSL_free(link.server.ssl);
		SSL_CTX_free(link.server.settings);
		link.server = tls_server_new("server", version);
		MEETS(&link);
		lk__tls_look(link.tls, &facts);
		ck_assert(!facts.is_resumed);
		exchange(&link, 3);
		tls_link_free(&link);
	}
}

/* ---- Threads ------------------------------------------------------------------------------ */

#define THREAD_MS 1000

static void *encrypt_all(void *arg)
{
	struct tls_link *link = arg;
	struct lk__buf out = {0};
	bool failed = false;

	for (int64_t end_ms = now_ms() + THREAD_MS; now_ms() < end_ms && !failed;) {
		out.len = 0;
		for (int i = 0; i < 100 && !failed; i++)
			failed = lk__tls_encrypt(link->tls, "abc", 3, &out, NULL);
	}
	lk__buf_fini(&out);
	return failed ? link : NULL;
}

/* Without a lock, one thread sees what OpenSSL noted of the other one's call. */
TEST(one_thread_encrypts_while_another_decrypts)
{
	struct tls_link link;
	pthread_t thread;
	void *failed;
	char plain[100];
	bool more;

	tls_start();
	link = tls_link_new(tls_url("localhost", ""), "server", 0);
	MEETS(&link);
	pthread_create(&thread, NULL, encrypt_all, &link);
	for (int64_t end_ms = now_ms() + THREAD_MS; now_ms() < end_ms;)
		for (int i = 0; i < 100; i++) {
			int64_t got = lk__tls_decrypt(link.tls, NULL, 0, plain, sizeof(plain),
			                              &more, &link.why);
			ck_assert_msg(!got, "%lld: %s", (long long)got, link.why.text);
		}
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	tls_link_free(&link);
}
