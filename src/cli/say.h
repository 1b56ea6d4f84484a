/* SPDX-License-Identifier: MIT
 * Output for people: messages, escaping of foreign text, durations, JSON. */
#ifndef SAY_H
#define SAY_H

#include <latchkey.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Room for any escaped lock name. */
#define NAME_TEXT_SIZE (4 * LK_NAME_MAX + 1)

/* One line "latchkey: ..." on standard error, in one write. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Read the locale, before any thread is started.  Until then, and in a locale that is not UTF-8,
 * all but ASCII is escaped. */
void text_init(void);

/* Keep visible characters; other bytes and the backslash become \xHH.  Cut to size with "...".
 * Always NUL-terminated (size >= 4).  Returns out. */
const char *text_escape(char *out, size_t size, const char *in, size_t len);
/* The same for programs: keep only printable ASCII, in every locale. */
const char *text_ascii(char *out, size_t size, const char *in, size_t len);

/* How many bytes of the text, in whole characters, fit into so many columns of a terminal. */
size_t text_fit(const char *text, size_t columns);
/* The columns of the text. */
size_t text_columns(const char *text);

/* "850ms", "12s", "1m12s", "3h05m", "2d04h". */
const char *text_duration(char out[32], int64_t ms);

/* "8.4 s", rounded up. */
const char *text_seconds(char out[32], int64_t ms);

/* Why nothing is granted, on a quorum or elsewhere, and for how long. */
const char *text_grace(char *out, size_t size, int64_t grace_ms, bool in_quorum);

/* "build-7 (pid 4242, make)", as far as known. */
const char *text_party(char *out, size_t size, const lk_party *party);

/* Write escaped text as a JSON string. */
void json_string(FILE *out, const char *text);

#endif
