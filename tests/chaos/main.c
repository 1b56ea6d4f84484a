/* SPDX-License-Identifier: MIT
 * Chaos: real processes, a real server, real faults; a judge checks the records of all calls.
 *
 *   chaos [T=seconds] [SEED=number] [STORE=sentinel|cluster|quorum|etcd] [REPLICAS=number]
 *         [SERVERS=3|5] [PLANT=no-grace|lost-tickets|lost-steps]
 *
 * Runs rounds of at most 60 s, and a few seconds more for what follows a loss of memory.  In every
 * second one, faults may delete the store's memory, in a quarter of these also set its clock, and
 * in another quarter delete keys; there the judge excuses what the promises exclude.  One in five
 * is run in a network namespace of its own, if the machine allows it.
 *
 * STORE=sentinel: clients follow a service of Sentinel, whose master, replicas and sentinels fail.
 * There is no record of the servers' MONITOR then: the judge has the records of the workers.
 *
 * STORE=cluster: the same with a Cluster, whose masters fail and whose slots move: those of the
 * names.
 *
 * STORE=quorum: locks over SERVERS independent masters, of which mostly a minority fails, now and
 * then a majority.  Two groups of workers reach each of them by a proxy of their own.  In every
 * second round the clocks of a minority are set forward, too, and the judge excuses what that may
 * cause.
 *
 * STORE=etcd: a cluster of etcd of three members, without rates; its leader, another one or a
 * majority is killed, or one is stopped; and another member is elected.  PLANT=lost-tickets:
 * tickets of holders are deleted, as if leases ended too early, and the judge, which is not told,
 * must show it.  PLANT=lost-steps: the same with the steps of latches.
 *
 * REPLICAS=1, 2: so many replicas must confirm each grant in every round, and replicas are stopped
 * more often.  Without it, it is so in one round of three; REPLICAS=0: in none.
 *
 * PLANT=no-grace shows that a bug is found: no client has a grace, or servers of a quorum vote at
 * once after they have forgotten, and the run is good only if the judge shows that two clients held
 * at once, or that one was granted the lock of such a server. */
#include "chaos/nemesis.h"

#include "harness/process.h"
#include "harness/test.h"

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_S 60
#define NAMESPACE_EACH 5
#define SERVICE_GRACE_MS 13000
#define FAILOVER_MS 3000 /* an old master may still renew for so long */
#define GRACE_MIN_MS 1500
#define GRACE_MAX_MS 3000
#define PAIRS_MIN                                                                                  \
	(TSAN || ASAN ? 20 : 50) /* a second of quiet; a verdict about less would mean little */

static pid_t child;

/* The two that ck_assert() needs.  Assertions of the harness run outside a test here: a failure
 * prints its text and ends the round. */
void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
	va_list args;

	printf("%s:%d: %s", file, line, expr);
	if (msg) {
		printf(": ");
		va_start(args, msg);
		vprintf(msg, args);
		va_end(args);
	}
	printf("\n");
	fflush(stdout);
	_exit(1);
}

void _mark_point(const char *file, int line)
{
	(void)file;
	(void)line;
}

/* There is nothing to share here. */
void test_before_all(void (*begin)(void))
{
	(void)begin;
}

static void interrupt(int number)
{
	(void)number;
	round_interrupted = 1;
	if (child > 0)
		kill(child, SIGTERM);
}

/* A round has a process of its own: its namespace ends with it, and so do its children. */
static void run(const struct chaos_options *options, struct chaos_result *result)
{
	pid_t parent = getpid();
	int status = -1;

	fflush(stdout);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		round_run(options, result);
		fflush(stdout);
		_exit(0);
	}
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		continue;
	child = 0;
	if (status) {
		printf("round %d: ended with wait status %#x\n", options->number, (unsigned)status);
		result->bad = true;
	}
}

static void add(struct chaos_result *sum, const struct chaos_result *one)
{
	sum->pairs += one->pairs;
	sum->quiet_pairs += one->quiet_pairs;
	sum->waits += one->waits;
	sum->openings += one->openings;
	sum->steps += one->steps;
	sum->refused += one->refused;
	sum->lost_writes += one->lost_writes;
	sum->losses += one->losses;
	sum->starts += one->starts;
	sum->breaks += one->breaks;
	sum->reclaimed += one->reclaimed;
	sum->unconfirmed += one->unconfirmed;
	sum->stalls += one->stalls;
	sum->meetings += one->meetings;
	sum->overlaps += one->overlaps;
	sum->unvoted += one->unvoted;
	sum->excused += one->excused;
	sum->quiet_ns += one->quiet_ns;
	if (one->quiet_wake_us > sum->quiet_wake_us)
		sum->quiet_wake_us = one->quiet_wake_us;
	if (one->fault_wake_us > sum->fault_wake_us)
		sum->fault_wake_us = one->fault_wake_us;
	for (int i = 0; i < NEMESIS_COUNT; i++)
		sum->faults[i] += one->faults[i];
}

static void say(FILE *evidence, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(FILE *evidence, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	if (!evidence)
		return;
	va_start(args, fmt);
	vfprintf(evidence, fmt, args);
	va_end(args);
}

/* Print the figures; true if they are enough for a verdict. */
static bool tell(const struct chaos_result *sum, int rounds, int bad, int64_t seconds,
                 unsigned long long seed, int spaces, const char *words)
{
	const char *path = getenv("LK_EVIDENCE"), *commit = getenv("LK_COMMIT");
	FILE *evidence = path ? fopen(path, "ae") : NULL;
	int64_t quiet_ms = sum->quiet_ns / CHAOS_MS;
	int64_t rate = quiet_ms ? sum->quiet_pairs * 1000 / quiet_ms : 0;
	int faults = 0, kinds = 0, kinds_min = seconds >= 60 ? 3 : seconds >= 20 ? 1 : 0;
	bool enough;

	for (int i = 0; i < NEMESIS_COUNT; i++) {
		faults += sum->faults[i];
		kinds += sum->faults[i] > 0;
	}
	enough = rate >= PAIRS_MIN && kinds >= kinds_min;
	say(evidence, "rounds: %d in %lld s, %d in a network namespace\n", rounds,
	    (long long)seconds, spaces);
	say(evidence, "processes: %lld; the machine stalled %lld times\n", (long long)sum->starts,
	    (long long)sum->stalls);
	say(evidence, "pairs: %lld, %lld a second of quiet\n", (long long)sum->pairs,
	    (long long)rate);
	say(evidence, "waits: %lld\n", (long long)sum->waits);
	say(evidence, "latch openings: %lld of %lld steps\n", (long long)sum->openings,
	    (long long)sum->steps);
	say(evidence, "losses reported: %lld; writes after a loss: %lld, refused by fence: %lld\n",
	    (long long)sum->losses, (long long)sum->lost_writes, (long long)sum->refused);
	if (sum->reclaimed)
		say(evidence, "holds taken back: %lld or more\n", (long long)sum->reclaimed);
	if (sum->excused)
		say(evidence, "overlaps that a loss of memory, a clock or a break excuses: %lld\n",
		    (long long)sum->excused);
	if (sum->unconfirmed)
		say(evidence, "grants and extensions that too few replicas confirmed: %lld\n",
		    (long long)sum->unconfirmed);
	say(evidence, "faults: %d:", faults);
	for (int i = 0; i < NEMESIS_COUNT; i++)
		if (sum->faults[i])
			say(evidence, " %s %d", nemesis_kind_name(i), sum->faults[i]);
	if (sum->breaks)
		say(evidence, " break %lld", (long long)sum->breaks);
	say(evidence, "\nlongest wake-up: %.1f ms, %.1f ms with a fault\n",
	    (double)sum->quiet_wake_us / 1000, (double)sum->fault_wake_us / 1000);
	if (rate < PAIRS_MIN && !round_interrupted)
		say(evidence, "too few pairs: must be %d a second or more\n", PAIRS_MIN);
	if (kinds < kinds_min && !round_interrupted)
		say(evidence, "too few faults: must be of %d kinds or more\n", kinds_min);
	if (bad || !enough)
		say(evidence,
		    "seed %llu, commit %s; the same faults again: make chaos T=%lld SEED=%llu%s\n",
		    seed, commit ? commit : "unknown", (long long)seconds, seed, words);
	say(evidence, "verdict: %s, %d of %d rounds bad, %lld pairs, %d faults\n",
	    round_interrupted ? "interrupted"
	    : bad || !enough  ? "BAD"
	                      : "good",
	    bad, rounds, (long long)sum->pairs, faults);
	if (evidence)
		fclose(evidence);
	return enough;
}

/* Was the planted bug found? */
static bool tell_plant(const struct chaos_result *sum, int rounds, int bad, bool steps)
{
	bool found = steps ? bad > 0 : sum->overlaps > 0 || sum->unvoted > 0;
	int failovers = 0;

	for (int i = NEMESIS_FAILOVER; i <= NEMESIS_MASTER_STOP; i++)
		failovers += sum->faults[i];
	for (int i = NEMESIS_NODE_FAILOVER; i <= NEMESIS_NODE_STOP; i++)
		failovers += sum->faults[i];
	failovers += sum->faults[NEMESIS_MEMBER_KILL] + sum->faults[NEMESIS_MEMBER_FLUSH] +
	             sum->faults[NEMESIS_MAJORITY_KILL];
	printf("planted bug: %s: %d of %d rounds bad, %lld meetings of valid holds in the canary, "
	       "the judge shows %lld overlaps and %lld grants without a majority, after %d "
	       "failovers or losses of memory, or less\n",
	       found ? "found" : "NOT FOUND", bad, rounds, (long long)sum->meetings,
	       (long long)sum->overlaps, (long long)sum->unvoted, failovers);
	return found;
}

/* The default is long for a short round, so the rounds of a short run have other ones. */
static int64_t grace_of(int number, uint64_t seed)
{
	struct chaos_dice dice = {seed};

	return number % 4 == 0 || number % 4 == 3
	               ? CHAOS_GRACE_MS
	               : chaos_between(&dice, GRACE_MIN_MS, GRACE_MAX_MS);
}

/* The default, or the shortest that protects the leases from a planned failover. */
static int64_t service_grace_of(int number)
{
	return number % 2 ? SERVICE_GRACE_MS : CHAOS_LEASE_MAX_MS + FAILOVER_MS;
}

/* asked: on the command line, -1 = nothing. */
static int replicas_of(int number, int asked, bool plant)
{
	if (plant && asked < 0)
		return 0; /* they might hide the bug */
	return asked >= 0 ? asked : number % 3 == 2 ? 2 - number / 3 % 2 : 0;
}

/* The command line. */
struct asked {
	int64_t seconds;
	unsigned long long seed;
	const char *store;
	int replicas; /* -1 = nothing is said */
	int servers;
	bool plant, plants_steps;
};

static bool is_store(const struct asked *asked, const char *store)
{
	return !strcmp(asked->store, store);
}

static struct chaos_options options_of(const struct asked *asked, int number, int rounds)
{
	uint64_t seed = asked->seed + (uint64_t)number * 7368787u;
	unsigned variant = (unsigned)((asked->seed + (unsigned)number / 2) % 4);
	bool service = *asked->store != '\0';
	/* No grace protects from these, so half of the rounds are without them. */
	struct chaos_options options = {
		.seed = seed,
		.seconds = asked->seconds / rounds,
		.sentinel = is_store(asked, "sentinel"),
		.cluster = is_store(asked, "cluster"),
		.quorum = is_store(asked, "quorum"),
		.etcd = is_store(asked, "etcd"),
		.servers = asked->servers,
		.loses = service || number % 2,
		.moves_clock = !service && variant == 1,
		.deletes = !service && variant == 3,
		.grace_ms = service ? service_grace_of(number) : grace_of(number, seed),
		.without_grace = asked->plant,
		.loses_steps = asked->plants_steps,
		.wants_namespace = !service && number % NAMESPACE_EACH == 0,
		.number = number,
	};

	if (options.sentinel)
		options.replicas = replicas_of(number, asked->replicas, asked->plant);
	if (options.quorum)
		options.grace_ms = CHAOS_LONGEST_MS;
	if (options.etcd)
		options.loses = false;
	if (options.quorum)
		options.moves_clock = number % 2 && !asked->plant;
	return options;
}

/* What the command line needs besides time and seed to run the same again. */
static void words_of(const struct asked *asked, char *words, size_t size)
{
	int used = *asked->store ? snprintf(words, size, " STORE=%s", asked->store) : 0;

	if (is_store(asked, "sentinel") && asked->replicas >= 0)
		snprintf(words + used, size - (size_t)used, " REPLICAS=%d", asked->replicas);
	if (is_store(asked, "quorum"))
		snprintf(words + used, size - (size_t)used, " SERVERS=%d", asked->servers);
}

static int run_all(const struct asked *asked)
{
	struct chaos_result sum = {0}, *result;
	int64_t seconds = asked->seconds;
	int rounds = (int)((seconds + ROUND_S - 1) / ROUND_S), bad = 0, spaces = 0, number = 0;
	bool plant = asked->plant;
	char words[40] = "";
	bool enough;

	/* Both sorts of rounds, if there is time for both. */
	if (rounds < 2 && seconds >= 16)
		rounds = 2;
	result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	if (result == MAP_FAILED)
		return 1;
	printf("seed %llu\n", asked->seed);
	for (; number < rounds && !round_interrupted; number++) {
		const struct chaos_options options = options_of(asked, number, rounds);
		memset(result, 0, sizeof(*result));
		run(&options, result);
		add(&sum, result);
		bad += result->bad;
		spaces += result->in_namespace;
		printf("round %d: %s memory%s%s, grace %lld ms, %d replicas, %lld pairs%s%s\n",
		       number, options.loses ? "loses" : "keeps",
		       options.loses && options.moves_clock ? " and time" : "",
		       options.loses && options.deletes ? " and keys" : "",
		       (long long)options.grace_ms, options.replicas, (long long)result->pairs,
		       plant         ? ", without a grace"
		       : result->bad ? ", BAD: see "
		                     : "",
		       result->bad && !plant ? result->folder : "");
	}
	munmap(result, sizeof(*result));
	if (plant)
		return round_interrupted || !tell_plant(&sum, number, bad, asked->plants_steps);
	words_of(asked, words, sizeof(words));
	enough = tell(&sum, number, bad, seconds, asked->seed, spaces, words);
	return bad || !enough || round_interrupted;
}

static int replicas_in(const char *text)
{
	if (text[0] < '0' || text[0] >= '0' + SETUP_SERVERS || text[1]) {
		fprintf(stderr, "chaos: REPLICAS=%s is not 0 to %d\n", text, SETUP_SERVERS - 1);
		exit(2);
	}
	return text[0] - '0';
}

static int servers_in(const char *text)
{
	if (strcmp(text, "3") != 0 && strcmp(text, "5") != 0) {
		fprintf(stderr, "chaos: SERVERS=%s is not 3 or 5\n", text);
		exit(2);
	}
	return text[0] - '0';
}

static const char *store_in(const char *text)
{
	if (*text && strcmp(text, "sentinel") != 0 && strcmp(text, "cluster") != 0 &&
	    strcmp(text, "quorum") != 0 && strcmp(text, "etcd") != 0) {
		fprintf(stderr, "chaos: STORE=%s is not sentinel, cluster, quorum or etcd\n", text);
		exit(2);
	}
	return text;
}

static unsigned long long seed_in(const char *text)
{
	char *end;
	unsigned long long seed = strtoull(text, &end, 10);

	if (*end || *text == '-') {
		fprintf(stderr, "chaos: SEED=%s is not a number\n", text);
		exit(2);
	}
	return seed;
}

static bool plant_in(const char *text)
{
	if (*text && strcmp(text, "no-grace") != 0 && strcmp(text, "lost-tickets") != 0 &&
	    strcmp(text, "lost-steps") != 0) {
		fprintf(stderr, "chaos: PLANT=%s is not no-grace, lost-tickets or lost-steps\n",
		        text);
		exit(2);
	}
	return *text != '\0';
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = interrupt};
	struct timespec now;
	struct asked asked = {.seconds = 20, .store = "", .replicas = -1, .servers = 3};

	if (argc > 2 && !strcmp(argv[1], "worker"))
		return worker_main(argc - 2, argv + 2);
	if (argc > 2 && !strcmp(argv[1], "recorder"))
		return recorder_main(argc - 2, argv + 2);
	clock_gettime(CLOCK_REALTIME, &now);
	asked.seed = (unsigned long long)now.tv_sec;
	for (int i = 1; i < argc; i++) {
		const char *value = strchr(argv[i], '=');
		if (!value++)
			continue;
		if (!strncmp(argv[i], "T=", 2))
			asked.seconds = *value ? strtoll(value, NULL, 10) : asked.seconds;
		else if (!strncmp(argv[i], "SEED=", 5))
			asked.seed = *value ? seed_in(value) : asked.seed;
		else if (!strncmp(argv[i], "STORE=", 6))
			asked.store = store_in(value);
		else if (!strncmp(argv[i], "REPLICAS=", 9))
			asked.replicas = *value ? replicas_in(value) : asked.replicas;
		else if (!strncmp(argv[i], "SERVERS=", 8))
			asked.servers = *value ? servers_in(value) : asked.servers;
		else if (!strncmp(argv[i], "PLANT=", 6))
			asked.plant = plant_in(value),
			asked.plants_steps = !strcmp(value, "lost-steps");
	}
	if (asked.seconds < 4) {
		fprintf(stderr, "chaos: T is 4 or more seconds\n");
		return 2;
	}
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	return run_all(&asked);
}
