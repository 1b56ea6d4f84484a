/* SPDX-License-Identifier: MIT
 * gRPC over nghttp2, which does HPACK, flow control and SETTINGS, and no I/O.  No other file of the
 * library includes nghttp2.
 *
 * nghttp2 opens windows again as soon as bytes arrive, so no stream can stop the others.  It queues
 * requests above the server's limit of streams.  Whether a request was sent decides what its end
 * means: one whose HEADERS never left, or that the server refused or excluded by a GOAWAY, was not
 * run; all others may have been.
 */
#include "h2.h"

#include "built_with.h"
#include "rpc.h"

#if LK__ETCD

#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS INT64_C(1000000000)
#define STREAM_WINDOW (1 << 20)
#define CONNECTION_WINDOW (4 << 20)
#define PING_NS (10 * SECOND_NS) /* etcd ends connections that send a PING each 5 s or less */
#define HEADERS_MAX 9
#define AUTHORITY_SIZE 300
#define GOAWAY_TEXT 80 /* bytes of its text that are shown */

#if NGHTTP2_VERSION_NUM >= 0x013d00 /* 1.61 */
#define session_send nghttp2_session_mem_send2
#define session_receive nghttp2_session_mem_recv2
#define session_request nghttp2_submit_request2
#define data_provider nghttp2_data_provider2
#define h2_ssize nghttp2_ssize
#else
#define session_send nghttp2_session_mem_send
#define session_receive nghttp2_session_mem_recv
#define session_request nghttp2_submit_request
#define data_provider nghttp2_data_provider
#define h2_ssize ssize_t
#endif

struct lk__h2 {
	nghttp2_session *session;
	struct lk__rpcs rpcs;
	int64_t heard_ns, pinged_ns, ping_timeout_ns;
	bool is_greeted; /* SETTINGS have arrived */
	bool is_draining, draining_reported;
	bool is_dead, dead_reported;
	bool lacks_memory;
	bool tls;
	struct lk__why why; /* of the end; before that, of a GOAWAY */
	char *token;
	char authority[AUTHORITY_SIZE];
};

/* ---- The end -------------------------------------------------------------------------------- */

/* End the connection, and with it all calls. */
static void die(struct lk__h2 *h2, const struct lk__why *why)
{
	if (h2->is_dead)
		return;
	h2->is_dead = true;
	if (why != &h2->why)
		h2->why = *why;
	while (h2->rpcs.first) {
		struct lk__rpc *rpc = h2->rpcs.first;
		lk__rpc_end(&h2->rpcs, rpc, rpc->is_sent ? LK__H2_LOST : LK__H2_NOT_RUN,
		            LK__GRPC_UNAVAILABLE, h2->why.text);
	}
}

static void die_of(struct lk__h2 *h2, lk_err err, const char *text)
{
	struct lk__why why;

	lk__why_set(&why, err, "%s", text);
	die(h2, &why);
}

/* The server has ended the connection, or made it unusable. */
static void die_of_server(struct lk__h2 *h2)
{
	if (h2->is_draining)
		die(h2, &h2->why);
	else if (h2->is_greeted)
		die_of(h2, LK_ESERVER, "the server violated HTTP/2");
	else
		die_of(h2, LK_ESERVER, "the server does not speak HTTP/2");
}

/* A function of nghttp2 has failed. */
static void die_by(struct lk__h2 *h2, h2_ssize error)
{
	if (h2->lacks_memory || error == NGHTTP2_ERR_NOMEM)
		die_of(h2, LK_ENOMEM, "out of memory");
	else
		die_of_server(h2);
}

/* nghttp2 neither reads nor writes any more: after a GOAWAY, or an error in what has arrived. */
static void die_if_over(struct lk__h2 *h2)
{
	if (!nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session))
		die_of_server(h2);
}

/* Notify the server that the stream is of no interest any more. */
static void reset(struct lk__h2 *h2, uint32_t id)
{
	(void)nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, (int32_t)id,
	                                NGHTTP2_CANCEL);
}

/* ---- Responses ------------------------------------------------------------------------------ */

static struct lk__rpc *find(const struct lk__h2 *h2, int32_t stream_id)
{
	return lk__rpc_find(&h2->rpcs, (uint32_t)stream_id);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
	struct lk__rpc *rpc = find(arg, frame->hd.stream_id);

	(void)session;
	(void)flags;
	if (rpc)
		lk__rpc_header(rpc, (struct lk__bytes){name, name_len},
		               (struct lk__bytes){value, value_len});
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t len, void *arg)
{
	struct lk__h2 *h2 = arg;
	struct lk__rpc *rpc = find(h2, stream_id);
	const char *text;
	int status;

	(void)session;
	(void)flags;
	if (!rpc)
		return 0;
	switch (lk__rpc_data(&h2->rpcs, rpc, data, len, &status, &text)) {
	case LK_OK:
		break;
	case LK_ENOMEM:
		h2->lacks_memory = true;
		return NGHTTP2_ERR_CALLBACK_FAILURE;
	default:
		reset(h2, rpc->id);
		lk__rpc_end(&h2->rpcs, rpc, LK__H2_LOST, status, text);
	}
	return 0;
}

/* The server has ended its side of the stream; the other one would stay open. */
static void complete(struct lk__h2 *h2, struct lk__rpc *rpc)
{
	if (nghttp2_session_get_stream_local_close(h2->session, (int32_t)rpc->id) == 0)
		reset(h2, rpc->id);
	lk__rpc_complete(&h2->rpcs, rpc);
}

static void on_goaway(struct lk__h2 *h2, const nghttp2_goaway *goaway)
{
	const char *text = (const char *)goaway->opaque_data;
	size_t len = goaway->opaque_data_len;
	struct lk__rpc *rpc, *next;

	lk__why_set(&h2->why, LK_ECONN, "ended by the server: %s%s%.*s",
	            nghttp2_http2_strerror(goaway->error_code), len ? ", " : "",
	            (int)(len < GOAWAY_TEXT ? len : GOAWAY_TEXT), len ? text : "");
	h2->is_draining = true;
	/* Those that were sent and come behind the last one: nghttp2 closes their streams. */
	for (rpc = h2->rpcs.first; rpc; rpc = next) {
		next = rpc->next;
		if (!rpc->is_sent)
			lk__rpc_end(&h2->rpcs, rpc, LK__H2_NOT_RUN, LK__GRPC_UNAVAILABLE,
			            h2->why.text);
	}
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct lk__h2 *h2 = arg;
	struct lk__rpc *rpc;

	(void)session;
	switch (frame->hd.type) {
	case NGHTTP2_SETTINGS:
		h2->is_greeted = true;
		break;
	case NGHTTP2_GOAWAY:
		on_goaway(h2, &frame->goaway);
		break;
	case NGHTTP2_HEADERS:
	case NGHTTP2_DATA:
		rpc = find(h2, frame->hd.stream_id);
		if (rpc && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
			complete(h2, rpc);
		break;
	default:
		break;
	}
	return 0;
}

/* The stream was closed by RST_STREAM of either side, or by a GOAWAY. */
static int on_close(nghttp2_session *session, int32_t stream_id, uint32_t code, void *arg)
{
	struct lk__h2 *h2 = arg;
	struct lk__rpc *rpc = find(h2, stream_id);
	char text[LK__GRPC_TEXT];

	(void)session;
	if (!rpc)
		return 0;
	snprintf(text, sizeof(text), "stream closed: %s", nghttp2_http2_strerror(code));
	lk__rpc_end(&h2->rpcs, rpc, code == NGHTTP2_REFUSED_STREAM ? LK__H2_NOT_RUN : LK__H2_LOST,
	            lk__grpc_status_of_reset(code), text);
	return 0;
}

/* ---- Requests ------------------------------------------------------------------------------- */

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct lk__rpc *rpc = find(arg, frame->hd.stream_id);

	(void)session;
	if (rpc && frame->hd.type == NGHTTP2_HEADERS)
		rpc->is_sent = true;
	return 0;
}

static int on_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error, void *arg)
{
	struct lk__h2 *h2 = arg;
	struct lk__rpc *rpc = find(h2, frame->hd.stream_id);

	(void)session;
	if (rpc && frame->hd.type == NGHTTP2_HEADERS)
		lk__rpc_end(&h2->rpcs, rpc, LK__H2_NOT_RUN, LK__GRPC_UNAVAILABLE,
		            nghttp2_strerror(error));
	return 0;
}

/* The bytes of a DATA frame. */
static h2_ssize read_data(nghttp2_session *session, int32_t stream_id, uint8_t *out, size_t size,
                          uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct lk__rpc *rpc = find(arg, stream_id);
	bool is_last;
	size_t len;

	(void)session;
	(void)source;
	if (!rpc)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	len = lk__rpc_take(rpc, out, size, &is_last);
	if (is_last)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	rpc->is_deferred = !len && !is_last;
	return rpc->is_deferred ? NGHTTP2_ERR_DEFERRED : (h2_ssize)len;
}

/* nghttp2 wants pointers to bytes that may change, and copies them. */
static nghttp2_nv header(const char *name, const char *value, uint8_t flags)
{
	const union {
		const char *text;
		uint8_t *bytes;
	} a = {name}, b = {value};

	return (nghttp2_nv){a.bytes, b.bytes, strlen(name), strlen(value), flags};
}

static size_t fill_headers(const struct lk__h2 *h2, const char *path, bool is_stream,
                           nghttp2_nv headers[HEADERS_MAX])
{
	size_t count = 0;

	headers[count++] = header(":method", "POST", 0);
	headers[count++] = header(":scheme", h2->tls ? "https" : "http", 0);
	headers[count++] = header(":path", path, 0);
	headers[count++] = header(":authority", h2->authority, 0);
	headers[count++] = header("te", "trailers", 0);
	headers[count++] = header("content-type", "application/grpc", 0);
	headers[count++] = header("user-agent", "latchkey/" LK_VERSION, 0);
	/* A member without a leader then ends the stream. */
	if (is_stream)
		headers[count++] = header("hasleader", "true", 0);
	if (h2->token)
		headers[count++] = header("token", h2->token, NGHTTP2_NV_FLAG_NO_INDEX);
	return count;
}

static lk_err begin(struct lk__h2 *h2, const char *path, struct lk__rpc *rpc, uint32_t *id)
{
	nghttp2_nv headers[HEADERS_MAX];
	const data_provider provider = {.read_callback = read_data};
	int32_t stream_id =
		session_request(h2->session, NULL, headers,
	                        fill_headers(h2, path, rpc->is_stream, headers), &provider, NULL);

	if (stream_id < 0) {
		if (stream_id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE && !h2->is_draining) {
			h2->is_draining = true;
			lk__why_set(&h2->why, LK_ECONN, "all 2^30 streams were used");
		}
		lk__rpc_free(rpc);
		return stream_id == NGHTTP2_ERR_NOMEM ? LK_ENOMEM : LK_ECONN;
	}
	*id = (uint32_t)stream_id;
	lk__rpc_add(&h2->rpcs, rpc, *id);
	return LK_OK;
}

static lk_err may_begin(const struct lk__h2 *h2)
{
	if (h2->is_draining || h2->is_dead)
		return LK_ECONN;
	return h2->rpcs.count < LK__H2_CALLS_MAX ? LK_OK : LK_ELIMIT;
}

lk_err lk__h2_call(struct lk__h2 *h2, const char *path, struct lk__bytes message,
                   int64_t deadline_ns, uint32_t *id)
{
	lk_err err = message.len > LK__GRPC_MESSAGE_MAX ? LK_ELIMIT : may_begin(h2);
	struct lk__rpc *rpc = err ? NULL : lk__rpc_new(false, deadline_ns);

	if (err)
		return err;
	if (rpc && lk__grpc_frame(&rpc->out, message.data, message.len))
		return begin(h2, path, rpc, id);
	if (rpc)
		lk__rpc_free(rpc);
	return LK_ENOMEM;
}

lk_err lk__h2_open(struct lk__h2 *h2, const char *path, uint32_t *id)
{
	lk_err err = may_begin(h2);
	struct lk__rpc *rpc = err ? NULL : lk__rpc_new(true, LK__H2_NEVER);

	if (rpc)
		return begin(h2, path, rpc, id);
	return err ? err : LK_ENOMEM;
}

lk_err lk__h2_send(struct lk__h2 *h2, uint32_t id, struct lk__bytes message)
{
	struct lk__rpc *rpc = lk__rpc_find(&h2->rpcs, id);

	if (!rpc || !rpc->is_stream)
		return LK_ECONN;
	if (message.len > LK__GRPC_MESSAGE_MAX || rpc->out.len > LK__H2_SEND_MAX - message.len)
		return LK_ELIMIT;
	if (!lk__grpc_frame(&rpc->out, message.data, message.len))
		return LK_ENOMEM;
	if (rpc->is_deferred) {
		rpc->is_deferred = false;
		(void)nghttp2_session_resume_data(h2->session, (int32_t)id);
	}
	return LK_OK;
}

void lk__h2_cancel(struct lk__h2 *h2, uint32_t id)
{
	struct lk__rpc *rpc = lk__rpc_find(&h2->rpcs, id);

	if (!rpc)
		return;
	reset(h2, id);
	lk__rpc_drop(&h2->rpcs, rpc);
}

unsigned lk__h2_count(const struct lk__h2 *h2)
{
	return h2->rpcs.count;
}

/* ---- The connection ------------------------------------------------------------------------- */

static nghttp2_session_callbacks *make_callbacks(void)
{
	nghttp2_session_callbacks *callbacks;

	if (nghttp2_session_callbacks_new(&callbacks))
		return NULL;
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
	nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_not_sent);
	return callbacks;
}

static bool start(struct lk__h2 *h2)
{
	static const nghttp2_settings_entry settings[] = {
		{NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
		{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW},
	};
	nghttp2_session_callbacks *callbacks = make_callbacks();
	nghttp2_option *option = NULL;
	int error = NGHTTP2_ERR_NOMEM;

	if (callbacks && !nghttp2_option_new(&option)) {
		/* The others wait for the server's limit, which would refuse them. */
		nghttp2_option_set_peer_max_concurrent_streams(option, 1);
		error = nghttp2_session_client_new2(&h2->session, callbacks, h2, option);
	}
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	return !error && !nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings, 2) &&
	       !nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
	                                              CONNECTION_WINDOW);
}

struct lk__h2 *lk__h2_new(const struct lk__h2_options *options, int64_t now_ns)
{
	struct lk__h2 *h2 = calloc(1, sizeof(*h2));

	if (!h2)
		return NULL;
	lk__rpcs_init(&h2->rpcs);
	h2->heard_ns = h2->pinged_ns = now_ns;
	h2->ping_timeout_ns = options->ping_timeout_ns;
	h2->tls = options->tls;
	snprintf(h2->authority, sizeof(h2->authority), "%s", options->authority);
	if (start(h2))
		return h2;
	lk__h2_free(h2);
	return NULL;
}

void lk__h2_free(struct lk__h2 *h2)
{
	if (!h2)
		return;
	die_of(h2, LK_ECLOSED, "closed");
	lk__rpcs_fini(&h2->rpcs);
	nghttp2_session_del(h2->session);
	free(h2->token);
	free(h2);
}

lk_err lk__h2_set_token(struct lk__h2 *h2, struct lk__bytes token)
{
	const char *bytes = token.data;
	char *copy = NULL;

	for (size_t i = 0; i < token.len; i++)
		if (bytes[i] <= ' ' || bytes[i] > '~')
			return LK_ESERVER;
	if (token.len) {
		copy = malloc(token.len + 1);
		if (!copy)
			return LK_ENOMEM;
		memcpy(copy, bytes, token.len);
		copy[token.len] = '\0';
	}
	free(h2->token);
	h2->token = copy;
	return LK_OK;
}

void lk__h2_feed(struct lk__h2 *h2, const void *bytes, size_t len, int64_t now_ns)
{
	h2_ssize got;

	if (h2->is_dead || !len)
		return;
	h2->heard_ns = now_ns;
	got = session_receive(h2->session, bytes, len);
	if (got < 0)
		die_by(h2, got);
	else
		die_if_over(h2);
}

void lk__h2_lost(struct lk__h2 *h2, const struct lk__why *why)
{
	/* A GOAWAY had the reason. */
	die(h2, h2->is_draining ? &h2->why : why);
}

void lk__h2_write(struct lk__h2 *h2, struct lk__buf *buf)
{
	const uint8_t *bytes;
	h2_ssize len;

	if (h2->is_dead)
		return;
	while ((len = session_send(h2->session, &bytes)) > 0)
		if (!lk__grpc_append(buf, bytes, (size_t)len)) {
			len = NGHTTP2_ERR_NOMEM;
			break;
		}
	if (len < 0)
		die_by(h2, len);
	else
		die_if_over(h2);
}

/* ---- Time ----------------------------------------------------------------------------------- */

static bool awaits_pong(const struct lk__h2 *h2)
{
	return h2->pinged_ns > h2->heard_ns;
}

/* A server does not allow PINGs while nothing is open. */
static int64_t ping_due_ns(const struct lk__h2 *h2)
{
	if (!h2->rpcs.count)
		return LK__H2_NEVER;
	if (awaits_pong(h2))
		return h2->pinged_ns + h2->ping_timeout_ns;
	return h2->heard_ns + PING_NS;
}

int64_t lk__h2_due_ns(const struct lk__h2 *h2)
{
	int64_t due_ns = ping_due_ns(h2);

	if (h2->is_dead)
		return LK__H2_NEVER;
	for (const struct lk__rpc *rpc = h2->rpcs.first; rpc; rpc = rpc->next)
		if (rpc->deadline_ns < due_ns)
			due_ns = rpc->deadline_ns;
	return due_ns;
}

void lk__h2_tick(struct lk__h2 *h2, int64_t now_ns)
{
	struct lk__rpc *rpc, *next;

	if (h2->is_dead)
		return;
	if (ping_due_ns(h2) <= now_ns) {
		if (awaits_pong(h2)) {
			die_of(h2, LK_ECONN, "no response to a PING");
			return;
		}
		h2->pinged_ns = now_ns;
		if (nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, NULL))
			die_of(h2, LK_ENOMEM, "out of memory");
	}
	for (rpc = h2->rpcs.first; rpc; rpc = next) {
		next = rpc->next;
		if (rpc->deadline_ns > now_ns)
			continue;
		reset(h2, rpc->id);
		lk__rpc_end(&h2->rpcs, rpc, rpc->is_sent ? LK__H2_LOST : LK__H2_NOT_RUN,
		            LK__GRPC_DEADLINE_EXCEEDED, "no response in time");
	}
}

/* ---- Events --------------------------------------------------------------------------------- */

static bool report_once(bool happened, bool *reported)
{
	if (!happened || *reported)
		return false;
	*reported = true;
	return true;
}

bool lk__h2_next(struct lk__h2 *h2, struct lk__h2_event *event)
{
	*event = (struct lk__h2_event){.text = "", .why = &h2->why};
	if (lk__rpcs_next(&h2->rpcs, event))
		return true;
	if (report_once(h2->is_draining, &h2->draining_reported))
		event->kind = LK__H2_DRAINING;
	else if (report_once(h2->is_dead, &h2->dead_reported))
		event->kind = LK__H2_DEAD;
	else
		return false;
	return true;
}

#endif
