/* SPDX-License-Identifier: MIT
 * One connected socket: bytes in and out, by TLS if it was started.  dial.h connects it. */
#ifndef LK__SOCKET_H
#define LK__SOCKET_H

#include "../base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lk__secure;

struct lk__socket {
	int fd;                    /* CLOEXEC, registered with fork.h, SO_LINGER 0 */
	char text[200];            /* names the peer in errors: "127.0.0.1:6379" */
	struct lk__secure *secure; /* TLS, or NULL: see secure.h */
};

/* Write without blocking: bytes taken, 0 = the socket is full (the next call must begin with the
 * same bytes), -1 = broken (LK_ECONN in why).  Retries EINTR, never raises SIGPIPE. */
int64_t lk__socket_write(const struct lk__socket *socket, const char *bytes, size_t len,
                         struct lk__why *why);
/* Write everything by deadline_ns; LK_ECONN if it fails, or "canceled" as soon as cancel_fd (-1 =
 * none) is readable.  *sent: the bytes written, after a failure, too; a part of what TLS made of
 * them counts as one more. */
lk_err lk__socket_send(const struct lk__socket *socket, int64_t deadline_ns, int cancel_fd,
                       const char *bytes, size_t len, size_t *sent, struct lk__why *why);

/* Read: bytes got, 0 = no data now, -1 = ended or broken (LK_ECONN in why).  With wait, if
 * lk__socket_be_patient() returned true, block until there is data, or some milliseconds: one
 * system call instead of two.  Only lk__socket_shutdown() wakes it earlier. */
int64_t lk__socket_read(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                        struct lk__why *why);
/* May bytes be left that a read without waiting returns, although poll() does not show them? */
bool lk__socket_has_more(const struct lk__socket *socket);
/* The same as write and read, past TLS. */
int64_t lk__socket_write_raw(const struct lk__socket *socket, const char *bytes, size_t len,
                             struct lk__why *why);
int64_t lk__socket_read_raw(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                            struct lk__why *why);

bool lk__socket_be_patient(const struct lk__socket *socket);

/* Make every use of the socket fail from now on, in other threads, too; the descriptor stays
 * open. */
void lk__socket_shutdown(const struct lk__socket *socket);
void lk__socket_close(const struct lk__socket *socket);

#endif
