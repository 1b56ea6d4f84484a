/* SPDX-License-Identifier: MIT
 * The role that docs/etcd.md has administrators create.  Its rights suffice for everything that the
 * library does on etcd, and without any part of them a call and lk_doctor() say what is missing. */
#include "harness/etcd_server.h"
#include "harness/everything.h"
#include "harness/handles.h"
#include "harness/process.h"
#include "harness/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINE_MAX_LEN 200
#define LONG_MS 30000 /* for what comes soon on a machine that is not loaded */
#define ROOT "--user root:r "

static struct etcd_servers servers;

/* Run the page's commands, which begin so. */
#define COMMAND "    etcdctl "

static void run_the_page(void)
{
	FILE *page = fopen("docs/etcd.md", "re");
	char line[LINE_MAX_LEN];
	int count = 0;

	ck_assert(page != NULL);
	while (fgets(line, sizeof(line), page)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, COMMAND "role ", strlen(COMMAND "role ")) != 0)
			continue;
		etcd_ctl(&servers, "%s", line + strlen(COMMAND));
		count++;
	}
	fclose(page);
	ck_assert_int_eq(count, 2);
}

/* A node that demands users; "latchkey" has that role. */
static void begin(void)
{
	memset(&servers, 0, sizeof(servers));
	servers.args[0] = "--bcrypt-cost";
	servers.args[1] = "4";
	etcd_start(&servers, 1);
	etcd_ctl(&servers, "user add root:r");
	etcd_ctl(&servers, "role add root");
	etcd_ctl(&servers, "user grant-role root root");
	etcd_ctl(&servers, "user add latchkey:SECRET");
}

static void protect(void)
{
	etcd_ctl(&servers, "user grant-role latchkey latchkey");
	etcd_ctl(&servers, "auth enable");
}

/* ---- What lk_doctor() finds of rights ------------------------------------------------------- */

static struct {
	lk_fitness worst;
	char texts[2000], cures[2000];
} rights;

static void keep(void *arg, const lk_finding *finding)
{
	(void)arg;
	if (strcmp(finding->topic, "rights") != 0)
		return;
	if (finding->fitness > rights.worst)
		rights.worst = finding->fitness;
	snprintf(rights.texts + strlen(rights.texts), sizeof(rights.texts) - strlen(rights.texts),
	         "%s\n", finding->text);
	snprintf(rights.cures + strlen(rights.cures), sizeof(rights.cures) - strlen(rights.cures),
	         "%s\n", finding->cure);
}

static void examine(void)
{
	memset(&rights, 0, sizeof(rights));
	OK(lk_doctor(etcd_url(&servers, "latchkey:SECRET@", ""), NULL, keep, NULL, NULL));
}

TEST_LIMIT(role_in_the_page_is_enough, 120)
{
	const char *step;

	begin();
	run_the_page();
	protect();
	ck_assert_msg(use_everything(etcd_url(&servers, "", ""), &step) == LK_OK, "%s: %s", step,
	              lk_errmsg());
	examine();
	ck_assert_msg(rights.worst == LK_FIT, "%s", rights.texts);
	etcd_stop(&servers);
}

/* ---- Each part of it ------------------------------------------------------------------------ */

/* The page's table: what the role's one right consists of. */
static const struct part {
	const char *keys, *right; /* as etcdctl has them */
	const char *without;      /* what is left without a part of it */
	const char *found;        /* by lk_doctor() */
	lk_err err;               /* of what needs it */
	lk_fitness fitness;
	lk_kind kind; /* that needs it, if the store has it; else all do */
} parts[] = {
	{"lk/A lk/[", "read", NULL, "the kinds of names: ", LK_EAUTH, LK_UNFIT, LK_KIND_NONE},
	{"lk/L/ lk/L0", "readwrite", NULL, "tickets of locks: ", LK_EAUTH, LK_UNFIT, LK_KIND_NONE},
	{"lk/c/ lk/c0", "readwrite", "read", "mailboxes: ", LK_EAUTH, LK_UNFIT, LK_KIND_NONE},
	{"lk/c/ lk/c0", "readwrite", "write", "mailboxes: ", LK_EAUTH, LK_UNFIT, LK_KIND_NONE},
	{"lk/e/ lk/e0", "readwrite", "read", "eras: ", LK_EAUTH, LK_UNFIT, LK_KIND_NONE},
	{"lk/e/ lk/e0", "readwrite", "write", "eras: ", LK_EAUTH, LK_UNFIT, LK_KIND_NONE},
	/* A role for locks only is possible. */
	{"lk/D lk/E", "write", NULL, "latches: ", LK_EAUTH, LK_FIT_WARN, LK_KIND_LATCH},
	{"lk/S lk/T", "write", NULL, "semaphores: ", LK_EAUTH, LK_FIT_WARN, LK_KIND_SEMAPHORE},
	/* Only for queries, and to be shown by those of others. */
	{"lk/i/ lk/i0", "readwrite", "write", "details of clients: ", LK_EAUTH, LK_FIT_WARN,
         LK_KIND_NONE},
	{"lk/i/ lk/i0", "readwrite", "read", "details of clients: ", LK_OK, LK_FIT_WARN,
         LK_KIND_NONE},
};

static bool has_kind(lk_kind kind)
{
	const lk_client_options options = {.user = "latchkey", .password = "SECRET"};
	const lk_semaphore_options three = {.capacity = 3};
	lk_client *client = client_with(etcd_url(&servers, "", "?lazy=1"), &options);
	lk_semaphore *semaphore;
	lk_latch *latch;
	lk_err err = LK_OK;

	if (kind == LK_KIND_LATCH)
		err = lk_latch_open(client, "kind", 0, NULL, &latch);
	else if (kind == LK_KIND_SEMAPHORE)
		err = lk_semaphore_open(client, "kind", 0, &three, &semaphore);
	OK(lk_client_close(client));
	return err != LK_EUNSUPPORTED;
}

static void lacks(const struct part *part)
{
	const char *step = "";
	lk_err err, expected = has_kind(part->kind) ? part->err : LK_OK;

	examine();
	ck_assert_msg(rights.worst == part->fitness && strstr(rights.texts, part->found), "%s: %s",
	              part->keys, rights.texts);
	ck_assert_ptr_nonnull(strstr(rights.cures,
	                             "etcdctl role grant-permission ROLE readwrite --prefix=true "
	                             "lk/"));
	err = use_everything(etcd_url(&servers, "", ""), &step);
	ck_assert_msg(err == expected, "%s without all of %s: %s: %s", part->keys, part->right,
	              lk_err_name(err), step);
	ck_assert_msg(!err || strstr(lk_errmsg(),
	                             "permission denied (the user's role needs readwrite for the "
	                             "prefix of the keys)"),
	              "%s: %s", step, lk_errmsg());
}

TEST_LIMIT(each_part_of_the_role_is_needed, 240)
{
	const char *step;

	begin();
	etcd_ctl(&servers, "role add latchkey");
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		etcd_ctl(&servers, "role grant-permission latchkey %s %s", parts[i].right,
		         parts[i].keys);
	protect();
	ck_assert_msg(use_everything(etcd_url(&servers, "", ""), &step) == LK_OK, "%s: %s", step,
	              lk_errmsg());
	examine();
	ck_assert_int_eq(rights.worst, LK_FIT);
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		etcd_ctl(&servers, ROOT "role revoke-permission latchkey %s", parts[i].keys);
		if (parts[i].without)
			etcd_ctl(&servers, ROOT "role grant-permission latchkey %s %s",
			         parts[i].without, parts[i].keys);
		lacks(&parts[i]);
		etcd_ctl(&servers, ROOT "role grant-permission latchkey %s %s", parts[i].right,
		         parts[i].keys);
	}
	etcd_stop(&servers);
}

/* ---- Rights that are taken away while a lock is held ---------------------------------------- */

static struct {
	pthread_mutex_t mutex;
	char text[8000];
} lines = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void note_line(void *arg, lk_log_level level, const char *line)
{
	size_t len;

	(void)arg;
	(void)level;
	pthread_mutex_lock(&lines.mutex);
	len = strlen(lines.text);
	snprintf(lines.text + len, sizeof(lines.text) - len, "%s\n", line);
	pthread_mutex_unlock(&lines.mutex);
}

static bool has_line(const char *part)
{
	bool has;

	pthread_mutex_lock(&lines.mutex);
	has = strstr(lines.text, part);
	pthread_mutex_unlock(&lines.mutex);
	return has;
}

static lk_lock *hold(lk_client **client, int64_t lease_ms)
{
	const lk_client_options options = {
		.user = "latchkey", .password = "SECRET", .log = note_line};
	lk_lock *lock;

	*client = client_with(etcd_url(&servers, "", ""), &options);
	lock = lock_leased(*client, "kept", lease_ms);
	OK(lk_lock_acquire(lock, LONG_MS, NULL));
	lines.text[0] = '\0';
	return lock;
}

static int64_t renewals(lk_client *client)
{
	lk_counters counters;

	OK(lk_client_counters(client, &counters));
	return counters.renewed;
}

#define IN_VAIN "cannot renew: "
#define DENIED                                                                                     \
	"etcdserver: permission denied (the user's role needs readwrite for the prefix of the "    \
	"keys)"

/* And not "no response". */
TEST_LIMIT(cause_of_a_loss_is_the_right_that_was_taken_away, 120)
{
	lk_client *client;
	lk_lock *lock;
	int64_t before;

	begin();
	run_the_page();
	protect();
	lock = hold(&client, 6000);
	etcd_ctl(&servers, ROOT "role revoke-permission latchkey --prefix=true lk/");
	ck_assert(WITHIN(LONG_MS, has_line(IN_VAIN)));
	ck_assert_msg(has_line(DENIED) && !has_line("no response"), "%s", lines.text);
	/* It comes back in time. */
	etcd_ctl(&servers, ROOT "role grant-permission latchkey --prefix=true readwrite lk/");
	before = renewals(client);
	ck_assert(WITHIN(LONG_MS, renewals(client) > before));
	ck_assert(lk_lock_is_mine(lock));
	lines.text[0] = '\0';
	etcd_ctl(&servers, ROOT "user revoke-role latchkey latchkey");
	ck_assert(WITHIN(LONG_MS, lk_lock_state(lock) == LK_STATE_LOST));
	ck_assert_msg(has_line(IN_VAIN) && has_line(DENIED) && !has_line("no response"), "%s",
	              lines.text);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EAUTH);
	OK(lk_client_close(client));
	etcd_stop(&servers);
}

TEST_LIMIT(cause_of_a_loss_is_the_password_that_was_changed, 120)
{
	lk_client *client;
	lk_lock *lock;

	begin();
	run_the_page();
	protect();
	lock = hold(&client, 3000);
	ck_assert(!shell("echo OTHER >%s/password", servers.dir));
	etcd_ctl(&servers, ROOT "user passwd latchkey --interactive=false <%s/password",
	         servers.dir);
	ck_assert(WITHIN(LONG_MS, lk_lock_state(lock) == LK_STATE_LOST));
	ck_assert_msg(has_line("cannot connect: ") && has_line("authentication failed") &&
	                      !has_line("no response"),
	              "%s", lines.text);
	EXPECT(lk_lock_release(lock), LK_ELOST);
	EXPECT(lk_lock_acquire(lock, 0, NULL), LK_EAUTH);
	ck_assert_ptr_nonnull(strstr(lk_errmsg(), "authentication failed"));
	OK(lk_client_close(client));
	etcd_stop(&servers);
}
