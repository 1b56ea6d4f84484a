/* SPDX-License-Identifier: MIT
 * What the nodes of a real Cluster believe. */
#include "cluster_setup.h"
#include "redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool cluster_setup_runs(const struct cluster_setup *setup, int node)
{
	return setup->nodes[node].pid && !setup->paused[node];
}

static int index_of(const struct cluster_setup *setup, const char *id)
{
	for (int i = 0; i < CLUSTER_NODES; i++)
		if (!strcmp(setup->ids[i], id))
			return i;
	return -1;
}

static bool has_flag(const char *flags, const char *flag)
{
	size_t len = strlen(flag);

	for (const char *at = flags; at; at = strchr(at, ','), at += at != NULL)
		if (strcspn(at, ",") == len && !memcmp(at, flag, len))
			return true;
	return false;
}

/* " 0-5460 5462 [77->-<id>]" */
static void read_slots(const char *at, int node, struct cluster_view *view)
{
	while (*at == ' ') {
		char *end;
		if (at[1] == '[') {
			if (view->open_slot < 0)
				view->open_slot = atoi(at + 2);
			at += 1 + strcspn(at + 1, " \n");
			continue;
		}
		long first = strtol(at + 1, &end, 10), last = first;
		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		if (end == at + 1)
			break;
		for (; first <= last; first++)
			view->owner[first] = (signed char)node;
		at = end;
	}
}

void cluster_setup_view(const struct cluster_setup *setup, int node, struct cluster_view *view)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	char id[41], flags[128], master[41];
	int slots;

	memset(view, 0, sizeof(*view));
	memset(view->owner, -1, sizeof(view->owner));
	memset(view->master_of, -1, sizeof(view->master_of));
	view->open_slot = -1;
	view->ok = strstr(redis_text(redis, "CLUSTER INFO"), "cluster_state:ok") != NULL;
	for (const char *line = redis_text(redis, "CLUSTER NODES"); line && *line;
	     line = strchr(line, '\n'), line += line != NULL) {
		int found;
		if (sscanf(line, "%40s %*s %127s %40s %*s %*s %*s %*s%n", id, flags, master,
		           &slots) != 3 ||
		    has_flag(flags, "handshake") || (found = index_of(setup, id)) < 0)
			continue;
		view->known++;
		view->failed[found] = has_flag(flags, "fail") || has_flag(flags, "fail?");
		view->master_of[found] = index_of(setup, master);
		read_slots(line + slots, found, view);
	}
	redis_close(redis);
}

int cluster_setup_owner(const struct cluster_setup *setup, int slot)
{
	struct cluster_view view;
	int owner = -1;

	for (int i = 0; i < CLUSTER_NODES; i++) {
		if (!cluster_setup_runs(setup, i))
			continue;
		cluster_setup_view(setup, i, &view);
		if (view.owner[slot] < 0 || (owner >= 0 && view.owner[slot] != owner))
			return -1;
		owner = view.owner[slot];
	}
	return owner;
}

bool cluster_setup_is_master(const struct cluster_setup *setup, int node)
{
	struct redis *redis = redis_open(&setup->nodes[node]);
	bool is = !strncmp(redis_text(redis, "ROLE"), "master", 6);

	redis_close(redis);
	return is;
}
