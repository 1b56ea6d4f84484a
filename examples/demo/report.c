/* SPDX-License-Identifier: MIT
 * The counts of find, grep, sort and uniq, which run beside the workers; the table; the verdict. */
#include "demo.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* $1 is the output file. */
#define CHECK                                                                                      \
	"find " ROOT " -type f -name '*.h' -exec grep -ahoE '[A-Za-z_][A-Za-z0-9_]*' {} + |"       \
	" sort | uniq -c >\"$1\""

bool report_start_check(struct demo *demo)
{
	demo->checker = fork();
	if (demo->checker < 0) {
		demo->checker = 0;
		return complain("cannot fork", strerror(errno));
	}
	if (demo->checker == 0) {
		/* One process group, to end all four together; the workers have priority. */
		setpgid(0, 0);
		if (nice(10) < 0) {
			/* Then it runs with the workers' priority. */
		}
		signal(SIGPIPE, SIG_DFL);
		setenv("LC_ALL", "C", 1);
		setenv("TMPDIR", demo->folder, 1);
		execl("/bin/sh", "sh", "-c", CHECK, "check", demo->expected, (char *)NULL);
		_exit(127);
	}
	setpgid(demo->checker, demo->checker);
	return true;
}

bool report_wait_for_check(struct demo *demo, volatile const int *stop)
{
	int status = 0;
	pid_t checker = demo->checker;

	while (waitpid(checker, &status, 0) < 0)
		if (errno != EINTR || *stop)
			return complain("no check", strerror(errno));
	demo->checker = 0;
	if (status != 0)
		return complain("the check failed", "find | grep | sort | uniq");
	return true;
}

static int compare(const void *a, const void *b)
{
	int64_t first = *(const int64_t *)a, second = *(const int64_t *)b;

	return (first > second) - (first < second);
}

static const char *fate(const struct demo *demo, const struct worker *worker)
{
	if (worker->killed)
		return "killed";
	if (worker->failed)
		return "failed";
	if (worker->stopped)
		return "stopped, continued";
	if (worker->outlasts)
		return demo->store == ETCD ? "held while the leader died"
		                           : "held while a server restarted";
	if (worker->outlives)
		return demo->store == QUORUM ? "held while a server died"
		                             : "held while the master died";
	return "";
}

void report_table(struct demo *demo, struct worker workers[WORKERS])
{
	int merges = 0, losses = 0, refused = 0;

	printf("\nworker     pid  merges  median wait  longest wait  losses  refused\n");
	for (int i = 0; i < WORKERS; i++) {
		struct worker *worker = &workers[i];
		int count = worker->wait_count, middle = count / 2;
		int64_t *waits = worker->waits_us;

		qsort(waits, (size_t)count, sizeof(waits[0]), compare);
		printf("%6d %7ld %7d %9.1f ms %10.1f ms %7d %8d  %s\n", i + 1, (long)worker->pid,
		       worker->merges, count ? (double)waits[middle] / 1000 : 0,
		       count ? (double)waits[count - 1] / 1000 : 0, worker->losses, worker->refused,
		       fate(demo, worker));
		merges += worker->merges;
		losses += worker->losses;
		refused += worker->refused;
	}
	printf("   all         %7d %27s %7d %8d\n", merges, "", losses, refused);
	printf("\n%zu files in %d batches, %.1f s\n", demo->path_count, demo->batch_count,
	       seconds_of(demo));
}

bool report_limits(const struct demo *demo)
{
	int readers = meter_most(demo->meter);
	double within_ms = (double)(demo->last_begin_us - demo->first_begin_us) / 1000;
	bool with_permits = demo->has_permits;
	bool together = demo->first_begin_us >= demo->last_ready_us;

	printf("start: %s all %d were ready, then all within %.1f ms\n",
	       together ? "none before" : "some before", WORKERS, within_ms);
	printf("workers that read at once: %d at most", readers);
	if (with_permits)
		printf(", %d allowed", READERS);
	printf("\n");
	return !demo->locked || (together && (!with_permits || readers <= READERS));
}

static double seconds_without(const struct failover *failover, enum grant grant)
{
	return (double)(failover->first_us[grant] - failover->last_us[grant]) / 1e6;
}

bool report_failover(const struct demo *demo, const struct worker workers[WORKERS])
{
	const struct failover *failover = &demo->failover;
	int count = 0;

	for (int i = 0; i < WORKERS; i++)
		count += workers[i].reclaimed;
	if (!failover->named_us || !failover->first_us[GRANT_LOCK] ||
	    !failover->first_us[GRANT_PERMIT])
		return complain("the new master", "granted nothing");
	printf("master killed: %s after %.1f s\n",
	       demo->store == CLUSTER ? "its replica was one" : "a sentinel named another one",
	       (double)(failover->named_us - failover->killed_us) / 1e6);
	printf("holds taken back from the new master: %d\n", count);
	/* The release of a hold that was taken back hands the lock to a waiter within the grace. */
	printf("the lock was not granted for %.1f s%s\n", seconds_without(failover, GRANT_LOCK),
	       count && demo->store != CLUSTER ? ", then handed off by the holder that took it back"
	       : demo->store == CLUSTER        ? ": the failover and a grace of 10 s at most"
	                                       : "");
	/* Permits may have another master, which was not killed. */
	if (demo->store == CLUSTER)
		return count > 0 || complain("the new master", "no hold was taken back");
	printf("permits were not granted for %.1f s: the failover and a grace of %.0f s\n",
	       seconds_without(failover, GRANT_PERMIT), SERVICE_GRACE_MS / 1000.0);
	return failover->first_us[GRANT_PERMIT] - failover->killed_us >=
	               SERVICE_GRACE_MS * 1000LL ||
	       complain("the new master", "granted permits before its grace was over");
}

bool report_outage(const struct demo *demo)
{
	const struct outage *outage = &demo->outage;
	int64_t silent_us = outage->whole_us - outage->restarted_us;

	if (!outage->granted_us)
		return complain("the quorum", "granted nothing after the death of a server");
	printf("server killed: the lock was granted again after %.0f ms\n",
	       (double)(outage->granted_us - outage->killed_us) / 1e3);
	printf("server restarted empty: it voted again after %.1f s; the longest lease is %d s\n",
	       (double)silent_us / 1e6, LONGEST_LEASE_MS / 1000);
	printf("the hold of that time %s\n",
	       outage->lost ? "was lost" : "was renewed by the other 3 of 5 servers");
	return silent_us >= LONGEST_LEASE_MS * 1000LL ||
	       complain("the restarted server", "voted before the longest lease was over");
}

bool report_leader(const struct demo *demo)
{
	const struct outage *outage = &demo->outage;

	if (!outage->granted_us)
		return complain("etcd", "granted nothing after the death of its leader");
	printf("leader killed: another member led after %.1f s\n",
	       (double)(outage->whole_us - outage->killed_us) / 1e6);
	printf("the hold of that time was %s; the lock was granted again after %.1f s\n",
	       outage->lost ? "lost" : "kept",
	       (double)(outage->granted_us - outage->killed_us) / 1e6);
	return true;
}

struct tally {
	uint64_t words, occurrences;
};

static bool tally(const char *text, const char *end, struct tally *sum)
{
	struct word word;

	memset(sum, 0, sizeof(*sum));
	for (; text < end; sum->words++, sum->occurrences += word.count) {
		text = line_parse(text, end, &word);
		if (!text)
			return false;
	}
	return true;
}

static char *read_expected(const char *path, size_t *len)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	long size = -1;

	if (file && fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) > 0) {
		rewind(file);
		text = malloc((size_t)size);
		if (text)
			*len = fread(text, 1, (size_t)size, file);
	}
	if (file)
		fclose(file);
	if (text && *len != (size_t)size) {
		free(text);
		text = NULL;
	}
	return text;
}

static int verdict(const struct demo *demo, const struct shared_head *head, bool same,
                   const struct tally *ours, const struct tally *true_ones)
{
	int missing = 0;

	for (int batch = 0; batch < demo->batch_count; batch++)
		missing += !head->merged[batch];
	printf("find, grep, sort, uniq: %" PRIu64 " identifiers, %" PRIu64 " different\n",
	       true_ones->occurrences, true_ones->words);
	printf("the workers' file:      %" PRIu64 " identifiers, %" PRIu64 " different\n",
	       ours->occurrences, ours->words);
	if (missing)
		printf("lost: %" PRId64 " identifiers, %d of %d batches are not in the file\n",
		       (int64_t)(true_ones->occurrences - ours->occurrences), missing,
		       demo->batch_count);
	printf("%s\n", same ? "identical" : "DIFFERENT");
	/* Without the lock, counts must be lost: the demo shows this. */
	return demo->locked ? !same || missing > 0 : same;
}

int report_verdict(struct demo *demo)
{
	struct shared_head head;
	struct tally ours, true_ones;
	size_t len = 0, expected_len = 0;
	char *body = NULL, *text = shared_read(demo->shared, &len, &head, &body);
	char *expected = read_expected(demo->expected, &expected_len);
	int status = 1;

	if (!expected || !text)
		complain("no verdict", "a file cannot be read");
	else if (!tally(body, text + len, &ours) ||
	         !tally(expected, expected + expected_len, &true_ones))
		complain("no verdict", "a file has a broken line");
	else
		status = verdict(demo, &head,
		                 (size_t)(text + len - body) == expected_len &&
		                         !memcmp(body, expected, expected_len),
		                 &ours, &true_ones);
	free(expected);
	free(text);
	return status;
}
