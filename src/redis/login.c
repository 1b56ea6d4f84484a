/* SPDX-License-Identifier: MIT
 * Connection set-up: dial, TLS, then log in, by one deadline. */
#include "conn.h"

#include "../net/dial.h"
#include "../net/secure.h"
#include "sentinel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* AUTH, SELECT, CLIENT SETNAME */
#define LOGIN_COMMANDS 3

/* Quote the server's error, without the meaningless code "ERR". */
static lk_err refused(const struct lk__conn *conn, lk_err err, const struct lk__resp *resp,
                      struct lk__why *why)
{
	const char *words = resp->str;

	if (!strncmp(words, "ERR ", 4))
		words += 4;
	return lk__why_about(why, err, conn->socket.text, "%s", words);
}

/* The reply does not refuse the command: the server requires a password, or denies this client. */
static bool is_locked_out(const struct lk__resp *resp)
{
	return !strncmp(resp->str, "NOAUTH ", 7) || !strncmp(resp->str, "DENIED ", 7);
}

/* Check one reply of the log-in. */
static lk_err check_login(const struct lk__conn *conn, const struct lk__resp *resp, bool is_auth,
                          bool is_name, struct lk__why *why)
{
	lk_err err;

	if (resp->type == LK__RESP_STATUS)
		return LK_OK;
	if (resp->type != LK__RESP_ERROR)
		return lk__why_about(why, LK_ESERVER, conn->socket.text,
		                     "unexpected response: not a Redis server");
	/* Sent instead of a reply, before the server closes: nothing happened; a retry may
	 * succeed. */
	if (strstr(resp->str, "max number of clients"))
		return refused(conn, LK_ECONN, resp, why);
	/* The reply to SELECT. */
	if (strstr(resp->str, "not allowed in cluster mode"))
		return lk__why_about(why, LK_EINVALID, conn->socket.text, LK__ONE_DATABASE);
	err = lk__resp_refusal(resp);
	if (is_auth && err == LK_ESERVER)
		err = LK_EAUTH; /* "ERR invalid password", before 6.0 */
	/* The name is only for display: ignore a rule that forbids it.  But if it is the only
	 * command, its error may be that a password is required. */
	if (is_name && !is_locked_out(resp))
		return LK_OK;
	return refused(conn, err, resp, why);
}

/* The buffer held the password.  Volatile: the compiler must not remove stores that are never read.
 */
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

#define BUS_PORT 10000

/* The server closed without a reply.  Some do when TLS is not as they want it. */
static lk_err hint(const struct lk__conn *conn, const struct lk__target *target, lk_err err,
                   struct lk__why *why)
{
	const char *cure = NULL;
	struct lk__why cut = *why;
	char bus[80] = "";

	if (err != LK_ECONN || !conn->has_ended)
		return err;
	if (target->tls && !target->tls_cert)
		cure = "if it wants a client certificate: cert=FILE, key=FILE";
	else if (!target->tls && !target->socket_path)
		cure = target->service   ? "if its port is for TLS, write rediss+sentinel://"
		       : target->cluster ? "if its port is for TLS, write rediss+cluster://"
		                         : "if its port is for TLS, write rediss://";
	/* Nodes use another port among themselves, by default the first one + 10000. */
	if (!target->socket_path && !target->service && target->port > BUS_PORT)
		snprintf(bus, sizeof(bus),
		         "; if it is the bus port of a node, write the other one (%d?)",
		         target->port - BUS_PORT);
	return cure ? lk__why_set(why, err, "%s (%s%s)", cut.text, cure, bus) : err;
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
		return lk__why_about(why, LK_ENOMEM, conn->socket.text, "out of memory");
	}
	err = lk__conn_exchange(conn, deadline_ns, cancel_fd, &buf, count, resps, why);
	wipe_buf(&buf);
	/* The server's error explains more than the close that follows it. */
	for (size_t i = 0; i < count; i++) {
		if (resps[i] && !said)
			said = check_login(conn, resps[i], target->password && i == 0,
			                   i == count - 1, why);
		lk__resp_free(resps[i]);
	}
	if (said)
		return err || target->service
		               ? said
		               : lk__sentinel_blame(conn, deadline_ns, cancel_fd, why);
	if (err == LK_EUNKNOWN)
		err = why->err = LK_ECONN; /* nothing but the log-in was in flight */
	return err ? hint(conn, target, err, why) : LK_OK;
}

static struct lk__conn *conn_new(void)
{
	struct lk__conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->socket.fd = -1;
	conn->reader = lk__resp_reader_new();
	if (!conn->reader) {
		free(conn);
		return NULL;
	}
	return conn;
}

lk_err lk__conn_dial_address(const struct lk__target *target, struct lk__tls_shared *tls,
                             const struct lk__address *address, int64_t deadline_ns, int cancel_fd,
                             struct lk__conn **conn, struct lk__why *why)
{
	struct lk__conn *made = conn_new();
	lk_err err;

	if (!made)
		return lk__why_about(why, LK_ENOMEM, target->text, "out of memory");
	err = lk__socket_connect(target, address, deadline_ns, cancel_fd, &made->socket, why);
	if (!err && target->tls)
		err = lk__secure_start(&made->socket, tls, target, deadline_ns, cancel_fd, why);
	if (!err)
		err = log_in(made, target, deadline_ns, cancel_fd, why);
	if (err) {
		lk__conn_close(made);
		return err;
	}
	if (target->tls)
		lk__tls_remember(tls, made->socket.secure->tls);
	*conn = made;
	return LK_OK;
}

struct dial {
	const struct lk__target *target;
	struct lk__tls_shared *tls;
	int cancel_fd;
	struct lk__conn **conn;
};

static lk_err dial_address(void *context, const struct lk__address *address, int64_t deadline_ns,
                           struct lk__why *why)
{
	const struct dial *dial = context;

	return lk__conn_dial_address(dial->target, dial->tls, address, deadline_ns, dial->cancel_fd,
	                             dial->conn, why);
}

lk_err lk__conn_dial(const struct lk__target *target, struct lk__tls_shared *tls,
                     int64_t deadline_ns, int cancel_fd, struct lk__conn **conn,
                     struct lk__address *address, struct lk__why *why)
{
	struct dial dial = {.target = target, .tls = tls, .cancel_fd = cancel_fd, .conn = conn};
	struct lk__why inner;

	if (target->tls && lk__tls_load(tls, target, &inner))
		return lk__why_about(why, inner.err, target->text, "%s", inner.text);
	return lk__dial_each(target, deadline_ns, cancel_fd, dial_address, &dial, address, why);
}
