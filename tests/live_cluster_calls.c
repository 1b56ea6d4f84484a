/* SPDX-License-Identifier: MIT
 * What only a Cluster shows to callers: how a client finds its nodes, names on several masters,
 * what calls cost, and that a close leaves nothing. */
#include "base/slot.h"

#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/command.h"
#include "harness/fake_sentinel.h"
#include "harness/handles.h"
#include "harness/latch_watch.h"
#include "harness/noun.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SOON_MS 1500 /* far less than a connect timeout */
#define REPLICA CLUSTER_MASTERS

static const struct cluster_setup_options options = {.node_timeout_ms = 15000};
CLUSTER_SETUP_SHARED(&options)

static struct cluster_setup *setup;
static char url[300];

static char names[CLUSTER_MASTERS][16]; /* in a slot of each master */

static void choose_names(void)
{
	for (int i = 0, found = 0; found < CLUSTER_MASTERS; i++) {
		char name[16];
		int owner;
		snprintf(name, sizeof(name), "n%d", i);
		owner = cluster_setup_owner(setup, (int)lk__slot_of(name, strlen(name)));
		ck_assert_int_ge(owner, 0);
		if (names[owner][0])
			continue;
		memcpy(names[owner], name, sizeof(name));
		found++;
	}
}

static void start(void)
{
	setup = cluster_setup_shared();
	snprintf(url, sizeof(url), "%s?grace=0", setup->url);
	choose_names();
}

/* The URL of two seeds on this machine. */
static void seeds(int first, int second)
{
	snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?grace=0", first,
	         second);
}

/* Use a lock of that name, and permits and a latch of names made from it. */
static void use(lk_client *client, const char *name)
{
	char other[2][64];
	lk_semaphore *semaphore;
	lk_latch *latch;
	lk_lock *lock = lock_named(client, name);

	snprintf(other[0], sizeof(other[0]), "%s-permits", name);
	snprintf(other[1], sizeof(other[1]), "%s-latch", name);
	OK(lk_lock_acquire(lock, 5000, NULL));
	OK(lk_lock_release(lock));
	semaphore = semaphore_of(client, other[0], 3, 0);
	OK(lk_semaphore_release(semaphore, permits_of(semaphore, 2, 5000)));
	latch = latch_named(client, other[1]);
	OK(lk_latch_reset(latch, 1, NULL));
	latch_down(latch, 1, NULL);
	OK(lk_latch_await(latch, 5000));
	OK(lk_lock_close(lock));
	OK(lk_semaphore_close(semaphore));
	OK(lk_latch_close(latch));
}

static void use_all(lk_client *client)
{
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		use(client, names[i]);
}

/* Open a client, use names of all masters, and close it. */
static void opens(const lk_client_options *of_client, int64_t within_ms)
{
	int64_t began_ms = now_ms();
	lk_client *client = client_with(url, of_client);

	ck_assert_int_le(now_ms() - began_ms, within_ms);
	use_all(client);
	OK(lk_client_close(client));
}

static void fails(const lk_client_options *of_client, lk_err err, int64_t within_ms,
                  const char *part)
{
	int64_t began_ms = now_ms();
	lk_client *client = NULL;

	EXPECT(lk_client_open(url, of_client, &client), err);
	ck_assert_msg(strstr(lk_errmsg(), part) != NULL, "%s", lk_errmsg());
	ck_assert_int_le(now_ms() - began_ms, within_ms);
	ck_assert_ptr_null(client);
}

/* ---- Seeds -------------------------------------------------------------------------------- */

TEST(any_seed_leads_to_all_masters)
{
	start();
	for (int i = 0; i < CLUSTER_NODES; i++) { /* also a replica */
		snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d?grace=0",
		         setup->nodes[i].port);
		opens(NULL, SOON_MS);
	}
}

TEST(dead_seed_delays_an_open_only_shortly)
{
	start();
	seeds(port_pick(), setup->nodes[1].port);
	opens(NULL, SOON_MS);
	seeds(setup->nodes[REPLICA].port, port_pick());
	opens(NULL, SOON_MS);
	seeds(port_pick(), setup->nodes[REPLICA].port);
	opens(NULL, SOON_MS);
}

TEST(hanging_seed_costs_a_second_at_most)
{
	start();
	cluster_setup_pause(setup, REPLICA);
	seeds(setup->nodes[REPLICA].port, setup->nodes[2].port);
	opens(NULL, SOON_MS);
	/* The other seed is a replica, which names the masters. */
	seeds(setup->nodes[REPLICA].port, setup->nodes[REPLICA + 1].port);
	opens(NULL, 2 * SOON_MS);
	cluster_setup_resume(setup, REPLICA);
}

TEST(open_without_a_live_seed_is_refused_at_once)
{
	struct command cmd;

	start();
	seeds(port_pick(), port_pick());
	fails(NULL, LK_ECONN, SOON_MS, "connection refused");
	command_setup(url);
	RUNS(69, &cmd, "latchkey", "lock", "a", "true");
	RUNS(69, &cmd, "latchkey", "show", "a");
}

TEST(open_with_hanging_seeds_ends_with_its_timeout)
{
	const lk_client_options limited = {.connect_timeout_ms = 1200};

	start();
	cluster_setup_pause(setup, REPLICA);
	cluster_setup_pause(setup, REPLICA + 1);
	seeds(setup->nodes[REPLICA].port, setup->nodes[REPLICA + 1].port);
	fails(&limited, LK_ECONN, 2000, "127.0.0.1:");
	cluster_setup_resume(setup, REPLICA);
	cluster_setup_resume(setup, REPLICA + 1);
}

/* ---- Plain URLs --------------------------------------------------------------------------- */

static void plain_url(int port, const char *rest)
{
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d%s", port, rest);
}

TEST(plain_url_of_a_node_is_that_of_its_cluster)
{
	start();
	for (int i = 0; i < CLUSTER_NODES; i++) { /* also a replica */
		plain_url(setup->nodes[i].port, "?grace=0");
		opens(NULL, SOON_MS);
	}
}

static void cluster_of_one(const struct test_server *node)
{
	struct redis *redis = redis_open(node);

	redis_do(redis, "CLUSTER ADDSLOTSRANGE 0 16383");
	ck_assert(WITHIN(5000, strstr(redis_text(redis, "CLUSTER INFO"), "cluster_state:ok")));
	redis_close(redis);
}

TEST(cluster_of_one_node_serves_all_names)
{
	static const struct server_options alone = {.cluster = true};
	struct test_server server;

	start();
	server_start(&server, &alone);
	cluster_of_one(&server);
	plain_url(server.port, "?grace=0");
	opens(NULL, SOON_MS);
	snprintf(url, sizeof(url), "redis+cluster://127.0.0.1:%d?grace=0", server.port);
	opens(NULL, SOON_MS);
	server_stop(&server);
}

/* A client that has not dialled yet may have names already: it does not switch over. */
TEST(lazy_plain_url_names_the_url_to_write)
{
	lk_client *client;
	char wanted[100];

	start();
	for (int i = 0; i < 2; i++) {
		int port = setup->nodes[i ? REPLICA : 0].port;
		plain_url(port, "?grace=0&lazy=1");
		client = client_at(url);
		EXPECT(lk_lock_acquire(lock_named(client, names[0]), 0, NULL), LK_EINVALID);
		snprintf(wanted, sizeof(wanted),
		         "a node of a Cluster (write redis+cluster://127.0.0.1:%d)", port);
		ck_assert_msg(strstr(lk_errmsg(), wanted) != NULL, "%s", lk_errmsg());
		OK(lk_client_close(client));
	}
	snprintf(url, sizeof(url), "%s?grace=0&lazy=1", setup->url);
	opens(NULL, SOON_MS);
}

/* As when an address is used again, for another server. */
TEST(node_at_the_address_of_a_lost_server_is_refused_and_forgotten)
{
	static const struct server_options of_node = {.cluster = true};
	struct test_server server, node;
	lk_client *client;
	lk_lock *lock;

	start();
	server_start(&server, NULL);
	server_start(&node, &of_node);
	server_kill(&node);
	client = client_at(server.url);
	lock = lock_named(client, "a");
	use(client, "a");
	server_kill(&server);
	node.port = server.port;
	server_restart(&node);
	cluster_of_one(&node);
	ck_assert(WITHIN(5000, lk_lock_acquire(lock, 0, NULL) == LK_EINVALID));
	ck_assert_msg(strstr(lk_errmsg(), "a node of a Cluster") != NULL, "%s", lk_errmsg());
	server_kill(&node);
	server_restart(&server);
	ck_assert(WITHIN(10000, lk_lock_acquire(lock, 100, NULL) == LK_OK));
	OK(lk_lock_release(lock));
	use(client, "b");
	OK(lk_client_close(client));
	server_stop(&node);
	server_stop(&server);
}

TEST(socket_of_a_node_is_no_way_into_its_cluster)
{
	start();
	snprintf(url, sizeof(url), "redis+unix://%s", setup->nodes[0].socket_path);
	fails(NULL, LK_EINVALID, SOON_MS,
	      "a node of a Cluster (write redis+cluster:// with its host and port)");
}

TEST(sentinel_that_names_a_node_leads_into_no_cluster)
{
	static struct fake_sentinel sentinel;

	start();
	fake_sentinel_start(&sentinel, 0, setup->nodes[0].port);
	snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/s", sentinel.port);
	fails(NULL, LK_EINVALID, SOON_MS, "a node of a Cluster (write redis+cluster://");
	fake_sentinel_stop(&sentinel);
}

TEST(other_database_than_0_is_refused)
{
	static const char *const rests[] = {"/1", "/1?grace=0", "?db=1"};
	static const char text[] = "a Cluster has only database 0";

	start();
	for (int i = 0; i < 3; i++) {
		snprintf(url, sizeof(url), "%s%s", setup->url, rests[i]);
		fails(NULL, LK_EINVALID, SOON_MS, text);
		plain_url(setup->nodes[i].port, rests[i]);
		fails(NULL, LK_EINVALID, SOON_MS, text);
	}
	snprintf(url, sizeof(url), "%s/0?grace=0", setup->url);
	opens(NULL, SOON_MS);
}

/* ---- Addresses ---------------------------------------------------------------------------- */

struct addresses {
	bool known;
	atomic_int nodes[CLUSTER_NODES]; /* how often each was asked for */
};

/* "seed.inside:1" and "node-2.inside:PORT" are on this machine. */
static int translate(void *arg, const char *host, int port, char host_out[LK_HOST_SIZE],
                     int *port_out)
{
	struct addresses *addresses = arg;
	int node = REPLICA;

	if (!addresses->known)
		return -1;
	if (strcmp(host, "seed.inside") != 0) {
		if (sscanf(host, "node-%d.inside", &node) != 1 || port != setup->nodes[node].port)
			return -1;
		addresses->nodes[node]++;
	}
	snprintf(host_out, LK_HOST_SIZE, "127.0.0.1");
	*port_out = setup->nodes[node].port;
	return 0;
}

/* Do all nodes name the masters so? */
static bool named_inside(void)
{
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		const char *slots = redis_text(redis, "CLUSTER SLOTS");
		bool named = strstr(slots, "node-0.inside") && strstr(slots, "node-1.inside") &&
		             strstr(slots, "node-2.inside");
		redis_close(redis);
		if (!named)
			return false;
	}
	return true;
}

static void name_inside(void)
{
	for (int i = 0; i < CLUSTER_NODES; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		redis_do(redis, "CONFIG SET cluster-announce-hostname node-%d.inside", i);
		redis_do(redis, "CONFIG SET cluster-preferred-endpoint-type hostname");
		redis_close(redis);
	}
	ck_assert(WITHIN(2 * CLUSTER_SETTLED_MS, named_inside())); /* half a node timeout */
}

TEST_LIMIT(program_translates_the_addresses_of_nodes, 90)
{
	static struct cluster_setup own;
	static struct addresses addresses;
	const lk_client_options translated = {.resolve = translate, .resolve_arg = &addresses};

	cluster_setup_start(&own, &options);
	setup = &own;
	choose_names();
	name_inside();
	snprintf(url, sizeof(url), "redis+cluster://seed.inside:1?grace=0");
	fails(&translated, LK_ECONN, SOON_MS,
	      "seed.inside:1: the resolve function has no address for it");
	addresses.known = true;
	opens(&translated, SOON_MS);
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		ck_assert_int_ge(addresses.nodes[i], 1);
	cluster_setup_stop(&own);
}

/* ---- Names on all masters ----------------------------------------------------------------- */

#define CLIENTS 3
#define THREADS 4 /* of each client */
#define ROUNDS 20

struct worker {
	lk_client *client;
	int first;
	pthread_t thread;
};

static struct {
	int value;
	atomic_int inside;
	uint64_t fence;
} counts[CLUSTER_MASTERS];
static atomic_int failures;

/* Increment the count of each master's name, protected by its lock only. */
static void *work(void *arg)
{
	const struct worker *worker = arg;
	lk_lock *locks[CLUSTER_MASTERS];

	for (int i = 0; i < CLUSTER_MASTERS; i++)
		locks[i] = lock_named(worker->client, names[i]);
	for (int round = 0; round < CLUSTER_MASTERS * ROUNDS; round++) {
		int at = (worker->first + round) % CLUSTER_MASTERS;
		uint64_t fence;
		OK(lk_lock_acquire(locks[at], LK_FOREVER, &fence));
		failures += counts[at].inside++ || fence <= counts[at].fence;
		counts[at].fence = fence;
		counts[at].value++;
		counts[at].inside--;
		OK(lk_lock_release(locks[at]));
	}
	return NULL;
}

TEST_LIMIT(threads_of_clients_share_names_of_all_masters, 60)
{
	struct worker workers[CLIENTS * THREADS];
	lk_client *clients[CLIENTS];

	start();
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = client_at(url);
	for (int i = 0; i < CLIENTS * THREADS; i++) {
		workers[i] = (struct worker){.client = clients[i % CLIENTS], .first = i};
		ck_assert(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
	}
	for (int i = 0; i < CLIENTS * THREADS; i++)
		pthread_join(workers[i].thread, NULL);
	for (int i = 0; i < CLIENTS; i++)
		OK(lk_client_close(clients[i]));
	ck_assert_int_eq(failures, 0);
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		ck_assert_int_eq(counts[i].value, CLIENTS * THREADS * ROUNDS);
}

/* ---- Costs -------------------------------------------------------------------------------- */

static int64_t requests_of(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.requests;
}

/* Those that the masters have executed. */
static long long executed(void)
{
	long long count = 0;

	for (int i = 0; i < CLUSTER_MASTERS; i++)
		count += cluster_setup_requests(setup, i);
	return count;
}

/* How often clients may read the marker of their master's memory in that time, or claim a grant,
 * because the marker that they know is too old: once a second. */
static long long checks_of(int clients, int64_t took_ms)
{
	return (took_ms / 1000 + 2) * clients;
}

#define PAIRS 200

/* The description of a client arrives in the background. */
static bool is_described(lk_lock *lock)
{
	lk_lock_status status;

	OK(lk_lock_query(lock, &status));
	return status.holder.host[0] != 0;
}

TEST(acquire_and_release_take_two_requests_alone)
{
	lk_client *client;

	start();
	client = client_at(url);
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		lk_lock *lock = lock_named(client, names[i]);
		int64_t began_ms, before;
		long long executed_before;
		/* Connect to the master, and give it the client's details. */
		OK(lk_lock_acquire(lock, 0, NULL));
		ck_assert(WITHIN(2000, is_described(lock)));
		OK(lk_lock_release(lock));
		began_ms = now_ms();
		before = requests_of(client);
		executed_before = executed();
		for (int pair = 0; pair < PAIRS; pair++) {
			OK(lk_lock_acquire(lock, 0, NULL));
			OK(lk_lock_release(lock));
		}
		ck_assert_int_eq(requests_of(client) - before, 2 * PAIRS);
		ck_assert_int_le(executed() - executed_before,
		                 2 * PAIRS + checks_of(1, now_ms() - began_ms));
	}
	OK(lk_client_close(client));
}

#define RIVALS 3

struct rival {
	lk_client *client;
	lk_lock *lock;
	int pairs;
	pthread_t thread;
};

static void *rival(void *arg)
{
	struct rival *mine = arg;

	for (int i = 0; i < mine->pairs; i++) {
		OK(lk_lock_acquire(mine->lock, LK_FOREVER, NULL));
		nap_ms(1); /* the others wait meanwhile */
		OK(lk_lock_release(mine->lock));
	}
	return NULL;
}

static void compete(struct rival *rivals, int pairs)
{
	for (int i = 0; i < RIVALS; i++) {
		rivals[i].pairs = pairs;
		ck_assert(!pthread_create(&rivals[i].thread, NULL, rival, &rivals[i]));
	}
	for (int i = 0; i < RIVALS; i++)
		pthread_join(rivals[i].thread, NULL);
}

/* An ask that waits, and a release: the grant is a message. */
TEST_LIMIT(acquire_and_release_take_two_requests_in_a_queue, 60)
{
	struct rival rivals[RIVALS];
	int64_t began_ms, before = 0, after = 0;
	long long executed_before, checks;

	start();
	for (int i = 0; i < RIVALS; i++) {
		rivals[i].client = client_at(url);
		rivals[i].lock = lock_named(rivals[i].client, names[1]);
	}
	compete(rivals, 20); /* the channels stand from now on */
	for (int i = 0; i < RIVALS; i++)
		before += requests_of(rivals[i].client);
	executed_before = executed();
	began_ms = now_ms();
	compete(rivals, PAIRS);
	for (int i = 0; i < RIVALS; i++)
		after += requests_of(rivals[i].client);
	checks = checks_of(RIVALS, now_ms() - began_ms);
	ck_assert_int_ge(after - before, 2 * RIVALS * PAIRS);
	ck_assert_int_le(after - before, 2 * RIVALS * PAIRS + 2 * checks);
	ck_assert_int_le(executed() - executed_before, 2 * RIVALS * PAIRS + 3 * checks);
	for (int i = 0; i < RIVALS; i++)
		OK(lk_client_close(rivals[i].client));
}

/* ---- The end ------------------------------------------------------------------------------ */

/* No keys but markers and fence counters, no channel, no connection of a client. */
static bool is_clean(int node)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	const char *keys = redis_text(redis, "KEYS *");
	bool clean = true;

	for (; *keys; keys += strcspn(keys, "\n"), keys += *keys == '\n')
		clean &= !strncmp(keys, "lk:epoch:", 9) || !strncmp(keys, "lk:fence:", 9);
	clean &= !*redis_text(redis, "PUBSUB SHARDCHANNELS") &&
	         !strstr(redis_text(redis, "CLIENT LIST"), "name=latchkey");
	redis_close(redis);
	return clean;
}

TEST(close_of_clients_leaves_nothing)
{
	struct noun_wait waits[CLUSTER_MASTERS];
	lk_client *holder, *waiter;

	start();
	holder = client_at(url);
	waiter = client_at(url);
	for (int i = 0; i < CLUSTER_MASTERS; i++) {
		noun_hold(&noun_lock, noun_named(&noun_lock, holder, names[i]), 0);
		noun_wait_queue(&waits[i], &noun_lock, noun_named(&noun_lock, waiter, names[i]),
		                false);
		ck_assert(!is_clean(i));
	}
	OK(lk_client_close(waiter));
	for (int i = 0; i < CLUSTER_MASTERS; i++)
		EXPECT(noun_wait_join(&waits[i]), LK_ECLOSED);
	OK(lk_client_close(holder));
	for (int i = 0; i < CLUSTER_NODES; i++)
		ck_assert(WITHIN(2000, is_clean(i)));
}
