/* SPDX-License-Identifier: MIT
 * The clock of servers, which the test moves while they run: a library is preloaded into them. */
#ifndef SERVER_CLOCK_H
#define SERVER_CLOCK_H

#include <stdint.h>

/* The servers that are started between these two calls have a clock that can be moved; it is right
 * at first. */
void server_clock_begin(void);
void server_clock_end(void);
/* Set their clock forward by offset_ms, and let it run faster by ppm (parts per million); each call
 * replaces the one before. */
void server_clock_move(int64_t offset_ms, int64_t ppm);

#endif
