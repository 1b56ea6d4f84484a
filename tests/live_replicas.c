/* SPDX-License-Identifier: MIT
 * Replicas that must confirm each grant: what that costs, the right that it needs, what doctor
 * says, and that many threads of one client go on. */
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/replicated.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX 400
#define THREADS 8
#define TURNS 40

static struct replicated servers;

static lk_client *client_of(int64_t needed)
{
	const lk_client_options options = {.replicas = needed};

	return client_with(servers.master.url, &options);
}

/* ---- Commands ----------------------------------------------------------------------------- */

struct seen {
	int scripts, waits;
	bool same; /* each WAIT came from the connection of the script before it */
};

/* The commands of clients since the last mark; in MONITOR, 1.2 [0 127.0.0.1:1234] "WAIT" "1" .. */
static struct seen see(struct monitor *monitor)
{
	struct seen seen = {.same = true};
	char last[LINE_MAX] = "";
	const char *line;

	redis_do(servers.redis, "ECHO the-mark");
	while ((line = monitor_next(monitor, 5000)) && !strstr(line, "the-mark")) {
		const char *from = strchr(line, '['), *to = strchr(line, ']');
		bool waits = strstr(line, "\"WAIT\"") != NULL;
		if (!from || !to || strstr(line, " lua] "))
			continue;
		if (waits)
			seen.same = seen.same && !strncmp(last, from, (size_t)(to - from));
		seen.waits += waits;
		seen.scripts += strstr(line, "\"EVALSHA\"") != NULL;
		snprintf(last, sizeof(last), "%s", from);
	}
	ck_assert_ptr_nonnull(line);
	return seen;
}

static void expect_seen(struct monitor *monitor, int scripts, int waits)
{
	struct seen seen = see(monitor);

	ck_assert_int_eq(seen.scripts, scripts);
	ck_assert_int_eq(seen.waits, waits);
	ck_assert(seen.same);
}

/* Acquire, extend and release, of a lock and of permits. */
static void use(lk_lock *lock, lk_semaphore *semaphore)
{
	uint64_t hold;

	OK(lk_lock_acquire(lock, 10000, NULL));
	OK(lk_lock_extend(lock, 20000));
	OK(lk_lock_release(lock));
	OK(lk_semaphore_acquire(semaphore, 1, 10000, &hold));
	OK(lk_semaphore_extend(semaphore, hold, 20000));
	OK(lk_semaphore_release(semaphore, hold));
}

TEST_LIMIT(what_holds_costs_one_more_command, 60)
{
	struct monitor *monitor;

	replicated_start(&servers, 1);
	for (int needed = 0; needed < 2; needed++) {
		lk_client *client = client_of(needed);
		lk_lock *lock = lock_named(client, "a");
		lk_semaphore *semaphore = semaphore_of(client, "s", 2, 0);
		use(lock, semaphore);
		nap_ms(50); /* the description of the client is sent by now */
		monitor = monitor_open(&servers.master);
		see(monitor);
		use(lock, semaphore);
		expect_seen(monitor, 6, needed ? 4 : 0);
		monitor_close(monitor);
		OK(lk_client_close(client));
	}
	replicated_stop(&servers);
}

/* WAIT is about writes, so a request that changes nothing must write, too. */
TEST_LIMIT(renewal_that_changes_nothing_is_a_write, 60)
{
	lk_semaphore *semaphore;
	lk_client *client;
	uint64_t hold;
	lk_lock *lock;

	replicated_start(&servers, 1);
	client = client_of(1);
	lock = lock_leased(client, "a", 60000);
	semaphore = semaphore_of(client, "s", 1, 60000);
	OK(lk_lock_acquire(lock, 10000, NULL));
	OK(lk_semaphore_acquire(semaphore, 1, 10000, &hold));
	for (int i = 0; i < 2; i++) {
		long long before = redis_info(servers.redis, "master_repl_offset");
		OK(i ? lk_lock_extend(lock, 30000) : lk_semaphore_extend(semaphore, hold, 30000));
		ck_assert_int_gt(redis_info(servers.redis, "master_repl_offset"), before);
	}
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

TEST_LIMIT(latches_and_permits_of_a_rate_do_not_wait_for_replicas, 60)
{
	const lk_semaphore_options rate = {.capacity = 5, .lease_ms = 1000, .fixed = true};
	struct monitor *monitor;
	lk_semaphore *semaphore;
	lk_client *client;
	lk_latch *latch;

	replicated_start(&servers, 0);
	client = client_of(1);
	latch = latch_named(client, "l");
	semaphore = semaphore_with(client, "r", &rate);
	monitor = monitor_open(&servers.master);
	OK(lk_latch_set(latch, 1, NULL));
	OK(lk_latch_down(latch, 1, NULL, 0, NULL));
	OK(lk_latch_await(latch, 10000));
	OK(lk_semaphore_acquire(semaphore, 1, 10000, NULL));
	ck_assert_int_eq(see(monitor).waits, 0);
	monitor_close(monitor);
	OK(lk_client_close(client));
	replicated_stop(&servers);
}

/* ---- Threads ------------------------------------------------------------------------------ */

static lk_client *shared;

static void *take_turns(void *arg)
{
	lk_lock *locks[2];
	char name[16];

	snprintf(name, sizeof(name), "own%d", *(int *)arg);
	locks[0] = lock_named(shared, name);
	locks[1] = lock_named(shared, "all");
	for (int i = 0; i < TURNS; i++) {
		lk_lock *lock = locks[i % 2];
		DO(lk_lock_acquire(lock, 50000, NULL));
		DO(lk_lock_release(lock));
	}
	return NULL;
}

TEST_LIMIT(threads_of_a_client_share_the_questions, 60)
{
	pthread_t threads[THREADS];
	int numbers[THREADS];
	long long waits, asks;

	replicated_start(&servers, 1);
	shared = client_of(1);
	asks = redis_script_calls(servers.redis);
	waits = redis_calls(servers.redis, "wait");
	for (int i = 0; i < THREADS; i++) {
		numbers[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, take_turns, &numbers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	asks = redis_script_calls(servers.redis) - asks;
	waits = redis_calls(servers.redis, "wait") - waits;
	ck_assert_int_gt(waits, 0);
	ck_assert_msg(waits < asks, "%lld scripts, %lld questions", asks, waits);
	OK(lk_client_close(shared));
	replicated_stop(&servers);
}

/* ---- Rights and doctor -------------------------------------------------------------------- */

struct found {
	const char *topic;
	lk_fitness fitness;
	char text[LINE_MAX];
};

static void keep(void *arg, const lk_finding *finding)
{
	struct found *found = arg;

	if (strcmp(finding->topic, found->topic) != 0 || found->text[0])
		return;
	found->fitness = finding->fitness;
	snprintf(found->text, sizeof(found->text), "%s [%s]", finding->text, finding->cure);
}

static void expect_finding(const lk_client_options *options, const char *topic, lk_fitness fitness,
                           const char *text)
{
	struct found found = {.topic = topic};

	OK(lk_doctor(servers.master.url, options, keep, &found, NULL));
	ck_assert_msg(found.fitness == fitness && strstr(found.text, text), "%d: %s",
	              (int)found.fitness, found.text);
}

TEST_LIMIT(client_without_the_right_to_wait_is_told_its_name, 60)
{
	lk_client_options options = {.user = "ann", .password = "x", .replicas = 1};
	lk_client *client;
	lk_lock *lock;

	replicated_start(&servers, 1);
	redis_do(servers.redis, "ACL SETUSER ann on >x ~lk:* &lk:* +@all -wait");
	expect_finding(&options, "rights", LK_UNFIT, "[ACL SETUSER ann +wait]");
	client = client_with(servers.master.url, &options);
	lock = lock_named(client, "a");
	EXPECT(lk_lock_acquire(lock, 10000, NULL), LK_EAUTH);
	ck_assert_msg(strstr(lk_errmsg(), "+wait"), "%s", lk_errmsg());
	redis_do(servers.redis, "ACL SETUSER ann +wait");
	OK(lk_lock_acquire(lock, 10000, NULL));
	expect_finding(&options, "rights", LK_FIT, "every command");
	OK(lk_client_close(client));
	options.replicas = 0;
	redis_do(servers.redis, "ACL SETUSER ann -wait");
	expect_finding(&options, "rights", LK_FIT, "every command");
	replicated_stop(&servers);
}

/* A plain URL that leads to a replica is a mistake, or a failover that the client cannot follow. */
TEST_LIMIT(url_of_a_replica_names_its_master, 60)
{
	char wanted[200], hint[] = "a replica: write the address of its master, or "
				   "redis+sentinel://SENTINELS/SERVICE (READONLY)";
	const lk_client_options user = {.user = "ann", .password = "x"};
	struct test_server *replica = &servers.replicas[0];
	struct redis *redis;
	lk_client *client;
	lk_lock *lock;

	replicated_start(&servers, 1);
	redis = redis_open(replica);
	EXPECT(lk_client_open(replica->url, NULL, &client), LK_ECONN);
	snprintf(wanted, sizeof(wanted),
	         "127.0.0.1:%d: a replica: write the address of its master, 127.0.0.1:%d, or "
	         "redis+sentinel://SENTINELS/SERVICE (READONLY)",
	         replica->port, servers.master.port);
	ck_assert_msg(!strncmp(lk_errmsg(), wanted, strlen(wanted)), "%s", lk_errmsg());
	redis_do(redis, "ACL SETUSER ann on >x ~lk:* &lk:* +@all -role");
	EXPECT(lk_client_open(replica->url, &user, &client), LK_ECONN);
	ck_assert_msg(strstr(lk_errmsg(), hint), "%s", lk_errmsg());
	/* A master that becomes a replica keeps its clients. */
	client = client_at(servers.master.url);
	lock = lock_named(client, "a");
	redis_do(redis, "REPLICAOF NO ONE");
	redis_do(servers.redis, "REPLICAOF 127.0.0.1 %d", replica->port);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EAGAIN);
	ck_assert_msg(strstr(lk_errmsg(), hint), "%s", lk_errmsg());
	lk_client_close(client);
	redis_close(redis);
	replicated_stop(&servers);
}

TEST_LIMIT(doctor_counts_the_replicas_that_can_confirm, 60)
{
	lk_client_options options = {.replicas = 1};

	replicated_start(&servers, 2);
	expect_finding(&options, "replicas", LK_FIT, "1 of 2 confirm each grant");
	options.replicas = 2;
	expect_finding(&options, "replicas", LK_FIT, "all 2 confirm each grant");
	options.replicas = 3;
	expect_finding(&options, "replicas", LK_UNFIT, "2 of 3 replicas are in sync");
	options.replicas = 2;
	replicated_pause(&servers, 1);
	ck_assert(WITHIN(15000, strstr(redis_text(servers.redis, "INFO replication"), ",lag=4")));
	expect_finding(&options, "replicas", LK_UNFIT, "1 of 2 replicas are in sync and respond");
	replicated_stop(&servers);
}
