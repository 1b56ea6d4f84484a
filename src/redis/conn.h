/* SPDX-License-Identifier: MIT
 * One connection to one Redis server: socket, handshake, bytes in and out.  Blocking where a
 * deadline is an argument, non-blocking where there is none, but for lk__conn_wait(). */
#ifndef LK__CONN_H
#define LK__CONN_H

#include "../base/error.h"
#include "../base/url.h"
#include "../net/resolve.h"
#include "resp.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct lk__conn {
	int fd; /* CLOEXEC, registered with fork.h, SO_LINGER 0; only lk__conn_wait() blocks */
	bool patient; /* lk__conn_wait() can be used */
	struct lk__resp_reader *reader;
	char text[200]; /* "127.0.0.1:6379" */
};

/* Connect to target and log in (AUTH, SELECT if db > 0, CLIENT SETNAME best effort), all by
 * deadline_ns; gives up with LK_ECONN "canceled" as soon as cancel_fd (-1 = none) is readable.
 * Tries every address of the host in turn.  Name look-up runs in a thread of its own that is left
 * behind when it is late.  *address gets the one that worked (may be NULL).
 *
 * LK_OK, LK_ECONN, LK_EAUTH, LK_ESERVER, LK_ESYSTEM, LK_ENOMEM */
lk_err lk__conn_dial(const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                     struct lk__conn **conn, struct lk__address *address, struct lk__why *why);
/* The same, to an address found before. */
lk_err lk__conn_dial_address(const struct lk__target *target, const struct lk__address *address,
                             int64_t deadline_ns, int cancel_fd, struct lk__conn **conn,
                             struct lk__why *why);

/* Send one command and take its reply, whatever it is (also an error reply).  LK_OK with *resp,
 * LK_ECONN (no byte was sent), LK_EUNKNOWN (sent, no answer), LK_ESERVER, LK_ENOMEM. */
lk_err lk__conn_call(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd, int argc,
                     const char *const *argv, const size_t *argv_len, struct lk__resp **resp,
                     struct lk__why *why);
/* Send what is in buf, then take count replies in their order (all to be freed by the caller). */
lk_err lk__conn_pipeline(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why);

/* Non-blocking halves.  write: bytes taken, 0 = the socket is full, -1 = broken (why). read: bytes
 * fed to the reader, 0 = nothing there now, -1 = ended or broken (why).  EINTR is retried, SIGPIPE
 * never raised. */
int64_t lk__conn_write(struct lk__conn *conn, const char *bytes, size_t len, struct lk__why *why);
int64_t lk__conn_read(struct lk__conn *conn, struct lk__why *why);

/* Prepare for lk__conn_wait(), which reads as soon as there is something, within some
 * milliseconds: one system call instead of two.  Only lk__conn_shutdown() wakes it earlier. */
void lk__conn_be_patient(struct lk__conn *conn);
int64_t lk__conn_wait(struct lk__conn *conn, struct lk__why *why);

/* Make every use of the socket fail from now on, in other threads too; the descriptor stays. */
void lk__conn_shutdown(struct lk__conn *conn);
/* Close and free; NULL is a no-op. */
void lk__conn_close(struct lk__conn *conn);

/* What an error reply means: LK_EAUTH (NOAUTH, WRONGPASS, NOPERM, a refused right inside a
 * script), LK_EFOREIGN (WRONGTYPE), else LK_ESERVER. */
lk_err lk__resp_error(const struct lk__resp *resp);
/* The error passes by itself, so that asking again later makes sense: LOADING, BUSY, READONLY,
 * MASTERDOWN, CLUSTERDOWN, TRYAGAIN, NOREPLICAS. */
bool lk__resp_error_passes(const struct lk__resp *resp);
/* The error that ends the setting up of a connection: LK_ECONN if it passes. */
lk_err lk__resp_refusal(const struct lk__resp *resp);

#endif
