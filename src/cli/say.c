/* SPDX-License-Identifier: MIT
 * What people read: messages, foreign text made harmless, durations, JSON. */
#include "say.h"

#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define LINE_SIZE 4096

int status_of(lk_err err)
{
	switch (err) {
	case LK_OK:
		return 0;
	case LK_EINVALID:
	case LK_EMISMATCH: /* of the capacity that a command line names */
	case LK_ELIMIT:
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
	/* There is nobody to tell that standard error is closed. */
	if (write(STDERR_FILENO, line, len) < 0)
		return;
}

const char *text_escape(char *out, size_t size, const char *in, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	size_t at = 0, safe = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)in[i];
		bool plain = byte >= 0x20 && byte < 0x7f && byte != '\\';
		size_t need = plain ? 1 : 4;

		if (at + 4 <= size)
			safe = at; /* the last place where "..." still fits */
		if (at + need + 1 > size) {
			memcpy(out + safe, "...", 4);
			return out;
		}
		if (plain) {
			out[at] = (char)byte;
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

const char *text_party(char *out, size_t size, const lk_party *party)
{
	const char *what = party->label[0] ? party->label : party->program;
	const char *host = party->host[0] ? party->host : "somebody";

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
