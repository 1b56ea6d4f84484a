/* SPDX-License-Identifier: MIT
 * A network of a test's own. */
#include "own_network.h"

#include <check.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	ck_assert_msg(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s",
	              path);
	close(fd);
}

void own_network_enter(void)
{
	struct ifreq lo = {.ifr_name = "lo"};
	char map[64];
	unsigned uid = getuid(), gid = getgid();
	int fd;

	setenv("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin", 1);
	if (unshare(CLONE_NEWNET)) {
		ck_assert_msg(!unshare(CLONE_NEWUSER | CLONE_NEWNET),
		              "no network namespace: run as root, or allow user namespaces");
		file_write("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		file_write("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "0 %u 1", gid);
		file_write("/proc/self/gid_map", map);
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	lo.ifr_flags = IFF_UP | IFF_RUNNING;
	ck_assert_msg(!ioctl(fd, SIOCSIFFLAGS, &lo), "cannot bring the loopback up");
	close(fd);
}
