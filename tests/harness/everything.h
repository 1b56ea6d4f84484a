/* SPDX-License-Identifier: MIT
 * Everything that locks, semaphores and latches do, once: for tests of the rights that it needs. */
#ifndef EVERYTHING_H
#define EVERYTHING_H

#include <latchkey.h>

/* Use all as the user "latchkey" with the password "SECRET", on the names "a b", "s" and "l".
 * Kinds that the store does not have are left out.  Returns the first failure; *step names the step
 * that failed. */
lk_err use_everything(const char *url, const char **step);

#endif
