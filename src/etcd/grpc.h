/* SPDX-License-Identifier: MIT
 * What gRPC adds to HTTP/2: the frame around a message, numbers of a status, and the text of one.
 * Without I/O. */
#ifndef LK__GRPC_H
#define LK__GRPC_H

#include "../base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LK__GRPC_PREFIX 5                      /* bytes before a message: a flag, and its length */
#define LK__GRPC_MESSAGE_MAX ((size_t)4 << 20) /* etcd allows requests of 1.5 MiB */
#define LK__GRPC_TEXT 200                      /* of a status, with its NUL */

enum lk__grpc_status {
	LK__GRPC_OK,
	LK__GRPC_CANCELLED,
	LK__GRPC_UNKNOWN,
	LK__GRPC_INVALID_ARGUMENT,
	LK__GRPC_DEADLINE_EXCEEDED,
	LK__GRPC_NOT_FOUND,
	LK__GRPC_ALREADY_EXISTS,
	LK__GRPC_PERMISSION_DENIED,
	LK__GRPC_RESOURCE_EXHAUSTED,
	LK__GRPC_FAILED_PRECONDITION,
	LK__GRPC_ABORTED,
	LK__GRPC_OUT_OF_RANGE,
	LK__GRPC_UNIMPLEMENTED,
	LK__GRPC_INTERNAL,
	LK__GRPC_UNAVAILABLE,
	LK__GRPC_DATA_LOSS,
	LK__GRPC_UNAUTHENTICATED,
};

/* Append bytes; false when out of memory: the buffer is unchanged. */
bool lk__grpc_append(struct lk__buf *buf, const void *bytes, size_t len);
/* Append a message of at most LK__GRPC_MESSAGE_MAX bytes with its prefix; the same. */
bool lk__grpc_frame(struct lk__buf *buf, const void *message, size_t len);

/* Takes messages out of a stream of bytes, however they are cut.  Memory follows the bytes that are
 * there, not the length that a prefix claims. */
struct lk__grpc_reader {
	unsigned char prefix[LK__GRPC_PREFIX];
	size_t prefix_len;
	struct lk__buf message; /* so far; complete after LK__GRPC_MESSAGE */
};

enum lk__grpc_got {
	LK__GRPC_MORE,    /* the bytes are used up */
	LK__GRPC_MESSAGE, /* reader->message is complete: take it, and call again */
	/* The stream is unusable: */
	LK__GRPC_TOO_LARGE,
	LK__GRPC_COMPRESSED, /* which was never offered */
	LK__GRPC_NO_MEMORY,
};

/* Advance *bytes and *len up to the end of the next message. */
enum lk__grpc_got lk__grpc_read(struct lk__grpc_reader *reader, const unsigned char **bytes,
                                size_t *len);
/* Nothing of another message has been read. */
bool lk__grpc_is_between(const struct lk__grpc_reader *reader);
void lk__grpc_reader_fini(struct lk__grpc_reader *reader);

/* The number in the header grpc-status; LK__GRPC_UNKNOWN for what is none. */
int lk__grpc_status_parse(const char *text, size_t len);
/* Write the header grpc-message, which is percent-encoded, as printable text. */
void lk__grpc_text(char out[LK__GRPC_TEXT], const char *encoded, size_t len);
/* The status of a response without one, by the number of HTTP's status. */
int lk__grpc_status_of_http(int status);
/* The status of a stream that was reset, by HTTP/2's error code. */
int lk__grpc_status_of_reset(uint32_t code);

#endif
