/* SPDX-License-Identifier: MIT
 * Clients of the store in etcd. */
#include "etcd_seam.h"

#include "etcd/etcd_store.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct etcd_servers *used;

/* The client's target, which frees them, gets the servers. */
static struct lk__store *create(const struct lk__target *target, const char *client_id)
{
	struct lk__target *own;

	memcpy(&own, &target, sizeof(own));
	own->seeds = calloc((size_t)used->count, sizeof(*own->seeds));
	ck_assert_ptr_nonnull(own->seeds);
	for (int i = 0; i < used->count; i++) {
		own->seeds[i].host = strdup("127.0.0.1");
		own->seeds[i].port = used->nodes[i].port;
	}
	own->seed_count = used->count;
	return lk__etcd_store.create(target, client_id);
}

const char *etcd_seam_use(const struct etcd_servers *servers)
{
	static struct lk__store_ops ops;
	static char url[200];

	used = servers;
	ops = lk__etcd_store;
	ops.create = create;
	lk__store_use(&ops);
	snprintf(url, sizeof(url), "redis%s://127.0.0.1:%d?grace=0", servers->tls ? "s" : "",
	         servers->nodes[0].port);
	return url;
}
