/* SPDX-License-Identifier: MIT
 * Finding a server's binary and starting it as nobody's child. */
#ifndef LK__LOCAL_EXEC_H
#define LK__LOCAL_EXEC_H

#include "error.h"

#include <stdbool.h>

struct lk__server {
	char path[256];
	const char *name; /* argv[0]: one binary is several programs */
};

/* LATCHKEY_SERVER if set, else redis-server or valkey-server in PATH and the usual folders. */
bool lk__server_find(struct lk__server *server);

/* Start it in dir, listening on the socket only, with no descriptor of ours but lock_fd. */
lk_err lk__server_exec(const struct lk__server *server, const char *dir, const char *socket_path,
                       int lock_fd, struct lk__why *why);

#endif
