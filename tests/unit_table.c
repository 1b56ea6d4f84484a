/* SPDX-License-Identifier: MIT
 * The hash table: entries are found from insertion to removal, also under equal hashes. */
#include "core/table.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define ITEMS 1000

struct item {
	struct lk__node node; /* first */
	int number;
};

static struct item items[ITEMS];

static uint64_t hash_of(int number, int kinds)
{
	int kind = number % kinds;

	return lk__hash(&kind, sizeof(kind), 7);
}

static struct item *find(const struct lk__table *table, int number, int kinds)
{
	struct lk__node *node = lk__table_first(table, hash_of(number, kinds));

	while (node && ((struct item *)node)->number != number)
		node = lk__table_next(node);
	return (struct item *)node;
}

static void add_and_remove(int kinds)
{
	struct lk__table table;

	ck_assert(lk__table_init(&table));
	for (int i = 0; i < ITEMS; i++) {
		items[i].number = i;
		lk__table_add(&table, &items[i].node, hash_of(i, kinds));
	}
	ck_assert_uint_eq(table.count, ITEMS);
	ck_assert_uint_ge(table.size, ITEMS / 2);
	for (int i = 0; i < ITEMS; i++)
		ck_assert_ptr_eq(find(&table, i, kinds), &items[i]);
	for (int i = 0; i < ITEMS; i += 2)
		lk__table_remove(&table, &items[i].node);
	for (int i = 0; i < ITEMS; i++)
		ck_assert_ptr_eq(find(&table, i, kinds), i % 2 ? &items[i] : NULL);
	ck_assert_uint_eq(table.count, ITEMS / 2);
	lk__table_fini(&table);
}

/* Each once, although each is removed as it comes. */
static void go_through(int kinds)
{
	struct lk__node *node, *next;
	struct lk__table table;
	int count = 0;

	ck_assert(lk__table_init(&table));
	ck_assert_ptr_null(lk__table_each(&table, NULL));
	for (int i = 0; i < ITEMS; i++) {
		items[i].number = i;
		lk__table_add(&table, &items[i].node, hash_of(i, kinds));
	}
	for (node = lk__table_each(&table, NULL); node; node = next) {
		next = lk__table_each(&table, node);
		ck_assert_int_ge(((struct item *)node)->number, 0);
		((struct item *)node)->number = -1;
		lk__table_remove(&table, node);
		count++;
	}
	ck_assert_int_eq(count, ITEMS);
	ck_assert_uint_eq(table.count, 0);
	lk__table_fini(&table);
}

TEST(table_finds_what_it_has)
{
	add_and_remove(ITEMS);
}

TEST(table_finds_among_equal_hashes)
{
	add_and_remove(3);
}

TEST(table_has_each_once)
{
	go_through(ITEMS);
	go_through(3);
	go_through(1);
}

TEST(hash_spreads_names_over_low_bits)
{
	int buckets[64] = {0};

	for (int i = 0; i < 6400; i++) {
		char name[24];
		snprintf(name, sizeof(name), "job-%d", i);
		buckets[lk__hash(name, strlen(name), 0) & 63]++;
	}
	for (int i = 0; i < 64; i++) {
		ck_assert_int_gt(buckets[i], 50);
		ck_assert_int_lt(buckets[i], 170);
	}
}
