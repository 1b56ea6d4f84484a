/* SPDX-License-Identifier: MIT
 * Private servers of local:, see local_folder.h. */
#include "local_folder.h"

#include "process.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of this test's server: not yet created, inside one that is. */
static char dir[120];

int local_servers(int signal_number)
{
	int count = 0;
	DIR *proc = opendir("/proc");
	struct dirent *entry;

	while (proc && (entry = readdir(proc))) {
		char path[300], line[4096];
		ssize_t len;
		int fd;

		snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
			continue;
		len = read(fd, line, sizeof(line));
		close(fd);
		if (len <= 0 || !memmem(line, (size_t)len, dir, strlen(dir)))
			continue;
		count++;
		kill((pid_t)strtol(entry->d_name, NULL, 10), signal_number);
	}
	if (proc)
		closedir(proc);
	return count;
}

const char *local_folder(void)
{
	char base[100], byte;
	int ends[2];
	pid_t pid;

	folder_make(base, sizeof(base));
	snprintf(dir, sizeof(dir), "%s/local", base);
	ck_assert(!setenv("LATCHKEY_LOCAL_DIR", dir, 1));
	ck_assert(!pipe2(ends, O_CLOEXEC));
	pid = process_fork();
	if (pid == 0) {
		close(ends[1]);
		setsid(); /* Check kills the whole process group of a test */
		while (read(ends[0], &byte, 1) > 0)
			continue;
		local_servers(SIGKILL);
		_exit(0);
	}
	close(ends[0]);
	return dir;
}
