/* SPDX-License-Identifier: MIT
 * A store in this process' memory, for locks alone: the seam of src/store.h from its other side.
 * Its descriptors are eventfds; a request takes effect when it is written. */
#ifndef MEMORY_STORE_H
#define MEMORY_STORE_H

/* Clients that open from now on use it, whatever their URL says. */
void memory_store_use(void);
/* Requests of tickets so far, of all clients. */
long long memory_store_requests(void);
/* Tickets in the queue of a name; -1 = there is no such name. */
int memory_store_queue(const char *name);

#endif
