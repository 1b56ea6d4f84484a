/* SPDX-License-Identifier: MIT
 * Text for keys, logs and terminals: escaping, encoding of names in keys, ids. */
#ifndef LK__TEXT_H
#define LK__TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The length of a name that ends at its NUL if len is 0; name may be NULL then. */
size_t lk__name_len(const char *name, size_t len);

/* Copy len bytes as printable ASCII (0x20..0x7e): other bytes and the backslash become \xHH.
 * Cut to size with "..." at the end.  Always NUL-terminated (size >= 4).  Returns the length
 * written. */
size_t lk__escape(char *out, size_t size, const char *in, size_t len);
/* The same with what vprintf() would print. */
void lk__escape_format(char *out, size_t size, const char *fmt, va_list args)
	__attribute__((format(printf, 3, 0)));

/* Percent-encode '%', '{', '}', bytes <= 0x20 and 0x7f; all other bytes stay.  out needs 3 * len +
 * 1 bytes.  Returns the length.  Injective. */
size_t lk__name_encode(char *out, const char *name, size_t len);

/* The reverse; out needs len + 1 bytes.  False for a text that lk__name_encode() never makes. */
bool lk__name_decode(char *out, size_t *out_len, const char *in, size_t len);

/* 128 bits as 22, 64 bits as 11 characters of [A-Za-z0-9_-], NUL-terminated. */
void lk__id128(char out[23], const unsigned char bytes[16]);
void lk__id64(char out[12], uint64_t value);

/* The value of a hexadecimal digit of either case, -1 if it is none. */
int lk__hex_digit(char digit);

/* Parse the whole text as a decimal number in [min, max]: digits only, no space, and no sign but a
 * leading '-' when min < 0. */
bool lk__parse_i64(const char *text, size_t len, int64_t min, int64_t max, int64_t *value);

/* Write a number in decimal, NUL-terminated: out needs LK__DECIMAL_SIZE bytes.  Returns the
 * length. */
#define LK__DECIMAL_SIZE 21
size_t lk__decimal(char *out, int64_t value);

/* Write milliseconds >= 0 as seconds with a tenth, rounded up: "8.4".  Returns out. */
#define LK__SECONDS_SIZE 24
const char *lk__seconds(char out[LK__SECONDS_SIZE], int64_t ms);

#define LK__MARK_SIZE 6
/* Write ".XXXX", which differs between numbers that are near to each other; NUL-ended. */
void lk__mark(char out[LK__MARK_SIZE], uint64_t number);

#endif
