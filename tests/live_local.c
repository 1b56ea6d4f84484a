/* SPDX-License-Identifier: MIT
 * The private server of local:, in a directory for each test.  Such a server is not a child of the
 * test, so a guard ends it when the test ends. */
#include "local/local.h"
#include "local_folder.h"
#include "base/os.h"
#include "process.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STARTERS 20

static const char *dir;

static lk_local_info started(void)
{
	lk_local_info info;
	lk_err err = lk_local_start(&info);

	ck_assert_msg(err == LK_OK, "%s: %s", lk_err_name(err), lk_errmsg());
	ck_assert(info.running);
	ck_assert_int_gt(info.pid, 1);
	return info;
}

static lk_local_info status(void)
{
	lk_local_info info;
	lk_err err = lk_local_status(&info);

	ck_assert_msg(err == LK_OK, "%s: %s", lk_err_name(err), lk_errmsg());
	return info;
}

/* No process holds the directory's lock.  LOCK_UN at once, so that this check has no effect. */
static bool lock_is_free(void)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool is_free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;

	ck_assert_int_ge(fd, 0);
	close(fd);
	return is_free;
}

static bool gone(int64_t pid)
{
	char state = proc_state((pid_t)pid);

	return !state || state == 'Z';
}

static void refused(lk_err err, lk_err expected, const char *text)
{
	ck_assert_msg(err == expected, "%s: %s", lk_err_name(err), lk_errmsg());
	ck_assert_msg(strstr(lk_errmsg(), text), "'%s' does not say '%s'", lk_errmsg(), text);
}

TEST(local_starts_answers_and_stops)
{
	lk_local_info info;
	char path[108];
	struct stat folder, sock;

	dir = local_folder();
	info = status();
	ck_assert(!info.running);
	ck_assert_int_eq(info.pid, 0);
	ck_assert_msg(access(dir, F_OK), "a look has made %s", dir);
	snprintf(path, sizeof(path), "%s", info.socket_path);

	info = started();
	ck_assert_str_eq(info.socket_path, path);
	ck_assert(info.server_path[0] == '/');
	ck_assert(!stat(dir, &folder) && !stat(path, &sock));
	ck_assert_int_eq(folder.st_mode & 07777, 0700);
	ck_assert(S_ISSOCK(sock.st_mode) && !(sock.st_mode & 077));
	ck_assert(!lock_is_free());
	ck_assert_int_eq(started().pid, info.pid);
	ck_assert_int_eq(status().pid, info.pid);

	ck_assert_int_eq(lk_local_stop(), LK_OK);
	ck_assert(gone(info.pid));
	ck_assert(lock_is_free());
	ck_assert(!status().running);
	ck_assert_str_eq(status().socket_path, path);
}

TEST(local_stop_without_a_server_says_so)
{
	dir = local_folder();
	ck_assert_int_eq(lk_local_stop(), LK_EABSENT); /* not even a directory */
	started();
	ck_assert_int_eq(lk_local_stop(), LK_OK);
	ck_assert_int_eq(lk_local_stop(), LK_EABSENT);
}

TEST(local_stops_whatever_is_locked)
{
	lk_local_info info;

	dir = local_folder();
	info = started();
	ck_assert_int_eq(shell("redis-cli -s %s set a b >/dev/null", info.socket_path), 0);
	ck_assert_int_eq(lk_local_stop(), LK_OK);
	info = started();
	/* The server keeps nothing on disk. */
	ck_assert_int_eq(shell("[ \"$(redis-cli -s %s dbsize)\" = 0 ]", info.socket_path), 0);
}

TEST(local_server_is_what_locks_need)
{
	lk_local_info info;

	dir = local_folder();
	info = started();
	ck_assert_int_eq(shell("s=%s; get() { redis-cli -s $s config get $1 | tail -n +2; }\n"
	                       "[ \"$(get port)\" = 0 ] && [ -z \"$(get save)\" ] &&\n"
	                       "[ \"$(get appendonly)\" = no ] &&\n"
	                       "[ \"$(get maxmemory-policy)\" = noeviction ]",
	                       info.socket_path),
	                 0);
}

static int start_one(void *arg, int in, int out)
{
	char line;
	lk_local_info info;

	(void)arg;
	line_write(out, "ready");
	if (read(in, &line, 1) != 1 || lk_local_start(&info) != LK_OK)
		return line_write(out, "%s", lk_errmsg()), 1;
	line_write(out, "%lld", (long long)info.pid);
	return 0;
}

/* Start all at once; return the pid of the server that each of them found. */
static int64_t start_many(void)
{
	struct process starters[STARTERS];
	char first[64] = "";

	for (int i = 0; i < STARTERS; i++)
		process_start(&starters[i], start_one, NULL);
	for (int i = 0; i < STARTERS; i++)
		ck_assert_ptr_nonnull(line_read(starters[i].out, 10000));
	for (int i = 0; i < STARTERS; i++)
		ck_assert(write(starters[i].in, "!", 1) == 1);
	for (int i = 0; i < STARTERS; i++) {
		const char *pid = line_read(starters[i].out, 20000);

		ck_assert_ptr_nonnull(pid);
		if (i == 0)
			snprintf(first, sizeof(first), "%s", pid);
		ck_assert_str_eq(pid, first);
		ck_assert(process_succeeded(&starters[i], 10000));
	}
	return strtoll(first, NULL, 10);
}

TEST_LIMIT(local_many_starters_start_one, 60)
{
	int64_t pid;

	dir = local_folder();
	pid = start_many();
	ck_assert_int_eq(local_servers(0), 1);
	ck_assert_int_eq(status().pid, pid);
	ck_assert_int_eq(kill((pid_t)pid, SIGKILL), 0);
	/* Once more, beside a socket that was left behind. */
	ck_assert(WITHIN(5000, gone(pid)));
	ck_assert_int_ne(start_many(), pid);
	ck_assert_int_eq(local_servers(0), 1);
}

TEST(local_killed_server_is_replaced)
{
	lk_local_info before, after;

	dir = local_folder();
	before = started();
	ck_assert_int_eq(kill((pid_t)before.pid, SIGKILL), 0);
	ck_assert(WITHIN(5000, gone(before.pid)));
	ck_assert(!access(before.socket_path, F_OK));
	ck_assert(!status().running);
	after = started();
	ck_assert_int_ne(after.pid, before.pid);
	ck_assert_str_eq(after.socket_path, before.socket_path);
}

/* A stopped server is alive: replacing it would grant every lock again. */
TEST_LIMIT(local_stopped_server_is_not_replaced, 60)
{
	lk_local_info info;
	char path[108];
	struct lk__why why = {0};

	dir = local_folder();
	info = started();
	ck_assert_int_eq(kill((pid_t)info.pid, SIGSTOP), 0);
	ck_assert(WITHIN(5000, proc_state((pid_t)info.pid) == 'T'));
	ck_assert_int_eq(lk__local_ensure(path, lk__now_ns() + 300 * LK__MS, -1, &why), LK_ECONN);
	ck_assert_msg(strstr(why.text, "does not respond"), "%s", why.text);
	ck_assert_int_eq(local_servers(0), 1);
	ck_assert_int_eq(kill((pid_t)info.pid, SIGCONT), 0);
	ck_assert_int_eq(started().pid, info.pid);
}

TEST(local_folder_of_wrong_mode_is_refused)
{
	lk_local_info info;

	dir = local_folder();
	ck_assert(!mkdir(dir, 0700) && !chmod(dir, 0750));
	refused(lk_local_start(&info), LK_ESYSTEM, dir);
	refused(lk_local_stop(), LK_ESYSTEM, dir);
	ck_assert(!chmod(dir, 0700));
	started();
	/* The same with a server inside: any user with access may have put it there. */
	ck_assert(!chmod(dir, 0701));
	refused(lk_local_start(&info), LK_ESYSTEM, dir);
	ck_assert(!chmod(dir, 0700));
}

TEST(local_folder_that_is_a_link_or_file_is_refused)
{
	char real[140];
	lk_local_info info;

	dir = local_folder();
	snprintf(real, sizeof(real), "%s.real", dir);
	ck_assert(!mkdir(real, 0700) && !symlink(real, dir));
	refused(lk_local_start(&info), LK_ESYSTEM, dir);
	ck_assert(!unlink(dir));
	ck_assert_int_eq(shell(": >%s", dir), 0);
	refused(lk_local_start(&info), LK_ESYSTEM, dir);
	ck_assert(!unlink(dir));
}

TEST(local_folder_must_be_an_absolute_short_path)
{
	char longest[200] = "/tmp/";
	lk_local_info info;

	memset(longest + 5, 'x', 120);
	setenv("LATCHKEY_LOCAL_DIR", longest, 1);
	refused(lk_local_status(&info), LK_ESYSTEM, "LATCHKEY_LOCAL_DIR");
	setenv("LATCHKEY_LOCAL_DIR", "relative", 1);
	refused(lk_local_start(&info), LK_ESYSTEM, "LATCHKEY_LOCAL_DIR");
}

/* The user's own store is untouched: a status query starts and creates nothing. */
static int tell_path(void *arg, int in, int out)
{
	lk_local_info info;

	(void)in;
	if (arg) {
		clearenv();
		if (chdir("/"))
			return 1;
	} else {
		unsetenv("LATCHKEY_LOCAL_DIR");
		setenv("HOME", "/nowhere", 1);
		setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
		setenv("TMPDIR", "/nowhere", 1);
		setenv("USER", "nobody", 1);
	}
	if (lk_local_status(&info) != LK_OK)
		return 1;
	return !line_write(out, "%s", info.socket_path);
}

TEST(local_path_is_the_same_without_an_environment)
{
	struct process full, empty;
	char uid[24], path[108];

	process_start(&full, tell_path, NULL);
	process_start(&empty, tell_path, &empty);
	snprintf(path, sizeof(path), "%s", line_read(full.out, 5000));
	ck_assert_str_eq(line_read(empty.out, 5000), path);
	snprintf(uid, sizeof(uid), "-%u/", (unsigned)geteuid());
	ck_assert_msg(strstr(path, uid), "%s", path);
	ck_assert(process_succeeded(&full, 5000) && process_succeeded(&empty, 5000));
}

TEST(local_without_a_binary_says_what_to_install)
{
	lk_local_info info;

	dir = local_folder();
	setenv("LATCHKEY_SERVER", "/nowhere/redis-server", 1);
	refused(lk_local_start(&info), LK_ENOSERVER, "apt-get install redis-server");
	info = status();
	ck_assert(!info.running);
	ck_assert_str_eq(info.server_path, "");
	ck_assert(lock_is_free());
	unsetenv("LATCHKEY_SERVER");
	started();
}

TEST(local_binary_that_does_not_run_is_named)
{
	char broken[140];
	lk_local_info info;

	dir = local_folder();
	snprintf(broken, sizeof(broken), "%s.broken", dir);
	ck_assert_int_eq(shell("echo 'no program' >%s; chmod 700 %s", broken, broken), 0);
	setenv("LATCHKEY_SERVER", broken, 1);
	refused(lk_local_start(&info), LK_ESYSTEM, broken);
	ck_assert(WITHIN(5000, lock_is_free()));
}

/* The server inherits nothing from its starter except the directory's lock. */
TEST(local_server_has_nothing_of_its_starter)
{
	char fds[40], link[400], target[300];
	lk_local_info info;
	struct dirent *entry;
	int pipes[2], high;
	DIR *list;
	sigset_t blocked;

	dir = local_folder();
	ck_assert(!pipe(pipes)); /* without CLOEXEC */
	ck_assert_int_eq(high = fcntl(pipes[1], F_DUPFD, 900), 900);
	sigfillset(&blocked);
	ck_assert(!sigprocmask(SIG_BLOCK, &blocked, NULL));
	info = started();
	ck_assert(!sigprocmask(SIG_UNBLOCK, &blocked, NULL));
	snprintf(fds, sizeof(fds), "/proc/%lld/fd", (long long)info.pid);
	ck_assert_ptr_nonnull(list = opendir(fds));
	while ((entry = readdir(list))) {
		ssize_t len;
		char *end;
		long fd = strtol(entry->d_name, &end, 10);

		snprintf(link, sizeof(link), "%s/%s", fds, entry->d_name);
		if (*end || (len = readlink(link, target, sizeof(target) - 1)) < 0)
			continue;
		target[len] = '\0';
		if (fd <= 2)
			ck_assert_msg(!strcmp(target, "/dev/null") ||
			                      !strncmp(target, dir, strlen(dir)),
			              "%ld is %s", fd, target);
		else if (fd == 3)
			ck_assert_str_eq(target, dir);
		ck_assert_msg(fd < 100, "%ld is %s", fd, target);
		/* Its own pipe, event and socket descriptors: none is the test's pipe. */
		snprintf(link, sizeof(link), "/proc/self/fd/%d", pipes[0]);
		char mine[64] = "";
		ck_assert_int_gt(readlink(link, mine, sizeof(mine) - 1), 0);
		ck_assert_str_ne(target, mine);
	}
	closedir(list);
	/* The server is no child of the test, has a session of its own, and no signal blocked or
	 * ignored except its own choice. */
	ck_assert_int_eq(waitpid((pid_t)info.pid, NULL, WNOHANG), -1);
	ck_assert_int_ne(getsid((pid_t)info.pid), getsid(0));
	ck_assert_int_eq(shell("grep -q '^SigBlk:.*0000000000000000' /proc/%lld/status",
	                       (long long)info.pid),
	                 0);
	close(high);
}

static volatile sig_atomic_t child_signals;

static void on_child(int number)
{
	(void)number;
	child_signals++;
}

TEST(local_start_leaves_the_callers_signals)
{
	struct sigaction action = {.sa_handler = on_child}, now;
	sigset_t mask, after;

	dir = local_folder();
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	ck_assert(!sigprocmask(SIG_SETMASK, &mask, NULL));
	ck_assert(!sigaction(SIGCHLD, &action, NULL));
	started();
	ck_assert(!sigaction(SIGCHLD, NULL, &now));
	ck_assert(now.sa_handler == on_child);
	ck_assert(!sigprocmask(SIG_SETMASK, NULL, &after));
	ck_assert(sigismember(&after, SIGUSR2) && !sigismember(&after, SIGTERM));
	ck_assert_int_le(child_signals, 1);
}

TEST(local_starts_where_sigchld_is_ignored)
{
	dir = local_folder();
	signal(SIGCHLD, SIG_IGN);
	started();
	signal(SIGCHLD, SIG_DFL);
}

TEST(local_starts_with_closed_standard_descriptors)
{
	int kept[3];
	lk_local_info info;
	lk_err err;

	dir = local_folder();
	for (int fd = 0; fd < 3; fd++) {
		kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 50);
		close(fd);
	}
	err = lk_local_start(&info);
	for (int fd = 0; fd < 3; fd++) {
		ck_assert_msg(fcntl(fd, F_GETFD) < 0, "%d was left open", fd);
		dup2(kept[fd], fd);
		close(kept[fd]);
	}
	ck_assert_msg(err == LK_OK, "%s", lk_errmsg());
}

TEST(local_start_leaves_no_descriptor)
{
	int before;

	dir = local_folder();
	before = proc_fd_count(0);
	started();
	status();
	ck_assert_int_eq(lk_local_stop(), LK_OK);
	ck_assert_int_eq(proc_fd_count(0), before);
}

TEST(local_status_refuses_a_folder_that_is_not_safe)
{
	lk_local_info info;

	dir = local_folder();
	started();
	ck_assert(!chmod(dir, 0777));
	refused(lk_local_status(&info), LK_ESYSTEM, dir);
	ck_assert(!chmod(dir, 0700));
}

static atomic_bool stop_forking;
static pid_t forked[4000];
static atomic_int forked_count;

/* A program that always forks workers, which live on and do not exec. */
static void *fork_workers(void *arg)
{
	while (!stop_forking && forked_count < 4000) {
		pid_t pid = fork();

		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		if (pid > 0)
			forked[forked_count++] = pid;
	}
	return arg;
}

/* Workers forked in the middle of a start delay neither the caller nor the lock. */
TEST_LIMIT(local_start_is_not_kept_by_forked_workers, 60)
{
	pthread_t thread;
	lk_local_info info;
	char path[108];
	struct lk__why why = {0};
	int64_t begin;

	dir = local_folder();
	for (int round = 0; round < 5; round++) {
		stop_forking = false;
		ck_assert(!pthread_create(&thread, NULL, fork_workers, NULL));
		ck_assert(WITHIN(5000, forked_count > 0));
		begin = now_ms();
		ck_assert_msg(lk__local_ensure(path, lk__now_ns() + 5000 * LK__MS, -1, &why) ==
		                      LK_OK,
		              "%d: %s", round, why.text);
		ck_assert_int_lt(now_ms() - begin, 6000);
		stop_forking = true;
		ck_assert(!pthread_join(thread, NULL));
		info = status();
		ck_assert(info.running);
		ck_assert_int_eq(kill((pid_t)info.pid, SIGKILL), 0);
		ck_assert(WITHIN(5000, gone(info.pid)));
		ck_assert_msg(WITHIN(500, lock_is_free()), "round %d: kept by one of %d workers",
		              round, forked_count);
		for (int i = 0; i < forked_count; i++) {
			kill(forked[i], SIGKILL);
			waitpid(forked[i], NULL, 0);
		}
		forked_count = 0;
	}
}

TEST_LIMIT(local_stopped_server_can_be_ended, 30)
{
	lk_local_info info;

	dir = local_folder();
	info = started();
	ck_assert_int_eq(kill((pid_t)info.pid, SIGSTOP), 0);
	ck_assert(WITHIN(5000, proc_state((pid_t)info.pid) == 'T'));
	ck_assert_int_eq(lk_local_stop(), LK_OK);
	ck_assert(WITHIN(5000, gone(info.pid)));
	ck_assert(lock_is_free());
}
