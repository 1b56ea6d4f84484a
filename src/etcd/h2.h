/* SPDX-License-Identifier: MIT
 * One gRPC connection over HTTP/2, without I/O and without a clock: the bytes of the server go in,
 * bytes to send and events come out, and time is an argument.  One thread at a time.
 *
 * A call is a request with one answer, and a deadline.  A stream stays open: messages go both ways
 * until one side ends it.  Both have an id of this connection, which is never used again. */
#ifndef LK__H2_H
#define LK__H2_H

#include "../base/buf.h"
#include "../base/error.h"
#include "grpc.h"
#include "pb.h"

#define LK__H2_CALLS_MAX 4096                      /* calls and streams that have not ended */
#define LK__H2_SEND_MAX (2 * LK__GRPC_MESSAGE_MAX) /* of a stream, until the server takes it */
#define LK__H2_NEVER INT64_MAX

struct lk__h2;

struct lk__h2_options {
	const char *authority;   /* "host:port"; copied */
	bool tls;                /* the bytes are encrypted on their way */
	int64_t ping_timeout_ns; /* a server that is silent that long after a PING is dead */
};

enum lk__h2_event_kind {
	LK__H2_ANSWER,   /* the call has ended: fate, status; message if the status is 0 */
	LK__H2_MESSAGE,  /* of a stream: message */
	LK__H2_ENDED,    /* the stream has ended: fate, status */
	LK__H2_DRAINING, /* the server takes no new calls here: open another connection.  What is
	                  * not reported as NOT_RUN goes on */
	LK__H2_DEAD,     /* the last event, after the ends of all calls and streams: why */
};

/* What became of a request. */
enum lk__h2_fate {
	LK__H2_ANSWERED, /* status and text are the server's */
	LK__H2_NOT_RUN,  /* the server has not begun to process it, and never will */
	LK__H2_LOST,     /* it may have run, or may still run */
};

struct lk__h2_event {
	enum lk__h2_event_kind kind;
	enum lk__h2_fate fate;
	uint32_t id;
	int status;               /* enum lk__grpc_status */
	struct lk__bytes message; /* valid until the next event is taken */
	const char *text;         /* the status in words, printable, or ""; the same */
	const struct lk__why *why;
};

/* A connection that has just begun; lk__h2_write() has what to send first.  NULL when out of
 * memory. */
struct lk__h2 *lk__h2_new(const struct lk__h2_options *options, int64_t now_ns);
void lk__h2_free(struct lk__h2 *h2);

/* From now on, calls and streams begin with that token of Authenticate; none = no bytes.  etcd
 * refuses even Authenticate with a token that has expired: take it off first.
 *
 * LK_OK, LK_ESERVER (it has bytes that no header may have), LK_ENOMEM */
lk_err lk__h2_set_token(struct lk__h2 *h2, struct lk__bytes token);

/* Begin a call of the method at path, "/etcdserverpb.KV/Put"; the message is copied.  It always
 * ends with LK__H2_ANSWER, unless it is cancelled.
 *
 * LK_OK, LK_ECONN (draining or dead), LK_ELIMIT, LK_ENOMEM: nothing was begun */
lk_err lk__h2_call(struct lk__h2 *h2, const char *path, struct lk__bytes message,
                   int64_t deadline_ns, uint32_t *id);
/* Begin a stream, with the demand that the server has a leader: else the server ends it. */
lk_err lk__h2_open(struct lk__h2 *h2, const char *path, uint32_t *id);
/* Send a message on a stream.
 *
 * LK_OK, LK_ECONN (it has ended), LK_ELIMIT (the server does not take what was sent), LK_ENOMEM */
lk_err lk__h2_send(struct lk__h2 *h2, uint32_t id, struct lk__bytes message);
/* End a call or a stream without an event; the server may have processed the request. */
void lk__h2_cancel(struct lk__h2 *h2, uint32_t id);

/* How many calls and streams have not ended. */
unsigned lk__h2_count(const struct lk__h2 *h2);

/* Bytes of the server have arrived; then take all events, and write.  Nothing stops this because of
 * one stream. */
void lk__h2_feed(struct lk__h2 *h2, const void *bytes, size_t len, int64_t now_ns);
/* The connection has ended, or a byte could not be written.  The reason does not count if the
 * server has given its own. */
void lk__h2_lost(struct lk__h2 *h2, const struct lk__why *why);
/* Append all bytes that may be sent now. */
void lk__h2_write(struct lk__h2 *h2, struct lk__buf *buf);

/* When lk__h2_tick() has something to do, LK__H2_NEVER if only an event can bring it. */
int64_t lk__h2_due_ns(const struct lk__h2 *h2);
/* End calls whose deadline has passed; send a PING, or find the server dead.  Feed the bytes that
 * have arrived first.  Then take all events, and write. */
void lk__h2_tick(struct lk__h2 *h2, int64_t now_ns);

/* Take the next event; false if there is none. */
bool lk__h2_next(struct lk__h2 *h2, struct lk__h2_event *event);

#endif
