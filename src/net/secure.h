/* SPDX-License-Identifier: MIT
 * TLS on a connected socket: the I/O around tls.h.  socket.h calls it for sockets that have it. */
#ifndef LK__SECURE_H
#define LK__SECURE_H

#include "socket.h"
#include "tls.h"

struct lk__secure {
	struct lk__tls *tls;
	bool has_more; /* decrypted bytes may be left, which poll() does not show; the reader's */
	/* The writer's: encrypted bytes, of which that many were written, and the number of plain
	 * bytes that they are; 0 and 0 when all are written. */
	struct lk__buf out;
	size_t written, plain;
};

/* Do the handshake with the server that target names, as lk__tls_shake(), by deadline_ns, and with
 * LK_ECONN "canceled" as soon as cancel_fd (-1 = none) is readable.  From then on the socket's
 * bytes are encrypted; after an error the caller closes the socket.  shared was loaded for target.
 */
lk_err lk__secure_start(struct lk__socket *socket, const struct lk__tls_shared *shared,
                        const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why);
void lk__secure_free(struct lk__secure *secure);

/* As lk__socket_write().  0: some of these bytes are encrypted already, so the next call must begin
 * with the same bytes. */
int64_t lk__secure_write(const struct lk__socket *socket, const char *bytes, size_t len,
                         struct lk__why *why);
/* As lk__socket_read().  0 also if a record is not complete. */
int64_t lk__secure_read(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                        struct lk__why *why);

#endif
