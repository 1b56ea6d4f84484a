/* SPDX-License-Identifier: MIT
 * The signals of the process that the user sees, as events of its loop. */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <stdbool.h>

/* Handle the signals that latchkey reacts to; ignored ones stay ignored.  False with errno if the
 * system refuses. */
bool signals_take(void);

/* Readable after a signal or signals_wake(). */
int signals_fd(void);
/* Any thread. */
void signals_wake(void);
/* The next pending signal, 0 = none; clears the wake-ups first. */
int signals_next(void);

/* Is it one that people send to end a program, and that ends one by default? */
bool signal_ends(int number);

/* Stop by SIGTSTP as by default: this process only, or its whole group.  Returns when continued;
 * false at once if the system did not stop us (an orphaned group). */
bool signals_suspend(bool group);

/* End by this signal, so that a shell sees it; by exit status where that is impossible (PID 1).
 * With group, the rest of the process group gets it, too. */
void signals_die(int number, bool group) __attribute__((noreturn));

#endif
