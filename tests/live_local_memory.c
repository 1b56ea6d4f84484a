/* SPDX-License-Identifier: MIT
 * The grace of the private server of local:.  There is none where nothing can be held: at the first
 * use after boot, and after a stop of a server that nobody used. */
#include "harness/handles.h"
#include "harness/local_folder.h"
#include "harness/process.h"
#include "harness/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *dir;

static lk_local_info status(void)
{
	lk_local_info info;

	OK(lk_local_status(&info));
	return info;
}

static void stop(void)
{
	OK(lk_local_stop());
}

/* As the kernel does when memory is short. */
static void kill_server(void)
{
	int64_t pid = status().pid;

	ck_assert_int_gt(pid, 1);
	ck_assert(!kill((pid_t)pid, SIGKILL));
	ck_assert(WITHIN(5000, proc_state((pid_t)pid) == 0));
}

/* The result of a try by a new client. */
static lk_err try_at(const char *url)
{
	lk_client *client = client_at(url);
	lk_lock *lock = lock_named(client, "tried");
	lk_err err = lk_lock_acquire(lock, 0, NULL);

	if (err)
		ck_assert_msg(strstr(lk_errmsg(), "forgotten a holder"), "%s", lk_errmsg());
	OK(lk_client_close(client));
	return err;
}

#define IMMEDIATE() EXPECT(try_at("local:"), LK_OK)
#define WAITS() EXPECT(try_at("local:"), LK_EBUSY)

/* What the file says of the boot, of nothing held. */
static void write_file(const char *text)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "%s/began", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

TEST(first_use_after_boot_is_immediate)
{
	dir = local_folder();
	IMMEDIATE();
	EXPECT(try_at("local:?prefix=other"), LK_OK);
	EXPECT(try_at("local:?db=3"), LK_OK);
	stop();
	/* The file is of an earlier boot. */
	write_file("00000000-0000-0000-0000-000000000000 77 0\n");
	IMMEDIATE();
	kill_server();
	write_file("00000000-0000-0000-0000-000000000000 77 0\n");
	IMMEDIATE();
}

TEST(use_after_a_stop_with_nothing_held_is_immediate)
{
	lk_client *client;
	lk_semaphore *semaphore;
	lk_latch *latch;

	dir = local_folder();
	for (int round = 0; round < 3; round++) {
		client = client_at("local:");
		OK(lk_lock_acquire(lock_named(client, "a"), 0, NULL));
		OK(lk_lock_release(lock_named(client, "a")));
		semaphore = semaphore_of(client, "b", 2, 0);
		OK(lk_semaphore_release(semaphore, permits_of(semaphore, 1, 0)));
		/* A rate and a latch are not held. */
		OK(lk_semaphore_acquire(semaphore_with(client, "c",
		                                       &(lk_semaphore_options){.capacity = 2,
		                                                               .lease_ms = 60000,
		                                                               .fixed = true}),
		                        1, 0, NULL));
		OK(lk_latch_open(client, "d", 0, NULL, &latch));
		OK(lk_latch_set(latch, 3, NULL));
		OK(lk_client_close(client));
		stop();
	}
}

TEST(waits_after_a_kill_of_the_server)
{
	dir = local_folder();
	IMMEDIATE();
	kill_server();
	WAITS();
	/* This server may have forgotten a holder, too: nothing is known after it. */
	stop();
	WAITS();
}

/* What is held while the server is killed is reclaimed. */
TEST(hold_survives_a_kill_of_the_server)
{
	lk_client *client;
	lk_lock *lock;
	lk_counters counters;

	dir = local_folder();
	client = client_at("local:");
	lock = lock_leased(client, "a", 5000);
	OK(lk_lock_acquire(lock, 0, NULL));
	kill_server();
	WAITS();
	ck_assert(WITHIN(5000, lk_client_counters(client, &counters) == LK_OK &&
	                               counters.reclaimed == 1));
	ck_assert(lk_lock_is_mine(lock));
	OK(lk_lock_release(lock));
	OK(lk_client_close(client));
}

TEST(waits_after_a_stop_while_something_is_held)
{
	lk_client *client;
	lk_semaphore *semaphore;

	dir = local_folder();
	client = client_at("local:");
	OK(lk_lock_acquire(lock_named(client, "a"), 0, NULL));
	stop();
	WAITS();
	OK(lk_client_close(client));
	stop();
	write_file("00000000-0000-0000-0000-000000000000 77 0\n");
	client = client_at("local:?db=3");
	semaphore = semaphore_of(client, "b", 2, 0);
	permits_of(semaphore, 1, 0);
	stop();
	WAITS();
	OK(lk_client_close(client));
}

/* A client that is idle knows the marker of the server before. */
TEST(stop_and_start_under_an_idle_client_is_no_loss)
{
	lk_client *idle;
	lk_lock *lock;

	dir = local_folder();
	idle = client_at("local:");
	lock = lock_named(idle, "a");
	for (int round = 0; round < 3; round++) {
		lk_local_info info;
		OK(lk_lock_acquire(lock, 0, NULL));
		OK(lk_lock_release(lock));
		stop();
		OK(lk_local_start(&info));
		/* Whichever client connects first. */
		if (round)
			IMMEDIATE();
		ck_assert(WITHIN(8000, lk_lock_acquire(lock, 0, NULL) == LK_OK));
		OK(lk_lock_release(lock));
	}
	OK(lk_client_close(idle));
}

TEST(flush_is_a_loss)
{
	dir = local_folder();
	IMMEDIATE();
	ck_assert_int_eq(shell("redis-cli -s %s flushall >/dev/null", status().socket_path), 0);
	WAITS();
	stop();
	WAITS();
}

TEST(file_that_is_not_whole_vouches_for_nothing)
{
	static const char *const texts[] = {"", "x", "00000000-0000-0000", "- 1 1\n"};

	dir = local_folder();
	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		lk_local_info info;
		OK(lk_local_start(&info));
		kill_server();
		write_file(texts[i]);
		WAITS();
		kill_server();
	}
}

#define CLIENTS 12

static int use_at_once(void *arg, int in, int out)
{
	char byte;

	(void)arg;
	if (!line_write(out, "ready") || read(in, &byte, 1) != 1)
		return 1;
	for (int i = 0; i < 100; i++) {
		lk_client *client = client_at("local:");
		lk_lock *lock = lock_named(client, lk_client_id(client));
		lk_err err = lk_lock_acquire(lock, 0, NULL);
		OK(lk_client_close(client));
		if (err)
			return line_write(out, "%s", lk_err_name(err)), 1;
	}
	return 0;
}

/* All start the first server at once, and none of them waits. */
TEST_LIMIT(first_use_by_many_is_immediate, 60)
{
	struct process users[CLIENTS];

	dir = local_folder();
	for (int i = 0; i < CLIENTS; i++)
		process_start(&users[i], use_at_once, NULL);
	for (int i = 0; i < CLIENTS; i++)
		ck_assert_ptr_nonnull(line_read(users[i].out, 10000));
	for (int i = 0; i < CLIENTS; i++)
		ck_assert(write(users[i].in, "!", 1) == 1);
	for (int i = 0; i < CLIENTS; i++)
		ck_assert(process_succeeded(&users[i], 30000));
}

/* A binary that cannot run has held nothing. */
TEST(failed_start_leaves_the_first_use_immediate)
{
	char broken[140];
	lk_local_info info;

	dir = local_folder();
	snprintf(broken, sizeof(broken), "%s.broken", dir);
	ck_assert_int_eq(shell("echo 'no program' >%s; chmod 700 %s", broken, broken), 0);
	setenv("LATCHKEY_SERVER", broken, 1);
	EXPECT(lk_local_start(&info), LK_ESYSTEM);
	unsetenv("LATCHKEY_SERVER");
	IMMEDIATE();
}
