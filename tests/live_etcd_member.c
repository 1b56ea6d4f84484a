/* SPDX-License-Identifier: MIT
 * Locks of the library's clients on etcd whose members die, hang, or want a password. */
#include "harness/etcd_server.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/rivals.h"
#include "harness/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define LONG_MS 30000 /* for what comes soon on a machine that is not loaded */

static int tickets(const struct etcd_servers *servers, const char *name)
{
	const char *at = etcd_ctl(servers, "get --prefix lk/L/%s/ --keys-only", name);
	int count = 0;

	while ((at = strstr(at, "lk/L/"))) {
		count++;
		at++;
	}
	return count;
}

struct waiter {
	pthread_t thread;
	lk_lock *lock;
	lk_err err;
	atomic_bool done;
};

static void *wait_for(void *arg)
{
	struct waiter *waiter = arg;

	waiter->err = lk_lock_acquire(waiter->lock, LK_FOREVER, NULL);
	if (!waiter->err)
		waiter->err = lk_lock_release(waiter->lock);
	atomic_store(&waiter->done, true);
	return NULL;
}

/* ---- Members -------------------------------------------------------------------------------- */

/* Three nodes; a client that holds the lock, and one that waits for it. */
static struct etcd_servers servers;
static lk_client *clients[2];
static lk_lock *locks[2];
static struct waiter waiter;

static void begin(void)
{
	etcd_start(&servers, 3);
	for (int i = 0; i < 2; i++) {
		clients[i] = client_at(etcd_url(&servers, "", "?command_timeout=1000"));
		locks[i] = lock_leased(clients[i], "member", 60000);
	}
	OK(lk_lock_acquire(locks[0], LONG_MS, NULL));
	waiter.lock = locks[1];
	ck_assert(!pthread_create(&waiter.thread, NULL, wait_for, &waiter));
	ck_assert(WITHIN(LONG_MS, tickets(&servers, "member") == 2));
}

static void still_holds(void)
{
	ck_assert(lk_lock_is_mine(locks[0]));
	ck_assert(!atomic_load(&waiter.done));
}

static void end(void)
{
	lk_err err = lk_lock_release(locks[0]);

	ck_assert_msg(!err || err == LK_EUNKNOWN, "%s: %s", lk_err_name(err), lk_errmsg());
	ck_assert(WITHIN(LONG_MS * 2, atomic_load(&waiter.done)));
	pthread_join(waiter.thread, NULL);
	ck_assert_msg(!waiter.err || waiter.err == LK_EUNKNOWN, "%s", lk_err_name(waiter.err));
	for (int i = 0; i < 2; i++)
		OK(lk_client_close(clients[i]));
	ck_assert_int_eq(tickets(&servers, "member"), 0);
	etcd_stop(&servers);
}

TEST_LIMIT(lock_outlives_any_one_member, 240)
{
	lk_client *late;

	begin();
	for (int i = 2; i >= 0; i--) {
		etcd_kill(&servers, i);
		etcd_restart(&servers, i);
		still_holds();
	}
	etcd_kill(&servers, 2); /* the first one is for etcdctl */
	end();
	EXPECT(lk_client_open(etcd_url(&servers, "", "?connect_timeout=3000"), NULL, &late),
	       LK_ECONN);
}

/* Acquire other locks, whatever members the clients have. */
static void work(int round)
{
	char name[20];

	for (int i = 0; i < 2; i++) {
		lk_lock *other;
		snprintf(name, sizeof(name), "other/%d/%d", round, i);
		other = lock_named(clients[i], name);
		OK(lk_lock_acquire(other, LONG_MS, NULL));
		OK(lk_lock_close(other));
	}
}

TEST_LIMIT(member_that_hangs_is_left, 240)
{
	begin();
	for (int i = 0; i < 3; i++) {
		ck_assert(!kill(servers.nodes[i].pid, SIGSTOP));
		work(i);
		still_holds();
		ck_assert(!kill(servers.nodes[i].pid, SIGCONT));
		ck_assert(WITHIN(LONG_MS, etcd_is_healthy(&servers, i)));
	}
	end();
}

/* None holds at the same time as another one, and all fences grow. */
TEST_LIMIT(clients_exclude_each_other_while_members_die, 240)
{
	struct rivals rivals;

	etcd_start(&servers, 3);
	rivals_start(&rivals, &noun_lock, etcd_url(&servers, "", "?command_timeout=1000"), 3000);
	for (int i = 0; i < 3; i++) {
		rivals_go_on(&rivals, LONG_MS);
		etcd_kill(&servers, i);
		rivals_go_on(&rivals, LONG_MS);
		etcd_restart(&servers, i);
	}
	rivals_go_on(&rivals, LONG_MS);
	rivals_stop(&rivals);
	etcd_stop(&servers);
}

/* ---- Passwords ------------------------------------------------------------------------------ */

static atomic_int connects;

static void count_connects(void *arg, lk_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	if (strstr(line, ": connected"))
		atomic_fetch_add(&connects, 1);
}

TEST_LIMIT(client_logs_in_again_when_its_token_has_expired, 120)
{
	const lk_client_options options = {.log = count_connects, .log_level = LK_LOG_INFO};
	lk_client *client;
	lk_lock *lock;

	servers.args[0] = "--auth-token-ttl";
	servers.args[1] = "1";
	etcd_start(&servers, 1);
	etcd_ctl(&servers, "user add root:secret");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "auth enable");
	EXPECT(lk_client_open(etcd_url(&servers, "root:wrong@", ""), NULL, &client), LK_EAUTH);
	client = client_with(etcd_url(&servers, "root:secret@", ""), &options);
	lock = lock_leased(client, "secret", 20000);
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	ck_assert(WITHIN(LONG_MS, atomic_load(&connects) >= 2));
	ck_assert(lk_lock_is_mine(lock));
	ck_assert(WITHIN(LONG_MS, lk_lock_release(lock) != LK_EUNKNOWN));
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	OK(lk_client_close(client));
	etcd_stop(&servers);
}

static void expect_refusal(lk_err err, const char *cure)
{
	ck_assert_int_eq(err, LK_EAUTH);
	ck_assert_msg(strstr(lk_errmsg(), cure), "%s", lk_errmsg());
}

/* As the manual names them. */
TEST_LIMIT(rights_on_the_prefix_are_enough, 120)
{
	lk_err err;
	lk_client *client;
	lk_lock *lock;

	etcd_start(&servers, 1);
	EXPECT(lk_client_open(etcd_url(&servers, "job:secret@", ""), NULL, &client), LK_ESERVER);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "leave user and password out of the URL"));
	etcd_ctl(&servers, "user add root:secret");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "user add job:secret");
	etcd_ctl(&servers, "role add latchkey");
	etcd_ctl(&servers, "role grant-permission latchkey --prefix=true readwrite lk/");
	etcd_ctl(&servers, "user grant-role job latchkey");
	etcd_ctl(&servers, "auth enable");
	err = lk_client_open(etcd_url(&servers, "", ""), NULL, &client);
	if (!err) { /* 3.4 tells everybody how it is */
		err = lk_lock_acquire(lock_named(client, "a"), LONG_MS, NULL);
		expect_refusal(err, "name a user: etcd://USER:PASSWORD@HOST");
		OK(lk_client_close(client));
	}
	expect_refusal(err, "name a user: etcd://USER:PASSWORD@HOST");
	client = client_at(etcd_url(&servers, "job:secret@", ""));
	lock = lock_leased(client, "a/b", 2000);
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	OK(lk_lock_extend(lock, 20000));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	client = client_at(etcd_url(&servers, "job:secret@", "?prefix=other"));
	expect_refusal(lk_lock_acquire(lock_named(client, "a"), LONG_MS, NULL),
	               "the user's role needs readwrite");
	OK(lk_client_close(client));
	etcd_stop(&servers);
}

/* ---- Two clusters --------------------------------------------------------------------------- */

static void names_both(const struct etcd_servers *one, const struct etcd_servers *other)
{
	char text[120];

	snprintf(text, sizeof(text), "127.0.0.1:%d: of another cluster than 127.0.0.1:%d",
	         other->nodes[0].port, one->nodes[0].port);
	ck_assert_msg(strstr(lk_errmsg(), text), "\"%s\" is not in: %s", text, lk_errmsg());
}

static lk_err try_lock(lk_lock *lock)
{
	lk_err err = lk_lock_acquire(lock, 0, NULL);

	return err ? err : lk_lock_release(lock);
}

/* A URL that is wrong: its members have different stores. */
TEST_LIMIT(member_of_another_cluster_is_refused, 240)
{
	static struct etcd_servers clusters[2];
	struct etcd_servers *first, *other;
	lk_client *client;
	lk_server server;
	lk_lock *lock;
	char url[200];

	etcd_start(&clusters[0], 1);
	etcd_start(&clusters[1], 1);
	snprintf(url, sizeof(url), "etcd://127.0.0.1:%d,127.0.0.1:%d", clusters[0].nodes[0].port,
	         clusters[1].nodes[0].port);
	client = client_at(url);
	lock = lock_leased(client, "one", 5000);
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	OK(lk_lock_release(lock));
	OK(lk_client_server(client, &server));
	snprintf(url, sizeof(url), "127.0.0.1:%d", clusters[0].nodes[0].port);
	first = strcmp(server.address, url) ? &clusters[1] : &clusters[0];
	other = strcmp(server.address, url) ? &clusters[0] : &clusters[1];
	etcd_kill(first, 0);
	ck_assert(WITHIN(LONG_MS,
	                 try_lock(lock) == LK_ECONN && strstr(lk_errmsg(), "of another cluster")));
	names_both(first, other);
	EXPECT(lk_lock_acquire(lock, 1000, NULL), LK_ECONN);
	ck_assert_str_eq(etcd_ctl(other, "get --prefix lk/ --keys-only"), "");
	etcd_restart(first, 0);
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
	etcd_stop(first);
	etcd_stop(other);
}
