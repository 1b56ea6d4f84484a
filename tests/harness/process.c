/* SPDX-License-Identifier: MIT
 * Processes of a test: workers with pipes, waiting with a deadline, facts from /proc, and time. */
#include "process.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Tests fork while the library's thread runs, and open new clients in the child; the thread
 * sanitizer would kill such a child. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}

int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t now_ms(void)
{
	return now_us() / 1000;
}

void nap_ms(int64_t ms)
{
	struct timespec rest = {ms / 1000, ms % 1000 * 1000000};

	while (ms > 0 && nanosleep(&rest, &rest) && errno == EINTR)
		continue;
}

pid_t process_fork(void)
{
	pid_t pid = fork();

	if (pid)
		ck_assert_int_gt(pid, 0);
	return pid;
}

void process_start(struct process *process, process_fn *fn, void *arg)
{
	int down[2], up[2];
	pid_t parent = getpid();

	ck_assert(!pipe2(down, O_CLOEXEC) && !pipe2(up, O_CLOEXEC));
	process->pid = process_fork();
	if (process->pid) {
		close(down[0]);
		close(up[1]);
		process->in = down[1];
		process->out = up[0];
		return;
	}
	close(down[1]);
	close(up[0]);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	signal(SIGPIPE, SIG_IGN);
	_exit(fn(arg, down[0], up[1]));
}

int process_wait(struct process *process, int64_t ms)
{
	int status = -1;

	if (!process->pid || !WITHIN(ms, waitpid(process->pid, &status, WNOHANG) == process->pid))
		return -1;
	process->pid = 0;
	close(process->in);
	close(process->out);
	return status;
}

bool process_succeeded(struct process *process, int64_t ms)
{
	int status = process_wait(process, ms);

	return status != -1 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void process_kill(struct process *process)
{
	if (!process->pid)
		return;
	kill(process->pid, SIGKILL);
	ck_assert_int_ne(process_wait(process, 5000), -1);
}

void process_pause(struct process *process)
{
	int status;

	ck_assert(!kill(process->pid, SIGSTOP));
	ck_assert_int_eq(waitpid(process->pid, &status, WUNTRACED), process->pid);
	ck_assert(WIFSTOPPED(status));
}

void process_continue(struct process *process)
{
	ck_assert(!kill(process->pid, SIGCONT));
}

const char *line_read(int fd, int64_t ms)
{
	static __thread char line[4096];
	size_t len = 0;
	int64_t end = now_ms() + ms;

	while (len + 1 < sizeof(line)) {
		struct pollfd ready = {fd, POLLIN, 0};
		int64_t left = end - now_ms();
		ssize_t got;

		if (poll(&ready, 1, left > 0 ? (int)left : 0) <= 0) {
			if (left > 0 && errno == EINTR)
				continue;
			return NULL;
		}
		got = read(fd, line + len, 1);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return NULL;
		if (line[len] == '\n') {
			line[len] = 0;
			return line;
		}
		len++;
	}
	return NULL;
}

bool line_write(int fd, const char *fmt, ...)
{
	char line[4096];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(line, sizeof(line) - 1, fmt, args);
	va_end(args);
	if (len < 0 || (size_t)len >= sizeof(line) - 1)
		return false;
	line[len++] = '\n';
	return write(fd, line, (size_t)len) == len;
}

/* Count the entries of a folder in /proc whose link target starts with prefix (NULL: all). */
static int proc_count(pid_t pid, const char *noun, const char *prefix)
{
	char path[64], link[400], target[256];
	DIR *dir;
	struct dirent *entry;
	int count = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid ? (int)pid : (int)getpid(), noun);
	dir = opendir(path);
	if (!dir)
		return -1;
	while ((entry = readdir(dir))) {
		ssize_t len;
		if (entry->d_name[0] == '.')
			continue;
		if (!prefix) {
			count++;
			continue;
		}
		snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
		len = readlink(link, target, sizeof(target) - 1);
		if (len < 0)
			continue;
		target[len] = 0;
		count += !strncmp(target, prefix, strlen(prefix));
	}
	closedir(dir);
	return count;
}

int proc_thread_count(pid_t pid)
{
	return proc_count(pid, "task", NULL);
}

int proc_fd_count(pid_t pid)
{
	return proc_count(pid, "fd", NULL) - (!pid || pid == getpid());
}

int proc_socket_count(pid_t pid)
{
	return proc_count(pid, "fd", "socket:");
}

/* The text of /proc/<pid>/stat behind the program's name. */
static bool proc_stat(pid_t pid, char *text, size_t size)
{
	char path[64];
	const char *end;
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid ? (int)pid : (int)getpid());
	file = fopen(path, "re");
	if (!file)
		return false;
	len = fread(text, 1, size - 1, file);
	fclose(file);
	text[len] = 0;
	end = strrchr(text, ')');
	if (!end)
		return false;
	memmove(text, end + 2, strlen(end + 2) + 1);
	return true;
}

char proc_state(pid_t pid)
{
	char text[1024];

	return proc_stat(pid, text, sizeof(text)) ? text[0] : 0;
}

bool proc_thread_sleeps(int id)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", id);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	fclose(file);
	return state == 'S';
}

int64_t proc_cpu_ms(pid_t pid)
{
	char text[1024], *at = text;
	long long user, system;

	if (!proc_stat(pid, text, sizeof(text)))
		return -1;
	for (int field = 3; field < 14; field++)
		at = strchr(at, ' ') + 1;
	if (sscanf(at, "%lld %lld", &user, &system) != 2)
		return -1;
	return (user + system) * 1000 / sysconf(_SC_CLK_TCK);
}

int64_t proc_size_kb(pid_t pid)
{
	char text[1024], *at = text;
	long long bytes;

	if (!proc_stat(pid, text, sizeof(text)))
		return -1;
	for (int field = 3; field < 23; field++)
		at = strchr(at, ' ') + 1;
	return sscanf(at, "%lld", &bytes) == 1 ? bytes / 1024 : -1;
}

/* The process of main(): its forks name their folders after it, and it removes all of them. */
static pid_t runner;

static const char *folder_base(void)
{
	const char *base = getenv("TMPDIR");

	return base && *base ? base : "/tmp";
}

static void folders_remove(void)
{
	char pattern[256];
	glob_t found;

	if (getpid() != runner)
		return;
	snprintf(pattern, sizeof(pattern), "%s/latchkey-test-%d-*", folder_base(), (int)runner);
	if (glob(pattern, GLOB_NOSORT, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		folder_remove(found.gl_pathv[i]);
	globfree(&found);
}

__attribute__((constructor)) static void folders_own(void)
{
	runner = getpid();
	atexit(folders_remove);
}

void folder_make(char *path, size_t size)
{
	int len = snprintf(path, size, "%s/latchkey-test-%d-XXXXXX", folder_base(), (int)runner);

	ck_assert(len > 0 && (size_t)len < size);
	ck_assert_ptr_nonnull(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
	(void)info;
	(void)kind;
	(void)ftw;
	return remove(path), 0;
}

void folder_remove(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int shell(const char *fmt, ...)
{
	char command[4096];
	va_list args;
	int status;

	va_start(args, fmt);
	vsnprintf(command, sizeof(command), fmt, args);
	va_end(args);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
