/* SPDX-License-Identifier: MIT
 * The clock of servers: see server_clock.h.  tests/preload/clock.c is what they load. */
#include "server_clock.h"

#include "process.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int fd;

/* The layout that tests/preload/clock.c reads. */
struct moved {
	int64_t offset_ms, ppm, since_us;
};

void server_clock_move(int64_t offset_ms, int64_t ppm)
{
	struct timespec now;
	struct moved moved;

	clock_gettime(CLOCK_REALTIME, &now);
	moved = (struct moved){offset_ms, ppm, now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000};
	ck_assert(pwrite(fd, &moved, sizeof(moved), 0) == sizeof(moved));
}

void server_clock_begin(void)
{
	char self[512], shim[600], folder[80], file[100];
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	ck_assert_int_gt(len, 0);
	self[len] = 0;
	snprintf(shim, sizeof(shim), "%.*s/clock.so", (int)(strrchr(self, '/') - self), self);
	ck_assert_msg(!access(shim, R_OK), "%s is missing", shim);
	folder_make(folder, sizeof(folder));
	snprintf(file, sizeof(file), "%s/clock", folder);
	fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	server_clock_move(0, 0);
	setenv("CLOCK_FILE", file, 1);
	setenv("LD_PRELOAD", shim, 1);
}

void server_clock_end(void)
{
	unsetenv("LD_PRELOAD");
	unsetenv("CLOCK_FILE");
}
