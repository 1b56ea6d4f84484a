/* SPDX-License-Identifier: MIT
 * The simulator's command: many seeds, in several processes.  Its environment:
 *
 *   SEEDS        how many (0 = until SECONDS_MAX)       SEED         the first one
 *   MINUTES      simulated, each                        JOBS         processes
 *   SECONDS_MAX  begin no seed after so long            FAILURES     end after so many
 *   PLAN         what to leave out, as a failure prints it
 *   STORE=sentinel  give every seed with faults but those of others a service of Sentinel, not only
 *                   each eighth one
 *   STORE=cluster   ... a Cluster
 *   STORE=quorum    ... and every other seed a quorum
 *   STORE=etcd      the same with a cluster of etcd
 *   TRACE=1      tell every event of SEED
 *   SHRINK=0     do not look for a smaller plan
 *
 * Exit status 0: no check failed, and the seeds had enough load to make that meaningful. */
#include "sim_plan.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64
#define SHRINK_RUNS 400
#define SHRINK_SECONDS 45
#define TAIL_EVENTS 60

/* Shared by the processes. */
struct job {
	struct sim_tally tally;
	uint64_t seed; /* the seed that it runs */
	long long seeds;
	bool busy;
	int thin; /* seeds with too little load */
};

struct board {
	struct job jobs[JOBS_MAX];
	atomic_int failures;
};

struct options {
	uint64_t first;
	long long seeds, minutes, jobs, seconds_max, failures;
	const char *plan;
	bool trace, shrink;
	const char *store; /* as in the environment, NULL = each seed's own */
	void (*plan_store)(struct sim_plan *plan); /* changes a plan to it, NULL = it does not */
};

static struct board *board;
static struct options options;
static double started;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long long number_of(const char *name, long long other)
{
	const char *text = getenv(name);
	char *end;
	long long number;

	if (!text || !*text)
		return other;
	number = strtoll(text, &end, 10);
	if (*end || number < 0) {
		fprintf(stderr, "sim: %s=%s is not a number\n", name, text);
		exit(2);
	}
	return number;
}

static void read_options(void)
{
	static const struct {
		const char *name;
		void (*plan)(struct sim_plan *plan);
	} stores[] = {{"sentinel", sim_plan_sentinels},
	              {"cluster", sim_plan_cluster},
	              {"quorum", sim_plan_quorum},
	              {"etcd", sim_plan_etcd}};
	const char *plan = getenv("PLAN"), *store = getenv("STORE");

	options.first = (uint64_t)number_of("SEED", 1);
	options.seconds_max = number_of("SECONDS_MAX", 0);
	options.seeds = number_of("SEEDS", getenv("SEED") && *getenv("SEED") ? 1 : 24);
	options.minutes = number_of("MINUTES", 3);
	options.jobs = number_of("JOBS", 2);
	options.failures = number_of("FAILURES", 3);
	options.trace = number_of("TRACE", 0);
	options.shrink = number_of("SHRINK", 1);
	options.plan = plan && *plan ? plan : NULL;
	for (size_t i = 0; store && i < sizeof(stores) / sizeof(*stores); i++) {
		if (strcmp(store, stores[i].name) != 0)
			continue;
		options.store = stores[i].name;
		options.plan_store = stores[i].plan;
	}
	if (store && *store && !options.store) {
		fprintf(stderr,
		        "sim: STORE=%s is not \"sentinel\", \"cluster\", \"quorum\" or \"etcd\"\n",
		        store);
		exit(2);
	}
	if (options.jobs < 1 || options.jobs > JOBS_MAX)
		options.jobs = 2;
	if (options.plan || options.trace)
		options.seeds = 1;
}

/* ---- A failure ---------------------------------------------------------------------------- */

/* Print the last events; a line that begins with blanks belongs to the line before. */
static void tell_tail(FILE *out, const char *text, size_t len)
{
	const char *at = text + len;
	int events = 0;

	while (at > text && events < TAIL_EVENTS) {
		at--;
		if (at > text && at[-1] == '\n' && memcmp(at, "           ", 11) != 0)
			events++;
	}
	fputs(at, out);
}

static void tell_faults(FILE *out, const struct sim_plan *plan)
{
	for (int i = 0; i < plan->fault_count; i++) {
		const struct sim_fault *fault = &plan->faults[i];
		if (!fault->out)
			fprintf(out, "  %9.3f s  %s, target %d, %.3f s\n",
			        (double)fault->at_ns / 1e9, sim_fault_name(fault->kind),
			        fault->target, (double)fault->length_ns / 1e9);
	}
}

static void tell_failure(struct sim_plan *plan, struct sim_result *result)
{
	static struct sim_result again;
	char text[SIM_PLAN_TEXT], *report, *events;
	const char *commit = getenv("LK_COMMIT");
	size_t report_len, events_len;
	FILE *out = open_memstream(&report, &report_len);
	FILE *trace = open_memstream(&events, &events_len);

	fprintf(out, "\nFAILED seed %llu at %.6f s: %s (%s): %s\n", (unsigned long long)plan->seed,
	        (double)result->at_ns / 1e9, result->check, result->sentence, result->text);
	fflush(out);
	fwrite(report, 1, report_len, stdout);
	fflush(stdout);
	rewind(out);
	if (options.shrink)
		sim_shrink(plan, result, SHRINK_RUNS, SHRINK_SECONDS);
	sim_plan_text(plan, text);
	sim_run(plan, &again, trace);
	fflush(trace);
	fprintf(out, "seed %llu, commit %s, smallest plan of it, fails at %.6f s: %s: %s\n",
	        (unsigned long long)plan->seed, commit ? commit : "unknown",
	        (double)again.at_ns / 1e9, again.check, again.text);
	tell_faults(out, plan);
	fprintf(out, "the last events:\n");
	tell_tail(out, events, events_len);
	fprintf(out, "again: make sim SEED=%llu MINUTES=%lld %s%s%sPLAN=%s\n",
	        (unsigned long long)plan->seed, options.minutes, options.store ? "STORE=" : "",
	        options.store ? options.store : "", options.store ? " " : "", text);
	fclose(out);
	fclose(trace);
	fwrite(report, 1, report_len, stdout);
	fflush(stdout);
	free(report);
	free(events);
}

/* ---- Seeds -------------------------------------------------------------------------------- */

static void run_seed(struct job *job, uint64_t seed)
{
	static struct sim_plan plan;
	static struct sim_result result;

	job->seed = seed;
	job->busy = true;
	sim_plan_make(&plan, seed, options.minutes * 60 * SIM_S);
	if (options.plan_store)
		options.plan_store(&plan);
	if (options.plan && !sim_plan_cut(&plan, options.plan)) {
		fprintf(stderr, "sim: PLAN=%s is not one of seed %llu\n", options.plan,
		        (unsigned long long)seed);
		exit(2);
	}
	if (!sim_run(&plan, &result, options.trace ? stdout : NULL)) {
		atomic_fetch_add(&board->failures, 1);
		if (options.plan)
			options.shrink = false;
		tell_failure(&plan, &result);
	} else if (!options.plan && plan.fault_count && !sim_tally_is_full(&result.tally)) {
		printf("seed %llu has too few clients, grants or faults\n",
		       (unsigned long long)seed);
		job->thin++;
	}
	sim_tally_add(&job->tally, &result.tally);
	job->seeds++;
	job->busy = false;
}

static bool is_time(void)
{
	return options.seconds_max && now() - started >= (double)options.seconds_max;
}

static void work(int index)
{
	long long i = index;

	for (; (!options.seeds || i < options.seeds) && !is_time(); i += options.jobs) {
		if (atomic_load(&board->failures) >= options.failures)
			break;
		run_seed(&board->jobs[index], options.first + (uint64_t)i);
	}
}

/* A process that died is a failure of its seed. */
static void wait_for_jobs(const pid_t *pids)
{
	for (int i = 0; i < options.jobs; i++) {
		int status;
		while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
			;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		atomic_fetch_add(&board->failures, 1);
		printf("FAILED seed %llu: the process ended with %s %d\n",
		       (unsigned long long)board->jobs[i].seed,
		       WIFSIGNALED(status) ? "signal" : "status",
		       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
}

/* ---- The verdict -------------------------------------------------------------------------- */

static void tell_figures(FILE *out, const struct sim_tally *sum, long long seeds)
{
	double wall = now() - started, minutes = sum->seconds / 60;
	long long faults = 0;

	for (int i = 0; i < SIM_FAULT_KINDS; i++)
		faults += sum->faults[i];
	fprintf(out,
	        "sim: %lld seeds, %.2f simulated hours in %.3f hours, %lld processes: %.0f "
	        "simulated "
	        "hours an hour\n",
	        seeds, sum->seconds / 3600, wall / 3600, options.jobs, sum->seconds / wall);
	fprintf(out,
	        "  %.1f clients, %.1f grants a simulated second, %.1f faults a simulated minute\n",
	        sum->client_seconds / sum->seconds,
	        (double)(sum->grants + sum->handed_over) / sum->seconds, (double)faults / minutes);
	fprintf(out,
	        "  %lld steps, %lld scripts, %lld grants of the store, %lld local hand-overs, %lld "
	        "waits\n",
	        sum->steps, sum->scripts, sum->grants, sum->handed_over, sum->waits);
	fprintf(out,
	        "  %lld losses, %lld permits of rates, %lld openings of latches, %lld steps "
	        "counted, "
	        "%lld waits released, %lld unknown outcomes\n",
	        sum->losses, sum->forgot, sum->openings, sum->counted, sum->released, sum->unknown);
	fprintf(out, "  %lld holds taken back from a server that had lost its memory\n",
	        sum->reclaimed);
	fprintf(out,
	        "  %lld links cut because a sentinel named another master, %lld scripts run by a "
	        "replaced master, %lld grants of it, %lld moments with holds of both, %lld holds "
	        "not covered\n",
	        sum->cuts, sum->stale, sum->stale_grants, sum->stale_dual, sum->uncovered);
	fprintf(out,
	        "  %lld counts of replicas, %lld of too few, which ended %lld acquisitions, %lld "
	        "holds that failovers had to keep\n",
	        sum->counts, sum->short_counts, sum->unconfirmed, sum->kept);
	fprintf(out, "  %lld requests moved, %lld asked elsewhere, %lld with keys on two nodes\n",
	        sum->moved, sum->asked, sum->divided);
	fprintf(out,
	        "  %lld grants of a quorum's members, %lld yields, %lld holds that clocks set "
	        "forward left without a majority, %lld of them beside another hold\n",
	        sum->legs, sum->yields, sum->early, sum->overlaps);
	fprintf(out, "  longest: %.1f ms from grant to hold, %.1f s free while a client waits\n",
	        sum->longest_grant_ms, sum->longest_idle_ms / 1000);
	fprintf(out, "  faults:");
	for (int i = 0; i < SIM_FAULT_KINDS; i++)
		fprintf(out, "%s %lld %s", i ? "," : "", sum->faults[i], sim_fault_name(i));
	fprintf(out, "\n");
}

static void write_evidence(const struct sim_tally *sum, long long seeds, const char *verdict)
{
	const char *path = getenv("LK_EVIDENCE");
	FILE *out = path && *path ? fopen(path, "a") : NULL;

	if (!out)
		return;
	tell_figures(out, sum, seeds);
	fprintf(out, "%s\n", verdict);
	fclose(out);
}

int main(void)
{
	struct sim_tally sum = {0};
	pid_t pids[JOBS_MAX];
	char verdict[200];
	long long seeds = 0;
	int thin = 0, failures;
	bool good;

	read_options();
	started = now();
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	             0);
	if (board == MAP_FAILED)
		return 2;
	for (int i = 0; i < options.jobs; i++) {
		fflush(NULL);
		pids[i] = fork();
		if (pids[i] < 0)
			return 2;
		if (!pids[i]) {
			work(i);
			exit(0);
		}
	}
	wait_for_jobs(pids);
	for (int i = 0; i < options.jobs; i++) {
		sim_tally_add(&sum, &board->jobs[i].tally);
		seeds += board->jobs[i].seeds;
		thin += board->jobs[i].thin;
	}
	if (sum.seconds <= 0)
		return 2;
	tell_figures(stdout, &sum, seeds);
	failures = atomic_load(&board->failures);
	/* A single seed was selected by the user, and any failure ends the run.  Of many seeds,
	 * some have little load. */
	good = !failures && (seeds < 8 || (thin * 50 <= seeds && sim_tally_is_full(&sum)));
	snprintf(verdict, sizeof(verdict),
	         "sim: %s: %d of %lld seeds failed a check, %d had too little in them, %.2f "
	         "simulated hours from seed %llu on",
	         good ? "good" : "FAILED", failures, seeds, thin, sum.seconds / 3600,
	         (unsigned long long)options.first);
	write_evidence(&sum, seeds, verdict);
	printf("%s\n", verdict);
	return !good;
}
