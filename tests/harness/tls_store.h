/* SPDX-License-Identifier: MIT
 * A redis-server with a TLS port, and the store for the tests in tests/stores that it is. */
#ifndef TLS_STORE_H
#define TLS_STORE_H

#include "test_store.h"

struct tls_redis {
	struct test_server server; /* its Unix socket is for the test's own commands */
	int port;                  /* for TLS */
	char folder[80];           /* of the certificates: see certificate_make_usual() */
	char url[300];             /* rediss://127.0.0.1:port?ca=FOLDER/ca.pem */
};

struct tls_redis_options {
	const char *certificate; /* in the folder, NULL = "server" */
	bool demands;            /* a client certificate of the CA */
	bool plain_port;         /* has one as well: server.url */
};

/* Make the folder with the usual certificates; tls_redis_start() does it, too, if it is not made.
 */
void tls_redis_prepare(struct tls_redis *redis);
/* options may be NULL. */
void tls_redis_start(struct tls_redis *redis, const struct tls_redis_options *options);

extern const struct test_store store_over_tls;

#endif
