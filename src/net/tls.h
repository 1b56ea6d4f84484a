/* SPDX-License-Identifier: MIT
 * TLS by OpenSSL, without I/O: a server's bytes in and plain bytes out, and the reverse.  No other
 * file of the library includes OpenSSL.  Error texts have no prefix. */
#ifndef LK__TLS_H
#define LK__TLS_H

#include "../base/buf.h"
#include "../base/url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the connections of a link share: the settings, and the session that the next connection
 * resumes.  All zero: nothing yet.  One thread at a time. */
struct lk__tls_shared {
	struct ssl_ctx_st *settings;
	struct ssl_session_st *session;
};

/* Read the files that target names, before each dial: a certificate that was replaced by a newer
 * one is used from then on.
 *
 * LK_OK, LK_EINVALID (a file is not usable), LK_ESYSTEM, LK_ENOMEM */
lk_err lk__tls_load(struct lk__tls_shared *shared, const struct lk__target *target,
                    struct lk__why *why);
void lk__tls_unload(struct lk__tls_shared *shared);

/* Free what OpenSSL keeps for the calling thread, which ends; it would else do so unguarded. */
void lk__tls_end_thread(void);

/* One connection.  All its functions take its own lock, a leaf: OpenSSL allows one thread at a
 * time, but one thread reads while another one writes. */
struct lk__tls;

/* NULL when out of memory. */
struct lk__tls *lk__tls_new(const struct lk__tls_shared *shared, const struct lk__target *target);
void lk__tls_free(struct lk__tls *tls);

/* Continue the handshake with bytes that arrived (none at first); append the bytes to send, also
 * after an error.  *done: it is over, and the server is the one that target names.
 *
 * LK_OK, LK_ESERVER (not the named server, no TLS 1.2, not the target's protocol), LK_EAUTH (our
 * certificate is refused), LK_ECONN (ended by the server), LK_ENOMEM */
lk_err lk__tls_shake(struct lk__tls *tls, const char *bytes, size_t len, struct lk__buf *out,
                     bool *done, struct lk__why *why);
/* Decrypt the bytes that arrived (none: those that are left); plain and bytes may be the same
 * memory.  Returns the number of plain bytes, at most size, 0 if more must arrive first, -1 with
 * why.  *more: call again with no bytes, before waiting for the descriptor. */
int64_t lk__tls_decrypt(struct lk__tls *tls, const char *bytes, size_t len, char *plain,
                        size_t size, bool *more, struct lk__why *why);
/* Encrypt len bytes (above 0) and append the result to out, with any alert that is due.  LK_OK,
 * LK_ECONN, LK_ENOMEM; after an error the connection is unusable. */
lk_err lk__tls_encrypt(struct lk__tls *tls, const char *plain, size_t len, struct lk__buf *out,
                       struct lk__why *why);

/* Keep the session of a connection for the next one.  Call it after the first response: a server
 * sends what resumes a session behind the handshake. */
void lk__tls_remember(struct lk__tls_shared *shared, struct lk__tls *tls);

/* Facts of a connection, for people and tests. */
struct lk__tls_facts {
	char version[16]; /* "TLSv1.3" */
	char cipher[64];
	char name[256]; /* that the certificate must have */
	bool is_resumed;
	int days_left; /* of the server's certificate by this machine's clock; below 0: expired */
};
void lk__tls_look(struct lk__tls *tls, struct lk__tls_facts *facts);

#endif
