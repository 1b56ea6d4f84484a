/* SPDX-License-Identifier: MIT
 * What must happen in a forked child: every socket of the library is closed there, since a child
 * that keeps a subscription makes a dead parent look alive. */
#ifndef LK__FORK_H
#define LK__FORK_H

#include <stdbool.h>

/* socket(2) and registration in one step with respect to fork(); -1 and errno as socket(2), or
 * ENOMEM/EMFILE.  CLOEXEC and non-blocking. */
int lk__fork_socket(int family, int type, int protocol);
/* close(2) and deregistration in one step. */
void lk__fork_close(int fd);

/* How often this process is a forked child of one that used the library: compare with the value
 * that was kept when a handle was made. */
unsigned lk__fork_generation(void);

#endif
