/* SPDX-License-Identifier: MIT
 * A service of Sentinel for one run: a master, two replicas and three sentinels. */
#include "demo.h"

#include <stdio.h>
#include <string.h>

static bool has_replicas(struct service *service)
{
	char reply[REPLY_SIZE];

	return node_ask(&service->servers[0], "INFO replication\r\n", reply) &&
	       strstr(reply, "connected_slaves:2\r") && !strstr(reply, "state=wait_bgsave") &&
	       !strstr(reply, "state=send_bulk");
}

static bool sentinels_agree(struct service *service)
{
	char reply[REPLY_SIZE];

	for (int i = 0; i < SENTINELS; i++)
		if (!node_ask(&service->sentinels[i], "SENTINEL MASTER " SERVICE "\r\n", reply) ||
		    !strstr(reply, "num-slaves\r\n$1\r\n2\r") ||
		    !strstr(reply, "num-other-sentinels\r\n$1\r\n2\r"))
			return false;
	return true;
}

bool service_start(struct demo *demo, volatile const int *stop)
{
	static const char *const names[] = {"master", "replica-1", "replica-2"};
	static const char *const sentinel_names[] = {"sentinel-1", "sentinel-2", "sentinel-3"};
	struct service *service = &demo->service;

	for (int i = 0; i < SERVERS; i++)
		if (!node_start(demo, &service->servers[i], names[i], stop))
			return false;
	/* A sentinel asks for the replicas at once, and then only every 10 s. */
	if (!node_await(has_replicas, service, "the first replication", stop))
		return false;
	for (int i = 0; i < SENTINELS; i++)
		if (!node_start(demo, &service->sentinels[i], sentinel_names[i], stop))
			return false;
	if (!node_await(sentinels_agree, service, "the sentinels' agreement", stop))
		return false;
	snprintf(demo->url, sizeof(demo->url),
	         "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/" SERVICE,
	         service->sentinels[0].port, service->sentinels[1].port,
	         service->sentinels[2].port);
	printf("store: %s\n", demo->url);
	return true;
}

void service_kill_master(struct service *service)
{
	node_kill(&service->servers[0]);
}

int service_new_master(const struct service *service)
{
	char reply[REPLY_SIZE], port[16];

	for (int i = 0; i < SENTINELS; i++) {
		if (!node_ask(&service->sentinels[i],
		              "SENTINEL GET-MASTER-ADDR-BY-NAME " SERVICE "\r\n", reply))
			continue;
		for (int server = 1; server < SERVERS; server++) {
			snprintf(port, sizeof(port), "\n%d\r", service->servers[server].port);
			if (strstr(reply, port))
				return service->servers[server].port;
		}
	}
	return 0;
}

void service_end(struct service *service)
{
	for (int i = 0; i < SENTINELS; i++)
		node_kill(&service->sentinels[i]);
	for (int i = 0; i < SERVERS; i++)
		node_kill(&service->servers[i]);
	for (int i = 0; i < NODES; i++)
		node_kill(&service->nodes[i]);
}
