/* SPDX-License-Identifier: MIT
 * The framing and the status of gRPC. */
#include "grpc.h"

#include "../base/text.h"

#include <stdlib.h>
#include <string.h>

#define SMALLEST_BUFFER 256

bool lk__grpc_append(struct lk__buf *buf, const void *bytes, size_t len)
{
	size_t cap = buf->cap ? buf->cap : SMALLEST_BUFFER;

	if (len > buf->cap - buf->len) {
		char *data;
		while (cap - buf->len < len)
			cap *= 2;
		data = realloc(buf->data, cap);
		if (!data)
			return false;
		buf->data = data;
		buf->cap = cap;
	}
	if (len)
		memcpy(buf->data + buf->len, bytes, len);
	buf->len += len;
	return true;
}

bool lk__grpc_frame(struct lk__buf *buf, const void *message, size_t len)
{
	const unsigned char prefix[LK__GRPC_PREFIX] = {
		0, (unsigned char)(len >> 24), (unsigned char)(len >> 16),
		(unsigned char)(len >> 8), (unsigned char)len};
	const size_t before = buf->len;

	if (lk__grpc_append(buf, prefix, sizeof(prefix)) && lk__grpc_append(buf, message, len))
		return true;
	buf->len = before;
	return false;
}

/* ---- Messages ------------------------------------------------------------------------------- */

static size_t claimed_len(const struct lk__grpc_reader *reader)
{
	const unsigned char *prefix = reader->prefix;

	return (size_t)prefix[1] << 24 | (size_t)prefix[2] << 16 | (size_t)prefix[3] << 8 |
	       prefix[4];
}

/* Advance over at most max bytes; returns how many. */
static size_t take(const unsigned char **bytes, size_t *len, size_t max)
{
	size_t taken = *len < max ? *len : max;

	*bytes += taken;
	*len -= taken;
	return taken;
}

enum lk__grpc_got lk__grpc_read(struct lk__grpc_reader *reader, const unsigned char **bytes,
                                size_t *len)
{
	const unsigned char *from = *bytes;
	size_t taken = take(bytes, len, LK__GRPC_PREFIX - reader->prefix_len);

	memcpy(reader->prefix + reader->prefix_len, from, taken);
	reader->prefix_len += taken;
	if (reader->prefix_len < LK__GRPC_PREFIX)
		return LK__GRPC_MORE;
	if (reader->prefix[0])
		return LK__GRPC_COMPRESSED;
	if (claimed_len(reader) > LK__GRPC_MESSAGE_MAX)
		return LK__GRPC_TOO_LARGE;
	from = *bytes;
	taken = take(bytes, len, claimed_len(reader) - reader->message.len);
	if (!lk__grpc_append(&reader->message, from, taken))
		return LK__GRPC_NO_MEMORY;
	if (reader->message.len < claimed_len(reader))
		return LK__GRPC_MORE;
	reader->prefix_len = 0;
	return LK__GRPC_MESSAGE;
}

bool lk__grpc_is_between(const struct lk__grpc_reader *reader)
{
	return !reader->prefix_len;
}

void lk__grpc_reader_fini(struct lk__grpc_reader *reader)
{
	lk__buf_fini(&reader->message);
	reader->prefix_len = 0;
}

/* ---- Status --------------------------------------------------------------------------------- */

int lk__grpc_status_parse(const char *text, size_t len)
{
	int64_t number;

	if (!lk__parse_i64(text, len, LK__GRPC_OK, LK__GRPC_UNAUTHENTICATED, &number))
		return LK__GRPC_UNKNOWN;
	return (int)number;
}

void lk__grpc_text(char out[LK__GRPC_TEXT], const char *encoded, size_t len)
{
	unsigned char raw[LK__GRPC_TEXT];
	size_t count = 0;

	/* One more byte than fits makes the text end in dots. */
	for (size_t i = 0; i < len && count < sizeof(raw); i++) {
		int high = i + 2 < len && encoded[i] == '%' ? lk__hex_digit(encoded[i + 1]) : -1;
		int low = high >= 0 ? lk__hex_digit(encoded[i + 2]) : -1;
		raw[count++] = (unsigned char)(low >= 0 ? high << 4 | low : encoded[i]);
		if (low >= 0)
			i += 2;
	}
	lk__escape(out, LK__GRPC_TEXT, (const char *)raw, count);
}

int lk__grpc_status_of_http(int status)
{
	switch (status) {
	case 400:
		return LK__GRPC_INTERNAL;
	case 401:
		return LK__GRPC_UNAUTHENTICATED;
	case 403:
		return LK__GRPC_PERMISSION_DENIED;
	case 404:
		return LK__GRPC_UNIMPLEMENTED;
	case 429:
	case 502:
	case 503:
	case 504:
		return LK__GRPC_UNAVAILABLE;
	default:
		return LK__GRPC_UNKNOWN;
	}
}

int lk__grpc_status_of_reset(uint32_t code)
{
	switch (code) {
	case 0x7: /* REFUSED_STREAM */
		return LK__GRPC_UNAVAILABLE;
	case 0x8: /* CANCEL */
		return LK__GRPC_CANCELLED;
	case 0xb: /* ENHANCE_YOUR_CALM */
		return LK__GRPC_RESOURCE_EXHAUSTED;
	case 0xc: /* INADEQUATE_SECURITY */
		return LK__GRPC_PERMISSION_DENIED;
	default:
		return LK__GRPC_INTERNAL;
	}
}
