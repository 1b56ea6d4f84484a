/* SPDX-License-Identifier: MIT
 * A worker: a process with one client, whose threads compete for the names until the round ends or
 * its own time is over.  It records every call, exits by itself, and leaves nothing behind. */
#include "chaos/worker.h"

#include "harness/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIFE_MIN_MS 3000
#define LIFE_MAX_MS 30000
#define EXIT_BAD 3
#define LONG_LEASE_MS 500
#define CANCEL_MIN_MS 300
/* Again, for a wait that had not begun at the first time; later than the judge permits it to
 * last. */
#define CANCEL_AGAIN_MS (CHAOS_COMMAND_MS + 2000)
#define WATCH_MS 20
#define LATE_US 2500000
#define APART_US (CHAOS_LEASE_MAX_MS * INT64_C(1000))
#define CROWD_MIN_MS 300
#define CROWD_MAX_MS 1500

bool worker_over(const struct worker *worker)
{
	return worker->page->stop || history_now_ns() > worker->ends_ns;
}

struct history_record worker_record(const struct worker_handle *handle, enum history_op op)
{
	static const uint8_t kinds[] = {LK_KIND_LOCK, LK_KIND_SEMAPHORE, LK_KIND_SEMAPHORE,
	                                LK_KIND_LATCH};
	enum chaos_sort sort = chaos_names[handle->name].sort;

	return (struct history_record){
		.op = (uint8_t)op,
		.kind = kinds[sort],
		.name = (uint16_t)handle->name,
		.flags = (uint8_t)((handle->fixed ? HISTORY_FIXED : 0) |
	                           (sort == CHAOS_RATE ? HISTORY_RATE : 0)),
	};
}

void worker_done(const struct worker_handle *handle, struct history_record *record, lk_err err)
{
	record->err = err;
	history_done(handle->worker->history, record);
	switch (err) {
	case LK_OK:
	case LK_EBUSY:
	case LK_ETIMEDOUT:
	case LK_ECANCELED:
	case LK_ELOST:
	case LK_ECONN:
	case LK_EUNKNOWN:
	case LK_ESERVER:
	case LK_EAGAIN:
		return;
	case LK_EREPLICAS:
		handle->worker->page->unconfirmed++;
		if (strstr(handle->worker->url, "replicas="))
			return;
		break;
	case LK_EMISMATCH:
	case LK_EABSENT:
		if (record->kind == LK_KIND_LATCH)
			return;
		break;
	default:
		break;
	}
	fprintf(stderr, "worker %d: %s (operation %d on %s): %s\n", (int)getpid(), lk_err_name(err),
	        record->op, chaos_names[handle->name].name, lk_errmsg());
}

void worker_nap_us(int64_t us)
{
	struct timespec rest = {us / 1000000, us % 1000000 * 1000};

	while (us > 0 && nanosleep(&rest, &rest) && errno == EINTR)
		continue;
}

void worker_rest(struct worker_thread *thread, lk_err err)
{
	if (err == LK_ECONN || err == LK_EUNKNOWN || err == LK_ESERVER || err == LK_EAGAIN ||
	    err == LK_EREPLICAS)
		worker_nap_us(chaos_between(&thread->dice, 5000, 30000));
}

int64_t worker_wait_ms(struct worker_thread *thread)
{
	int64_t chance = chaos_between(&thread->dice, 1, 100);

	if (chance <= 10)
		return 0;
	if (chance <= 25)
		return chaos_between(&thread->dice, 1, 50);
	if (chance <= 35)
		return LK_FOREVER;
	return chaos_between(&thread->dice, 50, CHAOS_WAIT_MS);
}

int64_t worker_hold_us(struct worker_thread *thread, const struct worker_handle *handle)
{
	const struct chaos_page *page = thread->worker->page;
	int64_t chance = chaos_between(&thread->dice, 1, 1000);
	int64_t most = page->loses && !page->quiet ? 650 : 700;

	if (chance <= most)
		return chaos_between(&thread->dice, 0, 1000);
	if (chance <= most + 250)
		return chaos_between(&thread->dice, 1000, 5000);
	if (chance <= most + 274)
		return chaos_between(&thread->dice, 5000, 40000);
	/* Long enough to see the effect of a renewal; holds with long leases would block all
	 * others. */
	if (chance <= 994)
		return handle->fixed || handle->lease_ms > LONG_LEASE_MS
		               ? 0
		               : chaos_between(&thread->dice, 2000, 4000) * handle->lease_ms;
	return chaos_between(&thread->dice, 500, 2000) * handle->lease_ms;
}

void worker_wait_begin(struct worker_thread *thread, const struct worker_handle *handle,
                       struct history_record *record, int64_t wait_ms)
{
	record->u.of.valid_until_ns = wait_ms ? history_now_ns() + wait_ms * CHAOS_MS : 1;
	if (wait_ms == LK_FOREVER)
		record->u.of.valid_until_ns = 0;
	record->call = history_begin(thread->worker->history, record);
	if (wait_ms != LK_FOREVER)
		return;
	pthread_mutex_lock(&thread->wait_mutex);
	thread->wait_handle = handle;
	thread->wait_call = record->call;
	thread->cancel_ns = history_now_ns() +
	                    chaos_between(&thread->dice, CANCEL_MIN_MS, CHAOS_WAIT_MS) * CHAOS_MS;
	pthread_mutex_unlock(&thread->wait_mutex);
}

void worker_wait_end(struct worker_thread *thread)
{
	pthread_mutex_lock(&thread->wait_mutex);
	thread->cancel_ns = 0;
	pthread_mutex_unlock(&thread->wait_mutex);
}

void worker_pair(const struct worker *worker, bool waited)
{
	worker->page->pairs++;
	if (waited)
		worker->page->waits++;
	if (worker->page->quiet)
		worker->page->quiet_pairs++;
}

/* ---- handles ------------------------------------------------------------------------------ */

/* Opening a semaphore needs a reply of the store: retry until it comes. */
static void open_semaphore(struct worker_handle *handle)
{
	const struct chaos_name *name = &chaos_names[handle->name];
	lk_semaphore_options options = {
		.capacity = name->capacity,
		.lease_ms = handle->lease_ms,
		.fixed = handle->fixed,
		.on_lost = worker_permits_lost,
		.on_lost_arg = handle,
	};
	lk_err err = LK_ECONN;

	while (err && !worker_over(handle->worker)) {
		err = lk_semaphore_open(handle->worker->client, name->name, 0, &options,
		                        &handle->semaphore);
		if (err == LK_ECONN || err == LK_EUNKNOWN || err == LK_ESERVER || err == LK_EAGAIN)
			worker_nap_us(20000);
		else if (err) {
			fprintf(stderr, "worker %d: cannot open %s: %s\n", (int)getpid(),
			        name->name, lk_errmsg());
			return;
		}
	}
}

static void open_handle(struct worker *worker, int name, bool fixed, struct chaos_dice *dice)
{
	struct worker_handle *handle = &worker->handles[worker->handle_count];
	static const int64_t leases[] = {300, 300, 400, 500, 1000, CHAOS_LEASE_MAX_MS};
	enum chaos_sort sort = chaos_names[name].sort;
	lk_err err = LK_OK;

	*handle = (struct worker_handle){
		.worker = worker,
		.name = name,
		.fixed = fixed,
		.lease_ms = sort == CHAOS_RATE ? chaos_names[name].lease_ms
	                                       : leases[chaos_between(dice, 0, 5)],
	};
	if (handle->lease_ms > worker->page->lease_max_ms)
		handle->lease_ms = worker->page->lease_max_ms;
	if (sort == CHAOS_LOCK) {
		lk_lock_options options = {.lease_ms = handle->lease_ms,
		                           .fixed = fixed,
		                           .on_lost = worker_lock_lost,
		                           .on_lost_arg = handle};
		err = lk_lock_open(worker->client, chaos_names[name].name, 0, &options,
		                   &handle->lock);
	} else if (sort == CHAOS_LATCH) {
		lk_latch_options options = {.open_ttl_ms = 60000};
		err = lk_latch_open(worker->client, chaos_names[name].name, 0, &options,
		                    &handle->latch);
	} else {
		open_semaphore(handle);
	}
	if (err)
		fprintf(stderr, "worker %d: cannot open %s: %s\n", (int)getpid(),
		        chaos_names[name].name, lk_errmsg());
	if (handle->lock || handle->semaphore || handle->latch)
		worker->handle_count++;
}

static int follow_late(void *arg, const char *host, int port, char host_out[LK_HOST_SIZE],
                       int *port_out)
{
	const struct worker *worker = arg;

	(void)host;
	(void)port;
	(void)host_out;
	(void)port_out;
	/* A close waits for this call. */
	for (int64_t left_us = worker->late_us; left_us > 0 && worker->is_open;
	     left_us -= WORKER_PIECE_US)
		worker_nap_us(WORKER_PIECE_US);
	return 0;
}

static bool open_client(struct worker *worker)
{
	const lk_client_options options = {.connect_timeout_ms =
	                                           2 * CHAOS_COMMAND_MS + worker->late_us / 1000,
	                                   .command_timeout_ms = CHAOS_COMMAND_MS,
	                                   .resolve = worker->late_us ? follow_late : NULL,
	                                   .resolve_arg = worker};

	while (!worker_over(worker)) {
		struct history_record record = {.op = HISTORY_OPEN};
		lk_err err;
		record.call = history_begin(worker->history, &record);
		err = lk_client_open(worker->url, &options, &worker->client);
		record.err = err;
		history_done(worker->history, &record);
		if (!err) {
			struct history_record id = {.op = HISTORY_ID};
			memcpy(id.u.text, lk_client_id(worker->client),
			       strnlen(lk_client_id(worker->client), sizeof(id.u.text)));
			history_event(worker->history, &id);
			worker->is_open = true;
			return true;
		}
		if (err != LK_ECONN && err != LK_ESERVER)
			fprintf(stderr, "worker %d: cannot open a client: %s\n", (int)getpid(),
			        lk_errmsg());
		worker_nap_us(20000);
	}
	return false;
}

/* ---- the process -------------------------------------------------------------------------- */

static void cancel(const struct worker_handle *handle)
{
	if (handle->lock)
		lk_lock_cancel(handle->lock);
	else if (handle->semaphore)
		lk_semaphore_cancel(handle->semaphore);
	else
		lk_latch_cancel(handle->latch);
}

/* Cancel a wait without limit whose time is over, and record the cancel. */
static void watch(struct worker_thread *thread)
{
	struct worker *worker = thread->worker;
	int64_t now_ns = history_now_ns();
	struct history_record record;
	const struct worker_handle *handle = NULL;

	pthread_mutex_lock(&thread->wait_mutex);
	if (thread->cancel_ns && (thread->cancel_ns <= now_ns || worker_over(worker))) {
		handle = thread->wait_handle;
		record = worker_record(handle, HISTORY_CANCEL);
		record.u.of.fence = thread->wait_call;
		thread->cancel_ns = now_ns + CANCEL_AGAIN_MS * CHAOS_MS;
	}
	pthread_mutex_unlock(&thread->wait_mutex);
	if (!handle)
		return;
	record.call = history_begin(worker->history, &record);
	cancel(handle);
	history_done(worker->history, &record);
}

/* All threads of this worker compete for one lock, to cause hand-overs, while some threads of other
 * workers wait for it.  Fixed leases are not handed over. */
static void crowd_begin(struct worker_thread *thread, int index)
{
	struct worker *worker = thread->worker;
	int64_t until_ns = history_now_ns() +
	                   chaos_between(&thread->dice, CROWD_MIN_MS, CROWD_MAX_MS) * CHAOS_MS;

	worker->crowd.handle = index;
	worker->crowd.until_ns = until_ns;
	worker->page->crowd_name = worker->handles[index].name;
	worker->page->crowd_until_ns = until_ns;
}

/* Select the thread's next name. */
static struct worker_handle *choose(struct worker_thread *thread)
{
	struct worker *worker = thread->worker;
	const struct chaos_page *page = worker->page;
	int64_t now_ns = history_now_ns();
	int next = (int)chaos_between(&thread->dice, 0, worker->handle_count - 1);
	bool follows = page->crowd_until_ns > now_ns && chaos_once_in(&thread->dice, 6);

	if (worker->crowd.until_ns > now_ns)
		return &worker->handles[worker->crowd.handle];
	for (int i = 0; follows && i < worker->handle_count; i++)
		if (worker->handles[i].name == page->crowd_name)
			return &worker->handles[i];
	if (page->crowd_until_ns <= now_ns && worker->handles[next].lock &&
	    !worker->handles[next].fixed && chaos_once_in(&thread->dice, 20))
		crowd_begin(thread, next);
	return &worker->handles[next];
}

static void *thread_run(void *arg)
{
	static void (*const turns[])(struct worker_thread *, struct worker_handle *) = {
		worker_lock, worker_semaphore, worker_rate, worker_latch};
	struct worker_thread *thread = arg;
	struct worker *worker = thread->worker;

	while (!worker_over(worker)) {
		struct worker_handle *handle = choose(thread);
		turns[chaos_names[handle->name].sort](thread, handle);
		/* Cancel the waits of others now and then. */
		if (chaos_once_in(&thread->dice, 200))
			cancel(&worker->handles[chaos_between(&thread->dice, 0,
			                                      worker->handle_count - 1)]);
		if (handle->lock && chaos_once_in(&thread->dice, 300))
			worker_abandon(thread, handle);
		if ((handle->lock || handle->semaphore) && worker->page->may_break &&
		    !worker->page->quiet && chaos_once_in(&thread->dice, 400))
			worker_break(handle);
		if (worker->crowd.until_ns <= history_now_ns())
			worker_nap_us(chaos_between(&thread->dice, 0, 2000));
	}
	thread->over = true;
	return NULL;
}

static void run_threads(struct worker *worker)
{
	struct worker_thread threads[CHAOS_THREADS];
	int over = 0;

	for (int i = 0; i < CHAOS_THREADS; i++) {
		threads[i] = (struct worker_thread){
			.worker = worker,
			.slot = worker->slot + i,
			.dice.state = worker->seed + (uint64_t)i * 7919,
			.wait_mutex = PTHREAD_MUTEX_INITIALIZER,
		};
		if (pthread_create(&threads[i].thread, NULL, thread_run, &threads[i])) {
			fprintf(stderr, "worker %d: no thread\n", (int)getpid());
			exit(EXIT_BAD);
		}
	}
	while (over < CHAOS_THREADS) {
		over = 0;
		worker_nap_us(WATCH_MS * 1000);
		for (int i = 0; i < CHAOS_THREADS; i++) {
			watch(&threads[i]);
			over += threads[i].over;
		}
	}
	for (int i = 0; i < CHAOS_THREADS; i++)
		pthread_join(threads[i].thread, NULL);
}

static bool close_client(struct worker *worker, int threads_before)
{
	struct history_record record = {.op = HISTORY_CLOSE};
	lk_counters counters;
	lk_err err;

	if (lk_client_counters(worker->client, &counters) == LK_OK)
		worker->page->reclaimed += counters.reclaimed;
	record.call = history_begin(worker->history, &record);
	worker->is_open = false;
	err = worker_close(worker);
	record.err = err;
	history_done(worker->history, &record);
	if (err && err != LK_EUNKNOWN)
		fprintf(stderr, "worker %d: close: %s\n", (int)getpid(), lk_errmsg());
	/* A joined thread is in /proc for a moment longer. */
	if (!WITHIN(2000, proc_thread_count(0) <= threads_before)) {
		fprintf(stderr, "worker %d: %d threads left of %d\n", (int)getpid(),
		        proc_thread_count(0), threads_before);
		return false;
	}
	if (proc_socket_count(0)) {
		fprintf(stderr, "worker %d: a socket is left\n", (int)getpid());
		return false;
	}
	return true;
}

int worker_main(int argc, char **argv)
{
	struct worker worker = {0};
	struct history_record record = {.op = HISTORY_START};
	struct chaos_dice dice;
	/* The thread sanitizer has a thread of its own. */
	int threads = proc_thread_count(0) + TSAN;
	char path[300];
	bool good = true;

	if (argc != 4)
		return 2;
	snprintf(path, sizeof(path), "%s/nemesis.log", argv[0]);
	worker.log_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	worker.history = history_open(argv[0]);
	worker.page = chaos_page_map(argv[0], false);
	if (!worker.history || !worker.page || worker.log_fd < 0)
		return EXIT_BAD;
	worker.url = argv[1];
	worker.slot = atoi(argv[2]) * CHAOS_THREADS;
	worker.seed = strtoull(argv[3], NULL, 10);
	worker.quorum = strstr(worker.url, "+quorum:") != NULL;
	worker.etcd = !strncmp(worker.url, "etcd:", 5);
	if (worker.quorum || strstr(worker.url, "+sentinel:") || strstr(worker.url, "+cluster:"))
		worker.apart_us = APART_US;
	if (worker.apart_us && !worker.quorum)
		worker.late_us = worker.slot / CHAOS_THREADS % 2 ? LATE_US : 0;
	dice.state = worker.seed ^ 0x5bd1e995;
	worker.ends_ns =
		history_now_ns() + chaos_between(&dice, LIFE_MIN_MS, LIFE_MAX_MS) * CHAOS_MS;
	history_event(worker.history, &record);
	worker.page->starts++;
	if (open_client(&worker)) {
		for (int name = 0; name < CHAOS_NAMES_ALL; name++) {
			enum chaos_sort sort = chaos_names[name].sort;
			if (!chaos_has_name(worker.quorum, worker.etcd, name))
				continue;
			if (sort != CHAOS_RATE)
				open_handle(&worker, name, false, &dice);
			if (sort != CHAOS_LATCH)
				open_handle(&worker, name, true, &dice);
		}
		if (worker.handle_count)
			run_threads(&worker);
		good = close_client(&worker, threads);
	}
	record = (struct history_record){.op = HISTORY_END};
	history_event(worker.history, &record);
	history_close(worker.history);
	chaos_page_unmap(worker.page);
	return good ? 0 : EXIT_BAD;
}
