/* SPDX-License-Identifier: MIT
 * replay CALLS [SEED]: the library's scripts in the Redis in memory and on a real server, call by
 * call; see tests/harness/replay.h. */
#include "replay.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static uint64_t new_seed(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec;
}

static const char *commit(void)
{
	const char *text = getenv("LK_COMMIT");

	return text && *text ? text : "unknown";
}

static void print_sums(const struct replay_sums *sums, uint64_t seed, double took, FILE *out)
{
	replay_print(sums, out);
	fprintf(out,
	        "replies compared: %lld, of them errors: %lld; other commands: %lld, of them "
	        "damage: "
	        "%lld\n",
	        sums->replies, sums->errors, sums->commands - sums->calls, sums->damages);
	fprintf(out,
	        "all keys compared: %lld times, %lld texts with the time each key has left (to the "
	        "ms); messages: %lld\n",
	        sums->batches, sums->values, sums->messages);
	fprintf(out,
	        "replay: %lld script calls in memory and on a server, no difference "
	        "(%.0f s, seed %" PRIu64 ", commit %s)\n",
	        sums->calls, took, seed, commit());
}

/* The harness' server reports to Check, and so this runs as its one test. */
static struct {
	long long calls;
	uint64_t seed;
	bool good;
} run;

START_TEST(run_all)
{
	const char *evidence = getenv("LK_EVIDENCE");
	struct replay_sums sums, again;
	double start = seconds();
	FILE *file;

	if (!replay_run(run.seed, run.calls, -1, &sums, stdout)) {
		printf("once more, with all keys compared after each call of that batch:\n");
		replay_run(run.seed, run.calls, sums.batches - 1, &again, stdout);
		printf("replay: a difference after %lld calls (commit %s): repeat with make replay "
		       "CALLS=%lld SEED=%" PRIu64 "\n",
		       sums.calls, commit(), run.calls, run.seed);
		return;
	}
	print_sums(&sums, run.seed, seconds() - start, stdout);
	file = evidence ? fopen(evidence, "ae") : NULL;
	if (file) {
		print_sums(&sums, run.seed, seconds() - start, file);
		fclose(file);
	}
	run.good = true;
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("replay");
	SRunner *runner = srunner_create(suite);
	TCase *tcase = tcase_create("replay");

	run.calls = argc > 1 ? atoll(argv[1]) : 50000;
	run.seed = argc > 2 && *argv[2] ? strtoull(argv[2], NULL, 10) : new_seed();
	tcase_add_test(tcase, run_all);
	suite_add_tcase(suite, tcase);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	srunner_free(runner);
	return !run.good;
}
