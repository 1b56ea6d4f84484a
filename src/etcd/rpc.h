/* SPDX-License-Identifier: MIT
 * The calls and streams of one gRPC connection, what their responses mean, and the queue of events.
 * h2.c moves their bytes.
 *
 * Each call is its own last event, so no end of a call needs memory. */
#ifndef LK__RPC_H
#define LK__RPC_H

#include "h2.h"

#define LK__RPC_BUCKETS 64

struct lk__rpc_event {
	struct lk__rpc_event *next;
	struct lk__h2_event event;
	struct lk__buf bytes; /* event.message */
};

/* A call or a stream. */
struct lk__rpc {
	struct lk__rpc_event last;   /* the first member: see above */
	struct lk__rpc *next, *prev; /* those that have not ended */
	struct lk__rpc *chain;       /* of its bucket */
	int64_t deadline_ns;
	uint32_t id; /* of the stream of HTTP/2 */
	bool is_stream;
	bool is_sent;     /* its HEADERS are among the bytes to send */
	bool is_deferred; /* HTTP/2 has taken all of out, and waits for more */
	bool is_grpc;     /* the response is one of gRPC */
	bool has_status, has_answer;
	int http_status, status;
	struct lk__buf out; /* to send, of which out_at bytes were taken */
	size_t out_at;
	struct lk__grpc_reader in;
	struct lk__buf answer;
	char text[LK__GRPC_TEXT]; /* of the status */
};

struct lk__rpcs {
	struct lk__rpc *first; /* in no order */
	struct lk__rpc *buckets[LK__RPC_BUCKETS];
	unsigned count;
	struct lk__rpc_event *events, **events_end;
	struct lk__rpc_event *given; /* the event that was taken last */
};

void lk__rpcs_init(struct lk__rpcs *rpcs);
/* All have ended; free the events. */
void lk__rpcs_fini(struct lk__rpcs *rpcs);
bool lk__rpcs_next(struct lk__rpcs *rpcs, struct lk__h2_event *event);

/* NULL when out of memory. */
struct lk__rpc *lk__rpc_new(bool is_stream, int64_t deadline_ns);
void lk__rpc_free(struct lk__rpc *rpc); /* one that was never added */
void lk__rpc_add(struct lk__rpcs *rpcs, struct lk__rpc *rpc, uint32_t id);
struct lk__rpc *lk__rpc_find(const struct lk__rpcs *rpcs, uint32_t id);
/* End it with an event; text NULL: that of its status. */
void lk__rpc_end(struct lk__rpcs *rpcs, struct lk__rpc *rpc, enum lk__h2_fate fate, int status,
                 const char *text);
/* The same without an event. */
void lk__rpc_drop(struct lk__rpcs *rpcs, struct lk__rpc *rpc);

/* Move at most size bytes that it sends into out.  *is_last: a call has no more of them. */
size_t lk__rpc_take(struct lk__rpc *rpc, void *out, size_t size, bool *is_last);

/* A header, or a trailer, of its response. */
void lk__rpc_header(struct lk__rpc *rpc, struct lk__bytes name, struct lk__bytes value);
/* Bytes of its response.  LK_OK, LK_ENOMEM, LK_ESERVER: nothing more is read from it, *status and
 * *text say why. */
lk_err lk__rpc_data(struct lk__rpcs *rpcs, struct lk__rpc *rpc, const void *bytes, size_t len,
                    int *status, const char **text);
/* Its response is complete: end it. */
void lk__rpc_complete(struct lk__rpcs *rpcs, struct lk__rpc *rpc);

#endif
