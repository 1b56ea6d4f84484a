/* SPDX-License-Identifier: MIT
 * One macro that defines a test.  A test file is a program: it links harness/main.c, which runs
 * every TEST() of the file through Check, each in a process and with a time limit of its own. */
#ifndef TEST_H
#define TEST_H

#include <check.h>
#include <stdbool.h>

/* TEST(noun_does_x) { ... }: a test limited to 20 s; TEST_LIMIT() for another limit, in seconds;
 * TEST_IF() for one that this program has under a condition; TEST_ROW() for one of a row in a
 * table, shown as "fact:row".  No registration elsewhere. */
#define TEST(name) TEST_LIMIT(name, 20)
#define TEST_LIMIT(name, seconds) TEST_IF(name, seconds, true)
#define TEST_IF(name, seconds, condition) TEST_ROW(name, #name, seconds, condition)
#define TEST_ROW(name, shown, seconds, condition)                                                  \
	static void name##_run(int);                                                               \
	static const TTest name##_test = {shown, name##_run, __FILE__, __LINE__};                  \
	__attribute__((constructor)) static void name##_register(void)                             \
	{                                                                                          \
		if (condition)                                                                     \
			test_register(&name##_test, seconds);                                      \
	}                                                                                          \
	static void name##_run(int test_index __attribute__((unused)))

void test_register(const TTest *test, double seconds);
/* The same for a row of a table: the test gets its number. */
void test_register_row(const TTest *test, double seconds, int row);

/* Run this once, in the runner's process, before the first test: for what is too slow to start for
 * each test.  It may assert. */
void test_before_all(void (*run)(void));

/* The seed of this run: LK_SEED from the environment, else random.  Printed if a test fails. */
unsigned long long test_seed(void);

#endif
