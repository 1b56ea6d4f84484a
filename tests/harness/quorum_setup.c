/* SPDX-License-Identifier: MIT
 * A quorum of three real servers. */
#include "quorum_setup.h"

#include "redis.h"

#include <latchkey.h>

#include <check.h>
#include <stdio.h>

void quorum_setup_start(struct quorum_setup *setup, const struct server_options *options)
{
	struct test_server *servers = setup->servers;

	for (int i = 0; i < QUORUM_SERVERS; i++)
		server_start(&servers[i], options);
	snprintf(setup->url, sizeof(setup->url),
	         "redis+quorum://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", servers[0].port,
	         servers[1].port, servers[2].port);
}

void quorum_setup_begin(struct quorum_setup *setup, int64_t longest_lease_ms)
{
	quorum_setup_start(setup, NULL);
	ck_assert_msg(lk_quorum_begin(setup->url, NULL, longest_lease_ms) == LK_OK, "%s",
	              lk_errmsg());
}

int quorum_setup_count(struct quorum_setup *setup, const char *key)
{
	int count = 0;

	for (int i = 0; i < QUORUM_SERVERS; i++) {
		struct redis *redis = redis_open(&setup->servers[i]);
		count += (int)redis_int(redis, "EXISTS %s", key);
		redis_close(redis);
	}
	return count;
}

long long quorum_setup_requests(struct quorum_setup *setup)
{
	long long requests = 0;

	for (int i = 0; i < QUORUM_SERVERS; i++) {
		struct redis *redis = redis_open(&setup->servers[i]);
		requests += redis_script_calls(redis);
		redis_close(redis);
	}
	return requests;
}
