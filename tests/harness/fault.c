/* SPDX-License-Identifier: MIT
 * What a test of a fault has: a server, the test's connection to it, and a proxy. */
#include "fault.h"

struct test_server server;
struct proxy proxy;
_Thread_local struct redis *redis;

void fault_set_up(const struct server_options *options)
{
	server_start(&server, options);
	redis = redis_open(&server);
}

void fault_set_up_proxy(void)
{
	server_start(&server, NULL);
	proxy_start(&proxy, &server);
	redis = redis_open(&server);
}

void fault_restart(void)
{
	pid_t killed = server.pid;

	server_restart(&server);
	redis_close(redis);
	redis = redis_open(&server);
	ck_assert_int_ne(redis_info(redis, "process_id"), killed);
}

lk_client *far_client(int64_t command_timeout_ms)
{
	const lk_client_options options = {.command_timeout_ms = command_timeout_ms};

	return client_with(proxy.url, &options);
}
