/* SPDX-License-Identifier: MIT
 * Finds a server's binary and starts it as a child of init.  The program around us may have any
 * number of threads: between fork and exec, call only async-signal-safe functions. */
#include "local_exec.h"

#include "../base/os.h"
#include "local_memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOCK_FD 3
#define REPORT_FD 4
#define FDS_MAX 65536
#define EXEC_NS (100 * LK__MS) /* time for a failing exec */

/* On Debian the server and the checker of its files are one binary, which acts by its name, and
 * redis-tools has the checker without a service. */
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

const char *lk__local_env(const char *name)
{
#ifdef __linux__
	return secure_getenv(name);
#else
	return issetugid() ? NULL : getenv(name);
#endif
}

bool lk__server_find(struct lk__server *server)
{
	const char *given = lk__local_env("LATCHKEY_SERVER");
	const char *path = lk__local_env("PATH");

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

/* Everything that the child needs, prepared before the fork. */
struct plan {
	const char *binary;
	char *const *argv;
	const char *dir;
	struct sockaddr_un address;
	char boot[LK__BOOT_SIZE];
	int report_fd;
	int null_fd;
	int fd_bound;
};

/* In the child: report an errno to the parent, and exit. */
static void report_and_exit(int fd, int number)
{
	ssize_t done = write(fd, &number, sizeof(number));

	_exit(done < 0 ? 126 : 127);
}

/* In the child: lock the folder, or exit.  Not done by the parent, whose other threads may fork at
 * any moment: such a child would keep the lock after the server's death. */
static int take_lock(const struct plan *plan)
{
	struct stat opened, named;
	int fd = open(plan->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	int sock;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0)
		report_and_exit(plan->report_fd, errno);
	/* The folder may have been removed and created again since. */
	if (fstat(fd, &opened) != 0 || stat(plan->dir, &named) != 0)
		report_and_exit(plan->report_fd, errno);
	if (opened.st_ino != named.st_ino || opened.st_dev != named.st_dev)
		report_and_exit(plan->report_fd, EWOULDBLOCK);
	/* Never replace a server that listens, even one without its lock. */
	sock = socket(AF_UNIX, SOCK_STREAM, 0);
	if (sock < 0)
		report_and_exit(plan->report_fd, errno);
	if (connect(sock, (const struct sockaddr *)&plan->address, sizeof(plan->address)) == 0)
		report_and_exit(plan->report_fd, EWOULDBLOCK);
	close(sock);
	return fd;
}

/* In the child: keep only descriptors 0 to 4. */
static void arrange_fds(const struct plan *plan, int lock_fd)
{
	/* Move them away first: each may have the number of another. */
	int lock = fcntl(lock_fd, F_DUPFD, 10), report = fcntl(plan->report_fd, F_DUPFD, 10);
	int null = fcntl(plan->null_fd, F_DUPFD, 10);

	if (lock < 0 || report < 0 || null < 0)
		report_and_exit(plan->report_fd, errno);
	if (dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
	    dup2(lock, LOCK_FD) < 0 || dup2(report, REPORT_FD) < 0)
		report_and_exit(report, errno);
	for (int fd = REPORT_FD + 1; fd < plan->fd_bound; fd++)
		close(fd);
	if (fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC) < 0)
		report_and_exit(REPORT_FD, errno);
}

static void become_server(const struct plan *plan)
{
	struct sigaction usual = {.sa_handler = SIG_DFL};
	sigset_t none;
	int good = 0, failed;
	bool unheld;

	for (int number = 1; number < NSIG; number++)
		sigaction(number, &usual, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	arrange_fds(plan, take_lock(plan));
	umask(077);
	if (chdir(plan->dir) != 0)
		report_and_exit(REPORT_FD, errno);
	if (!lk__memory_begin(LOCK_FD, plan->boot, &unheld))
		report_and_exit(REPORT_FD, errno);
	if (write(REPORT_FD, &good, sizeof(good)) != sizeof(good))
		_exit(126);
	execv(plan->binary, plan->argv);
	failed = errno;
	if (unheld)
		lk__memory_unbegin(LOCK_FD);
	report_and_exit(REPORT_FD, failed);
}

/* Start it through a child that exits at once: the server is then a child of init, and no wait() of
 * the program around us ever returns it. */
static void start(const struct plan *plan)
{
	sigset_t all, before;
	pid_t pid;

	/* No signal handler of the program may run in the child. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0) {
		if (setsid() < 0)
			report_and_exit(plan->report_fd, errno);
		pid = fork();
		if (pid == 0)
			become_server(plan);
		if (pid < 0)
			report_and_exit(plan->report_fd, errno);
		_exit(0);
	}
	if (pid < 0) {
		int number = errno;
		ssize_t done = write(plan->report_fd, &number, sizeof(number));
		(void)done;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	/* ECHILD if the program ignores SIGCHLD: just as good. */
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* Read the child's report, 0 if there is none.  A successful exec closes the child's end of the
 * pipe, but a concurrently forked process may have a copy: do not rely on end of file. */
static int read_report(int fd, int64_t deadline_ns)
{
	int number = 0;
	ssize_t got;

	if (!(lk__poll2(fd, POLLIN, -1, deadline_ns) & 1))
		return 0;
	do
		got = read(fd, &number, sizeof(number));
	while (got < 0 && errno == EINTR);
	return got == sizeof(number) ? number : 0;
}

/* One more than the highest descriptor, determined before the fork. */
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
		return most + 64; /* margin for descriptors that other threads open meanwhile; ours
		                   * are CLOEXEC */
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > FDS_MAX)
		return FDS_MAX;
	return (int)limit.rlim_cur;
}

lk_err lk__server_exec(const struct lk__server *server, const char *dir, const char *socket_path,
                       int64_t deadline_ns, struct lk__why *why)
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
	struct plan plan = {.binary = file, .argv = argv, .dir = folder};
	int report[2], number;

	snprintf(name, sizeof(name), "%s", server->name);
	snprintf(file, sizeof(file), "%s", server->path);
	snprintf(path, sizeof(path), "%s", socket_path);
	snprintf(folder, sizeof(folder), "%s", dir);
	plan.address.sun_family = AF_UNIX;
	snprintf(plan.address.sun_path, sizeof(plan.address.sun_path), "%s", socket_path);
	lk__boot_id(plan.boot);
	plan.null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (plan.null_fd < 0 || pipe(report) != 0) {
		number = errno;
		if (plan.null_fd >= 0)
			close(plan.null_fd);
		return lk__why_set(why, LK_ESYSTEM, "%s: cannot start: %s", file, strerror(number));
	}
	fcntl(report[0], F_SETFD, FD_CLOEXEC);
	fcntl(report[1], F_SETFD, FD_CLOEXEC);
	plan.report_fd = report[1];
	plan.fd_bound = fd_bound();
	start(&plan);
	close(report[1]);
	close(plan.null_fd);
	number = read_report(report[0], deadline_ns);
	if (number == 0)
		number = read_report(report[0], lk__now_ns() + EXEC_NS);
	close(report[0]);
	if (number == EWOULDBLOCK)
		return LK_EBUSY;
	if (number)
		return lk__why_set(why, LK_ESYSTEM, "%s: cannot start: %s", file, strerror(number));
	return LK_OK;
}
