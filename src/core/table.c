/* SPDX-License-Identifier: MIT
 * The hash table with links inside. */
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
	struct lk__link **buckets = calloc(table->size * 2, sizeof(*buckets));

	if (!buckets)
		return;
	for (size_t i = 0; i < table->size; i++) {
		struct lk__link *link = table->buckets[i];
		while (link) {
			struct lk__link *next = link->next;
			struct lk__link **bucket = &buckets[link->hash & (table->size * 2 - 1)];
			link->next = *bucket;
			*bucket = link;
			link = next;
		}
	}
	free(table->buckets);
	table->buckets = buckets;
	table->size *= 2;
}

void lk__table_add(struct lk__table *table, struct lk__link *link, uint64_t hash)
{
	struct lk__link **bucket;

	if (table->count >= table->size)
		grow(table);
	bucket = &table->buckets[hash & (table->size - 1)];
	link->hash = hash;
	link->next = *bucket;
	*bucket = link;
	table->count++;
}

void lk__table_remove(struct lk__table *table, struct lk__link *link)
{
	struct lk__link **at = &table->buckets[link->hash & (table->size - 1)];

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	link->next = NULL;
	table->count--;
}

struct lk__link *lk__table_first(const struct lk__table *table, uint64_t hash)
{
	struct lk__link *link = table->buckets[hash & (table->size - 1)];

	while (link && link->hash != hash)
		link = link->next;
	return link;
}

struct lk__link *lk__table_next(const struct lk__link *link)
{
	uint64_t hash = link->hash;
	struct lk__link *next = link->next;

	while (next && next->hash != hash)
		next = next->next;
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
