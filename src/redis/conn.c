/* SPDX-License-Identifier: MIT
 * One connection: commands and their replies by a deadline.  login.c sets it up. */
#include "conn.h"

#include "../base/os.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limit of one read; small enough for a thread with a small stack. */
#define READ_BYTES 8192

int64_t lk__conn_read(struct lk__conn *conn, bool wait, struct lk__why *why)
{
	char bytes[READ_BYTES];
	struct lk__why inner;
	int64_t got, all = 0;

	do {
		got = lk__socket_read(&conn->socket, wait && !all, bytes, sizeof(bytes), why);
		if (got < 0) {
			conn->has_ended = true;
			return -1;
		}
		if (got > 0 && lk__resp_feed(conn->reader, bytes, (size_t)got, &inner)) {
			lk__why_about(why, inner.err, conn->socket.text, "%s", inner.text);
			return -1;
		}
		all += got;
	} while (got > 0 && lk__socket_has_more(&conn->socket));
	return all;
}

/* Read count replies; those that arrived are in resps on failure, too. */
static lk_err take_all(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd, size_t count,
                       struct lk__resp **resps, struct lk__why *why)
{
	size_t taken = 0;
	bool late = false; /* a peer that drips bytes does not extend the deadline */

	for (;;) {
		struct lk__why inner;
		int64_t got;
		int ready;
		while (taken < count) {
			if (lk__resp_next(conn->reader, &resps[taken], &inner) != LK_OK)
				return lk__why_about(why, inner.err, conn->socket.text, "%s",
				                     inner.text);
			if (!resps[taken])
				break;
			taken++;
		}
		if (taken == count)
			return LK_OK;
		if (late)
			return lk__why_about(why, LK_ECONN, conn->socket.text,
			                     "no response in time");
		got = lk__conn_read(conn, false, &inner);
		if (got > 0) {
			late = deadline_ns >= 0 && lk__now_ns() >= deadline_ns;
			continue;
		}
		if (got < 0) {
			if (why)
				*why = inner;
			return inner.err;
		}
		ready = lk__poll2(conn->socket.fd, POLLIN, cancel_fd, deadline_ns);
		if (ready & 2)
			return lk__why_about(why, LK_ECONN, conn->socket.text, "canceled");
		if (!ready)
			return lk__why_about(why, LK_ECONN, conn->socket.text,
			                     "no response in time");
	}
}

lk_err lk__conn_exchange(struct lk__conn *conn, int64_t deadline_ns, int cancel_fd,
                         const struct lk__buf *buf, size_t count, struct lk__resp **resps,
                         struct lk__why *why)
{
	struct lk__why unsent;
	size_t sent;
	lk_err err, sending;

	for (size_t i = 0; i < count; i++)
		resps[i] = NULL;
	sending = lk__socket_send(&conn->socket, deadline_ns, cancel_fd, buf->data, buf->len, &sent,
	                          &unsent);
	/* A server may send its reason before it closes, also as an alert of TLS: read even after a
	 * write that failed. */
	err = take_all(conn, sending ? 0 : deadline_ns, cancel_fd, count, resps, why);
	if (sending && err != LK_EAUTH) {
		err = sending;
		if (why)
			*why = unsent;
	}
	/* Sent without a response: ambiguous. */
	if (err == LK_ECONN && sent) {
		err = LK_EUNKNOWN;
		if (why)
			why->err = err;
	}
	/* A late response must never be taken for that of the next query. */
	if (err)
		lk__socket_shutdown(&conn->socket);
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

void lk__conn_close(struct lk__conn *conn)
{
	if (!conn)
		return;
	lk__socket_close(&conn->socket);
	lk__resp_reader_free(conn->reader);
	free(conn);
}

#define TORN "TORN" /* see scripts/shared/change.lua */

/* Does the error have this code?  Before 7.0 the error of a command inside a script is wrapped:
 * "@user_script: 1: -READONLY You can't...", after "ERR Error running script (call to f_0123): " if
 * the script did not catch it. */
static bool has_code(const struct lk__resp *resp, const char *code)
{
	static const char wrapped[] = "ERR Error running script", caught[] = "@user_script: ";
	size_t len = strlen(code);
	const char *at = resp->str;

	if (!strncmp(at, code, len) && (at[len] == ' ' || !at[len]))
		return true;
	if (strncmp(at, wrapped, sizeof(wrapped) - 1) != 0 &&
	    strncmp(at, caught, sizeof(caught) - 1) != 0)
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

/* A script uses a key that is not there, while others of the slot are; one key of several, in the
 * words of newer servers. */
#define NOT_LOCAL "attempted to access a non local key"
#define NOT_DECLARED "undeclared keys were accessed during rehashing of the slot"

bool lk__resp_is_divided(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_ERROR && !lk__resp_is_torn(resp) &&
	       (has_code(resp, "TRYAGAIN") || strstr(resp->str, NOT_LOCAL) ||
	        strstr(resp->str, NOT_DECLARED));
}

const char *lk__resp_redirect(const struct lk__resp *resp)
{
	static const char *const codes[] = {"MOVED ", "ASK "};

	for (size_t i = 0; resp->type == LK__RESP_ERROR && i < 2; i++) {
		const size_t len = strlen(codes[i]);
		if (!strncmp(resp->str, codes[i], len) && resp->str[len])
			return resp->str + len;
	}
	return NULL;
}

bool lk__resp_is_of_cluster(const struct lk__resp *resp)
{
	static const char *const codes[] = {"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT"};

	return resp->type == LK__RESP_ERROR &&
	       has_any_code(resp, codes, sizeof(codes) / sizeof(codes[0]));
}

lk_err lk__resp_error(const struct lk__resp *resp)
{
	static const char *const refusals[] = {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"};
	static const char *const transient[] = {
		"LOADING",  "BUSY",       "READONLY",  "MASTERDOWN", "CLUSTERDOWN",
		"TRYAGAIN", "NOREPLICAS", "UNBLOCKED", "MOVED",      "ASK"};
	/* Inside a script a missing right has no code (first text: 6.0 to 7.0; second: since
	 * 7.2). */
	static const char *const phrases[] = {"The user executing the script can't",
	                                      "ACL failure in script"};

	if (resp->type != LK__RESP_ERROR)
		return LK_ESERVER;
	if (has_any_code(resp, refusals, sizeof(refusals) / sizeof(refusals[0])))
		return LK_EAUTH;
	for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++)
		if (strstr(resp->str, phrases[i]))
			return LK_EAUTH;
	if (lk__resp_is_divided(resp))
		return LK_EAGAIN;
	if (has_any_code(resp, transient, sizeof(transient) / sizeof(transient[0])))
		return LK_EAGAIN;
	return has_code(resp, "WRONGTYPE") ? LK_EFOREIGN : LK_ESERVER;
}

bool lk__resp_is_torn(const struct lk__resp *resp)
{
	return resp->type == LK__RESP_ERROR && has_code(resp, TORN);
}

/* What to say of a refusal.  Servers name the command, but not in a script before 7.2. */
static const char *name_right(const struct lk__resp *resp, char text[80])
{
	static const char before[] = "to run the '";
	const char *at = strstr(resp->str, before), *end;

	at = at ? at + sizeof(before) - 1 : NULL;
	end = at ? strchr(at, '\'') : NULL;
	if (!end || end - at > 40)
		return "(latchkey doctor names the right) ";
	snprintf(text, 80, "(a right is missing: +%.*s) ", (int)(end - at), at);
	return text;
}

lk_err lk__resp_why(const struct lk__resp *resp, const char *what, struct lk__why *why)
{
	bool torn = lk__resp_is_torn(resp);
	lk_err err = lk__resp_error(resp);
	char right[80];

	return lk__why_about(why, err, what, "%s%s%s%s",
	                     err == LK_EAUTH ? name_right(resp, right) : "",
	                     lk__resp_is_divided(resp) ? "the slot is half moved: " : "",
	                     torn ? "stopped in the middle of a script: " : "",
	                     resp->str + (torn ? strlen(TORN) + 1 : 0));
}

void lk__resp_blame_replica(const struct lk__resp *resp, const char *what, const char *master,
                            struct lk__why *why)
{
	if (resp->type == LK__RESP_ERROR && has_code(resp, "READONLY"))
		lk__why_about(why, why->err, what,
		              "a replica: write the address of its master%s%s, or "
		              "redis+sentinel://SENTINELS/SERVICE (READONLY)",
		              *master ? ", " : "", master);
}

lk_err lk__resp_refusal(const struct lk__resp *resp)
{
	lk_err err = lk__resp_error(resp);

	return err == LK_EAGAIN ? LK_ECONN : err;
}
