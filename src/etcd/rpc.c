/* SPDX-License-Identifier: MIT
 * The calls and streams of one gRPC connection. */
#include "rpc.h"

#include "../base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Events --------------------------------------------------------------------------------- */

void lk__rpcs_init(struct lk__rpcs *rpcs)
{
	*rpcs = (struct lk__rpcs){0};
	rpcs->events_end = &rpcs->events;
}

static void free_event(struct lk__rpc_event *event)
{
	if (event)
		lk__buf_fini(&event->bytes);
	free(event);
}

void lk__rpcs_fini(struct lk__rpcs *rpcs)
{
	while (rpcs->events) {
		struct lk__rpc_event *event = rpcs->events;
		rpcs->events = event->next;
		free_event(event);
	}
	free_event(rpcs->given);
}

static void push(struct lk__rpcs *rpcs, struct lk__rpc_event *event)
{
	event->event.message = (struct lk__bytes){event->bytes.data, event->bytes.len};
	event->next = NULL;
	*rpcs->events_end = event;
	rpcs->events_end = &event->next;
}

bool lk__rpcs_next(struct lk__rpcs *rpcs, struct lk__h2_event *event)
{
	free_event(rpcs->given);
	rpcs->given = rpcs->events;
	if (!rpcs->given)
		return false;
	*event = rpcs->given->event;
	rpcs->events = rpcs->given->next;
	if (!rpcs->events)
		rpcs->events_end = &rpcs->events;
	return true;
}

/* ---- Begin and end -------------------------------------------------------------------------- */

static unsigned bucket_of(uint32_t id)
{
	return id / 2 % LK__RPC_BUCKETS; /* the ids of a client are odd */
}

struct lk__rpc *lk__rpc_new(bool is_stream, int64_t deadline_ns)
{
	struct lk__rpc *rpc = calloc(1, sizeof(*rpc));

	if (rpc) {
		rpc->is_stream = is_stream;
		rpc->deadline_ns = deadline_ns;
	}
	return rpc;
}

void lk__rpc_free(struct lk__rpc *rpc)
{
	lk__buf_fini(&rpc->out);
	free(rpc);
}

void lk__rpc_add(struct lk__rpcs *rpcs, struct lk__rpc *rpc, uint32_t id)
{
	struct lk__rpc **bucket = &rpcs->buckets[bucket_of(id)];

	rpc->id = id;
	rpc->chain = *bucket;
	*bucket = rpc;
	rpc->next = rpcs->first;
	if (rpc->next)
		rpc->next->prev = rpc;
	rpcs->first = rpc;
	rpcs->count++;
}

struct lk__rpc *lk__rpc_find(const struct lk__rpcs *rpcs, uint32_t id)
{
	struct lk__rpc *rpc = rpcs->buckets[bucket_of(id)];

	while (rpc && rpc->id != id)
		rpc = rpc->chain;
	return rpc;
}

static void unlink_rpc(struct lk__rpcs *rpcs, struct lk__rpc *rpc)
{
	struct lk__rpc **at = &rpcs->buckets[bucket_of(rpc->id)];

	while (*at != rpc)
		at = &(*at)->chain;
	*at = rpc->chain;
	if (rpc->prev)
		rpc->prev->next = rpc->next;
	else
		rpcs->first = rpc->next;
	if (rpc->next)
		rpc->next->prev = rpc->prev;
	rpcs->count--;
	lk__buf_fini(&rpc->out);
	lk__grpc_reader_fini(&rpc->in);
}

void lk__rpc_end(struct lk__rpcs *rpcs, struct lk__rpc *rpc, enum lk__h2_fate fate, int status,
                 const char *text)
{
	unlink_rpc(rpcs, rpc);
	if (text)
		snprintf(rpc->text, sizeof(rpc->text), "%.*s", LK__GRPC_TEXT - 1, text);
	if (status == LK__GRPC_OK)
		rpc->last.bytes = rpc->answer;
	else
		lk__buf_fini(&rpc->answer);
	rpc->last.event = (struct lk__h2_event){
		.kind = rpc->is_stream ? LK__H2_ENDED : LK__H2_ANSWER,
		.fate = fate,
		.id = rpc->id,
		.status = status,
		.text = rpc->text,
	};
	push(rpcs, &rpc->last);
}

void lk__rpc_drop(struct lk__rpcs *rpcs, struct lk__rpc *rpc)
{
	unlink_rpc(rpcs, rpc);
	lk__buf_fini(&rpc->answer);
	free_event(&rpc->last);
}

size_t lk__rpc_take(struct lk__rpc *rpc, void *out, size_t size, bool *is_last)
{
	size_t len = rpc->out.len - rpc->out_at;

	if (len > size)
		len = size;
	if (len)
		memcpy(out, rpc->out.data + rpc->out_at, len);
	rpc->out_at += len;
	*is_last = false;
	if (rpc->out_at == rpc->out.len) {
		rpc->out.len = rpc->out_at = 0;
		*is_last = !rpc->is_stream;
	}
	return len;
}

/* ---- Responses ------------------------------------------------------------------------------ */

static bool is(struct lk__bytes bytes, const char *text)
{
	return bytes.len == strlen(text) && !memcmp(bytes.data, text, bytes.len);
}

static bool begins(struct lk__bytes bytes, const char *text)
{
	return bytes.len >= strlen(text) && !memcmp(bytes.data, text, strlen(text));
}

void lk__rpc_header(struct lk__rpc *rpc, struct lk__bytes name, struct lk__bytes value)
{
	int64_t number;

	if (is(name, ":status") && lk__parse_i64(value.data, value.len, 0, 999, &number)) {
		rpc->http_status = (int)number;
	} else if (is(name, "content-type")) {
		rpc->is_grpc = begins(value, "application/grpc");
	} else if (is(name, "grpc-status")) {
		rpc->status = lk__grpc_status_parse(value.data, value.len);
		rpc->has_status = true;
	} else if (is(name, "grpc-message")) {
		lk__grpc_text(rpc->text, value.data, value.len);
	}
}

/* Pass a complete message on; false when out of memory. */
static bool take_message(struct lk__rpcs *rpcs, struct lk__rpc *rpc)
{
	struct lk__rpc_event *event;

	if (rpc->is_stream) {
		event = calloc(1, sizeof(*event));
		if (!event)
			return false;
		event->bytes = rpc->in.message;
		event->event =
			(struct lk__h2_event){.kind = LK__H2_MESSAGE, .id = rpc->id, .text = ""};
		push(rpcs, event);
	} else {
		rpc->answer = rpc->in.message;
		rpc->has_answer = true;
	}
	rpc->in.message = (struct lk__buf){0};
	return true;
}

static lk_err refuse(int *status, int number, const char **text, const char *reason)
{
	*status = number;
	*text = reason;
	return LK_ESERVER;
}

lk_err lk__rpc_data(struct lk__rpcs *rpcs, struct lk__rpc *rpc, const void *bytes, size_t len,
                    int *status, const char **text)
{
	const unsigned char *at = bytes;

	/* The page of a proxy is no message. */
	while (rpc->is_grpc && len) {
		switch (lk__grpc_read(&rpc->in, &at, &len)) {
		case LK__GRPC_MORE:
			return LK_OK;
		case LK__GRPC_MESSAGE:
			if (rpc->has_answer)
				return refuse(status, LK__GRPC_INTERNAL, text,
				              "more than one answer");
			if (!take_message(rpcs, rpc))
				return LK_ENOMEM;
			break;
		case LK__GRPC_TOO_LARGE:
			return refuse(status, LK__GRPC_RESOURCE_EXHAUSTED, text,
			              "a message is too large");
		case LK__GRPC_COMPRESSED:
			return refuse(status, LK__GRPC_INTERNAL, text, "a message is compressed");
		case LK__GRPC_NO_MEMORY:
			return LK_ENOMEM;
		}
	}
	return LK_OK;
}

void lk__rpc_complete(struct lk__rpcs *rpcs, struct lk__rpc *rpc)
{
	char text[LK__GRPC_TEXT];

	if (rpc->has_status && rpc->status != LK__GRPC_OK) {
		lk__rpc_end(rpcs, rpc, LK__H2_ANSWERED, rpc->status, NULL);
	} else if (rpc->has_status && !lk__grpc_is_between(&rpc->in)) {
		lk__rpc_end(rpcs, rpc, LK__H2_LOST, LK__GRPC_INTERNAL, "ended inside of a message");
	} else if (rpc->has_status && !rpc->is_stream && !rpc->has_answer) {
		lk__rpc_end(rpcs, rpc, LK__H2_LOST, LK__GRPC_INTERNAL, "no answer in the response");
	} else if (rpc->has_status) {
		lk__rpc_end(rpcs, rpc, LK__H2_ANSWERED, LK__GRPC_OK, NULL);
	} else if (rpc->is_grpc) {
		lk__rpc_end(rpcs, rpc, LK__H2_LOST, LK__GRPC_UNKNOWN, "ended without a status");
	} else {
		snprintf(text, sizeof(text), "not a response of gRPC (HTTP status %d)",
		         rpc->http_status);
		lk__rpc_end(rpcs, rpc, LK__H2_LOST, lk__grpc_status_of_http(rpc->http_status),
		            text);
	}
}
