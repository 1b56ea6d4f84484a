/* SPDX-License-Identifier: MIT
 * A store in this process' memory, for locks alone: the seam of src/store.h from its other side.
 * Its descriptors are eventfds; a request takes effect when it is written. */
#ifndef MEMORY_STORE_H
#define MEMORY_STORE_H

#include <stdatomic.h>
#include <stdbool.h>

#define MEMORY_STORE_LINKS_MAX 3

/* Clients that open from now on use it, whatever their URL says, and have that many links, each to
 * a server of its own.  The first byte of a name, modulo their number, is the link of that name: of
 * three, "a" is on link 1, "b" on 2, "c" on 0. */
void memory_store_use(unsigned links);
/* Have a link swallow what is written to it, and answer nothing; a dial to it lasts until its
 * deadline or its cancellation.  The other links work on. */
void memory_store_black_hole(unsigned link, bool on);
/* Requests of tickets that were executed, of all clients. */
extern atomic_llong memory_store_requests;

#endif
