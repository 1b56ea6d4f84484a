/* SPDX-License-Identifier: MIT
 * replay CALLS [SEED]: the library's scripts in the Redis in memory and on a real server, call by
 * call; see tests/harness/replay.h. */
#include "replay.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
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

/* The harness' server reports to Check, so the replay runs as its only test. */
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

	/* Check would kill the whole process group, which has other members. */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
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

static bool number(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno;
}

int main(int argc, char **argv)
{
	uint64_t calls = 50000;
	Suite *suite = suite_create("replay");
	SRunner *runner = srunner_create(suite);
	TCase *tcase = tcase_create("replay");

	run.seed = new_seed();
	if ((argc > 1 && (!number(argv[1], &calls) || !calls || calls > INT64_MAX)) ||
	    (argc > 2 && *argv[2] && !number(argv[2], &run.seed))) {
		fprintf(stderr,
		        "usage: replay [CALLS [SEED]], both whole numbers, CALLS above 0\n");
		return 2;
	}
	run.calls = (long long)calls;
	tcase_add_test(tcase, run_all);
	suite_add_tcase(suite, tcase);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_SILENT);
	srunner_free(runner);
	return !run.good;
}
