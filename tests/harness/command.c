/* SPDX-License-Identifier: MIT
 * Run the latchkey command of this build, and find the processes that it left behind. */
#include "command.h"

#include "process.h"

#include <check.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[100];
static char mark[64];
static int started;

const char *command_path(void)
{
	static char *path;
	const char *build = getenv("LK_BUILD");
	char text[512];

	if (!path) {
		snprintf(text, sizeof(text), "%s/latchkey", build ? build : "build");
		path = realpath(text, NULL);
		if (!path)
			ck_abort_msg("no %s: run make command", text);
	}
	return path;
}

void command_setup(const char *url)
{
	char path[4096], own[512];
	const char *before = getenv("PATH");

	snprintf(own, sizeof(own), "%s", command_path());
	*strrchr(own, '/') = 0;
	snprintf(path, sizeof(path), "%s:%s", own, before ? before : "/usr/bin:/bin");
	setenv("PATH", path, 1);
	folder_make(folder, sizeof(folder));
	snprintf(mark, sizeof(mark), "%d-%lld", (int)getpid(), (long long)now_us());
	setenv("LK_TEST_MARK", mark, 1);
	snprintf(own, sizeof(own), "%s/local", folder);
	setenv("LATCHKEY_LOCAL_DIR", own, 1);
	ck_assert(!mkdir(own, 0700));
	if (url)
		setenv("LATCHKEY_URL", url, 1);
	else
		unsetenv("LATCHKEY_URL");
	unsetenv("LATCHKEY_PASSWORD_FILE");
	unsetenv("LATCHKEY_CHAIN");
}

const char *command_folder(void)
{
	return folder;
}

const char *command_file(const char *name)
{
	static char paths[4][256];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

static void file_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = 0;
	ssize_t got;

	text[0] = 0;
	if (fd < 0)
		return;
	while (len < size - 1 && (got = read(fd, text + len, size - 1 - len)) > 0)
		len += (size_t)got;
	text[len] = 0;
	close(fd);
}

const char *command_read(const char *name)
{
	static char text[16384];

	file_text(command_file(name), text, sizeof(text));
	return text;
}

static const char *stream_file(const struct command *command, const char *stream)
{
	char name[64];

	snprintf(name, sizeof(name), "%s.%d", stream, (int)command->pid);
	return command_file(name);
}

void command_start(struct command *command, const char *const *args)
{
	pid_t parent = getpid();

	started++;
	command->out[0] = command->err[0] = 0;
	command->pid = process_fork();
	if (command->pid)
		return;
	command->pid = getpid();
	for (int fd = 1; fd < 3; fd++) {
		int file = open(stream_file(command, fd == 1 ? "out" : "err"),
		                O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		dup2(file, fd);
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(125);
	execvp(args[0], (char *const *)(uintptr_t)args);
	_exit(125);
}

bool command_wait(struct command *command, int64_t ms)
{
	if (!WITHIN(ms, waitpid(command->pid, &command->status, WNOHANG) == command->pid))
		return false;
	file_text(stream_file(command, "out"), command->out, sizeof(command->out));
	file_text(stream_file(command, "err"), command->err, sizeof(command->err));
	return true;
}

const char *command_err(const struct command *command)
{
	static char text[16384];

	file_text(stream_file(command, "err"), text, sizeof(text));
	return text;
}

static int end(struct command *command, const char *name)
{
	ck_assert_msg(command_wait(command, 15000), "%s does not end", name);
	if (WIFSIGNALED(command->status))
		return 128 + WTERMSIG(command->status);
	return WEXITSTATUS(command->status);
}

int command_run(struct command *command, const char *const *args)
{
	command_start(command, args);
	return end(command, args[1]);
}

__attribute__((format(printf, 2, 0))) static void start_line(struct command *command,
                                                             const char *format, va_list args)
{
	char line[1024];
	int len = snprintf(line, sizeof(line), "exec latchkey ");

	ck_assert_int_lt(vsnprintf(line + len, sizeof(line) - (size_t)len, format, args),
	                 (int)sizeof(line) - len);
	START(command, "sh", "-c", line);
}

void command_start_line(struct command *command, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	start_line(command, format, args);
	va_end(args);
}

void command_hold(struct command *command, const char *format, ...)
{
	int before = command_count_of("sleep");
	va_list args;

	va_start(args, format);
	start_line(command, format, args);
	va_end(args);
	ck_assert_msg(WITHIN(5000, command_count_of("sleep") == before + 1), "%s: %s", format,
	              command_err(command));
}

bool command_waiting_is(const char *name, int count)
{
	return shell("latchkey show '%s' | grep -q 'waiting  %d'", name, count) == 0;
}

int command_run_line(struct command *command, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	start_line(command, format, args);
	va_end(args);
	return end(command, format);
}

void command_check_report(const char *begins, const char *contains)
{
	const char *text = command_read("report");

	ck_assert_msg(!strncmp(text, begins, strlen(begins)), "%s", text);
	ck_assert_msg(strstr(text, contains) != NULL, "%s", text);
	ck_assert_int_eq(shell("test 1 = $(sqlite3 :memory: \"SELECT json_valid(readfile('%s'))\")",
	                       command_file("report")),
	                 0);
}

/* Is this process alive, of this test, and, if asked, of that program? */
static bool is_marked(pid_t pid, const char *program)
{
	char path[64], text[32768], name[64];
	size_t len = strlen(mark);
	char state = proc_state(pid);
	int fd;
	ssize_t got;

	if (pid == getpid() || !state || state == 'Z' || state == 'X')
		return false;
	if (program) {
		snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
		file_text(path, name, sizeof(name));
		name[strcspn(name, "\n")] = 0;
		if (strcmp(name, program))
			return false;
	}
	snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	got = read(fd, text, sizeof(text));
	close(fd);
	return got > 0 && memmem(text, (size_t)got, mark, len);
}

static int each(const char *program, int number)
{
	DIR *dir = opendir("/proc");
	struct dirent *entry;
	int found = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]) &&
		    is_marked((pid_t)atoi(entry->d_name), program)) {
			kill((pid_t)atoi(entry->d_name), number);
			found++;
		}
	closedir(dir);
	return found;
}

int command_count(void)
{
	return each(NULL, 0);
}

int command_count_of(const char *program)
{
	return each(program, 0);
}

int command_signal_of(const char *program, int number)
{
	return each(program, number);
}

pid_t command_child(pid_t parent)
{
	char path[64], text[256];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	file_text(path, text, sizeof(text));
	return (pid_t)atoi(text);
}
