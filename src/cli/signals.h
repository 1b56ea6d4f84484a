/* SPDX-License-Identifier: MIT
 * The signals of the process that the user sees, as events of its loop. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <stdbool.h>

/* Handle what latchkey reacts to; what the caller had ignored stays ignored.  False if the system
 * refuses (errno). */
bool signals_take(void);

/* Readable when a signal came or signals_wake() was called. */
int signals_fd(void);
/* Any thread. */
void signals_wake(void);
/* A signal that came, 0 = none is left; forgets the wake-ups first. */
int signals_next(void);

/* It ends a program that does not handle it, and people send it to end one. */
bool signal_ends(int number);

/* Stop by SIGTSTP as if it were not handled: the own process only, or its whole group.  Returns
 * when continued; false at once if the system did not stop us (an orphaned group). */
bool signals_suspend(bool group);

/* End by this signal, so that a shell sees it; by exit status where that cannot be (PID 1).  With
 * group set the rest of the process group gets it, too. */
void signals_die(int number, bool group) __attribute__((noreturn));

#endif
