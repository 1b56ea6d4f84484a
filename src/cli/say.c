/* SPDX-License-Identifier: MIT
 * Output for people: messages, escaping of foreign text, durations, JSON. */
#include "say.h"

#include "status.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#define LINE_SIZE 4096
#define MARKS_MAX 3 /* on one letter */

/* the locale's encoding */
static bool utf8;

int status_of(lk_err err)
{
	switch (err) {
	case LK_OK:
		return 0;
	case LK_EINVALID:
	case LK_EMISMATCH: /* a capacity other than that on the command line */
	case LK_ELIMIT:
	case LK_EUNSUPPORTED:
		return STATUS_USAGE;
	case LK_EABSENT:
		return STATUS_OTHERWISE;
	case LK_EBUSY:
	case LK_ETIMEDOUT:
		return STATUS_BUSY;
	case LK_ESYSTEM:
	case LK_ENOMEM:
		return STATUS_SYSTEM;
	default:
		return STATUS_STORE;
	}
}

void say(const char *fmt, ...)
{
	static const char head[] = "latchkey: ";
	char line[LINE_SIZE];
	size_t len = sizeof(head) - 1;
	va_list args;
	int more;

	memcpy(line, head, len);
	va_start(args, fmt);
	more = vsnprintf(line + len, sizeof(line) - len - 1, fmt, args);
	va_end(args);
	if (more < 0)
		return;
	len += (size_t)more;
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	/* A closed standard error cannot be reported. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

/* ---- Foreign text --------------------------------------------------------------------------- */

void text_init(void)
{
	utf8 = setlocale(LC_CTYPE, "") && !strcmp(nl_langinfo(CODESET), "UTF-8");
	if (!utf8)
		setlocale(LC_CTYPE, "C");
}

/* Is the character printable by its class, but invisible: formats, directions, fillers, other
 * spaces than U+0020?  Private characters have no defined shape.  In ascending order. */
static bool is_unseen(wint_t character)
{
	static const struct {
		wint_t first, last;
	} ranges[] = {
		{0xa0, 0xa0},       {0xad, 0xad},        {0x34f, 0x34f},   {0x61c, 0x61c},
		{0x115f, 0x1160},   {0x1680, 0x1680},    {0x17b4, 0x17b5}, {0x180b, 0x180f},
		{0x2000, 0x200f},   {0x2028, 0x202f},    {0x205f, 0x206f}, {0x2800, 0x2800},
		{0x3000, 0x3000},   {0x3164, 0x3164},    {0xe000, 0xf8ff}, {0xfe00, 0xfe0f},
		{0xfeff, 0xfeff},   {0xffa0, 0xffa0},    {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3},
		{0x1d173, 0x1d17a}, {0xe0000, 0x10ffff},
	};

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
		if (character <= ranges[i].last)
			return character >= ranges[i].first;
	return false;
}

/* Decode the next character: its bytes and columns.  0 if it is invalid. */
static size_t read_character(const char *in, size_t len, wchar_t *character, int *width)
{
	mbstate_t state;
	size_t bytes;

	memset(&state, 0, sizeof(state));
	bytes = mbrtowc(character, in, len, &state);
	if (bytes == 0 || bytes > len)
		return 0;
	*width = wcwidth(*character);
	return bytes;
}

/* The number of bytes that may be printed as they are.  *marks: how many more combining marks the
 * last letter may have: a mark without a letter, or too many of them, would cover neighbouring
 * text. */
static size_t plain_bytes(const char *in, size_t len, bool ascii, int *marks)
{
	unsigned char byte = (unsigned char)*in;
	wchar_t character;
	size_t bytes;
	int width, room = *marks;

	*marks = 0;
	if (byte < 0x80) {
		bool plain = byte >= 0x20 && byte < 0x7f && byte != '\\';
		*marks = plain && byte != ' ' ? MARKS_MAX : 0;
		return plain;
	}
	if (ascii || !utf8)
		return 0;
	bytes = read_character(in, len, &character, &width);
	if (!bytes || !iswprint((wint_t)character) || is_unseen((wint_t)character))
		return 0;
	if (width < 0 || (width == 0 && !room))
		return 0;
	*marks = width == 0 ? room - 1 : MARKS_MAX;
	return bytes;
}

static const char *escape(char *out, size_t size, const char *in, size_t len, bool ascii)
{
	static const char hex[] = "0123456789abcdef";
	size_t at = 0, safe = 0, taken;
	int marks = 0;

	for (size_t i = 0; i < len; i += taken) {
		unsigned char byte = (unsigned char)in[i];
		size_t plain = plain_bytes(in + i, len - i, ascii, &marks);
		size_t need = plain ? plain : 4;

		taken = plain ? plain : 1;
		if (at + 4 <= size)
			safe = at; /* the last position where "..." still fits */
		if (at + need + 1 > size) {
			memcpy(out + safe, "...", 4);
			return out;
		}
		if (plain) {
			memcpy(out + at, in + i, plain);
		} else {
			out[at] = '\\';
			out[at + 1] = 'x';
			out[at + 2] = hex[byte >> 4];
			out[at + 3] = hex[byte & 15];
		}
		at += need;
	}
	out[at] = 0;
	return out;
}

const char *text_escape(char *out, size_t size, const char *in, size_t len)
{
	return escape(out, size, in, len, false);
}

const char *text_ascii(char *out, size_t size, const char *in, size_t len)
{
	return escape(out, size, in, len, true);
}

/* In: the columns available; out: those left. */
static size_t fit(const char *text, size_t *columns)
{
	size_t at = 0, bytes, len = strlen(text);
	wchar_t character;
	int width;

	for (; at < len; at += bytes) {
		bytes = read_character(text + at, len - at, &character, &width);
		if (!bytes || width < 0 || (size_t)width > *columns)
			break;
		*columns -= (size_t)width;
	}
	return at;
}

size_t text_fit(const char *text, size_t columns)
{
	return fit(text, &columns);
}

size_t text_columns(const char *text)
{
	size_t left = SIZE_MAX;

	fit(text, &left);
	return SIZE_MAX - left;
}

/* ---- The rest ------------------------------------------------------------------------------- */

const char *text_duration(char out[32], int64_t ms)
{
	int64_t seconds = ms / 1000;

	if (ms < 0)
		snprintf(out, 32, "?");
	else if (ms < 1000)
		snprintf(out, 32, "%" PRId64 "ms", ms);
	else if (seconds < 60)
		snprintf(out, 32, "%" PRId64 "s", seconds);
	else if (seconds < 3600)
		snprintf(out, 32, "%" PRId64 "m%02" PRId64 "s", seconds / 60, seconds % 60);
	else if (seconds < 86400)
		snprintf(out, 32, "%" PRId64 "h%02" PRId64 "m", seconds / 3600, seconds / 60 % 60);
	else
		snprintf(out, 32, "%" PRId64 "d%02" PRId64 "h", seconds / 86400,
		         seconds / 3600 % 24);
	return out;
}

const char *text_seconds(char out[32], int64_t ms)
{
	int64_t tenths = (ms + 99) / 100;

	snprintf(out, 32, "%" PRId64 ".%d s", tenths / 10, (int)(tenths % 10));
	return out;
}

const char *text_grace(char *out, size_t size, int64_t grace_ms, bool in_quorum)
{
	char time[32];

	/* As the library's text for a try. */
	snprintf(out, size, "%s: nothing is granted for %s",
	         in_quorum ? "too many servers are new or have lost their memory"
	                   : "the server may have forgotten a holder",
	         text_seconds(time, grace_ms));
	return out;
}

const char *text_party(char *out, size_t size, const lk_party *party)
{
	const char *what = party->label[0] ? party->label : party->program;
	const char *host = party->host[0] ? party->host : "unknown host";

	if (party->pid && what[0])
		snprintf(out, size, "%s (pid %" PRId64 ", %s)", host, party->pid, what);
	else if (party->pid)
		snprintf(out, size, "%s (pid %" PRId64 ")", host, party->pid);
	else if (what[0])
		snprintf(out, size, "%s (%s)", host, what);
	else
		snprintf(out, size, "%s", host);
	return out;
}

void json_string(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putc('\\', out);
		putc(*text, out);
	}
	putc('"', out);
}
