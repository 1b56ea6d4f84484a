/* SPDX-License-Identifier: MIT
 * Real Redis (or Valkey) servers for tests: one a test, stopped with it however it ends. */
#include "server.h"

#include "process.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TRIES 5
#define START_MS 10000

static bool find_on_path(const char *name, char *path, unsigned size)
{
	const char *dirs = getenv("PATH");
	char all[4096];

	snprintf(all, sizeof(all), "%s:/usr/bin:/usr/local/bin:/usr/sbin", dirs ? dirs : "");
	for (char *at = all, *next; at; at = next) {
		next = strchr(at, ':');
		if (next)
			*next++ = 0;
		if (!*at)
			continue;
		snprintf(path, size, "%s/%s", at, name);
		if (!access(path, X_OK))
			return true;
	}
	return false;
}

bool server_find(char *path, unsigned size, const char **argv0)
{
	/* Debian's redis-server is a link to redis-check-rdb; redis-tools alone installs the
	 * latter. */
	static const char *const binaries[][2] = {{"redis-server", "redis-server"},
	                                          {"valkey-server", "valkey-server"},
	                                          {"redis-check-rdb", "redis-server"},
	                                          {"valkey-check-rdb", "valkey-server"}};
	const char *given = getenv("LATCHKEY_SERVER");

	if (given && *given) {
		snprintf(path, size, "%s", given);
		*argv0 = strstr(given, "valkey") ? "valkey-server" : "redis-server";
		return !access(path, X_OK);
	}
	for (size_t i = 0; i < sizeof(binaries) / sizeof(binaries[0]); i++) {
		*argv0 = binaries[i][1];
		if (find_on_path(binaries[i][0], path, size))
			return true;
	}
	return false;
}

int port_pick(void)
{
	for (int tries = 0; tries < 1000; tries++) {
		struct sockaddr_in address = {.sin_family = AF_INET};
		unsigned short number;
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, failed;

		ck_assert_int_ge(fd, 0);
		ck_assert(getrandom(&number, sizeof(number), 0) == sizeof(number));
		number = (unsigned short)(10000 + number % 20000);
		address.sin_port = htons(number);
		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		failed = bind(fd, (struct sockaddr *)&address, sizeof(address));
		close(fd);
		if (!failed)
			return number;
	}
	ck_abort_msg("no free port");
	return 0;
}

/* Ask on the Unix socket, which is in our own folder: no other server can reply there. */
bool server_answers(const struct test_server *server)
{
	static const char ping[] = "PING\r\n";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char reply[64];
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ssize_t got = -1;

	memcpy(address.sun_path, server->socket_path, sizeof(server->socket_path));
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
	    send(fd, ping, sizeof(ping) - 1, MSG_NOSIGNAL) > 0) {
		struct pollfd ready = {fd, POLLIN, 0};
		if (poll(&ready, 1, 1000) == 1)
			got = recv(fd, reply, sizeof(reply) - 1, 0);
	}
	close(fd);
	if (got <= 0)
		return false;
	reply[got] = 0;
	return !strncmp(reply, "+PONG", 5) || !strncmp(reply, "-NOAUTH", 7) ||
	       !strncmp(reply, "-NOPERM", 7);
}

static void run(const struct test_server *server, const char *path, const char *argv0)
{
	char port[16], bus_port[16], tls_port[16];
	const char *argv[SERVER_ARGS_MAX + 32] = {argv0,
	                                          "--port",
	                                          port,
	                                          "--bind",
	                                          "127.0.0.1",
	                                          "--dir",
	                                          server->dir,
	                                          "--unixsocket",
	                                          server->socket_path,
	                                          "--save",
	                                          "",
	                                          "--loglevel",
	                                          "warning",
	                                          "--logfile",
	                                          "redis.log",
	                                          "--daemonize",
	                                          "no",
	                                          "--enable-debug-command",
	                                          "yes",
	                                          "--appendonly"};
	int count = 20;
	char *const *exec_argv;

	snprintf(port, sizeof(port), "%d", server->port);
	if (server->args[0] && !strcmp(server->args[0], "AOF")) {
		argv[count++] = "yes";
		argv[count++] = "--appendfsync";
		argv[count++] = "always";
	} else {
		argv[count++] = "no";
	}
	if (server->bus_port) {
		snprintf(bus_port, sizeof(bus_port), "%d", server->bus_port);
		argv[count++] = "--cluster-enabled";
		argv[count++] = "yes";
		argv[count++] = "--cluster-port";
		argv[count++] = bus_port;
	}
	if (server->tls_port) {
		snprintf(tls_port, sizeof(tls_port), "%d", server->tls_port);
		argv[count++] = "--tls-port";
		argv[count++] = tls_port;
	}
	for (int i = 1; server->args[i]; i++)
		argv[count++] = server->args[i];
	argv[count] = NULL;
	memcpy(&exec_argv, &(const char **){argv}, sizeof(exec_argv));
	execv(path, exec_argv);
}

/* Start once; false if the process ends before it replies, as it does if the port is in use. */
static bool start_once(struct test_server *server)
{
	char path[4200];
	const char *argv0;
	pid_t parent = getpid();
	int64_t end = now_ms() + START_MS;

	if (!server_find(path, sizeof(path), &argv0))
		ck_abort_msg("no redis-server or valkey-server: install redis-tools");
	server->pid = process_fork();
	if (!server->pid) {
		int null = open("/dev/null", O_RDWR);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		signal(SIGPIPE, SIG_DFL);
		run(server, path, argv0);
		_exit(126);
	}
	while (!server_answers(server)) {
		if (waitpid(server->pid, NULL, WNOHANG) == server->pid || now_ms() > end) {
			server_kill(server);
			return false;
		}
		nap_ms(2);
	}
	return true;
}

/* A server that has just begun may have forgotten a holder. Clients of a test's URLs do not wait
 * for the end of its grace, unless the test is one of the grace itself. */
static void name_urls(struct test_server *server, const struct server_options *options)
{
	const char *query = options->grace ? "" : "?grace=0";

	server->port = options->unix_only ? 0 : port_pick();
	server->bus_port = options->cluster ? port_pick() : 0;
	server->tls_port = options->tls ? port_pick() : 0;
	snprintf(server->socket_path, sizeof(server->socket_path), "%s/s", server->dir);
	snprintf(server->unix_url, sizeof(server->unix_url), "redis+unix://%s%s",
	         server->socket_path, query);
	if (options->unix_only)
		memcpy(server->url, server->unix_url, sizeof(server->url));
	else
		snprintf(server->url, sizeof(server->url), "redis://127.0.0.1:%d%s", server->port,
		         query);
}

void server_start(struct test_server *server, const struct server_options *options)
{
	static const struct server_options defaults;
	int count = 0;

	if (!options)
		options = &defaults;
	memset(server, 0, sizeof(*server));
	folder_make(server->dir, sizeof(server->dir));
	server->args[count++] = options->appendonly ? "AOF" : "-";
	for (int i = 0; options->args && options->args[i]; i++) {
		ck_assert_int_lt(count, SERVER_ARGS_MAX - 1);
		server->args[count++] = options->args[i];
	}
	for (int tries = 0; tries < START_TRIES; tries++) {
		name_urls(server, options);
		if (start_once(server))
			return;
	}
	ck_abort_msg("the server in %s does not start: see its redis.log", server->dir);
}

void server_kill(struct test_server *server)
{
	if (!server->pid)
		return;
	kill(server->pid, SIGKILL);
	while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	server->pid = 0;
}

void server_restart(struct test_server *server)
{
	server_kill(server);
	unlink(server->socket_path);
	if (!start_once(server))
		ck_abort_msg("the server in %s does not start again", server->dir);
}

void server_stop(struct test_server *server)
{
	server_kill(server);
	folder_remove(server->dir);
}

void server_pause(struct test_server *server)
{
	int status;

	ck_assert(!kill(server->pid, SIGSTOP));
	ck_assert_int_eq(waitpid(server->pid, &status, WUNTRACED), server->pid);
	ck_assert(WIFSTOPPED(status));
}

void server_resume(struct test_server *server)
{
	ck_assert(!kill(server->pid, SIGCONT));
}
