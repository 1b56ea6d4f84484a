/* SPDX-License-Identifier: MIT
 * Clocks: the time, and the CPU time of a process, a session, the whole machine. */
#include "driver.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t process_cpu_ns(pid_t pid)
{
	struct timespec used;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used))
		return 0;
	return (int64_t)used.tv_sec * 1000000000 + used.tv_nsec;
}

static pid_t session_of(const char *pid)
{
	char path[64], text[512];
	int session = 0;
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	len = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[len] = 0;
	/* The program's name is in parentheses and may have any bytes. */
	if (!strrchr(text, ')') || sscanf(strrchr(text, ')') + 1, " %*c %*d %*d %d", &session) != 1)
		return 0;
	return session;
}

int64_t session_cpu_ns(pid_t session)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	int64_t sum = 0;

	if (!proc)
		give_up("no /proc");
	while ((entry = readdir(proc)) != NULL) {
		long pid = strtol(entry->d_name, NULL, 10);
		if (pid > 0 && session_of(entry->d_name) == session)
			sum += process_cpu_ns((pid_t)pid);
	}
	closedir(proc);
	return sum;
}

void machine_cpu_ns(int64_t *all, int64_t *busy)
{
	unsigned long long part[8] = {0};
	int64_t tick = 1000000000 / sysconf(_SC_CLK_TCK);
	FILE *file = fopen("/proc/stat", "re");

	/* user, nice, system, idle, iowait, irq, softirq, steal */
	if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &part[0], &part[1],
	                    &part[2], &part[3], &part[4], &part[5], &part[6], &part[7]) != 8)
		give_up("cannot read /proc/stat");
	fclose(file);
	*all = 0;
	for (int i = 0; i < 8; i++)
		*all += (int64_t)part[i] * tick;
	*busy = *all - (int64_t)(part[3] + part[4]) * tick;
}
