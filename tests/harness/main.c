/* SPDX-License-Identifier: MIT
 * The main() of every test program: prog [TEST...] runs all tests or those named. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_TESTS 400

static struct {
	const TTest *test;
	double seconds;
	int row;
} tests[MAX_TESTS];
static int test_count;

void test_register(const TTest *test, double seconds)
{
	test_register_row(test, seconds, 0);
}

void test_register_row(const TTest *test, double seconds, int row)
{
	if (test_count == MAX_TESTS)
		abort();
	tests[test_count].test = test;
	tests[test_count].seconds = seconds;
	tests[test_count].row = row;
	test_count++;
}

static void (*before_all)(void);

void test_before_all(void (*run)(void))
{
	before_all = run;
}

unsigned long long test_seed(void)
{
	static unsigned long long seed;
	const char *text = getenv("LK_SEED");

	if (text)
		return strtoull(text, NULL, 10);
	if (!seed) {
		struct timespec now;
		clock_gettime(CLOCK_REALTIME, &now);
		seed = (unsigned long long)now.tv_sec * 1000003u + (unsigned long long)now.tv_nsec;
	}
	return seed;
}

/* By its name, or, if it is fact:noun, by the fact. */
static int wanted(const char *name, int argc, char **argv)
{
	size_t len = strcspn(name, ":");

	for (int i = 1; i < argc; i++)
		if (!strcmp(name, argv[i]) ||
		    (strlen(argv[i]) == len && !memcmp(name, argv[i], len)))
			return 1;
	return argc < 2;
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');
	Suite *suite = suite_create(slash ? slash + 1 : argv[0]);
	SRunner *runner;
	int failed, ran = 0;
	char seed[32];

	snprintf(seed, sizeof(seed), "%llu", test_seed());
	setenv("LK_SEED", seed, 1);
	for (int i = 0; i < test_count; i++) {
		TCase *tcase;
		if (!wanted(tests[i].test->name, argc, argv))
			continue;
		tcase = tcase_create(tests[i].test->name);
		tcase_set_timeout(tcase, tests[i].seconds);
		tcase_add_loop_test(tcase, tests[i].test, tests[i].row, tests[i].row + 1);
		if (!ran && before_all)
			tcase_add_unchecked_fixture(tcase, before_all, NULL);
		suite_add_tcase(suite, tcase);
		ran++;
	}
	runner = srunner_create(suite);
	srunner_run_all(runner, getenv("V") ? CK_VERBOSE : CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	if (failed)
		printf("seed: LK_SEED=%s\n", seed);
	srunner_free(runner);
	return failed || !ran;
}
