/* SPDX-License-Identifier: MIT
 * The user that docs/redis.md has administrators create.  Its rights suffice for everything
 * that locks, semaphores and latches do, and each right that the page calls necessary is necessary.
 */
#include "latch_watch.h"
#include "process.h"
#include "everything.h"
#include "redis.h"
#include "server.h"
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define RULE_MAX 1000

/* The beginning of the page's command, and its end: the rights that are not necessary. */
#define COMMAND "ACL SETUSER latchkey "
#define SPARE " +ping +hsetnx +unsubscribe +info"

static void read_rule(char rule[RULE_MAX])
{
	FILE *page = fopen("docs/redis.md", "re");

	ck_assert(page != NULL);
	while (fgets(rule, RULE_MAX, page) && strncmp(rule, COMMAND, strlen(COMMAND)) != 0)
		rule[0] = '\0';
	fclose(page);
	rule[strcspn(rule, "\n")] = '\0';
	ck_assert_msg(strstr(rule, SPARE) != NULL, "no line " COMMAND "..." SPARE);
}

/* ---- Errors behind the first write --------------------------------------------------------- */

struct scene {
	struct redis *redis;
	lk_client *client;
	int number; /* at the end of its names */
	lk_lock *lock;
	lk_semaphore *semaphore;
	lk_latch *latch;
	uint64_t hold;
};

static const char *named(const struct scene *scene, const char *what)
{
	static char name[40];

	snprintf(name, sizeof(name), "%s%d", what, scene->number);
	return name;
}

static void free_it(struct scene *scene)
{
	(void)scene;
}

static void hold_it(struct scene *scene)
{
	OK(lk_lock_acquire(scene->lock, 0, NULL));
	OK(lk_semaphore_acquire(scene->semaphore, 2, 0, &scene->hold));
}

static lk_err acquire_lock(struct scene *scene)
{
	return lk_lock_acquire(scene->lock, 0, NULL);
}

static lk_err extend_lock(struct scene *scene)
{
	return lk_lock_extend(scene->lock, 60000);
}

static lk_err break_lock(struct scene *scene)
{
	return lk_lock_break(scene->lock, NULL);
}

static lk_err release_lock(struct scene *scene)
{
	return lk_lock_release(scene->lock);
}

static lk_err acquire_permits(struct scene *scene)
{
	return lk_semaphore_acquire(scene->semaphore, 1, 0, &scene->hold);
}

static lk_err extend_permits(struct scene *scene)
{
	return lk_semaphore_extend(scene->semaphore, scene->hold, 60000);
}

static lk_err release_permit(struct scene *scene)
{
	return lk_semaphore_release_some(scene->semaphore, scene->hold, 1);
}

static lk_err open_semaphore(struct scene *scene)
{
	const lk_semaphore_options options = {.capacity = 3};
	lk_semaphore *semaphore = NULL;

	return lk_semaphore_open(scene->client, named(scene, "new"), 0, &options, &semaphore);
}

static lk_err resize_semaphore(struct scene *scene)
{
	return lk_semaphore_resize(scene->semaphore, 5);
}

static lk_err break_semaphore(struct scene *scene)
{
	return lk_semaphore_break(scene->semaphore, NULL);
}

static lk_err set_latch(struct scene *scene)
{
	return lk_latch_set(latch_named(scene->client, named(scene, "new")), 1, NULL);
}

static lk_err reset_latch(struct scene *scene)
{
	return lk_latch_reset(scene->latch, 5, NULL);
}

static lk_err step_latch(struct scene *scene)
{
	return lk_latch_down(scene->latch, 1, "x", 0, NULL);
}

static lk_err open_latch(struct scene *scene)
{
	return lk_latch_down(scene->latch, 2, "x", 0, NULL);
}

static lk_err remove_latch(struct scene *scene)
{
	return lk_latch_remove(scene->latch);
}

/* Each call that changes something, and its state before. */
static const struct change {
	const char *name;
	void (*prepare)(struct scene *scene);
	lk_err (*call)(struct scene *scene);
} changes[] = {
	{"acquire lock", free_it, acquire_lock},
	{"extend lock", hold_it, extend_lock},
	{"break lock", hold_it, break_lock},
	{"release lock", hold_it, release_lock},
	{"acquire permits", free_it, acquire_permits},
	{"extend permits", hold_it, extend_permits},
	{"release permit", hold_it, release_permit},
	{"open semaphore", free_it, open_semaphore},
	{"resize semaphore", hold_it, resize_semaphore},
	{"break semaphore", hold_it, break_semaphore},
	{"set latch", free_it, set_latch},
	{"reset latch", free_it, reset_latch},
	{"step", free_it, step_latch},
	{"last step", free_it, open_latch},
	{"remove latch", free_it, remove_latch},
};

/* The keys of its names. */
static void digest(const struct scene *scene, char text[50])
{
	snprintf(text, 50, "%s",
	         redis_text(scene->redis, "EVAL %s 0 %d",
	                    "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do "
	                    "if string.match(key, '{%a+' .. ARGV[1] .. '}') then "
	                    "all[#all + 1] = key .. redis.call('DUMP', key) .. "
	                    "(redis.call('PTTL', key) >= 0 and 1 or 0) end end "
	                    "table.sort(all) return redis.sha1hex(table.concat(all))",
	                    scene->number));
}

/* One call without one right.  Returns 1 if it was refused, 2 if it may have happened. */
static int change_without(struct scene *scene, const struct change *change, const char *right)
{
	char before[50], after[50];
	lk_err err;

	scene->lock = lock_named(scene->client, named(scene, "a"));
	scene->semaphore = semaphore_of(scene->client, named(scene, "s"), 3, 0);
	scene->latch = latch_named(scene->client, named(scene, "l"));
	OK(lk_latch_reset(scene->latch, 2, NULL));
	change->prepare(scene);
	digest(scene, before);
	redis_do(scene->redis, "ACL SETUSER latchkey -%s", right);
	err = change->call(scene);
	digest(scene, after);
	redis_do(scene->redis, "ACL SETUSER latchkey +%s", right);
	ck_assert_msg(!err || lk_err_is_ambiguous(err) || !strcmp(before, after),
	              "%s without +%s is %s and changed something: %s", change->name, right,
	              lk_err_name(err), lk_errmsg());
	/* A partial release is repeated for one command timeout, and says so. */
	ck_assert_msg(!err || strstr(lk_errmsg(), "(latchkey doctor names the right)") ||
	                      strstr(lk_errmsg(), "(a right is missing: +") ||
	                      change->call == release_permit,
	              "%s without +%s: %s", change->name, right, lk_errmsg());
	return !err ? 0 : lk_err_is_ambiguous(err) ? 2 : 1;
}

/* ---- Facts -------------------------------------------------------------------------------- */

TEST(rights_in_the_protocol_page_are_enough)
{
	struct test_server server;
	struct redis *redis;
	char rule[RULE_MAX];
	const char *step;

	read_rule(rule);
	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, rule);
	ck_assert_msg(use_everything(server.url, &step) == LK_OK, "%s: %s", step, lk_errmsg());
	/* No request was refused in the background, except those that the page names. */
	redis_do(redis, "ACL LOG RESET");
	redis_do(redis, "ACL SETUSER latchkey +client|setname +script|load");
	ck_assert_msg(use_everything(server.url, &step) == LK_OK, "%s: %s", step, lk_errmsg());
	ck_assert_str_eq(redis_text(redis, "ACL LOG"), "");
	redis_close(redis);
	server_stop(&server);
}

/* Otherwise the details of a crashed client would remain for ever. */
TEST(client_without_a_right_to_describe_itself_writes_nothing)
{
	lk_client_options options = {.user = "latchkey", .password = "SECRET"};
	struct test_server server;
	struct redis *redis;
	char rule[RULE_MAX];
	lk_client *client;
	lk_lock *lock;

	read_rule(rule);
	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, rule);
	redis_do(redis, "ACL SETUSER latchkey +client|setname +script|load -hsetnx");
	ck_assert_int_eq(lk_client_open(server.url, &options, &client), LK_OK);
	ck_assert_int_eq(lk_lock_open(client, "a", 0, NULL, &lock), LK_OK);
	ck_assert_int_eq(lk_lock_acquire(lock, 1000, NULL), LK_OK);
	WITHIN(2000, *redis_text(redis, "ACL LOG"));
	ck_assert_int_eq(redis_int(redis, "EXISTS lk:client:%s", lk_client_id(client)), 0);
	ck_assert_int_eq(lk_client_close(client), LK_OK);
	redis_close(redis);
	server_stop(&server);
}

/* Then a missing marker shows a loss, and nothing else does. */
TEST(hold_is_taken_back_without_the_right_to_info)
{
	const lk_client_options options = {
		.user = "latchkey", .password = "SECRET", .grace_ms = 1500};
	struct test_server server;
	struct redis *redis;
	lk_counters counters;
	char rule[RULE_MAX], marker[130];
	lk_client *client;
	lk_lock *lock, *theirs;
	const char *step;

	read_rule(rule);
	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, rule);
	redis_do(redis, "ACL SETUSER latchkey -info");
	ck_assert_msg(use_everything(server.url, &step) == LK_OK, "%s: %s", step, lk_errmsg());
	snprintf(marker, sizeof(marker), "%s", redis_marker(redis));
	ck_assert_msg(!strncmp(marker, "1 - ", 4), "%s", marker);
	client = client_with(server.url, &options);
	lock = lock_leased(client, "g", 600);
	theirs = lock_named(client_with(server.url, &options), "g");
	OK(lk_lock_acquire(lock, 3000, NULL));
	redis_do(redis, "FLUSHALL");
	EXPECT(lk_lock_acquire(theirs, 0, NULL), LK_EBUSY);
	ck_assert_str_ne(redis_marker(redis), marker);
	ck_assert_msg(!strncmp(redis_marker(redis), "1 - ", 4), "%s", redis_marker(redis));
	/* Three leases later it is held. */
	nap_ms(1800);
	ck_assert_int_eq(lk_lock_state(lock), LK_STATE_HELD);
	OK(lk_client_counters(client, &counters));
	ck_assert_int_eq(counters.reclaimed, 1);
	OK(lk_lock_release(lock));
	OK(lk_lock_acquire(theirs, 1000, NULL));
	redis_close(redis);
	server_stop(&server);
}

TEST(rights_in_the_protocol_page_are_all_needed)
{
	struct test_server server;
	struct redis *redis;
	char rule[RULE_MAX], right[40];
	const char *step, *at;
	size_t len;

	read_rule(rule);
	*strstr(rule, SPARE) = '\0';
	server_start(&server, NULL);
	redis = redis_open(&server);
	redis_do(redis, rule);
	ck_assert_msg(use_everything(server.url, &step) == LK_OK, "%s: %s", step, lk_errmsg());
	for (at = strchr(rule, '+'); at; at = strchr(at + len, '+')) {
		len = strcspn(at, " ");
		snprintf(right, sizeof(right), "%.*s", (int)len - 1, at + 1);
		redis_do(redis, "ACL SETUSER latchkey -%s", right);
		redis_do(redis, "SCRIPT FLUSH");
		ck_assert_msg(use_everything(server.url, &step) != LK_OK, "+%s is not needed",
		              right);
		redis_do(redis, "FLUSHALL");
		redis_do(redis, "ACL SETUSER latchkey +%s", right);
	}
	redis_close(redis);
	server_stop(&server);
}

/* A right may be withdrawn while a client works, so that a script stops in its middle. */
TEST(error_that_is_not_ambiguous_changed_nothing)
{
	const lk_client_options options = {
		.user = "latchkey", .password = "SECRET", .command_timeout_ms = 300};
	struct test_server server;
	struct scene scene = {0};
	char rule[RULE_MAX], right[40];
	int results[3] = {0};
	size_t len;

	read_rule(rule);
	*strstr(rule, SPARE) = '\0';
	server_start(&server, NULL);
	scene.redis = redis_open(&server);
	redis_do(scene.redis, rule);
	for (const char *at = strchr(rule, '+'); at; at = strchr(at + len, '+')) {
		len = strcspn(at, " ");
		snprintf(right, sizeof(right), "%.*s", (int)len - 1, at + 1);
		scene.client = client_with(server.url, &options);
		for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++, scene.number++)
			results[change_without(&scene, &changes[i], right)]++;
		lk_client_close(scene.client);
	}
	ck_assert_int_gt(results[0], 0);
	ck_assert_int_gt(results[1], 0);
	ck_assert_int_gt(results[2], 0);
	redis_close(scene.redis);
	server_stop(&server);
}
