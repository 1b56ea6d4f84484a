/* SPDX-License-Identifier: MIT
 * Host names to addresses, with a deadline that getaddrinfo() itself does not have. */
#ifndef LK__RESOLVE_H
#define LK__RESOLVE_H

#include "../base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* The resolved place of one server, so that both connections of a client go to the same. */
struct lk__address {
	struct sockaddr_storage addr;
	socklen_t len;
	int family;
};

#define LK__RESOLVE_MAX 8 /* addresses of one host that are tried */

/* Look host up.  A numeric one at once; else in a thread that is left behind when it is late.
 * The sentence in why has no prefix.
 *
 * LK_OK with at least one address, LK_ECONN (unknown, late, canceled), LK_ESYSTEM, LK_ENOMEM */
lk_err lk__resolve(const char *host, int port, int64_t deadline_ns, int cancel_fd,
                   struct lk__address addresses[LK__RESOLVE_MAX], size_t *count,
                   struct lk__why *why);

#endif
