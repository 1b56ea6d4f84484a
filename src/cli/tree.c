/* SPDX-License-Identifier: MIT
 * The descendants of a process: finds children of a command that left its process group.
 *
 * Linux only: an orphan below a subreaper becomes its child, so every descendant of the guard stays
 * one, whatever it does (setsid, a double fork), and a walk down from the guard finds it. */
#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

struct process {
	pid_t pid;
	pid_t parent;
	pid_t group;
	bool dead;  /* none of its threads runs: a zombie */
	bool below; /* a descendant to be signalled */
	unsigned long long began;
};

struct processes {
	struct process *all;
	size_t count;
	size_t room;
};

void tree_adopt(void)
{
#ifdef __linux__
	prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
}

static bool process_read(pid_t pid, struct process *process)
{
	char path[40], text[1024];
	const char *at;
	ssize_t len;
	int fd, parent, group, threads;
	char state;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return false;
	text[len] = 0;
	/* The program's name may contain anything; there is no parenthesis after it. */
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1,
	                  " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d "
	                  "%*d %llu",
	                  &state, &parent, &group, &threads, &process->began) != 5)
		return false;
	/* The main thread may be a zombie while others run. */
	process->dead = (state == 'Z' || state == 'X') && threads <= 1;
	process->pid = pid;
	process->parent = parent;
	process->group = group;
	process->below = false;
	return true;
}

unsigned long long tree_began(pid_t pid)
{
	struct process process;

	return process_read(pid, &process) ? process.began : 0;
}

static bool processes_add(struct processes *processes, pid_t pid)
{
	if (processes->count == processes->room) {
		size_t room = processes->room ? 2 * processes->room : 512;
		struct process *all = realloc(processes->all, room * sizeof(*all));
		if (!all)
			return false;
		processes->all = all;
		processes->room = room;
	}
	if (process_read(pid, &processes->all[processes->count]))
		processes->count++;
	return true;
}

/* /proc may belong to another PID name space, where the numbers mean other processes. */
static bool proc_is_ours(void)
{
	char text[32];
	ssize_t len = readlink("/proc/self", text, sizeof(text) - 1);

	if (len <= 0)
		return false;
	text[len] = 0;
	return strtol(text, NULL, 10) == getpid();
}

/* With kill_children, kill children of this process as soon as they are seen: one that keeps
 * forking and exiting would have another pid at the end of the walk. */
static bool processes_read(struct processes *processes, bool kill_children,
                           unsigned long long since)
{
	struct dirent *entry;
	DIR *dir;
	bool good = true;

	if (!proc_is_ours())
		return false;
	dir = opendir("/proc");
	if (!dir)
		return false;
	while (good && (entry = readdir(dir))) {
		size_t before = processes->count;
		const struct process *process;
		if (!isdigit((unsigned char)entry->d_name[0]))
			continue;
		good = processes_add(processes, (pid_t)strtol(entry->d_name, NULL, 10));
		process = processes->all + before;
		if (kill_children && processes->count > before && process->parent == getpid() &&
		    process->began >= since)
			kill(process->pid, SIGKILL);
	}
	closedir(dir);
	return good;
}

static int compare(const void *a, const void *b)
{
	const struct process *one = a, *other = b;

	return (one->pid > other->pid) - (one->pid < other->pid);
}

static const struct process *process_find(const struct processes *processes, pid_t pid)
{
	struct process key = {.pid = pid};

	return bsearch(&key, processes->all, processes->count, sizeof(key), compare);
}

/* Mark level by level; the number of passes is the depth of the tree. */
static void processes_mark(struct processes *processes, unsigned long long since)
{
	pid_t root = getpid();
	bool more = true;

	while (more) {
		more = false;
		for (size_t i = 0; i < processes->count; i++) {
			struct process *process = &processes->all[i];
			const struct process *parent;
			if (process->below || process->began < since)
				continue;
			parent = process_find(processes, process->parent);
			if (parent && (parent->pid == root || parent->below))
				process->below = more = true;
		}
	}
}

bool tree_signal(int number, unsigned long long since, pid_t but, struct tree_count *count)
{
	struct processes processes = {NULL, 0, 0};
	bool good = processes_read(&processes, number == SIGKILL, since);

	memset(count, 0, sizeof(*count));
	if (good) {
		qsort(processes.all, processes.count, sizeof(struct process), compare);
		processes_mark(&processes, since);
	}
	for (size_t i = 0; good && i < processes.count; i++) {
		const struct process *process = &processes.all[i];
		if (!process->below || process->dead || (but && process->group == but))
			continue;
		/* A process that has just ended counts as found: the caller looks again. */
		count->found++;
		if (kill(process->pid, number) && errno == EPERM) {
			count->denied++;
			count->denied_pid = process->pid;
		}
	}
	free(processes.all);
	return good;
}
