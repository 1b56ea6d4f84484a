/* SPDX-License-Identifier: MIT
 * A quorum for one run: five servers that know nothing of each other. */
#include "demo.h"

#include <latchkey.h>
#include <stdio.h>
#include <string.h>

static const char *const names[VOTERS] = {"server-1", "server-2", "server-3", "server-4",
                                          "server-5"};

bool quorum_start(struct demo *demo, volatile const int *stop)
{
	struct node *nodes = demo->service.nodes;

	for (int i = 0; i < VOTERS; i++)
		if (!node_start(demo, &nodes[i], names[i], stop))
			return false;
	snprintf(demo->url, sizeof(demo->url),
	         "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
	         nodes[0].port, nodes[1].port, nodes[2].port, nodes[3].port, nodes[4].port);
	/* As `latchkey quorum init --longest-lease` does it. */
	if (lk_quorum_begin(demo->url, NULL, LONGEST_LEASE_MS) != LK_OK)
		return complain("cannot make a quorum", lk_errmsg());
	printf("store: %s, longest lease %d s\n", demo->url, LONGEST_LEASE_MS / 1000);
	return true;
}

void quorum_kill_server(struct service *service)
{
	node_kill(&service->nodes[0]);
}

bool quorum_restart_server(struct demo *demo, volatile const int *stop)
{
	return node_restart(demo, &demo->service.nodes[1], names[1], stop);
}

/* A server counts fences from its first grant on, and has forgotten those of its former life. */
bool quorum_votes_again(const struct service *service)
{
	char reply[REPLY_SIZE];

	return node_ask(&service->nodes[1], "EXISTS lk:fences\r\n", reply) &&
	       !strncmp(reply, ":1", 2);
}
