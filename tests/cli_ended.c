/* SPDX-License-Identifier: MIT
 * The end of a command: after a loss, when no process of it is left, whichever group or session it
 * moved to and whichever signals it traps; otherwise, when its process group is empty.
 *
 * The kernel is the witness: each command takes a flock, and every process that it starts inherits
 * the descriptor.  The flock is free when the last of them is dead. */
#include "command_server.h"
#include "process.h"
#include "proxy.h"
#include "redis.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Between the two the test inserts a worker that ignores TERM. */
struct shape {
	const char *before, *after;
};

static const struct shape shapes[] = {
	{"timeout 100 sh -c '", "'; true"},
	{"setsid sh -c '", "' & sleep 98; true"},
	{"nohup sh -c '", "' >/dev/null 2>&1 & sleep 98; true"},
	{"(setsid sh -c '", "' &) ; sleep 98; true"},
	{"setsid sh -c \"(timeout 100 sh -c '", "' &) ; exit\"; sleep 98; true"},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static struct proxy proxy;
static struct command cmds[SHAPES], nexts[SHAPES], other;

static const char *file_of(const char *what, size_t i)
{
	char name[32];

	snprintf(name, sizeof(name), "%s%zu", what, i);
	return command_file(name);
}

static const char *name_of(size_t i)
{
	static const char *const names[] = {"a0", "a1", "a2", "a3", "a4"};

	return names[i];
}

/* Make a command line of this shape, which takes the witness's flock. */
static void make_line(char *line, size_t size, const struct shape *shape, size_t i)
{
	const char *witness = file_of("witness", i);

	snprintf(line, size,
	         "exec 9>%s; flock 9; %strap : TERM; touch %s; while test -e %s; do sleep .05; "
	         "done%s",
	         witness, shape->before, file_of("up", i), witness, shape->after);
}

static void assert_ready(size_t i)
{
	ck_assert_msg(WITHIN(8000, !access(file_of("up", i), F_OK)), "%s does not start",
	              shapes[i].before);
	/* Check that a live process holds the flock. */
	ck_assert_int_eq(shell("flock -n %s true", file_of("witness", i)), 1);
}

/* Start one command of each shape, each with its own lock. */
static void start_all(const char *option, const char *value)
{
	char line[1024];

	for (size_t i = 0; i < SHAPES; i++) {
		make_line(line, sizeof(line), &shapes[i], i);
		START(&cmds[i], "latchkey", "lock", option, value, name_of(i), "-c", line);
	}
	for (size_t i = 0; i < SHAPES; i++)
		assert_ready(i);
}

/* Start the next holders, which wait for these locks; each checks the witness when it enters. */
static void start_nexts(void)
{
	char line[256];

	for (size_t i = 0; i < SHAPES; i++) {
		snprintf(line, sizeof(line), "flock -n %s true || exit 9", file_of("witness", i));
		START(&nexts[i], "latchkey", "lock", name_of(i), "-c", line);
	}
	for (size_t i = 0; i < SHAPES; i++)
		ck_assert(WITHIN(8000, command_waiting_is(name_of(i), 1)));
}

static void assert_lost(size_t i)
{
	ck_assert_msg(command_wait(&cmds[i], 8000), "%s does not end", shapes[i].before);
	ck_assert_msg(shell("flock -n %s true", file_of("witness", i)) == 0,
	              "%s: latchkey ended before its command", shapes[i].before);
	ck_assert_msg(WIFEXITED(cmds[i].status) && WEXITSTATUS(cmds[i].status) == 79, "%s: %x %s",
	              shapes[i].before, cmds[i].status, cmds[i].err);
	ck_assert_msg(!strstr(cmds[i].err, "could not be killed"), "%s: %s", shapes[i].before,
	              cmds[i].err);
}

static void assert_next_is_alone(size_t i)
{
	ck_assert_msg(command_wait(&nexts[i], 8000), "no next holder after %s", shapes[i].before);
	ck_assert_msg(WIFEXITED(nexts[i].status) && WEXITSTATUS(nexts[i].status) == 0,
	              "%s: the next holder entered beside it: %x %s", shapes[i].before,
	              nexts[i].status, nexts[i].err);
}

static void assert_nothing_left(void)
{
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}

TEST_LIMIT(broken_lock_leaves_no_descendant, 60)
{
	begin();
	start_all("--lease", "10");
	for (size_t i = 0; i < SHAPES; i++)
		RUNS(0, &other, "latchkey", "break", name_of(i));
	for (size_t i = 0; i < SHAPES; i++)
		assert_lost(i);
	assert_nothing_left();
}

TEST_LIMIT(emptied_store_leaves_no_descendant, 60)
{
	struct redis *redis;

	begin();
	start_all("--lease", "2");
	redis = redis_open(&server);
	redis_do(redis, "FLUSHALL");
	redis_close(redis);
	for (size_t i = 0; i < SHAPES; i++)
		assert_lost(i);
	assert_nothing_left();
}

TEST_LIMIT(max_hold_leaves_no_descendant, 60)
{
	begin();
	start_all("--max-hold", "8"); /* time for all to start */
	start_nexts();
	for (size_t i = 0; i < SHAPES; i++)
		assert_next_is_alone(i);
	for (size_t i = 0; i < SHAPES; i++)
		assert_lost(i);
	assert_nothing_left();
}

TEST_LIMIT(expired_lease_leaves_no_descendant, 60)
{
	begin();
	start_all("--lease", "3");
	start_nexts();
	server_pause(&server);
	for (size_t i = 0; i < SHAPES; i++)
		assert_lost(i);
	server_resume(&server);
	for (size_t i = 0; i < SHAPES; i++)
		assert_next_is_alone(i);
	assert_nothing_left();
}

TEST_LIMIT(hole_in_the_network_leaves_no_descendant, 60)
{
	struct proxy_fault hole = {.stall = true};

	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	command_setup(proxy.url);
	start_all("--lease", "3");
	/* The next holders still reach the store. */
	setenv("LATCHKEY_URL", server.url, 1);
	start_nexts();
	proxy_set_all(&proxy, &hole);
	for (size_t i = 0; i < SHAPES; i++)
		assert_next_is_alone(i);
	for (size_t i = 0; i < SHAPES; i++)
		assert_lost(i);
	proxy_stop(&proxy);
	assert_nothing_left();
}

/* The guard acts alone: latchkey is stopped. */
TEST_LIMIT(stopped_latchkey_leaves_no_descendant, 60)
{
	begin();
	start_all("--lease", "3");
	start_nexts();
	for (size_t i = 0; i < SHAPES; i++)
		kill(cmds[i].pid, SIGSTOP);
	for (size_t i = 0; i < SHAPES; i++)
		assert_next_is_alone(i);
	for (size_t i = 0; i < SHAPES; i++)
		kill(cmds[i].pid, SIGCONT);
	for (size_t i = 0; i < SHAPES; i++)
		assert_lost(i);
	assert_nothing_left();
}

/* The guard acts alone: latchkey is killed during the grace period. */
TEST(latchkey_killed_during_the_grace_leaves_no_descendant)
{
	char line[1024];

	begin();
	make_line(line, sizeof(line), &shapes[0], 0);
	START(&cmds[0], "latchkey", "lock", "--lease", "60", "--max-hold", "8", "a0", "-c", line);
	assert_ready(0);
	/* TERM is sent a quarter of max-hold before its end. */
	ck_assert(WITHIN(15000, strstr(command_err(&cmds[0]), "max-hold")));
	ck_assert_int_eq(shell("flock -n %s true", file_of("witness", 0)), 1);
	kill(cmds[0].pid, SIGKILL);
	ck_assert(WITHIN(2000, shell("flock -n %s true", file_of("witness", 0)) == 0));
	ck_assert(WITHIN(2000, command_count() == 0));
	server_stop(&server);
}

/* latchkey acts alone: the guard is dead. */
TEST_LIMIT(killed_guard_leaves_no_descendant, 60)
{
	begin();
	start_all("--lease", "10");
	start_nexts();
	for (size_t i = 0; i < SHAPES; i++)
		kill(command_child(cmds[i].pid), SIGKILL);
	for (size_t i = 0; i < SHAPES; i++)
		assert_next_is_alone(i);
	for (size_t i = 0; i < SHAPES; i++)
		ck_assert(command_wait(&cmds[i], 8000));
	assert_nothing_left();
}

/* The command itself has ended, and the rest of its group is being ended, when the lock is lost. */
TEST(loss_while_the_group_is_being_ended_leaves_no_daemon)
{
	struct shape shape = {"setsid sh -c '", ""};
	char line[1024], after[256];
	pid_t main;

	begin();
	snprintf(after, sizeof(after),
	         "' & (trap '' TERM; sleep 97) & until test -e %s; do sleep .02; done; exit 3",
	         file_of("go", 0));
	shape.after = after;
	make_line(line, sizeof(line), &shape, 0);
	START(&cmds[0], "latchkey", "lock", "a0", "-c", line);
	assert_ready(0);
	main = command_child(command_child(cmds[0].pid));
	ck_assert_int_gt(main, 0);
	ck_assert_int_eq(shell("touch %s", file_of("go", 0)), 0);
	ck_assert(WITHIN(5000, !proc_state(main)));
	RUNS(0, &other, "latchkey", "break", "a0");
	assert_lost(0);
	assert_nothing_left();
}

/* A later loss does not change that the command ended normally. */
TEST(command_that_ended_before_the_loss_leaves_its_daemons)
{
	struct shape shape = {"setsid sh -c '", ""};
	char line[1024], after[256];

	begin();
	snprintf(after, sizeof(after), "' & until test -e %s; do sleep .02; done; exit 3",
	         file_of("go", 0));
	shape.after = after;
	make_line(line, sizeof(line), &shape, 0);
	START(&cmds[0], "latchkey", "lock", "--lease", "3", "a0", "-c", line);
	assert_ready(0);
	kill(cmds[0].pid, SIGSTOP);
	ck_assert(WITHIN(1000, proc_state(cmds[0].pid) == 'T'));
	ck_assert_int_eq(shell("touch %s", file_of("go", 0)), 0);
	ck_assert(WITHIN(1500, command_count_of("sh") == 1));
	RUNS(0, &other, "latchkey", "lock", "a0", "true"); /* the lease has expired */
	kill(cmds[0].pid, SIGCONT);
	ck_assert(command_wait(&cmds[0], 5000));
	ck_assert_int_eq(WEXITSTATUS(cmds[0].status), 79);
	ck_assert_int_eq(shell("flock -n %s true", file_of("witness", 0)), 1);
	unlink(file_of("witness", 0));
	ck_assert(WITHIN(5000, command_count() == 0));
	server_stop(&server);
}

/* Each process lives for the time of a fork: a walk of /proc finds it already dead. */
TEST(process_that_forks_away_is_ended)
{
	char line[1024];

	begin();
	snprintf(line, sizeof(line),
	         "exec 9>%s; flock 9; setsid sh -c \"trap '' TERM; "
	         "f() { test -e %s && f & } ; touch %s; f\"; sleep 98; true",
	         file_of("witness", 0), file_of("witness", 0), file_of("up", 0));
	START(&cmds[0], "latchkey", "lock", "a0", "-c", line);
	assert_ready(0);
	RUNS(0, &other, "latchkey", "break", "a0");
	ck_assert(command_wait(&cmds[0], 8000));
	unlink(file_of("witness", 0));
	ck_assert_ptr_null(strstr(cmds[0].err, "could not be killed"));
	ck_assert_int_eq(command_count(), 0);
	server_stop(&server);
}
