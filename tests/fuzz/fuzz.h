/* SPDX-License-Identifier: MIT
 * Functions that take any bytes: what libFuzzer drives (main.c), and what unit_fuzz.c runs over the
 * corpora with any compiler.
 *
 * A target reads its input as choices, never fails for want of it, and ends the process through
 * fuzz_fail() when something that must hold does not. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void fuzz_fn(const uint8_t *data, size_t size);

struct fuzz_target {
	const char *name; /* and the folder of its corpus */
	fuzz_fn *run;
};

extern const struct fuzz_target fuzz_targets[]; /* up to a NULL */

/* NULL if there is none of that name. */
const struct fuzz_target *fuzz_target_find(const char *name);

fuzz_fn fuzz_replies, fuzz_messages, fuzz_answers, fuzz_urls, fuzz_names, fuzz_options,
	fuzz_command_line, fuzz_scripts;

/* ---- Choices ------------------------------------------------------------------------------- */

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

/* 0 when nothing is left. */
uint8_t fuzz_byte(struct fuzz_input *input);
/* Below `below`, which is at most 256. */
unsigned fuzz_below(struct fuzz_input *input, unsigned below);
uint64_t fuzz_bits(struct fuzz_input *input, int bytes);
/* Any number, the borders of what is allowed more often than others. */
int64_t fuzz_number(struct fuzz_input *input);
/* Up to the next newline, or the end; NUL-ended, cut to size. Returns the length. */
size_t fuzz_line(struct fuzz_input *input, char *out, size_t size);

/* ---- What must hold ------------------------------------------------------------------------ */

void fuzz_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define FUZZ_MUST(holds, ...)                                                                      \
	do {                                                                                       \
		if (!(holds))                                                                      \
			fuzz_fail(__VA_ARGS__);                                                    \
	} while (0)

/* One line that is safe to show to people. */
bool fuzz_is_plain(const char *text);

#endif
