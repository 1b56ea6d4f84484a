/* SPDX-License-Identifier: MIT
 * The user of sentinels that docs/sentinel.md has administrators create, on real sentinels: its
 * rights suffice to follow a failover, each of them is used, and the rights for doctor suffice. */
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/redis.h"
#include "harness/sentinel_setup.h"
#include "harness/test.h"

#include <stdio.h>
#include <string.h>

#define RULE_MAX 400
#define RIGHTS_MAX 8

/* The page's command begins so; that for servers has other channels. */
#define COMMAND "ACL SETUSER latchkey on >SECRET resetkeys resetchannels &+switch-master "
/* The page's rows of rights that only help. */
#define NAME_ROW "| `+client\\|setname` | a name in a sentinel's CLIENT LIST |"
#define DOCTOR_ROW "| `+sentinel\\|master +sentinel\\|ckquorum` | `latchkey doctor`: "

static struct sentinel_setup setup;

/* The page's line that begins so, without its end. */
static void read_line(const char *begins, char line[RULE_MAX])
{
	FILE *page = fopen("docs/sentinel.md", "re");

	ck_assert(page != NULL);
	while (fgets(line, RULE_MAX, page) && strncmp(line, begins, strlen(begins)) != 0)
		line[0] = '\0';
	fclose(page);
	line[strcspn(line, "\n")] = '\0';
	ck_assert_msg(line[0], "no line \"%s...\"", begins);
}

/* Give the user these rights at all sentinels; more: "" or a further rule. */
static void grant(const char *rule, const char *more)
{
	char command[2 * RULE_MAX];

	/* The name is not needed, but its refusals would be logged. */
	snprintf(command, sizeof(command), "%s +client|setname %s", rule, more);
	for (int i = 0; i < SETUP_SENTINELS; i++) {
		struct redis *redis = redis_open(&setup.sentinels[i]);
		redis_do(redis, "ACL DELUSER latchkey");
		redis_do(redis, command);
		redis_do(redis, "ACL LOG RESET");
		redis_close(redis);
	}
}

/* What the first sentinel refused. */
static bool refused(const char *object)
{
	struct redis *redis = redis_open(&setup.sentinels[0]);
	const char *entries = redis_text(redis, "ACL LOG");
	bool found = object[0] ? strstr(entries, object) != NULL : entries[0] != '\0';

	redis_close(redis);
	return found;
}

static lk_err open_client(lk_client **client)
{
	const lk_client_options options = {.sentinel_user = "latchkey",
	                                   .sentinel_password = "SECRET",
	                                   .connect_timeout_ms = 1000,
	                                   .command_timeout_ms = 1000,
	                                   .grace_ms = 100};

	return lk_client_open(setup.url, &options, client);
}

static bool is_at(lk_client *client, int server)
{
	char address[40];
	lk_server found;

	snprintf(address, sizeof(address), "127.0.0.1:%d", setup.servers[server].port);
	return lk_client_server(client, &found) == LK_OK && !strcmp(found.address, address);
}

TEST_LIMIT(rights_on_the_page_suffice_to_follow, 60)
{
	char rule[RULE_MAX];
	lk_client *client;
	lk_lock *lock;
	int master;

	read_line(NAME_ROW, rule);
	read_line(COMMAND, rule);
	sentinel_setup_start(&setup, NULL);
	grant(rule, "");
	OK(open_client(&client));
	lock = lock_named(client, "a");
	OK(lk_lock_acquire(lock, 5000, NULL));
	nap_ms(2500); /* a holder's client asks once a second */
	sentinel_setup_failover(&setup);
	master = sentinel_setup_await_switch(&setup, 0);
	ck_assert(WITHIN(5000, is_at(client, master)));
	OK(lk_client_close(client));
	ck_assert(!refused(""));
	sentinel_setup_stop(&setup);
}

TEST_LIMIT(each_right_on_the_page_is_used, 60)
{
	const char *objects[RIGHTS_MAX] = {"+switch-master"};
	char rule[RULE_MAX], words[RULE_MAX];
	int count = 1;

	read_line(COMMAND, rule);
	snprintf(words, sizeof(words), "%s", rule + strlen(COMMAND "nocommands "));
	for (char *word = words; *word; count++) {
		size_t len = strcspn(word, " ");
		bool is_last = !word[len];
		ck_assert_int_lt(count, RIGHTS_MAX);
		ck_assert_int_eq(word[0], '+');
		word[len] = '\0';
		objects[count] = word + 1;
		word += len + !is_last;
	}
	ck_assert_int_eq(count, 4);
	sentinel_setup_start(&setup, NULL);
	for (int i = 0; i < count; i++) {
		char less[100] = "resetchannels";
		lk_client *client;
		lk_err err;
		if (i)
			snprintf(less, sizeof(less), "-%s", objects[i]);
		grant(rule, less);
		err = open_client(&client);
		if (!err) {
			lk_lock *lock = lock_named(client, "a");
			OK(lk_lock_acquire(lock, 5000, NULL));
			ck_assert_msg(WITHIN(5000, refused(objects[i])), "%s is not used",
			              objects[i]);
			OK(lk_client_close(client));
		} else {
			ck_assert_int_eq(err, LK_EAUTH);
		}
		ck_assert_msg(refused(objects[i]), "%s is not used", objects[i]);
	}
	sentinel_setup_stop(&setup);
}

/* ---- Doctor ------------------------------------------------------------------------------- */

static void keep_sentinels(void *arg, const lk_finding *finding)
{
	if (!strcmp(finding->topic, "sentinels"))
		snprintf(arg, RULE_MAX, "%s [%s]", finding->text, finding->cure);
}

static void examine(char found[RULE_MAX])
{
	const lk_client_options options = {.sentinel_user = "latchkey",
	                                   .sentinel_password = "SECRET"};

	found[0] = '\0';
	OK(lk_doctor(setup.url, &options, keep_sentinels, found, NULL));
}

TEST_LIMIT(doctor_needs_the_rights_of_its_row, 60)
{
	char rule[RULE_MAX], row[RULE_MAX], found[RULE_MAX];

	read_line(COMMAND, rule);
	read_line(DOCTOR_ROW, row);
	sentinel_setup_start(&setup, NULL);
	grant(rule, "");
	examine(found);
	ck_assert_msg(strstr(found, "cannot tell how many there are") &&
	                      strstr(found, "[on the sentinels: ACL SETUSER latchkey "
	                                    "+sentinel|master +sentinel|ckquorum]"),
	              "%s", found);
	grant(rule, "+sentinel|master +sentinel|ckquorum");
	examine(found);
	ck_assert_msg(!strncmp(found, "3, quorum 2, and all 3 of the URL", 33), "%s", found);
	ck_assert(!refused(""));
	sentinel_setup_stop(&setup);
}
