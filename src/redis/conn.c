/* SPDX-License-Identifier: MIT
 * One connection: bytes in and out, commands and their replies by a deadline.  How it is set up is
 * in dial.c. */
#include "conn.h"

#include "../net/fork.h"
#include "../base/os.h"
#include "dial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* then dial.c has set SO_NOSIGPIPE */
#endif

/* What one read takes at most; small enough for a thread with a small stack. */
#define READ_BYTES 8192

/* How much later than at once a thread may hear that its wait is over, should its reply not come:
 * few replies take longer, and hardly a wait ends before its reply. */
#define PATIENCE_MS 10

int64_t lk__conn_write(struct lk__conn *conn, const char *bytes, size_t len, struct lk__why *why)
{
	for (;;) {
		ssize_t sent = send(conn->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent >= 0)
			return sent;
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return 0;
		if (errno == EINTR)
			continue;
		lk__why_errno(why, LK_ECONN, conn->text, errno, " while writing");
		return -1;
	}
}

static int64_t read_some(struct lk__conn *conn, int flags, struct lk__why *why)
{
	char bytes[READ_BYTES];

	for (;;) {
		ssize_t got = recv(conn->fd, bytes, sizeof(bytes), flags);
		struct lk__why inner;
		if (got > 0) {
			if (lk__resp_feed(conn->reader, bytes, (size_t)got, &inner) == LK_OK)
				return got;
			lk__why_about(why, inner.err, conn->text, "%s", inner.text);
			return -1;
		}
		if (got == 0) {
			lk__why_about(why, LK_ECONN, conn->text, "connection closed by the server");
			return -1;
		}
		if (errno == EAGAIN || errno == EWOULDBLOCK)
			return 0;
		if (errno == EINTR)
			continue;
		lk__why_errno(why, LK_ECONN, conn->text, errno, " while reading");
		return -1;
	}
}

int64_t lk__conn_read(struct lk__conn *conn, struct lk__why *why)
{
	return read_some(conn, MSG_DONTWAIT, why);
}

int64_t lk__conn_wait(struct lk__conn *conn, struct lk__why *why)
{
	return read_some(conn, 0, why);
}

void lk__conn_be_patient(struct lk__conn *conn)
{
	const struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
	int flags = fcntl(conn->fd, F_GETFL);

	conn->patient =
		flags >= 0 &&
		setsockopt(conn->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
		fcntl(conn->fd, F_SETFL, flags & ~O_NONBLOCK) == 0;
}

/* Send it all, or say in why->err that it failed.  *sent is how far it came: nothing sent means
 * that nothing happened. */
static void send_all(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                     const struct lk__buf *buf, size_t *sent, struct lk__why *why)
{
	*sent = 0;
	while (*sent < buf->len) {
		int64_t taken = lk__conn_write(conn, buf->data + *sent, buf->len - *sent, why);
		int ready;
		if (taken < 0)
			return;
		*sent += (size_t)taken;
		if (taken > 0)
			continue;
		ready = lk__poll2(conn->fd, POLLOUT, cancel_fd, deadline_ns);
		if (ready & 2) {
			lk__why_about(why, LK_ECONN, conn->text, "canceled");
			return;
		}
		if (!ready) {
			lk__why_about(why, LK_ECONN, conn->text, "timed out while writing");
			return;
		}
	}
}

/* Take count replies; those that came are in resps also on failure. */
static lk_err take_all(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd, size_t count,
                       struct lk__resp **resps, struct lk__why *why)
{
	size_t taken = 0;
	bool late = false; /* a peer that drips bytes does not move the deadline */

	for (;;) {
		struct lk__why inner;
		int64_t got;
		int ready;
		while (taken < count) {
			if (lk__resp_next(conn->reader, &resps[taken], &inner) != LK_OK)
				return lk__why_about(why, inner.err, conn->text, "%s", inner.text);
			if (!resps[taken])
				break;
			taken++;
		}
		if (taken == count)
			return LK_OK;
		if (late)
			return lk__why_about(why, LK_ECONN, conn->text, "no answer in time");
		got = lk__conn_read(conn, &inner);
		if (got > 0) {
			late = deadline_ns >= 0 && lk__now_ns() >= deadline_ns;
			continue;
		}
		if (got < 0) {
			if (why)
				*why = inner;
			return inner.err;
		}
		ready = lk__poll2(conn->fd, POLLIN, cancel_fd, deadline_ns);
		if (ready & 2)
			return lk__why_about(why, LK_ECONN, conn->text, "canceled");
		if (!ready)
			return lk__why_about(why, LK_ECONN, conn->text, "no answer in time");
	}
}

lk_err lk__conn_exchange(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why)
{
	struct lk__why sending = {.err = LK_OK};
	size_t sent;
	lk_err err;

	for (size_t i = 0; i < count; i++)
		resps[i] = NULL;
	send_all(conn, deadline_ns, cancel_fd, buf, &sent, &sending);
	/* A peer that closes may have said why before, so read even after a write that failed. */
	err = take_all(conn, sending.err ? 0 : deadline_ns, cancel_fd, count, resps, why);
	if (sending.err) {
		err = sending.err;
		if (why)
			*why = sending;
	}
	/* Sent, and no answer: it may have happened. */
	if (err == LK_ECONN && sent) {
		err = LK_EUNKNOWN;
		if (why)
			why->err = err;
	}
	/* A late answer must never meet the next query. */
	if (err)
		lk__conn_shutdown(conn);
	return err;
}

lk_err lk__conn_pipeline(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why)
{
	lk_err err = lk__conn_exchange(conn, deadline_ns, cancel_fd, buf, count, resps, why);

	for (size_t i = 0; err && i < count; i++) {
		lk__resp_free(resps[i]);
		resps[i] = NULL;
	}
	return err;
}

lk_err lk__conn_call(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd, int argc,
                     const char *const *argv, const size_t *argv_len, struct lk__resp **resp,
                     struct lk__why *why)
{
	struct lk__buf buf = {0};
	lk_err err;

	if (!lk__resp_command(&buf, argc, argv, argv_len))
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	err = lk__conn_pipeline(conn, deadline_ns, cancel_fd, &buf, 1, resp, why);
	lk__buf_fini(&buf);
	return err;
}

void lk__conn_shutdown(struct lk__conn *conn)
{
	/* On Linux a TCP socket is disconnected first: what it still has to send is thrown away,
	 * as SO_LINGER 0 would at the close that comes later.  Elsewhere, and for Unix sockets,
	 * the call fails and shutdown() does what can be done. */
#ifdef __linux__
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	/* By number, since the thread sanitizer takes connect() for the birth of a descriptor. */
	(void)syscall(SYS_connect, conn->fd, &nobody, sizeof(nobody));
#endif
	(void)shutdown(conn->fd, SHUT_RDWR);
}

void lk__conn_close(struct lk__conn *conn)
{
	if (!conn)
		return;
	if (conn->fd >= 0)
		lk__fork_close(conn->fd);
	lk__resp_reader_free(conn->reader);
	free(conn);
}

/* Does the error begin with this code?  Before 7.0 the error of a command inside a script comes
 * wrapped: "ERR Error running script (call to f_0123): @user_script:1: -READONLY You can't...". */
static bool has_code(const struct lk__resp *resp, const char *code)
{
	static const char wrapped[] = "ERR Error running script";
	size_t len = strlen(code);
	const char *at = resp->str;

	if (!strncmp(at, code, len) && (at[len] == ' ' || !at[len]))
		return true;
	if (strncmp(at, wrapped, sizeof(wrapped) - 1) != 0)
		return false;
	while ((at = strstr(at, ": ")) != NULL) {
		at += 2;
		if (*at == '-')
			at++;
		if (!strncmp(at, code, len) && at[len] == ' ')
			return true;
	}
	return false;
}

static bool has_any_code(const struct lk__resp *resp, const char *const *codes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (has_code(resp, codes[i]))
			return true;
	return false;
}

lk_err lk__resp_error(const struct lk__resp *resp)
{
	static const char *const refusals[] = {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"};
	/* Inside a script a missing right has no code of its own (6.0 to 7.0, then 7.2). */
	static const char *const phrases[] = {"The user executing the script can't",
	                                      "ACL failure in script"};

	if (resp->type != LK__RESP_ERROR)
		return LK_ESERVER;
	if (has_any_code(resp, refusals, sizeof(refusals) / sizeof(refusals[0])))
		return LK_EAUTH;
	for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++)
		if (strstr(resp->str, phrases[i]))
			return LK_EAUTH;
	return has_code(resp, "WRONGTYPE") ? LK_EFOREIGN : LK_ESERVER;
}

bool lk__resp_error_passes(const struct lk__resp *resp)
{
	static const char *const codes[] = {"LOADING",     "BUSY",     "READONLY",  "MASTERDOWN",
	                                    "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS"};

	return resp->type == LK__RESP_ERROR &&
	       has_any_code(resp, codes, sizeof(codes) / sizeof(codes[0]));
}

lk_err lk__resp_refusal(const struct lk__resp *resp)
{
	return lk__resp_error_passes(resp) ? LK_ECONN : lk__resp_error(resp);
}
