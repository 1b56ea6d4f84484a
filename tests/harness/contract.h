/* SPDX-License-Identifier: MIT
 * What a script owes to who calls it, one call at a time, on the Redis in memory: its answer, what
 * it publishes, what it leaves in keys.  The name is "n"; clients are single letters, "d" is dead.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "lua_store.h"
#include "test.h"

/* An empty store at second 1700000000. */
void contract_start(void);
void contract_stop(void);
/* Its clock stands so many ms after that. */
void contract_at(int64_t ms);
void contract_full(bool full);
/* A command to scripts, NULL = none, on a key, NULL = on any. */
void contract_refuse(const char *command, const char *key);

/* Say words up to a NULL: a command, or a script's name and its arguments (the keys are added). The
 * elements of the answer are told with a space between (of an error, not where it was), then each
 * message that was published: " | client text", those to the dead as " | d " and how many. */
void contract_says(const char *file, int line, const char *expected, const char *word, ...)
	__attribute__((sentinel));
#define SAYS(expected, ...) contract_says(__FILE__, __LINE__, expected, __VA_ARGS__, NULL)

#endif
