/* SPDX-License-Identifier: MIT
 * The user that docs/cluster.md has administrators create at each node of a Cluster: its rights
 * suffice for everything, and each that the page calls necessary is necessary. */
#include "harness/cluster_setup.h"
#include "harness/cluster_slots.h"
#include "harness/everything.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define RULE_MAX 1000

/* The beginning of the page's command, a right that only a Cluster has, and the end: the rights
 * that are not necessary. */
#define COMMAND "ACL SETUSER latchkey "
#define OWN " +ssubscribe "
#define SPARE " +ping +hsetnx +sunsubscribe +info +cluster|myid"
#define MOVING "asking" /* necessary in a slot that migrates */

CLUSTER_SETUP_SHARED(NULL)

static void read_rule(char rule[RULE_MAX])
{
	FILE *page = fopen("docs/cluster.md", "re");

	ck_assert(page != NULL);
	while (fgets(rule, RULE_MAX, page) &&
	       (strncmp(rule, COMMAND, strlen(COMMAND)) != 0 || !strstr(rule, OWN)))
		rule[0] = '\0';
	fclose(page);
	rule[strcspn(rule, "\n")] = '\0';
	ck_assert_msg(strstr(rule, SPARE) != NULL, "no line " COMMAND "..." SPARE);
}

static const char *url_of(const struct cluster_setup *setup)
{
	static char url[200];

	snprintf(url, sizeof(url), "%s?grace=0", setup->url);
	return url;
}

/* At each node; as printf(). */
#define AT_EACH(setup, ...)                                                                        \
	do {                                                                                       \
		char command_[RULE_MAX + 60];                                                      \
		snprintf(command_, sizeof(command_), __VA_ARGS__);                                 \
		cluster_setup_each(setup, command_);                                               \
	} while (0)

/* What a node has refused, "" = nothing. */
static const char *refusals(const struct cluster_setup *setup)
{
	static char found[300];

	found[0] = '\0';
	for (int i = 0; i < CLUSTER_NODES && !found[0]; i++) {
		struct redis *redis = redis_open(&setup->nodes[i]);
		snprintf(found, sizeof(found), "%s", redis_text(redis, "ACL LOG"));
		redis_close(redis);
	}
	return found;
}

TEST_LIMIT(rights_in_the_protocol_page_are_enough_for_a_cluster, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char rule[RULE_MAX];
	const char *step;

	read_rule(rule);
	/* The page names these; each refusal would be logged. */
	AT_EACH(setup, "%s +client|setname +script|load", rule);
	cluster_setup_each(setup, "ACL LOG RESET");
	ck_assert_msg(use_everything(url_of(setup), &step) == LK_OK, "%s: %s", step, lk_errmsg());
	ck_assert_str_eq(refusals(setup), "");
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}

/* The user may not SUBSCRIBE, which only a single server needs. */
TEST_LIMIT(rights_in_the_protocol_page_are_enough_for_a_plain_url, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char rule[RULE_MAX], url[80];
	const char *step;

	read_rule(rule);
	AT_EACH(setup, "%s", rule);
	for (int node = 0; node < CLUSTER_NODES; node += CLUSTER_MASTERS) { /* also a replica */
		snprintf(url, sizeof(url), "redis://127.0.0.1:%d?grace=0", setup->nodes[node].port);
		ck_assert_msg(use_everything(url, &step) == LK_OK, "%s: %s", step, lk_errmsg());
	}
	cluster_setup_each(setup, "ACL LOG RESET");
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}

TEST_LIMIT(rights_in_the_protocol_page_are_all_needed_in_a_cluster, 120)
{
	struct cluster_setup *setup = cluster_setup_shared();
	char rule[RULE_MAX], right[40];
	const char *step, *at;
	size_t len;

	read_rule(rule);
	*strstr(rule, SPARE) = '\0';
	AT_EACH(setup, "%s", rule);
	ck_assert_msg(use_everything(url_of(setup), &step) == LK_OK, "%s: %s", step, lk_errmsg());
	for (at = strchr(rule, '+'); at; at = strchr(at + len, '+')) {
		len = strcspn(at, " ");
		snprintf(right, sizeof(right), "%.*s", (int)len - 1, at + 1);
		if (!strcmp(right, MOVING))
			continue;
		AT_EACH(setup, "ACL SETUSER latchkey -%s", right);
		cluster_setup_each(setup, "SCRIPT FLUSH");
		ck_assert_msg(use_everything(url_of(setup), &step) != LK_OK, "+%s is not needed",
		              right);
		for (int i = 0; i < CLUSTER_MASTERS; i++) {
			struct redis *redis = redis_open(&setup->nodes[i]);
			redis_do(redis, "FLUSHALL");
			redis_close(redis);
		}
		AT_EACH(setup, "ACL SETUSER latchkey +%s", right);
	}
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}

/* The text of an error names the right. */
TEST_LIMIT(missing_right_to_the_topology_is_named, 60)
{
	struct cluster_setup *setup = cluster_setup_shared();
	const lk_client_options options = {.user = "latchkey", .password = "SECRET"};
	const char *const urls[] = {url_of(setup), setup->nodes[0].url};
	char rule[RULE_MAX];
	lk_client *client;

	read_rule(rule);
	AT_EACH(setup, "%s -cluster|slots", rule);
	for (int i = 0; i < 2; i++) {
		EXPECT(lk_client_open(urls[i], &options, &client), LK_EAUTH);
		ck_assert_msg(strstr(lk_errmsg(), "+cluster|slots") != NULL, "%s", lk_errmsg());
	}
	cluster_setup_each(setup, "ACL LOG RESET");
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}

TEST_LIMIT(right_to_asking_is_needed_while_a_slot_moves, 60)
{
	const lk_client_options options = {.user = "latchkey", .password = "SECRET"};
	struct cluster_setup *setup = cluster_setup_shared();
	char rule[RULE_MAX];
	lk_client *client;
	lk_lock *lock;
	int slot, to;

	read_rule(rule);
	AT_EACH(setup, "%s", rule);
	client = client_with(url_of(setup), &options);
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 5000, NULL));
	slot = cluster_slot_of(setup, "lk:{a}");
	to = (cluster_slot_owner(setup, "lk:{a}") + 1) % CLUSTER_MASTERS;
	cluster_slot_open(setup, slot, to);
	cluster_slot_move_keys(setup, slot, to, CLUSTER_ALL_KEYS);
	OK(lk_lock_extend(lock, 60000));
	cluster_setup_each(setup, "ACL SETUSER latchkey -" MOVING);
	EXPECT(lk_lock_extend(lock, 60000), LK_EAUTH);
	ck_assert_msg(strstr(lk_errmsg(), "+" MOVING) != NULL, "%s", lk_errmsg());
	ck_assert_ptr_nonnull(strstr(refusals(setup), MOVING));
	cluster_setup_each(setup, "ACL SETUSER latchkey +" MOVING);
	cluster_slot_close(setup, slot, to);
	WITHIN(1000, lk_lock_extend(lock, 60000) == LK_OK); /* too many redirects: after a pause */
	OK(lk_client_close(client));
	cluster_setup_each(setup, "ACL LOG RESET");
	cluster_setup_each(setup, "ACL DELUSER latchkey");
}
