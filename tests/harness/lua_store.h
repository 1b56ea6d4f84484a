/* SPDX-License-Identifier: MIT
 * A Redis in memory, for scripts: it runs the library's Lua as it is sent, in an embedded Lua 5.1
 * with an environment as narrow as the server's, over the commands that the scripts use, at a time
 * that the test sets.  unit_semaphore_store.c compares it with a real server.
 *
 *   lua_store.c           what a client says: EVAL, EVALSHA, a command; the known scripts
 *   lua_store_script.c    the Lua state, what a script can see, its values to replies and back
 *   lua_store_commands.c  the table of commands; those of keys and strings, TIME, PUBLISH
 *   lua_store_items.c     the commands of hashes and sorted sets
 *   lua_store_keys.c      the keys, their values, their ends
 *   lua_store_reply.c     replies as bytes */
#ifndef LUA_STORE_H
#define LUA_STORE_H

#include "redis/resp.h"

#include <stdint.h>

struct lua_store;

/* A message, as PUBLISH sends it; returns how many receive it. */
typedef int lua_store_publish_fn(void *arg, const char *channel, const char *text, size_t len);

/* publish may be NULL: nobody receives.  Aborts when out of memory, as all of it does. */
struct lua_store *lua_store_new(lua_store_publish_fn *publish, void *arg);
void lua_store_free(struct lua_store *store);

/* The server's wall clock; it may step back.  Keys whose end has passed are gone. */
void lua_store_set_time(struct lua_store *store, int64_t now_us);
int64_t lua_store_time(const struct lua_store *store);

/* Run one command as a client sends it, and append the reply's bytes.  A script that no EVAL and
 * no SCRIPT LOAD has brought is unknown. */
void lua_store_run(struct lua_store *store, const char *bytes, size_t len, struct lk__buf *reply);

/* The same with words, the reply as redis_text() tells it: strings as they are, errors with a
 * leading '-', numbers in decimal, "" for nil, the elements of an array one a line.  Valid until
 * the next one. */
const char *lua_store_ask(struct lua_store *store, int argc, const char *const *argv,
                          const size_t *lens);
/* Words up to a NULL. */
const char *lua_store_text(struct lua_store *store, const char *word, ...)
	__attribute__((sentinel));

#endif
