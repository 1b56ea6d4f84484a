/* SPDX-License-Identifier: MIT
 * Faults of the links between workers and server: by the proxies, and, in a network namespace, by
 * the kernel's packet filter. */
#include "chaos/nemesis.h"

#include "harness/process.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- packets ------------------------------------------------------------------------------ */

static bool file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return written;
}

bool nemesis_namespace(const char **why)
{
	struct ifreq lo = {.ifr_name = "lo"};
	unsigned uid = getuid(), gid = getgid();
	char map[64];
	int fd, failed;

	setenv("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin", 1);
	*why = strerror(errno);
	if (unshare(CLONE_NEWNET)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNET)) {
			*why = strerror(errno);
			return false;
		}
		file_write("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		file_write("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "0 %u 1", gid);
		file_write("/proc/self/gid_map", map);
	}
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	lo.ifr_flags = IFF_UP | IFF_RUNNING;
	failed = ioctl(fd, SIOCSIFFLAGS, &lo);
	*why = failed ? strerror(errno) : "nft does not work";
	close(fd);
	return !failed && !shell("nft add table inet probe && nft delete table inet probe");
}

static bool packets_begin(struct round *round, const struct nemesis_fault *fault)
{
	bool up = fault->kind != NEMESIS_PACKETS_DOWN;

	return !shell("nft 'add table inet proxy%d; add chain inet proxy%d in "
	              "{ type filter hook input priority 0; }; "
	              "add rule inet proxy%d in tcp %s %d %s'",
	              fault->target, fault->target, fault->target, up ? "dport" : "sport",
	              round->proxies[fault->target].port,
	              fault->kind == NEMESIS_PACKETS_RESET ? "reject with tcp reset" : "drop");
}

/* ---- bytes -------------------------------------------------------------------------------- */

/* Both links or one, both ways or one. */
static void bytes_begin(struct round *round, struct proxy *proxy, const struct proxy_fault *what)
{
	int link = (int)chaos_between(&round->dice, 0, PROXY_LINKS);
	int way = (int)chaos_between(&round->dice, 0, PROXY_WAYS);

	for (int i = 0; i < PROXY_LINKS; i++)
		for (int j = 0; j < PROXY_WAYS; j++)
			if ((link == PROXY_LINKS || link == i) && (way == PROXY_WAYS || way == j))
				proxy_set(proxy, (enum proxy_link)i, (enum proxy_way)j, what);
}

bool nemesis_network_begin(struct round *round, struct nemesis_fault *fault, int64_t ms)
{
	struct proxy *proxy = &round->proxies[fault->target];
	struct proxy_fault what = {0};
	bool gently = chaos_once_in(&round->dice, 2);

	(void)ms;
	switch (fault->kind) {
	case NEMESIS_DELAY:
		what.delay_ms = chaos_between(&round->dice, 1, 300);
		break;
	case NEMESIS_JITTER:
		what.jitter_ms = chaos_between(&round->dice, 1, 300);
		break;
	case NEMESIS_SLICE:
		what.slice = true;
		break;
	case NEMESIS_STALL:
		what.stall = true;
		break;
	case NEMESIS_DROP:
		what.drop = true;
		break;
	case NEMESIS_CUT_AT_BYTE:
		what.cut_after = chaos_between(&round->dice, 1, 3000);
		what.cut_gently = gently;
		break;
	case NEMESIS_CUT:
		proxy_cut(proxy, (enum proxy_link)chaos_between(&round->dice, 0, 1), gently);
		return true;
	case NEMESIS_REFUSE:
	case NEMESIS_BLACK_HOLE:
		if (fault->kind == NEMESIS_REFUSE)
			proxy_refuse(proxy, true);
		else
			proxy_black_hole(proxy, true);
		/* Existing connections must reconnect to meet it. */
		proxy_cut(proxy, PROXY_COMMANDS, gently);
		return true;
	default:
		return packets_begin(round, fault);
	}
	bytes_begin(round, proxy, &what);
	return true;
}

void nemesis_network_end(struct round *round, struct nemesis_fault *fault)
{
	struct proxy *proxy = &round->proxies[fault->target];

	if (fault->kind >= NEMESIS_PACKETS_UP) {
		if (shell("nft delete table inet proxy%d", fault->target))
			round_complain(round, "a packet filter cannot be removed");
		return;
	}
	if (fault->kind == NEMESIS_DROP || fault->kind == NEMESIS_BLACK_HOLE) {
		/* No network delivers bytes after it lost some: close these connections. */
		proxy_refuse(proxy, true);
		proxy_cut(proxy, PROXY_COMMANDS, false);
		proxy_cut(proxy, PROXY_MESSAGES, false);
	}
	proxy_heal(proxy);
}
