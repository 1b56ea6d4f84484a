/* SPDX-License-Identifier: MIT
 * The contract of a script with its caller, one call at a time, on the Redis in memory: its reply,
 * the messages that it publishes, the keys that it leaves.  The name is "n"; clients are single
 * letters, and "d" is a dead one. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "lua_store.h"
#include "test.h"

/* An empty store at second 1700000000. */
void contract_start(void);
void contract_stop(void);
/* Set the store's clock to so many ms after that. */
void contract_at(int64_t ms);
void contract_full(bool full);
/* The marker that clients know, at first that of the store, and the end of the grace, at first long
 * ago. */
void contract_epoch(const char *marker, const char *end_us);
/* What INFO says of the server's process, which began long ago. */
struct lua_store_process *contract_process(void);
/* Refuse scripts a command, NULL = none, on a key, NULL = on any. */
void contract_refuse(const char *command, const char *key);

/* Pass only the keys of the narrow form: those that exist while a hold does. */
void contract_narrow(bool narrow);

/* Run the words up to a NULL: a command, or a script's name and its arguments (the keys are added).
 * The result is the elements of the reply with a space between (without the position in an error),
 * then each published message: " | client text", those to dead clients as " | d " and their
 * number.
 *
 * A script runs before in a Cluster as well, with the same keys, in a slot that moves to another
 * node. There it is redirected, because a key is missing, or finds something foreign, and changes
 * nothing; or it has the same answer, messages and keys. */
void contract_says(const char *file, int line, const char *expected, const char *word, ...)
	__attribute__((sentinel));
#define SAYS(expected, ...) contract_says(__FILE__, __LINE__, expected, __VA_ARGS__, NULL)

/* Did the last script run in the slot that moves? */
bool contract_moved(void);

/* The same; no key changes. */
void contract_save(void);
void contract_is_unchanged(const char *file, int line);
#define KEEPS(expected, ...)                                                                       \
	do {                                                                                       \
		contract_save();                                                                   \
		SAYS(expected, __VA_ARGS__);                                                       \
		contract_is_unchanged(__FILE__, __LINE__);                                         \
	} while (0)

/* The errors of a script that may not run a command, and of one on a full server. */
#define NO_RIGHT_TEXT "ERR The user executing the script can't run this command or subcommand"
#define NO_RIGHT "-" NO_RIGHT_TEXT
#define TORN_BY_RIGHT "-TORN " NO_RIGHT_TEXT
#define FULL "-OOM command not allowed when used memory > 'maxmemory'."

#endif
