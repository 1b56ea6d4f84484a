/* SPDX-License-Identifier: MIT
 * A gRPC server in this process. */
#include "h2_server.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if NGHTTP2_VERSION_NUM >= 0x013d00 /* 1.61 */
#define h2_ssize nghttp2_ssize
#define session_send nghttp2_session_mem_send2
#define session_receive nghttp2_session_mem_recv2
#define submit_response nghttp2_submit_response2
#define data_provider nghttp2_data_provider2
#else
#define h2_ssize ssize_t
#define session_send nghttp2_session_mem_send
#define session_receive nghttp2_session_mem_recv
#define submit_response nghttp2_submit_response
#define data_provider nghttp2_data_provider
#endif

/* ---- Requests ------------------------------------------------------------------------------- */

static struct h2_request *by_id(struct h2_server *server, int32_t id)
{
	for (unsigned i = 0; i < server->count; i++)
		if (server->requests[i].id == id)
			return &server->requests[i];
	return NULL;
}

static int on_begin(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_server *server = arg;

	(void)session;
	ck_assert_uint_lt(server->count, H2_REQUESTS_MAX);
	server->requests[server->count++].id = frame->hd.stream_id;
	return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
	struct h2_request *request = by_id(arg, frame->hd.stream_id);
	const struct {
		const char *name;
		char *out;
		size_t size;
	} known[] = {
		{":path", request->path, sizeof(request->path)},
		{"token", request->token, sizeof(request->token)},
		{"user-agent", request->user_agent, sizeof(request->user_agent)},
		{"te", request->te, sizeof(request->te)},
		{":scheme", request->scheme, sizeof(request->scheme)},
		{":authority", request->authority, sizeof(request->authority)},
	};

	(void)session;
	(void)name_len;
	(void)flags;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp((const char *)name, known[i].name))
			snprintf(known[i].out, known[i].size, "%.*s", (int)value_len,
			         (const char *)value);
	if (!strcmp((const char *)name, "hasleader"))
		request->has_leader = !strcmp((const char *)value, "true");
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *arg)
{
	(void)session;
	(void)flags;
	ck_assert(lk__grpc_append(&by_id(arg, id)->body, data, len));
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct h2_server *server = arg;
	struct h2_request *request = by_id(server, frame->hd.stream_id);

	(void)session;
	if (frame->hd.type == NGHTTP2_PING && !(frame->hd.flags & NGHTTP2_FLAG_ACK))
		server->pings++;
	if (!request)
		return 0;
	if (frame->hd.type == NGHTTP2_RST_STREAM)
		request->is_reset = true;
	else if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		request->is_ended = true;
	return 0;
}

/* ---- Responses ------------------------------------------------------------------------------ */

static nghttp2_nv pair(const char *name, const char *value)
{
	const union {
		const char *text;
		uint8_t *bytes;
	} a = {name}, b = {value};

	return (nghttp2_nv){a.bytes, b.bytes, strlen(name), strlen(value), 0};
}

static h2_ssize read_data(nghttp2_session *session, int32_t id, uint8_t *out, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct h2_server *server = arg;
	struct h2_request *request = by_id(server, id);
	size_t len = request->out.len - request->out_at;
	const nghttp2_nv trailers[] = {pair("grpc-status", request->status),
	                               pair("grpc-message", request->text)};

	(void)source;
	if (!len && !request->ends)
		return NGHTTP2_ERR_DEFERRED;
	if (len > size)
		len = size;
	if (server->frame_max && len > server->frame_max)
		len = server->frame_max;
	if (len)
		memcpy(out, request->out.data + request->out_at, len);
	request->out_at += len;
	if (request->out_at == request->out.len && request->ends) {
		*flags |= NGHTTP2_DATA_FLAG_EOF;
		if (request->has_trailers) {
			*flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
			ck_assert(!nghttp2_submit_trailer(session, id, trailers,
			                                  *request->text ? 2 : 1));
		}
	}
	return (h2_ssize)len;
}

void h2_headers(struct h2_link *link, struct h2_request *request)
{
	const nghttp2_nv headers[] = {pair(":status", "200"),
	                              pair("content-type", "application/grpc")};
	const data_provider provider = {.read_callback = read_data};

	ck_assert(!submit_response(link->server.session, request->id, headers, 2, &provider));
}

void h2_bytes(struct h2_link *link, struct h2_request *request, const void *bytes, size_t len)
{
	ck_assert(lk__grpc_append(&request->out, bytes, len));
	(void)nghttp2_session_resume_data(link->server.session, request->id);
}

void h2_message(struct h2_link *link, struct h2_request *request, const char *message)
{
	struct lk__buf framed = {0};

	ck_assert(lk__grpc_frame(&framed, message, strlen(message)));
	h2_bytes(link, request, framed.data, framed.len);
	lk__buf_fini(&framed);
}

void h2_trailers(struct h2_link *link, struct h2_request *request, int status, const char *text)
{
	snprintf(request->status, sizeof(request->status), "%d", status);
	snprintf(request->text, sizeof(request->text), "%s", text);
	request->ends = request->has_trailers = true;
	(void)nghttp2_session_resume_data(link->server.session, request->id);
}

void h2_answer(struct h2_link *link, struct h2_request *request, const char *message)
{
	h2_headers(link, request);
	h2_message(link, request, message);
	h2_trailers(link, request, 0, "");
}

void h2_only_headers(struct h2_link *link, struct h2_request *request, const char *const *pairs)
{
	nghttp2_nv headers[10];
	size_t count = 0;

	for (; pairs[2 * count]; count++)
		headers[count] = pair(pairs[2 * count], pairs[2 * count + 1]);
	ck_assert(!submit_response(link->server.session, request->id, headers, count, NULL));
}

void h2_reset(struct h2_link *link, struct h2_request *request, uint32_t code)
{
	ck_assert(!nghttp2_submit_rst_stream(link->server.session, 0, request->id, code));
}

void h2_goaway(struct h2_link *link, int32_t last_id, uint32_t code, const char *text)
{
	ck_assert(!nghttp2_submit_goaway(link->server.session, 0, last_id, code,
	                                 (const uint8_t *)text, strlen(text)));
}

/* ---- The connection ------------------------------------------------------------------------- */

void h2_server_open(struct h2_server *server, uint32_t max_streams)
{
	const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, max_streams}};
	nghttp2_session_callbacks *callbacks;

	ck_assert(!nghttp2_session_callbacks_new(&callbacks));
	nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	ck_assert(!nghttp2_session_server_new(&server->session, callbacks, server));
	nghttp2_session_callbacks_del(callbacks);
	ck_assert(!nghttp2_submit_settings(server->session, 0, settings, max_streams ? 1 : 0));
}

void h2_link_open(struct h2_link *link, uint32_t max_streams)
{
	const struct lk__h2_options options = {.authority = "host:2379",
	                                       .ping_timeout_ns = 3 * H2_SECOND};

	*link = (struct h2_link){.record = link->record,
	                         .now_ns = 1000 * H2_SECOND,
	                         .random = {(unsigned short)test_seed(), 7, 9}};
	h2_server_open(&link->server, max_streams);
	link->h2 = lk__h2_new(&options, link->now_ns);
	ck_assert_ptr_nonnull(link->h2);
	h2_pass(link);
}

void h2_receive(struct h2_server *server, const void *bytes, size_t len)
{
	ck_assert_int_eq(session_receive(server->session, bytes, len), (h2_ssize)len);
}

size_t h2_send(struct h2_server *server, const void **bytes)
{
	const uint8_t *at = NULL;
	h2_ssize len = session_send(server->session, &at);

	ck_assert_int_ge(len, 0);
	*bytes = at;
	return (size_t)len;
}

void h2_server_close(struct h2_server *server)
{
	nghttp2_session_del(server->session);
	for (unsigned i = 0; i < server->count; i++) {
		lk__buf_fini(&server->requests[i].body);
		lk__buf_fini(&server->requests[i].out);
	}
}

void h2_link_close(struct h2_link *link)
{
	lk__h2_free(link->h2);
	h2_server_close(&link->server);
}

static size_t piece(struct h2_link *link, size_t left)
{
	size_t size = link->step ? link->step : 1 + (size_t)nrand48(link->random) % 20000;

	return size < left ? size : left;
}

bool h2_pass_requests(struct h2_link *link)
{
	struct lk__buf buf = {0};
	bool any;

	lk__h2_write(link->h2, &buf);
	any = buf.len > 0;
	for (size_t at = 0; at < buf.len;) {
		size_t len = piece(link, buf.len - at);
		h2_receive(&link->server, (const uint8_t *)buf.data + at, len);
		at += len;
	}
	lk__buf_fini(&buf);
	return any;
}

/* From the server to the client, in memory of the exact size. */
static bool pass_responses(struct h2_link *link)
{
	const uint8_t *bytes;
	bool any = false;
	h2_ssize got;

	while ((got = session_send(link->server.session, &bytes)) > 0) {
		any = true;
		if (link->record)
			ck_assert(lk__grpc_append(link->record, bytes, (size_t)got));
		for (size_t at = 0; at < (size_t)got;) {
			size_t len = piece(link, (size_t)got - at);
			char *exact = malloc(len);
			memcpy(exact, bytes + at, len);
			lk__h2_feed(link->h2, exact, len, link->now_ns);
			free(exact);
			at += len;
		}
	}
	ck_assert_int_eq(got, 0);
	return any;
}

void h2_pass(struct h2_link *link)
{
	bool any;

	do {
		any = h2_pass_requests(link);
		any |= pass_responses(link);
	} while (any);
}

void h2_wait(struct h2_link *link, int64_t ns)
{
	link->now_ns += ns;
	lk__h2_tick(link->h2, link->now_ns);
	h2_pass(link);
}

bool h2_has_event(struct h2_link *link)
{
	return lk__h2_next(link->h2, &link->event);
}

const struct lk__h2_event *h2_next(struct h2_link *link)
{
	ck_assert_msg(h2_has_event(link), "no event");
	return &link->event;
}

uint32_t h2_call(struct h2_link *link, const char *name, const char *message)
{
	char path[80];
	uint32_t id;

	snprintf(path, sizeof(path), "/t.T/%s", name);
	ck_assert_int_eq(lk__h2_call(link->h2, path, (struct lk__bytes){message, strlen(message)},
	                             link->now_ns + 5 * H2_SECOND, &id),
	                 LK_OK);
	return id;
}

static struct h2_request *by_name(struct h2_link *link, const char *name)
{
	for (unsigned i = 0; i < link->server.count; i++)
		if (!strcmp(link->server.requests[i].path + 5, name))
			return &link->server.requests[i];
	return NULL;
}

bool h2_has_request(struct h2_link *link, const char *name)
{
	return by_name(link, name) != NULL;
}

struct h2_request *h2_request(struct h2_link *link, const char *name)
{
	struct h2_request *request = by_name(link, name);

	ck_assert_msg(request != NULL, "no request %s", name);
	return request;
}
