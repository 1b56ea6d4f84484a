/* SPDX-License-Identifier: MIT
 * What a round checks by itself when all its workers have ended. */
#ifndef ROUNDS_H
#define ROUNDS_H

#include "chaos/nemesis.h"

/* All names can be had, in time, and nothing is left in the store but what was made to last. */
void round_check_rest(struct round *round);

#endif
