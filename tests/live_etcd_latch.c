/* SPDX-License-Identifier: MIT
 * A latch on three nodes of etcd, of which some are killed and some hang between its steps. */
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/process.h"
#include "harness/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#define NODES 3
#define CLIENTS 3
#define EACH 40
#define LONG_MS 60000 /* for what comes soon on a machine that is not loaded */

static struct etcd_servers servers;

struct stepper {
	lk_client *client;
	lk_latch *latch;
	int number;
	pthread_t thread;
	atomic_int done, counted;
};

/* A name counts once, so a step whose end is unknown is repeated. */
static void *step(void *arg)
{
	struct stepper *stepper = arg;
	char name[32];

	for (int i = 0; i < EACH; i++) {
		lk_latch_step result = {.counted = false};
		lk_err err;

		snprintf(name, sizeof(name), "%d/%d", stepper->number, i);
		do {
			err = lk_latch_down(stepper->latch, 1, name, 0, &result);
			if (err)
				nap_ms(50);
		} while (err == LK_EUNKNOWN || err == LK_ECONN || err == LK_EAGAIN);
		ck_assert_msg(!err, "%s: %s", name, lk_errmsg());
		stepper->counted += result.counted;
		stepper->done++;
		nap_ms(20);
	}
	return NULL;
}

static int done(const struct stepper *steppers)
{
	int count = 0;

	for (int i = 0; i < CLIENTS; i++)
		count += steppers[i].done;
	return count;
}

/* A query is sent once, and its member may have failed. */
static bool is_at(lk_latch *latch, lk_latch_state state, int64_t count)
{
	lk_latch_status status;

	return !lk_latch_query(latch, &status) && status.state == state && status.count == count;
}

TEST_LIMIT(each_step_counts_once_while_members_fail, 300)
{
	static struct stepper steppers[CLIENTS];
	struct awaiter awaiter;
	lk_client *client;
	lk_latch *latch;

	etcd_start(&servers, NODES);
	client = client_at(etcd_url(&servers, "", "?command_timeout=1000"));
	latch = latch_named(client, "gate");
	OK(lk_latch_set(latch, CLIENTS * EACH + 1, NULL));
	awaiter_start(&awaiter, latch, 240000);
	for (int i = 0; i < CLIENTS; i++) {
		steppers[i].number = i;
		steppers[i].client = client_at(etcd_url(&servers, "", "?command_timeout=1000"));
		steppers[i].latch = latch_named(steppers[i].client, "gate");
		ck_assert(!pthread_create(&steppers[i].thread, NULL, step, &steppers[i]));
	}
	ck_assert(WITHIN(LONG_MS, done(steppers) > 5));
	etcd_kill(&servers, 0);
	nap_ms(500);
	etcd_restart(&servers, 0);
	ck_assert(WITHIN(LONG_MS, done(steppers) > CLIENTS * EACH / 3));
	etcd_pause(&servers, 1);
	nap_ms(2500);
	ck_assert(!kill(servers.nodes[1].pid, SIGCONT));
	for (int i = 0; i < CLIENTS; i++)
		ck_assert(!pthread_join(steppers[i].thread, NULL));
	ck_assert(!awaiter.ended);
	ck_assert(WITHIN(LONG_MS, is_at(latch, LK_LATCH_COUNTING, 1)));
	ck_assert(WITHIN(LONG_MS, !lk_latch_down(latch, 1, "last", 0, NULL)));
	OK(awaiter_join(&awaiter));
	ck_assert(WITHIN(LONG_MS, is_at(latch, LK_LATCH_OPEN, 0)));
	for (int i = 0; i < CLIENTS; i++) {
		printf("client %d: %d of %d steps counted at once\n", i, (int)steppers[i].counted,
		       EACH);
		OK(lk_client_close(steppers[i].client));
	}
	OK(lk_client_close(client));
	etcd_stop(&servers);
}
