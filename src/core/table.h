/* SPDX-License-Identifier: MIT
 * An intrusive hash table.  It cannot fail after its creation: if it cannot grow it gets slower. */
#ifndef LK__TABLE_H
#define LK__TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lk__node {
	struct lk__node *next;
	uint64_t hash;
};

struct lk__table {
	struct lk__node **buckets;
	size_t size; /* a power of two */
	size_t count;
};

bool lk__table_init(struct lk__table *table);
void lk__table_fini(struct lk__table *table);
void lk__table_add(struct lk__table *table, struct lk__node *node, uint64_t hash);
void lk__table_remove(struct lk__table *table, struct lk__node *node);
/* The first node with this hash, then the next: the caller compares the keys. */
struct lk__node *lk__table_first(const struct lk__table *table, uint64_t hash);
struct lk__node *lk__table_next(const struct lk__node *node);
/* The node after this one, of all in any order: NULL = the first; NULL after the last.  To remove
 * one, get the next one first. */
struct lk__node *lk__table_each(const struct lk__table *table, const struct lk__node *node);

uint64_t lk__hash(const void *bytes, size_t len, uint64_t seed);

#endif
