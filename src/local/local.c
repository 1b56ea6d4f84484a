/* SPDX-License-Identifier: MIT
 * The private server behind local:.  One folder a user, /var/tmp/latchkey-<uid> (for root in /run):
 * the same for every kind of login, in cron and under env -i, and kept after logout.  A server
 * locks the folder (flock) before it starts and for its life: so there is at most one, a socket
 * without a lock is stale, and cleaners of temporary folders skip the folder.  We test that lock
 * only for a moment and release it by LOCK_UN, which also releases a copy that a worker inherited
 * if the program forks at that moment. */
#include "local.h"

#include "../net/fork.h"
#include "local_exec.h"
#include "local_memory.h"
#include "../base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_NAME "/redis.sock"
#define DIR_MAX (108 - sizeof(SOCKET_NAME))
#define PAUSE_NS (3 * LK__MS) /* between polls of a server that is starting or stopping */
#define ANSWER_NS (1000 * LK__MS)
#define STOP_NS (5000 * LK__MS)
#define START_NS (10000 * LK__MS)

/* ---- The folder --------------------------------------------------------------------------- */

/* A systemd unit with PrivateTmp has its own /var/tmp: a server there would be a second one, which
 * grants every lock again. */
static bool var_tmp_is_private(void)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[1024];
	bool found = false;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file))
		found = strstr(line, " /var/tmp ") && strstr(line, "systemd-private-");
	fclose(file);
	return found;
}

static lk_err folder_path(char dir[108], struct lk__why *why)
{
	/* For tests, and for containers that share a volume. */
	const char *given = lk__local_env("LATCHKEY_LOCAL_DIR");
	const char *base = geteuid() == 0 && access("/run", F_OK) == 0 ? "/run" : "/var/tmp";
	int len;

	if (given && *given) {
		len = snprintf(dir, 108, "%s", given);
		if (len < 0 || (size_t)len > DIR_MAX || dir[0] != '/')
			return lk__why_set(
				why, LK_ESYSTEM,
				"LATCHKEY_LOCAL_DIR: must be an absolute path of at most %zu "
				"bytes, not %s",
				DIR_MAX, given);
		return LK_OK;
	}
	if (!strcmp(base, "/var/tmp") && var_tmp_is_private())
		return lk__why_set(
			why, LK_ESYSTEM,
			"local: not shared with other programs, since this service has a "
			"private /var/tmp (PrivateTmp): use a redis:// URL");
	snprintf(dir, 108, "%s/latchkey-%lu", base, (unsigned long)geteuid());
	return LK_OK;
}

/* Open the folder, create it if make, and check that it is ours. */
static lk_err folder_open(const char *dir, bool make, int *fd, struct lk__why *why)
{
	struct stat status;

	if (make && mkdir(dir, 0700) != 0 && errno != EEXIST)
		return lk__why_set(why, LK_ESYSTEM, "%s: cannot create: %s", dir, strerror(errno));
	*fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*fd < 0 && !make && errno == ENOENT)
		return LK_EABSENT;
	if (*fd < 0)
		return lk__why_set(why, LK_ESYSTEM, "%s: cannot open: %s", dir,
		                   errno == ELOOP || errno == ENOTDIR ? "not a folder"
		                                                      : strerror(errno));
	if (fstat(*fd, &status) == 0 && status.st_uid == geteuid() &&
	    (status.st_mode & 0777) == 0700)
		return LK_OK;
	close(*fd);
	*fd = -1;
	return lk__why_set(why, LK_ESYSTEM, "%s: unsafe: must belong to uid %lu with mode 0700",
	                   dir, (unsigned long)geteuid());
}

/* No server has the folder or is starting in it. */
static bool folder_is_free(int folder)
{
	return flock(folder, LOCK_SH | LOCK_NB) == 0 && flock(folder, LOCK_UN) == 0;
}

/* ---- Requests to the server --------------------------------------------------------------- */

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = lk__fork_socket(AF_UNIX, SOCK_STREAM, 0);

	if (fd < 0)
		return -1;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	lk__fork_close(fd);
	return -1;
}

/* Send a line and check how the response begins. */
static bool responds_with(int fd, const char *line, const char *expected, int64_t deadline_ns)
{
	char answer[16] = "";
	size_t len = strlen(line);
	ssize_t got;

	if (send(fd, line, len, MSG_NOSIGNAL) != (ssize_t)len)
		return false;
	if (!(lk__poll2(fd, POLLIN, -1, deadline_ns) & 1))
		return false;
	got = recv(fd, answer, sizeof(answer) - 1, 0);
	return got > 0 && !strncmp(answer, expected, strlen(expected));
}

static bool responds(const char *path, int64_t *pid)
{
	int fd = connect_to(path);
	bool good;

	if (fd < 0)
		return false;
	good = responds_with(fd, "PING\r\n", "+PONG", lk__now_ns() + ANSWER_NS);
#ifdef SO_PEERCRED
	struct ucred peer;
	socklen_t len = sizeof(peer);
	if (pid && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
		*pid = peer.pid;
#else
	(void)pid;
#endif
	lk__fork_close(fd);
	return good;
}

static void pause_until(int64_t when_ns)
{
	lk__poll2(-1, 0, -1, when_ns);
}

/* True if cancel_fd became readable meanwhile. */
static bool pause_or_cancel(int cancel_fd, int64_t when_ns)
{
	return lk__poll2(-1, 0, cancel_fd, when_ns) & 2;
}

/* ---- Start -------------------------------------------------------------------------------- */

static lk_err no_server(struct lk__why *why)
{
	return lk__why_set(
		why, LK_ENOSERVER,
		"local: no redis-server or valkey-server found, install one (Debian, Ubuntu: "
		"apt-get install redis-server; Fedora: dnf install valkey; Alpine: apk add "
		"redis; macOS: brew install redis)");
}

/* Start a server unless one responds; wait until it does, by deadline_ns. */
static lk_err have_server(const char *dir, int folder, const char *path, int64_t deadline_ns,
                          int cancel_fd, struct lk__why *why)
{
	struct lk__server server;
	bool started = false;

	for (;;) {
		if (responds(path, NULL))
			return LK_OK;
		if (!started && folder_is_free(folder)) {
			lk_err err;

			if (!lk__server_find(&server))
				return no_server(why);
			err = lk__server_exec(&server, dir, path, deadline_ns, why);
			if (err != LK_OK && err != LK_EBUSY)
				return err;
			started = err == LK_OK;
		}
		if (lk__now_ns() >= deadline_ns)
			return lk__why_set(why, LK_ECONN,
			                   "local: server does not respond, see %s/log", dir);
		if (pause_or_cancel(cancel_fd, lk__now_ns() + PAUSE_NS))
			return lk__why_set(why, LK_ECONN, "local: canceled");
	}
}

lk_err lk__local_ensure(char socket_path[108], int64_t deadline_ns, int cancel_fd,
                        struct lk__why *why)
{
	char dir[108];
	int folder;
	lk_err err = folder_path(dir, why);

	if (err)
		return err;
	snprintf(socket_path, 108, "%.90s%s", dir, SOCKET_NAME);
	if ((err = folder_open(dir, true, &folder, why)))
		return err;
	err = have_server(dir, folder, socket_path, deadline_ns, cancel_fd, why);
	close(folder);
	return err;
}

int64_t lk__local_unheld(void)
{
	char dir[108], text[LK__BEGAN_SIZE];
	struct lk__why why;
	int folder;

	if (folder_path(dir, &why) || folder_open(dir, false, &folder, &why))
		return 0;
	lk__memory_read(folder, text);
	close(folder);
	return lk__memory_unheld(text);
}

/* ---- Public ------------------------------------------------------------------------------- */

static lk_err look(lk_local_info *info, struct lk__why *why)
{
	struct lk__server server;
	char dir[108];
	int folder;
	lk_err err = folder_path(dir, why);

	if (err)
		return err;
	memset(info, 0, sizeof(*info));
	snprintf(info->socket_path, sizeof(info->socket_path), "%.90s%s", dir, SOCKET_NAME);
	/* A server in a folder that is not ours is not our server. */
	err = folder_open(dir, false, &folder, why);
	if (err != LK_OK && err != LK_EABSENT)
		return err;
	if (err == LK_OK) {
		close(folder);
		info->running = responds(info->socket_path, &info->pid);
	}
	if (!info->running)
		info->pid = 0;
	if (lk__server_find(&server))
		snprintf(info->server_path, sizeof(info->server_path), "%s", server.path);
	return LK_OK;
}

lk_err lk_local_status(lk_local_info *result)
{
	lk_local_info info;
	struct lk__why why = {0};
	lk_err err = lk__refuse_null(result, "info");

	if (err)
		return err;
	if (look(&info, &why))
		return lk__fail(&why);
	*result = info;
	return LK_OK;
}

lk_err lk_local_start(lk_local_info *result)
{
	char path[108];
	struct lk__why why = {0};
	lk_err err = lk__refuse_null(result, "info");

	if (err)
		return err;
	if (lk__local_ensure(path, lk__now_ns() + START_NS, -1, &why))
		return lk__fail(&why);
	return lk_local_status(result);
}

/* Wait until the folder's lock is free: the next start must not meet the old server. */
static bool ended(int folder, int64_t deadline_ns)
{
	while (!folder_is_free(folder)) {
		if (lk__now_ns() >= deadline_ns)
			return false;
		pause_until(lk__now_ns() + PAUSE_NS);
	}
	return true;
}

/* Returns 1 if nothing is held in any database, and no client can hold what this server does not
 * know: the server is the process ARGV[1], which began when nothing was held, or has been up for
 * longer than any grace, and never lost its keys at once. */
static const char unheld_script[] =
	"local info = redis.call('INFO', 'server') "
	"if string.match(info, 'process_id:(%d+)') ~= ARGV[1] and "
	"tonumber(string.match(info, 'uptime_in_seconds:(%d+)')) < 86400 then return 0 end "
	"local calls = redis.call('INFO', 'commandstats') "
	"if string.find(calls, 'cmdstat_flush') then return 0 end "
	"if string.find(calls, 'cmdstat_swapdb') then return 0 end "
	"local now = redis.call('TIME') "
	"now = now[1] .. string.format('%06d', now[2]) "
	"for db in string.gmatch(redis.call('INFO', 'keyspace'), 'db(%d+):') do "
	"redis.call('SELECT', db) "
	"for _, key in ipairs(redis.call('KEYS', '*')) do "
	"local kind = redis.call('TYPE', key).ok "
	/* A lock; the holds of a semaphore that have not expired. */
	"if kind == 'string' and string.find(redis.call('GET', key) or '', '^%d+:') then return 0 "
        "end "
	"if kind == 'zset' and string.find(key, ':h$') then "
	"for _, ticket in ipairs(redis.call('ZRANGEBYSCORE', key, now, '+inf')) do "
	"if not string.find(ticket, ':n:%d+$') then return 0 end end end end end return 1";

/* Is nothing held, and will nothing be until the server has ended?  It executes no script that
 * writes from now on.  Servers before 7.0 do not answer this. */
static bool is_unheld(int fd, int64_t pid)
{
	char line[sizeof(unheld_script) + 60];

	snprintf(line, sizeof(line), "CLIENT PAUSE %lld WRITE\r\n",
	         (long long)(2 * STOP_NS / LK__MS));
	if (!responds_with(fd, line, "+OK", lk__now_ns() + ANSWER_NS))
		return false;
	snprintf(line, sizeof(line), "EVAL_RO \"%s\" 0 %lld\r\n", unheld_script, (long long)pid);
	return responds_with(fd, line, ":1", lk__now_ns() + ANSWER_NS);
}

static lk_err stop(int folder, const char *path, struct lk__why *why)
{
	int64_t pid = 0; /* known even of a stopped process, which cannot respond */
	char text[LK__BEGAN_SIZE];
	bool unheld = false;
	int fd;

	if (!responds(path, &pid) && folder_is_free(folder))
		return lk__why_set(why, LK_EABSENT, "local: server is not running");
	lk__memory_read(folder, text);
	fd = connect_to(path);
	if (fd >= 0) {
		unheld = is_unheld(fd, lk__memory_unheld(text));
		/* Its response is to close the connection. */
		responds_with(fd, "SHUTDOWN NOSAVE\r\n", "", lk__now_ns() + ANSWER_NS);
		lk__fork_close(fd);
	}
	if (ended(folder, lk__now_ns() + STOP_NS)) {
		if (unheld)
			lk__memory_forget(folder, text);
		return LK_OK;
	}
	if (pid > 1 && kill((pid_t)pid, SIGKILL) == 0 && ended(folder, lk__now_ns() + STOP_NS))
		return LK_OK;
	return lk__why_set(why, LK_ESYSTEM, "local: server (pid %lld) does not exit",
	                   (long long)pid);
}

lk_err lk_local_stop(void)
{
	struct lk__why why = {0};
	char dir[108], path[108];
	int folder;
	lk_err err = folder_path(dir, &why);

	if (!err)
		err = folder_open(dir, false, &folder, &why);
	if (err == LK_EABSENT)
		return lk__failf(LK_EABSENT, "local: server is not running");
	if (err)
		return lk__fail(&why);
	snprintf(path, sizeof(path), "%.90s%s", dir, SOCKET_NAME);
	err = stop(folder, path, &why);
	close(folder);
	return err ? lk__fail(&why) : LK_OK;
}
