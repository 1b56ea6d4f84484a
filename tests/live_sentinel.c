/* SPDX-License-Identifier: MIT
 * Clients of servers that made-up sentinels name: what they dial and when they leave it, with
 * sentinels that change, lie, are silent, gone, or want a password. */
#include "harness/fake_sentinel.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/server.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SENTINELS 3
#define SOON_MS 1500 /* far less than a connect timeout */
#define LINES_MAX 8192

static struct fake_sentinel sentinels[SENTINELS];
static struct test_server one, two; /* one is named first */
static char url[400], lines[LINES_MAX];

static pthread_mutex_t lines_mutex = PTHREAD_MUTEX_INITIALIZER;

static void take_line(void *arg, lk_log_level level, const char *line)
{
	size_t len;

	(void)arg;
	(void)level;
	pthread_mutex_lock(&lines_mutex);
	len = strlen(lines);
	snprintf(lines + len, sizeof(lines) - len, "%s\n", line);
	pthread_mutex_unlock(&lines_mutex);
}

/* How often the log has that text. */
static int logged(const char *text)
{
	int count = 0;

	pthread_mutex_lock(&lines_mutex);
	for (const char *at = lines; (at = strstr(at, text)); at++)
		count++;
	pthread_mutex_unlock(&lines_mutex);
	return count;
}

static void write_url(const char *userinfo, const char *query)
{
	snprintf(url, sizeof(url), "redis+sentinel://%s127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/s?%s",
	         userinfo, sentinels[0].port, sentinels[1].port, sentinels[2].port, query);
}

static void start(void)
{
	server_start(&one, NULL);
	server_start(&two, NULL);
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_start(&sentinels[i], 0, one.port);
	write_url("", "grace=1000");
}

static void end(void)
{
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_stop(&sentinels[i]);
	server_stop(&one);
	server_stop(&two);
}

static lk_client *open_client(void)
{
	const lk_client_options options = {
		.command_timeout_ms = 1000, .log = take_line, .log_level = LK_LOG_DEBUG};

	return client_with(url, &options);
}

static lk_lock *held_lock(lk_client *client, int64_t lease_ms)
{
	const lk_lock_options options = {.lease_ms = lease_ms};
	lk_lock *lock;

	OK(lk_lock_open(client, "a", 0, &options, &lock));
	OK(lk_lock_acquire(lock, 5000, NULL));
	return lock;
}

static void switch_all(const struct test_server *to)
{
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_switch(&sentinels[i], "127.0.0.1", to->port);
}

static lk_counters counters_of(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters;
}

/* The connections of this program's clients, without that of the question. */
static long long clients_at(const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	long long count = redis_info(redis, "connected_clients") - 1;

	redis_close(redis);
	return count;
}

static long long dials_at(const struct test_server *server)
{
	struct redis *redis = redis_open(server);
	long long count = redis_info(redis, "total_connections_received");

	redis_close(redis);
	return count;
}

static void expect_open(lk_err err, int64_t within_ms, const char *part)
{
	const lk_client_options options = {.connect_timeout_ms = 3000};
	int64_t began_ms = now_ms();
	lk_client *client = NULL;

	ck_assert_int_eq(lk_client_open(url, &options, &client), err);
	ck_assert_msg(strstr(lk_errmsg(), part) != NULL, "%s", lk_errmsg());
	ck_assert_int_lt(now_ms() - began_ms, within_ms);
	ck_assert_ptr_null(client);
}

/* ---- Opening ------------------------------------------------------------------------------ */

TEST(client_connects_to_the_master_that_sentinels_name)
{
	lk_client *client;

	start();
	client = open_client();
	OK(lk_lock_release(held_lock(client, 5000)));
	ck_assert_int_eq(clients_at(&one), 2);
	ck_assert_int_eq(clients_at(&two), 0);
	OK(lk_client_close(client));
	for (int i = 0; i < SENTINELS; i++)
		ck_assert(WITHIN(1000, sentinels[i].connected == 0));
	end();
}

TEST(f4_service_that_no_sentinel_knows_ends_the_open_at_once)
{
	start();
	for (int i = 0; i < SENTINELS; i++)
		sentinels[i].unaware = true;
	expect_open(LK_EINVALID, SOON_MS, "s: sentinel 127.0.0.1:");
	expect_open(LK_EINVALID, SOON_MS, "knows no such service");
	/* One that knows it is enough. */
	sentinels[1].unaware = false;
	OK(lk_client_close(open_client()));
	end();
}

TEST(f4_no_sentinel_answers_ends_the_open_at_once)
{
	start();
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/s", port_pick(),
	         port_pick());
	expect_open(LK_ECONN, SOON_MS, "s: no sentinel answers: 127.0.0.1:");
	expect_open(LK_ECONN, SOON_MS, "connection refused");
	end();
}

TEST(silent_and_dead_sentinels_delay_an_open_only_shortly)
{
	int64_t began_ms;

	start();
	sentinels[0].silent = true;
	fake_sentinel_stop(&sentinels[2]);
	began_ms = now_ms();
	OK(lk_client_close(open_client()));
	ck_assert_int_lt(now_ms() - began_ms, SOON_MS);
	fake_sentinel_start(&sentinels[2], sentinels[2].port, one.port);
	end();
}

TEST(f5_store_password_is_not_for_sentinels)
{
	const lk_client_options own = {.sentinel_password = "watchword"};
	const lk_client_options wrong = {.sentinel_password = "other"};
	struct redis *redis;
	lk_client *client;

	start();
	redis = redis_open(&one);
	redis_do(redis, "CONFIG SET requirepass sesame");
	write_url(":sesame@", "grace=0");
	client = client_with(url, NULL);
	for (int i = 0; i < SENTINELS; i++)
		ck_assert(WITHIN(5000, fake_sentinel_saw(&sentinels[i], "SENTINEL")));
	OK(lk_client_close(client));
	for (int i = 0; i < SENTINELS; i++) {
		ck_assert(!fake_sentinel_saw(&sentinels[i], "sesame"));
		ck_assert(!fake_sentinel_saw(&sentinels[i], "AUTH"));
		fake_sentinel_stop(&sentinels[i]);
		sentinels[i].password = "watchword";
		fake_sentinel_start(&sentinels[i], sentinels[i].port, one.port);
	}
	EXPECT(lk_client_open(url, &wrong, &client), LK_EAUTH);
	OK(lk_client_close(client_with(url, &own)));
	for (int i = 0; i < SENTINELS; i++)
		ck_assert(!fake_sentinel_saw(&sentinels[i], "sesame"));
	redis_close(redis);
	end();
}

TEST(single_server_and_sentinel_name_each_other)
{
	start();
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", sentinels[0].port);
	expect_open(LK_EINVALID, SOON_MS, "a sentinel (write redis+sentinel://127.0.0.1:");
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d/3", sentinels[0].port);
	expect_open(LK_EINVALID, SOON_MS, "a sentinel (write redis+sentinel://127.0.0.1:");
	snprintf(url, sizeof(url), "redis://:p@127.0.0.1:%d", sentinels[0].port);
	expect_open(LK_EINVALID, SOON_MS, "a sentinel (write redis+sentinel://127.0.0.1:");
	sentinels[0].is_valkey = true;
	expect_open(LK_EINVALID, SOON_MS, "a sentinel (write redis+sentinel://127.0.0.1:");
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/s", one.port);
	expect_open(LK_EINVALID, SOON_MS, "not a sentinel (for a single server write redis://");
	end();
}

static int translate(void *arg, const char *host, int port, char host_out[LK_HOST_SIZE],
                     int *port_out)
{
	const int *to = arg;

	if (strcmp(host, "inside") != 0 || port != 7777)
		return 0;
	if (*to == 0)
		return -1;
	snprintf(host_out, LK_HOST_SIZE, "127.0.0.1");
	*port_out = *to;
	return 0;
}

TEST(program_translates_the_address)
{
	int to = 0;
	const lk_client_options options = {
		.resolve = translate, .resolve_arg = &to, .connect_timeout_ms = 500};
	lk_client *client;

	start();
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_name(&sentinels[i], "inside", 7777);
	EXPECT(lk_client_open(url, &options, &client), LK_ECONN);
	ck_assert_msg(strstr(lk_errmsg(), "resolve") != NULL, "%s", lk_errmsg());
	to = two.port;
	client = client_with(url, &options);
	ck_assert_int_eq(clients_at(&two), 2);
	OK(lk_client_close(client));
	/* Unchanged results: the address itself. */
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_name(&sentinels[i], "127.0.0.1", one.port);
	client = client_with(url, &options);
	ck_assert_int_eq(clients_at(&one), 2);
	OK(lk_client_close(client));
	end();
}

static void take_finding(void *arg, const lk_finding *finding)
{
	if (!strcmp(finding->topic, "reachable"))
		snprintf(arg, 300, "%s", finding->text);
}

TEST(doctor_examines_the_master)
{
	char text[300] = "", wanted[100];

	start();
	OK(lk_doctor(url, NULL, take_finding, text, NULL));
	snprintf(wanted, sizeof(wanted), "s at 127.0.0.1:%d", one.port);
	ck_assert_msg(strstr(text, wanted) != NULL, "%s", text);
	for (int i = 0; i < SENTINELS; i++)
		sentinels[i].unaware = true;
	OK(lk_doctor(url, NULL, take_finding, text, NULL));
	ck_assert_msg(strstr(text, "knows no such service") != NULL, "%s", text);
	end();
}

/* ---- Replicas ----------------------------------------------------------------------------- */

TEST(f4_replica_is_refused_also_if_it_takes_writes)
{
	struct redis *redis;

	start();
	redis = redis_open(&one);
	redis_do(redis, "REPLICAOF 127.0.0.1 %d", two.port);
	expect_open(LK_ECONN, 3500, "is a replica; sentinel 127.0.0.1:");
	redis_do(redis, "CONFIG SET replica-read-only no");
	expect_open(LK_ECONN, 3500, "is a replica; sentinel 127.0.0.1:");
	redis_close(redis);
	end();
}

static void *switch_later(void *arg)
{
	(void)arg;
	nap_ms(500);
	switch_all(&two);
	return NULL;
}

TEST(open_goes_on_when_the_sentinels_find_the_new_master)
{
	struct redis *redis;
	lk_client *client;
	pthread_t thread;
	int64_t began_ms;

	start();
	redis = redis_open(&one);
	redis_do(redis, "REPLICAOF 127.0.0.1 %d", two.port);
	began_ms = now_ms();
	ck_assert(!pthread_create(&thread, NULL, switch_later, NULL));
	client = open_client();
	pthread_join(thread, NULL);
	ck_assert_int_lt(now_ms() - began_ms, 500 + SOON_MS);
	ck_assert_int_eq(clients_at(&two), 2);
	OK(lk_client_close(client));
	redis_close(redis);
	end();
}

/* ---- Following ---------------------------------------------------------------------------- */

/* A planned failover: nothing is broken, and the old master would go on taking writes. */
TEST(f2_change_of_the_master_cuts_a_busy_and_an_idle_client)
{
	lk_client *busy, *idle;
	lk_lock *lock;

	start();
	busy = open_client();
	idle = open_client();
	lock = held_lock(busy, 5000);
	ck_assert_int_eq(clients_at(&one), 4);
	/* One sentinel is enough to cut; two are needed to lead to the new one. */
	fake_sentinel_name(&sentinels[0], "127.0.0.1", two.port);
	fake_sentinel_switch(&sentinels[1], "127.0.0.1", two.port);
	ck_assert(WITHIN(SOON_MS, clients_at(&one) == 0));
	ck_assert(WITHIN(SOON_MS, clients_at(&two) == 4));
	ck_assert(logged("connection lost: s: sentinel 127.0.0.1:"));
	ck_assert(WITHIN(SOON_MS, counters_of(busy).reclaimed == 1));
	ck_assert(WITHIN(SOON_MS, lk_lock_state(lock) == LK_STATE_HELD));
	OK(lk_lock_release(lock));
	OK(lk_client_close(busy));
	OK(lk_client_close(idle));
	end();
}

TEST(f4_one_liar_does_not_lead_astray)
{
	lk_client *client;
	long long dials;
	lk_lock *lock;

	start();
	dials = dials_at(&two);
	client = open_client();
	lock = held_lock(client, 5000);
	fake_sentinel_switch(&sentinels[0], "127.0.0.1", two.port);
	ck_assert(WITHIN(SOON_MS, counters_of(client).connected == 2));
	ck_assert(WITHIN(SOON_MS, lk_lock_state(lock) == LK_STATE_HELD));
	/* It lies on, and the link stays. */
	nap_ms(2500);
	ck_assert_int_gt(sentinels[0].asked, 3);
	ck_assert_int_eq(counters_of(client).connected, 2);
	ck_assert_int_eq(clients_at(&one), 2);
	ck_assert_int_eq(dials_at(&two), dials + 1); /* this question */
	OK(lk_client_close(client));
	end();
}

/* The dial to a server that does not respond must not delay the news. */
TEST(f3_stopped_master_is_left_when_a_sentinel_names_another)
{
	lk_client *client;
	lk_lock *lock;
	int64_t began_ms;

	start();
	client = open_client();
	lock = held_lock(client, 8000);
	server_pause(&one);
	/* Until the client dials in vain: its commands are overdue after 1 s. */
	ck_assert(WITHIN(8000, logged("connection lost")));
	nap_ms(300);
	began_ms = now_ms();
	switch_all(&two);
	ck_assert(WITHIN(SOON_MS, clients_at(&two) == 2));
	ck_assert_int_lt(now_ms() - began_ms, SOON_MS);
	ck_assert(WITHIN(SOON_MS, lk_lock_state(lock) == LK_STATE_HELD));
	server_resume(&one);
	OK(lk_client_close(client));
	end();
}

/* The new master was known: but nobody names it now. */
TEST(f4_address_that_no_sentinel_names_is_never_dialled)
{
	lk_client *client;
	long long dials;

	start();
	client = open_client();
	switch_all(&two);
	ck_assert(WITHIN(SOON_MS, clients_at(&two) == 2));
	switch_all(&one);
	ck_assert(WITHIN(SOON_MS, clients_at(&one) == 2));
	dials = dials_at(&two);
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_stop(&sentinels[i]);
	server_kill(&one);
	ck_assert(WITHIN(SOON_MS, logged("cannot connect: s: no sentinel answers")));
	nap_ms(500);
	ck_assert_int_eq(dials_at(&two), dials + 1);
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_start(&sentinels[i], sentinels[i].port, two.port);
	ck_assert(WITHIN(3000, clients_at(&two) == 2));
	OK(lk_client_close(client));
	end();
}

TEST(f4_link_goes_on_without_sentinels_and_holds_become_unsure)
{
	lk_client *client;
	lk_lock *lock;
	int64_t began_ms;

	start();
	client = open_client();
	lock = held_lock(client, 3000);
	began_ms = now_ms();
	for (int i = 0; i < SENTINELS; i++)
		fake_sentinel_stop(&sentinels[i]);
	ck_assert(WITHIN(SOON_MS, logged("no sentinel answers: a failover would go unseen")));
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	ck_assert(WITHIN(3000, lk_lock_state(lock) == LK_STATE_UNSURE));
	ck_assert_int_ge(now_ms() - began_ms, 1000); /* a grace */
	nap_ms(2500);
	ck_assert_int_eq(counters_of(client).connected, 1);
	ck_assert_int_eq(counters_of(client).lost[0], 0);
	/* It is logged once. */
	ck_assert_int_eq(logged("go unseen"), 1);
	fake_sentinel_start(&sentinels[1], sentinels[1].port, one.port);
	ck_assert(WITHIN(6000, lk_lock_state(lock) == LK_STATE_HELD));
	ck_assert(WITHIN(SOON_MS, logged("a sentinel answers again")));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	fake_sentinel_start(&sentinels[0], sentinels[0].port, one.port);
	fake_sentinel_start(&sentinels[2], sentinels[2].port, one.port);
	end();
}

/* Its connection stands, and says nothing any more. */
TEST(f4_silent_sentinels_are_noticed_while_a_lock_is_held)
{
	lk_client *client;
	lk_lock *lock;

	start();
	client = open_client();
	lock = held_lock(client, 3000);
	for (int i = 0; i < SENTINELS; i++)
		sentinels[i].silent = true;
	ck_assert(WITHIN(5000, logged("go unseen")));
	ck_assert(WITHIN(5000, lk_lock_state(lock) == LK_STATE_UNSURE));
	for (int i = 0; i < SENTINELS; i++)
		sentinels[i].silent = false;
	ck_assert(WITHIN(8000, lk_lock_state(lock) == LK_STATE_HELD));
	OK(lk_client_close(client));
	end();
}

/* ---- Threads and costs -------------------------------------------------------------------- */

TEST(idle_client_asks_no_sentinel)
{
	lk_client *client;
	int asked;

	start();
	client = open_client();
	ck_assert(WITHIN(SOON_MS, sentinels[0].asked && sentinels[1].asked && sentinels[2].asked));
	asked = sentinels[0].asked;
	nap_ms(2500);
	ck_assert_int_eq(sentinels[0].asked, asked);
	OK(lk_client_close(client));
	end();
}

TEST(lazy_client_of_sentinels_connects_at_the_first_call)
{
	lk_client *client;
	int threads;

	start();
	write_url("", "grace=0&lazy=1");
	threads = proc_thread_count(0);
	client = open_client();
	nap_ms(100);
	ck_assert_int_eq(proc_thread_count(0), threads + 1);
	ck_assert_int_eq(sentinels[0].connected, 0);
	OK(lk_lock_release(held_lock(client, 5000)));
	ck_assert_int_eq(counters_of(client).connected, 1);
	OK(lk_client_close(client));
	ck_assert_int_eq(proc_thread_count(0), threads);
	end();
}

TEST(lazy_client_with_a_wrong_service_says_so_at_once)
{
	const lk_client_options options = {.lazy = true};
	int64_t began_ms = now_ms();
	lk_client *client;
	lk_lock *lock;

	start();
	for (int i = 0; i < SENTINELS; i++)
		sentinels[i].unaware = true;
	client = client_with(url, &options);
	lock = lock_named(client, "a");
	began_ms = now_ms();
	EXPECT(lk_lock_acquire(lock, 10000, NULL), LK_EINVALID);
	ck_assert_int_lt(now_ms() - began_ms, SOON_MS);
	OK(lk_client_close(client));
	end();
}

TEST(close_ends_all_threads_at_once)
{
	int threads, fds;

	start();
	threads = proc_thread_count(0);
	fds = proc_fd_count(0);
	for (int round = 0; round < 3; round++) {
		lk_client *client = open_client();
		int64_t began_ms;
		held_lock(client, 5000);
		sentinels[1].silent = round > 0;
		if (round == 2)
			server_pause(&one);
		began_ms = now_ms();
		lk_client_close(client);
		ck_assert_int_lt(now_ms() - began_ms, 3000);
		ck_assert_int_eq(proc_thread_count(0), threads);
		sentinels[1].silent = false;
		ck_assert(WITHIN(1000, proc_fd_count(0) == fds));
		if (round == 2)
			server_resume(&one);
	}
	end();
}

TEST(child_does_not_touch_the_conversations)
{
	lk_client *client;
	lk_lock *lock;
	int status;
	pid_t pid;

	start();
	client = open_client();
	lock = held_lock(client, 5000);
	pid = process_fork();
	if (pid == 0)
		_exit(lk_lock_release(lock) == LK_EFORKED && lk_client_close(client) == LK_EFORKED
		              ? 0
		              : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	nap_ms(1500);
	ck_assert_int_eq(counters_of(client).connected, 1);
	ck_assert_int_eq(sentinels[0].connected, 1);
	switch_all(&two);
	ck_assert(WITHIN(SOON_MS, clients_at(&two) == 2));
	OK(lk_client_close(client));
	end();
}
