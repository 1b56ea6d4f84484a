/* SPDX-License-Identifier: MIT
 * Bytes over a connected socket. */
#include "socket.h"

#include "../base/os.h"
#include "fork.h"
#include "secure.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* dial.c sets SO_NOSIGPIPE instead */
#endif

/* Limit of a blocking read, and so of how late a thread learns that its wait is over if no reply
 * arrives: few replies take longer, and few waits end before their reply. */
#define PATIENCE_MS 10

int64_t lk__socket_write_raw(const struct lk__socket *socket, const char *bytes, size_t len,
                             struct lk__why *why)
{
	for (;;) {
		ssize_t sent = send(socket->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0)
			return sent;
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return 0;
		if (errno == EINTR)
			continue;
		lk__why_errno(why, LK_ECONN, socket->text, errno, " while writing");
		return -1;
	}
}

int64_t lk__socket_write(const struct lk__socket *socket, const char *bytes, size_t len,
                         struct lk__why *why)
{
	return socket->secure ? lk__secure_write(socket, bytes, len, why)
	                      : lk__socket_write_raw(socket, bytes, len, why);
}

static lk_err send_all(const struct lk__socket *socket, int64_t deadline_ns, int cancel_fd,
                       const char *bytes, size_t len, size_t *sent, struct lk__why *why)
{
	*sent = 0;
	while (*sent < len) {
		int64_t taken = lk__socket_write(socket, bytes + *sent, len - *sent, why);
		int ready;
		if (taken < 0)
			return LK_ECONN;
		*sent += (size_t)taken;
		if (taken > 0)
			continue;
		ready = lk__poll2(socket->fd, POLLOUT, cancel_fd, deadline_ns);
		if (ready & 2)
			return lk__why_about(why, LK_ECONN, socket->text, "canceled");
		if (!ready)
			return lk__why_about(why, LK_ECONN, socket->text,
			                     "timed out while writing");
	}
	return LK_OK;
}

int64_t lk__socket_read_raw(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                            struct lk__why *why)
{
	for (;;) {
		ssize_t got = recv(socket->fd, bytes, size, wait ? 0 : MSG_DONTWAIT);
		if (got > 0)
			return got;
		if (got == 0) {
			lk__why_about(why, LK_ECONN, socket->text,
			              "connection closed by the server");
			return -1;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return 0;
		if (errno == EINTR)
			continue;
		lk__why_errno(why, LK_ECONN, socket->text, errno, " while reading");
		return -1;
	}
}

lk_err lk__socket_send(const struct lk__socket *socket, int64_t deadline_ns, int cancel_fd,
                       const char *bytes, size_t len, size_t *sent, struct lk__why *why)
{
	lk_err err = send_all(socket, deadline_ns, cancel_fd, bytes, len, sent, why);

	if (err && socket->secure && socket->secure->written)
		++*sent;
	return err;
}

int64_t lk__socket_read(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                        struct lk__why *why)
{
	return socket->secure ? lk__secure_read(socket, wait, bytes, size, why)
	                      : lk__socket_read_raw(socket, wait, bytes, size, why);
}

bool lk__socket_has_more(const struct lk__socket *socket)
{
	return socket->secure && socket->secure->has_more;
}

bool lk__socket_be_patient(const struct lk__socket *socket)
{
	const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
	int flags = fcntl(socket->fd, F_GETFL);

	return flags >= 0 &&
	       setsockopt(socket->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
	       fcntl(socket->fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

void lk__socket_shutdown(const struct lk__socket *socket)
{
	/* On Linux disconnect a TCP socket first: this discards its send buffer, as SO_LINGER 0
	 * does when the socket is closed later.  Elsewhere, and for Unix sockets, the call fails
	 * and shutdown() is the best available. */
#ifdef __linux__
	struct sockaddr unspecified = {.sa_family = AF_UNSPEC};

	/* By number, since the thread sanitizer takes connect() for the creation of a
	 * descriptor. */
	(void)syscall(SYS_connect, socket->fd, &unspecified, sizeof(unspecified));
#endif
	(void)shutdown(socket->fd, SHUT_RDWR);
}

void lk__socket_close(const struct lk__socket *socket)
{
	lk__secure_free(socket->secure);
	lk__fork_close(socket->fd);
}
