/* SPDX-License-Identifier: MIT
 * A lock in etcd: 1 to 64 contenders, beside concurrency.Mutex of etcd's own client, and the
 * commands of both.  The data is in TMPDIR, and the server waits for its disk. */
#include "harness/command.h"
#include "harness/etcd_link.h"
#include "harness/etcd_server.h"
#include "harness/process.h"
#include "job.h"
#include "ours.h"
#include "workers.h"

#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define NAME "bench"
#define PREFIX "lk/L/" NAME
#define ROUNDS 7
#define TURN_MS 1000 /* 64 of the slowest have few turns each in it */
#define REQUESTS_MAX 2.2
#define MUTEX_MS 120000
#define SPACE_PATIENCE_MS 300 /* the store writes its pages each 100 ms */

/* A server each: what clients do between their turns counts for none of the others. */
enum entrant { OURS, MUTEX, BARE, BARE_ALONE, ENTRANTS };

static struct party {
	struct etcd_servers servers;
	struct stage stage;
	struct workers *workers; /* of the library's, and of the control's */
	struct process mutex;
	int64_t read_ns; /* CPU time that our readings have cost the server */
	/* Since the contest began. */
	int64_t ops;
	double stored, messages;
	int turns; /* without the first */
	double longest_ms[ROUNDS_MAX];
	double longest[ROUNDS_MAX]; /* by the mean */
} parties[ENTRANTS];
static bool has_mutex;

static const char *mutex_path(void)
{
	const char *path = getenv("LATCHKEY_MUTEX");

	return path ? path : "build/deps/mutex/mutex";
}

/* ---- What the servers know ----------------------------------------------------------------- */

static double messages_of(const struct party *party)
{
	return etcd_metric(&party->servers, 0, "grpc_server_msg_received_total{", "");
}

static double stored_by(const struct party *party)
{
	nap_ms(SPACE_PATIENCE_MS);
	return etcd_metric(&party->servers, 0, "etcd_mvcc_db_total_size_in_use_in_bytes", "");
}

/* The entrants of the current contest. */
static enum entrant at[ENTRANTS];

static struct reading read_of(int contestant)
{
	struct party *party = &parties[at[contestant]];
	int pid = (int)party->servers.nodes[0].pid;
	int64_t cpu_ns = bench_cpu_ns(pid);
	struct reading reading = {.cpu_ns = cpu_ns - party->read_ns};

	reading.requests =
		(int64_t)etcd_metric(&party->servers, 0, "grpc_server_started_total{", "\"unary\"");
	party->read_ns += bench_cpu_ns(pid) - cpu_ns;
	return reading;
}

static void begin(struct party *party, const struct stage *stage)
{
	party->stage = *stage;
	party->ops = 0;
	party->turns = -1;
	party->stored = stored_by(party);
	party->messages = messages_of(party);
}

/* In all, an acquisition. */
static void end(struct party *party)
{
	party->messages = (messages_of(party) - party->messages) / (double)party->ops;
	party->stored = (stored_by(party) - party->stored) / (double)party->ops;
}

static int64_t keep(struct party *party, int64_t ops, int64_t waits, int64_t sum_ns,
                    int64_t longest_ns)
{
	int turn = party->turns++;

	party->ops += ops;
	if (turn >= 0) {
		party->longest_ms[turn] = (double)longest_ns / 1e6;
		party->longest[turn] =
			waits ? (double)longest_ns * (double)waits / (double)sum_ns : 0;
	}
	return ops;
}

/* ---- Workers: the library's, and those of the control -------------------------------------- */

static void *ours_start(const struct stage *stage, int index)
{
	(void)stage;
	(void)index;
	return ours_open(etcd_url(&parties[OURS].servers, "", ""), NAME);
}

/* The control: a key is put and deleted, without a wait for anyone. */
struct bare {
	struct etcd_link link;
	char key[40];
};

static void *bare_start(const struct stage *stage, int index)
{
	struct bare *self = calloc(1, sizeof(*self));
	const struct party *party = &parties[stage->size < 0 ? BARE_ALONE : BARE];

	if (!self || etcd_link_open(&self->link, party->servers.nodes[0].port))
		bench_fail("etcd: %s", self ? self->link.why.text : "out of memory");
	snprintf(self->key, sizeof(self->key), "bare/%d", index);
	return self;
}

static bool bare_put(void *arg, int64_t until_ns)
{
	struct bare *self = arg;
	const struct lk__etcd_put put = {.key = lk__bytes_of(self->key),
	                                 .value = lk__bytes_of("1")};
	struct lk__etcd_put_answer answer;

	(void)until_ns;
	lk__etcd_put_put(etcd_message(&self->link), &put);
	etcd_ask(&self->link, ETCD_KV "Put", &lk__etcd_put_shape, &answer);
	return true;
}

static void bare_delete(void *arg)
{
	struct bare *self = arg;
	const struct lk__etcd_delete del = {.key = lk__bytes_of(self->key)};
	struct lk__etcd_delete_answer answer;

	lk__etcd_put_delete(etcd_message(&self->link), &del);
	etcd_ask(&self->link, ETCD_KV "DeleteRange", &lk__etcd_delete_shape, &answer);
}

static void bare_end(void *arg)
{
	struct bare *self = arg;

	etcd_link_close(&self->link);
	free(self);
}

static struct party *workers_open(const struct stage *stage, enum entrant entrant)
{
	static const struct work works[] = {
		[OURS] = {.open = ours_start,
	                  .acquire = ours_acquire,
	                  .release = ours_release,
	                  .close = ours_close},
		[BARE] = {.open = bare_start,
	                  .acquire = bare_put,
	                  .release = bare_delete,
	                  .close = bare_end},
	};
	struct party *party = &parties[entrant];

	begin(party, stage);
	if (entrant == BARE_ALONE)
		party->stage.size = -1;
	party->workers = workers_start(&party->stage, &works[entrant == OURS ? OURS : BARE],
	                               entrant == BARE_ALONE ? 1 : stage->size, true);
	return party;
}

static void *open_ours(const struct stage *stage)
{
	return workers_open(stage, OURS);
}

static void *open_bare(const struct stage *stage)
{
	return workers_open(stage, BARE);
}

static void *open_bare_alone(const struct stage *stage)
{
	return workers_open(stage, BARE_ALONE);
}

static int64_t turn_of_workers(void *arg, int64_t until_ns)
{
	struct party *party = arg;
	struct tally tally;

	workers_begin(party->workers, &(struct order){until_ns, 0});
	workers_await(party->workers, &tally);
	return keep(party, tally.ops, tally.waits, tally.wait_sum_ns, tally.wait_max_ns);
}

static int64_t cpu_of_workers(void *arg)
{
	const struct party *party = arg;

	return workers_cpu_ns(party->workers);
}

static void close_workers(void *arg)
{
	struct party *party = arg;

	end(party);
	workers_end(party->workers);
}

/* ---- Mutex: a process with that many clients ----------------------------------------------- */

static int become_mutex(void *arg, int in, int out)
{
	const struct party *party = arg;
	char endpoint[60], count[20];

	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d", party->servers.nodes[0].port);
	snprintf(count, sizeof(count), "%d", party->stage.size);
	dup2(in, 0);
	dup2(out, 1);
	execl(mutex_path(), "mutex", endpoint, "turns", PREFIX, "10", count, (char *)NULL);
	return 126;
}

static const char *mutex_says(struct party *party)
{
	const char *line = line_read(party->mutex.out, MUTEX_MS);

	if (!line)
		bench_fail("%s does not answer", mutex_path());
	return line;
}

static void *open_mutex(const struct stage *stage)
{
	struct party *party = &parties[MUTEX];

	begin(party, stage);
	process_start(&party->mutex, become_mutex, party);
	mutex_says(party);
	return party;
}

static int64_t turn_of_mutex(void *arg, int64_t until_ns)
{
	struct party *party = arg;
	long long of[4];

	line_write(party->mutex.in, "%lld", (long long)((until_ns - bench_now_ns()) / 1000000));
	if (sscanf(mutex_says(party), "%lld %lld %lld %lld", &of[0], &of[1], &of[2], &of[3]) != 4)
		bench_fail("%s: what it says is not understood", mutex_path());
	return keep(party, of[0], of[1], of[2], of[3]);
}

static int64_t cpu_of_mutex(void *arg)
{
	const struct party *party = arg;

	return bench_cpu_ns((int)party->mutex.pid);
}

static void close_mutex(void *arg)
{
	struct party *party = arg;

	end(party);
	close(party->mutex.in);
	party->mutex.in = -1;
	if (!process_succeeded(&party->mutex, MUTEX_MS))
		bench_fail("%s has failed", mutex_path());
}

/* ---- Contended ----------------------------------------------------------------------------- */

struct label {
	char id[64], what[160];
};

static struct label label(int size, const char *id, const char *what)
{
	struct label label;

	snprintf(label.id, sizeof(label.id), "etcd.%d.%s", size, id);
	snprintf(label.what, sizeof(label.what), "etcd, %d: %s", size, what);
	return label;
}

static void number(struct bench *bench, int size, const char *id, const char *what, double value,
                   const char *unit, double at_most)
{
	const struct label text = label(size, id, what);

	bench_number(bench, text.id, text.what, value, unit, at_most > 0 ? AT_MOST : NO_GOAL,
	             at_most);
}

static void figure(struct bench *bench, int size, const char *id, const char *what,
                   struct spread value, const char *unit, double at_least)
{
	const struct label text = label(size, id, what);

	bench_figure(bench, text.id, text.what, value, unit, at_least > 0 ? AT_LEAST : NO_GOAL,
	             at_least);
}

static void report_of(struct bench *bench, int size, const char *id, const char *who,
                      enum entrant entrant, double requests, double requests_max)
{
	const struct party *party = &parties[entrant];
	char ids[40], what[120];

	snprintf(ids, sizeof(ids), "%s.requests", id);
	snprintf(what, sizeof(what), "%s: requests an acquisition", who);
	number(bench, size, ids, what, requests, "", requests_max);
	snprintf(ids, sizeof(ids), "%s.messages", id);
	snprintf(what, sizeof(what), "%s: the same and messages of streams", who);
	number(bench, size, ids, what, party->messages, "", 0);
	snprintf(ids, sizeof(ids), "%s.bytes", id);
	snprintf(what, sizeof(what), "%s: store an acquisition", who);
	number(bench, size, ids, what, party->stored, "bytes", 0);
	if (size == 1)
		return;
	snprintf(ids, sizeof(ids), "%s.longest", id);
	snprintf(what, sizeof(what), "%s: longest wait", who);
	figure(bench, size, ids, what, spread_of(party->longest_ms, party->turns), "ms", 0);
	snprintf(ids, sizeof(ids), "%s.longest.mean", id);
	snprintf(what, sizeof(what), "%s: longest wait / mean wait", who);
	figure(bench, size, ids, what, spread_of(party->longest, party->turns), "", 0);
}

static void run_size(struct bench *bench, int size)
{
	static const struct contestant all[ENTRANTS] = {
		{"latchkey", open_ours, turn_of_workers, NULL, close_workers, cpu_of_workers},
		{"concurrency.Mutex", open_mutex, turn_of_mutex, NULL, close_mutex, cpu_of_mutex},
		{"bare put + delete, a key each", open_bare, turn_of_workers, NULL, close_workers,
	         cpu_of_workers},
		{"bare put + delete, one process", open_bare_alone, turn_of_workers, NULL,
	         close_workers, cpu_of_workers},
	};
	double than_mutex = size == 2 ? 3 : size == 8 ? 2 : 1;
	char id[40];
	struct contest contest = {
		.id = id,
		.what = "contenders for one lock; server us and requests are etcd's",
		.size = size,
		.rounds = ROUNDS,
		.turn_ms = TURN_MS,
		.read = read_of};
	struct result result;
	int count = 0, mutex = 0, bare = 0;

	snprintf(id, sizeof(id), "etcd/%d", size);
	for (int i = 0; i < ENTRANTS; i++) {
		if ((i == MUTEX && !has_mutex) || (i == BARE && size == 1))
			continue;
		if (i == MUTEX)
			mutex = count;
		if (i == BARE_ALONE)
			bare = count;
		at[count] = (enum entrant)i;
		contest.contestants[count++] = &all[i];
	}
	bench_contest(bench, &contest, &result);
	if (mutex)
		figure(bench, size, "ratio.mutex", "rate / Mutex",
		       ratio_of_rates(&result, 0, mutex), "", than_mutex);
	figure(bench, size, "ratio.bare", "rate / bare put + delete by one process",
	       ratio_of_rates(&result, 0, bare), "", 0);
	report_of(bench, size, "ours", "latchkey", OURS, result.of[0].requests,
	          size >= 8 ? REQUESTS_MAX : 0);
	if (mutex)
		report_of(bench, size, "mutex", "Mutex", MUTEX, result.of[mutex].requests, 0);
}

/* ---- The command --------------------------------------------------------------------------- */

static void *open_command(const struct stage *stage)
{
	(void)stage;
	return JOB(command_path(), "lock", "--url", etcd_url(&parties[OURS].servers, "", ""), "job",
	           "--", "true");
}

static void *open_etcdctl(const struct stage *stage)
{
	char endpoint[60];

	(void)stage;
	snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%d",
	         parties[MUTEX].servers.nodes[0].port);
	return JOB(etcd_program("etcdctl"), "--endpoints", endpoint, "lock", "lk/L/job", "true");
}

static void run_command(struct bench *bench)
{
	static const struct contestant command = {
		"latchkey lock x -- true", open_command, NULL, job_run, job_close, job_cpu_ns};
	static const struct contestant etcdctl = {
		"etcdctl lock x true", open_etcdctl, NULL, job_run, job_close, job_cpu_ns};
	const struct contest contest = {.id = "etcd/command",
	                                .what = "run true under a lock",
	                                .size = 1,
	                                .rounds = ROUNDS,
	                                .turn_ms = TURN_MS,
	                                .contestants = {&command, &etcdctl},
	                                .read = read_of};
	struct result result;

	at[0] = OURS;
	at[1] = MUTEX;
	bench_contest(bench, &contest, &result);
	bench_figure(bench, "etcd.command.ratio", "the command: rate / etcdctl lock",
	             ratio_of_rates(&result, 0, 1), "", NO_GOAL, 0);
	bench_figure(bench, "etcd.command.longer", "the command: longer than etcdctl lock",
	             longer_ms(&result, 0, 1), "ms", NO_GOAL, 0);
}

/* ---- All ----------------------------------------------------------------------------------- */

static bool has_etcd(void)
{
	char line[1100];

	snprintf(line, sizeof(line), "%s --version >/dev/null 2>&1", etcd_program("etcd"));
	return shell("%s", line) == 0;
}

static void describe(struct bench *bench)
{
	char line[1100], version[80] = "";
	struct statfs store;
	double load[1];
	FILE *pipe;

	snprintf(line, sizeof(line), "%s --version", etcd_program("etcd"));
	pipe = popen(line, "r");
	if (!pipe || !fgets(version, sizeof(version), pipe) ||
	    statfs(parties[0].servers.dir, &store))
		bench_fail("etcd: no version, or no folder");
	pclose(pipe);
	version[strcspn(version, "\n")] = 0;
	bench_note(bench, "%s, one node, data %s, each write waits for it", version,
	           store.f_type == TMPFS_MAGIC ? "on tmpfs" : "on a disk");
	if (getloadavg(load, 1) == 1)
		bench_note(bench, "load average at the begin, without the bench: %.1f", load[0]);
	if (!has_mutex)
		bench_note(bench, "no concurrency.Mutex: there is no %s (tools/mutex)",
		           mutex_path());
}

static void run(struct bench *bench)
{
	static const int sizes[] = {1, 2, 8, 32, 64};
	const int count = bench_brief(bench) ? 2 : sizeof(sizes) / sizeof(sizes[0]);

	if (!has_etcd()) {
		bench_note(bench, "skipped: there is no etcd (tools/etcd build/deps/etcd)");
		return;
	}
	has_mutex = !access(mutex_path(), X_OK);
	memset(parties, 0, sizeof(parties));
	for (int i = 0; i < ENTRANTS; i++) {
		parties[i].servers.syncs = true;
		etcd_start(&parties[i].servers, 1);
	}
	describe(bench);
	for (int i = 0; i < count; i++)
		run_size(bench, sizes[i]);
	run_command(bench);
	for (int i = 0; i < ENTRANTS; i++)
		etcd_stop(&parties[i].servers);
}

const struct bench_case case_etcd = {"etcd", "a lock in etcd: 1 to 64 contenders, and the command",
                                     run};
