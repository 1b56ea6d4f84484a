/* SPDX-License-Identifier: MIT
 * etcd as a store. */
#include "etcd_store.h"

#include "etcd_server.h"
#include "process.h"
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct etcd_servers servers;

static void start_servers(void)
{
	etcd_start(&servers, 1);
}

void etcd_store_share(void)
{
	test_before_all(start_servers);
}

static void pause_store(bool on)
{
	kill(servers.nodes[0].pid, on ? SIGSTOP : SIGCONT); /* a child of the first process only */
}

/* An earlier test may have failed while it was paused. */
static const char *start_store(void)
{
	char options[40];

	pause_store(false);
	snprintf(options, sizeof(options), "?prefix=t%d", (int)getpid());
	return etcd_url(&servers, "", options);
}

static struct redis *look_at_none(void)
{
	return NULL;
}

/* Each request that writes has a revision of its own. */
static long long requests_of_store(void)
{
	const char *fields = etcd_ctl(&servers, "get none -w fields");
	const char *at = strstr(fields, "\"Revision\" :");

	ck_assert_msg(at, "no revision: %s", fields);
	return strtoll(at + strlen("\"Revision\" :"), NULL, 10);
}

const struct test_store store_on_etcd = {
	.has = STORE_LOCKS | STORE_SEMAPHORES | STORE_LATCHES | STORE_SHARED | STORE_HANDS_OVER |
	       STORE_FENCES,
	.least_lease_ms = 2000,
	.start = start_store,
	.pause = pause_store,
	.look = look_at_none,
	.requests = requests_of_store,
};
