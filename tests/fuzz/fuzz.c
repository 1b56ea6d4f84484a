/* SPDX-License-Identifier: MIT
 * The targets, and the functions that read their input: see fuzz.h. */
#include "fuzz.h"

#include "built_with.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct fuzz_target fuzz_targets[] = {
	{"replies", fuzz_replies},
	{"messages", fuzz_messages},
	{"answers", fuzz_answers},
	{"urls", fuzz_urls},
	{"names", fuzz_names},
	{"options", fuzz_options},
	{"command_line", fuzz_command_line},
	{"scripts", fuzz_scripts},
	{"etcd_messages", fuzz_etcd_messages},
#if LK__ETCD
	{"etcd_h2", fuzz_etcd_h2},
#endif
	{NULL, NULL},
};

const struct fuzz_target *fuzz_target_find(const char *name)
{
	const struct fuzz_target *target = fuzz_targets;

	while (target->name && strcmp(target->name, name))
		target++;
	return target->name ? target : NULL;
}

uint8_t fuzz_byte(struct fuzz_input *input)
{
	if (!input->left)
		return 0;
	input->left--;
	return *input->at++;
}

unsigned fuzz_below(struct fuzz_input *input, unsigned below)
{
	return fuzz_byte(input) % below;
}

uint64_t fuzz_bits(struct fuzz_input *input, int bytes)
{
	uint64_t bits = 0;

	while (bytes-- > 0)
		bits = bits << 8 | fuzz_byte(input);
	return bits;
}

int64_t fuzz_number(struct fuzz_input *input)
{
	static const int64_t borders[] = {
		0,
		1,
		-1,
		2,
		99,
		100,
		101,
		999,
		1000,
		1001,
		10000,
		3599999,
		3600000,
		3600001,
		86399999,
		86400000,
		86400001,
		2147483646,
		2147483647,
		2147483648,
		4294967295,
		4294967296,
		999999999999,
		INT64_C(86400000000),
		INT64_C(86400000001),
		INT64_C(31536000000),
		INT64_C(1) << 53,
		(INT64_C(1) << 53) + 1,
		INT64_MAX,
		INT64_MIN,
		INT64_MAX / 1000000,
	};
	unsigned kind = fuzz_byte(input);

	if (kind < 160)
		return borders[kind % (sizeof(borders) / sizeof(*borders))];
	return (int64_t)fuzz_bits(input, kind < 220 ? 2 : 8);
}

size_t fuzz_line(struct fuzz_input *input, char *out, size_t size)
{
	size_t len = 0;

	while (input->left) {
		uint8_t byte = fuzz_byte(input);
		if (byte == '\n')
			break;
		if (len + 1 < size)
			out[len++] = (char)byte;
	}
	out[len] = '\0';
	return len;
}

void fuzz_fail(const char *fmt, ...)
{
	va_list args;

	fputs("fuzz: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	abort();
}

bool fuzz_is_plain(const char *text)
{
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			return false;
	return true;
}
