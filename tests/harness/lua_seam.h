/* SPDX-License-Identifier: MIT
 * A server in this process: the Redis in memory behind the seam of src/store.h.  Clients send it
 * what they would send to a redis-server, and its scripts run by the wall clock; but no byte leaves
 * the process.  It has 16 databases, channels, and INFO's counts of commands. */
#ifndef LUA_SEAM_H
#define LUA_SEAM_H

#include <stddef.h>

/* Clients that open from now on use it, whatever host their URL names. */
void lua_seam_use(void);
/* Run one command of a test, in database 0; the reply's bytes, to be freed. */
char *lua_seam_run(const char *bytes, size_t len, size_t *reply_len);

#endif
