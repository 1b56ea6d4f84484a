/* SPDX-License-Identifier: MIT
 * Connecting to a server: look-up, socket and connect, all by one deadline. */
#include "dial.h"

#include "../base/os.h"
#include "fork.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/un.h>

/* Probes without an answer before the peer counts as dead. */
#define KEEPALIVE_PROBES 3
/* Pause between attempts while the backlog of a Unix listener is full, which poll() cannot
 * await. */
#define BACKLOG_PAUSE_NS (2 * LK__MS)

static void set_option(int fd, int level, int option, int value)
{
	/* A system without one of these options works without it. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void set_options(int fd, const struct lk__target *target, int family)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 0};
	int64_t idle_s = (target->keepalive_ms + 999) / 1000;
	int idle, pause;

	/* Reset a dropped connection: bytes still in the send buffer must not be executed after we
	 * have moved on. */
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
#ifdef SO_NOSIGPIPE
	set_option(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
	if (family == AF_UNIX)
		return;
	if (idle_s < 1)
		idle_s = 1;
	idle = idle_s > 32767 ? 32767 : (int)idle_s; /* the maximum of Linux */
	pause = idle / KEEPALIVE_PROBES > 0 ? idle / KEEPALIVE_PROBES : 1;
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
#elif defined(TCP_KEEPALIVE)
	set_option(fd, IPPROTO_TCP, TCP_KEEPALIVE, idle);
#endif
#ifdef TCP_KEEPINTVL
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, pause);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
#endif
#ifdef TCP_USER_TIMEOUT
	/* Keepalive does not run while bytes are unacknowledged; this limits that case. */
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (idle + KEEPALIVE_PROBES * pause) * 1000);
#endif
}

/* TCP simultaneous open: if the port is in this machine's ephemeral range and has no listener, the
 * kernel may choose it as our own end and connect the socket to itself. */
static bool connected_to_itself(int fd, int family)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_len = sizeof(here), there_len = sizeof(there);

	return family != AF_UNIX && getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
	       getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 &&
	       here_len == there_len && !memcmp(&here, &there, here_len);
}

/* Wait for a pending connect; returns 0 or an errno, ECANCELED if cancel_fd was ready. */
static int connect_wait(int fd, int64_t deadline_ns, int cancel_fd)
{
	int ready = lk__poll2(fd, POLLOUT, cancel_fd, deadline_ns);
	socklen_t len = sizeof(int);
	int number = 0;

	if (ready & 2)
		return ECANCELED;
	if (!ready)
		return ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &len) < 0)
		return errno;
	return number;
}

static int connect_socket(int fd, const struct lk__address *address, int64_t deadline_ns,
                          int cancel_fd)
{
	int number;

	for (;;) {
		int64_t pause_ns;
		if (connect(fd, (const struct sockaddr *)&address->addr, address->len) == 0)
			number = 0;
		else if (errno == EINPROGRESS || errno == EINTR)
			number = connect_wait(fd, deadline_ns, cancel_fd);
		else
			number = errno;
		if (number != EAGAIN)
			break;
		/* The backlog of a Unix listener is full for now. */
		pause_ns = lk__now_ns() + BACKLOG_PAUSE_NS;
		if (deadline_ns >= 0 && pause_ns >= deadline_ns)
			return ETIMEDOUT;
		if (lk__poll2(-1, 0, cancel_fd, pause_ns) & 2)
			return ECANCELED;
	}
	if (!number && connected_to_itself(fd, address->family))
		return ECONNREFUSED;
	return number;
}

static lk_err connect_failed(int number, const char *text, struct lk__why *why)
{
	switch (number) {
	case ECANCELED:
		return lk__why_about(why, LK_ECONN, text, "canceled");
	case ETIMEDOUT:
		return lk__why_about(why, LK_ECONN, text, "connecting timed out");
	case EMFILE:
	case ENFILE:
		return lk__why_errno(why, LK_ESYSTEM, text, number, "");
	case ENOMEM:
		return lk__why_about(why, LK_ENOMEM, text, "out of memory");
	default:
		return lk__why_errno(why, LK_ECONN, text, number, "");
	}
}

lk_err lk__socket_connect(const struct lk__target *target, const struct lk__address *address,
                          int64_t deadline_ns, int cancel_fd, struct lk__socket *result,
                          struct lk__why *why)
{
	struct lk__socket made = {.fd = lk__fork_socket(address->family, SOCK_STREAM, 0)};
	int number;

	if (made.fd < 0)
		return connect_failed(errno, target->text, why);
	set_options(made.fd, target, address->family);
	number = connect_socket(made.fd, address, deadline_ns, cancel_fd);
	if (number) {
		lk__socket_close(&made);
		return connect_failed(number, target->text, why);
	}
	memcpy(made.text, target->text, sizeof(made.text));
	*result = made;
	return LK_OK;
}

static lk_err unix_address(const struct lk__target *target, struct lk__address *address,
                           struct lk__why *why)
{
	struct sockaddr_un *un = (struct sockaddr_un *)(void *)&address->addr;
	size_t len = strlen(target->socket_path);

	memset(address, 0, sizeof(*address));
	if (len >= sizeof(un->sun_path))
		return lk__why_about(why, LK_ECONN, target->text, "path too long for a socket");
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, target->socket_path, len + 1);
	address->len = sizeof(*un);
	address->family = AF_UNIX;
	return LK_OK;
}

static lk_err find_addresses(const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                             struct lk__address found[LK__RESOLVE_MAX], size_t *count,
                             struct lk__why *why)
{
	struct lk__why inner;
	lk_err err;

	if (target->socket_path) {
		*count = 1;
		return unix_address(target, found, why);
	}
	err = lk__resolve(target->host, target->port, deadline_ns, cancel_fd, found, count, &inner);
	return err ? lk__why_about(why, err, target->text, "%s", inner.text) : LK_OK;
}

static bool is_canceled(int cancel_fd)
{
	return cancel_fd >= 0 && lk__poll2(-1, 0, cancel_fd, 0);
}

lk_err lk__dial_each(const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                     lk__dial_address_fn *dial, void *context, struct lk__address *address,
                     struct lk__why *why)
{
	struct lk__address found[LK__RESOLVE_MAX];
	size_t count;
	lk_err err = find_addresses(target, deadline_ns, cancel_fd, found, &count, why);

	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		/* An address that drops packets must leave time for those after it. */
		int64_t now_ns = lk__now_ns();
		int64_t share_ns = deadline_ns;
		if (deadline_ns > now_ns)
			share_ns = now_ns + (deadline_ns - now_ns) / (int64_t)(count - i);
		err = dial(context, &found[i], share_ns, why);
		if (!err && address)
			*address = found[i];
		/* Only a failure to connect is a reason to try the next address. */
		if (err != LK_ECONN || is_canceled(cancel_fd))
			break;
	}
	return err;
}
