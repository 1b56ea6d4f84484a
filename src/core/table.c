/* SPDX-License-Identifier: MIT
 * The intrusive hash table. */
#include "table.h"

#include <stdlib.h>

#define FIRST_SIZE 16

bool lk__table_init(struct lk__table *table)
{
	table->size = FIRST_SIZE;
	table->count = 0;
	table->buckets = calloc(table->size, sizeof(*table->buckets));
	return table->buckets != NULL;
}

void lk__table_fini(struct lk__table *table)
{
	free(table->buckets);
	table->buckets = NULL;
}

static void grow(struct lk__table *table)
{
	struct lk__node **buckets = calloc(table->size * 2, sizeof(*buckets));

	if (!buckets)
		return;
	for (size_t i = 0; i < table->size; i++) {
		struct lk__node *node = table->buckets[i];
		while (node) {
			struct lk__node *next = node->next;
			struct lk__node **bucket = &buckets[node->hash & (table->size * 2 - 1)];
			node->next = *bucket;
			*bucket = node;
			node = next;
		}
	}
	free(table->buckets);
	table->buckets = buckets;
	table->size *= 2;
}

void lk__table_add(struct lk__table *table, struct lk__node *node, uint64_t hash)
{
	struct lk__node **bucket;

	if (table->count >= table->size)
		grow(table);
	bucket = &table->buckets[hash & (table->size - 1)];
	node->hash = hash;
	node->next = *bucket;
	*bucket = node;
	table->count++;
}

void lk__table_remove(struct lk__table *table, struct lk__node *node)
{
	struct lk__node **at = &table->buckets[node->hash & (table->size - 1)];

	while (*at != node)
		at = &(*at)->next;
	*at = node->next;
	node->next = NULL;
	table->count--;
}

struct lk__node *lk__table_first(const struct lk__table *table, uint64_t hash)
{
	struct lk__node *node = table->buckets[hash & (table->size - 1)];

	while (node && node->hash != hash)
		node = node->next;
	return node;
}

struct lk__node *lk__table_next(const struct lk__node *node)
{
	uint64_t hash = node->hash;
	struct lk__node *next = node->next;

	while (next && next->hash != hash)
		next = next->next;
	return next;
}

struct lk__node *lk__table_each(const struct lk__table *table, const struct lk__node *node)
{
	size_t i = node ? (node->hash & (table->size - 1)) + 1 : 0;
	struct lk__node *next = node ? node->next : NULL;

	for (; !next && i < table->size; i++)
		next = table->buckets[i];
	return next;
}

/* FNV-1a, finished as in splitmix64 so that the low bits are good, too. */
uint64_t lk__hash(const void *bytes, size_t len, uint64_t seed)
{
	const unsigned char *byte = bytes;
	uint64_t hash = seed ^ UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
	hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
	return hash ^ (hash >> 31);
}
