/* SPDX-License-Identifier: MIT
 * Certificates in TLS: which server is trusted, what a client shows, and that an error names the
 * cure. */
#include "net/tls.h"

#include "harness/certificate.h"
#include "harness/process.h"
#include "harness/test.h"
#include "harness/tls_link.h"

#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- The server's identity ---------------------------------------------------------------- */

static void expect_meeting(const char *host, const char *options, const char *server)
{
	struct tls_link link = tls_link_new(tls_url(host, options), server, 0);

	MEETS(&link);
	tls_link_free(&link);
}

static void expect_refusal(const char *host, const char *options, const char *server,
                           const char *part)
{
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct tls_link link = tls_link_new(tls_url(host, options), server, version);
		char unsafe[500];
		FAILS(&link, LK_ESERVER, part);
		tls_link_free(&link);
		/* Only the word makes it pass. */
		snprintf(unsafe, sizeof(unsafe), "%s&verify=none", options);
		expect_meeting(host, unsafe, server);
	}
}

TEST_LIMIT(l1_wrong_name_is_refused, 60)
{
	const struct certificate others = {
		.name = "others",
		.issuer = "ca",
		.sites = "DNS:*.example.com,DNS:exact.example.org,IP:192.0.2.1,IP:2001:db8::1"};

	tls_start();
	certificate_make(tls_folder, &others);
	expect_meeting("localhost", "", "server");
	expect_meeting("LOCALHOST", "", "server");
	expect_meeting("localhost.", "", "server");
	expect_meeting("127.0.0.1", "", "server");
	expect_meeting("a.example.com", "", "others");
	expect_meeting("exact.example.org", "", "others");
	expect_meeting("192.0.2.1", "", "others");
	expect_meeting("[2001:db8::1]", "", "others");
	expect_meeting("[2001:db8:0::1%25eth0]", "", "others");
	expect_meeting("anything", "&server_name=a.example.com", "others");
	expect_meeting("127.0.0.1", "&server_name=localhost", "server");
	expect_meeting("anything", "&server_name=2001:db8::1", "others");
	expect_refusal("localhost", "", "others", "not for \"localhost\"");
	expect_refusal("localhost", "", "others", "server_name=NAME");
	expect_refusal("127.0.0.1", "", "others", "not for \"127.0.0.1\"");
	expect_refusal("127.0.0.2", "", "server", "not for \"127.0.0.2\"");
	expect_refusal("[::1]", "", "server", "not for \"::1\"");
	expect_refusal("a.b.example.com", "", "others", "not for");
	expect_refusal("example.com", "", "others", "not for");
	expect_refusal("localhost", "&server_name=other", "server", "not for \"other\"");
	/* The subject of a certificate is no name. */
	expect_refusal("others", "", "others", "not for");
}

TEST(l1_unknown_ca_is_refused)
{
	const struct certificate ca = {.name = "ca2"};
	const struct certificate server = {.name = "server2", .issuer = "ca2", .sites = "DNS:a"};
	const struct certificate alone = {.name = "alone", .sites = "DNS:a"};
	const struct certificate no_ca = {.name = "no_ca", .issuer = "server", .sites = "DNS:a"};

	tls_start();
	certificate_make(tls_folder, &ca);
	certificate_make(tls_folder, &server);
	certificate_make(tls_folder, &alone);
	certificate_make(tls_folder, &no_ca);
	expect_refusal("a", "", "server2", "unknown CA");
	expect_refusal("a", "", "server2", "ca=FILE");
	expect_refusal("a", "", "alone", "unknown CA");
	expect_refusal("a", "", "no_ca", "unknown CA");
}

TEST(l1_expired_certificate_is_refused)
{
	const struct certificate expired = {.name = "expired",
	                                    .issuer = "ca",
	                                    .sites = "DNS:a",
	                                    .from_days = -9,
	                                    .to_days = -1};
	const struct certificate early = {
		.name = "early", .issuer = "ca", .sites = "DNS:a", .from_days = 1};
	struct tls_link link;
	struct lk__tls_facts facts;

	tls_start();
	certificate_make(tls_folder, &expired);
	certificate_make(tls_folder, &early);
	expect_refusal("a", "", "expired", "has expired");
	expect_refusal("a", "", "expired", "renew it");
	expect_refusal("a", "", "early", "not valid yet");
	link = tls_link_new(tls_url("a", "&verify=none"), "expired", 0);
	MEETS(&link);
	lk__tls_look(link.tls, &facts);
	ck_assert_int_eq(facts.days_left, -1);
	tls_link_free(&link);
}

TEST(without_ca_the_systems_are_trusted)
{
	char url[100];
	struct tls_link link;

	tls_start();
	snprintf(url, sizeof(url), "rediss://localhost");
	link = tls_link_new(url, "server", 0);
	setenv("SSL_CERT_FILE", tls_file("server.pem"), 1);
	FAILS(&link, LK_ESERVER, "unknown CA");
	setenv("SSL_CERT_FILE", tls_file("ca.pem"), 1);
	MEETS(&link);
	tls_link_free(&link);
}

static int note_name(SSL *ssl, int *alert, void *arg)
{
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

	(void)alert;
	snprintf(arg, 100, "%s", name ? name : "");
	return SSL_TLSEXT_ERR_OK;
}

TEST(server_learns_the_name_but_no_address)
{
	static const struct {
		const char *host, *options, *seen;
	} cases[] = {{"localhost", "", "localhost"},
	             {"127.0.0.1", "", ""},
	             {"127.0.0.1", "&server_name=localhost", "localhost"}};
	char seen[100];

	tls_start();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tls_link link =
			tls_link_new(tls_url(cases[i].host, cases[i].options), "server", 0);
		SSL_CTX_set_tlsext_servername_callback(link.server.settings, note_name);
		SSL_CTX_set_tlsext_servername_arg(link.server.settings, seen);
		MEETS(&link);
		ck_assert_str_eq(seen, cases[i].seen);
		tls_link_free(&link);
	}
}

/* ---- Our own certificate ------------------------------------------------------------------ */

/* The server demands a certificate of the CA.  With TLS 1.3 the client learns of the refusal after
 * the handshake. */
static lk_err meet_demanding(struct tls_link *link)
{
	char bytes[4096], plain[100];
	size_t len;
	lk_err err;

	SSL_CTX_set_verify(link->server.settings, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
	                   NULL);
	SSL_CTX_load_verify_locations(link->server.settings, tls_file("ca.pem"), NULL);
	err = tls_meet(link);
	while (!err && (len = tls_from_server(link, bytes, sizeof(bytes))))
		if (tls_drain(link, bytes, len, plain, sizeof(plain)) < 0)
			err = link->why.err;
	return err;
}

TEST(l1_client_certificate_is_shown_and_its_lack_is_named)
{
	const struct certificate me = {.name = "me", .issuer = "ca"};
	const struct certificate ca = {.name = "ca2"};
	const struct certificate stranger = {.name = "stranger", .issuer = "ca2"};
	char with[400], wrong[400];

	tls_start();
	certificate_make(tls_folder, &me);
	certificate_make(tls_folder, &ca);
	certificate_make(tls_folder, &stranger);
	snprintf(with, sizeof(with), "&cert=%s&key=%s", tls_file("me.pem"), tls_file("me.key"));
	snprintf(wrong, sizeof(wrong), "&cert=%s&key=%s", tls_file("stranger.pem"),
	         tls_file("stranger.key"));
	for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
		struct tls_link link = tls_link_new(tls_url("localhost", with), "server", version);
		char name[50] = "";
		X509 *shown;
		lk_err err = meet_demanding(&link);
		ck_assert_msg(!err, "%s", link.why.text);
		shown = SSL_get_peer_certificate(link.server.ssl);
		ck_assert_ptr_nonnull(shown);
		X509_NAME_get_text_by_NID(X509_get_subject_name(shown), NID_commonName, name,
		                          sizeof(name));
		ck_assert_str_eq(name, "me");
		X509_free(shown);
		tls_link_free(&link);

		link = tls_link_new(tls_url("localhost", ""), "server", version);
		err = meet_demanding(&link);
		ck_assert_msg(err == LK_EAUTH || err == LK_ESERVER, "%s", link.why.text);
		ck_assert_msg(strstr(link.why.text, "client certificate") &&
		                      strstr(link.why.text, "cert=FILE"),
		              "%s", link.why.text);
		tls_link_free(&link);

		link = tls_link_new(tls_url("localhost", wrong), "server", version);
		ck_assert_int_eq(meet_demanding(&link), LK_EAUTH);
		ck_assert_msg(strstr(link.why.text, "refused the certificate of cert="), "%s",
		              link.why.text);
		tls_link_free(&link);
	}
}

/* Write a copy of a key that is encrypted with a password. */
static void seal_key(const char *from, const char *to)
{
	unsigned char password[] = "x";
	FILE *in = fopen(tls_file(from), "r"), *out = fopen(tls_file(to), "w");
	EVP_PKEY *key = PEM_read_PrivateKey(in, NULL, NULL, NULL);

	ck_assert(key &&
	          PEM_write_PrivateKey(out, key, EVP_aes_128_cbc(), password, 1, NULL, NULL));
	EVP_PKEY_free(key);
	fclose(in);
	fclose(out);
}

TEST(files_that_are_not_usable_are_named)
{
	static const struct {
		const char *options, *part;
	} cases[] = {
		{"&cert=/nowhere/c.pem", "cert: no such file or directory (/nowhere/c.pem)"},
		{"&cert=$/server.key", "cert: "},
		{"&cert=$/server.pem&key=/nowhere/k", "key: no such file or directory"},
		{"&cert=$/server.pem", "key: "},
		{"&cert=$/server.pem&key=$/ca.key", "key: "},
		{"&cert=$/server.pem&key=$/sealed.key", "key: "},
	};
	struct tls_link link;
	char url[500];

	tls_start();
	/* If OpenSSL asked for its password on the terminal, a daemon would hang. */
	seal_key("server.key", "sealed.key");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char options[300], *at = options;
		for (const char *from = cases[i].options; *from; from++) {
			if (*from == '$')
				at = stpcpy(at, tls_folder);
			else
				*at++ = *from;
		}
		*at = '\0';
		link = tls_link_new(tls_url("localhost", options), "server", 0);
		FAILS(&link, LK_EINVALID, cases[i].part);
		tls_link_free(&link);
	}
	snprintf(url, sizeof(url), "rediss://localhost?ca=%s/nothing.pem", tls_folder);
	link = tls_link_new(url, "server", 0);
	FAILS(&link, LK_EINVALID, "ca: no such file or directory");
	tls_link_free(&link);
	snprintf(url, sizeof(url), "rediss://localhost?ca=%s/server.key", tls_folder);
	link = tls_link_new(url, "server", 0);
	FAILS(&link, LK_EINVALID, "ca: ");
	tls_link_free(&link);
}

TEST(key_may_be_in_the_file_of_the_certificate)
{
	char options[200];
	struct tls_link link;

	tls_start();
	ck_assert_int_eq(shell("cat %s/server.pem %s/server.key >%s/both.pem", tls_folder,
	                       tls_folder, tls_folder),
	                 0);
	snprintf(options, sizeof(options), "&cert=%s/both.pem", tls_folder);
	link = tls_link_new(tls_url("localhost", options), "server", 0);
	ck_assert_int_eq(meet_demanding(&link), LK_OK);
	tls_link_free(&link);
}
