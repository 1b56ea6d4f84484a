/* SPDX-License-Identifier: MIT
 * The processes of a store of more than one, on free ports of 127.0.0.1, in folders of their own.
 * They end with the demo, even if it is killed. */
#include "demo.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#define REPLY_TIMEOUT_MS 500
#define START_TRIES 5
#define START_LIMIT_MS 10000
#define AGREE_LIMIT_MS 60000
#define LOOK_MS 20
#define FIRST_PORT 10000 /* below those that systems give to clients */
#define PORTS 11000      /* a node of a Cluster uses the port 10000 above as well */

void end_with_parent(pid_t parent)
{
#if defined(__linux__)
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
#else
	(void)parent;
#endif
}

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in address;

	memset(&address, 0, sizeof(address));
	address.sin_family = AF_INET;
	address.sin_port = htons((unsigned short)port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return address;
}

int node_pick_port(void)
{
	static unsigned int next;

	if (next == 0)
		next = (unsigned int)getpid() * 7919U + (unsigned int)now_us();
	for (int tries = 0; tries < 1000; tries++) {
		int port = FIRST_PORT + (int)((next += 101) % PORTS), free_now;
		struct sockaddr_in address = loopback(port);
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		if (fd < 0)
			return 0;
		free_now = bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
		close(fd);
		if (free_now)
			return port;
	}
	return 0;
}

/* then_end: send the end of the stream, too, so that a server of Redis closes. */
static bool converse(const struct node *node, const char *command, bool then_end,
                     char reply[REPLY_SIZE])
{
	struct timeval limit = {.tv_usec = REPLY_TIMEOUT_MS * 1000};
	struct sockaddr_in address = loopback(node->port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	size_t len = 0;
	ssize_t got = 0;

	reply[0] = '\0';
	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    channel_send(fd, command, strlen(command)) && (!then_end || shutdown(fd, SHUT_WR) == 0))
		while (len < REPLY_SIZE - 1 &&
		       (got = recv(fd, reply + len, REPLY_SIZE - 1 - len, 0)) > 0)
			len += (size_t)got;
	close(fd);
	reply[len] = '\0';
	return len > 0;
}

bool node_ask(const struct node *node, const char *command, char reply[REPLY_SIZE])
{
	return converse(node, command, true, reply);
}

bool node_get(const struct node *node, const char *request, char reply[REPLY_SIZE])
{
	return converse(node, request, false, reply);
}

void node_become_server(void)
{
	int null = open("/dev/null", O_RDWR);

	/* ^C on a terminal reaches the demo only, which ends its servers last. */
	setpgid(0, 0);
	for (int fd = 0; null >= 0 && fd < 3; fd++)
		dup2(null, fd);
}

/* In the child; returns only if there is no server to run. */
static void run_server(const char *config, bool is_sentinel)
{
	/* Debian's redis-server is a link to redis-check-rdb, which some packages have alone. */
	static const char *const programs[][2] = {{"redis-server", "redis-server"},
	                                          {"valkey-server", "valkey-server"},
	                                          {"redis-check-rdb", "redis-server"},
	                                          {"valkey-check-rdb", "valkey-server"}};

	node_become_server();
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		execlp(programs[i][0], programs[i][1], config, is_sentinel ? "--sentinel" : NULL,
		       (char *)NULL);
}

static bool write_config(const struct demo *demo, const struct node *node, bool is_sentinel,
                         const char *path, const char *folder)
{
	const struct node *first = &demo->service.servers[0];
	FILE *file = fopen(path, "w");

	if (!file)
		return complain(path, strerror(errno));
	fprintf(file, "port %d\nbind 127.0.0.1\ndir %s\nlogfile log\n", node->port, folder);
	if (is_sentinel)
		fprintf(file,
		        "sentinel monitor " SERVICE " 127.0.0.1 %d 2\n"
		        "sentinel down-after-milliseconds " SERVICE " %d\n"
		        "sentinel failover-timeout " SERVICE " 5000\n",
		        first->port, DOWN_AFTER_MS);
	else if (demo->store == CLUSTER)
		fprintf(file,
		        "save \"\"\nrepl-diskless-sync-delay 0\n"
		        "cluster-enabled yes\ncluster-node-timeout %d\n"
		        "cluster-replica-validity-factor 0\n",
		        DOWN_AFTER_MS);
	else
		fprintf(file, "save \"\"\nrepl-diskless-sync-delay 0\n"
		              "repl-ping-replica-period 1\n");
	if (!is_sentinel && demo->store == SENTINEL && node != first)
		fprintf(file, "replicaof 127.0.0.1 %d\n", first->port);
	return fclose(file) == 0 || complain(path, strerror(errno));
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
}

/* Wait until the new process, and no other one, answers on its port. */
static bool await_answer(struct node *node, volatile const int *stop)
{
	int64_t end_us = now_us() + START_LIMIT_MS * 1000LL;
	char reply[REPLY_SIZE], expected[40];

	snprintf(expected, sizeof(expected), "process_id:%ld\r", (long)node->pid);
	while (!node_ask(node, "INFO server\r\n", reply) || !strstr(reply, expected)) {
		if (waitpid(node->pid, NULL, WNOHANG) == node->pid) {
			node->pid = 0;
			return false;
		}
		if (*stop || now_us() > end_us)
			return false;
		nap();
	}
	return true;
}

static void name_folder(const struct demo *demo, const char *name, char folder[PATH_SIZE])
{
	snprintf(folder, PATH_SIZE, "%.220s/%s", demo->folder, name);
}

/* Start it in its folder, on its port or, if that is 0, on a free one. */
static bool run_node(const struct demo *demo, struct node *node, const char *name,
                     const char *folder, volatile const int *stop)
{
	bool is_sentinel = !strncmp(name, "sentinel", 8);
	char config[PATH_SIZE + 8];
	int port = node->port;
	pid_t parent = getpid();

	snprintf(config, sizeof(config), "%s/conf", folder);
	for (int tries = 0; tries < START_TRIES && node->pid == 0 && !*stop; tries++) {
		node->port = port ? port : node_pick_port();
		if (!write_config(demo, node, is_sentinel, config, folder))
			return false;
		node->pid = fork();
		if (node->pid == 0) {
			end_with_parent(parent);
			run_server(config, is_sentinel);
			_exit(127);
		}
		if (node->pid < 0) {
			node->pid = 0;
			return complain("cannot fork", strerror(errno));
		}
		if (await_answer(node, stop)) {
			printf("%s: 127.0.0.1:%d, pid %ld\n", name, node->port, (long)node->pid);
			return true;
		}
	}
	return complain(name,
	                *stop ? "interrupted" : "does not start (is redis-server installed?)");
}

bool node_start(struct demo *demo, struct node *node, const char *name, volatile const int *stop)
{
	char folder[PATH_SIZE];

	name_folder(demo, name, folder);
	node->port = 0;
	if (mkdir(folder, 0700) != 0)
		return complain(folder, strerror(errno));
	return run_node(demo, node, name, folder, stop);
}

bool node_restart(struct demo *demo, struct node *node, const char *name, volatile const int *stop)
{
	char folder[PATH_SIZE];

	name_folder(demo, name, folder);
	node_kill(node);
	return run_node(demo, node, name, folder, stop);
}

bool node_await(bool (*reached)(struct service *), struct service *service, const char *what,
                volatile const int *stop)
{
	int64_t end_us = now_us() + AGREE_LIMIT_MS * 1000LL;

	while (!reached(service)) {
		if (*stop || now_us() > end_us)
			return complain(what, *stop ? "interrupted" : "took too long");
		nap();
	}
	return true;
}

void node_kill(struct node *node)
{
	if (node->pid == 0)
		return;
	kill(node->pid, SIGKILL);
	while (waitpid(node->pid, NULL, 0) < 0 && errno == EINTR)
		;
	node->pid = 0;
}
