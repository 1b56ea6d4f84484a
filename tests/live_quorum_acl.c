/* SPDX-License-Identifier: MIT
 * The user that docs/quorum.md has administrators create at each server of a quorum: its rights
 * suffice for all that locks do there, and each that the page calls necessary is necessary. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/quorum_setup.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RULE_MAX 1000
#define COMMAND "ACL SETUSER latchkey "
#define OWN " +zcard +info +publish "              /* only this line of the page has it */
#define SPARE " +ping +hsetnx +hmget +unsubscribe" /* not necessary */
#define WAIT_MS 5000

static struct quorum_setup setup;
static char rule[RULE_MAX], url[160];

static void at_each(const char *command)
{
	for (int i = 0; i < QUORUM_SERVERS; i++) {
		struct redis *redis = redis_open(&setup.servers[i]);
		redis_do(redis, command);
		redis_close(redis);
	}
}

static void read_rule(void)
{
	FILE *page = fopen("docs/quorum.md", "re");

	ck_assert(page != NULL);
	while (fgets(rule, RULE_MAX, page) &&
	       (strncmp(rule, COMMAND, strlen(COMMAND)) != 0 || !strstr(rule, OWN)))
		rule[0] = '\0';
	fclose(page);
	rule[strcspn(rule, "\n")] = '\0';
	ck_assert_msg(strstr(rule, SPARE) != NULL, "no line " COMMAND "..." SPARE);
}

static void set_up(void)
{
	quorum_setup_begin(&setup, 0);
	read_rule();
	at_each(rule);
	snprintf(url, sizeof(url), "redis+quorum://latchkey:SECRET@%s?command_timeout=300",
	         setup.url + strlen("redis+quorum://"));
}

static void *acquire_and_release(void *lock)
{
	lk_err err = lk_lock_acquire(lock, WAIT_MS, NULL);

	return err || lk_lock_release(lock) ? lock : NULL;
}

static bool is_waited_for(lk_lock *lock)
{
	lk_lock_status status;

	return lk_lock_query(lock, &status) == LK_OK && status.held && status.queue_len == 2;
}

/* Of a client that is gone, behind all others: a ticket before it is not the last of the queue. */
#define LAST "9000000000000000"
#define ENQUEUE_LAST "ZADD lk:{a}:q " LAST " q1:gone:n1:1000:r:" LAST ":0"

/* A lock is handed off from one client to a waiting one, which is not the last. */
static bool hand_off(lk_lock *from, lk_lock *to)
{
	pthread_t thread;
	void *failed;
	bool ok;

	if (lk_lock_acquire(from, WAIT_MS, NULL))
		return false;
	at_each(ENQUEUE_LAST);
	pthread_create(&thread, NULL, acquire_and_release, to);
	ok = WITHIN(2000, is_waited_for(from));
	ok = lk_lock_release(from) == LK_OK && ok;
	pthread_join(thread, &failed);
	return ok && !failed;
}

/* Each thing that a lock can do. */
static bool use_clients(lk_client *one, lk_client *two)
{
	lk_lock *lock = NULL, *other = NULL;
	lk_kind kind;

	return !lk_lock_open(one, "a", 0, NULL, &lock) &&
	       !lk_lock_open(two, "a", 0, NULL, &other) && !lk_lock_acquire(lock, WAIT_MS, NULL) &&
	       !lk_lock_extend(lock, 20000) && lk_lock_acquire(other, 0, NULL) == LK_EBUSY &&
	       lk_lock_acquire(other, 50, NULL) == LK_ETIMEDOUT &&
	       !lk_client_name_kind(one, "a", 0, &kind) && kind == LK_KIND_LOCK &&
	       !lk_lock_break(other, NULL) && lk_lock_release(lock) == LK_ELOST &&
	       hand_off(lock, other);
}

static bool use_everything(void)
{
	lk_client *one = NULL, *two = NULL;
	bool ok = !lk_client_open(url, NULL, &one) && !lk_client_open(url, NULL, &two) &&
	          use_clients(one, two);

	ok = !lk_client_close(one) && ok;
	return !lk_client_close(two) && ok;
}

TEST(rights_in_the_protocol_page_are_enough)
{
	set_up();
	ck_assert_msg(use_everything(), "%s", lk_errmsg());
}

/* Find the next "+command" of the rule. */
static const char *next_right(const char *at, char right[40])
{
	at = strstr(at, " +");
	if (at)
		snprintf(right, 40, "%.*s", (int)strcspn(at + 2, " "), at + 2);
	return at ? at + 2 : NULL;
}

TEST_LIMIT(each_right_is_needed_but_for_the_last_ones, 90)
{
	char right[40], command[80];
	const char *spare, *at = rule;

	set_up();
	spare = strstr(rule, SPARE);
	while ((at = next_right(at, right))) {
		snprintf(command, sizeof(command), COMMAND "-%s", right);
		at_each("DEL lk:{a} lk:{a}:q");
		at_each(command);
		ck_assert_msg(use_everything() == (at > spare), "+%s is %s", right,
		              at > spare ? "needed" : "not needed");
		snprintf(command, sizeof(command), COMMAND "+%s", right);
		at_each(command);
	}
}

TEST(missing_right_to_info_is_named)
{
	lk_client *client;

	set_up();
	at_each(COMMAND "-info");
	EXPECT(lk_client_open(url, NULL, &client), LK_EAUTH);
	ck_assert_msg(strstr(lk_errmsg(), "+info") != NULL, "%s", lk_errmsg());
}
