/* SPDX-License-Identifier: MIT
 * The bench: how fast Latchkey is, compared with what a user would use instead.
 *
 *   bench [T="pair threads"] [ROUNDS=n] [TURN=ms] [JSON=FILE | --json FILE]
 *
 * Exit status: 0 also when a goal is missed, 1 if a measurement failed, 2 for an unknown option. */
#include "run.h"

#include "built_with.h"
#include "harness/process.h"
#include "harness/test.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS_DEFAULT 17
#define TURN_DEFAULT_MS 100
#define TURN_MAX_MS 60000

static const struct bench_case *const cases[] = {
	&case_pair,    &case_tls,       &case_replicas, &case_cluster,   &case_quorum,
#if LK__ETCD
	&case_etcd,
#endif
	&case_threads, &case_contended, &case_local,    &case_semaphore, &case_latch,
	&case_held,    &case_counters,  &case_command,
};
#define CASE_COUNT (int)(sizeof(cases) / sizeof(cases[0]))

void bench_fail(const char *fmt, ...)
{
	va_list args;

	fflush(stdout);
	fprintf(stderr, "bench: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	_exit(1);
}

/* The two functions that ck_assert() needs: the harness asserts, and here is no test around it. */
void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
	char text[400] = "";
	va_list args;

	if (msg) {
		va_start(args, msg);
		vsnprintf(text, sizeof(text), msg, args);
		va_end(args);
	}
	bench_fail("%s:%d: %s%s%s", file, line, expr, msg ? ": " : "", text);
}

void _mark_point(const char *file, int line)
{
	(void)file;
	(void)line;
}

/* Of a shared Cluster, which tests have. */
void test_before_all(void (*begin)(void))
{
	(void)begin;
}

/* ---- Options ------------------------------------------------------------------------------- */

_Noreturn static void refuse(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void refuse(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "bench: ");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr,
	        "\nbench: T=\"CASE...\" ROUNDS=1..%d TURN=ms JSON=FILE; cases:", ROUNDS_MAX);
	for (int i = 0; i < CASE_COUNT; i++)
		fprintf(stderr, " %s", cases[i]->name);
	fprintf(stderr, "\n");
	exit(2);
}

static int64_t number(const char *name, const char *text, int64_t standard, int64_t max)
{
	char *end;
	long long value;

	if (!*text)
		return standard;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (*end || errno || value < 1 || value > max)
		refuse("%s=%s is no number from 1 to %lld", name, text, (long long)max);
	return value;
}

/* Is the name one of the words? */
static bool listed(const char *words, const char *name)
{
	size_t len = strlen(name);

	for (const char *at = words; (at = strstr(at, name)); at += len)
		if ((at == words || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

static void check_cases(const char *words)
{
	char all[WHAT_SIZE], *rest = all, *word;

	if ((size_t)snprintf(all, sizeof(all), "%s", words) >= sizeof(all))
		refuse("T=%s is too long", words);
	while ((word = strtok_r(rest, " ", &rest))) {
		bool found = false;

		for (int i = 0; i < CASE_COUNT && !found; i++)
			found = !strcmp(cases[i]->name, word);
		if (!found)
			refuse("there is no case %s", word);
	}
}

/* Check before the run that the file can be written.  A file that exists is kept until the run has
 * a result. */
static void check_file(const char *name, const char *path)
{
	bool existed = !access(path, F_OK);
	int fd;

	if (!*path)
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		refuse("cannot write %s=%s: %s", name, path, strerror(errno));
	close(fd);
	if (!existed)
		unlink(path);
}

static struct bench_options read_options(int argc, char **argv)
{
	const char *names[] = {"T=", "ROUNDS=", "TURN=", "JSON="};
	const char *values[] = {"", "", "", ""};
	struct bench_options options;

	for (int i = 1; i < argc; i++) {
		int which = 0;

		if (!strcmp(argv[i], "--json")) {
			if (++i == argc)
				refuse("--json needs the name of a file");
			values[3] = argv[i];
			continue;
		}
		while (which < 4 && strncmp(argv[i], names[which], strlen(names[which])) != 0)
			which++;
		if (which == 4)
			refuse("%s: unknown option", argv[i]);
		values[which] = argv[i] + strlen(names[which]);
		values[which] += strspn(values[which], " ");
	}
	check_cases(values[0]);
	options.cases = values[0];
	options.rounds = (int)number("ROUNDS", values[1], ROUNDS_DEFAULT, ROUNDS_MAX);
	options.turn_ms = number("TURN", values[2], TURN_DEFAULT_MS, TURN_MAX_MS);
	options.rounds_said = *values[1];
	options.turn_said = *values[2];
	options.json_path = values[3];
	check_file("JSON", options.json_path);
	return options;
}

/* ---- The run ------------------------------------------------------------------------------- */

static void run_case(struct bench *bench, const struct bench_case *one)
{
	const struct bench_options *options = &bench->options;
	int contests = bench->contest_count, notes = bench->note_count;

	bench->case_name = one->name;
	printf("\n== %s: %s\n", one->name, one->what);
	fflush(stdout);
	one->run(bench);
	if (bench->contest_count == contests && bench->note_count == notes && !bench_brief(bench) &&
	    (options->rounds_said || options->turn_said))
		bench_note(bench, "is no contest of rounds: ROUNDS and TURN were not used");
}

static int run(const struct bench_options *options)
{
	struct bench *bench = calloc(1, sizeof(*bench));

	if (!bench)
		bench_fail("out of memory");
	bench->options = *options;
	bench->case_name = "bench";
	if (TSAN || ASAN)
		bench_note(bench, "a sanitized build: its figures mean nothing");
	for (int i = 0; i < CASE_COUNT; i++) {
		if (*options->cases && !listed(options->cases, cases[i]->name))
			continue;
		run_case(bench, cases[i]);
	}
	bench->case_name = "bench";
	report_figures(bench);
	if (*options->json_path)
		report_json(bench, options->json_path);
	fflush(stdout);
	return 0;
}

static volatile sig_atomic_t child, stopped;

static void interrupt(int number)
{
	stopped = number;
	if (child > 0)
		kill(child, SIGKILL);
}

/* The run has a process of its own.  However it ends, its servers and workers end with it, and the
 * parent removes their folders. */
int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = interrupt};
	struct bench_options options = read_options(argc, argv);
	pid_t parent = getpid();
	int status = -1;
	sigset_t stops;

	sigemptyset(&stops);
	sigaddset(&stops, SIGINT);
	sigaddset(&stops, SIGTERM);
	sigaddset(&stops, SIGHUP);
	sigprocmask(SIG_BLOCK, &stops, NULL);
	signal(SIGPIPE, SIG_IGN);
	child = fork();
	if (child < 0)
		bench_fail("cannot fork: %s", strerror(errno));
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		sigprocmask(SIG_UNBLOCK, &stops, NULL);
		_exit(run(&options));
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigprocmask(SIG_UNBLOCK, &stops, NULL);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	if (WIFEXITED(status))
		return WEXITSTATUS(status) ? 1 : 0;
	/* Ctrl-C may have ended the run before this process got the signal, or our SIGKILL did. */
	fprintf(stderr, "bench: stopped by signal %d\n", stopped ? stopped : WTERMSIG(status));
	return 1;
}
