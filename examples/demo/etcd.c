/* SPDX-License-Identifier: MIT
 * A cluster of etcd for one run: three members. */
#include "demo.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_TRIES 3
#define URL_SIZE 40

static const char *const names[MEMBERS] = {"member-1", "member-2", "member-3"};

/* In the child; returns only if there is no etcd to run: in LATCHKEY_ETCD or, if that names no
 * folder, where `make test` unpacks it, or where PATH leads. */
static void run_member(const struct demo *demo, int index)
{
	const struct node *nodes = demo->service.nodes;
	const char *folder = getenv("LATCHKEY_ETCD");
	char program[PATH_SIZE] = "build/deps/etcd/etcd", data[PATH_SIZE], url[URL_SIZE],
	     peer_url[URL_SIZE], cluster[MEMBERS * (URL_SIZE + 20)];
	int len = 0;

	if (folder && *folder)
		snprintf(program, sizeof(program), "%.280s/etcd", folder);
	else if (access(program, X_OK) != 0)
		snprintf(program, sizeof(program), "etcd");
	snprintf(data, sizeof(data), "%.220s/%s-%d", demo->folder, names[index], nodes[index].port);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", nodes[index].port);
	snprintf(peer_url, sizeof(peer_url), "http://127.0.0.1:%d", nodes[index].peer_port);
	for (int i = 0; i < MEMBERS; i++)
		len += snprintf(cluster + len, sizeof(cluster) - (size_t)len,
		                "%s%s=http://127.0.0.1:%d", i ? "," : "", names[i],
		                nodes[i].peer_port);
	node_become_server();
	/* The data need not survive the machine. */
	execlp(program, "etcd", "--name", names[index], "--data-dir", data, "--listen-client-urls",
	       url, "--advertise-client-urls", url, "--listen-peer-urls", peer_url,
	       "--initial-advertise-peer-urls", peer_url, "--initial-cluster", cluster,
	       "--unsafe-no-fsync", "--logger", "zap", "--log-level", "error", (char *)NULL);
}

/* The member has not ended, as it does if a port is in use. */
static bool is_running(struct node *node)
{
	if (node->pid && waitpid(node->pid, NULL, WNOHANG) == node->pid)
		node->pid = 0;
	return node->pid != 0;
}

static bool are_healthy_or_dead(struct service *service)
{
	char reply[REPLY_SIZE];

	for (int i = 0; i < MEMBERS; i++)
		if (!is_running(&service->nodes[i]))
			return true;
	for (int i = 0; i < MEMBERS; i++)
		if (!node_get(&service->nodes[i], "GET /health HTTP/1.0\r\n\r\n", reply) ||
		    !strstr(reply, "\"health\":\"true\""))
			return false;
	return true;
}

/* Start all members, on other ports than before; they wait for each other. */
static bool begin_members(struct demo *demo)
{
	struct node *nodes = demo->service.nodes;
	pid_t parent = getpid();

	for (int i = 0; i < MEMBERS; i++) {
		nodes[i].port = node_pick_port();
		nodes[i].peer_port = node_pick_port();
	}
	for (int i = 0; i < MEMBERS; i++) {
		nodes[i].pid = fork();
		if (nodes[i].pid == 0) {
			end_with_parent(parent);
			run_member(demo, i);
			_exit(127);
		}
		if (nodes[i].pid < 0) {
			nodes[i].pid = 0;
			return complain("cannot fork", strerror(errno));
		}
	}
	return true;
}

bool etcd_start(struct demo *demo, volatile const int *stop)
{
	struct node *nodes = demo->service.nodes;
	int running = 0;

	for (int tries = 0; tries < START_TRIES && running < MEMBERS; tries++) {
		if (!begin_members(demo) || !node_await(are_healthy_or_dead, &demo->service,
		                                        "the members' agreement", stop))
			return false;
		running = 0;
		for (int i = 0; i < MEMBERS; i++)
			running += is_running(&nodes[i]);
		for (int i = 0; i < MEMBERS && running < MEMBERS; i++)
			node_kill(&nodes[i]);
	}
	if (running < MEMBERS)
		return complain(names[0], "does not start (is etcd installed?)");
	for (int i = 0; i < MEMBERS; i++)
		printf("%s: 127.0.0.1:%d, pid %ld\n", names[i], nodes[i].port, (long)nodes[i].pid);
	snprintf(demo->url, sizeof(demo->url), "etcd://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
	         nodes[0].port, nodes[1].port, nodes[2].port);
	printf("store: %s\n", demo->url);
	return true;
}

/* The number that follows this text; 0 if there is none. */
static unsigned long long number_after(const char *reply, const char *text)
{
	const char *at = strstr(reply, text);

	return at ? strtoull(at + strlen(text), NULL, 10) : 0;
}

/* The member that knows itself as the leader, -1 = none. */
static int find_leader(const struct service *service)
{
	static const char request[] = "POST /v3/maintenance/status HTTP/1.0\r\n"
				      "Content-Length: 2\r\n\r\n{}";
	char reply[REPLY_SIZE];

	for (int i = 0; i < MEMBERS; i++) {
		unsigned long long leader;

		if (!service->nodes[i].pid || !node_get(&service->nodes[i], request, reply))
			continue;
		leader = number_after(reply, "\"leader\":\"");
		if (leader && leader == number_after(reply, "\"member_id\":\""))
			return i;
	}
	return -1;
}

bool etcd_kill_leader(struct service *service)
{
	int leader = find_leader(service);

	if (leader >= 0)
		node_kill(&service->nodes[leader]);
	return leader >= 0;
}

bool etcd_has_leader(const struct service *service)
{
	return find_leader(service) >= 0;
}
