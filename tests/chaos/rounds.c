/* SPDX-License-Identifier: MIT
 * A round: start server, proxies, workers and recorder, run the nemesis, then end all faults, let
 * the calls end, and have a judge check the records. */
#include "chaos/nemesis.h"
#include "chaos/rounds.h"

#include "harness/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIET_MS 10000
#define TICK_MS 5
#define PULSE_MS 20
#define NODE_TIMEOUT_MS 2000 /* a busy machine is no failover */
#define STALL_MS 200
#define COMPLAINTS_MAX 20 /* that are printed; one is enough */
/* All calls end by their wait plus one command timeout; closing the client has another. */
#define END_MS (CHAOS_WAIT_MS + 3 * CHAOS_COMMAND_MS + 4000)

volatile sig_atomic_t round_interrupted;

void round_complain(struct round *round, const char *fmt, ...)
{
	va_list args;

	round->result->bad = true;
	if (++round->complaints > COMPLAINTS_MAX)
		return;
	printf("round %d: ", round->options->number);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

void round_log(struct round *round, const char *kind, const char *target, const char *fmt, ...)
{
	va_list args;

	fprintf(round->log, "%lld %s %s ", (long long)history_now_ns(), kind, target);
	va_start(args, fmt);
	vfprintf(round->log, fmt, args);
	va_end(args);
	fputc('\n', round->log);
	fflush(round->log);
}

void round_note(struct round *round, const char *text, int64_t number)
{
	fprintf(round->log, "# %lld %s %lld\n", (long long)history_now_ns(), text,
	        (long long)number);
	fflush(round->log);
}

/* ---- a stalled machine ---------------------------------------------------------- */

/* A process that only reads the clock.  If it could not run, others could not either: no worker is
 * to blame for that time. */
static void pulse_start(struct round *round)
{
	struct chaos_page *page = round->page;
	pid_t parent = getpid();
	int64_t last_ns;

	round->pulse = fork();
	if (round->pulse)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	last_ns = history_now_ns();
	while (getppid() == parent) {
		int64_t now_ns;
		int count = page->stall_count;
		nap_ms(PULSE_MS);
		now_ns = history_now_ns();
		if (now_ns - last_ns > STALL_MS * CHAOS_MS && count < CHAOS_STALLS) {
			page->stalls[count] = (struct chaos_stall){last_ns, now_ns};
			page->stall_count = count + 1;
		}
		last_ns = now_ns;
	}
	_exit(0);
}

/* For the judge, all processes were stopped. */
static void stalls_log(struct round *round)
{
	for (; round->stalls < round->page->stall_count; round->stalls++) {
		const struct chaos_stall *stall = &round->page->stalls[round->stalls];
		for (int i = 0; i < CHAOS_WORKERS; i++)
			if (round->workers[i].pid)
				fprintf(round->log, "%lld stop %d begin\n%lld stop %d end\n",
				        (long long)stall->from_ns, (int)round->workers[i].pid,
				        (long long)stall->to_ns, (int)round->workers[i].pid);
		fflush(round->log);
	}
}

/* ---- processes ---------------------------------------------------------------------------- */

pid_t round_spawn(struct round *round, const char *const *args)
{
	char path[300];
	char *const *exec_args;
	pid_t parent = getpid(), pid = fork();
	int fd;

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	signal(SIGINT, SIG_IGN);
	signal(SIGTERM, SIG_DFL);
	snprintf(path, sizeof(path), "%s/%d.output", round->folder, (int)getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
	dup2(fd, 1);
	dup2(fd, 2);
	memcpy(&exec_args, &args, sizeof(exec_args));
	execv(args[0], exec_args);
	_exit(126);
}

void round_worker_start(struct round *round, int index)
{
	struct round_worker *worker = &round->workers[index];
	int proxy = index % CHAOS_PROXIES;
	char slot[16], seed[32], url[300], link[16] = "server";
	int64_t begun_ns;
	const char *const args[] = {round->self, "worker", round->folder, url, slot, seed, NULL};

	if (round->options->quorum)
		snprintf(url, sizeof(url), "%s", round->sides[index % CHAOS_SIDES]);
	else if (chaos_has_service(round->options))
		snprintf(url, sizeof(url), "%s", round->url);
	else
		snprintf(url, sizeof(url), "redis://127.0.0.1:%d%s", round->proxies[proxy].port,
		         round->query);
	snprintf(slot, sizeof(slot), "%d", index);
	snprintf(seed, sizeof(seed), "%llu",
	         (unsigned long long)round->options->seed * 1000003u +
	                 (unsigned)(index * 1000 + worker->births));
	*worker = (struct round_worker){.births = worker->births + 1};
	begun_ns = history_now_ns();
	worker->pid = round_spawn(round, args);
	if (!chaos_has_service(round->options))
		snprintf(link, sizeof(link), "proxy%d", proxy);
	fprintf(round->log, "# %lld worker %d %s\n", (long long)begun_ns, (int)worker->pid, link);
	fflush(round->log);
}

/* Check a worker that has ended: no output on standard error, and status 0 unless it was killed. */
static void worker_judge(struct round *round, const struct round_worker *worker, int status)
{
	char path[300], text[200] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/%d.output", round->folder, (int)worker->pid);
	file = fopen(path, "re");
	if (file) {
		while (fgets(text, sizeof(text), file)) {
			text[strcspn(text, "\n")] = 0;
			round_complain(round, "%s", text);
		}
		fclose(file);
		if (!*text)
			unlink(path);
	}
	if (worker->killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return;
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		round_complain(round, "worker %d ended by %s %d", (int)worker->pid,
		               WIFSIGNALED(status) ? "signal" : "status",
		               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

int round_reap(struct round *round)
{
	int running = 0;

	stalls_log(round);
	for (int i = 0; i < CHAOS_WORKERS; i++) {
		struct round_worker *worker = &round->workers[i];
		int status;
		if (worker->pid && waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
			worker_judge(round, worker, status);
			worker->pid = 0;
		}
		if (!worker->pid && !round->stopping)
			round_worker_start(round, i);
		running += worker->pid != 0;
	}
	return running;
}

/* ---- begin -------------------------------------------------------------------------------- */

void round_clock_begin(const struct round *round, const char *name)
{
	char file[300], shim[600];
	const char *slash = strrchr(round->self, '/');

	snprintf(file, sizeof(file), "%s/%s", round->folder, name);
	snprintf(shim, sizeof(shim), "%.*s/tests/clock.so", (int)(slash - round->self),
	         round->self);
	setenv("CLOCK_FILE", file, 1);
	setenv("LD_PRELOAD", shim, 1);
}

void round_clock_end(void)
{
	unsetenv("LD_PRELOAD");
	unsetenv("CLOCK_FILE");
}

void round_server(struct round *round, const struct server_options *options)
{
	round_clock_begin(round, "clock");
	if (options)
		server_start(&round->server, options);
	else
		server_restart(&round->server);
	round_clock_end();
}

static bool file_has_text(const char *folder, const char *name)
{
	char path[300];
	struct stat about;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !stat(path, &about) && about.st_size > 0;
}

static void names_write(const struct round *round)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/names.txt", round->folder);
	file = fopen(path, "we");
	for (int i = 0; i < CHAOS_NAMES_ALL; i++) {
		if (!chaos_has_name(round->options->quorum, round->options->etcd, i))
			continue;
		fprintf(file, "%d %s %lld %lld %s\n", i, chaos_sort_name(chaos_names[i].sort),
		        (long long)(chaos_names[i].lease_ms ? chaos_names[i].lease_ms
		                    : round->options->etcd  ? CHAOS_ETCD_LEASE_MS
		                                            : round->page->lease_max_ms),
		        (long long)chaos_names[i].capacity, chaos_names[i].name);
	}
	fclose(file);
}

/* A node has a marker as soon as a client has asked it for a lock. */
static void write_markers(lk_client *client)
{
	for (int i = 0; i < CHAOS_NAMES; i++) {
		lk_lock *lock;
		if (!lk_lock_open(client, chaos_names[i].name, 0, NULL, &lock) &&
		    !lk_lock_acquire(lock, 0, NULL) && lk_lock_release(lock))
			return;
	}
}

/* A client writes the marker of the server's memory; its grace is over before the workers begin. */
static bool begin_memory(struct round *round)
{
	char url[330];
	lk_client *client;

	if (chaos_has_service(round->options))
		snprintf(url, sizeof(url), "%s", round->url);
	else
		snprintf(url, sizeof(url), "%s%s", round->server.unix_url, round->query);
	if (lk_client_open(url, NULL, &client))
		return false;
	if (round->options->cluster)
		write_markers(client);
	lk_client_close(client);
	return round->options->cluster ? nemesis_cluster_grace_end(round)
	                               : nemesis_grace_end(round);
}

/* A service of Sentinel or a Cluster instead of a server, proxies and a recorder of one server's
 * MONITOR. */
static bool service_begin(struct round *round)
{
	const struct cluster_setup_options cluster = {.node_timeout_ms = NODE_TIMEOUT_MS,
	                                              .elections = true};
	const char *url = round->service.url;

	if (round->options->quorum) {
		pulse_start(round);
		return nemesis_quorum_start(round);
	}
	if (round->options->etcd) {
		pulse_start(round);
		return nemesis_etcd_start(round);
	}
	if (round->options->cluster) {
		cluster_setup_start(&round->cluster, &cluster);
		url = round->cluster.url;
	} else {
		sentinel_setup_start(&round->service, NULL);
		round->server = round->service.servers[0];
	}
	snprintf(round->url, sizeof(round->url), "%s%s", url, round->query);
	pulse_start(round);
	return begin_memory(round);
}

static void query_write(struct round *round)
{
	const struct chaos_options *options = round->options;
	int64_t grace_ms = options->without_grace ? 0 : options->grace_ms;
	int used = 0;

	if (grace_ms != CHAOS_GRACE_MS && !options->quorum && !options->etcd)
		used = snprintf(round->query, sizeof(round->query), "?grace=%lld",
		                (long long)grace_ms);
	if (options->replicas)
		snprintf(round->query + used, sizeof(round->query) - (size_t)used, "%creplicas=%d",
		         used ? '&' : '?', options->replicas);
}

static bool round_begin(struct round *round)
{
	/* The kernel keeps written data of a killed process: no fsync is needed. */
	static const char *const keeps[] = {"--appendfsync", "no", "--lua-time-limit", "100", NULL};
	static const char *const loses[] = {"--lua-time-limit", "100", NULL};
	struct server_options options = {.appendonly = !round->options->loses,
	                                 .grace = true,
	                                 .args = round->options->loses ? loses : keeps};
	const char *base = getenv("TMPDIR"), *why = "";
	const char *recorder[] = {round->self, "recorder", round->folder, NULL, NULL};
	char path[300];
	ssize_t len = readlink("/proc/self/exe", round->self, sizeof(round->self) - 1);

	if (len < 0)
		return false;
	if (round->options->wants_namespace) {
		round->result->in_namespace = nemesis_namespace(&why);
		if (!round->result->in_namespace)
			printf("round %d: no network namespace on this machine: %s\n",
			       round->options->number, why);
	}
	snprintf(round->folder, sizeof(round->folder), "%s/latchkey-chaos-XXXXXX",
	         base && *base ? base : "/tmp");
	if (!mkdtemp(round->folder))
		return false;
	memcpy(round->result->folder, round->folder, sizeof(round->folder));
	query_write(round);
	round->page = chaos_page_map(round->folder, true);
	snprintf(path, sizeof(path), "%s/nemesis.log", round->folder);
	round->log = fopen(path, "ae");
	snprintf(path, sizeof(path), "%s/clock", round->folder);
	round->clock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (!round->page || !round->log ||
	    pwrite(round->clock_fd, &round->clock_ms, sizeof(round->clock_ms), 0) < 0)
		return false;
	round->page->loses = round->options->loses;
	round->page->may_break = round->options->loses && round->options->deletes;
	/* The grace protects leases up to its own length. */
	round->page->lease_max_ms =
		round->options->grace_ms < CHAOS_LEASE_MAX_MS || round->options->quorum
			? round->options->grace_ms
			: CHAOS_LEASE_MAX_MS;
	names_write(round);
	if (chaos_has_service(round->options))
		return service_begin(round);
	round_server(round, &options);
	if (!begin_memory(round))
		return false;
	for (; round->proxy_count < CHAOS_PROXIES; round->proxy_count++)
		proxy_start(&round->proxies[round->proxy_count], &round->server);
	recorder[3] = round->server.socket_path;
	pulse_start(round);
	round->recorder = round_spawn(round, recorder);
	return WITHIN(5000, file_has_text(round->folder, "monitor.log"));
}

/* ---- run ---------------------------------------------------------------------------------- */

static void run(struct round *round)
{
	int64_t begun_ns = history_now_ns(), length_ns = round->options->seconds * 1000 * CHAOS_MS;
	/* A loss of memory stops the load for a grace. */
	int64_t more_ns = round->options->loses ? 2 * chaos_pause_ms(round->options) * CHAOS_MS : 0;
	int64_t quiet_ns =
		length_ns / 2 < QUIET_MS * CHAOS_MS ? length_ns / 2 : QUIET_MS * CHAOS_MS;
	int64_t healed_ns;

	if (quiet_ns > QUIET_MS * CHAOS_MS)
		quiet_ns = QUIET_MS * CHAOS_MS;
	round_note(round, round->options->loses ? "loses memory, round" : "keeps memory, round",
	           round->options->number);
	round->begun_ns = begun_ns;
	round->next_ns = begun_ns + quiet_ns / 2;
	while (!round_interrupted && history_now_ns() < begun_ns + length_ns + more_ns - quiet_ns) {
		round_reap(round);
		nemesis_step(round);
		nap_ms(TICK_MS);
	}
	nemesis_heal(round);
	while (!round_interrupted && history_now_ns() < round->grace_over_ns) {
		round_reap(round);
		nap_ms(TICK_MS);
	}
	healed_ns = history_now_ns();
	round_note(round, "quiet", 0);
	round->page->quiet = true;
	/* The rest of it is for pending calls. */
	while (!round_interrupted && history_now_ns() < healed_ns + quiet_ns * 2 / 3) {
		round_reap(round);
		nap_ms(TICK_MS);
	}
	round->result->quiet_ns = history_now_ns() - healed_ns;
	round->stopping = true;
	round->page->stop = true;
	round_note(round, "no more calls", 0);
	if (WITHIN(END_MS, !round_reap(round)))
		return;
	for (int i = 0; i < CHAOS_WORKERS; i++) {
		if (!round->workers[i].pid)
			continue;
		round_complain(round, "worker %d hangs", (int)round->workers[i].pid);
		shell("cd /proc/%d/task && for t in *; do echo $t; cat $t/wchan; echo; done "
		      ">%s/%d.hangs",
		      (int)round->workers[i].pid, round->folder, (int)round->workers[i].pid);
		kill(round->workers[i].pid, SIGKILL);
		waitpid(round->workers[i].pid, NULL, 0);
	}
}

/* ---- end ---------------------------------------------------------------------------------- */

static bool figure(const char *line, const char *name, double *value)
{
	const char *at = strstr(line, name);

	return at && sscanf(at + strlen(name), "%lf", value) == 1;
}

static void judge(struct round *round)
{
	char program[600], path[300], line[1000];
	char command[32];
	/* A single round may have little quiet time; all together must have enough, see main.c. */
	const char *const args[] = {program, command, "min-rate=20", round->folder, NULL};
	const char *slash = strrchr(round->self, '/');
	int status = -1;
	double longest, excused;
	pid_t pid;
	FILE *file;

	snprintf(command, sizeof(command), "command-ms=%d", CHAOS_COMMAND_MS);
	snprintf(program, sizeof(program), "%.*s/judge", (int)(slash - round->self), round->self);
	if (access(program, X_OK)) {
		printf("round %d: no judge: %s\n", round->options->number, program);
		round->result->bad = true;
		return;
	}
	pid = round_spawn(round, args);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	snprintf(path, sizeof(path), "%s/%d.output", round->folder, (int)pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (figure(line, "quiet_max_ms=", &longest))
			round->result->quiet_wake_us = (int64_t)(longest * 1000);
		if (figure(line, "fault_max_ms=", &longest))
			round->result->fault_wake_us = (int64_t)(longest * 1000);
		if (figure(line, " excused=", &excused))
			round->result->excused = (int64_t)excused;
		if (strstr(line, " valid at once, of "))
			round->result->overlaps++;
		if (strstr(line, "no majority of the servers could vote"))
			round->result->unvoted++;
		if (status || getenv("V"))
			fputs(line, stdout);
	}
	if (file)
		fclose(file);
	if (status)
		round_complain(round, "the judge found violations");
}

static void figures(struct round *round)
{
	struct chaos_result *result = round->result;
	const struct chaos_page *page = round->page;

	result->pairs = page->pairs;
	result->quiet_pairs = page->quiet_pairs;
	result->waits = page->waits;
	result->openings = page->openings;
	result->steps = page->steps;
	result->refused = page->refused;
	result->lost_writes = page->lost_writes;
	result->losses = page->losses;
	result->starts = page->starts;
	result->breaks = page->breaks;
	result->reclaimed = page->reclaimed;
	result->unconfirmed = page->unconfirmed;
	result->stalls = page->stall_count;
	result->meetings = page->violations;
	/* No meeting is excused, except near a fault from which no grace protects, or where a hold
	 * of a quorum has been lost just before: there the judge decides. */
	if (page->violations && !round->options->quorum &&
	    !(round->options->loses && (round->options->moves_clock || round->options->deletes)))
		round_complain(round, "%lld meetings in the canary", (long long)page->violations);
}

void round_run(const struct chaos_options *options, struct chaos_result *result)
{
	static struct round round;

	round.options = options;
	round.result = result;
	round.dice.state = options->seed;
	result->bad = true;
	if (!round_begin(&round)) {
		printf("round %d: cannot begin: %s\n", options->number, strerror(errno));
		return;
	}
	result->bad = false;
	run(&round);
	if (!round_interrupted)
		round_check_rest(&round);
	round_note(&round, "end", 0);
	if (round.recorder) {
		kill(round.recorder, SIGTERM);
		waitpid(round.recorder, NULL, 0);
	}
	kill(round.pulse, SIGKILL);
	waitpid(round.pulse, NULL, 0);
	for (int i = 0; i < round.proxy_count; i++)
		proxy_stop(&round.proxies[i]);
	figures(&round);
	if (!round_interrupted)
		judge(&round);
	if (result->bad && !options->cluster && !options->quorum && !options->etcd)
		shell("cp %s/redis.log %s/ 2>/dev/null", round.server.dir, round.folder);
	for (int i = 0; i < CLUSTER_NODES && result->bad && options->cluster; i++)
		shell("cp %s/redis.log %s/node%d.log 2>/dev/null", round.cluster.nodes[i].dir,
		      round.folder, i);
	if (options->quorum)
		nemesis_quorum_stop(&round);
	else if (options->etcd)
		nemesis_etcd_stop(&round);
	else if (options->cluster)
		cluster_setup_stop(&round.cluster);
	else if (options->sentinel)
		sentinel_setup_stop(&round.service);
	else
		server_stop(&round.server);
	if (!result->bad || round_interrupted || options->without_grace)
		folder_remove(round.folder);
}
