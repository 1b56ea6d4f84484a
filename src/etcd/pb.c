/* SPDX-License-Identifier: MIT
 * The wire format of Protocol Buffers.  A message is a sequence of fields; each begins with a key,
 * which has the field's number and one of four types.  All lengths are checked against the bytes
 * that are there, in each message against its own: no length inside can reach beyond its parent. */
#include "pb.h"

#include <string.h>

enum wire_type { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

#define VARINT_MAX 10 /* bytes of a 64-bit number, of 7 bits each */
#define FIELD_MAX ((UINT32_C(1) << 29) - 1)

/* ---- Writing -------------------------------------------------------------------------------- */

void lk__pb_writer_init(struct lk__pb_writer *writer, void *data, size_t size)
{
	*writer = (struct lk__pb_writer){.data = data, .size = size};
}

static void put_raw(struct lk__pb_writer *writer, const void *data, size_t len)
{
	if (writer->is_full || len > writer->size - writer->len) {
		writer->is_full = true;
		return;
	}
	if (len)
		memcpy(writer->data + writer->len, data, len);
	writer->len += len;
}

static size_t varint_encode(unsigned char out[VARINT_MAX], uint64_t value)
{
	size_t len = 0;

	while (value >= 0x80) {
		out[len++] = (unsigned char)(value | 0x80);
		value >>= 7;
	}
	out[len++] = (unsigned char)value;
	return len;
}

static void put_varint(struct lk__pb_writer *writer, uint64_t value)
{
	unsigned char bytes[VARINT_MAX];

	put_raw(writer, bytes, varint_encode(bytes, value));
}

static void put_key(struct lk__pb_writer *writer, uint32_t field, enum wire_type type)
{
	put_varint(writer, (uint64_t)field << 3 | type);
}

void lk__pb_put_chosen_number(struct lk__pb_writer *writer, uint32_t field, uint64_t value)
{
	put_key(writer, field, VARINT);
	put_varint(writer, value);
}

void lk__pb_put_number(struct lk__pb_writer *writer, uint32_t field, uint64_t value)
{
	if (value)
		lk__pb_put_chosen_number(writer, field, value);
}

void lk__pb_put_chosen_bytes(struct lk__pb_writer *writer, uint32_t field, struct lk__bytes bytes)
{
	put_key(writer, field, LENGTH);
	put_varint(writer, bytes.len);
	put_raw(writer, bytes.data, bytes.len);
}

void lk__pb_put_bytes(struct lk__pb_writer *writer, uint32_t field, struct lk__bytes bytes)
{
	if (bytes.len)
		lk__pb_put_chosen_bytes(writer, field, bytes);
}

size_t lk__pb_begin(struct lk__pb_writer *writer, uint32_t field)
{
	put_key(writer, field, LENGTH);
	return writer->len;
}

/* The length is known only now: move the message to make room for it. */
void lk__pb_end(struct lk__pb_writer *writer, size_t begun)
{
	unsigned char bytes[VARINT_MAX];
	size_t len, prefix;

	if (writer->is_full)
		return;
	len = writer->len - begun;
	prefix = varint_encode(bytes, len);
	put_raw(writer, bytes, prefix);
	if (writer->is_full)
		return;
	memmove(writer->data + begun + prefix, writer->data + begun, len);
	memcpy(writer->data + begun, bytes, prefix);
}

/* ---- Reading -------------------------------------------------------------------------------- */

struct field {
	uint32_t number;
	enum wire_type type;
	uint64_t value;         /* VARINT */
	struct lk__bytes bytes; /* LENGTH */
};

/* Take a number off the front.  False if it does not end, or has more than 64 bits. */
static bool take_varint(struct lk__bytes *rest, uint64_t *value)
{
	const unsigned char *bytes = rest->data;

	*value = 0;
	for (size_t i = 0; i < rest->len && i < VARINT_MAX; i++) {
		if (i == VARINT_MAX - 1 && bytes[i] > 1)
			return false;
		*value |= (uint64_t)(bytes[i] & 0x7f) << (7 * i);
		if (bytes[i] < 0x80) {
			*rest = (struct lk__bytes){bytes + i + 1, rest->len - i - 1};
			return true;
		}
	}
	return false;
}

static bool take_raw(struct lk__bytes *rest, uint64_t len, struct lk__bytes *taken)
{
	if (len > rest->len)
		return false;
	*taken = (struct lk__bytes){rest->data, (size_t)len};
	*rest = (struct lk__bytes){(const char *)rest->data + len, rest->len - (size_t)len};
	return true;
}

/* Take the next field off the front of a message that is not at its end. */
static bool take_field(struct lk__bytes *rest, struct field *field)
{
	uint64_t key, len;

	if (!take_varint(rest, &key) || key >> 3 < 1 || key >> 3 > FIELD_MAX)
		return false;
	field->number = (uint32_t)(key >> 3);
	field->type = (enum wire_type)(key & 7);
	switch (field->type) {
	case VARINT:
		return take_varint(rest, &field->value);
	case FIXED64:
		return take_raw(rest, 8, &field->bytes);
	case FIXED32:
		return take_raw(rest, 4, &field->bytes);
	case LENGTH:
		return take_varint(rest, &len) && take_raw(rest, len, &field->bytes);
	default: /* groups, which proto3 does not have */
		return false;
	}
}

static const struct lk__pb_rule *find_rule(const struct lk__pb_shape *shape, uint32_t number)
{
	for (size_t i = 0; i < shape->count; i++)
		if (shape->rules[i].field == number)
			return &shape->rules[i];
	return NULL;
}

static bool read_message(const struct lk__pb_shape *shape, struct lk__bytes message, void *out);

/* Store a number; out is the structure, NULL = check only. */
static bool read_number(const struct lk__pb_rule *rule, const struct field *field, char *out)
{
	const uint32_t word = (uint32_t)field->value;
	const bool flag = field->value != 0;

	if (field->type != VARINT || (rule->kind == LK__PB_WORD && field->value > UINT32_MAX))
		return false;
	if (!out)
		return true;
	if (rule->kind == LK__PB_NUMBER)
		memcpy(out + rule->offset, &field->value, sizeof(field->value));
	else if (rule->kind == LK__PB_WORD)
		memcpy(out + rule->offset, &word, sizeof(word));
	else
		memcpy(out + rule->offset, &flag, sizeof(flag));
	return true;
}

static bool read_part(const struct lk__pb_rule *rule, struct lk__bytes message, char *out)
{
	if (out && rule->kind == LK__PB_OPTION)
		out[rule->present] = true;
	return read_message(rule->part, message, out ? out + rule->offset : NULL);
}

/* Check an element, and count it: lk__pb_next() reads it again. */
static bool read_element(const struct lk__pb_rule *rule, struct lk__bytes element, char *out)
{
	struct lk__pb_list list;

	if (rule->part && !read_message(rule->part, element, NULL))
		return false;
	if (out) {
		memcpy(&list, out + rule->offset, sizeof(list));
		list.count++;
		memcpy(out + rule->offset, &list, sizeof(list));
	}
	return true;
}

static bool read_field(const struct lk__pb_rule *rule, const struct field *field, char *out)
{
	switch ((enum lk__pb_kind)rule->kind) {
	case LK__PB_NUMBER:
	case LK__PB_WORD:
	case LK__PB_FLAG:
		return read_number(rule, field, out);
	default:
		break;
	}
	if (field->type != LENGTH)
		return false;
	if (rule->kind == LK__PB_PART || rule->kind == LK__PB_OPTION)
		return read_part(rule, field->bytes, out);
	if (rule->kind == LK__PB_LIST)
		return read_element(rule, field->bytes, out);
	if (out)
		memcpy(out + rule->offset, &field->bytes, sizeof(field->bytes));
	return true;
}

/* Zero the structure, and give each list the message that its elements are in. */
static void prepare(const struct lk__pb_shape *shape, struct lk__bytes message, char *out)
{
	memset(out, 0, shape->size);
	for (size_t i = 0; i < shape->count; i++) {
		const struct lk__pb_rule *rule = &shape->rules[i];
		if (rule->kind == LK__PB_LIST)
			memcpy(out + rule->offset,
			       &(struct lk__pb_list){.rest = message, .rule = rule},
			       sizeof(struct lk__pb_list));
	}
}

/* out is NULL: check only. */
static bool read_message(const struct lk__pb_shape *shape, struct lk__bytes message, void *out)
{
	struct lk__bytes rest = message;
	struct field field = {0};

	if (out)
		prepare(shape, message, out);
	while (rest.len) {
		const struct lk__pb_rule *rule;
		if (!take_field(&rest, &field))
			return false;
		rule = find_rule(shape, field.number);
		if (rule && !read_field(rule, &field, out))
			return false;
	}
	return true;
}

bool lk__pb_read(const struct lk__pb_shape *shape, const void *data, size_t len, void *out)
{
	return read_message(shape, (struct lk__bytes){data, len}, out);
}

bool lk__pb_next(struct lk__pb_list *list, void *out)
{
	struct field field = {0};

	while (list->count && list->rest.len && take_field(&list->rest, &field)) {
		if (field.number != list->rule->field)
			continue;
		list->count--;
		if (list->rule->part)
			return read_message(list->rule->part, field.bytes, out);
		memcpy(out, &field.bytes, sizeof(field.bytes));
		return true;
	}
	return false;
}
