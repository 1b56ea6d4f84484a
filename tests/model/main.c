/* SPDX-License-Identifier: MIT
 * Every state: 2 clients and 4 steps each of a lock, a semaphore and a latch, with NIGHTLY=1 in
 * more bounds, or 3 and 6 with BIG=1.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free,--wrap=lk__core_random
 *
 * It explores the shipped code: the state machines of src/core, the bytes of src/redis/codec.c, and
 * src/redis/scripts on a Redis in memory.  A step is a script of a client that the store runs.  It
 * explores every order of these actions: a call begins; the store runs the next request of a
 * connection; its reply is read; a message is read; SUBSCRIBE is executed; a due timer runs; a tick
 * of time passes, half a lease; and, as often as the bounds permit, over all clients:
 *
 *   stall     a tick passes while one client has not done what it could: its process is stopped,
 *             or its requests, replies or messages take that long.  Otherwise requests take no
 *             time
 *   give-up   a wait times out
 *   abandoned a call stops waiting for its reply
 *   cut       a client loses its connections, with its replies and messages.  Requests that the
 *             store had not run never run, or, that many times (late), at any later time, also
 *             after requests of the next connection
 *   crash     a process dies; the store notices at once, or counts it as a receiver forever
 *   loss      a message is lost, and nothing else
 *   refusal   the store replies to a request with an error, and runs nothing of it; for the core
 *             the error is permanent, or transient
 *   flush     the store is emptied
 *   restart   all connections are lost, and the store begins anew: empty, or from a copy that it
 *             saved at any moment before
 *   promotion all connections are lost, and a replica takes the store's place: it has the keys of
 *             such a copy, or all; its clock may be behind
 *   replicas  one or two, of which so many must confirm each grant.  The copy is what a replica
 *             has: it gets the rest when it confirms, or before, two of them at different times.
 *             Any of two may be promoted, or the one that has received more.  Without a grace, a
 *             promotion must find each valid hold there
 *   too late  fewer of them confirm in time
 *
 * With several servers they are a quorum, and each is like the store above.  Requests reach them in
 * any order.  A reply, a message or a timer comes at once, before the next request runs, unless it
 * is late:
 *
 *   late reply, message   it comes at any later time, and what is behind it as well
 *   slow      a link carries nothing until the next tick
 *   down      a server is lost for good
 *   clock     a server's clock is set forward by a lease.  Then two tickets may be decided at once;
 *             such states are counted, if one of the two needs a leg that was granted before
 *
 * Where that is too much to explore, it walks: 3 clients, 3 or 5 servers, several faults, replies
 * and messages in any order, and each action is drawn.  Each walk has a seed, and SEED=n walks it
 * again. WALKS=n sets how many there are for each of the bounds.
 *
 * On etcd two clients use a model of three members, of which another may be elected, and the leader
 * be stopped or frozen; a call and its answer arrive one by one.  A timer runs in the tick when it
 * is due, unless its client is stalled; an operator may revoke the lease of a client.
 *
 * Clients may connect for the first time before such a loss, or after it.  The grace is as long as
 * the longest lease in the bounds, unless they have another one.
 *
 * Of orders that certainly lead to the same state it explores one (is_alone() in actions.c), unless
 * EVERY=1; for a latch all of them.  WITH=ticks=2,cuts=0 changes bounds.
 *
 * It prints a run's name, its bounds in these words, and its result.  Not in the bounds: two
 * threads of a client, clocks that drift, a break, an eviction.
 *
 * In every state it checks the promises in its column of tests/promises/promises.c.  From every
 * state in which no request is pending, and from every last one, all calls run to their end without
 * more faults: every waiter is granted, and nothing is left in clients and store. */
#include "plants.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_S 60
#define WALKS_FEW 300
#define WALKS_MANY 20000
#define STATES_MOST 200000000 /* of a run: 10 GB, including both tables while one grows */

struct options {
	bool big, night, every_order;
	const char *kind, *plant, *with;
	int64_t seconds, states, walks, seed;
};

struct sum {
	uint64_t states, transitions, ends;
	double seconds;
	uint64_t walks;
	int runs, cut, wrong;
};

static const char *commit(void)
{
	const char *text = getenv("LK_COMMIT");

	return text && *text ? text : "unknown";
}

/* A number above 0. */
static bool number(const char *text, int64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoll(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && !errno && *value > 0;
}

/* Is it among those, "latch,rate"? */
static bool is_among(const char *kinds, const char *kind)
{
	size_t len = strlen(kind);

	for (; *kinds; kinds += strcspn(kinds, ",")) {
		kinds += *kinds == ',';
		if (strcspn(kinds, ",") == len && !memcmp(kinds, kind, len))
			return true;
	}
	return false;
}

static bool known_kinds(const char *kinds)
{
	static const char *const all[] = {"lock", "semaphore", "rate", "latch", "quorum", "etcd"};
	size_t commas = 0, known = 0;

	for (const char *at = kinds; *at; at++)
		commas += *at == ',';
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		known += is_among(kinds, all[i]);
	return known == commas + 1;
}

static bool parse(struct options *options, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char *value = strchr(argv[i], '=');
		size_t len = value ? (size_t)(value++ - argv[i]) : 0;
		if (len == 3 && !memcmp(argv[i], "BIG", len))
			options->big = *value && strcmp(value, "0") != 0;
		else if (len == 7 && !memcmp(argv[i], "NIGHTLY", len))
			options->night = *value && strcmp(value, "0") != 0;
		else if (len == 5 && !memcmp(argv[i], "EVERY", len))
			options->every_order = *value && strcmp(value, "0") != 0;
		else if (len == 4 && !memcmp(argv[i], "KIND", len))
			options->kind = value;
		else if (len == 4 && !memcmp(argv[i], "WITH", len))
			options->with = value;
		else if (len == 5 && !memcmp(argv[i], "PLANT", len))
			options->plant = value;
		else if (len == 7 && !memcmp(argv[i], "SECONDS", len) &&
		         number(value, &options->seconds))
			continue;
		else if (len == 5 && !memcmp(argv[i], "WALKS", len) &&
		         number(value, &options->walks))
			continue;
		else if (len == 4 && !memcmp(argv[i], "SEED", len) && number(value, &options->seed))
			continue;
		else if (len == 6 && !memcmp(argv[i], "STATES", len) &&
		         number(value, &options->states))
			continue;
		else
			return false;
	}
	return !options->kind || known_kinds(options->kind);
}

/* The evidence of a run, also appended to the file that LK_EVIDENCE names. */
static void note(const char *text)
{
	const char *path = getenv("LK_EVIDENCE");
	FILE *file = path && *path ? fopen(path, "ae") : NULL;

	puts(text);
	fflush(stdout);
	if (file) {
		fprintf(file, "%s\n", text);
		fclose(file);
	}
}

/* ---- The shipped code
 * --------------------------------------------------------------------------- */

static void run(const struct options *options, const struct model_bounds *bounds, struct sum *sum)
{
	struct model_bounds own = *bounds;
	struct explore_plan plan = {
		.bounds = &own,
		.deep = options->big,
		.every_order = options->every_order,
		.seconds_most = options->seconds,
		.states_most = options->states ? (uint64_t)options->states : STATES_MOST,
		.report_s = options->big ? REPORT_S : 0,
	};
	struct explore_result result;
	char text[400], line[800];

	if (options->with && !model_bounds_set(&own, options->with)) {
		fprintf(stderr, "model: %s: no such bounds\n", options->with);
		exit(2);
	}
	model_bounds_tell(&own, text, sizeof(text));
	if (options->big)
		printf("%s\n", text);
	explore(&plan, &result);
	snprintf(line, sizeof(line),
	         "%s:\n  %llu states%s, %llu transitions, depth %llu, at most %llu to expand, %llu "
	         "ends, longest wait %.1f s, %.1f s",
	         text, (unsigned long long)result.states, result.cut ? ", not all" : "",
	         (unsigned long long)result.transitions, (unsigned long long)result.depth,
	         (unsigned long long)result.frontier, (unsigned long long)result.ends,
	         (double)result.longest_ms / 1000, result.seconds);
	if (bounds->jumps)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), ", %llu excused states",
		         (unsigned long long)result.excused);
	note(line);
	if (result.wrong) {
		explore_tell(&plan, &result);
		printf("  commit %s; again: make model KIND=%s%s\n", commit(), bounds->name,
		       options->big ? " BIG=1" : "");
	}
	sum->states += result.states;
	sum->transitions += result.transitions;
	sum->ends += result.ends;
	sum->seconds += result.seconds;
	sum->runs++;
	sum->cut += result.cut;
	sum->wrong += result.wrong != NULL;
	explore_fini(&result);
}

typedef void run_fn(const struct options *options, const struct model_bounds *bounds,
                    struct sum *sum);

/* As run(), but walks. */
static void walk(const struct options *options, const struct model_bounds *bounds, struct sum *sum)
{
	struct model_bounds own = *bounds;
	struct explore_plan plan = {
		.bounds = &own,
		.walks = options->seed                    ? 1
	                 : options->walks                 ? (uint64_t)options->walks
	                 : options->big || options->night ? WALKS_MANY
	                                                  : WALKS_FEW,
		.seed = options->seed ? (uint64_t)options->seed
	                              : (uint64_t)(explore_seconds() * 1e6),
		.seconds_most = options->seconds,
	};
	struct explore_result result;
	char text[400], line[800];

	if (options->with && !model_bounds_set(&own, options->with)) {
		fprintf(stderr, "model: %s: no such bounds\n", options->with);
		exit(2);
	}
	model_bounds_tell(&own, text, sizeof(text));
	explore_walk(&plan, &result);
	snprintf(line, sizeof(line),
	         "%s:\n  %llu walks%s from seed %llu on, %llu actions, at most %llu, %llu excused "
	         "states, longest wait %.1f s, %.1f s",
	         text, (unsigned long long)result.ends, result.cut ? ", not all" : "",
	         (unsigned long long)plan.seed, (unsigned long long)result.transitions,
	         (unsigned long long)result.depth, (unsigned long long)result.excused,
	         (double)result.longest_ms / 1000, result.seconds);
	note(line);
	if (result.wrong) {
		explore_tell(&plan, &result);
		printf("  commit %s; again: make model KIND=%s SEED=%llu\n", commit(), bounds->name,
		       (unsigned long long)result.seed);
	}
	sum->walks += result.ends;
	sum->seconds += result.seconds;
	sum->cut += result.cut;
	sum->wrong += result.wrong != NULL;
	explore_fini(&result);
}

static void run_each(const struct options *options, run_fn *runs, const struct model_bounds *bounds,
                     struct sum *sum)
{
	for (; bounds->name; bounds++)
		if (!options->kind || is_among(options->kind, bounds->name))
			runs(options, bounds, sum);
}

static int run_all(const struct options *options)
{
	struct sum sum = {0};
	char line[300];

	if (!options->seed) {
		run_each(options, run, options->big ? model_big : model_small, &sum);
		run_each(options, run, model_quorum_small, &sum);
		run_each(options, run, model_etcd_small, &sum);
	}
	if (options->night)
		run_each(options, run, model_night, &sum);
	if (options->night || (options->big && !options->seed))
		run_each(options, run, model_etcd_night, &sum);
	if (options->night || (options->big && !options->seed))
		run_each(options, run, model_quorum_night, &sum);
	run_each(options, walk, model_quorum_walks, &sum);
	snprintf(line, sizeof(line),
	         "model: %llu states, %llu transitions, %llu ends in %d runs, %s, %llu walks, %.0f "
	         "s, "
	         "commit %s: %s",
	         (unsigned long long)sum.states, (unsigned long long)sum.transitions,
	         (unsigned long long)sum.ends, sum.runs,
	         sum.cut ? "not all of them within the limits" : "all of them",
	         (unsigned long long)sum.walks, sum.seconds, commit(),
	         sum.wrong ? "SOMETHING IS WRONG" : "nothing is wrong");
	note(line);
	return sum.wrong || (!sum.runs && !sum.walks);
}

/* ---- Failures that must be found
 * ------------------------------------------------------------------- */

static void run_some(const struct options *options, const struct model_plant *plant, int *runs,
                     int *found)
{
	bool all = !strcmp(options->plant, "all");

	for (; plant->name; plant++) {
		struct explore_plan plan;
		struct explore_result result;
		if (!all && strcmp(options->plant, plant->name) != 0)
			continue;
		++*runs;
		model_plant_explore(plant, &plan, &result);
		printf("%s (%s): %s; %llu %s, %.1f s\n", plant->name, plant->what,
		       result.wrong ? result.wrong : "NOTHING WAS FOUND",
		       (unsigned long long)(plant->walks ? result.ends : result.states),
		       plant->walks ? "walks" : "states", result.seconds);
		fflush(stdout);
		if (result.wrong && !all)
			explore_tell(&plan, &result);
		*found += result.wrong != NULL;
		explore_fini(&result);
	}
}

static int run_plants(const struct options *options)
{
	static const struct model_plant *const all[] = {model_plants, model_quorum_plants,
	                                                model_etcd_plants};
	int runs = 0, found = 0;

	for (int i = 0; i < 3; i++)
		run_some(options, all[i], &runs, &found);
	if (!runs) {
		fprintf(stderr, "model: PLANT=%s is none of these:", options->plant);
		for (int i = 0; i < 3; i++)
			for (const struct model_plant *plant = all[i]; plant->name; plant++)
				fprintf(stderr, " %s", plant->name);
		fprintf(stderr, "\n");
		return 2;
	}
	printf("model: %d of %d wrong variants were found, commit %s\n", found, runs, commit());
	return found != runs;
}

int main(int argc, char **argv)
{
	struct options options = {0};

	if (!parse(&options, argc, argv)) {
		fprintf(stderr,
		        "usage: model [BIG=1] [NIGHTLY=1] "
		        "[KIND=lock|semaphore|rate|latch|quorum|etcd,...] "
		        "[SECONDS=n] [STATES=n] [WALKS=n] [SEED=n] [EVERY=1] [WITH=bound=n,...] | "
		        "PLANT=name|all\n");
		return 2;
	}
	return options.plant ? run_plants(&options) : run_all(&options);
}
