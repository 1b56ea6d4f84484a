/* SPDX-License-Identifier: MIT
 * A server in this process: the Redis in memory behind the interface of src/store.h.  Clients send
 * it the bytes that they would send to a redis-server, and its scripts use the wall clock; but no
 * byte leaves the process.  It has 16 databases, channels, and INFO's counts of commands. */
#ifndef LUA_SEAM_H
#define LUA_SEAM_H

#include <stddef.h>

/* All clients opened after this use it, whatever host their URL names. */
void lua_seam_use(void);
/* Run one command of a test in database 0; the caller frees the bytes of the reply. */
char *lua_seam_run(const char *bytes, size_t len, size_t *reply_len);

#endif
