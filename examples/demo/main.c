/* SPDX-License-Identifier: MIT
 * `make demo`: run the demo in a folder and a store of its own, and leave nothing behind.  `make
 * demo LOCK=off` does the same without the lock, `make demo STORE=sentinel` with a service of
 * Sentinel, whose master is killed, `make demo STORE=cluster` with a Cluster, `make demo
 * STORE=quorum` with a quorum of five servers, `make demo STORE=etcd` with three members of etcd.
 */
#include "demo.h"

#include <errno.h>
#include <ftw.h>
#include <latchkey.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPEN_FOLDERS 16

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

double seconds_of(const struct demo *demo)
{
	return (double)(now_us() - demo->start_us) / 1e6;
}

bool complain(const char *what, const char *reason)
{
	fprintf(stderr, "demo: %s: %s\n", what, reason);
	return false;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)type;
	(void)place;
	(void)remove(path);
	return 0;
}

/* Start a store for this run only: the environment names the folder of local:. */
static bool start_store(struct demo *demo)
{
	char folder[PATH_SIZE];
	lk_local_info info;

	if (demo->store == CLUSTER)
		return cluster_start(demo, &interrupted);
	if (demo->store == QUORUM)
		return quorum_start(demo, &interrupted);
	if (demo->store == ETCD)
		return etcd_start(demo, &interrupted);
	if (demo->store == SENTINEL)
		return service_start(demo, &interrupted);
	snprintf(demo->url, sizeof(demo->url), "local:");
	snprintf(folder, sizeof(folder), "%s/store", demo->folder);
	if (mkdir(folder, 0700) != 0 || setenv("LATCHKEY_LOCAL_DIR", folder, 1) != 0)
		return complain(folder, strerror(errno));
	if (lk_local_start(&info) != LK_OK) {
		unsetenv("LATCHKEY_LOCAL_DIR");
		return complain("cannot start a store", lk_errmsg());
	}
	printf("store: %s, pid %ld, on %s\n", info.server_path, (long)info.pid, info.socket_path);
	return true;
}

/* Find out what the store has beside locks, and set the latch at which the workers start, before
 * they run: counting down an absent latch is an error.  Without a latch, see start_together(). */
static bool set_latch(struct demo *demo)
{
	lk_semaphore_options options = {.capacity = READERS};
	lk_semaphore *readers;
	lk_client *client;
	lk_latch *latch;
	lk_err semaphore_err, latch_err;
	bool ok;

	if (lk_client_open(demo->url, NULL, &client) != LK_OK)
		return complain("cannot open the store", lk_errmsg());
	semaphore_err = lk_semaphore_open(client, "demo/readers", 0, &options, &readers);
	latch_err = lk_latch_open(client, "demo/start", 0, NULL, &latch);
	if (latch_err == LK_OK)
		latch_err = lk_latch_set(latch, WORKERS, NULL);
	demo->has_permits = semaphore_err == LK_OK;
	demo->has_latch = latch_err == LK_OK;
	ok = ((demo->has_permits || semaphore_err == LK_EUNSUPPORTED) &&
	      (demo->has_latch || latch_err == LK_EUNSUPPORTED)) ||
	     complain("cannot set the latch", lk_errmsg());
	lk_client_close(client);
	return ok;
}

static bool set_up(struct demo *demo)
{
	const char *tmp = getenv("TMPDIR");
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = interrupt;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGQUIT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	/* The path of a socket must be short, so a long TMPDIR does not work. */
	snprintf(demo->folder, sizeof(demo->folder), "%s/latchkey-demo-XXXXXX",
	         tmp && *tmp == '/' && strlen(tmp) < 40 ? tmp : "/tmp");
	if (!mkdtemp(demo->folder)) {
		complain(demo->folder, strerror(errno));
		demo->folder[0] = '\0';
		return false;
	}
	snprintf(demo->shared, sizeof(demo->shared), "%s/counts", demo->folder);
	snprintf(demo->expected, sizeof(demo->expected), "%s/expected", demo->folder);
	demo->meter = meter_new();
	if (!demo->meter)
		return complain("no shared memory", strerror(errno));
	return files_find(demo) && shared_create(demo->shared) &&
	       (!demo->locked || (start_store(demo) && set_latch(demo)));
}

static void clean_up(struct demo *demo)
{
	if (demo->checker) {
		kill(-demo->checker, SIGKILL);
		waitpid(demo->checker, NULL, 0);
	}
	if (getenv("LATCHKEY_LOCAL_DIR"))
		if (lk_local_stop() != LK_OK)
			complain("cannot end the store", lk_errmsg());
	service_end(&demo->service);
	if (demo->folder[0])
		nftw(demo->folder, remove_one, OPEN_FOLDERS, FTW_PHYS | FTW_DEPTH);
	files_free(demo);
}

static bool parse(struct demo *demo, int argc, char **argv)
{
	static const char *const stores[] = {[LOCAL] = "local",
	                                     [SENTINEL] = "sentinel",
	                                     [CLUSTER] = "cluster",
	                                     [QUORUM] = "quorum",
	                                     [ETCD] = "etcd"};
	size_t store = LOCAL;

	demo->locked = true;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "LOCK=on") || !strcmp(argv[i], "LOCK=off")) {
			demo->locked = !strcmp(argv[i], "LOCK=on");
			continue;
		}
		if (strncmp(argv[i], "STORE=", 6) != 0)
			return false;
		for (store = 0; store < STORES && strcmp(argv[i] + 6, stores[store]) != 0; store++)
			;
		if (store == STORES)
			return false;
	}
	demo->store = (enum store)store;
	/* Without the lock no server runs. */
	if (!demo->locked && (demo->store == QUORUM || demo->store == ETCD))
		demo->store = LOCAL;
	demo->lease_ms = demo->store == LOCAL    ? LEASE_MS
	                 : demo->store == QUORUM ? LONGEST_LEASE_MS
	                 : demo->store == ETCD   ? ETCD_LEASE_MS
	                                         : SERVICE_LEASE_MS;
	return demo->locked || demo->store == LOCAL;
}

int main(int argc, char **argv)
{
	static struct worker workers[WORKERS];
	static struct demo demo;
	int status = 1;

	if (!parse(&demo, argc, argv)) {
		fprintf(stderr, "usage: demo [LOCK=on|LOCK=off] "
		                "[STORE=local|sentinel|cluster|quorum|etcd]\n"
		                "demo: STORE=sentinel and STORE=cluster need LOCK=on\n");
		return 64;
	}
	demo.start_us = now_us();
	/* Do not stop the store of another user. */
	unsetenv("LATCHKEY_LOCAL_DIR");
	if (set_up(&demo)) {
		printf("%d workers count the identifiers of %zu files under " ROOT ", ", WORKERS,
		       demo.path_count);
		if (demo.locked)
			printf("one lock, lease %d s\n", demo.lease_ms / 1000);
		else
			printf("without a lock\n");
		fflush(stdout);
		if (report_start_check(&demo) && supervisor_run(&demo, workers, &interrupted) &&
		    report_wait_for_check(&demo, &interrupted)) {
			report_table(&demo, workers);
			status = !report_limits(&demo);
			if (demo.store == QUORUM)
				status = !report_outage(&demo) || status;
			else if (demo.store == ETCD)
				status = !report_leader(&demo) || status;
			else if (demo.store != LOCAL)
				status = !report_failover(&demo, workers) || status;
			status = report_verdict(&demo) || status;
		}
	}
	clean_up(&demo);
	return status;
}
