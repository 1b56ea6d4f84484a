/* SPDX-License-Identifier: MIT
 * Text for keys, logs and terminals: escaping, encoding of names in keys, ids. */
#include "text.h"

#include <stdio.h>
#include <string.h>

#define ID_CHARS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

/* lk__escape_format() cuts to this size before escaping.  Larger than lk__why's text, so that a cut
 * shows as "...". */
#define RAW_SIZE 512

#define SAFE_DIGITS 18 /* any number of so many digits fits into an int64_t */

static const char hex_lower[] = "0123456789abcdef";
static const char hex_upper[] = "0123456789ABCDEF";

size_t lk__escape(char *out, size_t size, const char *in, size_t len)
{
	size_t pos = 0;
	size_t cut = 0; /* the last boundary between two units that leaves room for "..." */

	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)in[i];
		bool plain = byte >= 0x20 && byte <= 0x7e && byte != '\\';

		if (pos + 4 <= size)
			cut = pos;
		if (pos + (plain ? 1 : 4) >= size) {
			memcpy(out + cut, "...", 4);
			return cut + 3;
		}
		if (plain) {
			out[pos++] = (char)byte;
			continue;
		}
		out[pos++] = '\\';
		out[pos++] = 'x';
		out[pos++] = hex_lower[byte >> 4];
		out[pos++] = hex_lower[byte & 15];
	}
	out[pos] = '\0';
	return pos;
}

void lk__escape_format(char *out, size_t size, const char *fmt, va_list args)
{
	char raw[RAW_SIZE];
	int len = vsnprintf(raw, sizeof(raw), fmt, args);

	if (len < 0)
		len = 0;
	if ((size_t)len >= sizeof(raw))
		len = (int)sizeof(raw) - 1;
	lk__escape(out, size, raw, (size_t)len);
}

/* The bytes that would end a hash tag, break a log line or look like an escape: up to 0x20, 0x7f,
 * '%', '{', '}'.  Called for each byte of a name in each request. */
static bool is_special(unsigned char byte)
{
	const uint64_t low = (UINT64_C(1) << 33) - 1 + (UINT64_C(1) << '%');
	const uint64_t high =
		UINT64_C(1) << 63 | UINT64_C(1) << ('{' - 64) | UINT64_C(1) << ('}' - 64);

	return byte < 128 && ((byte < 64 ? low : high) >> (byte & 63) & 1);
}

size_t lk__name_encode(char *out, const char *name, size_t len)
{
	size_t pos = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char byte = (unsigned char)name[i];

		if (is_special(byte)) {
			out[pos++] = '%';
			out[pos++] = hex_upper[byte >> 4];
			out[pos++] = hex_upper[byte & 15];
		} else {
			out[pos++] = (char)byte;
		}
	}
	out[pos] = '\0';
	return pos;
}

int lk__hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

/* -1 unless it is an upper-case hexadecimal digit: a second spelling would be a second name. */
static int hex_value(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

bool lk__name_decode(char *out, size_t *out_len, const char *in, size_t len)
{
	size_t pos = 0;

	for (size_t i = 0; i < len; i++) {
		int high, low;

		if (in[i] != '%') {
			if (is_special((unsigned char)in[i]))
				return false;
			out[pos++] = in[i];
			continue;
		}
		if (len - i < 3)
			return false;
		high = hex_value(in[i + 1]);
		low = hex_value(in[i + 2]);
		if (high < 0 || low < 0 || !is_special((unsigned char)(high * 16 + low)))
			return false;
		out[pos++] = (char)(high * 16 + low);
		i += 2;
	}
	out[pos] = '\0';
	*out_len = pos;
	return true;
}

/* Six bits a character, first byte first; the last character is padded with zero bits. */
static void encode_id(char *out, const unsigned char *bytes, size_t size)
{
	unsigned bits = 0; /* only the low `have` ones count */
	unsigned have = 0;
	size_t pos = 0;

	for (size_t i = 0; i < size; i++) {
		bits = (bits << 8 | bytes[i]) & 0xffff;
		have += 8;
		while (have >= 6) {
			have -= 6;
			out[pos++] = ID_CHARS[bits >> have & 63];
		}
	}
	if (have > 0)
		out[pos++] = ID_CHARS[bits << (6 - have) & 63];
	out[pos] = '\0';
}

void lk__id128(char out[23], const unsigned char bytes[16])
{
	encode_id(out, bytes, 16);
}

void lk__id64(char out[12], uint64_t value)
{
	unsigned char bytes[8];

	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(value >> (56 - 8 * i));
	encode_id(out, bytes, sizeof(bytes));
}

bool lk__parse_i64(const char *text, size_t len, int64_t min, int64_t max, int64_t *value)
{
	bool negative = len > 0 && text[0] == '-' && min < 0;
	size_t i = negative ? 1 : 0;
	size_t safe = len < SAFE_DIGITS ? len : SAFE_DIGITS;
	int64_t sum = 0; /* kept negative: that range has one number more */

	if (len == i)
		return false;
	for (; i < safe && (unsigned char)(text[i] - '0') < 10; i++)
		sum = sum * 10 - (text[i] - '0');
	for (; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		if (__builtin_mul_overflow(sum, 10, &sum) ||
		    __builtin_sub_overflow(sum, text[i] - '0', &sum))
			return false;
	}
	if (!negative) {
		if (sum == INT64_MIN)
			return false;
		sum = -sum;
	}
	if (sum < min || sum > max)
		return false;
	*value = sum;
	return true;
}

size_t lk__decimal(char *out, int64_t value)
{
	uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
	size_t len = value < 0 ? 2 : 1, at;

	for (uint64_t limit = 10; rest >= limit; limit *= 10) {
		len++;
		if (limit > UINT64_MAX / 10)
			break;
	}
	out[0] = '-';
	out[at = len] = '\0';
	for (; rest >= 10; rest /= 100) {
		unsigned two = (unsigned)(rest % 100);
		out[--at] = (char)('0' + two % 10);
		out[--at] = (char)('0' + two / 10);
	}
	if (at > (value < 0 ? 1u : 0u))
		out[--at] = (char)('0' + rest);
	return len;
}

const char *lk__seconds(char out[LK__SECONDS_SIZE], int64_t ms)
{
	int64_t tenths = ms / 100 + (ms % 100 > 0);

	snprintf(out, LK__SECONDS_SIZE, "%lld.%d", (long long)(tenths / 10), (int)(tenths % 10));
	return out;
}

size_t lk__name_len(const char *name, size_t len)
{
	return len || !name ? len : strlen(name);
}

void lk__mark(char out[LK__MARK_SIZE], uint64_t number)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

	*out++ = '.';
	for (int shift = 18; shift >= 0; shift -= 6)
		*out++ = digits[number >> shift & 63];
	*out = '\0';
}
