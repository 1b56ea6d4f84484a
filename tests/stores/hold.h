/* SPDX-License-Identifier: MIT
 * What locks and semaphores promise about acquiring and releasing, on any store: one holder at a
 * time, growing fences, waits that end, queries from outside. */
#ifndef STORES_HOLD_H
#define STORES_HOLD_H

#include "stores/set_up.h"

#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- One holder at a time ------------------------------------------------------------------- */

#define CONTENDERS_MAX 8

/* In memory that processes share; protected only by the holds. */
struct contest {
	atomic_int value, inside;
	_Atomic uint64_t last_fence;
	atomic_int failures;
};

static struct contest *contest;

struct contender {
	const struct noun *noun;
	lk_client *client;
	int threads, rounds;
	pthread_t thread;
};

/* Do one unprotected increment: read, pause, write.  The fence must grow. */
static void increment(uint64_t fence)
{
	int value = contest->value;

	contest->failures += contest->inside++ || fence <= contest->last_fence;
	contest->last_fence = fence;
	nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	contest->value = value + 1;
	contest->inside--;
}

static void *contend(void *arg)
{
	const struct contender *contender = arg;
	const struct noun *noun = contender->noun;
	void *handle = noun_named(noun, contender->client, "a");

	for (int i = 0; i < contender->rounds; i++) {
		uint64_t fence = noun_hold(noun, handle, LK_FOREVER);
		increment(fence);
		OK(noun->release(handle, fence));
	}
	OK(noun->close(handle));
	return NULL;
}

/* Threads that share so many clients. */
static void contend_by(const struct noun *noun, int clients, int threads, int rounds)
{
	struct contender contenders[CONTENDERS_MAX];
	lk_client *opened[CONTENDERS_MAX];

	for (int i = 0; i < clients; i++)
		opened[i] = client_at(url);
	for (int i = 0; i < threads; i++) {
		contenders[i] = (struct contender){noun, opened[i % clients], 0, rounds, 0};
		pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]);
	}
	for (int i = 0; i < threads; i++)
		pthread_join(contenders[i].thread, NULL);
	for (int i = 0; i < clients; i++)
		OK(lk_client_close(opened[i]));
}

static int contend_in_process(void *arg, int in, int out)
{
	const struct contender *contender = arg;

	(void)out;
	if (!line_read(in, 10000))
		return 2;
	contend_by(contender->noun, 1, contender->threads, contender->rounds);
	return 0;
}

static void contest_start(void)
{
	contest = mmap(NULL, sizeof(*contest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	               -1, 0);
	ck_assert_ptr_ne(contest, MAP_FAILED);
	url = STORE.start();
	redis = STORE.look();
}

static void contest_end(const struct noun *noun, int increments)
{
	lk_client *client = client_at(url);

	ck_assert_int_eq(contest->failures, 0);
	ck_assert_int_eq(contest->value, increments);
	ck_assert(is_at_rest(noun, noun_named(noun, client, "a")));
	OK(lk_client_close(client));
	if (redis)
		ck_assert_int_eq(redis_size(redis), 1 + noun->rest_keys);
}

TEST_NOUN(counter_of_threads_never_loses, 90, 0)
{
	contest_start();
	contend_by(noun, 1, 8, 60);
	contest_end(noun, 8 * 60);
}

TEST_NOUN(counter_of_clients_with_threads_never_loses, 90, 0)
{
	contest_start();
	contend_by(noun, 2, 8, 60);
	contest_end(noun, 8 * 60);
}

static void contend_by_processes(const struct noun *noun, int processes, int threads, int rounds)
{
	struct contender contender = {noun, NULL, threads, rounds, 0};
	struct process workers[CONTENDERS_MAX];

	contest_start();
	for (int i = 0; i < processes; i++)
		process_start(&workers[i], contend_in_process, &contender);
	for (int i = 0; i < processes; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < processes; i++)
		ck_assert(process_succeeded(&workers[i], 60000));
	contest_end(noun, processes * threads * rounds);
}

TEST_NOUN(counter_of_processes_never_loses, 90, STORE_SHARED)
{
	contend_by_processes(noun, 8, 1, 60);
}

TEST_NOUN(counter_of_processes_with_threads_never_loses, 90, STORE_SHARED)
{
	contend_by_processes(noun, 4, 4, 40);
}

/* ---- Fences -------------------------------------------------------------------------------- */

static uint64_t fence_of_one_hold(const struct noun *noun, void *handle)
{
	uint64_t fence = noun_hold(noun, handle, 5000);

	OK(noun->release(handle, fence));
	return fence;
}

TEST_NOUN(fences_grow_over_10000_grants, 120, STORE_QUICK)
{
	lk_client *client = set_up();
	void *handle = noun_named(noun, client, "a");
	uint64_t last = 0;

	for (int i = 0; i < 10000; i++) {
		uint64_t fence = fence_of_one_hold(noun, handle);
		ck_assert_uint_gt(fence, last);
		last = fence;
	}
	OK(lk_client_close(client));
}

/* Those of hand-overs to another thread, without a request, and those of grants. */
TEST_NOUN(fences_grow_across_threads_of_a_client, 60, 0)
{
	contest_start();
	contend_by(noun, 1, 4, 300);
	contest_end(noun, 4 * 300);
}

TEST_NOUN(fences_grow_across_flushall, 20, STORE_KEYS)
{
	lk_client *client = set_up();
	void *handle = noun_named(noun, client, "a");
	uint64_t last = 0;

	for (int i = 0; i < 20; i++) {
		uint64_t fence = fence_of_one_hold(noun, handle);
		ck_assert_uint_gt(fence, last);
		last = fence;
		redis_do(redis, "FLUSHALL");
	}
	OK(lk_client_close(client));
}

TEST_NOUN(fences_grow_across_restart_without_data, 20, STORE_RESTARTS)
{
	lk_client *client = set_up();
	void *handle = noun_named(noun, client, "a");
	uint64_t last, fence = 0;

	last = fence_of_one_hold(noun, handle);
	STORE.restart();
	/* A request sent into the dead connection may be ambiguous; the next try uses a new
	 * connection. */
	ck_assert(WITHIN(5000, noun->acquire(handle, NOUN_ALONE, 1000, &fence) == LK_OK));
	ck_assert_uint_gt(fence, last);
	OK(noun->release(handle, fence));
	OK(lk_client_close(client));
}

/* ---- Waits and their ends ----------------------------------------------------------------- */

TEST_NOUN(try_is_busy_and_a_wait_times_out_and_leaves_nothing, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *held = noun_open(noun, client, "a", (struct noun_options){.lease_ms = 300});
	void *wanted = noun_named(noun, other, "a");
	uint64_t hold = noun_hold(noun, held, 0), none = 17;

	for (int i = 0; i < 2; i++) {
		int64_t start_ms = now_ms();
		EXPECT(noun->acquire(wanted, NOUN_ALONE, 0, &none), LK_EBUSY);
		ck_assert_int_eq(noun_status(noun, wanted).queue_len, 0);
		EXPECT(noun->acquire(wanted, NOUN_ALONE, 350, &none), LK_ETIMEDOUT);
		ck_assert_int_ge(now_ms() - start_ms, 349);
		ck_assert_int_le(now_ms() - start_ms, 900);
		ck_assert_int_eq(noun_status(noun, wanted).queue_len, 0);
	}
	EXPECT(noun->acquire(wanted, NOUN_ALONE, -2, &none), LK_EINVALID);
	EXPECT(noun->release(wanted, hold), LK_ENOTOWNER);
	ck_assert_uint_eq(none, 17); /* a result is written on success only */
	ck_assert_int_eq(noun->state(held, hold), LK_STATE_HELD);
	OK(noun->release(held, hold));
	EXPECT(noun->release(held, hold), LK_ENOTOWNER);
	noun_holds_nothing(noun, held, hold);
	hold = noun_hold(noun, wanted, 0);
	OK(noun->release(wanted, hold));
	ck_assert(is_at_rest(noun, held));
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST_NOUN(cancel_ends_every_wait_of_the_handle_and_no_other, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *held = noun_named(noun, client, "a");
	void *handle = noun_named(noun, other, "a"), *spared = noun_named(noun, other, "a");
	struct noun_wait waits[3], rest;
	uint64_t hold = noun_hold(noun, held, 0);

	OK(noun->cancel(handle)); /* no wait to cancel; later waits are unaffected */
	for (int i = 0; i < 3; i++)
		noun_wait_start(&waits[i], noun, handle, LK_FOREVER, false);
	noun_wait_start(&rest, noun, spared, LK_FOREVER, false);
	ck_assert(WITHIN(2000, noun_status(noun, held).queue_len == (noun->waits_share ? 1 : 4)));
	for (int i = 0; i < 3; i++) /* the store does not see those that share an entry */
		ck_assert(WITHIN(2000, noun_wait_sleeps(&waits[i])));
	OK(noun->cancel(handle));
	for (int i = 0; i < 3; i++)
		EXPECT(noun_wait_join(&waits[i]), LK_ECANCELED);
	ck_assert(!rest.ended);
	ck_assert(WITHIN(2000, noun_status(noun, held).queue_len == 1));
	OK(noun->release(held, hold));
	OK(noun_wait_join(&rest));
	ck_assert(is_at_rest(noun, held));
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST_NOUN(close_of_a_handle_cancels_its_waits_and_releases_its_hold, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *held = noun_named(noun, client, "a"), *handle = noun_named(noun, other, "a");
	void *seen = noun_named(noun, client, "a");
	struct noun_wait wait;

	noun_hold(noun, held, 0);
	noun_wait_queue(&wait, noun, handle, false);
	OK(noun->close(handle));
	EXPECT(noun_wait_join(&wait), LK_ECANCELED);
	ck_assert(WITHIN(2000, noun_status(noun, seen).queue_len == 0));
	ck_assert(noun_status(noun, seen).held);
	OK(noun->close(held)); /* released in the background */
	ck_assert(WITHIN(2000, is_at_rest(noun, seen)));
	OK(noun->close(NULL));
	OK(lk_client_close(NULL));
	OK(lk_client_close(other));
	OK(lk_client_close(client));
}

TEST_NOUN(close_of_a_client_ends_waits_and_releases, 20, 0)
{
	lk_client *client = set_up(), *other = client_at(url);
	void *held = noun_named(noun, client, "a"), *seen = noun_named(noun, client, "b");
	struct noun_wait waits[2];

	noun_hold(noun, held, 0);
	noun_hold(noun, noun_named(noun, other, "b"), 0);
	for (int i = 0; i < 2; i++)
		noun_wait_start(&waits[i], noun, noun_named(noun, other, "a"), LK_FOREVER, false);
	ck_assert(WITHIN(2000, noun_status(noun, held).queue_len == (noun->waits_share ? 1 : 2)));
	for (int i = 0; i < 2; i++) /* a call after the close would use freed memory */
		ck_assert(WITHIN(2000, noun_wait_sleeps(&waits[i])));
	OK(lk_client_close(other));
	for (int i = 0; i < 2; i++)
		EXPECT(noun_wait_join(&waits[i]), LK_ECLOSED);
	ck_assert(!noun_status(noun, seen).held);
	ck_assert(noun_status(noun, held).held);
	ck_assert_int_eq(noun_status(noun, held).queue_len, 0);
	OK(lk_client_close(client));
	/* No hold, no queue, no description of a client remains. */
	if (redis)
		ck_assert_int_eq(redis_size(redis), 1 + 2 * noun->rest_keys);
}

/* ---- From outside --------------------------------------------------------------------------- */

/* Four clients that wait one after the other. */
#define QUEUE 4
struct queue {
	lk_client *clients[QUEUE];
	struct noun_wait waits[QUEUE];
};

static void queue_up(struct queue *queue, const struct noun *noun)
{
	for (int i = 0; i < QUEUE; i++) {
		queue->clients[i] = client_at(url);
		noun_wait_queue(&queue->waits[i], noun,
		                noun_open(noun, queue->clients[i], "a",
		                          (struct noun_options){.any_thread = 1}),
		                true);
	}
}

static void queue_serve(struct queue *queue, int first)
{
	for (int i = first; i < QUEUE; i++) {
		OK(noun_wait_join(&queue->waits[i]));
		OK(queue->waits[i].noun->release(queue->waits[i].handle, queue->waits[i].fence));
	}
	for (int i = 0; i < QUEUE; i++)
		OK(lk_client_close(queue->clients[i]));
}

static bool is_of(const lk_party *party, lk_client *client)
{
	return !strncmp(party->id, lk_client_id(client), strlen(lk_client_id(client)));
}

TEST_NOUN(waiters_are_listed_in_their_order_with_ranks, 20, 0)
{
	lk_client *client = set_up();
	void *handle = noun_named(noun, client, "a");
	uint64_t hold = noun_hold(noun, handle, 0);
	struct queue queue;
	lk_party parties[8];
	size_t count = 9;

	OK(noun->waiters(handle, 8, parties, &count));
	ck_assert_uint_eq(count, 0);
	queue_up(&queue, noun);
	OK(noun->waiters(handle, 8, parties, &count));
	ck_assert_uint_eq(count, QUEUE);
	for (int i = 0; i < QUEUE; i++) {
		lk_lock_status status = noun_status(noun, queue.waits[i].handle);
		ck_assert(is_of(&parties[i], queue.clients[i]));
		ck_assert_int_eq(status.my_rank, i);
		ck_assert_int_eq(status.queue_len, QUEUE);
	}
	OK(noun->waiters(handle, 2, parties, &count));
	ck_assert_uint_eq(count, 2);
	ck_assert_int_eq(noun_status(noun, handle).my_rank, -1);
	OK(noun->release(handle, hold));
	queue_serve(&queue, 0);
	ck_assert(is_at_rest(noun, handle));
	OK(lk_client_close(client));
}

/* The description of a client arrives in the background. */
static bool is_described(const struct noun *noun, void *handle, lk_lock_status *status)
{
	*status = noun_status(noun, handle);
	return status->holder.host[0] != 0;
}

TEST_NOUN(query_reports_the_holder, 20, 0)
{
	const lk_client_options labelled = {.label = "nightly \x1b[31mreport\n"};
	lk_client *other = set_up(), *client = client_with(url, &labelled);
	void *handle = noun_open(noun, client, "a", (struct noun_options){.lease_ms = 5000});
	void *seen = noun_named(noun, other, "a");
	lk_lock_status status = noun_status(noun, seen);
	uint64_t hold;
	char host[128];

	ck_assert(!status.held);
	ck_assert_int_eq(status.my_rank, -1);
	hold = noun_hold(noun, handle, 0);
	ck_assert(WITHIN(2000, is_described(noun, seen, &status)));
	ck_assert(status.held && is_of(&status.holder, client));
	ck_assert_str_eq(status.holder.id, noun_snapshot(noun, handle, hold).holder_id);
	ck_assert_int_eq(status.holder.pid, getpid());
	gethostname(host, sizeof(host));
	ck_assert_str_eq(status.holder.host, host);
	/* Escaped: a label cannot send control sequences to a terminal. */
	ck_assert_ptr_nonnull(strstr(status.holder.label, "nightly \\x1b[31mreport\\x0a"));
	if (STORE_HAS(STORE_FENCES))
		ck_assert_uint_eq(status.fence, hold);
	ck_assert_uint_le(status.fence, hold);
	ck_assert_uint_gt(status.fence + 1000000, hold); /* microseconds */
	if (STORE_HAS(STORE_CLOCK))
		ck_assert(status.held_ms >= 0 && status.held_ms <= 2000);
	ck_assert(status.lease_left_ms > 2000 && status.lease_left_ms <= 5000);
	/* The label of a handle wins over its client's. */
	OK(noun->release(handle, hold));
	noun_hold(noun, noun_open(noun, client, "a", (struct noun_options){.label = "mine"}), 0);
	ck_assert(WITHIN(2000, is_described(noun, seen, &status)));
	ck_assert_str_eq(status.holder.label, "mine");
	OK(lk_client_close(client));
	OK(lk_client_close(other));
}

TEST_NOUN(break_grants_to_the_head_of_the_queue, 20, 0)
{
	lk_client *client = set_up(), *breaker = client_at(url);
	void *handle = noun_named(noun, client, "a");
	uint64_t hold = noun_hold(noun, handle, 0);
	struct noun_wait *first;
	lk_lock_status status;
	struct queue queue;

	queue_up(&queue, noun);
	first = &queue.waits[0];
	await_hearing(client, "a");
	OK(noun->break_hold(noun_named(noun, breaker, "a"), NULL));
	OK(noun_wait_join(first));
	ck_assert_uint_gt(first->fence, hold);
	status = noun_status(noun, handle);
	ck_assert(is_of(&status.holder, queue.clients[0]));
	ck_assert(WITHIN(1000, noun->state(handle, hold) == LK_STATE_LOST));
	EXPECT(noun->release(handle, hold), LK_ELOST);
	/* Unaffected by the late release. */
	ck_assert_int_eq(noun->state(first->handle, first->fence), LK_STATE_HELD);
	OK(noun->release(first->handle, first->fence));
	queue_serve(&queue, 1);
	OK(lk_client_close(client));
	OK(lk_client_close(breaker));
}

TEST_NOUN(break_keeps_to_its_condition, 20, 0)
{
	lk_client *client = set_up(), *breaker = client_at(url);
	void *handle = noun_named(noun, client, "a"), *tool = noun_named(noun, breaker, "a");
	char id[LK_HOLDER_ID_SIZE], old[LK_HOLDER_ID_SIZE];
	uint64_t hold;

	EXPECT(noun->break_hold(tool, NULL), LK_EABSENT);
	hold = noun_hold(noun, handle, 0);
	memcpy(old, noun_snapshot(noun, handle, hold).holder_id, sizeof(old));
	OK(noun->release(handle, hold));
	hold = noun_hold(noun, handle, 0);
	memcpy(id, noun_snapshot(noun, handle, hold).holder_id, sizeof(id));
	ck_assert_str_ne(id, old); /* an id belongs to one hold */
	EXPECT(noun->break_hold(tool, old), LK_EMISMATCH);
	EXPECT(noun->break_hold(tool, "nobody"), LK_EMISMATCH);
	ck_assert_int_eq(noun->state(handle, hold), LK_STATE_HELD);
	ck_assert(noun_status(noun, tool).held);
	OK(noun->break_hold(tool, id));
	EXPECT(noun->break_hold(tool, id), LK_EABSENT);
	ck_assert(is_at_rest(noun, tool));
	OK(lk_client_close(client));
	OK(lk_client_close(breaker));
}

TEST_NOUN(prefixes_and_databases_do_not_meet, 20, STORE_PREFIXES)
{
	const lk_client_options other_prefix = {.prefix = "other"};
	lk_client *clients[3] = {set_up()};
	int count = STORE_HAS(STORE_DATABASES) ? 3 : 2;
	char database[100];

	snprintf(database, sizeof(database), "%s&db=1", url);
	clients[1] = client_with(url, &other_prefix);
	if (count == 3)
		clients[2] = client_at(database);
	for (int i = 0; i < count; i++)
		noun_hold(noun, noun_named(noun, clients[i], "a"), 0);
	if (redis)
		ck_assert_int_eq(redis_int(redis, "EXISTS lk:{a} other:{a}"), 2);
	for (int i = 0; i < count; i++)
		OK(lk_client_close(clients[i]));
}

#endif
