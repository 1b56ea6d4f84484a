/* SPDX-License-Identifier: MIT
 * Finding a server's binary and starting it as nobody's child.  The program around us may have any
 * number of threads: between fork and exec only what is safe in a signal handler is called. */
#include "local_exec.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_FD 3
#define REPORT_FD 4
#define FDS_MAX 65536

/* On Debian the server and the checker of its files are one binary that goes by its name, and
 * redis-tools has it without a service. */
static const struct {
	const char *file, *name;
} binaries[] = {
	{"redis-server", "redis-server"},
	{"valkey-server", "valkey-server"},
	{"redis-check-rdb", "redis-server"},
	{"valkey-check-rdb", "valkey-server"},
};

static bool executable(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

static bool find_in(struct lk__server *server, const char *folders, const char *file)
{
	while (*folders) {
		size_t len = strcspn(folders, ":");
		int size = snprintf(server->path, sizeof(server->path), "%.*s/%s", (int)len,
		                    folders, file);
		if (len && size > 0 && (size_t)size < sizeof(server->path) &&
		    executable(server->path))
			return true;
		folders += len + (folders[len] == ':');
	}
	return false;
}

bool lk__server_find(struct lk__server *server)
{
	const char *given = getenv("LATCHKEY_SERVER"), *path = getenv("PATH");

	if (given && *given) {
		snprintf(server->path, sizeof(server->path), "%s", given);
		server->name = strstr(given, "valkey") ? "valkey-server" : "redis-server";
		return executable(given);
	}
	for (size_t i = 0; i < sizeof(binaries) / sizeof(*binaries); i++) {
		server->name = binaries[i].name;
		if ((path && find_in(server, path, binaries[i].file)) ||
		    find_in(server, "/usr/bin:/usr/local/bin:/usr/sbin:/opt/homebrew/bin",
		            binaries[i].file))
			return true;
	}
	return false;
}

/* In the child: an errno to whoever started us, and out. */
static void give_up(int fd)
{
	int number = errno;
	ssize_t done = write(fd, &number, sizeof(number));

	_exit(done < 0 ? 126 : 127);
}

/* In the child: only descriptors 0 to 4 stay. */
static void arrange_fds(int lock_fd, int report_fd, int null_fd, int most)
{
	/* Out of the way first, since either may be the other's place. */
	int lock = fcntl(lock_fd, F_DUPFD, 10), report = fcntl(report_fd, F_DUPFD, 10);
	int null = fcntl(null_fd, F_DUPFD, 10);

	if (lock < 0 || report < 0 || null < 0)
		give_up(report_fd);
	if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
	    dup2(lock, LOCK_FD) < 0 || dup2(report, REPORT_FD) < 0)
		give_up(report_fd);
	for (int fd = REPORT_FD + 1; fd < most; fd++)
		close(fd);
	if (fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC) < 0)
		give_up(REPORT_FD);
}

static void become_server(const struct lk__server *server, char *const argv[], const char *dir,
                          int lock_fd, int report_fd, int null_fd, int most)
{
	struct sigaction usual = {.sa_handler = SIG_DFL};
	sigset_t none;

	sigemptyset(&none);
	for (int number = 1; number < NSIG; number++)
		sigaction(number, &usual, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	arrange_fds(lock_fd, report_fd, null_fd, most);
	umask(077);
	if (chdir(dir) != 0)
		give_up(REPORT_FD);
	execv(server->path, argv);
	give_up(REPORT_FD);
}

/* Start it through a child that ends at once: the server belongs to init then, and no wait() of the
 * program around us ever sees it. */
static void start(const struct lk__server *server, char *const argv[], const char *dir, int lock_fd,
                  int report_fd, int null_fd, int most)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setsid() < 0)
			give_up(report_fd);
		pid = fork();
		if (pid == 0)
			become_server(server, argv, dir, lock_fd, report_fd, null_fd, most);
		if (pid < 0)
			give_up(report_fd);
		_exit(0);
	}
	if (pid < 0) {
		int number = errno;
		ssize_t done = write(report_fd, &number, sizeof(number));
		(void)done;
	}
	/* Who ignores SIGCHLD has no child to wait for: ECHILD is as good. */
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* One more than the highest descriptor, asked for before the fork. */
static int fd_bound(void)
{
	struct rlimit limit;
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int most = REPORT_FD;

	if (dir) {
		while ((entry = readdir(dir)))
			if (atoi(entry->d_name) > most)
				most = atoi(entry->d_name);
		closedir(dir);
		return most +
		       64; /* other threads may open some meanwhile; theirs are CLOEXEC or few */
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > FDS_MAX)
		return FDS_MAX;
	return (int)limit.rlim_cur;
}

lk_err lk__server_exec(const struct lk__server *server, const char *dir, const char *socket_path,
                       int lock_fd, struct lk__why *why)
{
	char name[64], file[256], path[128], folder[128];
	char *const argv[] = {name,
	                      (char[]){"--port"},
	                      (char[]){"0"},
	                      (char[]){"--unixsocket"},
	                      path,
	                      (char[]){"--unixsocketperm"},
	                      (char[]){"700"},
	                      (char[]){"--dir"},
	                      folder,
	                      (char[]){"--logfile"},
	                      (char[]){"log"},
	                      (char[]){"--save"},
	                      (char[]){""},
	                      (char[]){"--appendonly"},
	                      (char[]){"no"},
	                      (char[]){"--daemonize"},
	                      (char[]){"no"},
	                      (char[]){"--maxmemory-policy"},
	                      (char[]){"noeviction"},
	                      NULL};
	int report[2], null_fd, number = 0;
	ssize_t got;

	snprintf(name, sizeof(name), "%s", server->name);
	snprintf(file, sizeof(file), "%s", server->path);
	snprintf(path, sizeof(path), "%s", socket_path);
	snprintf(folder, sizeof(folder), "%s", dir);
	if (pipe(report) != 0 || fcntl(report[0], F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(report[1], F_SETFD, FD_CLOEXEC) < 0)
		return lk__why_set(why, LK_ESYSTEM, "cannot start %s: %s", file, strerror(errno));
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd >= 0)
		start(server, argv, dir, lock_fd, report[1], null_fd, fd_bound());
	else
		number = errno;
	close(report[1]);
	if (null_fd >= 0) {
		close(null_fd);
		/* Closed by the exec that succeeds. */
		do
			got = read(report[0], &number, sizeof(number));
		while (got < 0 && errno == EINTR);
	}
	close(report[0]);
	if (number)
		return lk__why_set(why, LK_ESYSTEM, "cannot start %s: %s", file, strerror(number));
	return LK_OK;
}
