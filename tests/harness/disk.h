/* SPDX-License-Identifier: MIT
 * A disk that can stand still: a file system of its own in a file, which FIFREEZE freezes.  Each
 * writer then sleeps until it is thawed, by disk_thaw() or by the end of the test, however that
 * comes.  Only the test's own processes see it. */
#ifndef DISK_H
#define DISK_H

#include "rights.h"

/* In the first lines of such a test. */
#define NEEDS_DISK                                                                                 \
	do {                                                                                       \
		NEEDS_ROOT;                                                                        \
		NEEDS(right_to_unshare("--mount sh -c 'losetup --find && mkfs.ext4 -V'",           \
		                       __func__));                                                 \
	} while (0)

struct disk {
	int folder; /* open */
	int guard;  /* with the end of this pipe, a process thaws it */
};

/* Mount it there; the folder is made.  Before the test has threads. */
void disk_mount(struct disk *disk, const char *folder);
void disk_freeze(struct disk *disk);
void disk_thaw(struct disk *disk);

#endif
