/* SPDX-License-Identifier: MIT
 * Finds a server's binary and starts it as a child of init. */
#ifndef LK__LOCAL_EXEC_H
#define LK__LOCAL_EXEC_H

#include "../base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct lk__server {
	char path[256];
	const char *name; /* argv[0]: one binary may be several programs */
};

/* LATCHKEY_SERVER if set, else redis-server or valkey-server in PATH and the usual folders. */
bool lk__server_find(struct lk__server *server);

/* Start it in dir, listening on the socket only, with the lock of dir and none of our descriptors.
 * LK_OK (it runs, or exited at once: check whether it responds), LK_EBUSY (another has the lock),
 * LK_ESYSTEM. */
lk_err lk__server_exec(const struct lk__server *server, const char *dir, const char *socket_path,
                       int64_t deadline_ns, struct lk__why *why);

/* getenv(), but NULL in a program with more rights than its user (set-uid): users set variables. */
const char *lk__local_env(const char *name);

#endif
