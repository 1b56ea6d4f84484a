/* SPDX-License-Identifier: MIT
 * A store in the memory of this process, for locks only: an implementation of src/store.h.  Its
 * descriptors are eventfds; a request takes effect when it is written. */
#ifndef MEMORY_STORE_H
#define MEMORY_STORE_H

#include <stdatomic.h>
#include <stdbool.h>

#define MEMORY_STORE_LINKS_MAX 3

/* All clients opened after this use it, whatever host their URL names, and have that many links,
 * each to a server of its own.  The first byte of a name, modulo their number, is the link of that
 * name: of three, "a" is on link 1, "b" on 2, "c" on 0. */
void memory_store_use(unsigned links);
/* Have a link discard what is written to it, and send no replies; a dial to it lasts until its
 * deadline or its cancellation.  The other links work on. */
void memory_store_black_hole(unsigned link, bool on);
/* The number of executed requests of tickets, of all clients. */
extern atomic_llong memory_store_requests;

#endif
