/* SPDX-License-Identifier: MIT
 * Host names to addresses, with the deadline that getaddrinfo() lacks. */
#ifndef LK__RESOLVE_H
#define LK__RESOLVE_H

#include "../base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The resolved address of one server, so that both connections of a client lead to the same. */
struct lk__address {
	struct sockaddr_storage addr;
	socklen_t len;
	int family;
};

#define LK__RESOLVE_MAX 8 /* addresses of one host that are tried */

/* Look up host: a numeric address at once, a name in a thread that is detached if it is late.  The
 * text in why has no prefix.
 *
 * LK_OK with at least one address, LK_ECONN (unknown, late, canceled), LK_ESYSTEM, LK_ENOMEM */
lk_err lk__resolve(const char *host, int port, int64_t deadline_ns, int cancel_fd,
                   struct lk__address addresses[LK__RESOLVE_MAX], size_t *count,
                   struct lk__why *why);

#endif
