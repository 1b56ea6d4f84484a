/* SPDX-License-Identifier: MIT
 * A gRPC server in this process, over nghttp2's own server, and its connection to the library's
 * client: the test passes the bytes, and takes every step of the time.  For what a real etcd shows
 * rarely: GOAWAY, RST_STREAM, limits, frames that are cut anywhere. */
#ifndef H2_SERVER_H
#define H2_SERVER_H

#include "etcd/h2.h"

#include <check.h>
#include <nghttp2/nghttp2.h>

#define H2_REQUESTS_MAX 64
#define H2_SECOND INT64_C(1000000000)

/* A request that has arrived. */
struct h2_request {
	int32_t id;
	char path[80], token[80], user_agent[80], te[20], scheme[10], authority[80];
	bool has_leader; /* the demand for one */
	bool is_ended;   /* the client has ended its side */
	bool is_reset;
	struct lk__buf body; /* DATA so far */
	/* The response: */
	struct lk__buf out;
	size_t out_at;
	bool ends, has_trailers;
	char status[8], text[100]; /* trailers */
};

struct h2_server {
	nghttp2_session *session;
	struct h2_request requests[H2_REQUESTS_MAX];
	unsigned count;
	unsigned pings;
	size_t frame_max; /* bytes of DATA in one frame, 0 = all */
};

struct h2_link {
	struct lk__h2 *h2;
	struct h2_server server;
	int64_t now_ns;
	size_t step; /* bytes that pass at once, 0 = any number */
	unsigned short random[3];
	struct lk__buf *record;    /* all bytes of the server, NULL = not kept */
	struct lk__h2_event event; /* the last one of h2_next() */
};

/* max_streams 0 = no limit. */
void h2_link_open(struct h2_link *link, uint32_t max_streams);
void h2_link_close(struct h2_link *link);
/* A server for the same client; the old one was deleted. */
void h2_server_open(struct h2_server *server, uint32_t max_streams);
/* The server receives these bytes of a client elsewhere; it has so many to send, which are valid
 * until the next call. */
void h2_receive(struct h2_server *server, const void *bytes, size_t len);
size_t h2_send(struct h2_server *server, const void **bytes);
void h2_server_close(struct h2_server *server);
/* Pass the client's bytes; false if there were none. */
bool h2_pass_requests(struct h2_link *link);
/* Pass all bytes, both ways, until there are none. */
void h2_pass(struct h2_link *link);
/* Take the next event; fails the test if there is none.  The result is &link->event. */
const struct lk__h2_event *h2_next(struct h2_link *link);
bool h2_has_event(struct h2_link *link);
/* Let time pass, tick, pass. */
void h2_wait(struct h2_link *link, int64_t ns);

/* A call of /t.T/<name> with this message, which ends 5 s from now; its id. */
uint32_t h2_call(struct h2_link *link, const char *name, const char *message);
/* The request of that name; fails the test if it has not arrived. */
struct h2_request *h2_request(struct h2_link *link, const char *name);
bool h2_has_request(struct h2_link *link, const char *name);

/* Parts of a response. */
void h2_headers(struct h2_link *link, struct h2_request *request);
void h2_bytes(struct h2_link *link, struct h2_request *request, const void *bytes, size_t len);
void h2_message(struct h2_link *link, struct h2_request *request, const char *message);
void h2_trailers(struct h2_link *link, struct h2_request *request, int status, const char *text);
/* A whole response with one message and status 0. */
void h2_answer(struct h2_link *link, struct h2_request *request, const char *message);
/* A response without a body: its headers are pairs of name and value, NULL-ended. */
void h2_only_headers(struct h2_link *link, struct h2_request *request, const char *const *pairs);
void h2_reset(struct h2_link *link, struct h2_request *request, uint32_t code);
void h2_goaway(struct h2_link *link, int32_t last_id, uint32_t code, const char *text);

#endif
