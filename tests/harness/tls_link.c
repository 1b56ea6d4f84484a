/* SPDX-License-Identifier: MIT
 * Both ends of a TLS connection in this process. */
#include "tls_link.h"

#include "certificate.h"
#include "process.h"
#include "test.h"

#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>

char tls_folder[80];

const char *tls_file(const char *name)
{
	static char paths[4][200];
	static unsigned turn;
	char *path = paths[turn++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", tls_folder, name);
	return path;
}

/* ---- The other end ------------------------------------------------------------------------ */

struct tls_server tls_server_new(const char *name, int version)
{
	struct tls_server server = {.settings = SSL_CTX_new(TLS_server_method())};
	char cert[100], key[100];

	snprintf(cert, sizeof(cert), "%s.pem", name);
	snprintf(key, sizeof(key), "%s.key", name);
	ck_assert_int_eq(SSL_CTX_use_certificate_chain_file(server.settings, tls_file(cert)), 1);
	ck_assert_int_eq(
		SSL_CTX_use_PrivateKey_file(server.settings, tls_file(key), SSL_FILETYPE_PEM), 1);
	if (version) {
		SSL_CTX_set_min_proto_version(server.settings, version);
		SSL_CTX_set_max_proto_version(server.settings, version);
	}
	return server;
}

/* Forget the connection, not the settings, which have the keys of sessions. */
static void server_accept(struct tls_server *server)
{
	SSL_free(server->ssl);
	server->ssl = SSL_new(server->settings);
	server->in = BIO_new(BIO_s_mem());
	server->out = BIO_new(BIO_s_mem());
	SSL_set_bio(server->ssl, server->in, server->out);
	SSL_set_accept_state(server->ssl);
}

static void server_free(struct tls_server *server)
{
	SSL_free(server->ssl);
	SSL_CTX_free(server->settings);
}

/* ---- The connection ----------------------------------------------------------------------- */

static size_t part(struct tls_link *link, size_t left)
{
	size_t size = link->step ? link->step : 1 + (size_t)nrand48(link->random) % 3000;

	return size < left ? size : left;
}

/* A client for the URL, and a server with the certificate of that name; 0 = any version. */
struct tls_link tls_link_new(const char *url, const char *name, int version)
{
	struct tls_link link = {.random = {(unsigned short)test_seed(), 1, 2}};

	ck_assert_msg(!lk__target_parse(url, NULL, &link.target, &link.why), "%s", link.why.text);
	link.server = tls_server_new(name, version);
	return link;
}

void tls_link_free(struct tls_link *link)
{
	lk__tls_free(link->tls);
	lk__tls_unload(&link->shared);
	lk__target_fini(&link->target);
	server_free(&link->server);
}

static void to_server(struct tls_link *link, const struct lk__buf *out)
{
	if (out->len)
		ck_assert_int_eq(BIO_write(link->server.in, out->data, (int)out->len),
		                 (int)out->len);
}

/* Take the next bytes that the server sends. */
size_t tls_from_server(struct tls_link *link, char *bytes, size_t size)
{
	size_t left = BIO_ctrl_pending(link->server.out);
	size_t len = part(link, left < size ? left : size);

	return len ? (size_t)BIO_read(link->server.out, bytes, (int)len) : 0;
}

/* Do the handshake; the result is the client's. */
lk_err tls_meet(struct tls_link *link)
{
	struct lk__buf out = {0};
	char bytes[4096];
	bool done = false;
	size_t len = 0;
	lk_err err;

	server_accept(&link->server);
	lk__tls_free(link->tls);
	link->tls = NULL;
	err = lk__tls_load(&link->shared, &link->target, &link->why);
	if (err)
		return err;
	link->tls = lk__tls_new(&link->shared, &link->target);
	ck_assert_ptr_nonnull(link->tls);
	for (;;) {
		err = lk__tls_shake(link->tls, bytes, len, &out, &done, &link->why);
		to_server(link, &out);
		out.len = 0;
		SSL_do_handshake(link->server.ssl);
		ERR_clear_error();
		if (err || done)
			break;
		len = tls_from_server(link, bytes, sizeof(bytes));
		ck_assert_msg(len > 0, "both wait for the other");
	}
	lk__buf_fini(&out);
	return err;
}

/* Read all that has arrived, into a buffer of that size at once; -1 after an error. */
int64_t tls_drain(struct tls_link *link, const char *bytes, size_t len, char *plain, size_t size)
{
	bool more = true;
	int64_t all = 0, got;

	while (more) {
		got = lk__tls_decrypt(link->tls, bytes, len, plain + all, size, &more, &link->why);
		if (got < 0)
			return -1;
		all += got;
		len = 0;
	}
	return all;
}

/* Let the server send these bytes; what the client reads is stored in plain. */
size_t tls_receive(struct tls_link *link, const char *sent, size_t len, char *plain, size_t size)
{
	char bytes[4096];
	size_t all = 0, arrived;

	ck_assert_int_eq(SSL_write(link->server.ssl, sent, (int)len), (int)len);
	while ((arrived = tls_from_server(link, bytes, sizeof(bytes)))) {
		int64_t got = tls_drain(link, bytes, arrived, plain + all, size);
		ck_assert_msg(got >= 0, "%s", link->why.text);
		all += (size_t)got;
	}
	return all;
}

/* Let the client send these bytes; the server reads the same. */
void tls_send_and_check(struct tls_link *link, const char *sent, size_t len)
{
	static char seen[TLS_BIG];
	struct lk__buf out = {0};
	size_t all = 0, passed = 0;

	ck_assert_msg(!lk__tls_encrypt(link->tls, sent, len, &out, &link->why), "%s",
	              link->why.text);
	while (passed < out.len) {
		size_t now = part(link, out.len - passed);
		int got;
		BIO_write(link->server.in, out.data + passed, (int)now);
		passed += now;
		while ((got = SSL_read(link->server.ssl, seen + all, (int)(sizeof(seen) - all))) >
		       0)
			all += (size_t)got;
	}
	ck_assert_uint_eq(all, len);
	ck_assert_int_eq(memcmp(seen, sent, len), 0);
	lk__buf_fini(&out);
}

void tls_start(void)
{
	folder_make(tls_folder, sizeof(tls_folder));
	certificate_make_usual(tls_folder);
}

const char *tls_url(const char *host, const char *options)
{
	static char url[1000];

	snprintf(url, sizeof(url), "rediss://%s?ca=%s/ca.pem%s&grace=0", host, tls_folder, options);
	return url;
}
