/* SPDX-License-Identifier: MIT
 * The server of a run: a Redis of its own, or several for a quorum; or an etcd with its data on
 * disk. */
#include "driver.h"

#include "harness/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ETCD_START_MS 20000
#define ANSWER_MAX (1 << 20)

bool store_exists(const char *server)
{
	return strcmp(server, "etcd") || !shell("command -v etcd >/dev/null 2>&1");
}

static void etcd_run(const struct test_server *server, int peer_port)
{
	int null = open("/dev/null", O_RDWR);
	char data[100], client[40], peer[40], cluster[60];

	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	snprintf(data, sizeof(data), "%s/data", server->dir);
	snprintf(client, sizeof(client), "http://127.0.0.1:%d", server->port);
	snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", peer_port);
	snprintf(cluster, sizeof(cluster), "default=%s", peer);
	execlp("etcd", "etcd", "--data-dir", data, "--listen-client-urls", client,
	       "--advertise-client-urls", client, "--listen-peer-urls", peer,
	       "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, (char *)NULL);
	_exit(126);
}

/* The whole response to GET path, "" if there is none; the caller frees it. */
static char *http_get(int port, const char *path)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_port = htons((unsigned short)port),
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char *answer = calloc(1, ANSWER_MAX);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t len = 0;
	ssize_t got;

	if (!answer || fd < 0)
		give_up("no memory or no socket");
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
	    dprintf(fd, "GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n", path) > 0)
		while (len < ANSWER_MAX - 1 &&
		       (got = read(fd, answer + len, ANSWER_MAX - 1 - len)) > 0)
			len += (size_t)got;
	close(fd);
	answer[len] = 0;
	return answer;
}

static bool etcd_healthy(int port)
{
	char *answer = http_get(port, "/health");
	bool healthy = strstr(answer, "\"true\"") != NULL;

	free(answer);
	return healthy;
}

int64_t etcd_requests(const struct store *store)
{
	static const char name[] = "\ngrpc_server_msg_received_total{";
	char *answer = http_get(store->servers[0].port, "/metrics");
	double sum = 0;
	bool any = false;

	for (char *at = answer; (at = strstr(at, name)) != NULL; at++) {
		char *end = strchr(at, '}');
		if (!end)
			break;
		sum += strtod(end + 1, NULL);
		any = true;
	}
	free(answer);
	if (!any)
		give_up("etcd does not report its number of requests");
	return (int64_t)sum;
}

static bool etcd_start(struct store *store)
{
	struct test_server *server = &store->servers[0];
	int peer_port = port_pick();
	pid_t parent = getpid();

	memset(server, 0, sizeof(*server));
	folder_make(server->dir, sizeof(server->dir));
	do
		server->port = port_pick();
	while (server->port == peer_port);
	server->pid = fork();
	if (server->pid < 0)
		give_up("cannot fork");
	if (!server->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		etcd_run(server, peer_port);
	}
	if (WITHIN(ETCD_START_MS, etcd_healthy(server->port)))
		return true;
	server_stop(server);
	printf("etcd does not start\n");
	return false;
}

bool store_start(struct store *store, const char *server, int count)
{
	size_t len = 0;

	memset(store, 0, sizeof(*store));
	store->etcd = !strcmp(server, "etcd");
	if (store->etcd && !etcd_start(store))
		return false;
	for (int i = 0; !store->etcd && i < count; i++)
		server_start(&store->servers[i], NULL);
	store->count = store->etcd ? 1 : count;
	for (int i = 0; i < store->count; i++)
		len += (size_t)snprintf(store->ports + len, sizeof(store->ports) - len, "%s%d",
		                        i ? "," : "", store->servers[i].port);
	return true;
}

void store_stop(struct store *store)
{
	for (int i = 0; i < store->count; i++)
		server_stop(&store->servers[i]);
}

int64_t store_cpu_ns(const struct store *store)
{
	int64_t sum_ns = 0;

	for (int i = 0; i < store->count; i++)
		sum_ns += process_cpu_ns(store->servers[i].pid);
	return sum_ns;
}
