/* SPDX-License-Identifier: MIT
 * The RESP2 codec over hiredis' reader; no other file includes hiredis.  Replies are limited in
 * elements, bytes and depth, since hiredis itself trusts any length that a peer claims. */
#include "resp.h"

#include "../base/text.h"

#include <hiredis/hiredis.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Our replies nest three levels.  hiredis before 1.0 limits depth to 7, later versions do not. */
#define MAX_DEPTH 7
/* After a large reply, an empty reader frees a buffer larger than this. */
#define KEEP_BYTES (64u << 10)
/* A header like "$1234\r\n" has a decimal number of 64 bits at most. */
#define NUMBER_BYTES 20
/* Past that many parsed bytes hiredis moves the rest to the front of its buffer, but only when it
 * has parsed a reply itself. */
#define DISCARD_BYTES 1024
/* An array as small as our scripts' replies has its elements in its own memory while they fit:
 * strings of that many bytes on average. */
#define SMALL_ARRAY 8
#define SMALL_STRING 24
#define QUICK_DIGITS 18 /* cannot exceed an int64_t */
#define ALIGNMENT _Alignof(max_align_t)

struct lk__resp_reader {
	pthread_mutex_t mutex; /* guards all below; a leaf */
	redisReader *parser;
	size_t elements;             /* claimed so far by the current reply */
	size_t bytes;                /* of its strings so far */
	size_t peak;                 /* most that the parser's buffer ever had in it */
	const char *refused;         /* why we, not hiredis, failed; NULL = we did not */
	const struct lk__resp *host; /* an array with room for its elements behind it */
	char *room;
	size_t room_len;
};

/* The callbacks of hiredis.  NULL makes it stop with "out of memory"; ->refused marks a refusal
 * from that. */

static struct lk__resp *refuse(struct lk__resp_reader *reader, const char *text)
{
	reader->refused = text;
	return NULL;
}

/* Take memory inside the array that the reply is an element of, NULL if none is left. */
static struct lk__resp *take_room(struct lk__resp_reader *reader, const struct lk__resp *parent,
                                  size_t size)
{
	struct lk__resp *resp = (struct lk__resp *)(void *)reader->room;

	size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	if (!parent || parent != reader->host || size > reader->room_len)
		return NULL;
	reader->room += size;
	reader->room_len -= size;
	return resp;
}

/* Allocate a reply with payload bytes behind it and link it into its parent.  The payload is not
 * zeroed: calloc() bypasses malloc()'s cache for the thread. */
static struct lk__resp *resp_new(const redisReadTask *task, enum lk__resp_type type, size_t payload)
{
	struct lk__resp *parent = task->parent ? task->parent->obj : NULL;
	struct lk__resp *resp = take_room(task->privdata, parent, sizeof(*resp) + payload);
	const bool inside = resp != NULL;

	if (!resp)
		resp = malloc(sizeof(*resp) + payload);
	if (!resp)
		return NULL;
	*resp = (struct lk__resp){.type = type, .inside = inside};
	if (parent)
		parent->elements[task->idx] = resp;
	return resp;
}

/* The counts are for one reply: a root resets them. */
static struct lk__resp_reader *reader_of(const redisReadTask *task)
{
	struct lk__resp_reader *reader = task->privdata;

	if (!task->parent) {
		reader->elements = 1;
		reader->bytes = 0;
		reader->host = NULL;
	}
	return reader;
}

static void *create_string(const redisReadTask *task, char *bytes, size_t len)
{
	struct lk__resp_reader *reader = reader_of(task);
	enum lk__resp_type type;
	struct lk__resp *resp;

	switch (task->type) {
	case REDIS_REPLY_STRING:
		type = LK__RESP_STRING;
		/* hiredis skips the two bytes after the string without a check. */
		if (bytes[len] != '\r' || bytes[len + 1] != '\n')
			return refuse(reader, "a string exceeds its declared length");
		break;
	case REDIS_REPLY_STATUS:
	case REDIS_REPLY_ERROR:
		type = task->type == REDIS_REPLY_STATUS ? LK__RESP_STATUS : LK__RESP_ERROR;
		if (memchr(bytes, '\n', len) || memchr(bytes, '\r', len))
			return refuse(reader, "a line break inside a line");
		break;
	default:
		return refuse(reader, "a RESP3 reply to a RESP2 client");
	}
	if (len > LK__RESP_MAX_BYTES - reader->bytes)
		return refuse(reader, "too large");
	reader->bytes += len;
	resp = resp_new(task, type, len + 1);
	if (!resp)
		return NULL;
	resp->str = (char *)(resp + 1);
	resp->len = len;
	memcpy(resp->str, bytes, len);
	resp->str[len] = '\0';
	return resp;
}

static void *create_array_sized(const redisReadTask *task, size_t count)
{
	struct lk__resp_reader *reader = reader_of(task);
	struct lk__resp *resp;
	size_t room = 0;
	int depth = 1;

	if (task->type != REDIS_REPLY_ARRAY)
		return refuse(reader, "a RESP3 reply to a RESP2 client");
	for (const redisReadTask *up = task->parent; up; up = up->parent)
		if (++depth > MAX_DEPTH)
			return refuse(reader, "nested too deeply");
	if (count > LK__RESP_MAX_ELEMENTS - reader->elements)
		return refuse(reader, "too many elements");
	reader->elements += count;
	if (count <= SMALL_ARRAY)
		room = count * (sizeof(*resp) + SMALL_STRING);
	resp = resp_new(task, LK__RESP_ARRAY, count * sizeof(struct lk__resp *) + room);
	if (!resp)
		return NULL;
	resp->elements = (struct lk__resp **)(void *)(resp + 1);
	resp->len = count;
	if (count)
		memset(resp->elements, 0, count * sizeof(struct lk__resp *));
	if (room) {
		reader->host = resp;
		reader->room = (char *)(resp->elements + count);
		reader->room_len = room;
	}
	return resp;
}

static void *create_integer(const redisReadTask *task, long long value)
{
	struct lk__resp *resp;

	(void)reader_of(task);
	resp = resp_new(task, LK__RESP_INTEGER, 0);
	if (resp)
		resp->integer = value;
	return resp;
}

static void *create_nil(const redisReadTask *task)
{
	struct lk__resp_reader *reader = reader_of(task);

	if (task->type != REDIS_REPLY_STRING && task->type != REDIS_REPLY_ARRAY)
		return refuse(reader, "a RESP3 reply to a RESP2 client");
	return resp_new(task, LK__RESP_NIL, 0);
}

static void free_object(void *object)
{
	lk__resp_free(object);
}

#if HIREDIS_MAJOR >= 1
static void *create_array(const redisReadTask *task, size_t count)
{
	return create_array_sized(task, count);
}

static void *create_double(const redisReadTask *task, double value, char *bytes, size_t len)
{
	(void)value;
	(void)bytes;
	(void)len;
	return refuse(reader_of(task), "a RESP3 reply to a RESP2 client");
}

static void *create_bool(const redisReadTask *task, int value)
{
	(void)value;
	return refuse(reader_of(task), "a RESP3 reply to a RESP2 client");
}
#else
static void *create_array(const redisReadTask *task, int count)
{
	return create_array_sized(task, (size_t)count);
}
#endif

/* Writable because hiredis wants it so; it never writes. */
static redisReplyObjectFunctions functions = {
	.createString = create_string,
	.createArray = create_array,
	.createInteger = create_integer,
	.createNil = create_nil,
#if HIREDIS_MAJOR >= 1
	.createDouble = create_double,
	.createBool = create_bool,
#endif
	.freeObject = free_object,
};

static redisReader *parser_new(struct lk__resp_reader *reader)
{
	redisReader *parser = redisReaderCreateWithFunctions(&functions);

	if (!parser)
		return NULL;
	parser->privdata = reader;
	/* hiredis 0.14 would otherwise shrink its buffer by itself and assert that this cannot
	 * fail. */
	parser->maxbuf = 0;
	return parser;
}

struct lk__resp_reader *lk__resp_reader_new(void)
{
	struct lk__resp_reader *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return NULL;
	if (pthread_mutex_init(&reader->mutex, NULL) == 0) {
		reader->parser = parser_new(reader);
		if (reader->parser)
			return reader;
		pthread_mutex_destroy(&reader->mutex);
	}
	free(reader);
	return NULL;
}

void lk__resp_reader_free(struct lk__resp_reader *reader)
{
	if (!reader)
		return;
	redisReaderFree(reader->parser);
	pthread_mutex_destroy(&reader->mutex);
	free(reader);
}

static lk_err reader_failed(const struct lk__resp_reader *reader, struct lk__why *why)
{
	if (reader->refused)
		return lk__why_set(why, LK_ESERVER, "invalid reply: %s", reader->refused);
	if (reader->parser->err == REDIS_ERR_PROTOCOL)
		return lk__why_set(why, LK_ESERVER, "invalid reply: not the Redis protocol");
	return lk__why_set(why, LK_ENOMEM, "out of memory");
}

static lk_err feed(struct lk__resp_reader *reader, const char *bytes, size_t len,
                   struct lk__why *why)
{
	redisReader *parser = reader->parser;

	if (!reader->refused && !parser->err &&
	    len > LK__RESP_MAX_BYTES - (parser->len - parser->pos))
		reader->refused = "too large";
	if (reader->refused || redisReaderFeed(parser, bytes, len) != REDIS_OK)
		return reader_failed(reader, why);
	if (parser->len > reader->peak)
		reader->peak = parser->len;
	return LK_OK;
}

lk_err lk__resp_feed(struct lk__resp_reader *reader, const char *bytes, size_t len,
                     struct lk__why *why)
{
	lk_err err;

	pthread_mutex_lock(&reader->mutex);
	err = feed(reader, bytes, len, why);
	pthread_mutex_unlock(&reader->mutex);
	return err;
}

/* Between replies, replace a large empty buffer by a small one. */
static void reader_trim(struct lk__resp_reader *reader)
{
	redisReader *parser;

	if (reader->peak <= KEEP_BYTES || reader->parser->pos != reader->parser->len)
		return;
	parser = parser_new(reader);
	if (!parser)
		return;
	redisReaderFree(reader->parser);
	reader->parser = parser;
	reader->peak = 0;
}

/* ---- The format of nearly all replies ------------------------------------------------------- */

/* Parse a line of a sign and a number as Redis writes it.  Moves *at past it. */
static inline bool quick_number(char **at, const char *end, char sign, int64_t *value)
{
	char *start = *at, *digit = start + 1;
	int64_t sum = 0;

	if (end - start < 4 || *start != sign || (*digit == '0' && digit[1] != '\r'))
		return false;
	for (; digit < end && (unsigned char)(*digit - '0') < 10; digit++) {
		if (digit - start > QUICK_DIGITS)
			return false;
		sum = sum * 10 + (*digit - '0');
	}
	if (digit == start + 1 || end - digit < 2 || digit[0] != '\r' || digit[1] != '\n')
		return false;
	*at = digit + 2;
	*value = sum;
	return true;
}

static bool quick_element(char **at, const char *end, struct lk__resp *part)
{
	int64_t len;

	if (*at < end && **at == ':') {
		*part = (struct lk__resp){.type = LK__RESP_INTEGER, .inside = true};
		return quick_number(at, end, ':', &part->integer);
	}
	if (!quick_number(at, end, '$', &len) || len > end - *at - 2 || (*at)[len] != '\r' ||
	    (*at)[len + 1] != '\n')
		return false;
	*part = (struct lk__resp){
		.type = LK__RESP_STRING, .inside = true, .len = (size_t)len, .str = *at};
	*at += len + 2;
	return true;
}

/* Parse a small, complete array of integers and strings, several times as fast as hiredis.  NULL
 * for anything else, also malformed data: hiredis handles that. */
static struct lk__resp *quick_array(redisReader *parser)
{
	char *at = parser->buf + parser->pos, *end = parser->buf + parser->len;
	struct lk__resp parts[SMALL_ARRAY], *resp, *part;
	size_t bytes = 0;
	int64_t count;
	char *str;

	if (parser->err || parser->ridx >= 0 || parser->pos >= DISCARD_BYTES ||
	    !quick_number(&at, end, '*', &count) || count < 1 || count > SMALL_ARRAY)
		return NULL;
	for (int64_t i = 0; i < count; i++) {
		if (!quick_element(&at, end, &parts[i]))
			return NULL;
		bytes += sizeof(*resp) + sizeof(resp) + parts[i].len + 1;
	}
	resp = malloc(sizeof(*resp) + bytes);
	if (!resp)
		return NULL;
	part = resp + 1;
	*resp = (struct lk__resp){.type = LK__RESP_ARRAY, .len = (size_t)count};
	resp->elements = (struct lk__resp **)(void *)(part + count);
	str = (char *)(resp->elements + count);
	for (int64_t i = 0; i < count; i++) {
		resp->elements[i] = &part[i];
		part[i] = parts[i];
		if (part[i].type != LK__RESP_STRING)
			continue;
		part[i].str = memcpy(str, parts[i].str, parts[i].len);
		str[parts[i].len] = '\0';
		str += parts[i].len + 1;
	}
	parser->pos = (size_t)(at - parser->buf);
	return resp;
}

/* ---- Replies -------------------------------------------------------------------------------- */

static lk_err next(struct lk__resp_reader *reader, struct lk__resp **resp, struct lk__why *why)
{
	redisReader *parser = reader->parser;
	void *reply = NULL;

	*resp = NULL;
	if (reader->refused)
		return reader_failed(reader, why);
	/* Callers that drain the reader ask once more after the last reply. */
	if (parser->pos == parser->len && !parser->err)
		return LK_OK;
	reply = quick_array(parser);
	if (!reply && redisReaderGetReply(parser, &reply) != REDIS_OK)
		return reader_failed(reader, why);
	*resp = reply;
	if (reply)
		reader_trim(reader);
	return LK_OK;
}

lk_err lk__resp_next(struct lk__resp_reader *reader, struct lk__resp **resp, struct lk__why *why)
{
	lk_err err;

	pthread_mutex_lock(&reader->mutex);
	err = next(reader, resp, why);
	pthread_mutex_unlock(&reader->mutex);
	return err;
}

size_t lk__resp_take(struct lk__resp_reader *reader, void **resps, size_t max, lk_err *err,
                     struct lk__why *why)
{
	struct lk__resp *resp = NULL;
	size_t count = 0;

	pthread_mutex_lock(&reader->mutex);
	while (count < max && !(*err = next(reader, &resp, why)) && resp)
		resps[count++] = resp;
	pthread_mutex_unlock(&reader->mutex);
	return count;
}

void lk__resp_free(struct lk__resp *resp)
{
	if (!resp)
		return;
	if (resp->type == LK__RESP_ARRAY)
		for (size_t i = 0; i < resp->len; i++)
			lk__resp_free(resp->elements[i]);
	if (!resp->inside)
		free(resp);
}

/* Make room for more bytes, or return false with the buffer unchanged. */
static bool buf_reserve(struct lk__buf *buf, size_t more)
{
	size_t cap = buf->cap ? buf->cap : 256;
	char *data;

	if (more > SIZE_MAX / 4 - buf->len)
		return false;
	while (cap < buf->len + more)
		cap *= 2;
	if (cap == buf->cap)
		return true;
	data = realloc(buf->data, cap);
	if (!data)
		return false;
	buf->data = data;
	buf->cap = cap;
	return true;
}

/* Nearly all lengths have one or two digits, and a command has a dozen of them. */
static inline char *put_header(char *at, char type, size_t number)
{
	*at++ = type;
	if (number < 10) {
		*at++ = (char)('0' + number);
	} else if (number < 100) {
		*at++ = (char)('0' + number / 10);
		*at++ = (char)('0' + number % 10);
	} else {
		at += lk__decimal(at, (int64_t)number);
	}
	*at++ = '\r';
	*at++ = '\n';
	return at;
}

bool lk__resp_command(struct lk__buf *buf, int argc, const char *const *argv,
                      const size_t *argv_len)
{
	const size_t header = NUMBER_BYTES + 3;
	size_t total = header;
	char *at;

	for (int i = 0; i < argc; i++) {
		size_t len = argv_len ? argv_len[i] : strlen(argv[i]);
		if (len > SIZE_MAX / 8 - total)
			return false;
		total += header + len + 2;
	}
	if (!buf_reserve(buf, total))
		return false;
	at = put_header(buf->data + buf->len, '*', (size_t)argc);
	for (int i = 0; i < argc; i++) {
		size_t len = argv_len ? argv_len[i] : strlen(argv[i]);
		at = put_header(at, '$', len);
		if (len)
			memcpy(at, argv[i], len);
		at += len;
		*at++ = '\r';
		*at++ = '\n';
	}
	buf->len = (size_t)(at - buf->data);
	return true;
}
