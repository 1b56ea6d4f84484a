/* SPDX-License-Identifier: MIT
 * TLS on a connected socket.  No lock is held during I/O: each direction has one thread at a time,
 * and what both share is in tls.c, under its lock. */
#include "secure.h"

#include "../base/os.h"

#include <poll.h>
#include <stdlib.h>

#define HANDSHAKE_BYTES 4096 /* read at once */
#define WRITE_MAX 65536      /* plain bytes that are encrypted at once */

static lk_err prefixed(const struct lk__socket *socket, const struct lk__why *inner,
                       struct lk__why *why)
{
	return lk__why_about(why, inner->err, socket->text, "%s", inner->text);
}

/* ---- The handshake ------------------------------------------------------------------------ */

/* Send what the handshake produced. */
static lk_err send_out(const struct lk__socket *socket, struct lk__buf *out, int64_t deadline_ns,
                       int cancel_fd, struct lk__why *why)
{
	size_t sent;
	lk_err err =
		lk__socket_send(socket, deadline_ns, cancel_fd, out->data, out->len, &sent, why);

	out->len = 0;
	return err;
}

/* Read the server's next bytes.  A server with a plain port may never respond: Redis waits for the
 * end of a line. */
static lk_err receive(const struct lk__socket *socket, const struct lk__target *target,
                      int64_t deadline_ns, int cancel_fd, char bytes[HANDSHAKE_BYTES], size_t *len,
                      bool first, struct lk__why *why)
{
	for (;;) {
		int64_t got = lk__socket_read(socket, false, bytes, HANDSHAKE_BYTES, why);
		int ready;
		if (got > 0) {
			*len = (size_t)got;
			return LK_OK;
		}
		if (got < 0)
			return lk__why_about(why, LK_ECONN, socket->text,
			                     first ? "connection closed in the TLS handshake (if "
			                             "its port is plain, %s)"
			                           : "connection closed in the TLS handshake",
			                     lk__target_plain(target));
		ready = lk__poll2(socket->fd, POLLIN, cancel_fd, deadline_ns);
		if (ready & 2)
			return lk__why_about(why, LK_ECONN, socket->text, "canceled");
		if (!ready)
			return lk__why_about(why, LK_ECONN, socket->text,
			                     first ? "no TLS response in time (if its port is "
			                             "plain, %s)"
			                           : "TLS handshake timed out",
			                     lk__target_plain(target));
	}
}

static lk_err shake(const struct lk__socket *socket, const struct lk__target *target,
                    struct lk__tls *tls, struct lk__buf *out, int64_t deadline_ns, int cancel_fd,
                    struct lk__why *why)
{
	char bytes[HANDSHAKE_BYTES];
	struct lk__why inner;
	size_t len = 0;
	bool first = true, done = false;
	lk_err err;

	for (;;) {
		lk_err shaken = lk__tls_shake(tls, bytes, len, out, &done, &inner);
		/* After an error, the server learns the reason. */
		err = send_out(socket, out, shaken ? 0 : deadline_ns, cancel_fd, why);
		if (shaken)
			return prefixed(socket, &inner, why);
		if (err || done)
			return err;
		err = receive(socket, target, deadline_ns, cancel_fd, bytes, &len, first, why);
		if (err)
			return err;
		first = false;
		/* A server that drips bytes does not extend the deadline. */
		if (deadline_ns >= 0 && lk__now_ns() >= deadline_ns)
			return lk__why_about(why, LK_ECONN, socket->text,
			                     "TLS handshake timed out");
	}
}

lk_err lk__secure_start(struct lk__socket *socket, const struct lk__tls_shared *shared,
                        const struct lk__target *target, int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why)
{
	struct lk__secure *secure = calloc(1, sizeof(*secure));
	lk_err err;

	if (secure)
		secure->tls = lk__tls_new(shared, target);
	if (!secure || !secure->tls) {
		free(secure);
		return lk__why_about(why, LK_ENOMEM, socket->text, "out of memory");
	}
	err = shake(socket, target, secure->tls, &secure->out, deadline_ns, cancel_fd, why);
	if (err) {
		lk__secure_free(secure);
		return err;
	}
	secure->has_more = true; /* behind the handshake's last bytes */
	socket->secure = secure;
	return LK_OK;
}

void lk__secure_free(struct lk__secure *secure)
{
	if (!secure)
		return;
	lk__tls_free(secure->tls);
	lk__buf_fini(&secure->out);
	free(secure);
}

/* ---- Bytes -------------------------------------------------------------------------------- */

int64_t lk__secure_write(const struct lk__socket *socket, const char *bytes, size_t len,
                         struct lk__why *why)
{
	struct lk__secure *secure = socket->secure;
	struct lk__why inner;
	size_t plain;

	if (!secure->plain) {
		plain = len < WRITE_MAX ? len : WRITE_MAX;
		secure->out.len = 0;
		if (lk__tls_encrypt(secure->tls, bytes, plain, &secure->out, &inner)) {
			prefixed(socket, &inner, why);
			return -1;
		}
		secure->plain = plain;
	}
	while (secure->written < secure->out.len) {
		int64_t taken = lk__socket_write_raw(socket, secure->out.data + secure->written,
		                                     secure->out.len - secure->written, why);
		if (taken <= 0)
			return taken;
		secure->written += (size_t)taken;
	}
	plain = secure->plain;
	secure->plain = secure->written = 0;
	return (int64_t)plain;
}

int64_t lk__secure_read(const struct lk__socket *socket, bool wait, char *bytes, size_t size,
                        struct lk__why *why)
{
	struct lk__secure *secure = socket->secure;
	struct lk__why inner;
	int64_t got = 0;

	if (!secure->has_more) {
		got = lk__socket_read_raw(socket, wait, bytes, size, why);
		if (got <= 0)
			return got;
	}
	got = lk__tls_decrypt(secure->tls, bytes, (size_t)got, bytes, size, &secure->has_more,
	                      &inner);
	if (got < 0)
		prefixed(socket, &inner, why);
	return got;
}
