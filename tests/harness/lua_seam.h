/* SPDX-License-Identifier: MIT
 * Servers in this process: the Redis in memory behind the interface of src/store.h.  Clients send
 * the bytes that they would send to a redis-server, and the scripts use the wall clock; but no byte
 * leaves the process, and the clients' descriptors are eventfds.  Each server has 16 databases and
 * channels; INFO has the counts of commands of all servers. */
#ifndef LUA_SEAM_H
#define LUA_SEAM_H

#include <stdbool.h>
#include <stddef.h>

#define LUA_SEAM_LINKS_MAX 3

/* All clients opened after this use it, whatever host their URL names, and have that many links,
 * each to a server of its own.  The first byte of a name, modulo their number, is the link of that
 * name: of three, "a" is on link 1, "b" on 2, "c" on 0. */
void lua_seam_use(unsigned links);
/* Have a link discard what is written to it, and send no replies; a dial to it lasts until its
 * deadline or its cancellation.  The other links work on. */
void lua_seam_black_hole(unsigned link, bool on);
/* End all connections, and forget all keys. */
void lua_seam_restart(void);
/* Run one command of a test in database 0 of link 0; the caller frees the bytes of the reply. */
char *lua_seam_run(const char *bytes, size_t len, size_t *reply_len);

#endif
