/* SPDX-License-Identifier: MIT
 * The private server behind local: one a user, found by uid alone. */
#ifndef LK__LOCAL_H
#define LK__LOCAL_H

#include "../base/error.h"

#include <stdint.h>

/* Make sure that it runs and responds by deadline_ns; stores the socket's path. */
lk_err lk__local_ensure(char socket_path[108], int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why);

/* The process of its server if nothing could be held when that began, else 0. */
int64_t lk__local_unheld(void);

#endif
