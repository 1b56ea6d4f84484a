/* SPDX-License-Identifier: MIT
 * The conversation with one sentinel.  The question and the subscription are sent by one write: a
 * sentinel executes both before anything else, so no change is lost between them.  A RESP2
 * connection with a subscription takes no questions; a repeated question therefore ends the
 * subscription first, and begins it again behind. */
#include "sentinel.h"

#include "../base/os.h"
#include "../base/text.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANNEL "+switch-master"
#define CHANGE_WORDS 5 /* of its messages: service, old host, old port, new host, new port */

struct lk__sentinel_conn {
	struct lk__conn *conn;
	struct lk__tls_shared tls;
	const struct lk__target *target;
	bool is_subscribed;
	bool is_asked; /* the question has no answer yet */
};

/* ---- Connection --------------------------------------------------------------------------- */

/* Everything of the store but its place and its credentials. */
static void aim(const struct lk__target *target, unsigned index, struct lk__target *place)
{
	const struct lk__endpoint *endpoint = &target->sentinels[index];
	char text[LK__PLACE_SIZE];

	*place = *target;
	place->host = endpoint->host;
	place->port = endpoint->port;
	place->user = target->sentinel_user;
	place->password = target->sentinel_password;
	place->db = 0;
	lk__place_write(text, sizeof(text), endpoint->host, endpoint->port);
	lk__escape(place->text, sizeof(place->text), text, strlen(text));
}

/* The sentinel wants a password, or another one. */
static lk_err add_cure(lk_err err, struct lk__why *why)
{
	struct lk__why said = *why;

	if (err != LK_EAUTH || (!strstr(said.text, "NOAUTH") && !strstr(said.text, "WRONGPASS")))
		return err;
	return lk__why_set(why, err,
	                   "%s (the sentinels' own password: sentinel_password_file=FILE)",
	                   said.text);
}

lk_err lk__sentinel_open(const struct lk__target *target, unsigned index, int64_t deadline_ns,
                         int cancel_fd, struct lk__sentinel_conn **result, struct lk__why *why)
{
	struct lk__sentinel_conn *conn = calloc(1, sizeof(*conn));
	struct lk__target place;
	lk_err err;

	aim(target, index, &place);
	if (!conn)
		return lk__why_about(why, LK_ENOMEM, place.text, "out of memory");
	conn->target = target;
	err = lk__conn_dial(&place, &conn->tls, deadline_ns, cancel_fd, &conn->conn, NULL, why);
	if (err) {
		lk__sentinel_close(conn);
		return add_cure(err, why);
	}
	*result = conn;
	return LK_OK;
}

void lk__sentinel_close(struct lk__sentinel_conn *conn)
{
	if (!conn)
		return;
	lk__conn_close(conn->conn);
	lk__tls_unload(&conn->tls);
	free(conn);
}

lk_err lk__sentinel_call(struct lk__sentinel_conn *conn, int64_t deadline_ns, int argc,
                         const char *const *argv, struct lk__resp **resp, struct lk__why *why)
{
	return lk__conn_call(conn->conn, deadline_ns, -1, argc, argv, NULL, resp, why);
}

/* ---- Question ----------------------------------------------------------------------------- */

lk_err lk__sentinel_ask(struct lk__sentinel_conn *conn, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why)
{
	const char *unsubscribe[] = {"UNSUBSCRIBE", CHANNEL}, *subscribe[] = {"SUBSCRIBE", CHANNEL};
	const char *ask[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", conn->target->service};
	struct lk__buf buf = {0};
	size_t sent;
	lk_err err;

	if ((conn->is_subscribed && !lk__resp_command(&buf, 2, unsubscribe, NULL)) ||
	    !lk__resp_command(&buf, 3, ask, NULL) || !lk__resp_command(&buf, 2, subscribe, NULL))
		err = lk__why_about(why, LK_ENOMEM, conn->conn->socket.text, "out of memory");
	else
		err = lk__socket_send(&conn->conn->socket, deadline_ns, cancel_fd, buf.data,
		                      buf.len, &sent, why);
	lk__buf_fini(&buf);
	conn->is_subscribed = conn->is_asked = true;
	return err;
}

/* ---- Reports ------------------------------------------------------------------------------ */

/* The place may be an address, or a name with announce-hostnames. */
static bool set_place(struct lk__place *place, const char *host, size_t host_len, const char *port,
                      size_t port_len)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-:%";
	int64_t number;

	if (host_len < 1 || host_len > LK__HOST_MAX || memchr(host, 0, host_len) ||
	    strspn(host, allowed) < host_len || !lk__parse_i64(port, port_len, 1, 65535, &number))
		return false;
	memcpy(place->host, host, host_len);
	place->host[host_len] = '\0';
	place->port = (int)number;
	return true;
}

static bool is_text(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_STRING && resp->str;
}

static lk_err malformed(const struct lk__sentinel_conn *conn, struct lk__why *why)
{
	return lk__why_about(why, LK_ESERVER, conn->conn->socket.text,
	                     "unexpected response: not a sentinel");
}

static lk_err read_error(const struct lk__sentinel_conn *conn, const struct lk__resp *resp,
                         struct lk__why *why)
{
	const char *text = conn->conn->socket.text;

	if (conn->is_asked && strstr(resp->str, "unknown command"))
		return lk__why_about(why, LK_EINVALID, text,
		                     "not a sentinel (for a single server write redis://%s)", text);
	return lk__why_about(why, lk__resp_refusal(resp), text, "%s: %s",
	                     conn->is_asked ? "SENTINEL" : "SUBSCRIBE", resp->str);
}

/* A message about the service; others are ignored. */
static void read_change(const struct lk__sentinel_conn *conn, const char *text,
                        struct lk__report *report)
{
	const char *words[CHANGE_WORDS];
	size_t lens[CHANGE_WORDS], count = 0;

	while (*text && count < CHANGE_WORDS) {
		words[count] = text;
		lens[count] = strcspn(text, " ");
		text += lens[count];
		text += *text == ' ';
		count++;
	}
	if (count == CHANGE_WORDS && !*text && lens[0] == strlen(conn->target->service) &&
	    !memcmp(words[0], conn->target->service, lens[0]) &&
	    set_place(&report->place, words[3], lens[3], words[4], lens[4]))
		report->kind = LK__REPORT_CHANGED;
}

static lk_err read_array(struct lk__sentinel_conn *conn, const struct lk__resp *resp,
                         struct lk__report *report, struct lk__why *why)
{
	struct lk__resp *const *parts = resp->elements;

	if (resp->len == 2 && conn->is_asked && is_text(parts[0]) && is_text(parts[1]) &&
	    set_place(&report->place, parts[0]->str, parts[0]->len, parts[1]->str, parts[1]->len)) {
		report->kind = LK__REPORT_NAMED;
		conn->is_asked = false;
		return LK_OK;
	}
	if (resp->len != 3 || !is_text(parts[0]))
		return malformed(conn, why);
	if (!strcmp(parts[0]->str, "message") && is_text(parts[2]))
		read_change(conn, parts[2]->str, report);
	return LK_OK;
}

static lk_err read_reply(struct lk__sentinel_conn *conn, const struct lk__resp *resp,
                         struct lk__report *report, struct lk__why *why)
{
	if (resp->type == LK__RESP_ERROR)
		return read_error(conn, resp, why);
	if (resp->type == LK__RESP_ARRAY)
		return read_array(conn, resp, report, why);
	if (resp->type != LK__RESP_NIL || !conn->is_asked)
		return malformed(conn, why);
	report->kind = LK__REPORT_UNAWARE;
	conn->is_asked = false;
	return LK_OK;
}

/* Take replies that have arrived, until one is a report. */
static lk_err take(struct lk__sentinel_conn *conn, struct lk__report *report, struct lk__why *why)
{
	struct lk__resp *resp;
	struct lk__why inner;
	lk_err err = LK_OK;

	while (!err && report->kind == LK__REPORT_NONE) {
		if (lk__resp_next(conn->conn->reader, &resp, &inner) != LK_OK)
			return lk__why_about(why, inner.err, conn->conn->socket.text, "%s",
			                     inner.text);
		if (!resp)
			break;
		err = read_reply(conn, resp, report, why);
		lk__resp_free(resp);
	}
	return err;
}

lk_err lk__sentinel_next(struct lk__sentinel_conn *conn, int64_t deadline_ns, int cancel_fd,
                         struct lk__report *report, struct lk__why *why)
{
	report->kind = LK__REPORT_NONE;
	for (;;) {
		lk_err err = take(conn, report, why);
		int64_t got;
		int ready;
		if (err || report->kind != LK__REPORT_NONE)
			return err;
		got = lk__conn_read(conn->conn, false, why);
		if (got < 0)
			return why->err;
		if (got > 0)
			continue;
		ready = lk__poll2(conn->conn->socket.fd, POLLIN, cancel_fd, deadline_ns);
		if (!ready || ready & 2)
			return LK_OK;
	}
}

/* ---- For others --------------------------------------------------------------------------- */

lk_err lk__sentinel_blame(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                          struct lk__why *why)
{
	const char *argv[] = {"INFO", "server"};
	struct lk__resp *resp;
	lk_err err = why->err;

	if (!strstr(why->text, "unknown command") && !strstr(why->text, "without any password"))
		return err;
	if (lk__conn_call(conn, deadline_ns, cancel_fd, 2, argv, NULL, &resp, NULL))
		return err;
	/* redis_mode, or Valkey's server_mode. */
	if (resp->type == LK__RESP_STRING && strstr(resp->str, "_mode:sentinel"))
		err = lk__why_about(why, LK_EINVALID, conn->socket.text,
		                    "a sentinel (write redis%s+sentinel://%s/SERVICE)",
		                    conn->socket.secure ? "s" : "", conn->socket.text);
	lk__resp_free(resp);
	return err;
}
