/* SPDX-License-Identifier: MIT
 * Ten thousand locks held by one client: the cost of renewing them, how late a renewal is, and the
 * memory of each. */
#include "bench.h"

#include <latchkey.h>

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LOCKS 10000
#define LEASE_MS 10000
#define SETTLE_MS 5000   /* all have been renewed once */
#define MEASURE_MS 20000 /* two leases, so six renewals of each */
#define NAME_LEN 32

static size_t heap_bytes(void)
{
	return mallinfo2().uordblks + mallinfo2().hblkhd;
}

static void sleep_ms(int64_t ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	while (nanosleep(&left, &left))
		;
}

static lk_counters counters_of(lk_client *client)
{
	lk_counters counters;

	if (lk_client_counters(client, &counters))
		bench_fail("latchkey: %s", lk_errmsg());
	return counters;
}

static void open_locks(lk_client *client, lk_lock **locks)
{
	const lk_lock_options options = {.lease_ms = LEASE_MS};
	char name[NAME_LEN + 1];

	for (int i = 0; i < LOCKS; i++) {
		snprintf(name, sizeof(name), "a-name-of-thirty-two-bytes-%05d", i);
		if (strlen(name) != NAME_LEN || lk_lock_open(client, name, 0, &options, &locks[i]))
			bench_fail("latchkey: %s", lk_errmsg());
	}
}

static void tell_keeping(struct bench *bench, lk_client *client, const struct test_server *server)
{
	int64_t client_ns = bench_cpu_ns(0), server_ns = bench_cpu_ns(server->pid);
	int64_t start_ns = bench_now_ns(), period_ns;
	lk_counters before = counters_of(client), after;

	sleep_ms(bench_brief(bench) ? 100 : MEASURE_MS);
	period_ns = bench_now_ns() - start_ns;
	client_ns = bench_cpu_ns(0) - client_ns;
	server_ns = bench_cpu_ns(server->pid) - server_ns;
	after = counters_of(client);
	if (after.lost[0])
		bench_fail("%lld of %d holds were lost", (long long)after.lost[0], LOCKS);
	bench_number(bench, "held.client.cpu", "held: CPU of the client, 10,000 locks",
	             (double)client_ns * 100 / (double)period_ns, "% of a core", NO_GOAL, 0);
	bench_number(bench, "held.server.cpu", "held: CPU of the server, 10,000 locks",
	             (double)server_ns * 100 / (double)period_ns, "% of a core", NO_GOAL, 0);
	bench_number(bench, "held.renewals", "held: renewals of a lock in a lease",
	             (double)(after.renewed - before.renewed) * LEASE_MS * 1e6 / LOCKS /
	                     (double)period_ns,
	             "", NO_GOAL, 0);
	bench_number(bench, "held.late_ms", "held: the latest renewal after it was due",
	             (double)after.late_max_us / 1000, "ms", NO_GOAL, 0);
	/* Since the client was opened: this includes the first renewals. */
	bench_number(bench, "held.lease_gone",
	             "held: share of a lease that was gone at its renewal, at most",
	             (double)after.lease_max_permille / 1000, "", AT_MOST, 0.5);
}

static void run(struct bench *bench)
{
	static lk_lock *locks[LOCKS];
	struct test_server server;
	lk_client *client;
	size_t empty, open, held;

	bench_server(bench, &server, NULL);
	if (lk_client_open(server.url, NULL, &client))
		bench_fail("latchkey: %s", lk_errmsg());
	empty = heap_bytes();
	open_locks(client, locks);
	open = heap_bytes();
	for (int i = 0; i < LOCKS; i++)
		if (lk_lock_acquire(locks[i], LK_FOREVER, NULL))
			bench_fail("latchkey: %s", lk_errmsg());
	held = heap_bytes();
	bench_number(bench, "held.heap.open", "held: heap of an open lock, name of 32 bytes",
	             (double)(open - empty) / LOCKS, "bytes", NO_GOAL, 0);
	bench_number(bench, "held.heap", "held: heap of a held lock, name of 32 bytes",
	             (double)(held - empty) / LOCKS, "bytes", AT_MOST, 768);
	sleep_ms(bench_brief(bench) ? 100 : SETTLE_MS);
	tell_keeping(bench, client, &server);
	if (lk_client_close(client))
		bench_fail("latchkey: %s", lk_errmsg());
	server_stop(&server);
}

const struct bench_case case_held = {"held", "10,000 locks held at a lease of 10 s", run};
