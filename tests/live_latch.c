/* SPDX-License-Identifier: MIT
 * The latch on a real server: its contract, and many processes. */
#define STORE store_on_server

#include "stores/latch.h"
#include "harness/server.h"

static struct test_server server;

static int count_in_process(void *arg, int in, int out)
{
	lk_client *client = client_at(server.url);
	lk_latch *latch = latch_named(client, "a");
	char name[16];
	int counted = 0;

	(void)arg;
	if (!line_read(in, 20000))
		return 2;
	for (int i = 0; i < STEPS; i++) {
		lk_latch_step step;
		snprintf(name, sizeof(name), "step %d", i);
		OK(lk_latch_down(latch, 1, name, 0, &step));
		counted += step.counted;
		latch_down(latch, 1, NULL);
	}
	OK(lk_latch_await(latch, 20000));
	line_write(out, "%d", counted);
	OK(lk_client_close(client));
	return 0;
}

TEST_LIMIT(sixteen_processes_count_each_step_once, 60)
{
	enum { WORKERS = 16 };
	struct process workers[WORKERS];
	lk_latch *latch;
	int named = 0;

	server_start(&server, NULL);
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], count_in_process, NULL);
	redis = redis_open(&server);
	latch = latch_named(client_at(server.url), "a");
	/* The shared step names count once for all, the others once for each process. */
	OK(lk_latch_set(latch, STEPS + WORKERS * STEPS, NULL));
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	for (int i = 0; i < WORKERS; i++) {
		const char *line = line_read(workers[i].out, 40000);
		ck_assert_ptr_nonnull(line);
		named += atoi(line);
		ck_assert(process_succeeded(&workers[i], 10000));
	}
	ck_assert_int_eq(named, STEPS);
	ck_assert_int_eq(latch_status(latch).state, LK_LATCH_OPEN);
}

static int wait_in_process(void *arg, int in, int out)
{
	lk_client *client = client_at(server.unix_url);
	lk_latch *latch = latch_named(client, "a");

	(void)arg;
	if (!line_read(in, 20000))
		return 2;
	OK(lk_latch_await(latch, 40000));
	line_write(out, "released");
	OK(lk_client_close(client));
	return 0;
}

TEST_LIMIT(hundred_processes_are_released_by_one_message, 90)
{
	enum { WORKERS = TSAN || ASAN ? 30 : 100 };
	static struct process workers[WORKERS];
	long long published, scripts;
	lk_latch *latch;

	server_start(&server, NULL);
	for (int i = 0; i < WORKERS; i++)
		process_start(&workers[i], wait_in_process, NULL);
	redis = redis_open(&server);
	latch = latch_named(client_at(server.url), "a");
	OK(lk_latch_set(latch, 1, NULL));
	for (int i = 0; i < WORKERS; i++)
		line_write(workers[i].in, "go");
	ck_assert(WITHIN(30000, subscribers() == WORKERS));
	nap_ms(300);
	published = redis_calls(redis, "publish");
	scripts = redis_script_calls(redis);
	latch_down(latch, 1, NULL);
	for (int i = 0; i < WORKERS; i++) {
		const char *line = line_read(workers[i].out, 5000);
		ck_assert_msg(line && !strcmp(line, "released"), "%d", i);
	}
	ck_assert_int_eq(redis_calls(redis, "publish") - published, 1);
	ck_assert_int_le(redis_script_calls(redis) - scripts, 2); /* the step, and its query */
	for (int i = 0; i < WORKERS; i++)
		ck_assert(process_succeeded(&workers[i], 10000));
}
