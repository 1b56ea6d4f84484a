/* SPDX-License-Identifier: MIT
 * A Cluster for one run: three masters with a replica each.  Each step is a command that an
 * operator may send with redis-cli. */
#include "demo.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 16384
#define MIGRATE_MS 5000
#define COMMAND_SIZE 1000

/* Send a command; false and its reply, printed, unless the reply begins as expected. */
static bool say(const struct node *node, char reply[REPLY_SIZE], const char *expected,
                const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static bool say(const struct node *node, char reply[REPLY_SIZE], const char *expected,
                const char *fmt, ...)
{
	char command[COMMAND_SIZE];
	va_list args;
	int len;

	va_start(args, fmt);
	len = vsnprintf(command, sizeof(command) - 3, fmt, args);
	va_end(args);
	if (len < 0 || len >= COMMAND_SIZE - 3)
		return complain("the Cluster", "a command is too long");
	memcpy(command + len, "\r\n", 3);
	if (node_ask(node, command, reply) && !strncmp(reply, expected, strlen(expected)))
		return true;
	reply[strcspn(reply, "\r\n")] = '\0';
	command[len] = '\0';
	return complain(command, *reply ? reply : "no reply");
}

static bool all_know_all(struct service *service)
{
	char reply[REPLY_SIZE];

	for (int i = 0; i < NODES; i++)
		for (int other = 0; other < NODES; other++)
			if (!node_ask(&service->nodes[i], "CLUSTER NODES\r\n", reply) ||
			    !strstr(reply, service->ids[other]) || strstr(reply, "handshake"))
				return false;
	return true;
}

static bool all_serve(struct service *service)
{
	char reply[REPLY_SIZE];

	for (int i = 0; i < NODES; i++) {
		if (!node_ask(&service->nodes[i], "CLUSTER INFO\r\n", reply) ||
		    !strstr(reply, "cluster_state:ok"))
			return false;
		if (!node_ask(&service->nodes[i], "INFO replication\r\n", reply) ||
		    !strstr(reply, i < MASTERS ? "state=online" : "master_link_status:up"))
			return false;
	}
	return true;
}

/* Slots for the masters, an introduction of all, then the replicas. */
static bool join(struct service *service, volatile const int *stop)
{
	const struct node *nodes = service->nodes;
	char reply[REPLY_SIZE];

	for (int i = 0; i < NODES; i++) {
		if (!say(&nodes[i], reply, "$40\r\n", "CLUSTER MYID") ||
		    sscanf(reply, "$40 %40s", service->ids[i]) != 1 ||
		    !say(&nodes[i], reply, "+OK", "CLUSTER SET-CONFIG-EPOCH %d", i + 1) ||
		    (i < MASTERS && !say(&nodes[i], reply, "+OK", "CLUSTER ADDSLOTSRANGE %d %d",
		                         (i * SLOTS + MASTERS - 1) / MASTERS,
		                         ((i + 1) * SLOTS + MASTERS - 1) / MASTERS - 1)) ||
		    (i > 0 &&
		     !say(&nodes[0], reply, "+OK", "CLUSTER MEET 127.0.0.1 %d", nodes[i].port)))
			return false;
	}
	if (!node_await(all_know_all, service, "the nodes' introduction", stop))
		return false;
	for (int i = MASTERS; i < NODES; i++)
		if (!say(&nodes[i], reply, "+OK", "CLUSTER REPLICATE %s",
		         service->ids[i - MASTERS]))
			return false;
	return node_await(all_serve, service, "the Cluster", stop);
}

static int lock_slot(const struct service *service)
{
	char reply[REPLY_SIZE];

	return say(&service->nodes[0], reply, ":", "CLUSTER KEYSLOT " LOCK_NAME) ? atoi(reply + 1)
	                                                                         : -1;
}

bool cluster_start(struct demo *demo, volatile const int *stop)
{
	static const char *const names[] = {"master-1",  "master-2",  "master-3",
	                                    "replica-1", "replica-2", "replica-3"};
	struct service *service = &demo->service;

	for (int i = 0; i < NODES; i++)
		if (!node_start(demo, &service->nodes[i], names[i], stop))
			return false;
	if (!join(service, stop))
		return false;
	service->owner = lock_slot(service) * MASTERS / SLOTS;
	snprintf(demo->url, sizeof(demo->url),
	         "redis+cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", service->nodes[0].port,
	         service->nodes[1].port, service->nodes[2].port);
	printf("store: %s\n", demo->url);
	return true;
}

/* The next key of a reply, which has lines "$<length>" and "<key>"; NULL = there is none. */
static const char *next_key(const char **at)
{
	const char *key = strstr(*at, "\r\n$");

	key = key ? strchr(key + 2, '\n') : NULL;
	if (key)
		*at = key + 1;
	return key ? key + 1 : NULL;
}

static bool move_keys(const struct node *from, const struct node *to, int slot)
{
	char keys[REPLY_SIZE], reply[REPLY_SIZE];
	const char *at = keys, *key;

	if (!say(from, keys, "*", "CLUSTER GETKEYSINSLOT %d 1000", slot))
		return false;
	while ((key = next_key(&at)))
		if (!say(from, reply, "+", "MIGRATE 127.0.0.1 %d %.*s 0 %d", to->port,
		         (int)strcspn(key, "\r"), key, MIGRATE_MS))
			return false;
	return true; /* no client makes new ones in a slot that migrates */
}

bool cluster_move_slot(struct service *service)
{
	int slot = lock_slot(service), from = service->owner, to = (from + 1) % MASTERS;
	const struct node *nodes = service->nodes;
	char reply[REPLY_SIZE];

	if (slot < 0 ||
	    !say(&nodes[to], reply, "+OK", "CLUSTER SETSLOT %d IMPORTING %s", slot,
	         service->ids[from]) ||
	    !say(&nodes[from], reply, "+OK", "CLUSTER SETSLOT %d MIGRATING %s", slot,
	         service->ids[to]) ||
	    !move_keys(&nodes[from], &nodes[to], slot))
		return false;
	for (int i = 0; i < MASTERS; i++)
		if (!say(&nodes[(to + MASTERS - i) % MASTERS], reply, "+OK",
		         "CLUSTER SETSLOT %d NODE %s", slot, service->ids[to]))
			return false;
	service->owner = to;
	return true;
}

void cluster_kill_master(struct service *service)
{
	node_kill(&service->nodes[service->owner]);
}

int cluster_new_master(const struct service *service)
{
	const struct node *replica = &service->nodes[service->owner + MASTERS];
	char reply[REPLY_SIZE];

	return node_ask(replica, "ROLE\r\n", reply) && strstr(reply, "\r\nmaster\r") ? replica->port
	                                                                             : 0;
}
