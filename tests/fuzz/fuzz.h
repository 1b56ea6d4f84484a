/* SPDX-License-Identifier: MIT
 * Functions that accept any bytes: libFuzzer drives them (entry.c), and unit_fuzz.c runs them over
 * the corpora with any compiler.  A target reads its input as choices, never fails because it is
 * too short, and ends the process by fuzz_fail() if an invariant is broken. */
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

extern const struct fuzz_target fuzz_targets[]; /* ends with a NULL */

/* NULL if there is none of that name. */
const struct fuzz_target *fuzz_target_find(const char *name);

fuzz_fn fuzz_replies, fuzz_messages, fuzz_answers, fuzz_urls, fuzz_names, fuzz_options,
	fuzz_command_line, fuzz_scripts, fuzz_etcd_messages, fuzz_etcd_h2;

/* ---- Choices ------------------------------------------------------------------------------- */

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

/* 0 if the input is used up. */
uint8_t fuzz_byte(struct fuzz_input *input);
/* Below `below`, which is at most 256. */
unsigned fuzz_below(struct fuzz_input *input, unsigned below);
uint64_t fuzz_bits(struct fuzz_input *input, int bytes);
/* Any number; the limits of valid ones are more likely than others. */
int64_t fuzz_number(struct fuzz_input *input);
/* Up to the next newline, or the end; NUL-ended, cut to size. Returns the length. */
size_t fuzz_line(struct fuzz_input *input, char *out, size_t size);

/* ---- Invariants ------------------------------------------------------------------------ */

void fuzz_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#define FUZZ_MUST(holds, ...)                                                                      \
	do {                                                                                       \
		if (!(holds))                                                                      \
			fuzz_fail(__VA_ARGS__);                                                    \
	} while (0)

/* Is it one line that is safe to print? */
bool fuzz_is_plain(const char *text);

#endif
