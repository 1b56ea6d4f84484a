/* SPDX-License-Identifier: MIT
 * Closes every socket of the library in a forked child: a child that keeps a subscription would
 * make a dead parent look alive. */
#ifndef LK__FORK_H
#define LK__FORK_H

#include <stdbool.h>

/* socket(2) and registration, atomic with respect to fork(); -1 and errno as socket(2), or
 * ENOMEM/EMFILE.  CLOEXEC and non-blocking. */
int lk__fork_socket(int family, int type, int protocol);
/* close(2) and deregistration, atomic with respect to fork(). */
void lk__fork_close(int fd);

/* Between these, fork() in another thread waits: a child gets no state of OpenSSL that was being
 * changed.  Short, without I/O, not nested. */
void lk__fork_hold(void);
void lk__fork_let(void);

/* Count forks from now on, even if the process has no socket yet.  False when out of memory. */
bool lk__fork_watch(void);
/* The number of forks between this process and the one that loaded the library.  A handle keeps
 * the value of its creation; a difference means that it belongs to a parent. */
unsigned lk__fork_generation(void);

#endif
