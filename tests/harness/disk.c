/* SPDX-License-Identifier: MIT
 * A disk that can stand still: see disk.h. */
#include "disk.h"

#include "process.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE_MB 400 /* etcd reserves 64 MB at once for each part of its log */

/* Thaw it when the test has ended: no signal ends a process that writes to it. */
static void guard(struct disk *disk)
{
	int ends[2];
	pid_t pid;
	char byte;

	ck_assert(!pipe2(ends, O_CLOEXEC));
	pid = process_fork();
	if (!pid) {
		setsid(); /* Check ends the test's group */
		for (int fd = 0; fd < 256; fd++)
			if (fd != ends[0] && fd != disk->folder)
				close(fd);
		while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
			continue;
		ioctl(disk->folder, FITHAW, 0);
		_exit(0);
	}
	close(ends[0]);
	disk->guard = ends[1];
}

void disk_mount(struct disk *disk, const char *folder)
{
	setenv("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin", 1);
	ck_assert(!unshare(CLONE_NEWNS));
	ck_assert(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	ck_assert(!mkdir(folder, 0700));
	ck_assert_msg(!shell("truncate -s %dM '%s.disk' && mkfs.ext4 -q -F -m 0 -O ^has_journal "
	                     "'%s.disk' && mount -o loop '%s.disk' '%s' && chmod 700 '%s'",
	                     SIZE_MB, folder, folder, folder, folder, folder),
	              "no disk in %s", folder);
	disk->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(disk->folder, 0);
	guard(disk);
}

void disk_freeze(struct disk *disk)
{
	ck_assert(!ioctl(disk->folder, FIFREEZE, 0));
}

void disk_thaw(struct disk *disk)
{
	ck_assert(!ioctl(disk->folder, FITHAW, 0));
}
