/* SPDX-License-Identifier: MIT
 * The content of the store before a script runs, made from the input; and the same as text. */
#ifndef SCRIPTS_KEYS_H
#define SCRIPTS_KEYS_H

#include "fuzz.h"
#include "lua_store.h"

#define SCRIPT_KEYS 7
#define SCRIPT_MARKER 5 /* which of them */
#define SCRIPT_TEXT 200
#define SCRIPT_NOW_US INT64_C(1800000000000000)
#define SCRIPT_CLIENT "abcdefghijklmnopqrstuv"

extern const char *const script_keys[SCRIPT_KEYS];
extern const char
	script_types[SCRIPT_KEYS]; /* s string, h hash, z sorted set; the first may be both */

/* Ours is one that the library could have written. */
void script_ticket(struct fuzz_input *input, bool permits, bool ours, char *out, size_t size);
/* The same of a quorum's leg. */
void script_leg(struct fuzz_input *input, bool ours, char *out, size_t size);
/* Mostly the one that script_fill() writes. */
void script_marker(struct fuzz_input *input, char *out, size_t size);
void script_fill(struct fuzz_input *input, struct lua_store *store);

/* Each key as one line, "<type> <key> <expiry> <content>", or "". */
struct script_saved {
	char *keys[SCRIPT_KEYS];
};
void script_save(struct lua_store *store, struct script_saved *saved);
void script_saved_free(struct script_saved *saved);

#endif
