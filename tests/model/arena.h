/* SPDX-License-Identifier: MIT
 * Memory at a fixed address, so that copying it copies a state of the world: all that the clients'
 * cores, their requests and the store's keys allocate while the arena is in use comes from here,
 * including pointers.  Lua and the libraries have their memory elsewhere; no part of a state is in
 * it.  A program that uses the arena is linked with --wrap for malloc, calloc, realloc and free:
 * see main.c. */
#ifndef ARENA_H
#define ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Use the arena for allocations, or stop.  During set-up, large allocations stay outside: they must
 * not change afterwards. */
/* ARENA_LOOSE: they stay outside, too, and must not last longer than an event. */
enum arena_mode { ARENA_OFF, ARENA_ON, ARENA_SETUP, ARENA_LOOSE };
enum arena_mode arena_use(enum arena_mode mode); /* returns the previous setting */
/* Drop all allocations, except that many bytes of zeros at the returned address. */
void *arena_clear(size_t size);
/* The content: that many bytes from arena_base() on.  Copying them back restores the state. */
void *arena_base(void);
size_t arena_used(void);

/* Memory outside, whether or not the arena is in use. */
void *outside_realloc(void *old, size_t size);
void outside_free(void *bytes);

#endif
