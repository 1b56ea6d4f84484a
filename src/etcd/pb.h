/* SPDX-License-Identifier: MIT
 * The wire format of Protocol Buffers: a writer into memory of the caller, and a reader that fills
 * plain structures by a description of their fields.  Neither allocates memory. */
#ifndef LK__PB_H
#define LK__PB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lk__bytes {
	const void *data; /* borrowed */
	size_t len;
};

/* ---- Writing -------------------------------------------------------------------------------- */

struct lk__pb_writer {
	unsigned char *data;
	size_t len, size;
	bool is_full; /* something did not fit: the message is unusable */
};

void lk__pb_writer_init(struct lk__pb_writer *writer, void *data, size_t size);

/* Append a field.  As proto3 has it, 0, false and no bytes are the default, which is not sent. */
void lk__pb_put_number(struct lk__pb_writer *writer, uint32_t field, uint64_t value);
void lk__pb_put_bytes(struct lk__pb_writer *writer, uint32_t field, struct lk__bytes bytes);
/* The same for a member of a "oneof": the default is sent, too. */
void lk__pb_put_chosen_number(struct lk__pb_writer *writer, uint32_t field, uint64_t value);
void lk__pb_put_chosen_bytes(struct lk__pb_writer *writer, uint32_t field, struct lk__bytes bytes);
/* All that is put between these is one message inside of this one, also if it is empty.  May be
 * nested; begin's result belongs to the matching end. */
size_t lk__pb_begin(struct lk__pb_writer *writer, uint32_t field);
void lk__pb_end(struct lk__pb_writer *writer, size_t begun);

/* ---- Reading -------------------------------------------------------------------------------- */

enum lk__pb_kind {
	LK__PB_NUMBER, /* uint64_t or int64_t */
	LK__PB_WORD,   /* uint32_t: an enumeration */
	LK__PB_FLAG,   /* bool */
	LK__PB_BYTES,  /* struct lk__bytes: a string, or bytes */
	LK__PB_PART,   /* the structure of another message */
	LK__PB_OPTION, /* the same, and a bool: it was there */
	LK__PB_LIST,   /* struct lk__pb_list: a repeated message, or string */
};

struct lk__pb_shape;

struct lk__pb_rule {
	uint32_t field;
	uint8_t kind;                    /* enum lk__pb_kind */
	uint16_t offset;                 /* in the structure */
	uint16_t present;                /* OPTION: the offset of the bool */
	const struct lk__pb_shape *part; /* PART, OPTION, LIST; NULL: a list of strings */
};

/* A message.  The descriptions of messages have no cycle, so reading has no depth to limit. */
struct lk__pb_shape {
	size_t size; /* of the structure */
	size_t count;
	const struct lk__pb_rule *rules;
};

/* The elements that are left of a repeated field.  A copy iterates again. */
struct lk__pb_list {
	size_t count;
	struct lk__bytes rest; /* of the message that has them */
	const struct lk__pb_rule *rule;
};

/* Fill out, the structure that shape describes, from a message; its bytes point into data.  Unknown
 * fields are skipped, and the last value of a field counts.  False if any of it, at any depth, is
 * not well-formed, or if a known field has another wire type: out is then undefined. */
bool lk__pb_read(const struct lk__pb_shape *shape, const void *data, size_t len, void *out);

/* Fill out from the next element: the structure of the rule's part, or a struct lk__bytes.  False
 * if there is none; lk__pb_read() has checked all of them. */
bool lk__pb_next(struct lk__pb_list *list, void *out);

#endif
