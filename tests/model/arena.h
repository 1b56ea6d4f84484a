/* SPDX-License-Identifier: MIT
 * Memory at a fixed address, so that a state of the world is a copy of it: what the clients' cores,
 * their requests and the store's keys allocate while the arena is in use comes from here, pointers
 * and all.  Lua and the libraries have their memory elsewhere; nothing of a state is in it.
 *
 * A program that uses it is linked with --wrap for malloc, calloc, realloc and free: see main.c. */
#ifndef ARENA_H
#define ARENA_H

#include <stdbool.h>
#include <stddef.h>

/* Allocations come from the arena from now on, or no more.  While setting up, large ones do not:
 * they have to stay as they are from then on. */
enum arena_mode { ARENA_OFF, ARENA_ON, ARENA_SETUP };
enum arena_mode arena_use(enum arena_mode mode); /* returns what it was */
/* Nothing is allocated, but for so many bytes of zeros at the returned address. */
void *arena_clear(size_t size);
/* What is in it: from arena_base() on so many bytes.  Copied back they are that state again. */
void *arena_base(void);
size_t arena_used(void);

/* Memory outside, whether or not the arena is in use. */
void *outside_realloc(void *old, size_t size);
void outside_free(void *bytes);

#endif
