/* SPDX-License-Identifier: MIT
 * The slots of a Redis Cluster: that of a name, and for each slot a tag for keys without a name. */
#ifndef LK__SLOT_H
#define LK__SLOT_H

#include <stddef.h>
#include <stdint.h>

#define LK__SLOTS 16384
#define LK__TAG_SIZE 5 /* with its NUL */

/* The slot of all keys and channels "...{name}...": the name is as the program gave it, not
 * encoded; what is hashed is its lk__name_encode(). */
unsigned lk__slot_of(const char *name, size_t len);

/* The protocol's tag of a slot: of the texts "aaaa", "aaab", .. "zzzz" the first one in the slot.
 * Each slot has one. */
void lk__slot_tag(unsigned slot, char tag[LK__TAG_SIZE]);

/* Of the slots that have this owner, find those that come first in the order of the node of that
 * id, at most max; each node has an order of its own, in which a slot keeps its rank whatever other
 * slots the node has (rendezvous hashing).  Returns how many. */
int lk__slots_first(const uint8_t owner[LK__SLOTS], uint8_t index, const char *node,
                    unsigned *slots, int max);

#endif
