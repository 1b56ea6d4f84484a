/* SPDX-License-Identifier: MIT
 * Both ends of a TLS connection in this process: the library's, and OpenSSL as its server; between
 * them the test passes the bytes. */
#ifndef TLS_LINK_H
#define TLS_LINK_H

#include "net/tls.h"

#include <check.h>
#include <openssl/ssl.h>
#include <string.h>

#define TLS_BIG 200000 /* the most bytes in one message */

struct tls_server {
	SSL_CTX *settings;
	SSL *ssl;
	BIO *in, *out;
};

struct tls_link {
	struct lk__target target;
	struct lk__tls_shared shared;
	struct lk__tls *tls;
	struct tls_server server;
	unsigned short random[3];
	size_t step; /* bytes that pass at once, 0 = any number */
	struct lk__why why;
};

/* The folder of the certificates; a file in it: static memory, the last four stay valid. */
extern char tls_folder[80];
const char *tls_file(const char *name);
/* Make the folder with the usual certificates. */
void tls_start(void);
/* A URL that trusts "ca"; options: more of them, "&key=value".  Static memory. */
const char *tls_url(const char *host, const char *options);

/* A client for the URL, and a server with the certificate of that name; version 0 = any. */
struct tls_link tls_link_new(const char *url, const char *name, int version);
void tls_link_free(struct tls_link *link);
struct tls_server tls_server_new(const char *name, int version);

/* Connect again, and do the handshake; the result is the client's. */
lk_err tls_meet(struct tls_link *link);
#define MEETS(link)                                                                                \
	do {                                                                                       \
		lk_err err_ = tls_meet(link);                                                      \
		ck_assert_msg(!err_, "%s: %s", lk_err_name(err_), (link)->why.text);               \
	} while (0)
#define FAILS(link, err, part)                                                                     \
	do {                                                                                       \
		ck_assert_str_eq(lk_err_name(tls_meet(link)), lk_err_name(err));                   \
		ck_assert_msg(strstr((link)->why.text, part) != NULL, "%s", (link)->why.text);     \
	} while (0)

/* Take the next bytes that the server sends. */
size_t tls_from_server(struct tls_link *link, char *bytes, size_t size);
/* Decrypt these bytes, up to size at once; -1 after an error. */
int64_t tls_drain(struct tls_link *link, const char *bytes, size_t len, char *plain, size_t size);
/* Let the server send these bytes; the result is what the client reads, up to size at once. */
size_t tls_receive(struct tls_link *link, const char *sent, size_t len, char *plain, size_t size);
/* Let the client send these bytes, and assert that the server reads the same. */
void tls_send_and_check(struct tls_link *link, const char *sent, size_t len);

#endif
