/* SPDX-License-Identifier: MIT
 * Setting a connection up: look-up, socket, connect and log-in, all by one deadline. */
#include "dial.h"

#include "../net/fork.h"
#include "../base/os.h"
#include "../net/resolve.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

/* Probes that stay unanswered before the peer counts as gone. */
#define KEEPALIVE_PROBES 3
/* Between two tries when the queue of a Unix socket's listener is full: poll() cannot tell. */
#define BACKLOG_PAUSE_NS (2 * LK__MS)
/* AUTH, SELECT, CLIENT SETNAME */
#define LOGIN_COMMANDS 3

static void set_option(int fd, int level, int option, int value)
{
	/* A system that does not know one of these works without it. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

static void set_options(int fd, const struct lk__target *target, int family)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 0};
	int64_t idle_s = (target->keepalive_ms + 999) / 1000;
	int idle, pause;

	/* A dropped connection is reset: bytes of it that are still under way must not be carried
	 * out after we have gone on to something else. */
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
#ifdef SO_NOSIGPIPE
	set_option(fd, SOL_SOCKET, SO_NOSIGPIPE, 1);
#endif
	if (family == AF_UNIX)
		return;
	if (idle_s < 1)
		idle_s = 1;
	idle = idle_s > 32767 ? 32767 : (int)idle_s; /* the most that Linux takes */
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
	/* Keepalive does not run while bytes are unacknowledged; this bounds that case alike. */
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (idle + KEEPALIVE_PROBES * pause) * 1000);
#endif
}

/* A port of this machine's own range that nobody listens on may be given to us as our own end, and
 * then TCP connects us to ourselves. */
static bool connected_to_itself(int fd, int family)
{
	struct sockaddr_storage here = {0}, there = {0};
	socklen_t here_len = sizeof(here), there_len = sizeof(there);

	return family != AF_UNIX && getsockname(fd, (struct sockaddr *)&here, &here_len) == 0 &&
	       getpeername(fd, (struct sockaddr *)&there, &there_len) == 0 &&
	       here_len == there_len && !memcmp(&here, &there, here_len);
}

/* Wait for a connect that is under way; 0 or an errno, ECANCELED if cancel_fd came first. */
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
		/* A Unix socket whose listener has no room just now. */
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

/* The words of the server, without a code that says nothing. */
static lk_err refused(const struct lk__conn *conn, lk_err err, const struct lk__resp *resp,
                      struct lk__why *why)
{
	const char *words = resp->str;

	if (!strncmp(words, "ERR ", 4))
		words += 4;
	return lk__why_about(why, err, conn->text, "%s", words);
}

/* The command is not refused for what it is: the server wants a password, or not us at all. */
static bool is_locked_out(const struct lk__resp *resp)
{
	return !strncmp(resp->str, "NOAUTH ", 7) || !strncmp(resp->str, "DENIED ", 7);
}

/* One reply of the log-in. */
static lk_err check_login(const struct lk__conn *conn, const struct lk__resp *resp, bool is_auth,
                          bool is_name, struct lk__why *why)
{
	lk_err err;

	if (resp->type == LK__RESP_STATUS)
		return LK_OK;
	if (resp->type != LK__RESP_ERROR)
		return lk__why_about(why, LK_ESERVER, conn->text, "does not answer like a Redis");
	/* Sent instead of an answer, before the server closes: nothing happened, later it may. */
	if (strstr(resp->str, "max number of clients"))
		return refused(conn, LK_ECONN, resp, why);
	err = lk__resp_refusal(resp);
	if (is_auth && err == LK_ESERVER)
		err = LK_EAUTH; /* before 6.0: "ERR invalid password", "ERR Client sent AUTH, ..."
		                 */
	/* The name is for people: rules that forbid it do no harm.  But where nothing else was
	 * sent, it is the first to hear that a password is wanted. */
	if (is_name && !is_locked_out(resp))
		return LK_OK;
	return refused(conn, err, resp, why);
}

/* The password was in it.  Volatile: to the compiler these are stores that nobody reads. */
static void wipe_buf(struct lk__buf *buf)
{
	volatile char *data = buf->data;

	for (size_t i = 0; i < buf->len; i++)
		data[i] = 0;
	lk__buf_fini(buf);
}

static bool login_commands(const struct lk__target *target, struct lk__buf *buf, size_t *count)
{
	const char *auth[] = {"AUTH", target->user ? target->user : target->password,
	                      target->password};
	char db[16];
	const char *choose[] = {"SELECT", db};
	const char *name[] = {"CLIENT", "SETNAME", target->client_name};

	*count = 1;
	if (target->password) {
		if (!lk__resp_command(buf, target->user ? 3 : 2, auth, NULL))
			return false;
		++*count;
	}
	if (target->db > 0) {
		snprintf(db, sizeof(db), "%d", target->db);
		if (!lk__resp_command(buf, 2, choose, NULL))
			return false;
		++*count;
	}
	return lk__resp_command(buf, 3, name, NULL);
}

static lk_err log_in(struct lk__conn *conn, const struct lk__target *target, int64_t deadline_ns,
                     int cancel_fd, struct lk__why *why)
{
	struct lk__resp *resps[LOGIN_COMMANDS];
	struct lk__buf buf = {0};
	size_t count;
	lk_err err, said = LK_OK;

	if (!login_commands(target, &buf, &count)) {
		wipe_buf(&buf);
		return lk__why_about(why, LK_ENOMEM, conn->text, "out of memory");
	}
	err = lk__conn_exchange(conn, deadline_ns, cancel_fd, &buf, count, resps, why);
	wipe_buf(&buf);
	/* What the server said explains more than that it closed the connection then. */
	for (size_t i = 0; i < count; i++) {
		if (resps[i] && !said)
			said = check_login(conn, resps[i], target->password && i == 0,
			                   i == count - 1, why);
		lk__resp_free(resps[i]);
	}
	if (said)
		return said;
	if (err == LK_EUNKNOWN) {
		err = LK_ECONN; /* only a log-in was under way */
		if (why)
			why->err = err;
	}
	return err;
}

static struct lk__conn *conn_new(const struct lk__target *target)
{
	struct lk__conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->fd = -1;
	memcpy(conn->text, target->text, sizeof(conn->text));
	conn->reader = lk__resp_reader_new();
	if (!conn->reader) {
		free(conn);
		return NULL;
	}
	return conn;
}

lk_err lk__conn_dial_address(const struct lk__target *target, const struct lk__address *address,
                             int64_t deadline_ns, int cancel_fd, struct lk__conn **conn,
                             struct lk__why *why)
{
	struct lk__conn *made = conn_new(target);
	int number = 0;
	lk_err err;

	if (!made)
		return lk__why_about(why, LK_ENOMEM, target->text, "out of memory");
	made->fd = lk__fork_socket(address->family, SOCK_STREAM, 0);
	if (made->fd < 0) {
		number = errno;
	} else {
		set_options(made->fd, target, address->family);
		number = connect_socket(made->fd, address, deadline_ns, cancel_fd);
	}
	err = number ? connect_failed(number, made->text, why)
	             : log_in(made, target, deadline_ns, cancel_fd, why);
	if (err) {
		lk__conn_close(made);
		return err;
	}
	*conn = made;
	return LK_OK;
}

static lk_err unix_address(const struct lk__target *target, struct lk__address *address,
                           struct lk__why *why)
{
	struct sockaddr_un *un = (struct sockaddr_un *)(void *)&address->addr;
	size_t len = strlen(target->socket_path);

	memset(address, 0, sizeof(*address));
	if (len >= sizeof(un->sun_path))
		return lk__why_about(why, LK_ECONN, target->text,
		                     "the path is too long for a socket");
	un->sun_family = AF_UNIX;
	memcpy(un->sun_path, target->socket_path, len + 1);
	address->len = sizeof(*un);
	address->family = AF_UNIX;
	return LK_OK;
}

static bool is_canceled(int cancel_fd)
{
	return cancel_fd >= 0 && lk__poll2(-1, 0, cancel_fd, 0);
}

lk_err lk__conn_dial(const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                     struct lk__conn **conn, struct lk__address *address, struct lk__why *why)
{
	struct lk__address found[LK__RESOLVE_MAX];
	struct lk__why inner;
	size_t count = 1;
	lk_err err;

	if (target->socket_path) {
		err = unix_address(target, &found[0], why);
	} else {
		err = lk__resolve(target->host, target->port, deadline_ns, cancel_fd, found, &count,
		                  &inner);
		if (err)
			lk__why_about(why, err, target->text, "%s", inner.text);
	}
	if (err)
		return err;
	for (size_t i = 0; i < count; i++) {
		/* An address that swallows everything must leave time for those after it. */
		int64_t now_ns = lk__now_ns();
		int64_t share_ns = deadline_ns;
		if (deadline_ns > now_ns)
			share_ns = now_ns + (deadline_ns - now_ns) / (int64_t)(count - i);
		err = lk__conn_dial_address(target, &found[i], share_ns, cancel_fd, conn, why);
		if (!err && address)
			*address = found[i];
		/* Only an address that was not reached is a reason to try the next. */
		if (err != LK_ECONN || is_canceled(cancel_fd))
			break;
	}
	return err;
}
