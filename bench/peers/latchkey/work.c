/* SPDX-License-Identifier: MIT
 * The work of a worker: the same as in every peer, by lk_ calls with their defaults. */
#include "contestant.h"

#include <latchkey.h>
#include <stdio.h>
#include <string.h>

#define WARMUPS 20
#define HOLD_NS 1000000
#define CAPACITY 3
#define LATCH_AGE_NS 20000000 /* from the last await to the count-down */
#define NAME_ROOM 300

static void good(lk_err err, const char *what)
{
	if (err != LK_OK)
		fail("%s: %s: %s", what, lk_err_name(err), lk_errmsg());
}

void quorum_begin(struct job *job, const char *host, const char *ports)
{
	size_t len = (size_t)snprintf(job->url, sizeof(job->url), "redis+quorum://");

	for (const char *at = ports; *at && len < sizeof(job->url);) {
		int size = (int)strcspn(at, ",");

		len += (size_t)snprintf(job->url + len, sizeof(job->url) - len, "%s%s:%.*s",
		                        at == ports ? "" : ",", host, size, at);
		at += size + (at[size] == ',');
	}
	good(lk_quorum_begin(job->url, NULL, 0), "begin the quorum");
}

static struct turn *turn_next(struct job *job, int worker)
{
	if (job->counts[worker] == job->room)
		fail("more than %zu turns", job->room);
	return &job->turns[(size_t)worker * job->room + job->counts[worker]++];
}

static void lock_once(lk_lock *lock, int64_t hold_ns, struct turn *turn)
{
	turn->asked = now_ns();
	good(lk_lock_acquire(lock, LK_FOREVER, NULL), "acquire");
	turn->granted = now_ns();
	if (hold_ns)
		nap_ns(hold_ns);
	turn->released = now_ns();
	good(lk_lock_release(lock), "release");
}

static void lock_work(struct job *job, int worker, lk_client *client)
{
	char name[NAME_ROOM];
	struct turn ignored;
	lk_lock *lock, *warm;

	snprintf(name, sizeof(name), "%s-w%d", job->name, worker);
	good(lk_lock_open(client, name, 0, NULL, &warm), "open");
	for (int i = 0; i < WARMUPS; i++)
		lock_once(warm, 0, &ignored);
	if (job->work == WORK_PAIRS)
		snprintf(name, sizeof(name), "%s-%d", job->name, worker);
	else
		snprintf(name, sizeof(name), "%s", job->name);
	good(lk_lock_open(client, name, 0, NULL, &lock), "open");
	meet(job); /* ready */
	meet(job);
	while (now_ns() < job->end_ns)
		lock_once(lock, job->work == WORK_PAIRS ? 0 : HOLD_NS, turn_next(job, worker));
	meet(job); /* done */
	meet(job);
}

static void permit_once(lk_semaphore *semaphore, int64_t hold_ns, struct turn *turn)
{
	uint64_t hold;

	turn->asked = now_ns();
	good(lk_semaphore_acquire(semaphore, 1, LK_FOREVER, &hold), "acquire");
	turn->granted = now_ns();
	if (hold_ns)
		nap_ns(hold_ns);
	turn->released = now_ns();
	good(lk_semaphore_release(semaphore, hold), "release");
}

static void semaphore_work(struct job *job, int worker, lk_client *client)
{
	lk_semaphore_options options = {.capacity = CAPACITY};
	lk_semaphore *semaphore, *warm;
	char name[NAME_ROOM];
	struct turn ignored;

	snprintf(name, sizeof(name), "%s-w%d", job->name, worker);
	good(lk_semaphore_open(client, name, 0, &options, &warm), "open");
	for (int i = 0; i < WARMUPS; i++)
		permit_once(warm, 0, &ignored);
	good(lk_semaphore_open(client, job->name, 0, &options, &semaphore), "open");
	meet(job); /* ready */
	meet(job);
	while (now_ns() < job->end_ns)
		permit_once(semaphore, HOLD_NS, turn_next(job, worker));
	meet(job); /* done */
	meet(job);
}

/* ---- latch: rounds that the leader begins, opens and ends -------------------------------------
 */

static void latch_name(const struct job *job, int round, char name[NAME_ROOM])
{
	snprintf(name, NAME_ROOM, "%s-%d", job->name, round);
}

static void await_once(struct job *job, int worker, lk_client *client, int round)
{
	struct turn *turn = turn_next(job, worker);
	char name[NAME_ROOM];
	lk_latch *latch;

	latch_name(job, round, name);
	good(lk_latch_open(client, name, 0, NULL, &latch), "open");
	turn->asked = now_ns();
	atomic_fetch_add(&job->asked, 1);
	good(lk_latch_await(latch, LK_FOREVER), "await");
	turn->granted = now_ns();
	meet(job); /* the end of the round: opened is set */
	turn->released = job->opened;
	good(lk_latch_close(latch), "close");
}

static void open_once(struct job *job, lk_client *client, int round)
{
	char name[NAME_ROOM];
	lk_latch *latch;

	latch_name(job, round, name);
	good(lk_latch_open(client, name, 0, NULL, &latch), "open");
	good(lk_latch_set(latch, 1, NULL), "set");
	atomic_store(&job->asked, 0);
	meet(job); /* a round begins */
	while (atomic_load(&job->asked) < job->workers)
		nap_ns(1000000);
	nap_ns(LATCH_AGE_NS);
	job->opened = now_ns();
	good(lk_latch_down(latch, 1, NULL, 0, NULL), "down");
	meet(job);
	good(lk_latch_close(latch), "close");
}

static void latch_work(struct job *job, int worker, lk_client *client)
{
	meet(job);
	await_once(job, worker, client, -1);
	job->counts[worker] = 0;
	meet(job); /* ready */
	for (int round = 0;; round++) {
		meet(job);
		if (atomic_load(&job->over))
			break;
		await_once(job, worker, client, round);
	}
	meet(job); /* done */
}

static void latch_lead(struct job *job)
{
	lk_client *client;

	good(lk_client_open(job->url, NULL, &client), "open");
	open_once(job, client, -1);
	meet(job);
	say("ready");
	job->end_ns = now_ns() + job->length_ns;
	for (int round = 0; now_ns() < job->end_ns; round++)
		open_once(job, client, round);
	atomic_store(&job->over, true);
	meet(job);
	say("done");
	meet(job);
	good(lk_client_close(client), "close");
}

/* ---- all --------------------------------------------------------------------------------------
 */

void worker_run(struct job *job, int worker)
{
	lk_client *client;

	good(lk_client_open(job->url, NULL, &client), "open");
	if (job->work == WORK_LATCH)
		latch_work(job, worker, client);
	else if (job->work == WORK_SEMAPHORE)
		semaphore_work(job, worker, client);
	else
		lock_work(job, worker, client);
	good(lk_client_close(client), "close");
}

void lead(struct job *job)
{
	if (job->work == WORK_LATCH) {
		latch_lead(job);
		return;
	}
	meet(job);
	say("ready");
	job->end_ns = now_ns() + job->length_ns;
	meet(job);
	meet(job);
	say("done");
	meet(job);
}
