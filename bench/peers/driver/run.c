/* SPDX-License-Identifier: MIT
 * One run of a contestant: start it, let it work and count meanwhile, then read its lines. */
#include "driver.h"

#include "harness/process.h"
#include "harness/redis.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READY_MS 180000
#define WAIT_MS 30000 /* what still waits when the time is over is granted within this */
#define LINES_MS 30000
#define END_MS 10000

__attribute__((format(printf, 4, 5))) static void complain(const struct contestant *contestant,
                                                           const struct work *work, int workers,
                                                           const char *fmt, ...)
{
	va_list args;

	printf("%s, %s, %d: ", contestant->name, work->name, workers);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
	fflush(stdout);
}

/* Read its output until it closes the pipe; NULL if that took too long. */
static char *peer_rest(struct peer *peer)
{
	int64_t end = now_ms() + LINES_MS;
	size_t len = 0, size = 1 << 20;
	char *text = malloc(size);

	for (;;) {
		struct pollfd ready = {peer->out, POLLIN, 0};
		int64_t left = end - now_ms();
		ssize_t got;

		if (!text)
			give_up("out of memory");
		if (left <= 0 || poll(&ready, 1, (int)left) < 1)
			return free(text), NULL;
		got = read(peer->out, text + len, size - len - 1);
		if (got <= 0)
			break;
		len += (size_t)got;
		if (size - len < 65536)
			text = realloc(text, size *= 2);
	}
	text[len] = 0;
	return text;
}

static bool turns_read(char *text, struct run *run)
{
	size_t room = 0;

	for (char *at = text, *next; *at; at = next) {
		struct turn turn;
		long long asked, granted, released;
		int used = 0;

		if (run->count == room) {
			room = room ? room * 2 : 4096;
			run->turns = realloc(run->turns, room * sizeof(*run->turns));
			if (!run->turns)
				give_up("out of memory");
		}
		next = strchr(at, '\n');
		if (!next)
			return false;
		*next++ = 0;
		if (sscanf(at, "%d %lld %lld %lld%n", &turn.worker, &asked, &granted, &released,
		           &used) != 4 ||
		    at[used] || turn.worker < 0 || turn.worker >= run->workers || asked <= 0 ||
		    granted < asked)
			return false;
		turn.asked = asked;
		turn.granted = granted;
		turn.released = released;
		run->turns[run->count++] = turn;
	}
	return run->count > 0;
}

/* Read lines of MONITOR up to a mark of our own; count those that clients sent. */
static int64_t monitor_end(struct monitor *monitor, const struct test_server *server)
{
	static const char mark[] = "bench-peers-done";
	struct redis *redis = redis_open(server);
	int64_t count = 0;
	const char *line;

	redis_do(redis, "ECHO %s", mark);
	while ((line = monitor_next(monitor, 1000)) != NULL) {
		if (strstr(line, mark)) {
			redis_close(redis);
			return count;
		}
		count += strstr(line, " lua]") == NULL;
	}
	give_up("MONITOR does not show %s", mark);
}

/* Count while it works, until it reports that it is done.  Read MONITOR's lines at once, or the
 * server would buffer them all. */
static int64_t watch(struct peer *peer, const struct store *store,
                     struct monitor *const monitors[SERVERS_MAX], int64_t ms)
{
	struct pollfd done = {peer->out, POLLIN, 0};
	int64_t count = 0, end = now_ms() + ms;
	const char *line;

	while (poll(&done, 1, 0) == 0 && now_ms() < end)
		for (int at = 0; at < store->count; at++)
			for (int i = 0; i < 1000; i++) {
				line = monitor_next(monitors[at], i ? 0 : 5);
				if (!line)
					break;
				count += strstr(line, " lua]") == NULL;
			}
	for (int at = 0; at < store->count; at++)
		count += monitor_end(monitors[at], &store->servers[at]);
	return count;
}

/* Count between "ready" and "done". */
static bool peer_works(struct peer *peer, const struct store *store, bool counted, struct run *run)
{
	int64_t ms = (int64_t)(run->seconds * 1000) + WAIT_MS;
	int64_t all, busy, all_end, busy_end, end;
	bool monitored = counted && !store->etcd;
	struct monitor *monitors[SERVERS_MAX];
	bool done;

	run->requests = store->etcd ? etcd_requests(store) : -1;
	for (int i = 0; monitored && i < store->count; i++)
		monitors[i] = monitor_open(&store->servers[i]);
	machine_cpu_ns(&all, &busy);
	run->server_cpu_ns = store_cpu_ns(store);
	run->client_cpu_ns = session_cpu_ns(peer->pid);
	if (!line_write(peer->in, "go"))
		return false;
	end = now_ms() + ms;
	if (monitored)
		run->requests = watch(peer, store, monitors, ms);
	done = peer_says(peer, "done", end - now_ms());
	run->hung = !done && now_ms() >= end;
	run->client_cpu_ns = session_cpu_ns(peer->pid) - run->client_cpu_ns;
	run->server_cpu_ns = store_cpu_ns(store) - run->server_cpu_ns;
	machine_cpu_ns(&all_end, &busy_end);
	if (store->etcd)
		run->requests = etcd_requests(store) - run->requests;
	for (int i = 0; monitored && i < store->count; i++)
		monitor_close(monitors[i]);
	run->others = (double)(busy_end - busy - run->client_cpu_ns - run->server_cpu_ns) /
	              (double)(all_end - all);
	return done && line_write(peer->in, "end");
}

bool run_contestant(const struct contestant *contestant, const struct work *work, int workers,
                    double seconds, bool counted, struct run *run)
{
	struct store store;
	struct peer peer;
	char *text = NULL;
	bool good = false;

	*run = (struct run){.workers = workers, .seconds = seconds};
	if (!store_start(&store, contestant->server, work->servers ? work->servers : 1))
		return false;
	peer_start(&peer, contestant, work->name, store.ports, workers, seconds);
	if (!peer_says(&peer, "ready", READY_MS))
		complain(contestant, work, workers, "is not ready");
	else if (!peer_works(&peer, &store, counted, run))
		complain(contestant, work, workers,
		         run->hung ? "a wait did not end: no figure"
		                   : "did not end its work: no figure");
	else if (!(text = peer_rest(&peer)) || !turns_read(text, run))
		complain(contestant, work, workers, "its lines are malformed");
	else
		good = true;
	free(text);
	if (!peer_end(&peer, good ? END_MS : 0) && good) {
		complain(contestant, work, workers, "failed at its end: no figure");
		good = false;
	}
	store_stop(&store);
	if (!good)
		run_free(run);
	return good;
}

void run_free(struct run *run)
{
	free(run->turns);
	run->turns = NULL;
	run->count = 0;
}
