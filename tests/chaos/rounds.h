/* SPDX-License-Identifier: MIT
 * The checks of a round itself after all its workers have ended. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include "chaos/nemesis.h"

/* Each name can be acquired, in time, and the store has only keys that are meant to last. */
void round_check_rest(struct round *round);

#endif
